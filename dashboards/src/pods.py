"""Which pod, container or service uses the machine inefficiently, and what does it wait for?"""

from .node_overview import BRANCHES, DELAY, IPC, MAJOR, MISSES, MPKI
from .panels import RED, YELLOW, column, dashboard as made, lines, link, number, row, steps, table
from .queries import RATE, WHO_LEGEND, WHOLE, named, quantile, quantile_who, ratio, sums, top, total, who

LATENCY = "perf_cgroup_sched_runqueue_latency_seconds"
THROTTLED = '@cgroups,by="throttled"'
RUN = "perf_cgroup_task_clock_seconds_total"
WAITED = sums(LATENCY, "$by,who", "@cgroups", named)


def of(above, below, factor="", over=RATE):
    return ratio(who(above, over=over), who(below, over=over), factor)


def all_of(above, below, factor=""):
    return ratio(total(above, matchers="@cgroups"), total(below, matchers="@cgroups"), factor)


def share(above, below, factor=""):
    """The quotient, for the series with the largest denominator."""
    return f"{of(above, below, factor)}\n  and topk($top, {who(below, over=WHOLE)})"


def per_who(title, description, metric, unit="ops", **more):
    return lines(title, description, top(lambda over: who(metric, over=over)), WHO_LEGEND, unit, **more)


