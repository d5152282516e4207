"""Which functions use the CPU, where do threads wait, and which programs do they belong to?"""

from .panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    column,
    dashboard as made,
    lines,
    link,
    number,
    panel,
    row,
    steps,
    table,
)
from .queries import WHO_LEGEND, rate, top, total, who
from .variables import asked, text

ONE = '@node,profile=~"$profile"'
OF_PODS = '@cgroups,profile=~"$profile"'
IN_KERNEL = OF_PODS + ',mode="kernel"'
FUNCTIONS = "perf_function_samples_total"
SAMPLES = "perf_samples_total"


# The address of a node's exporter: `instance`, with the default port if it has none.
def with_address(expression):
    return (
        f'label_replace(label_replace({expression}, "address", "$1:7373", "instance", "([^:]+)"), '
        f'"address", "$1", "instance", "(.+:[0-9]+)")'
    )


def of_all(matchers):
    return f"scalar({total(SAMPLES, matchers=matchers)})"


def flame_graph():
    source = {"type": "grafana-pyroscope-datasource", "uid": "${pyroscope}"}
    one = panel(
        "flamegraph",
        "Flame graph by Pyroscope",
        "CPU time in the time range, if profiles are pushed to Pyroscope (docs/otlp.md) or scraped by Alloy from "
        "/debug/pprof/profile. Without a Pyroscope data source this panel is empty: use the links above.",
        [
            {
                "refId": "A",
                "datasource": source,
                "queryType": "profile",
                "profileTypeId": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
                "labelSelector": "{}",
                "groupBy": [],
            }
        ],
        "ns",
        None,
        24,
        18,
        options={},
    )
    one["datasource"] = source
    return one


