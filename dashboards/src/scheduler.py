"""Who waits for a CPU, how long, and who is in the way?"""

from .node_overview import BY_NODE, DELAY
from .panels import GREEN, ORANGE, PURPLE, RED, YELLOW, column, dashboard as made, heat, lines, number, row, steps, table
from .queries import WHO_LEGEND, most, named, quantile, quantile_who, rate, sums, top, total, who

HOST = "perf_sched_runqueue_latency_seconds"
LATENCY = "perf_cgroup_sched_runqueue_latency_seconds"
LONGEST = "perf_cgroup_sched_runqueue_latency_max_seconds{@cgroups}"
RUN = "perf_cgroup_sched_run_seconds_total"
BY_OTHERS = "perf_cgroup_sched_preempted_by_cgroup_total"
STORM = steps((1000, YELLOW), (10000, RED))


def busiest(expression):
    """Of these, the ones that ran most over the whole time."""
    return most(expression, lambda over: who(RUN, over=over))


def ran(over):
    return total("perf_process_sched_run_seconds_total", "$comm_label,instance", over=over)


def dashboard():
    return made(
        "perf-scheduler",
        "perf: scheduler",
        "Who waits for a CPU, how long, and who is in the way? From each switch and each wake-up that the kernel makes, not from samples.",
        [
            row(
                "At a glance",
                number(
                    "Wait for a CPU, median",
                    "Of the selected nodes: half of all wake-ups wait longer than this until the thread runs.",
                    quantile(0.5, HOST),
                    "s",
                    DELAY,
                ),
                number(
                    "Wait for a CPU, p99", "One wake-up in a hundred waits longer than this.", quantile(0.99, HOST), "s", DELAY
                ),
                number(
                    "Longest of the last minute",
                    "The page /status of the exporter says which thread it was, and when.",
                    "max(perf_sched_runqueue_latency_max_seconds{@node})",
                    "s",
                    steps((0.02, YELLOW), (0.1, RED)),
                ),
                number(
                    "Threads that wait for a CPU",
                    "On average, of all selected nodes together.",
                    sums(HOST),
                    "short",
                    steps((4, YELLOW), (16, RED)),
                    decimals=2,
                ),
                number(
                    "Involuntary switches",
                    "Threads that had to leave while they had more to do, per second.",
                    total("perf_sched_switches_total", matchers='@node,kind="involuntary"'),
                    "ops",
                    STORM,
                ),
                number(
                    "Stopped by the CPU quota",
                    "Per second; nobody came in their place. Raise the limit of the pod, or give it fewer threads.",
                    f"""{total("perf_sched_preemptions_total", matchers='@node,by="throttled"')} or vector(0)""",
                    "ops",
                    steps((1, YELLOW), (50, RED)),
                ),
            ),
            row(
                "How long threads wait for a CPU",
                heat(
                    "Nodes: wait for a CPU",
                    "Each column is an interval, each line a range of waits, the colour how many wake-ups fell into it. A second band "
                    "above the first is a group of threads that waits for others. By native histograms where Prometheus stores those.",
                    HOST,
                    width=12,
                ),
                heat(
                    "Selected pods and cgroups: wait for a CPU",
                    "The same of the selected pods and cgroups alone.",
                    LATENCY,
                    matchers="@cgroups",
                    width=12,
                ),
                lines(
                    "By node: p50, p90, p99",
                    "Until a thread that is ready runs. The distance between the curves says whether few or all wait.",
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
                    "Of those that ran most over the time shown.",
                    busiest(quantile_who(0.99, LATENCY)),
                    WHO_LEGEND,
                    "s",
                    log=True,
                    limits=DELAY,
                ),
                lines(
                    "Longest wait of the last minute",
                    "By pod or cgroup. It is remembered for a minute, so a peak is a plateau here.",
                    busiest(f"max by ($by,who) ({named(LONGEST)})"),
                    WHO_LEGEND,
                    "s",
                    limits=steps((0.02, YELLOW), (0.1, RED)),
                ),
            ),
            row(
                "Who is in the way",
                table(
                    "Who preempts whom",
                    "Threads of the first had to leave their CPU for threads of the second, per second. A batch job at the right, again and "
                    "again, wants its own nodes, or a lower weight.",
                    [
                        column(
                            "Preemptions",
                            f"topk(4 * $top, sum by ($cgroup_label,$by_cgroup_label,$pod_label,$namespace_label,instance) ({rate(BY_OTHERS, '@cgroups')}) > 0)",
                            "ops",
                            steps((10, YELLOW), (100, RED)),
                        )
                    ],
                    {
                        "namespace": "Namespace",
                        "pod": "Pod",
                        "cgroup": "Had to leave",
                        "by_cgroup": "Came instead",
                        "instance": "Node",
                    },
                    "Preemptions",
                    width=12,
                    height=9,
                ),
                lines(
                    "For whom: own, others, the kernel, the quota",
                    "Threads of the selected cgroups that had to leave, by who came: their own cgroup, another one, a thread of the kernel, or nobody, for the quota was used up.",
                    total("perf_cgroup_sched_preemptions_total", "by", "@cgroups"),
                    "{{by}}",
                    "ops",
                    stacked=True,
                    width=6,
                    height=9,
                    colors={"own": GREEN, "other": RED, "kernel": PURPLE, "throttled": ORANGE},
                ),
                lines(
                    "Preempted by others",
                    "By pod or cgroup: how often threads had to leave for another cgroup, per second.",
                    top(lambda over: who("perf_cgroup_sched_preemptions_total", '@cgroups,by="other"', over)),
                    WHO_LEGEND,
                    "ops",
                    width=6,
                    height=9,
                    limits=steps((100, YELLOW), (1000, RED)),
                ),
            ),
            row(
                "What threads do",
                lines(
                    "Time that threads ran",
                    "CPUs used, by pod or cgroup: 1 is one CPU all the time.",
                    top(lambda over: who(RUN, over=over)),
                    WHO_LEGEND,
                    "short",
                    stacked=True,
                    width=6,
                ),
                lines(
                    "Off the CPU, but ready",
                    "Threads that were preempted and waited to go on, on average.",
                    top(lambda over: who("perf_cgroup_sched_wait_seconds_total", '@cgroups,state="preempted"', over)),
                    WHO_LEGEND,
                    "short",
                    width=6,
                ),
                lines(
                    "Waiting for a disk",
                    "Threads in uninterruptible sleep, on average; most often they wait for a disk or a network file system.",
                    top(lambda over: who("perf_cgroup_sched_wait_seconds_total", '@cgroups,state="uninterruptible"', over)),
                    WHO_LEGEND,
                    "short",
                    width=6,
                    limits=steps((2, YELLOW), (10, RED)),
                ),
                lines(
                    "Part of the time that threads waited for a CPU",
                    "Of the time in which threads ran or were ready to.",
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
                    "Switches, voluntary and not",
                    "Of the selected nodes, per second. Involuntary ones grow when there are more threads than CPUs.",
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
                    "Given to another CPU",
                    "By pod or cgroup, per second.",
                    top(lambda over: who("perf_cgroup_sched_migrations_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                ),
            ),
            row(
                "Processes",
                lines(
                    "Wait for a CPU by program, p99",
                    "Needs `scheduler: {per: [host, cgroup, process]}`.",
                    most(quantile(0.99, "perf_process_sched_runqueue_latency_seconds", "$comm_label,instance"), ran),
                    "{{$comm_label}} {{instance}}",
                    "s",
                    log=True,
                    limits=DELAY,
                ),
                lines(
                    "Time that programs ran",
                    "CPUs used, by program. Needs `scheduler: {per: [host, cgroup, process]}`.",
                    top(ran),
                    "{{$comm_label}} {{instance}}",
                    "short",
                    stacked=True,
                ),
                lines(
                    "Programs waiting for a disk",
                    "Threads in uninterruptible sleep, on average, by program.",
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