def dashboard():
    # A name is a pod, or a cgroup outside of pods. The link cannot distinguish them, so both are offered.
    kept = "?${__url_time_range}&${datasource:queryparam}&${names:queryparam}&${cluster:queryparam}&${instance:queryparam}&${group:queryparam}"
    to_it = [
        link(f"{kind.capitalize()}: {title}", f"/d/perf-{uid}{kept}&var-{kind}=${{__value.raw:percentencode}}")
        for kind in ("pod", "cgroup")
        for title, uid in [
            ("details", "pods"),
            ("scheduler", "scheduler"),
            ("system calls", "syscalls-io"),
            ("profiles", "profiles"),
        ]
    ]
    return made(
        "perf-pods",
        "perf: pods and cgroups",
        "Which pod, container or service uses the machine inefficiently, and what does it wait for? Counts of a cgroup do "
        "not include its descendants. With `descendants: true` in the configuration they do, and sums count them twice.",
        [
            row(
                "At a glance",
                number(
                    "CPUs used",
                    "CPUs used by the selection. 1 is one CPU all the time.",
                    total("perf_cgroup_task_clock_seconds_total", matchers="@cgroups"),
                    "short",
                    decimals=2,
                    width=4,
                ),
                number(
                    "Instructions per cycle",
                    "Average over the selection. Empty without hardware counters.",
                    all_of("perf_cgroup_instructions_total", "perf_cgroup_cycles_total"),
                    "none",
                    IPC,
                    decimals=2,
                    zero="no counters",
                ),
                number(
                    "Cache misses per 1000 instructions",
                    "MPKI of the selection: cache misses relative to the work done.",
                    all_of("perf_cgroup_cache_misses_total", "perf_cgroup_instructions_total", "1000 * "),
                    "none",
                    MPKI,
                    decimals=2,
                    zero="no counters",
                ),
                number(
                    "Run-queue latency, p99",
                    "One in 100 wakeups waits longer than this before the thread runs.",
                    quantile(0.99, LATENCY, matchers="@cgroups"),
                    "s",
                    DELAY,
                ),
                number(
                    "Major faults",
                    "Page faults per second that waited for a disk.",
                    total("perf_cgroup_major_faults_total", matchers="@cgroups"),
                    "ops",
                    MAJOR,
                ),
                number(
                    "Throttled by the CPU quota",
                    "Threads per second that were preempted because the CPU quota of their cgroup was exhausted.",
                    f"{total('perf_cgroup_sched_preemptions_total', matchers=THROTTLED)} or vector(0)",
                    "ops",
                    steps((1, YELLOW), (50, RED)),
                ),
            ),
            row(
                "Table",
                table(
                    "Current values",
                    "One row per series, current values. The name links to the same series in this and in the other "
                    "dashboards.",
                    [
                        column("CPUs", who("perf_cgroup_task_clock_seconds_total"), "short", decimals=3),
                        column(
                            "IPC", of("perf_cgroup_instructions_total", "perf_cgroup_cycles_total"), "none", IPC, decimals=2
                        ),
                        column(
                            "Cache misses",
                            of("perf_cgroup_cache_misses_total", "perf_cgroup_cache_references_total"),
                            "percentunit",
                            MISSES,
                            decimals=1,
                        ),
                        column(
                            "MPKI",
                            of("perf_cgroup_cache_misses_total", "perf_cgroup_instructions_total", "1000 * "),
                            "none",
                            MPKI,
                            decimals=2,
                        ),
                        column("Latency p99", quantile_who(0.99, LATENCY), "s", DELAY),
                        column("Preempted", who("perf_cgroup_sched_switches_total", '@cgroups,kind="involuntary"'), "ops"),
                        column("Switches", who("perf_cgroup_context_switches_total"), "ops"),
                        column("Migrations", who("perf_cgroup_cpu_migrations_total"), "ops"),
                        column("Faults", who("perf_cgroup_page_faults_total"), "ops"),
                        column("Major faults", who("perf_cgroup_major_faults_total"), "ops", MAJOR),
                    ],
                    {"namespace": "Namespace", "pod": "Pod", "who": "Name", "instance": "Node", "cluster": "Cluster"},
                    "CPUs",
                    height=10,
                    links={"Name": to_it},
                ),
            ),
            row(
                "CPU",
                per_who(
                    "CPUs used", "1 is one CPU all the time.", "perf_cgroup_task_clock_seconds_total", "short", stacked=True
                ),
                lines(
                    "Run-queue latency, p99",
                    "One in 100 wakeups waits longer than this. If it is high and the node is not busy, check the CPU quota "
                    "and the preemptions.",
                    f"({quantile_who(0.99, LATENCY)})\n  and topk($top, {who(RUN, over=WHOLE)})",
                    WHO_LEGEND,
                    "s",
                    limits=DELAY,
                ),
                lines(
                    "Fraction of time waiting for a CPU",
                    "Wait time divided by the time in which threads ran or were runnable. At 0.5, dedicated CPUs would halve "
                    "the time.",
                    f"({WAITED})\n  / (({WAITED}) + {who(RUN)} > 0)\n  and topk($top, {who(RUN, over=WHOLE)})",
                    WHO_LEGEND,
                    "percentunit",
                    limits=steps((0.2, YELLOW), (0.5, RED)),
                    most=1,
                ),
            ),
            row(
                "Hardware counters",
                lines(
                    "Instructions per cycle",
                    "A drop at the same load means that the CPUs stall, usually on memory. Check cache misses, and pods that "
                    "were started on the node.",
                    share("perf_cgroup_instructions_total", "perf_cgroup_cycles_total"),
                    WHO_LEGEND,
                    "none",
                    limits=IPC,
                ),
                lines(
                    "Cache miss ratio",
                    "Misses divided by references of the last-level cache.",
                    share("perf_cgroup_cache_misses_total", "perf_cgroup_cache_references_total"),
                    WHO_LEGEND,
                    "percentunit",
                    limits=MISSES,
                ),
                lines(
                    "Cache misses per 1000 instructions",
                    "MPKI: cache misses relative to the work done.",
                    share("perf_cgroup_cache_misses_total", "perf_cgroup_instructions_total", "1000 * "),
                    WHO_LEGEND,
                    "none",
                    limits=MPKI,
                ),
                lines(
                    "Branch miss ratio",
                    "Fraction of mispredicted branches. Needs branches and branch-misses in `counters`, `per: [cgroup]`.",
                    share("perf_cgroup_branch_misses_total", "perf_cgroup_branches_total"),
                    WHO_LEGEND,
                    "percentunit",
                    limits=BRANCHES,
                ),
                per_who(
                    "Cycles",
                    "Cycles per second, at the current clock rate of the CPUs.",
                    "perf_cgroup_cycles_total",
                    "hertz",
                    stacked=True,
                ),
                per_who(
                    "Cache misses",
                    "Per second. The series with the most misses uses the most memory bandwidth, and slows down the others.",
                    "perf_cgroup_cache_misses_total",
                    "ops",
                    stacked=True,
                ),
            ),
            row(
                "Switches and faults",
                lines(
                    "Context switches",
                    "Threads per second that left their CPU, to wait or because they were preempted.",
                    top(lambda over: who("perf_cgroup_context_switches_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                ),
                lines(
                    "Involuntary switches",
                    "Threads per second that were preempted while runnable. Causes of a storm are too many threads for the "
                    "CPUs, or a small CPU quota.",
                    top(lambda over: who("perf_cgroup_sched_switches_total", '@cgroups,kind="involuntary"', over)),
                    WHO_LEGEND,
                    "ops",
                    limits=steps((1000, YELLOW), (10000, RED)),
                ),
                per_who("CPU migrations", "Per second. Threads continue with a cold cache.", "perf_cgroup_cpu_migrations_total"),
                per_who(
                    "Page faults",
                    "Per second: first accesses to memory pages, or accesses after the page was reclaimed.",
                    "perf_cgroup_page_faults_total",
                ),
                per_who(
                    "Major faults",
                    "Page faults per second that waited for a disk. More than a few indicate a small memory limit, or a "
                    "shortage of memory on the node.",
                    "perf_cgroup_major_faults_total",
                    limits=MAJOR,
                ),
                lines(
                    "Forks and programs started",
                    "Per second. Needs the preset forks, which is enabled by default. Programs need perf_cgroup_execs_total in "
                    "metrics.include, or the level full.",
                    top(lambda over: who("perf_cgroup_forks_total", over=over)),
                    "forks: " + WHO_LEGEND,
                    "ops",
                    more=[(top(lambda over: who("perf_cgroup_execs_total", over=over)), "programs: " + WHO_LEGEND)],
                    limits=steps((100, YELLOW), (1000, RED)),
                ),
            ),
        ],
        with_cgroups=True,
    )
