//! The rows of docs/metrics.md: what of a metric the code does not tell about itself, and which row a metric has.

/// What stands in a row beside what the program tells of the metric.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name as it is served, with `<…>` for a part that events or entries fill in.
    pub(crate) name: &'static str,
    /// What it says, where the program has no one text for it.
    pub(crate) says: &'static str,
    /// Its labels, but for those of containers and those that a configuration gives.
    pub(crate) labels: &'static [&'static str],
    /// The section of the configuration that it comes from; empty of what is always there.
    pub(crate) section: &'static str,
    /// Something to ask Prometheus.
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

/// Chapters with their rows.
pub(crate) const CHAPTERS: &[(&str, &[Row])] = &[
    (
        "CPUs",
        &[
            row(
                "perf_cpu_<event>_total",
                "How often an event happened on a CPU",
                &["cpu", "pmu", "event"],
                "counters",
                "sum by (instance) (rate(perf_cpu_instructions_total[5m])) / sum by (instance) (rate(perf_cpu_cycles_total[5m]))",
            ),
            row(
                "perf_cpu_<clock>_seconds_total",
                "Time that a clock of a CPU went on",
                &["cpu", "pmu", "event"],
                "counters",
                "rate(perf_cpu_task_clock_seconds_total[5m])",
            ),
            row(
                "perf_numa_<event>_total",
                "How often an event happened on the CPUs of a NUMA node",
                &["numa_node", "pmu", "event"],
                "counters",
                "sum by (node) (rate(perf_numa_cache_misses_total[5m]))",
            ),
            row(
                "perf_numa_<clock>_seconds_total",
                "Time that a clock of these CPUs went on",
                &["numa_node", "pmu", "event"],
                "counters",
                "sum by (node) (rate(perf_numa_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_total",
                "How often an event of a PMU beside the cores happened",
                &["cpu", "pmu", "event", "socket"],
                "counters",
                "sum by (pmu) (rate(perf_pmu_clockticks_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_bytes_total",
                "What an event of a PMU beside the cores stands for",
                &["cpu", "pmu", "event", "socket"],
                "counters",
                "sum by (instance) (rate(perf_pmu_cas_count_read_bytes_total[5m]))",
            ),
            row(
                "perf_pmu_<event>_joules_total",
                "Energy used, by a PMU that meters it",
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
                "How often an event happened in a cgroup, without those below it that have series of their own",
                &["cgroup", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_cgroup_cache_misses_total[5m]))",
            ),
            row(
                "perf_cgroup_<clock>_seconds_total",
                "Time that a cgroup ran, likewise",
                &["cgroup", "pmu", "event"],
                "counters",
                "sum by (namespace, pod) (rate(perf_cgroup_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_container_info",
                "What is known of the container that a cgroup is of; the value is 1",
                &["cgroup", "container_id", "image", "pod_uid"],
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
                "How often an event happened in the processes that share these labels",
                &["comm", "pid", "cgroup", "exe", "unit", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_process_context_switches_total[5m]))",
            ),
            row(
                "perf_process_<clock>_seconds_total",
                "Time that they ran",
                &["comm", "pid", "cgroup", "exe", "unit", "pmu", "event"],
                "counters",
                "topk(10, rate(perf_process_task_clock_seconds_total[5m]))",
            ),
            row(
                "perf_process_<amount>_bytes",
                "Sizes that an entry looks into, by process",
                &["comm", "pid", "cgroup", "exe", "unit"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, comm) (rate(perf_process_malloc_bytes_bucket[5m])))",
            ),
            row(
                "perf_process_<time>_seconds",
                "Times that an entry looks into, by process",
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
                "Times in its fields, or between two tracepoints",
                &[],
                "tracepoints, presets",
                "histogram_quantile(0.99, sum by (le, device) (rate(perf_tracepoint_block_latency_seconds_bucket[5m])))",
            ),
            row(
                "perf_tracepoint_<entry>_bytes",
                "Sizes in its fields",
                &[],
                "tracepoints, presets",
                "histogram_quantile(0.5, sum by (le, op) (rate(perf_tracepoint_block_size_bytes_bucket[5m])))",
            ),
            row(
                "perf_tracepoint_<entry>_seconds_total",
                "The sum of times in its fields",
                &[],
                "tracepoints, presets",
                "rate(perf_tracepoint_iowait_seconds_total[5m])",
            ),
            row(
                "perf_tracepoint_<entry>_bytes_total",
                "The sum of sizes in its fields",
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
                "Times in its arguments, or how long a function took",
                &[],
                "probes",
                "histogram_quantile(0.9, rate(perf_probe_query_seconds_bucket[5m]))",
            ),
            row(
                "perf_probe_<entry>_bytes",
                "Sizes in its arguments",
                &[],
                "probes",
                "histogram_quantile(0.9, rate(perf_probe_malloc_bytes_bucket[5m]))",
            ),
            row(
                "perf_probe_<entry>_bytes_total",
                "The sum of sizes in its arguments",
                &[],
                "probes",
                "rate(perf_probe_send_bytes_total[5m])",
            ),
            row(
                "perf_probe_<entry>_seconds_total",
                "The sum of times",
                &[],
                "probes",
                "rate(perf_probe_locked_seconds_total[5m])",
            ),
            row(
                "perf_cgroup_<amount>_bytes",
                "Sizes, by cgroup",
                &["cgroup"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cgroup) (rate(perf_cgroup_malloc_bytes_bucket[5m])))",
            ),
            row(
                "perf_cgroup_<time>_seconds",
                "Times, by cgroup",
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
                "Sizes, by CPU",
                &["cpu"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cpu) (rate(perf_cpu_tcp_send_bytes_bucket[5m])))",
            ),
            row(
                "perf_cpu_<time>_seconds",
                "Times, by CPU",
                &["cpu"],
                "tracepoints, probes",
                "histogram_quantile(0.9, sum by (le, cpu) (rate(perf_cpu_softirq_run_seconds_bucket[5m])))",
            ),
            row(
                "perf_pending_events",
                "Events that wait for their partner",
                &["entry"],
                "tracepoints, probes",
                "perf_pending_events > 1000",
            ),
            row(
                "perf_unpaired_events_total",
                "Events that found none, by reason",
                &["entry", "reason"],
                "tracepoints, probes",
                "rate(perf_unpaired_events_total[5m])",
            ),
            row(
                "perf_dropped_hits_total",
                "Hits that stand in no series, by reason",
                &["entry", "reason"],
                "tracepoints, probes",
                "rate(perf_dropped_hits_total[5m]) > 0",
            ),
        ],
    ),
    (
        "The scheduler",
        &[
            row(
                "perf_<scope>sched_runqueue_latency_seconds",
                "How long threads waited for a CPU after they were woken or preempted",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "histogram_quantile(0.99, sum by (le, pod) (rate(perf_cgroup_sched_runqueue_latency_seconds_bucket[5m])))",
            ),
            row(
                "perf_<scope>sched_runqueue_latency_max_seconds",
                "The longest such wait since the collection before",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "max by (instance) (perf_sched_runqueue_latency_max_seconds)",
            ),
            row(
                "perf_<scope>sched_run_seconds_total",
                "How long threads ran",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_cgroup_sched_run_seconds_total[5m])",
            ),
            row(
                "perf_<scope>sched_wait_seconds_total",
                "How long they did not, by why: preempted, sleeping, blocked",
                &["state", "numa_node", "cgroup", "comm"],
                "scheduler",
                "sum by (pod, state) (rate(perf_cgroup_sched_wait_seconds_total[5m]))",
            ),
            row(
                "perf_<scope>sched_switches_total",
                "How often they left a CPU, by whether they wanted to",
                &["kind", "numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_sched_switches_total{kind=\"involuntary\"}[5m])",
            ),
            row(
                "perf_<scope>sched_migrations_total",
                "How often they were moved to another CPU",
                &["numa_node", "cgroup", "comm"],
                "scheduler",
                "rate(perf_sched_migrations_total[5m])",
            ),
            row(
                "perf_<scope>sched_preemptions_total",
                "How often they were preempted, by whom",
                &["by", "numa_node", "cgroup", "comm"],
                "scheduler",
                "sum by (by) (rate(perf_cgroup_sched_preemptions_total[5m]))",
            ),
            row(
                "perf_<scope>sched_preempted_by_cgroup_total",
                "How often by which cgroup: those that do it most",
                &["by_cgroup", "numa_node", "cgroup", "comm"],
                "scheduler",
                "topk(10, rate(perf_cgroup_sched_preempted_by_cgroup_total[5m]))",
            ),
            row(
                "perf_untold_events_total",
                "What threads did and nobody could tell, by reason",
                &["reason", "section"],
                "scheduler, syscalls",
                "rate(perf_untold_events_total[5m]) > 0",
            ),
        ],
    ),
    (
        "System calls",
        &[
            row(
                "perf_<scope>syscalls_total",
                "System calls that have ended",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "topk(10, sum by (syscall) (rate(perf_syscalls_total[5m])))",
            ),
            row(
                "perf_<scope>syscall_errors_total",
                "Those that failed, by error",
                &["errno", "syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "sum by (pod, errno) (rate(perf_cgroup_syscall_errors_total[5m]))",
            ),
            row(
                "perf_<scope>syscall_duration_seconds",
                "How long they took",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "histogram_quantile(0.99, sum by (le, syscall) (rate(perf_syscall_duration_seconds_bucket[5m])))",
            ),
            row(
                "perf_<scope>syscalls_stuck",
                "Calls that have lasted longer than `syscalls.stuck`, now",
                &["syscall", "numa_node", "cgroup", "comm"],
                "syscalls",
                "perf_syscalls_stuck > 0",
            ),
            row(
                "perf_<scope>syscalls_stuck_longest_seconds",
                "How long the longest of these has lasted",
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
                "Samples, by what the thread was doing",
                &["profile", "mode", "comm", "cgroup", "cpu", "numa_node"],
                "profiles",
                "sum by (mode) (rate(perf_samples_total{profile=\"cpu\"}[5m]))",
            ),
            row(
                "perf_function_samples_total",
                "Samples of the functions that were innermost most often",
                &["profile", "function", "module"],
                "profiles",
                "topk(10, rate(perf_function_samples_total{profile=\"cpu\"}[5m]))",
            ),
            row("perf_stacks_cut_total", "", &["reason"], "profiles", "rate(perf_stacks_cut_total[5m])"),
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
                "Frames of which no line of source is known, by reason",
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
        "How far to believe it",
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
                "perf_targets{state=\"refused\"} > 0",
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
            row("perf_ring_bytes", "", &["ring"], "limits", "perf_ring_bytes"),
            row(
                "perf_unattributed_<event>_total",
                "What CPUs counted and no cgroup or process was charged with, by reason",
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
                "Age of the collection that the scrape was answered with, since it began. Only `/metrics` has it",
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
            row("perf_exporter_stuck_files", "", &[], "profiles, probes", "perf_exporter_stuck_files > 0"),
            row(
                "perf_exporter_late_files_total",
                "",
                &[],
                "profiles, probes",
                "rate(perf_exporter_late_files_total[5m])",
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
                "perf_exporter_config_<attempts>_total",
                "Attempts to read the configuration again, by outcome",
                &["result"],
                "",
                "increase(perf_exporter_config_reloads_total[1h])",
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
                "How often who tells of containers was asked, by how that ended",
                &["source", "result"],
                "containers",
                "rate(perf_exporter_container_lookups_total{result!=\"ok\"}[5m]) > 0",
            ),
            row("perf_exporter_http_connections", "", &[], "limits", "perf_exporter_http_connections"),
            row(
                "perf_exporter_http_connections_<ended>_total",
                "Connections that ended early, by reason",
                &["reason"],
                "",
                "rate(perf_exporter_http_connections_aborted_total[5m])",
            ),
            row(
                "perf_exporter_http_requests_total",
                "Requests answered",
                &["code", "path"],
                "",
                "sum by (path, code) (rate(perf_exporter_http_requests_total[5m]))",
            ),
            row(
                "perf_exporter_http_request_duration_seconds",
                "How long answers took",
                &["path"],
                "",
                "histogram_quantile(0.99, sum by (le, path) (rate(perf_exporter_http_request_duration_seconds_bucket[5m])))",
            ),
            row(
                "perf_exporter_http_response_bytes_total",
                "What was answered",
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
                "What client libraries of Prometheus tell of a process: CPU time, memory, descriptors, threads, start",
                &[],
                "",
                "rate(process_cpu_seconds_total[5m])",
            ),
        ],
    ),
];

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    CHAPTERS.iter().flat_map(|(_, rows)| rows.iter())
}

/// The row of a metric by the name that it is served under (with `_total` or `_info`, without `_bucket`): the one that says
/// most of it.
pub(crate) fn row_of(name: &str) -> Option<&'static Row> {
    rows().filter(|row| fits(row.name, name)).max_by_key(|row| (!row.name.contains('<'), row.name.len()))
}

/// Whether a name is one of the pattern's. For `<scope>` nothing may stand.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('<') else { return pattern == name };
    let (placeholder, after) = rest.split_once('>').unwrap_or((rest, ""));
    let within = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    within.is_some_and(|within| match placeholder {
        "scope" => ["", "cgroup_", "process_", "cpu_", "numa_"].contains(&within),
        _ => !within.is_empty(),
    })
}
