"""Which system calls fail or are slow, and is the cause the disk, the network or memory?"""

from .node_overview import BY_NODE, MAJOR
from .panels import RED, YELLOW, bars, column, dashboard as made, heat, lines, number, row, steps, table
from .queries import WHO_LEGEND, WHOLE, by_who, most, observations, quantile, quantile_who, rate, ratio, sums, top, total, who
from .variables import asked

DURATION = "perf_syscall_duration_seconds"
CALLS = '@node,syscall=~"$syscall"'
OF_PODS = '@cgroups,syscall=~"$syscall"'
STUCK_CALLS = f"perf_cgroup_syscalls_stuck{{{OF_PODS}}}"
SLOW = steps((0.01, YELLOW), (0.1, RED))
BLOCK = "perf_tracepoint_block_latency_seconds"
SIZE = "perf_tracepoint_block_size_bytes"
DEVICES = '@node,device=~"$device"'
LOCK_WAIT = "perf_tracepoint_lock_wait_seconds"
STUCK = steps((1, YELLOW), (10, RED))
NEEDS = "Needs the section `syscalls`, which is disabled by default."


def by_calls(expression):
    """The most frequent system calls in the time range."""
    return most(expression, calls)


def calls(over):
    return total("perf_syscalls_total", "syscall", CALLS, over)


