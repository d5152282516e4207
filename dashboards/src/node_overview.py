"""Which node is in trouble, and is it the CPU, the memory, or the kernel?"""

from .panels import GREEN, ORANGE, RED, YELLOW, bars, column, dashboard as made, lines, link, number, row, steps, table
from .queries import RATE, quantile, rate, ratio, sums, top, total

BUSY = steps((0.7, YELLOW), (0.9, RED))
IPC = steps((0.5, ORANGE), (1, GREEN), base=RED)
MISSES = steps((0.1, YELLOW), (0.3, RED))
BRANCHES = steps((0.02, YELLOW), (0.05, RED))
MPKI = steps((5, YELLOW), (20, RED))
DELAY = steps((0.005, YELLOW), (0.02, RED))
MAJOR = steps((10, YELLOW), (100, RED))
ANY = steps((1, YELLOW))

LATENCY = "perf_sched_runqueue_latency_seconds"
BY_NODE = "{{instance}}"
WHOM = "{{$namespace_label}} {{who}} {{instance}}"


def busy(by="instance"):
    return ratio(total("perf_sched_run_seconds_total", by), total("perf_cpu_task_clock_seconds_total", by))


def ipc(by="instance"):
    return ratio(total("perf_cpu_instructions_total", by), total("perf_cpu_cycles_total", by))


def miss_ratio(by="instance"):
    return ratio(total("perf_cpu_cache_misses_total", by), total("perf_cpu_cache_references_total", by))


def mpki(by="instance"):
    return ratio(total("perf_cpu_cache_misses_total", by), total("perf_cpu_instructions_total", by), "1000 * ")


def branch_ratio(by="instance"):
    return ratio(total("perf_cpu_branch_misses_total", by), total("perf_cpu_branches_total", by))


def of_whom(metric, over=RATE):
    """By pod, and by cgroup what is in none: this dashboard has no "Group by"."""
    pod = f'label_replace(label_replace({rate(metric, over=over)}, "who", "$1", "$cgroup_label", "(.+)"), "who", "$1", "$pod_label", "(.+)")'
    return f"sum by (instance,$namespace_label,who) ({pod})"


