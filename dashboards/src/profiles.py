"""Which functions take the CPU, or where do threads wait, and whose are they?"""

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


# Where the exporter of a node is: what `instance` says, with our port if it has none.
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
        "The CPU time of the time shown, where profiles are pushed to a Pyroscope (docs/otlp.md), or Alloy takes them from "
        "/debug/pprof/profile. Without a data source for it this panel has none: use the links above.",
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
        'label_values(perf_samples_total{cluster=~"$cluster",instance=~"$instance"}, profile)',
        "The entries of the section `profiles`: cpu is built in.",
        several=False,
    )
    pyroscope = {
        "name": "pyroscope",
        "label": "Pyroscope",
        "type": "datasource",
        "query": "grafana-pyroscope-datasource",
        "description": "Only for the last row.",
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
        "What stands before a node's address in links to the pages of its exporter: http://, or the address of a proxy.",
    )
    page = "${exporters}${__data.fields.Address}"
    return made(
        "perf-profiles",
        "perf: profiles",
        "Which functions take the CPU, or where do threads wait, and whose are they? Stacks stay at the exporters, whose pages show them as "
        "flame graphs; this dashboard says where to look.",
        [
            row(
                "At a glance",
                number(
                    "Samples",
                    "Taken by this entry, per second, of everything selected.",
                    total(SAMPLES, matchers=OF_PODS),
                    "ops",
                    decimals=1,
                ),
                number(
                    "In the kernel",
                    "Part of the samples that were taken in the kernel. Of entries with a threshold (off_cpu) there is none: they tell waits.",
                    f"{total(SAMPLES, matchers=IN_KERNEL)} / {total(SAMPLES, matchers=OF_PODS)}",
                    "percentunit",
                    steps((0.4, YELLOW), (0.7, RED)),
                    decimals=1,
                    zero="none",
                ),
                number(
                    "In the hottest function",
                    "Part of all samples of the selected nodes. One function above a half is worth an afternoon.",
                    f"max(sum by ($function_label,module) ({rate(FUNCTIONS, ONE)})) / {of_all(ONE)}",
                    "percentunit",
                    steps((0.3, YELLOW), (0.6, RED)),
                    decimals=1,
                ),
                number(
                    "Stacks cut",
                    "Stacks whose outer end is not known, per second: callers beyond are missing. Raise `stack`, or build with frame pointers.",
                    total("perf_stacks_cut_total"),
                    "ops",
                    steps((10, YELLOW)),
                ),
                number(
                    "Frames without a name",
                    "Per second, of those that somebody asked for. Programs without symbols show as module+0x….",
                    total("perf_frames_unresolved_total"),
                    "ops",
                    steps((10, YELLOW)),
                ),
                number(
                    "Samples lost",
                    "Per second, for want of room in the ring. Take fewer samples, or raise `limits.ring_memory`.",
                    f"""{total("perf_lost_records_total", matchers='@node,ring="samples"')}""",
                    "ops",
                    steps((0.01, YELLOW), (10, RED)),
                ),
            ),
            row(
                "Functions",
                table(
                    "Top functions",
                    "The functions themselves, without what they call, over the time shown, of the selected nodes. The exporter makes series of "
                    "the busiest only (`functions: 50`); the rest is in `other`, and all of them are in the flame graphs.",
                    [
                        column(
                            "Part of all",
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
                    "Part of all",
                    width=12,
                    height=12,
                ),
                lines(
                    "Functions over time",
                    "Samples per second, of the functions that have the most over the time shown. A new one after a release is the place to look at.",
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
                    "Follow the name of a node to its exporter's own pages. If its address cannot be reached from here, put a proxy's into "
                    "the field `Exporters at`, or use kubectl port-forward.",
                    [column("Exporter runs", with_address("perf_exporter_build_info{@node}"), "short", width=110)],
                    {"instance": "Node", "address": "Address", "version": "Version", "arch": "Machine"},
                    "Node",
                    width=12,
                    height=9,
                    hidden=("__name__", "job", "revision", "endpoint", "cluster"),
                    links={
                        "Node": [
                            link("Flame graph of the last minute", page + "/flamegraph?type=${profile}", True),
                            link("Top functions as a table", page + "/top?type=${profile}", True),
                            link("Ten seconds from now on", page + "/flamegraph?seconds=10&type=${profile}", True),
                            link("pprof", page + "/debug/pprof/profile?seconds=10&type=${profile}", True),
                            link("Status", page + "/status", True),
                        ]
                    },
                ),
                table(
                    "Flame graphs of each cgroup",
                    "Who had the most samples over the time shown. Follow the cgroup to the flame graph of it alone, at the exporter of its node.",
                    [
                        column(
                            "Samples",
                            f"topk(5 * $top, sum by (instance,address,$cgroup_label,$pod_label,$namespace_label) ({with_address(f'increase({SAMPLES}{{{OF_PODS}}}[$__range])')}))",
                            "short",
                            width=90,
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
                                "Flame graph of it",
                                page + "/flamegraph?type=${profile}&cgroup=${__value.raw:percentencode}",
                                True,
                            ),
                            link(
                                "Top functions of it", page + "/top?type=${profile}&cgroup=${__value.raw:percentencode}", True
                            ),
                            link(
                                "pprof of it",
                                page + "/debug/pprof/profile?seconds=10&type=${profile}&cgroup=${__value.raw:percentencode}",
                                True,
                            ),
                        ]
                    },
                ),
            ),
            row(
                "How good the profiles are",
                lines(
                    "Samples by mode",
                    "Per second: in programs or in the kernel; of waits, why.",
                    total(SAMPLES, "mode", OF_PODS),
                    "{{mode}}",
                    "ops",
                    stacked=True,
                    width=6,
                    colors={"user": GREEN, "kernel": ORANGE, "sleeping": BLUE, "uninterruptible": RED, "preempted": PURPLE},
                ),
                lines(
                    "Stacks cut, by reason",
                    "Per second. copy: `stack` was too short; deep: the kernel's limit; full: memory; unwound: no table to go on by.",
                    total("perf_stacks_cut_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Frames without a name, by reason",
                    "Per second, when somebody asks for a profile. stripped: no symbols in the file; map_missing: a program that makes code at run time and tells nobody.",
                    total("perf_frames_unresolved_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Files and mappings not read, by reason",
                    "Per second. unwind_later is put off, and made up for; forbidden: give CAP_SYS_PTRACE.",
                    total("perf_profile_gaps_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=6,
                    limits=steps((1, YELLOW), (10, RED)),
                ),
                lines(
                    "Lines of the source not found, by reason",
                    "Per second, of entries with `lines: true`.",
                    total("perf_frames_without_line_total", "reason"),
                    "{{reason}}",
                    "ops",
                    width=12,
                    limits=steps((10, YELLOW), (100, RED)),
                ),
                lines(
                    "Sampling stopped by the kernel",
                    "Per second: samples came too fast. Lower `frequency`, or raise kernel.perf_event_max_sample_rate.",
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