def dashboard():
    profile = asked(
        "profile",
        "Profile",
        'label_values(perf_function_samples_total{cluster=~"$cluster",instance=~"$instance"}, profile)',
        "An entry of the section `profiles`. cpu is built in.",
        several=False,
    )
    pyroscope = {
        "name": "pyroscope",
        "label": "Pyroscope",
        "type": "datasource",
        "query": "grafana-pyroscope-datasource",
        "description": "Used only by the last row.",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }
    prefix = text(
        "exporters",
        "Exporters at",
        "http://",
        "Prefix of the node's address in links to the exporter's pages: http://, or the address of a proxy.",
    )
    page = "${exporters}${__data.fields.Address}"
    return made(
        "perf-profiles",
        "perf: profiles",
        "Which functions use the CPU, where do threads wait, and which programs do they belong to? The exporters keep the "
        "stacks, and show them as flame graphs. This dashboard shows where to look. Panels by thread and cgroup need "
        "perf_samples_total in metrics.include, or the level full.",
        [
            row(
                "At a glance",
                number(
                    "Samples",
                    "Samples of this entry per second, over the selection.",
                    total(SAMPLES, matchers=OF_PODS),
                    "ops",
                    decimals=1,
                ),
                number(
                    "In the kernel",
                    "Fraction of samples in the kernel. Entries with a threshold (off_cpu) have none, because they measure "
                    "waits.",
                    f"{total(SAMPLES, matchers=IN_KERNEL)} / {total(SAMPLES, matchers=OF_PODS)}",
                    "percentunit",
                    steps((0.4, YELLOW), (0.7, RED)),
                    decimals=1,
                    zero="none",
                ),
                number(
                    "In the hottest function",
                    "Fraction of all samples on the selected nodes. A function above 0.5 is worth optimizing.",
                    f"max(sum by ($function_label,module) ({rate(FUNCTIONS, ONE)})) / {of_all(ONE)}",
                    "percentunit",
                    steps((0.3, YELLOW), (0.6, RED)),
                    decimals=1,
                ),
                number(
                    "Truncated stacks",
                    "Stacks per second whose outer callers are missing. Raise `stack`, or build with frame pointers.",
                    total("perf_truncated_stacks_total"),
                    "ops",
                    steps((10, YELLOW)),
                ),
                number(
                    "Unsymbolized frames",
                    "Per second, in requested profiles. Programs without symbols appear as module+0x….",
                    total("perf_frames_unresolved_total"),
                    "ops",
                    steps((10, YELLOW)),
                ),
                number(
                    "Lost samples",
                    "Per second, because the ring was full. Lower the sample rate, or raise `limits.ring_memory`.",
                    f"""{total("perf_lost_records_total", matchers='@node,ring="samples"')}""",
                    "ops",
                    steps((0.01, YELLOW), (10, RED)),
                ),
            ),
            row(
                "Functions",
                table(
                    "Top functions",
                    "Self time of functions, without callees, in the time range, on the selected nodes. Only the most "
                    "sampled functions have series (`functions: 50`). The others are aggregated into `other`. Flame graphs "
                    "contain all functions.",
                    [
                        column(
                            "Share",
                            f"topk(5 * $top, sum by ($function_label,module) (rate({FUNCTIONS}{{{ONE}}}[$__range])))\n  / scalar(sum(rate({SAMPLES}{{{ONE}}}[$__range])))",
                            "percentunit",
                            steps((0.1, YELLOW), (0.3, RED)),
                            width=120,
                            decimals=2,
                        ),
                        column(
                            "Nodes",
                            f"count by ($function_label,module) (increase({FUNCTIONS}{{{ONE}}}[$__range]) > 0)",
                            "short",
                            width=80,
                        ),
                    ],
                    {"function": "Function", "module": "Module"},
                    "Share",
                    width=12,
                    height=12,
                ),
                lines(
                    "Functions over time",
                    "Samples per second, for the most sampled functions in the time range. Check functions that are new "
                    "since a release.",
                    top(lambda over: f"sum by ($function_label,module) ({rate(FUNCTIONS, ONE, over)})"),
                    "{{$function_label}} ({{module}})",
                    "ops",
                    stacked=True,
                    width=12,
                    height=12,
                ),
                lines(
                    "By module",
                    "Samples per second in programs, libraries and the kernel ([kernel.kallsyms]).",
                    top(lambda over: f"sum by (module) ({rate(FUNCTIONS, ONE, over)})"),
                    "{{module}}",
                    "ops",
                    stacked=True,
                ),
                lines(
                    "By program",
                    "Samples per second, by the name of the program.",
                    top(lambda over: f"sum by ($comm_label) ({rate(SAMPLES, OF_PODS, over)})"),
                    "{{$comm_label}}",
                    "ops",
                    stacked=True,
                ),
                lines(
                    "By pod or cgroup",
                    "Samples per second.",
                    top(lambda over: who(SAMPLES, OF_PODS, over)),
                    WHO_LEGEND,
                    "ops",
                    stacked=True,
                ),
            ),
            row(
                "Flame graphs",
                table(
                    "Flame graphs of each node",
                    "The name of a node links to the pages of its exporter. If your browser cannot reach the address, enter "
                    "a proxy in the field `Exporters at`, or use kubectl port-forward.",
                    [column("Exporter up", with_address("perf_exporter_build_info{@node}"), "short", width=110)],
                    {"instance": "Node", "address": "Address", "version": "Version", "arch": "Machine"},
                    "Node",
                    width=12,
                    height=9,
                    hidden=("__name__", "job", "revision", "endpoint", "cluster"),
                    links={
                        "Node": [
                            link("Flame graph of the last minute", page + "/flamegraph?type=${profile}", True),
                            link("Top functions as a table", page + "/top?type=${profile}", True),
                            link("Flame graph of the next ten seconds", page + "/flamegraph?seconds=10&type=${profile}", True),
                            link("pprof", page + "/debug/pprof/profile?seconds=10&type=${profile}", True),
                            link("Status", page + "/status", True),
                        ]
                    },
                ),
                table(
                    "Flame graphs of each cgroup",
                    "Cgroups with the most samples in the time range. The cgroup links to its flame graph on the exporter of "
                    "its node.",
                    [
                        column(
                            "Samples",
                            f"topk(5 * $top, sum by (instance,address,$cgroup_label,$pod_label,$namespace_label) ({with_address(f'increase({SAMPLES}{{{OF_PODS}}}[$__range])')}))",
                            "short",
                            width=110,
                            decimals=0,
                        )
                    ],
                    {"namespace": "Namespace", "pod": "Pod", "cgroup": "Cgroup", "instance": "Node", "address": "Address"},
                    "Samples",
                    width=12,
                    height=9,
                    links={
                        "Cgroup": [
                            link(
                                "Flame graph of this cgroup",
                                page + "/flamegraph?type=${profile}&cgroup=${__value.raw:percentencode}",
                                True,
                            ),
                            link(
                                "Top functions of this cgroup", page + "/top?type=${profile}&cgroup=${__value.raw:percentencode}", True
                            ),
                            link(
                                "pprof profile of this cgroup",
                                page + "/debug/pprof/profile?seconds=10&type=${profile}&cgroup=${__value.raw:percentencode}",
                                True,
                            ),
                        ]
                    },
                ),
            ),
            row(
                "Profile quality",
                lines(
                    "Samples by mode",
                    "Per second. CPU samples by user mode and kernel, waits by thread state.",
                    total(SAMPLES, "mode", OF_PODS),
                    "{{mode}}",
                    "ops",
                    stacked=True,
                    width=6,
                    colors={"user": GREEN, "kernel": ORANGE, "sleeping": BLUE, "uninterruptible": RED, "preempted": PURPLE},
                ),
                lines(
                    "Truncated stacks, by reason",
                    "Per second. copy: `stack` is too small. deep: the kernel's limit. full: the memory share is full. "
                    "unwound: no unwind table.",
                    total("perf_truncated_stacks_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Unsymbolized frames, by reason",
                    "Per second, in requested profiles. stripped: the file has no symbols. map_missing: JIT-compiled code "
                    "without a perf map.",
                    total("perf_frames_unresolved_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Unread files and mappings, by reason",
                    "Per second. unwind_later: deferred, and read later. forbidden: add CAP_SYS_PTRACE.",
                    total("perf_profile_gaps_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((1, YELLOW), (10, RED)),
                ),
                lines(
                    "Missing source lines, by reason",
                    "Per second, for entries with `lines: true`.",
                    total("perf_frames_without_line_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=12,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Sampling throttled by the kernel",
                    "Per second, because the sample rate was too high. Lower `frequency`, or raise "
                    "kernel.perf_event_max_sample_rate.",
                    total("perf_throttled_total", "instance"),
                    "{{instance}}",
                    "ops",
                    width=12,
                    limits=steps((0.1, YELLOW), (1, RED)),
                ),
                collapsed=True,
            ),
            row("Pyroscope", flame_graph(), collapsed=True),
        ],
        with_cgroups=True,
        more_variables=(profile, prefix, pyroscope),
    )