def dashboard():
    to_node = [
        link(
            "Pods and cgroups of this node",
            "/d/perf-pods?${__url_time_range}&var-datasource=${datasource}&var-names=${names}&var-instance=${__value.raw}",
        ),
        link(
            "Scheduler of this node",
            "/d/perf-scheduler?${__url_time_range}&var-datasource=${datasource}&var-names=${names}&var-instance=${__value.raw}",
        ),
        link(
            "Profiles of this node",
            "/d/perf-profiles?${__url_time_range}&var-datasource=${datasource}&var-names=${names}&var-instance=${__value.raw}",
        ),
    ]
    return made(
        "perf-nodes",
        "perf: nodes",
        "Which node is in trouble, and is it the CPU, the memory, or the kernel?",
        [
            row(
                "At a glance",
                number(
                    "Nodes",
                    "Exporters that Prometheus has metrics of now.",
                    "count(perf_exporter_build_info{@node})",
                    graph=False,
                    width=3,
                ),
                number(
                    "CPUs busy",
                    "Part of the time of all CPUs in which threads ran. Above 90 % threads wait for a CPU.",
                    busy(""),
                    "percentunit",
                    BUSY,
                    width=3,
                    decimals=1,
                ),
                number(
                    "Instructions per cycle",
                    "Of all CPUs together. Below 0.5 they mostly wait, as a rule for memory; what is good depends on the program, so "
                    "compare with yesterday. Empty where there are no hardware counters, as in most virtual machines.",
                    ipc(""),
                    "none",
                    IPC,
                    decimals=2,
                    zero="no counters",
                    width=3,
                ),
                number(
                    "Cache miss ratio",
                    "Misses among references of the last-level cache. What misses waits for memory: some 100 ns each.",
                    miss_ratio(""),
                    "percentunit",
                    MISSES,
                    decimals=1,
                    zero="no counters",
                    width=3,
                ),
                number(
                    "Wait for a CPU, p99",
                    "One wake-up in a hundred waits longer than this until the thread runs.",
                    quantile(0.99, LATENCY),
                    "s",
                    DELAY,
                    width=3,
                ),
                number(
                    "Context switches", "Of all CPUs, per second.", total("perf_cpu_context_switches_total"), "ops", width=3
                ),
                number(
                    "Major faults",
                    "Page faults that waited for a disk, per second. More than a few means that memory is short.",
                    total("perf_cpu_major_faults_total"),
                    "ops",
                    MAJOR,
                    width=3,
                ),
                number(
                    "Events refused",
                    "Events of the configuration that at least one node cannot count: absent, forbidden, exhausted or broken. The "
                    "dashboard of the exporter says which, and the exporter's page /status why and what would help.",
                    'count(count by (event) (perf_event_state{@node,state=~"absent|forbidden|exhausted|broken"} > 0)) or vector(0)',
                    "short",
                    ANY,
                    width=3,
                ),
            ),
            row(
                "Nodes",
                table(
                    "Nodes",
                    "One line for each node, now. The name leads to its pods, its scheduler and its profiles.",
                    [
                        column("CPUs", "count by (instance) (perf_cpu_task_clock_seconds_total{@node})", decimals=0),
                        column("Busy", busy(), "percentunit", BUSY, decimals=1),
                        column("IPC", ipc(), "none", IPC, decimals=2),
                        column("Cache misses", miss_ratio(), "percentunit", MISSES, decimals=1),
                        column("MPKI", mpki(), "none", MPKI, decimals=2),
                        column("Wait p99", quantile(0.99, LATENCY, "instance"), "s", DELAY),
                        column("Switches", total("perf_cpu_context_switches_total", "instance"), "ops"),
                        column("Faults", total("perf_cpu_page_faults_total", "instance"), "ops"),
                        column("Major faults", total("perf_cpu_major_faults_total", "instance"), "ops", MAJOR),
                        column(
                            "Exporter's CPU",
                            total("perf_exporter_cpu_seconds_total", "instance"),
                            "percentunit",
                            steps((0.05, YELLOW), (0.2, RED)),
                            decimals=2,
                        ),
                    ],
                    {"instance": "Node"},
                    "Busy",
                    height=7,
                    links={"Node": to_node},
                ),
            ),
            row(
                "CPU",
                lines(
                    "CPUs busy",
                    "Part of the time of a node's CPUs in which threads ran.",
                    busy(),
                    BY_NODE,
                    "percentunit",
                    limits=BUSY,
                    most=1,
                ),
                lines(
                    "Who uses the CPUs",
                    "CPUs that each pod uses, or each cgroup that is in none: 1 is one CPU all the time.",
                    top(lambda over: of_whom("perf_cgroup_task_clock_seconds_total", over)),
                    WHOM,
                    "short",
                    stacked=True,
                ),
                lines(
                    "Threads that wait for a CPU",
                    "How many threads are ready and wait, on average. Compare with the number of CPUs: as many again is a node that "
                    "takes twice as long for everything.",
                    sums(LATENCY, "instance"),
                    BY_NODE,
                    limits=steps((4, YELLOW), (16, RED)),
                ),
            ),
            row(
                "Hardware counters",
                lines(
                    "Instructions per cycle",
                    "A drop at the same load means that the CPUs wait: look at cache misses and at who came onto the node.",
                    ipc(),
                    BY_NODE,
                    "none",
                    limits=IPC,
                ),
                lines(
                    "Cache miss ratio",
                    "Misses among references of the last-level cache.",
                    miss_ratio(),
                    BY_NODE,
                    "percentunit",
                    limits=MISSES,
                ),
                lines(
                    "Cache misses per 1000 instructions",
                    "MPKI: how often the work itself waits for memory. Unlike the ratio it does not rise because there are fewer references.",
                    mpki(),
                    BY_NODE,
                    "none",
                    limits=MPKI,
                ),
                lines(
                    "Branch miss ratio",
                    "Branches that the CPU guessed wrong. Needs branches and branch-misses in `counters` (config/examples/detailed-hardware.yaml).",
                    branch_ratio(),
                    BY_NODE,
                    "percentunit",
                    limits=BRANCHES,
                ),
                lines(
                    "Clock while busy",
                    "Cycles per second of running: the clock that the CPUs really have. A drop under load is heat or a power limit.",
                    ratio(total("perf_cpu_cycles_total", "instance"), total("perf_sched_run_seconds_total", "instance")),
                    BY_NODE,
                    "hertz",
                ),
                lines(
                    "Part of the time that counters ran",
                    "The smallest of each node. Below 1, groups of events take turns and counts are scaled; below 0.2 short bursts are missed.",
                    "min by (instance) (perf_event_running_ratio{@node})",
                    BY_NODE,
                    "percentunit",
                    limits=steps((0.2, YELLOW), (0.5, GREEN), base=RED),
                    most=1,
                ),
            ),
            row(
                "Memory and power",
                lines(
                    "Memory read",
                    "What the memory controllers read. Needs uncore_imc/cas_count_read/ in `counters`; few virtual machines have it.",
                    total("perf_pmu_uncore_imc_cas_count_read_bytes_total", "instance"),
                    BY_NODE,
                    "Bps",
                ),
                lines(
                    "Memory written",
                    "What the memory controllers write. Needs uncore_imc/cas_count_write/ in `counters`.",
                    total("perf_pmu_uncore_imc_cas_count_write_bytes_total", "instance"),
                    BY_NODE,
                    "Bps",
                ),
                lines(
                    "Power of the packages",
                    "What the processors take, without memory. Needs power/energy-pkg/ in `counters`.",
                    total("perf_pmu_power_energy_pkg_joules_total", "instance"),
                    BY_NODE,
                    "watt",
                ),
                collapsed=True,
            ),
            row(
                "Operating system",
                lines(
                    "Context switches",
                    "Per second. A jump at the same load is most often a lock that many threads want.",
                    total("perf_cpu_context_switches_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Moves to another CPU",
                    "Threads that went on on another CPU, per second; their caches stayed behind.",
                    total("perf_cpu_cpu_migrations_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Page faults",
                    "Per second: memory that was touched for the first time, or again after it was taken away.",
                    total("perf_cpu_page_faults_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Major faults",
                    "Page faults that waited for a disk, per second.",
                    total("perf_cpu_major_faults_total", "instance"),
                    BY_NODE,
                    "ops",
                    limits=MAJOR,
                ),
                lines(
                    "Forks and programs started",
                    "Of all cgroups and of nobody, per second. A storm here is most often a health check or a script that starts a "
                    "program a thousand times. Needs the preset forks, which is on by default.",
                    f"{total('perf_cgroup_forks_total')} + ({total('perf_unattributed_forks_total')} or vector(0))",
                    "forks",
                    "ops",
                    more=[
                        (
                            f"{total('perf_cgroup_execs_total')} + ({total('perf_unattributed_execs_total')} or vector(0))",
                            "programs started",
                        )
                    ],
                    limits=steps((500, YELLOW), (2000, RED)),
                ),
                bars(
                    "Who switches most",
                    "Context switches now, per second, by pod, or by cgroup where there is none.",
                    f"topk($top, {of_whom('perf_cgroup_context_switches_total')})",
                    WHOM,
                    "ops",
                ),
            ),
        ],
    )
