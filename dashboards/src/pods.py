"""Which pod, container or service uses the machine badly, and what does it wait for?"""

from .node_overview import BRANCHES, DELAY, IPC, MAJOR, MISSES, MPKI
from .panels import RED, YELLOW, column, dashboard as made, lines, link, number, row, steps, table
from .queries import RATE, WHO_LEGEND, WHOLE, named, quantile, quantile_who, ratio, sums, top, total, who

LATENCY = "perf_cgroup_sched_runqueue_latency_seconds"
THROTTLED = '@cgroups,by="throttled"'
RUN = "perf_cgroup_sched_run_seconds_total"
WAITED = sums(LATENCY, "$by,who", "@cgroups", named)


def of(above, below, factor="", over=RATE):
    return ratio(who(above, over=over), who(below, over=over), factor)


def all_of(above, below, factor=""):
    return ratio(total(above, matchers="@cgroups"), total(below, matchers="@cgroups"), factor)


def share(above, below, factor=""):
    """The quotient, of those that have the most of what it is divided by."""
    return f"{of(above, below, factor)}\n  and topk($top, {who(below, over=WHOLE)})"


def per_who(title, description, metric, unit="ops", **more):
    return lines(title, description, top(lambda over: who(metric, over=over)), WHO_LEGEND, unit, **more)


