"""Which node has a problem, and is the cause the CPU, memory, or the kernel?"""

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
    """By pod, and by cgroup outside of pods. This dashboard has no "Group by"."""
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
        "Which node has a problem, and is the cause the CPU, memory, or the kernel?",
        [
            row(
                "At a glance",
                number(
                    "Nodes",
                    "Number of exporters that Prometheus currently scrapes.",
                    "count(perf_exporter_build_info{@node})",
                    graph=False,
                    width=3,
                ),
                number(
                    "CPUs busy",
                    "Fraction of CPU time in which threads ran, over all CPUs. Above 90 %, threads wait for a CPU.",
                    busy(""),
                    "percentunit",
                    BUSY,
                    width=3,
                    decimals=1,
                ),
                number(
                    "Instructions per cycle",
                    "Average over all CPUs. Below 0.5, CPUs mostly stall, usually on memory. Good values depend on the "
                    "program, so compare with yesterday. Empty without hardware counters, as in most virtual machines.",
                    ipc(""),
                    "none",
                    IPC,
                    decimals=2,
                    zero="no counters",
                    width=3,
                ),
                number(
                    "Cache miss ratio",
                    "Misses divided by references of the last-level cache. Each miss waits for memory, for some 100 ns.",
                    miss_ratio(""),
                    "percentunit",
                    MISSES,
                    decimals=1,
                    zero="no counters",
                    width=3,
                ),
                number(
                    "Run-queue latency, p99",
                    "One in 100 wakeups waits longer than this before the thread runs.",
                    quantile(0.99, LATENCY),
                    "s",
                    DELAY,
                    width=3,
                ),
                number(
                    "Context switches", "Context switches per second, over all CPUs.", total("perf_cpu_context_switches_total"), "ops", width=3
                ),
                number(
                    "Major faults",
                    "Page faults per second that waited for a disk. More than a few indicate a shortage of memory.",
                    total("perf_cpu_major_faults_total"),
                    "ops",
                    MAJOR,
                    width=3,
                ),
                number(
                    "Events not counted",
                    "Configured events that at least one node cannot count: absent, forbidden, exhausted or broken. The "
                    "dashboard of the exporter lists them. The exporter's page /status shows the reason and the remedy.",
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
                    "One row per node, current values. The name links to the node's pods, scheduler and profiles.",
                    [
                        column("CPUs", "count by (instance) (perf_cpu_task_clock_seconds_total{@node})", decimals=0),
                        column("Busy", busy(), "percentunit", BUSY, decimals=1),
                        column("IPC", ipc(), "none", IPC, decimals=2),
                        column("Cache misses", miss_ratio(), "percentunit", MISSES, decimals=1),
                        column("MPKI", mpki(), "none", MPKI, decimals=2),
                        column("Latency p99", quantile(0.99, LATENCY, "instance"), "s", DELAY),
                        column("Switches", total("perf_cpu_context_switches_total", "instance"), "ops"),
                        column("Faults", total("perf_cpu_page_faults_total", "instance"), "ops"),
                        column("Major faults", total("perf_cpu_major_faults_total", "instance"), "ops", MAJOR),
                        column(
                            "Exporter CPU",
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
                    "Fraction of CPU time in which threads ran, per node.",
                    busy(),
                    BY_NODE,
                    "percentunit",
                    limits=BUSY,
                    most=1,
                ),
                lines(
                    "CPU usage by pod",
                    "CPUs used by each pod, or by each cgroup outside of pods. 1 is one CPU all the time.",
                    top(lambda over: of_whom("perf_cgroup_task_clock_seconds_total", over)),
                    WHOM,
                    "short",
                    stacked=True,
                ),
                lines(
                    "Threads waiting for a CPU",
                    "Average number of runnable threads that wait for a CPU. Compare with the number of CPUs: if both are "
                    "equal, all work takes twice as long.",
                    sums(LATENCY, "instance"),
                    BY_NODE,
                    limits=steps((4, YELLOW), (16, RED)),
                ),
            ),
            row(
                "Hardware counters",
                lines(
                    "Instructions per cycle",
                    "A drop at the same load means that the CPUs stall. Check cache misses, and pods that were started on "
                    "the node.",
                    ipc(),
                    BY_NODE,
                    "none",
                    limits=IPC,
                ),
                lines(
                    "Cache miss ratio",
                    "Misses divided by references of the last-level cache.",
                    miss_ratio(),
                    BY_NODE,
                    "percentunit",
                    limits=MISSES,
                ),
                lines(
                    "Cache misses per 1000 instructions",
                    "MPKI: misses relative to the work done. Unlike the miss ratio, it does not rise when there are fewer "
                    "references.",
                    mpki(),
                    BY_NODE,
                    "none",
                    limits=MPKI,
                ),
                lines(
                    "Branch miss ratio",
                    "Fraction of mispredicted branches. Needs branches and branch-misses in `counters` "
                    "(config/examples/detailed-hardware.yaml).",
                    branch_ratio(),
                    BY_NODE,
                    "percentunit",
                    limits=BRANCHES,
                ),
                lines(
                    "Clock rate while busy",
                    "Cycles per second of run time: the effective clock rate of the CPUs. A drop under load indicates heat "
                    "or a power limit.",
                    ratio(total("perf_cpu_cycles_total", "instance"), total("perf_sched_run_seconds_total", "instance")),
                    BY_NODE,
                    "hertz",
                ),
                lines(
                    "Counter running ratio",
                    "Minimum per node. Below 1, event groups are multiplexed and counts are scaled. Below 0.2, short bursts "
                    "are missed.",
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
                    "Bytes per second read by the memory controllers. Needs uncore_imc/cas_count_read/ in `counters`, which "
                    "few virtual machines support.",
                    total("perf_pmu_uncore_imc_cas_count_read_bytes_total", "instance"),
                    BY_NODE,
                    "Bps",
                ),
                lines(
                    "Memory written",
                    "Bytes per second written by the memory controllers. Needs uncore_imc/cas_count_write/ in `counters`.",
                    total("perf_pmu_uncore_imc_cas_count_write_bytes_total", "instance"),
                    BY_NODE,
                    "Bps",
                ),
                lines(
                    "Package power",
                    "Power of the processor packages, without memory. Needs power/energy-pkg/ in `counters`.",
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
                    "Per second. A jump at the same load usually indicates a contended lock.",
                    total("perf_cpu_context_switches_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "CPU migrations",
                    "Threads per second that continued on another CPU, with a cold cache.",
                    total("perf_cpu_cpu_migrations_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Page faults",
                    "Per second: first accesses to memory pages, or accesses after the page was reclaimed.",
                    total("perf_cpu_page_faults_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Major faults",
                    "Page faults per second that waited for a disk.",
                    total("perf_cpu_major_faults_total", "instance"),
                    BY_NODE,
                    "ops",
                    limits=MAJOR,
                ),
                lines(
                    "Forks and programs started",
                    "Per second, over all cgroups and including unattributed ones. The usual cause of a storm is a health "
                    "check or a script that starts a program a thousand times. Needs the preset forks, which is enabled by "
                    "default. Programs need perf_cgroup_execs_total in metrics.include, or the level full.",
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
                    "Context switches by pod",
                    "Current context switches per second, by pod, or by cgroup outside of pods.",
                    f"topk($top, {of_whom('perf_cgroup_context_switches_total')})",
                    WHOM,
                    "ops",
                ),
            ),
        ],
    )
