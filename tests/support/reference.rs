//! The rows of docs/metrics.md: the parts that are not in the metadata of a metric, and the assignment of metrics to rows.

/// The parts of a row that are not in the metadata of the metric.
#[derive(Debug)]
pub(crate) struct Row {
    /// Exposed name, with `<…>` as a placeholder for the name of an event or an entry.
    pub(crate) name: &'static str,
    /// Description, for metrics whose help text is not fixed.
    pub(crate) says: &'static str,
    /// Labels, without those of containers and those defined in a configuration.
    pub(crate) labels: &'static [&'static str],
    /// Section of the configuration that enables the metric; empty if it is always present.
    pub(crate) section: &'static str,
    /// Example query.
    pub(crate) query: &'static str,
}

const fn row(
    name: &'static str,
    says: &'static str,
    labels: &'static [&'static str],
    section: &'static str,
    query: &'static str,
) -> Row {
    Row { name, says, labels, section, query }
}

/// The chapters with their rows.
pub(crate) const CHAPTERS: &[(&str, &[Row])] = &[
    (
        "CPUs",
        &[
            row(
                "perf_cpu_<event>_total",
                "Number of events on a CPU",
                &["cpu", "pmu", "event"],
                "counters",
                "sum by (instance) (rate(perf_cpu_instructions_total[5m])) / sum by (instance) (rate(perf_cpu_cycles_total[5m]))",
            ),
            row(
                "perf_cpu_<clock>_seconds_total",
                "Time counted by a clock event on a CPU",
                &["cpu", "pmu", "event"],
                "counters",
                "rate(perf_cpu_task_clock_seconds_total[5m])",
            ),
            row(
                "perf_numa_<event>_total",
                "Number of events on the CPUs of a NUMA node",
                &["numa_node", "pmu", "event"],
                "counters",
                "sum by (numa_node) (rate(perf_numa_cache_misses_total[5m]))",
            ),
            row(
                "perf_numa_<clock>_seconds_total",
                "Time counted by a clock event on the CPUs of a NUMA node",
                &["numa_node", "pmu", "event"],
                "counters",
                "sum by (numa_node) (rate(perf_numa_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_total",
                "Number of events of an uncore PMU",
                &["cpu", "pmu", "event", "socket"],
                "counters",
                "sum by (pmu) (rate(perf_pmu_clockticks_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_bytes_total",
                "Bytes counted by an event of an uncore PMU",
                &["cpu", "pmu", "event", "socket"],
                "counters",
                "sum by (instance) (rate(perf_pmu_cas_count_read_bytes_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_joules_total",
                "Energy counted by an event of an uncore PMU",
                &["cpu", "pmu", "event", "socket"],
                "counters",
                "sum by (instance) (rate(perf_pmu_energy_pkg_joules_total[5m]))",
            ),
        ],
    ),
    (
        "Cgroups",
        &[
            row(
                "perf_cgroup_<event>_total",
                "Number of events in a cgroup, without descendant cgroups that have series of their own",
                &["cgroup", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_cgroup_cache_misses_total[5m]))",
            ),
            row(
                "perf_cgroup_<clock>_seconds_total",
                "Time counted by a clock event in a cgroup, without descendant cgroups that have series of their own",
                &["cgroup", "pmu", "event"],
                "counters",
                "sum by (namespace, pod) (rate(perf_cgroup_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_container_info",
                "Metadata of the container of a cgroup; the value is 1",
                &["cgroup", "container_id", "image", "pod_uid", "workload", "workload_kind"],
                "containers",
                "rate(perf_cgroup_page_faults_total[5m]) * on (instance, cgroup) group_left (image) perf_container_info",
            ),
        ],
    ),
    (
        "Processes",
        &[
            row(
                "perf_process_<event>_total",
                "Number of events in the processes that share these labels",
                &["comm", "pid", "cgroup", "exe", "unit", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_process_context_switches_total[5m]))",
            ),
            row(
                "perf_process_<clock>_seconds_total",
                "Time counted by a clock event in the processes that share these labels",
                &["comm", "pid", "cgroup", "exe", "unit", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_process_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_process_<amount>_bytes",
                "Distribution of sizes in the fields of an entry, by process",
                &["comm", "pid", "cgroup", "exe", "unit"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, comm) (rate(perf_process_malloc_bytes_bucket[5m])))",
            ),
            row(
                "perf_process_<time>_seconds",
                "Distribution of times in the fields of an entry, by process",
                &["comm", "pid", "cgroup", "exe", "unit"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, comm) (rate(perf_process_query_seconds_bucket[5m])))",
            ),
        ],
    ),
    (
        "Tracepoints and probes",
        &[
            row(
                "perf_tracepoint_<entry>_total",
                "Hits of a tracepoint",
                &[],
                "tracepoints, presets",
                "sum by (function) (rate(perf_tracepoint_kworker_total[5m]))",
            ),
            row(
                "perf_tracepoint_<entry>_seconds",
                "Distribution of times in a field, or between two tracepoints",
                &[],
                "tracepoints, presets",
                "histogram_quantile(0.99, sum by (le, device) (rate(perf_tracepoint_block_latency_seconds_bucket[5m])))",
            ),
            row(
                "perf_cgroup_<entry>_seconds",
                "Distribution of times in a field, or between two tracepoints, of the tasks in a cgroup",
                &["cgroup"],
                "tracepoints, presets",
                "topk(5, sum by (cgroup) (rate(perf_cgroup_memcg_reclaim_seconds_sum[5m])))",
            ),
            row(
                "perf_tracepoint_<entry>_bytes",
                "Distribution of sizes in a field",
                &[],
                "tracepoints, presets",
                "histogram_quantile(0.5, sum by (le, op) (rate(perf_tracepoint_block_size_bytes_bucket[5m])))",
            ),
            row(
                "perf_tracepoint_<entry>_seconds_total",
                "Sum of times in a field",
                &[],
                "tracepoints, presets",
                "rate(perf_tracepoint_iowait_seconds_total[5m])",
            ),
            row(
                "perf_tracepoint_<entry>_bytes_total",
                "Sum of sizes in a field",
                &[],
                "tracepoints, presets",
                "rate(perf_tracepoint_sent_bytes_total[5m])",
            ),
            row(
                "perf_probe_<entry>_total",
                "Hits of a probe",
                &[],
                "probes",
                "rate(perf_probe_malloc_total[5m])",
            ),
            row(
                "perf_probe_<entry>_seconds",
                "Distribution of times in an argument, or of the durations of a function",
                &[],
                "probes",
                "histogram_quantile(0.9, rate(perf_probe_query_seconds_bucket[5m]))",
            ),
            row(
                "perf_probe_<entry>_bytes",
                "Distribution of sizes in an argument",
                &[],
                "probes",
                "histogram_quantile(0.9, rate(perf_probe_malloc_bytes_bucket[5m]))",
            ),
            row(
                "perf_probe_<entry>_bytes_total",
                "Sum of sizes in an argument",
                &[],
                "probes",
                "rate(perf_probe_send_bytes_total[5m])",
            ),
            row(
                "perf_probe_<entry>_seconds_total",
                "Sum of times in an argument",
                &[],
                "probes",
                "rate(perf_probe_locked_seconds_total[5m])",
            ),
            row(
                "perf_cgroup_<amount>_bytes",
                "Distribution of sizes, by cgroup",
                &["cgroup"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cgroup) (rate(perf_cgroup_malloc_bytes_bucket[5m])))",
            ),
            row(
                "perf_cgroup_<time>_seconds",
                "Distribution of times, by cgroup",
                &["cgroup"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cgroup) (rate(perf_cgroup_query_seconds_bucket[5m])))",
            ),
            row(
                "perf_cgroup_<amount>_bytes_total",
                "The sum of sizes, by cgroup",
                &["cgroup"],
                "tracepoints, probes",
                "rate(perf_cgroup_tcp_send_bytes_total[5m])",
            ),
            row(
                "perf_process_<amount>_bytes_total",
                "The sum of sizes, by process",
                &["comm", "pid", "cgroup", "exe", "unit"],
                "tracepoints, probes",
                "rate(perf_process_tcp_send_bytes_total[5m])",
            ),
            row(
                "perf_cpu_<amount>_bytes",
                "Distribution of sizes, by CPU",
                &["cpu"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cpu) (rate(perf_cpu_tcp_send_bytes_bucket[5m])))",
            ),
            row(
                "perf_cpu_<time>_seconds",
                "Distribution of times, by CPU",
                &["cpu"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cpu) (rate(perf_cpu_softirq_run_seconds_bucket[5m])))",
            ),
            row(
                "perf_pending_events",
                "Begin events of a pair whose end event has not arrived",
                &["entry"],
                "tracepoints, probes",
                "perf_pending_events > 1000",
            ),
            row(
                "perf_unpaired_events_total",
                "Events of a pair without a partner, by reason",
                &["entry", "reason"],
                "tracepoints, probes",
                "rate(perf_unpaired_events_total[5m])",
            ),
            row(
                "perf_dropped_hits_total",
                "Hits whose value was not added, by reason",
                &["entry", "reason"],
                "tracepoints, probes",
                "rate(perf_dropped_hits_total[5m]) > 0",
            ),
        ],
    ),
    (
        "Scheduler",
        &[
            row(
                "perf_<scope>sched_runqueue_latency_seconds",
                "Time from the wakeup or preemption of a thread until it runs on a CPU",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "histogram_quantile(0.99, sum by (le, pod) (rate(perf_cgroup_sched_runqueue_latency_seconds_bucket[5m])))",
            ),
            row(
                "perf_<scope>sched_runqueue_latency_max_seconds",
                "Maximum runqueue latency of a thread over the last minute",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "max by (instance) (perf_sched_runqueue_latency_max_seconds)",
            ),
            row(
                "perf_<scope>sched_run_seconds_total",
                "Time that threads ran on a CPU",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_cgroup_sched_run_seconds_total[5m])",
            ),
            row(
                "perf_<scope>sched_wait_seconds_total",
                "Time that threads were off the CPU, by state: preempted, sleeping, uninterruptible",
                &["state", "numa_node", "cgroup", "comm"],
                "scheduler",
                "sum by (pod, state) (rate(perf_cgroup_sched_wait_seconds_total[5m]))",
            ),
            row(
                "perf_<scope>sched_switches_total",
                "Context switches of threads off a CPU, by kind: voluntary, involuntary",
                &["kind", "numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_sched_switches_total{kind=\"involuntary\"}[5m])",
            ),
            row(
                "perf_<scope>sched_migrations_total",
                "Migrations of threads to another CPU",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_sched_migrations_total[5m])",
            ),
            row(
                "perf_<scope>sched_preemptions_total",
                "Preemptions of threads, by the incoming task",
                &["by", "numa_node", "cgroup", "comm"],
                "scheduler",
                "sum by (by) (rate(perf_cgroup_sched_preemptions_total[5m]))",
            ),
            row(
                "perf_<scope>sched_preempted_by_cgroup_total",
                "Preemptions of threads by threads of another cgroup, by that cgroup; only the cgroups with the most preemptions",
                &["by_cgroup", "numa_node", "cgroup", "comm"],
                "scheduler",
                "topk(10, rate(perf_cgroup_sched_preempted_by_cgroup_total[5m]))",
            ),
            row(
                "perf_untracked_events_total",
                "Scheduler and system call events that could not be accounted, by reason",
                &["reason", "section"],
                "scheduler, syscalls",
                "rate(perf_untracked_events_total[5m]) > 0",
            ),
        ],
    ),
    (
        "System calls",
        &[
            row(
                "perf_<scope>syscalls_total",
                "Completed system calls",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "topk(10, sum by (syscall) (rate(perf_syscalls_total[5m])))",
            ),
            row(
                "perf_<scope>syscall_errors_total",
                "System calls that returned an error, by error name",
                &["errno", "syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "sum by (pod, errno) (rate(perf_cgroup_syscall_errors_total[5m]))",
            ),
            row(
                "perf_<scope>syscall_duration_seconds",
                "Duration of system calls",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "histogram_quantile(0.99, sum by (le, syscall) (rate(perf_syscall_duration_seconds_bucket[5m])))",
            ),
            row(
                "perf_<scope>syscalls_stuck",
                "Number of system calls in progress for longer than `syscalls.stuck`",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "perf_syscalls_stuck > 0",
            ),
            row(
                "perf_<scope>syscalls_stuck_longest_seconds",
                "Duration of the longest system call in progress for longer than `syscalls.stuck`",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "max by (syscall) (perf_syscalls_stuck_longest_seconds)",
            ),
        ],
    ),
    (
        "Profiles",
        &[
            row(
                "perf_samples_total",
                "Samples, by thread name, cgroup and mode",
                &["profile", "mode", "comm", "cgroup", "cpu", "numa_node"],
                "profiles",
                "sum by (mode) (rate(perf_samples_total{profile=\"cpu\"}[5m]))",
            ),
            row(
                "perf_function_samples_total",
                "Samples by innermost function, for the functions with the most samples",
                &["profile", "function", "module"],
                "profiles",
                "topk(10, rate(perf_function_samples_total{profile=\"cpu\"}[5m]))",
            ),
            row(
                "perf_truncated_stacks_total",
                "",
                &["reason"],
                "profiles",
                "rate(perf_truncated_stacks_total[5m])",
            ),
            row(
                "perf_profile_gaps_total",
                "",
                &["reason"],
                "profiles",
                "rate(perf_profile_gaps_total[5m]) > 0",
            ),
            row(
                "perf_frames_unresolved_total",
                "",
                &["reason"],
                "profiles",
                "rate(perf_frames_unresolved_total[5m])",
            ),
            row(
                "perf_frames_without_line_total",
                "Frames without a source line, by reason",
                &["reason"],
                "profiles",
                "rate(perf_frames_without_line_total[5m])",
            ),
            row("perf_throttled_total", "", &[], "profiles", "rate(perf_throttled_total[5m]) > 0"),
            row(
                "perf_exporter_profile_age_seconds",
                "Time since the profile reader last analyzed all recorded samples",
                &[],
                "profiles",
                "perf_exporter_profile_age_seconds > 10",
            ),
        ],
    ),
    (
        "Data quality",
        &[
            row(
                "perf_event_state",
                "",
                &["event", "scope", "state", "counters", "pmu"],
                "",
                "perf_event_state{state!=\"counting\"} > 0",
            ),
            row(
                "perf_event_running_ratio",
                "",
                &[
                    "cgroup", "comm", "cpu", "counters", "leader", "scope", "pmu", "pid", "exe", "unit",
                    "event",
                ],
                "counters",
                "perf_event_running_ratio < 0.5",
            ),
            row(
                "perf_targets",
                "",
                &["counters", "leader", "scope", "state", "pmu"],
                "counters",
                "perf_targets{state=\"left_out\"} > 0",
            ),
            row(
                "perf_series_aggregated_total",
                "",
                &["counters", "leader", "scope", "pmu"],
                "limits",
                "rate(perf_series_aggregated_total[5m]) > 0",
            ),
            row(
                "perf_series_in_other",
                "",
                &["counters", "leader", "scope", "pmu"],
                "limits",
                "perf_series_in_other > 0",
            ),
            row("perf_ring_records_total", "", &["ring"], "", "rate(perf_ring_records_total[5m])"),
            row(
                "perf_lost_records_total",
                "",
                &["ring", "reason"],
                "",
                "rate(perf_lost_records_total[5m]) > 0",
            ),
            row(
                "perf_anomaly_active",
                "Anomaly of a cgroup that has begun and not ended; the value is 1",
                &["kind", "cgroup"],
                "anomalies",
                "perf_anomaly_active == 1",
            ),
            row(
                "perf_anomaly_score",
                "Distance of the figure of a cgroup with an anomaly from its usual value, in usual deviations",
                &["kind", "cgroup"],
                "anomalies",
                "topk(5, perf_anomaly_score)",
            ),
            row(
                "perf_anomaly_suspect_correlation",
                "Score of a suspect as of the begin of an anomaly: basis correlation, the correlation of its CPU time with the figure, from 0.35 to 1; basis ran_meanwhile, the share of the time in which it ran while threads waited for a CPU, from 0.2 to 1",
                &["kind", "cgroup", "suspect", "basis"],
                "anomalies",
                "perf_anomaly_suspect_correlation",
            ),
            row(
                "perf_anomaly_cgroups",
                "Number of cgroups by the result of the last comparison with their past",
                &["kind", "result"],
                "anomalies",
                "perf_anomaly_cgroups",
            ),
            row(
                "perf_anomalies_total",
                "Anomalies of cgroups",
                &["kind"],
                "anomalies",
                "increase(perf_anomalies_total[1d])",
            ),
            row("perf_ring_bytes", "", &["ring"], "limits", "perf_ring_bytes"),
            row(
                "perf_unattributed_<event>_total",
                "Events counted on CPUs but not attributed to a cgroup or process, by reason",
                &["reason", "scope", "pmu", "event"],
                "",
                "sum by (reason) (rate(perf_unattributed_task_clock_seconds_total[5m]))",
            ),
        ],
    ),
    (
        "The exporter itself",
        &[
            row(
                "perf_exporter_build_info",
                "",
                &["arch", "version", "revision"],
                "",
                "count by (version) (perf_exporter_build_info)",
            ),
            row(
                "perf_exporter_collect_duration_seconds",
                "",
                &[],
                "collection",
                "histogram_quantile(0.99, rate(perf_exporter_collect_duration_seconds_bucket[5m]))",
            ),
            row(
                "perf_exporter_snapshot_age_seconds",
                "Age of the collection in the response, since the start of the collection. Only in responses of `/metrics`",
                &[],
                "collection",
                "perf_exporter_snapshot_age_seconds > 60",
            ),
            row(
                "perf_exporter_cpu_seconds_total",
                "",
                &[],
                "limits",
                "rate(perf_exporter_cpu_seconds_total[5m])",
            ),
            row(
                "perf_exporter_hung_file_operations",
                "",
                &[],
                "profiles, probes",
                "perf_exporter_hung_file_operations > 0",
            ),
            row(
                "perf_exporter_file_timeouts_total",
                "",
                &[],
                "profiles, probes",
                "rate(perf_exporter_file_timeouts_total[5m])",
            ),
            row("perf_exporter_detail_reduced", "", &[], "limits", "perf_exporter_detail_reduced > 0"),
            row("perf_exporter_resident_memory_bytes", "", &[], "", "perf_exporter_resident_memory_bytes"),
            row("perf_exporter_open_descriptors", "", &[], "limits", "perf_exporter_open_descriptors"),
            row(
                "perf_exporter_descriptors",
                "",
                &["kind"],
                "",
                "sum by (kind, instance) (perf_exporter_descriptors)",
            ),
            row(
                "perf_exporter_memory_bytes",
                "",
                &["part"],
                "limits",
                "perf_exporter_memory_bytes / perf_exporter_memory_limit_bytes > 0.9",
            ),
            row(
                "perf_exporter_memory_limit_bytes",
                "",
                &["part"],
                "limits",
                "sum by (instance) (perf_exporter_memory_limit_bytes)",
            ),
            row(
                "perf_exporter_config_last_reload_successful",
                "",
                &[],
                "",
                "perf_exporter_config_last_reload_successful == 0",
            ),
            row(
                "perf_exporter_config_last_reload_success_timestamp_seconds",
                "",
                &[],
                "",
                "time() - perf_exporter_config_last_reload_success_timestamp_seconds",
            ),
            row("perf_exporter_deep_sets", "", &[], "limits", "perf_exporter_deep_sets > 0"),
            row("perf_exporter_containers", "", &[], "containers", "perf_exporter_containers"),
            row(
                "perf_exporter_unknown_containers",
                "",
                &[],
                "containers",
                "perf_exporter_unknown_containers > 0",
            ),
            row(
                "perf_exporter_container_lookups_total",
                "Requests to container metadata sources, by result",
                &["source", "result"],
                "containers",
                "rate(perf_exporter_container_lookups_total{result!=\"ok\"}[5m]) > 0",
            ),
            row(
                "perf_exporter_incident_triggers_total",
                "",
                &["trigger", "result"],
                "anomalies",
                "rate(perf_exporter_incident_triggers_total{result=\"failed\"}[1h]) > 0",
            ),
            row("perf_exporter_http_connections", "", &[], "limits", "perf_exporter_http_connections"),
            row(
                "perf_exporter_http_connections_<ended>_total",
                "Connections that were aborted, by reason",
                &["reason"],
                "",
                "rate(perf_exporter_http_connections_aborted_total[5m])",
            ),
            row(
                "perf_exporter_http_requests_total",
                "HTTP responses, by path and status code",
                &["code", "path"],
                "",
                "sum by (path, code) (rate(perf_exporter_http_requests_total[5m]))",
            ),
            row(
                "perf_exporter_http_request_duration_seconds",
                "Time from the start of a request until the response was sent",
                &["path"],
                "",
                "histogram_quantile(0.99, sum by (le, path) (rate(perf_exporter_http_request_duration_seconds_bucket[5m])))",
            ),
            row(
                "perf_exporter_http_response_bytes_total",
                "Bytes of response bodies, compressed and without headers",
                &["path"],
                "",
                "rate(perf_exporter_http_response_bytes_total[5m])",
            ),
            row(
                "perf_exporter_push_items_total",
                "",
                &["format", "outcome", "signal"],
                "export",
                "sum by (format, signal, outcome) (rate(perf_exporter_push_items_total[5m]))",
            ),
            row(
                "perf_exporter_push_requests_total",
                "",
                &["format", "outcome", "signal"],
                "export",
                "sum by (format, signal, outcome) (rate(perf_exporter_push_requests_total[5m]))",
            ),
            row(
                "perf_exporter_push_bytes_total",
                "",
                &["format", "signal"],
                "export",
                "rate(perf_exporter_push_bytes_total[5m])",
            ),
            row(
                "perf_exporter_push_duration_seconds",
                "",
                &["format", "signal"],
                "export",
                "histogram_quantile(0.99, sum by (le, format, signal) (rate(perf_exporter_push_duration_seconds_bucket[5m])))",
            ),
            row(
                "perf_exporter_push_failing",
                "",
                &["format", "signal"],
                "export",
                "perf_exporter_push_failing == 1",
            ),
            row(
                "perf_exporter_push_queue_bytes",
                "",
                &["format", "signal"],
                "export",
                "perf_exporter_push_queue_bytes",
            ),
            row(
                "process_<of the process>",
                "Standard process metrics of Prometheus client libraries: CPU time, memory, file descriptors, threads, start time",
                &[],
                "",
                "rate(process_cpu_seconds_total[5m])",
            ),
        ],
    ),
];

/// Returns all rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    CHAPTERS.iter().flat_map(|(_, rows)| rows.iter())
}

/// Returns the most specific row that matches the exposed name of a metric (with `_total` or `_info`, without `_bucket`).
pub(crate) fn row_of(name: &str) -> Option<&'static Row> {
    rows().filter(|row| fits(row.name, name)).max_by_key(|row| (!row.name.contains('<'), row.name.len()))
}

/// Reports whether a name matches a pattern. `<scope>` may be empty.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('<') else { return pattern == name };
    let (placeholder, after) = rest.split_once('>').unwrap_or((rest, ""));
    let within = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    within.is_some_and(|within| match placeholder {
        "scope" => ["", "cgroup_", "process_", "cpu_", "numa_"].contains(&within),
        _ => !within.is_empty(),
    })
}