def dashboard():
    syscall = asked(
        "syscall",
        "System call",
        'label_values(perf_syscalls_total{cluster=~"$cluster",instance=~"$instance"}, syscall)',
        "System calls that `include` in the section `syscalls` selects.",
    )
    device = asked(
        "device",
        "Disk",
        'label_values({__name__=~"perf_tracepoint_block_latency_seconds(_count)?",cluster=~"$cluster",instance=~"$instance"}, device)',
        "MAJOR,MINOR as in lsblk.",
    )
    return made(
        "perf-syscalls-io",
        "perf: system calls and I/O",
        "Which system calls fail or are slow, and is the cause the disk, the network or memory? Needs the section `syscalls` "
        "and presets: block-io, irq, softirq, page-faults and kworkers, and those that a panel names. Panels of disabled features have no data.",
        [
            row(
                "At a glance",
                number("System calls", "Calls that ended, per second. " + NEEDS, total("perf_syscalls_total", matchers=CALLS), "ops"),
                number(
                    "Error ratio",
                    "Fraction of calls that failed. Some errors are normal: EAGAIN from sockets, ENOENT from search paths.",
                    ratio(total("perf_syscall_errors_total", matchers=CALLS), total("perf_syscalls_total", matchers=CALLS)),
                    "percentunit",
                    steps((0.1, YELLOW), (0.3, RED)),
                    decimals=1,
                ),
                number(
                    "Stuck now",
                    "Calls that have been running for longer than `stuck`. This includes servers that wait for work, unless "
                    "`include` excludes their calls.",
                    f"sum(perf_syscalls_stuck{{{CALLS}}}) or vector(0)",
                    "short",
                    STUCK,
                ),
                number(
                    "Disk requests",
                    "Completed requests per second, over the selected disks. Needs the preset block-io.",
                    observations(BLOCK, matchers=DEVICES),
                    "iops",
                ),
                number(
                    "Disk latency, p99",
                    "One in 100 requests takes longer than this. Needs the preset block-io.",
                    quantile(0.99, BLOCK, matchers=DEVICES),
                    "s",
                    SLOW,
                ),
                number(
                    "Failed disk requests",
                    "Per second. Indicates a broken disk, or a broken path to it.",
                    f"{total('perf_tracepoint_block_errors_total', matchers=DEVICES)} or vector(0)",
                    "ops",
                    steps((0.001, RED)),
                ),
            ),
            row(
                "System calls of the nodes",
                lines(
                    "Calls per second",
                    "The most frequent system calls in the time range.",
                    top(calls),
                    "{{syscall}}",
                    "ops",
                    stacked=True,
                ),
                lines(
                    "Errors per second",
                    "By system call and error.",
                    top(lambda over: f"sum by (syscall,$errno_label) ({rate('perf_syscall_errors_total', CALLS, over)})"),
                    "{{syscall}} {{$errno_label}}",
                    "ops",
                    limits=steps((100, YELLOW), (1000, RED)),
                ),
                lines(
                    "Error ratio",
                    "Fraction of failed calls, for the most frequent system calls. A surge of one call indicates a missing "
                    "file, peer or permission.",
                    f"{ratio(total('perf_syscall_errors_total', 'syscall', CALLS), calls('$__rate_interval'))}\n  and topk($top, {calls(WHOLE)})",
                    "{{syscall}}",
                    "percentunit",
                    limits=steps((0.1, YELLOW), (0.5, RED)),
                    most=1,
                ),
                lines(
                    "Duration, p50 and p99",
                    "By system call. Calls that wait for work (epoll_wait, futex, poll) take long by design.",
                    by_calls(quantile(0.99, DURATION, "syscall", CALLS)),
                    "p99 {{syscall}}",
                    "s",
                    log=True,
                    more=[(by_calls(quantile(0.5, DURATION, "syscall", CALLS)), "p50 {{syscall}}")],
                    limits=SLOW,
                ),
                lines(
                    "Time spent in calls",
                    "Average number of threads in this system call.",
                    top(lambda over: "(" + sums(DURATION, "syscall", CALLS, over=over) + ")"),
                    "{{syscall}}",
                    "short",
                ),
                table(
                    "Stuck calls",
                    "System calls that have been running for longer than `stuck`. The exporter's page /status shows the "
                    "threads.",
                    [
                        column("Calls", f"sum by (syscall,instance) (perf_syscalls_stuck{{{CALLS}}}) > 0", "short", STUCK),
                        column(
                            "Longest",
                            f"max by (syscall,instance) (perf_syscalls_stuck_longest_seconds{{{CALLS}}}) > 0",
                            "s",
                            steps((30, YELLOW), (300, RED)),
                        ),
                    ],
                    {"syscall": "System call", "instance": "Node"},
                    "Longest",
                    width=8,
                    height=8,
                ),
                heat(
                    "Duration of the selected system calls",
                    "Select one or two calls at the top: the distribution of all calls is not meaningful. Uses native "
                    "histograms if Prometheus stores them.",
                    DURATION,
                    matchers=CALLS,
                ),
            ),
            row(
                "System calls of pods and cgroups",
                lines(
                    "Calls per second",
                    "By pod or cgroup. Needs `syscalls: {per: [host, cgroup]}`.",
                    top(lambda over: who("perf_cgroup_syscalls_total", OF_PODS, over)),
                    WHO_LEGEND,
                    "ops",
                ),
                lines(
                    "Errors per second",
                    "By pod or cgroup and error.",
                    top(lambda over: who("perf_cgroup_syscall_errors_total", OF_PODS, over, "$errno_label")),
                    "{{$errno_label}} " + WHO_LEGEND,
                    "ops",
                    limits=steps((100, YELLOW), (1000, RED)),
                ),
                lines(
                    "Stuck now",
                    "By pod or cgroup.",
                    f"topk($top, {by_who(STUCK_CALLS, 'syscall')} > 0)",
                    "{{syscall}} " + WHO_LEGEND,
                    "short",
                    limits=STUCK,
                ),
            ),
            row(
                "Disks",
                heat(
                    "Duration of disk requests",
                    "Time from issue to completion. Two bands are a cache and the disk behind it. Uses native histograms if "
                    "Prometheus stores them.",
                    BLOCK,
                    matchers=DEVICES,
                    width=12,
                    height=8,
                ),
                lines(
                    "Requests per second",
                    "By disk and operation: R read, W write, D discard, F flush, S synchronous, M metadata.",
                    observations(BLOCK, "device,op,instance", DEVICES),
                    "{{op}} {{device}} {{instance}}",
                    "iops",
                    width=6,
                ),
                lines(
                    "Bytes per second",
                    "By disk and operation.",
                    sums(SIZE, "device,op,instance", DEVICES),
                    "{{op}} {{device}} {{instance}}",
                    "Bps",
                    width=6,
                ),
                lines(
                    "Duration, p99",
                    "By disk and operation.",
                    quantile(0.99, BLOCK, "device,op,instance", DEVICES),
                    "{{op}} {{device}} {{instance}}",
                    "s",
                    width=6,
                    log=True,
                    limits=SLOW,
                ),
                lines(
                    "Size, median",
                    "By disk and operation. Many small requests cost more than a few large ones.",
                    quantile(0.5, SIZE, "device,op,instance", DEVICES),
                    "{{op}} {{device}} {{instance}}",
                    "bytes",
                    width=6,
                ),
                lines(
                    "In flight",
                    "Requests that were issued to the device and have not completed.",
                    'sum by (instance) (perf_pending_events{@node,entry="block_latency"})',
                    BY_NODE,
                    "short",
                    width=6,
                    limits=steps((64, YELLOW), (512, RED)),
                ),
                lines(
                    "Failed",
                    "Requests per second that failed, by disk and operation. Check the kernel log of the node.",
                    total("perf_tracepoint_block_errors_total", "device,op,instance", DEVICES),
                    "{{op}} {{device}} {{instance}}",
                    "ops",
                    width=6,
                    limits=steps((0.001, RED)),
                ),
            ),
            row(
                "Interrupts and softirqs",
                lines(
                    "Softirqs per second",
                    "By kind. Needs the preset softirq.",
                    observations("perf_tracepoint_softirq_run_seconds", "softirq"),
                    "{{softirq}}",
                    "ops",
                    stacked=True,
                    width=6,
                ),
                lines(
                    "CPUs busy with softirqs",
                    "By kind. 1 is one CPU all the time. NET_RX near 1 means that one CPU handles all packets.",
                    sums("perf_tracepoint_softirq_run_seconds", "softirq"),
                    "{{softirq}}",
                    "short",
                    stacked=True,
                    width=6,
                    limits=steps((0.5, YELLOW), (0.9, RED)),
                ),
                lines(
                    "Softirq latency, p99",
                    "By kind: time from the raise of a softirq to its start.",
                    quantile(0.99, "perf_tracepoint_softirq_latency_seconds", "softirq"),
                    "{{softirq}}",
                    "s",
                    width=6,
                    log=True,
                    limits=steps((0.001, YELLOW), (0.01, RED)),
                ),
                lines(
                    "CPUs busy with interrupts",
                    "By handler, for device interrupts. Needs the preset irq.",
                    top(lambda over: "(" + sums("perf_tracepoint_irq_run_seconds", "handler,instance", over=over) + ")"),
                    "{{handler}} {{instance}}",
                    "short",
                    width=6,
                    limits=steps((0.2, YELLOW), (0.5, RED)),
                ),
            ),
            row(
                "Memory and kernel workers",
                lines(
                    "Page faults in user mode",
                    "By pod or cgroup, per second. Needs the preset page-faults (x86-64).",
                    top(lambda over: who("perf_cgroup_page_faults_user_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                    width=6,
                ),
                lines(
                    "Page faults in the kernel",
                    "By pod or cgroup, per second. Needs the preset page-faults (x86-64).",
                    top(lambda over: who("perf_cgroup_page_faults_kernel_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                    width=6,
                ),
                lines(
                    "Major faults",
                    "Page faults per second that waited for a disk, by pod or cgroup.",
                    top(lambda over: who("perf_cgroup_major_faults_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                    width=6,
                    limits=MAJOR,
                ),
                lines(
                    "Page faults of the nodes",
                    "Per second, in user mode and in the kernel. Needs the preset page-faults (x86-64).",
                    total("perf_tracepoint_page_faults_user_total", "instance"),
                    "user " + BY_NODE,
                    "ops",
                    width=6,
                    more=[(total("perf_tracepoint_page_faults_kernel_total", "instance"), "kernel " + BY_NODE)],
                ),
                bars(
                    "CPU usage of kernel workers",
                    "CPUs currently used by kernel workers, by function. Needs the preset kworkers.",
                    f"topk($top, {sums('perf_tracepoint_kworker_run_seconds', '$function_label')})",
                    "{{$function_label}}",
                    "short",
                    width=12,
                ),
                lines(
                    "Work queue delay, p99",
                    "By function, for the most frequently queued functions. Needs the preset kworkers.",
                    most(
                        quantile(0.99, "perf_tracepoint_kworker_delay_seconds", "$function_label"),
                        lambda over: observations("perf_tracepoint_kworker_delay_seconds", "$function_label", over=over),
                    ),
                    "{{$function_label}}",
                    "s",
                    width=12,
                    log=True,
                    limits=SLOW,
                ),
            ),
            row(
                "Locks and memory of the kernel",
                lines(
                    "Threads that wait for locks",
                    "Average number of threads that wait for a lock of the kernel, by type of lock. Needs the preset locks. The command "
                    "`perf-exporter lock contention` shows the callers.",
                    sums(LOCK_WAIT, "type"),
                    "{{type}}",
                    stacked=True,
                    limits=steps((1, YELLOW), (4, RED)),
                ),
                lines(
                    "Lock waits, p99",
                    "By type of lock. Needs the preset locks.",
                    quantile(0.99, LOCK_WAIT, "type"),
                    "{{type}}",
                    "s",
                    log=True,
                    limits=SLOW,
                ),
                lines(
                    "Lock waits of pods",
                    "Waits per second by pod or cgroup. Needs the preset locks, and perf_cgroup_lock_waits_total in `metrics: {include}`.",
                    top(lambda over: who("perf_cgroup_lock_waits_total", over=over)),
                    WHO_LEGEND,
                    "ops",
                ),
                lines(
                    "Memory that the kernel allocates",
                    "Bytes per second by function. Needs the preset kmem.",
                    top(lambda over: total("perf_tracepoint_kmalloc_bytes_total", "$function_label", over=over)),
                    "{{$function_label}}",
                    "Bps",
                    width=6,
                ),
                lines(
                    "Allocations of the kernel",
                    "Calls per second by function. Needs the preset kmem.",
                    top(lambda over: total("perf_tracepoint_kmalloc_total", "$function_label", over=over)),
                    "{{$function_label}}",
                    "ops",
                    width=6,
                ),
                lines(
                    "Large allocations of pages",
                    "Per second by order: 2 to the power of the order is the number of pages. An allocation that splits a block of another "
                    "type of mobility fragments the memory. Needs the preset kmem.",
                    total("perf_tracepoint_pages_allocated_total", "order"),
                    "order {{order}}",
                    "ops",
                    width=6,
                    more=[(total("perf_tracepoint_pages_fragmented_total", "order"), "fragmented, order {{order}}")],
                ),
                lines(
                    "Threads that reclaim memory",
                    "Average number of threads that the kernel lets reclaim or compact memory for their own allocations. memcg: at the limit of a "
                    "cgroup. Needs the preset reclaim.",
                    sums("perf_tracepoint_direct_reclaim_seconds", "instance"),
                    "direct " + BY_NODE,
                    width=6,
                    more=[
                        (sums("perf_tracepoint_memcg_reclaim_seconds", "instance"), "memcg " + BY_NODE),
                        (sums("perf_tracepoint_compaction_seconds", "instance"), "compaction " + BY_NODE),
                    ],
                    limits=steps((0.1, YELLOW), (1, RED)),
                ),
                lines(
                    "Reclaim of pods, p99",
                    "Time of one reclaim by pod or cgroup, at the limit of the cgroup and without memory of the node. Needs the preset reclaim.",
                    quantile_who(0.99, "perf_cgroup_memcg_reclaim_seconds"),
                    "memcg " + WHO_LEGEND,
                    "s",
                    log=True,
                    more=[(quantile_who(0.99, "perf_cgroup_direct_reclaim_seconds"), "direct " + WHO_LEGEND)],
                    limits=SLOW,
                ),
                lines(
                    "Wakes of kswapd",
                    "Per second. kswapd reclaims in the background when a node is short of memory. Needs the preset reclaim.",
                    total("perf_tracepoint_kswapd_wakes_total", "instance"),
                    BY_NODE,
                    "ops",
                ),
                lines(
                    "Processes killed without memory",
                    "Per second, by pod or cgroup and by node. Needs the preset oom.",
                    who("perf_cgroup_oom_kills_total"),
                    WHO_LEGEND,
                    "ops",
                    more=[(total("perf_tracepoint_oom_kills_total", "instance"), BY_NODE)],
                    limits=steps((0.001, RED)),
                ),
                collapsed=True,
            ),
            row(
                "File systems",
                lines(
                    "fsync of ext4, p99",
                    "By disk. Needs the preset ext4.",
                    quantile(0.99, "perf_tracepoint_ext4_fsync_seconds", "device,instance"),
                    "{{device}} {{instance}}",
                    "s",
                    width=6,
                    log=True,
                    limits=SLOW,
                ),
                lines(
                    "Commits of the journal, p99",
                    "By disk. All that waits for fsync waits for the commit. Needs the preset ext4.",
                    quantile(0.99, "perf_tracepoint_jbd2_commit_seconds", "device,instance"),
                    "{{device}} {{instance}}",
                    "s",
                    width=6,
                    log=True,
                    limits=SLOW,
                ),
                lines(
                    "Waits of XFS, p99",
                    "For space in the log and for buffers, by disk. Needs the preset xfs.",
                    quantile(0.99, "perf_tracepoint_xfs_log_reserve_seconds", "device,instance"),
                    "log {{device}} {{instance}}",
                    "s",
                    width=6,
                    log=True,
                    more=[(quantile(0.99, "perf_tracepoint_xfs_buffer_wait_seconds", "device,instance"), "buffer {{device}} {{instance}}")],
                    limits=SLOW,
                ),
                lines(
                    "fsync of XFS",
                    "Calls per second by disk, and writes of the log by the function that forces them. Needs the preset xfs.",
                    total("perf_tracepoint_xfs_fsyncs_total", "device,instance"),
                    "{{device}} {{instance}}",
                    "ops",
                    width=6,
                    more=[(total("perf_tracepoint_xfs_log_forces_total", "$function_label"), "log {{$function_label}}")],
                ),
                collapsed=True,
            ),
            row(
                "TCP and virtual machines",
                lines(
                    "Retransmits",
                    "Segments per second that were sent again, by state of the connection. Needs the preset tcp.",
                    total("perf_tracepoint_tcp_retransmits_total", "state"),
                    "{{state}}",
                    "ops",
                    stacked=True,
                    more=[(total("perf_tracepoint_tcp_synack_retransmits_total"), "SYN-ACK")],
                ),
                lines(
                    "Resets",
                    "Connections per second that were reset, by direction. Needs the preset tcp.",
                    total("perf_tracepoint_tcp_resets_sent_total", "instance"),
                    "sent " + BY_NODE,
                    "ops",
                    more=[(total("perf_tracepoint_tcp_resets_received_total", "instance"), "received " + BY_NODE)],
                ),
                lines(
                    "Connections that failed",
                    "Per second: they were closed before they were established. Needs the preset tcp.",
                    total("perf_tracepoint_tcp_transitions_total", "instance", '@node,from="TCP_SYN_SENT",to="TCP_CLOSE"'),
                    BY_NODE,
                    "ops",
                    limits=steps((1, YELLOW), (10, RED)),
                ),
                lines(
                    "Exits of virtual CPUs",
                    "Per second by reason. Needs the preset kvm-exits.",
                    top(lambda over: "(" + observations("perf_tracepoint_kvm_exit_seconds", "reason", over=over) + ")"),
                    "{{reason}}",
                    "ops",
                    width=12,
                ),
                lines(
                    "Virtual CPUs outside of their guest",
                    "Average number by reason; HLT is a guest that has nothing to do. Needs the preset kvm-exits.",
                    top(lambda over: "(" + sums("perf_tracepoint_kvm_exit_seconds", "reason", over=over) + ")"),
                    "{{reason}}",
                    width=12,
                ),
                collapsed=True,
            ),
        ],
        with_cgroups=True,
        more_variables=(syscall, device),
    )
