"""What does the measuring itself cost, and what is missing in what it tells?"""

from .node_overview import BY_NODE
from .panels import GREEN, GREY, ORANGE, RED, YELLOW, column, dashboard as made, lines, number, row, steps, table
from .queries import quantile, ratio, total

REFUSED = 'state=~"absent|forbidden|exhausted|broken"'
DOUBTFUL = 'state=~"never_ran|stalled|implausible|full"'
COST = steps((0.02, YELLOW), (0.05, RED))
LOST = steps((0.01, YELLOW), (100, RED))
ANY = steps((1, YELLOW))


def cost(by="instance"):
    """Part of the time of all CPUs, as `limits.cpu` has it."""
    return ratio(total("perf_exporter_cpu_seconds_total", by), total("perf_cpu_task_clock_seconds_total", by))


def dashboard():
    return made(
        "perf-exporter",
        "perf: the exporter itself",
        "What does the measuring itself cost, and what is missing in what it tells?",
        [
            row(
                "At a glance",
                number("Exporters", "That Prometheus has metrics of now.", "count(perf_exporter_build_info{@node})", graph=False, width=3),
                number("Most CPU taken", "By one exporter, as part of the time of all CPUs of its node: `limits.cpu` bounds it, 2 % unless you say otherwise.", f"max({cost()})", "percentunit", COST, width=3, decimals=2),
                number("Most memory", "Resident, of one exporter.", "max(perf_exporter_resident_memory_bytes{@node})", "bytes", steps((134217728, YELLOW), (268435456, RED)), width=3),
                number("Events refused", "That at least one node cannot count.", f"count(count by (event) (perf_event_state{{@node,{REFUSED}}} > 0)) or vector(0)", "short", ANY, width=3),
                number("Records lost", "Per second, of all nodes. What hung on them is counted elsewhere, by reason: nothing is guessed.", total("perf_lost_records_total", matchers='@node,reason=~"ring_full|unreadable"'), "ops", LOST, width=3),
                number("Detail reduced", "Nodes on which the exporter tells less of the scheduler and of system calls, to keep to `limits.cpu`.", "count(perf_exporter_detail_reduced{@node} > 0) or vector(0)", "short", ANY, width=3),
                number("Series in `other`", "That have no name of their own now, since `limits.series` is too low.", "sum(perf_series_hidden{@node}) or vector(0)", "short", ANY, width=3),
                number("Refused reloads", "Nodes whose last configuration was refused; the one before stays in force. The page /status says why.", "count(perf_exporter_config_last_reload_successful{@node} == 0) or vector(0)", "short", steps((1, RED)), width=3),
            ),
            row(
                "Cost",
                lines("CPU taken", "Part of the time of all CPUs of the node, as `limits.cpu` has it.", cost(), BY_NODE, "percentunit", limits=COST),
                lines("Memory", "Resident. Rings are locked memory, and part of it.", "perf_exporter_resident_memory_bytes{@node}", BY_NODE, "bytes", more=[("sum by (instance) (perf_ring_bytes{@node})", "rings " + BY_NODE)], limits=steps((134217728, YELLOW), (268435456, RED))),
                lines("How much less is told", "0 nothing less, 1 nothing of processes, 2 nothing of cgroups, 3 one in 4 threads, 4 one in 16.", "perf_exporter_detail_reduced{@node}", BY_NODE, "short", limits=steps((1, YELLOW), (3, RED)), most=4),
                lines("How long a collection takes, p99", "A scrape waits for it if nothing fresh is there. Above the scrape's timeout there is no data at all.", quantile(0.99, "perf_exporter_collect_duration_seconds", "instance"), BY_NODE, "s", limits=steps((1, YELLOW), (5, RED))),
                lines("Descriptors", "Of perf events; how many an event takes depends on `attribution`.", "perf_exporter_open_descriptors{@node}", BY_NODE, "short"),
                lines("Records read", "Per second, by ring: each costs about 1 µs. Switches are the scheduler's; tracepoints also those of system calls and probes.", total("perf_ring_records_total", "ring,instance"), "{{ring}} " + BY_NODE, "ops", stacked=True, limits=steps((100000, YELLOW), (500000, RED))),
            ),
            row(
                "What is missing",
                lines("Records lost", "Per second. ring_full: raise `limits.ring_memory`, give CAP_IPC_LOCK, or count less. unrecorded: this kernel hides switches. late: read after younger ones.", total("perf_lost_records_total", "ring,reason,instance"), "{{reason}} {{ring}} " + BY_NODE, "ops", limits=LOST),
                lines("Told of nobody", "CPU time that the CPUs counted and no cgroup has, as part of all, by reason. idle is nobody's; a lot of lost, rotated or unknown is worth a look (README: what stands in no series).",
                      f"""{total("perf_unattributed_task_clock_seconds_total", "reason", '@node,scope="cgroup"')} / scalar({total("perf_cpu_task_clock_seconds_total")})""", "{{reason}}", "percentunit", stacked=True, most=1,
                      colors={"idle": GREY, "idle_or_root": GREY, "lost": RED, "unknown": ORANGE}),
                lines("Events that cannot be told", "Per second, of the scheduler and system calls: what was under way when records were lost, or began before the exporter.", total("perf_untold_events_total", "section,reason"), "{{section}} {{reason}}", "ops", limits=steps((100, YELLOW), (10000, RED))),
                lines("Pairs without a partner", "Per second, by entry and reason. no_end of a few is ordinary; lost follows lost records.", total("perf_unpaired_events_total", "entry,reason") + " > 0", "{{entry}} {{reason}}", "ops", limits=steps((100, YELLOW), (10000, RED))),
                lines("Hits not added up", "Per second: negative numbers, or records that are too short for the field.", total("perf_dropped_hits_total", "entry,reason"), "{{entry}} {{reason}}", "ops", limits=steps((0.01, YELLOW), (10, RED))),
                lines("Series folded into `other`", "How often that happened, per second. A series that ended goes there too.", f"{total('perf_series_folded_total', 'counters,scope')} > 0", "{{counters}} {{scope}}", "ops", limits=steps((1, YELLOW))),
            ),
            row(
                "Events",
                table("Events that are not counted, or not to be trusted", "By node. absent: this machine has none; forbidden: a right is missing; exhausted: too many descriptors or counters; broken: the kernel said something else. The page /status says what would help.",
                      [column("Places", f"sum by (instance,event,scope,state) (perf_event_state{{@node,{REFUSED}}} > 0) or sum by (instance,event,scope,state) (perf_event_state{{@node,{DOUBTFUL}}} > 0)", "short", ANY, width=80)],
                      {"instance": "Node", "event": "Event", "scope": "For each", "state": "State"}, "Places", width=12, height=9),
                lines("Part of the time that counters ran", "The smallest of each group. Below 1, groups take turns and counts are scaled: count fewer hardware events, or set kernel.nmi_watchdog=0.", "min by (counters,instance) (perf_event_running_ratio{@node})", "{{counters}} " + BY_NODE, "percentunit", limits=steps((0.2, YELLOW), (0.5, GREEN), base=RED), width=6, height=9, most=1),
                lines("Targets", "CPUs, cgroups and processes that are counted or left out, by scope.", "sum by (scope,state) (perf_targets{@node})", "{{scope}} {{state}}", "short", width=6, height=9),
            ),
            row(
                "Serving and pushing",
                lines("HTTP requests", "Per second, by path and answer.", total("perf_exporter_http_requests_total", "path,code"), "{{path}} {{code}}", "reqps", width=6),
                lines("How long requests take, p99", "By path. Those for profiles take as long as they were asked to.", quantile(0.99, "perf_exporter_http_request_duration_seconds", "path"), "{{path}}", "s", width=6, limits=steps((5, YELLOW), (10, RED))),
                lines("Bytes served", "Per second, compressed, by path.", total("perf_exporter_http_response_bytes_total", "path"), "{{path}}", "Bps", width=6),
                lines("Connections", "Open now; `limits.connections` bounds them.", "perf_exporter_http_connections{@node}", BY_NODE, "short", width=6, limits=steps((24, YELLOW), (32, RED))),
                lines("Connections that broke", "Per second, by reason.", total("perf_exporter_http_connections_aborted_total", "reason"), "{{reason}}", "ops", width=6, limits=steps((1, YELLOW))),
                lines("Pushed by OTLP", "Data points, samples and log records, per second. rejected, refused and dropped are lost; /status tells why.", total("perf_exporter_push_items_total", "signal,outcome"), "{{signal}} {{outcome}}", "ops", width=6),
                lines("Push requests", "Per second, by what came of them.", total("perf_exporter_push_requests_total", "signal,outcome"), "{{signal}} {{outcome}}", "reqps", width=6),
                lines("Pushes fail", "1 where the last request of a signal was not taken.", "max by (signal,instance) (perf_exporter_push_failing{@node})", "{{signal}} " + BY_NODE, "short", width=6, limits=steps((1, RED)), most=1),
                lines("Waiting to be pushed", "Bytes; `queue` bounds them, and the oldest are dropped.", "sum by (signal,instance) (perf_exporter_push_queue_bytes{@node})", "{{signal}} " + BY_NODE, "bytes", width=8, limits=steps((16777216, YELLOW), (33554432, RED))),
                lines("Bytes pushed", "Per second, not compressed.", total("perf_exporter_push_bytes_total", "signal"), "{{signal}}", "Bps", width=8),
                lines("How long pushes take, p99", "Until the receiver's answer.", quantile(0.99, "perf_exporter_push_duration_seconds", "signal"), "{{signal}}", "s", width=8, limits=steps((1, YELLOW), (10, RED))),
            ),
            row(
                "Builds",
                table("Builds", "Which node runs which build, and since when its configuration is in force.",
                      [column("Configuration since", "max by (instance) (perf_exporter_config_last_reload_success_timestamp_seconds{@node}) * 1000", "dateTimeFromNow", width=180),
                       column("Exporter", "max by (instance,version,revision,arch) (perf_exporter_build_info{@node})", "short", width=90)],
                      {"instance": "Node", "version": "Version", "revision": "Revision", "arch": "Machine"}, "Node", height=7),
                collapsed=True,
            ),
        ],
    )
