"""Which threads wait for a CPU, how long, and what preempts them?"""

from .node_overview import BY_NODE, DELAY
from .panels import GREEN, ORANGE, PURPLE, RED, YELLOW, column, dashboard as made, heat, lines, number, row, steps, table
from .queries import WHO_LEGEND, most, named, quantile, quantile_who, rate, sums, top, total, who

HOST = "perf_sched_runqueue_latency_seconds"
LATENCY = "perf_cgroup_sched_runqueue_latency_seconds"
LONGEST = "perf_cgroup_sched_runqueue_latency_max_seconds{@cgroups}"
RUN = "perf_cgroup_task_clock_seconds_total"
BY_OTHERS = "perf_cgroup_sched_preempted_by_cgroup_total"
STORM = steps((1000, YELLOW), (10000, RED))


def busiest(expression):
    """The series with the most run time in the time range."""
    return most(expression, lambda over: who(RUN, over=over))


def ran(over):
    return total("perf_process_sched_run_seconds_total", "$comm_label,instance", over=over)


def dashboard():
    return made(
        "perf-scheduler",
        "perf: scheduler",
        "Which threads wait for a CPU, how long, and what preempts them? Measured at each context switch and each wakeup, "
        "without sampling.",
        [
            row(
                "At a glance",
                number(
                    "Run-queue latency, median",
                    "Half of all wakeups on the selected nodes wait longer than this before the thread runs.",
                    quantile(0.5, HOST),
                    "s",
                    DELAY,
                ),
                number(
                    "Run-queue latency, p99", "One in 100 wakeups waits longer than this.", quantile(0.99, HOST), "s", DELAY
                ),
                number(
                    "Maximum over the last minute",
                    "Maximum run-queue latency. The exporter's page /status shows the thread and the time.",
                    "max(perf_sched_runqueue_latency_max_seconds{@node})",
                    "s",
                    steps((0.02, YELLOW), (0.1, RED)),
                ),
                number(
                    "Threads waiting for a CPU",
                    "Average number of runnable threads that wait, over all selected nodes.",
                    sums(HOST),
                    "short",
                    steps((4, YELLOW), (16, RED)),
                    decimals=2,
                ),
                number(
                    "Involuntary switches",
                    "Threads per second that were preempted while runnable.",
                    total("perf_sched_switches_total", matchers='@node,kind="involuntary"'),
                    "ops",
                    STORM,
                ),
                number(
                    "Throttled by the CPU quota",
                    "Throttled threads per second. Raise the CPU limit of the pod, or use fewer threads.",
                    f"""{total("perf_sched_preemptions_total", matchers='@node,by="throttled"')} or vector(0)""",
                    "ops",
                    steps((1, YELLOW), (50, RED)),
                ),
            ),
            row(
                "Run-queue latency",
                heat(
                    "Nodes: run-queue latency",
                    "Each column is an interval and each row a range of latencies. The color is the number of wakeups. A "
                    "second band above the first is a group of threads that waits for others. Uses native histograms if "
                    "Prometheus stores them.",
                    HOST,
                    width=12,
                ),
                heat(
                    "Selected pods and cgroups: run-queue latency",
                    "The same for the selected pods and cgroups.",
                    LATENCY,
                    matchers="@cgroups",
                    width=12,
                ),
                lines(
                    "By node: p50, p90, p99",
                    "Time from runnable to running. The distance between the curves shows whether few or all threads wait.",
                    quantile(0.5, HOST, "instance"),
                    "p50 " + BY_NODE,
                    "s",
                    log=True,
                    more=[
                        (quantile(0.9, HOST, "instance"), "p90 " + BY_NODE),
                        (quantile(0.99, HOST, "instance"), "p99 " + BY_NODE),
                    ],
                    limits=DELAY,
                ),
                lines(
                    "By pod or cgroup: p99",
                    "For the series with the most run time in the time range.",
                    busiest(quantile_who(0.99, LATENCY)),
                    WHO_LEGEND,
                    "s",
                    log=True,
                    limits=DELAY,
                ),
                lines(
                    "Maximum latency over the last minute",
                    "By pod or cgroup. The maximum is kept for a minute, so a peak appears as a plateau.",
                    busiest(f"max by ($by,who) ({named(LONGEST)})"),
                    WHO_LEGEND,
                    "s",
                    limits=steps((0.02, YELLOW), (0.1, RED)),
                ),
            ),
            row(
                "Preemptions",
                table(
                    "Preempted and preempting cgroups",
                    "Preemptions per second of threads of the first cgroup by threads of the second. A batch job that "
                    "preempts frequently needs its own nodes, or a lower weight. Needs "
                    "perf_cgroup_sched_preempted_by_cgroup_total in metrics.include, or the level full.",
                    [
                        column(
                            "Preemptions",
                            f"topk(4 * $top, sum by ($cgroup_label,$by_cgroup_label,$pod_label,$namespace_label,instance) ({rate(BY_OTHERS, '@cgroups')}) > 0)",
                            "ops",
                            steps((10, YELLOW), (100, RED)),
                            width=130,
                        )
                    ],
                    {
                        "namespace": "Namespace",
                        "pod": "Pod",
                        "cgroup": "Preempted",
                        "by_cgroup": "Preempted by",
                        "instance": "Node",
                    },
                    "Preemptions",
                    width=12,
                    height=9,
                ),
                lines(
                    "Preemptions by cause",
                    "Preempted threads of the selected cgroups per second. own: by the same cgroup. other: by another "
                    "cgroup. kernel: by a kernel thread. throttled: the CPU quota was exhausted. own and kernel need the level "
                    "full, or the metric in metrics.include.",
                    total("perf_cgroup_sched_preemptions_total", "by", "@cgroups"),
                    "{{by}}",
                    "ops",
                    stacked=True,
                    width=6,
                    height=9,
                    colors={"own": GREEN, "other": RED, "kernel": PURPLE, "throttled": ORANGE},
                ),
                lines(
                    "Preempted by other cgroups",
                    "Preemptions per second by another cgroup, by pod or cgroup.",
                    top(lambda over: who("perf_cgroup_sched_preemptions_total", '@cgroups,by="other"', over)),
                    WHO_LEGEND,
                    "ops",
                    width=6,
                    height=9,
                    limits=steps((100, YELLOW), (1000, RED)),
                ),
            ),
            row(
                "Thread states",
                lines(
                    "Run time",
                    "CPUs used, by pod or cgroup. 1 is one CPU all the time.",
                    top(lambda over: who(RUN, over=over)),
                    WHO_LEGEND,
                    "short",
                    stacked=True,
                    width=6,
                ),
                lines(
                    "Preempted threads",
                    "Average number of preempted threads that wait to continue.",
                    top(lambda over: who("perf_cgroup_sched_wait_seconds_total", '@cgroups,state="preempted"', over)),
                    WHO_LEGEND,
                    "short",
                    width=6,
                ),
                lines(
                    "Threads waiting for a disk",
                    "Average number of threads in uninterruptible sleep. Usually they wait for a disk or a network file "
                    "system.",
                    top(lambda over: who("perf_cgroup_sched_wait_seconds_total", '@cgroups,state="uninterruptible"', over)),
                    WHO_LEGEND,
                    "short",
                    width=6,
                    limits=steps((2, YELLOW), (10, RED)),
                ),
                lines(
                    "Fraction of time waiting for a CPU",
                    "Wait time divided by the time in which threads ran or were runnable.",
                    busiest(
                        f"({sums(LATENCY, '$by,who', '@cgroups', named)})\n  / (({sums(LATENCY, '$by,who', '@cgroups', named)}) + {who(RUN)} > 0)"
                    ),
                    WHO_LEGEND,
                    "percentunit",
                    width=6,
                    limits=steps((0.2, YELLOW), (0.5, RED)),
                    most=1,
                ),
                lines(
                    "Voluntary and involuntary switches",
                    "Per second, for the selected nodes. Involuntary switches increase when there are more runnable threads "
                    "than CPUs.",
                    total("perf_sched_switches_total", "instance,kind"),
                    "{{kind}} {{instance}}",
                    "ops",
                ),
                lines(
                    "Involuntary switches",
                    "By pod or cgroup, per second.",
                    top(lambda over: who("perf_cgroup_sched_switches_total", '@cgroups,kind="involuntary"', over)),
                    WHO_LEGEND,
                    "ops",
                    limits=STORM,
                ),
                lines(
                    "CPU migrations",
                    "By pod or cgroup, per second.",
                    top(lambda over: who("perf_cgroup_cpu_migrations_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                ),
            ),
            row(
                "Processes",
                lines(
                    "Run-queue latency by program, p99",
                    "Needs `scheduler: {per: [host, cgroup, process]}`.",
                    most(quantile(0.99, "perf_process_sched_runqueue_latency_seconds", "$comm_label,instance"), ran),
                    "{{$comm_label}} {{instance}}",
                    "s",
                    log=True,
                    limits=DELAY,
                ),
                lines(
                    "Run time by program",
                    "CPUs used, by program. Needs `scheduler: {per: [host, cgroup, process]}`.",
                    top(ran),
                    "{{$comm_label}} {{instance}}",
                    "short",
                    stacked=True,
                ),
                lines(
                    "Threads waiting for a disk, by program",
                    "Average number of threads in uninterruptible sleep, by program.",
                    top(
                        lambda over: (
                            f"""sum by ($comm_label,instance) ({rate("perf_process_sched_wait_seconds_total", '@node,state="uninterruptible"', over)})"""
                        )
                    ),
                    "{{$comm_label}} {{instance}}",
                    "short",
                    limits=steps((2, YELLOW), (10, RED)),
                ),
                collapsed=True,
            ),
        ],
        with_cgroups=True,
    )
