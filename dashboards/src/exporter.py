"""What is the overhead of the exporter, and which data is missing?"""

from .node_overview import BY_NODE
from .panels import GREEN, GREY, ORANGE, RED, YELLOW, column, dashboard as made, lines, number, row, steps, table
from .queries import quantile, ratio, total

REFUSED = 'state=~"absent|forbidden|exhausted|broken"'
DOUBTFUL = 'state=~"never_ran|stalled|implausible|full"'
COST = steps((0.02, YELLOW), (0.05, RED))
LOST = steps((0.01, YELLOW), (100, RED))
ANY = steps((1, YELLOW))


def cost(by="instance"):
    """The fraction of all CPU time, as in `limits.cpu`."""
    return ratio(total("perf_exporter_cpu_seconds_total", by), total("perf_cpu_task_clock_seconds_total", by))


def dashboard():
    return made(
        "perf-exporter",
        "perf: exporter",
        "What is the overhead of the exporter, and which data is missing?",
        [
            row(
                "At a glance",
                number(
                    "Exporters",
                    "Number of exporters that Prometheus currently scrapes.",
                    "count(perf_exporter_build_info{@node})",
                    graph=False,
                    width=3,
                ),
                number(
                    "Maximum CPU usage",
                    "Maximum over all exporters, as a fraction of all CPUs of the node. The limit is `limits.cpu`, 2 % by "
                    "default.",
                    f"max({cost()})",
                    "percentunit",
                    COST,
                    width=3,
                    decimals=2,
                ),
                number(
                    "Maximum memory",
                    "Maximum resident memory over all exporters.",
                    "max(perf_exporter_resident_memory_bytes{@node})",
                    "bytes",
                    steps((134217728, YELLOW), (268435456, RED)),
                    width=3,
                ),
                number(
                    "Events not counted",
                    "Configured events that at least one node cannot count.",
                    f"count(count by (event) (perf_event_state{{@node,{REFUSED}}} > 0)) or vector(0)",
                    "short",
                    ANY,
                    width=3,
                ),
                number(
                    "Lost records",
                    "Per second, over all nodes. Counts that depend on lost records are unattributed, by reason. Nothing is "
                    "estimated.",
                    total("perf_lost_records_total", matchers='@node,reason=~"ring_full|unreadable"'),
                    "ops",
                    LOST,
                    width=3,
                ),
                number(
                    "Detail reduced",
                    "Nodes on which the exporter has reduced the detail of scheduler and system call metrics, to stay below "
                    "`limits.cpu`.",
                    "count(perf_exporter_detail_reduced{@node} > 0) or vector(0)",
                    "short",
                    ANY,
                    width=3,
                ),
                number(
                    "Series in `other`",
                    "Targets that are currently aggregated into `other`, because `limits.series` is too low.",
                    "sum(perf_series_in_other{@node}) or vector(0)",
                    "short",
                    ANY,
                    width=3,
                ),
                number(
                    "Failed reloads",
                    "Nodes whose last configuration was rejected. The previous configuration is still used. The page /status "
                    "shows the reason.",
                    "count(perf_exporter_config_last_reload_successful{@node} == 0) or vector(0)",
                    "short",
                    steps((1, RED)),
                    width=3,
                ),
            ),
            row(
                "Cost",
                lines(
                    "CPU usage",
                    "As a fraction of all CPUs of the node, as in `limits.cpu`.",
                    cost(),
                    BY_NODE,
                    "percentunit",
                    limits=COST,
                ),
                lines(
                    "Memory",
                    "Resident memory. It includes the locked memory of rings.",
                    "perf_exporter_resident_memory_bytes{@node}",
                    BY_NODE,
                    "bytes",
                    more=[("sum by (instance) (perf_ring_bytes{@node})", "rings " + BY_NODE)],
                    limits=steps((134217728, YELLOW), (268435456, RED)),
                ),
                lines(
                    "Detail reduction",
                    "0: full detail. 1: no series per process. 2: no series per cgroup. 3: one in 4 threads. 4: one in 16 "
                    "threads.",
                    "perf_exporter_detail_reduced{@node}",
                    BY_NODE,
                    "short",
                    limits=steps((1, YELLOW), (3, RED)),
                    most=4,
                ),
                lines(
                    "Collection duration, p99",
                    "A scrape waits for a collection for a twentieth of its timeout, then gets the last one.",
                    quantile(0.99, "perf_exporter_collect_duration_seconds", "instance"),
                    BY_NODE,
                    "s",
                    limits=steps((1, YELLOW), (5, RED)),
                ),
                lines(
                    "Memory by part",
                    "Parts of `limits.memory`, each with its own share. A part whose share is full evicts the least recently "
                    "used items.",
                    "sum by (part, instance) (perf_exporter_memory_bytes{@node})",
                    "{{part}} " + BY_NODE,
                    "bytes",
                    stacked=True,
                    more=[("sum by (instance) (perf_exporter_memory_limit_bytes{@node})", "limit " + BY_NODE)],
                ),
                lines(
                    "Descriptors",
                    "By kind. The number of descriptors per event depends on `attribution`.",
                    "sum by (kind, instance) (perf_exporter_descriptors{@node})",
                    "{{kind}} " + BY_NODE,
                    "short",
                    more=[("perf_exporter_open_descriptors{@node}", "events " + BY_NODE)],
                ),
                lines(
                    "Records read",
                    "Per second, by ring. Each record costs about 1 µs.",
                    total("perf_ring_records_total", "ring,instance"),
                    "{{ring}} " + BY_NODE,
                    "ops",
                    stacked=True,
                    limits=steps((100000, YELLOW), (500000, RED)),
                ),
            ),
            row(
                "Missing data",
                lines(
                    "Lost records",
                    "Per second. ring_full: raise `limits.memory`, add CAP_IPC_LOCK, or count less. unrecorded: the kernel "
                    "wrote no record of a switch. late: the record arrived out of order.",
                    total("perf_lost_records_total", "ring,reason,instance"),
                    "{{reason}} {{ring}} " + BY_NODE,
                    "ops",
                    limits=LOST,
                ),
                lines(
                    "Unattributed CPU time",
                    "CPU time that is not attributed to any cgroup, as a fraction of all CPU time, by reason. idle is "
                    "expected. Investigate large values of lost, rotated or unknown (docs/concepts.md, unattributed counts).",
                    f"""{total("perf_unattributed_task_clock_seconds_total", "reason", '@node,scope="cgroup"')} / scalar({total("perf_cpu_task_clock_seconds_total")})""",
                    "{{reason}}",
                    "percentunit",
                    stacked=True,
                    most=1,
                    colors={"idle": GREY, "idle_or_root": GREY, "lost": RED, "unknown": ORANGE},
                ),
                lines(
                    "Untracked events",
                    "Scheduler and system call events per second that were in flight when records were lost, or that began "
                    "before the exporter started.",
                    total("perf_untracked_events_total", "section,reason"),
                    "{{section}} {{reason}}",
                    "ops",
                    limits=steps((100, YELLOW), (10000, RED)),
                ),
                lines(
                    "Unpaired events",
                    "Per second, by entry and reason. A few no_end are normal. lost is caused by lost records.",
                    total("perf_unpaired_events_total", "entry,reason") + " > 0",
                    "{{entry}} {{reason}}",
                    "ops",
                    limits=steps((100, YELLOW), (10000, RED)),
                ),
                lines(
                    "Dropped hits",
                    "Per second, because of negative values, or records that are too short for the field.",
                    total("perf_dropped_hits_total", "entry,reason"),
                    "{{entry}} {{reason}}",
                    "ops",
                    limits=steps((0.01, YELLOW), (10, RED)),
                ),
                lines(
                    "Series aggregated into `other`",
                    "Targets per second whose counts were aggregated into `other`.",
                    f"{total('perf_series_aggregated_total', 'counters,scope')} > 0",
                    "{{counters}} {{scope}}",
                    "ops",
                    limits=steps((1, YELLOW)),
                ),
            ),
            row(
                "Events",
                table(
                    "Events that are not counted, or unreliable",
                    "By node. absent: the machine does not support the event. forbidden: a permission is missing. exhausted: "
                    "out of descriptors or counters. broken: an unexpected kernel error. The page /status shows the remedy.",
                    [
                        column(
                            "Instances",
                            f"sum by (instance,event,scope,state) (perf_event_state{{@node,{REFUSED}}} > 0) or sum by (instance,event,scope,state) (perf_event_state{{@node,{DOUBTFUL}}} > 0)",
                            "short",
                            ANY,
                            width=110,
                        )
                    ],
                    {"instance": "Node", "event": "Event", "scope": "Scope", "state": "State"},
                    "Instances",
                    width=12,
                    height=9,
                ),
                lines(
                    "Counter running ratio",
                    "Minimum per entry. Below 1, groups are multiplexed and counts are scaled: count fewer hardware events, "
                    "or set kernel.nmi_watchdog=0.",
                    "min by (counters,instance) (perf_event_running_ratio{@node})",
                    "{{counters}} " + BY_NODE,
                    "percentunit",
                    limits=steps((0.2, YELLOW), (0.5, GREEN), base=RED),
                    width=6,
                    height=9,
                    most=1,
                ),
                lines(
                    "Targets",
                    "Number of CPUs, cgroups and processes, by scope and state (counted or left_out).",
                    "sum by (scope,state) (perf_targets{@node})",
                    "{{scope}} {{state}}",
                    "short",
                    width=6,
                    height=9,
                ),
            ),
            row(
                "HTTP and push",
                lines(
                    "HTTP requests",
                    "Per second, by path and status code.",
                    total("perf_exporter_http_requests_total", "path,code"),
                    "{{path}} {{code}}",
                    "reqps",
                    width=6,
                ),
                lines(
                    "Request duration, p99",
                    "By path. Profile requests take as long as the requested duration.",
                    quantile(0.99, "perf_exporter_http_request_duration_seconds", "path"),
                    "{{path}}",
                    "s",
                    width=6,
                    limits=steps((5, YELLOW), (10, RED)),
                ),
                lines(
                    "Bytes served",
                    "Per second, compressed, by path.",
                    total("perf_exporter_http_response_bytes_total", "path"),
                    "{{path}}",
                    "Bps",
                    width=6,
                ),
                lines(
                    "Connections",
                    "Open connections. The limit is `limits.connections`.",
                    "perf_exporter_http_connections{@node}",
                    BY_NODE,
                    "short",
                    width=6,
                    limits=steps((24, YELLOW), (32, RED)),
                ),
                lines(
                    "Aborted connections",
                    "Per second, by reason.",
                    total("perf_exporter_http_connections_aborted_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((1, YELLOW)),
                ),
                lines(
                    "Pushed items",
                    "Data points, samples and log records per second. rejected, refused and dropped items are lost. /status "
                    "shows the reason.",
                    total("perf_exporter_push_items_total", "signal,outcome"),
                    "{{signal}} {{outcome}}",
                    "ops",
                    width=6,
                ),
                lines(
                    "Push requests",
                    "Per second, by outcome.",
                    total("perf_exporter_push_requests_total", "signal,outcome"),
                    "{{signal}} {{outcome}}",
                    "reqps",
                    width=6,
                ),
                lines(
                    "Failing pushes",
                    "1 if the last request of a signal was not accepted.",
                    "max by (signal,instance) (perf_exporter_push_failing{@node})",
                    "{{signal}} " + BY_NODE,
                    "short",
                    width=6,
                    limits=steps((1, RED)),
                    most=1,
                ),
                lines(
                    "Push queue",
                    "Queued bytes. The limit is `queue`. When it is full, the oldest requests are dropped.",
                    "sum by (signal,instance) (perf_exporter_push_queue_bytes{@node})",
                    "{{signal}} " + BY_NODE,
                    "bytes",
                    width=8,
                    limits=steps((16777216, YELLOW), (33554432, RED)),
                ),
                lines(
                    "Bytes pushed",
                    "Uncompressed bytes per second.",
                    total("perf_exporter_push_bytes_total", "signal"),
                    "{{signal}}",
                    "Bps",
                    width=8,
                ),
                lines(
                    "Push duration, p99",
                    "Time until the receiver's response.",
                    quantile(0.99, "perf_exporter_push_duration_seconds", "signal"),
                    "{{signal}}",
                    "s",
                    width=8,
                    limits=steps((1, YELLOW), (10, RED)),
                ),
            ),
            row(
                "Builds",
                table(
                    "Builds",
                    "Build of each node, and load time of its configuration.",
                    [
                        column(
                            "Configuration loaded",
                            "max by (instance) (perf_exporter_config_last_reload_success_timestamp_seconds{@node}) * 1000",
                            "dateTimeFromNow",
                            width=180,
                        ),
                        column(
                            "Exporter",
                            "max by (instance,version,revision,arch) (perf_exporter_build_info{@node})",
                            "short",
                            width=110,
                        ),
                    ],
                    {"instance": "Node", "version": "Version", "revision": "Revision", "arch": "Machine"},
                    "Node",
                    height=7,
                ),
                collapsed=True,
            ),
        ],
    )