def dashboard():
    # A name is a pod, or the cgroup of what has none; which of the two, only who looks at it knows.
    kept = "?${__url_time_range}&${datasource:queryparam}&${names:queryparam}&${cluster:queryparam}&${instance:queryparam}&${group:queryparam}"
    to_it = [
        link(f"{kind.capitalize()}: {title}", f"/d/perf-{uid}{kept}&var-{kind}=${{__value.raw:percentencode}}")
        for kind in ("pod", "cgroup")
        for title, uid in [
            ("only this one", "pods"),
            ("scheduler", "scheduler"),
            ("system calls", "syscalls-io"),
            ("profiles", "profiles"),
        ]
    ]
    return made(
        "perf-pods",
        "perf: pods and cgroups",
        "Which pod, container or service uses the machine badly, and what does it wait for? Counts of a cgroup are its own, without those "
        "of cgroups below it, unless the configuration says `descendants: true`: then sums count twice.",
        [
            row(
                "At a glance",
                number(
                    "CPUs used",
                    "By all that is selected: 1 is one CPU all the time.",
                    total("perf_cgroup_task_clock_seconds_total", matchers="@cgroups"),
                    "short",
                    decimals=2,
                    width=4,
                ),
                number(
                    "Instructions per cycle",
                    "Of all that is selected. Empty where there are no hardware counters.",
                    all_of("perf_cgroup_instructions_total", "perf_cgroup_cycles_total"),
                    "none",
                    IPC,
                    decimals=2,
                    zero="no counters",
                ),
                number(
                    "Cache misses per 1000 instructions",
                    "MPKI of all that is selected: how often it waits for memory.",
                    all_of("perf_cgroup_cache_misses_total", "perf_cgroup_instructions_total", "1000 * "),
                    "none",
                    MPKI,
                    decimals=2,
                    zero="no counters",
                ),
                number(
                    "Wait for a CPU, p99",
                    "One wake-up in a hundred waits longer than this until the thread runs.",
                    quantile(0.99, LATENCY, matchers="@cgroups"),
                    "s",
                    DELAY,
                ),
                number(
                    "Major faults",
                    "Page faults that waited for a disk, per second.",
                    total("perf_cgroup_major_faults_total", matchers="@cgroups"),
                    "ops",
                    MAJOR,
                ),
                number(
                    "Stopped by the CPU quota",
                    "How often threads had to leave their CPU since the quota of their cgroup was used up, per second.",
                    f"{total('perf_cgroup_sched_preemptions_total', matchers=THROTTLED)} or vector(0)",
                    "ops",
                    steps((1, YELLOW), (50, RED)),
                ),
            ),
            row(
                "All of them",
                table(
                    "Now",
                    "One line for each, now. Follow the name to see it alone, in its scheduler, its system calls or its profiles.",
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
                        column("Wait p99", quantile_who(0.99, LATENCY), "s", DELAY),
                        column("Preempted", who("perf_cgroup_sched_preemptions_total"), "ops"),
                        column("Switches", who("perf_cgroup_context_switches_total"), "ops"),
                        column("Moves", who("perf_cgroup_cpu_migrations_total"), "ops"),
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
                    "Wait for a CPU, p99",
                    "One wake-up in a hundred waits longer than this. If it is high and the node is not busy, look at the quota and at who preempts whom.",
                    f"({quantile_who(0.99, LATENCY)})\n  and topk($top, {who(RUN, over=WHOLE)})",
                    WHO_LEGEND,
                    "s",
                    limits=DELAY,
                ),
                lines(
                    "Part of the time that threads waited for a CPU",
                    "Of the time in which threads ran or were ready to. A half means: with CPUs of its own it would take half as long.",
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
                    "A drop at the same load means that its CPUs wait, as a rule for memory: look at the cache, and at who else came onto the node.",
                    share("perf_cgroup_instructions_total", "perf_cgroup_cycles_total"),
                    WHO_LEGEND,
                    "none",
                    limits=IPC,
                ),
                lines(
                    "Cache miss ratio",
                    "Misses among references of the last-level cache.",
                    share("perf_cgroup_cache_misses_total", "perf_cgroup_cache_references_total"),
                    WHO_LEGEND,
                    "percentunit",
                    limits=MISSES,
                ),
                lines(
                    "Cache misses per 1000 instructions",
                    "MPKI: how often the work itself waits for memory.",
                    share("perf_cgroup_cache_misses_total", "perf_cgroup_instructions_total", "1000 * "),
                    WHO_LEGEND,
                    "none",
                    limits=MPKI,
                ),
                lines(
                    "Branch miss ratio",
                    "Branches that the CPU guessed wrong. Needs branches and branch-misses in `counters`, `per: [cgroup]`.",
                    share("perf_cgroup_branch_misses_total", "perf_cgroup_branches_total"),
                    WHO_LEGEND,
                    "percentunit",
                    limits=BRANCHES,
                ),
                per_who(
                    "Cycles",
                    "Per second: what it costs at the clock that the CPUs have.",
                    "perf_cgroup_cycles_total",
                    "hertz",
                    stacked=True,
                ),
                per_who(
                    "Cache misses",
                    "Per second: who fetches most from memory, and so slows the others down.",
                    "perf_cgroup_cache_misses_total",
                    "ops",
                    stacked=True,
                ),
            ),
            row(
                "Switches and faults",
                lines(
                    "Voluntary switches",
                    "Threads that left their CPU to wait for something, per second.",
                    top(lambda over: who("perf_cgroup_sched_switches_total", '@cgroups,kind="voluntary"', over)),
                    WHO_LEGEND,
                    "ops",
                ),
                lines(
                    "Involuntary switches",
                    "Threads that had to leave while they had more to do, per second. A storm: too many threads for the CPUs, or a quota that is too small.",
                    top(lambda over: who("perf_cgroup_sched_switches_total", '@cgroups,kind="involuntary"', over)),
                    WHO_LEGEND,
                    "ops",
                    limits=steps((1000, YELLOW), (10000, RED)),
                ),
                per_who("Moves to another CPU", "Per second; caches stay behind.", "perf_cgroup_cpu_migrations_total"),
                per_who(
                    "Page faults",
                    "Per second: memory that is touched for the first time, or again after it was taken away.",
                    "perf_cgroup_page_faults_total",
                ),
                per_who(
                    "Major faults",
                    "Page faults that waited for a disk, per second. More than a few: its memory limit is too small, or the node is short of memory.",
                    "perf_cgroup_major_faults_total",
                    limits=MAJOR,
                ),
                lines(
                    "Forks and programs started",
                    "Per second. Needs the preset forks, which is on by default.",
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
