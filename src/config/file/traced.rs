//! What may be written under `tracepoints` and `probes`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Cgroups, Histogram, Labels, PID_MAX, Processes, Sum, TracedPer};
use crate::config::decode::At;
use crate::config::value::{List, Period};

/// Where tracepoints and probes are found.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tracefs {
    /// Whether to mount tracefs where it is not mounted; needs `CAP_SYS_ADMIN`. Without, that is an error with the
    /// command that mounts it.
    pub(in crate::config) mount: Option<At<bool>>,
}

/// One entry of `tracepoints`: one metric of events that the kernel has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tracepoint {
    /// The tracepoint, `system:event`. `*` and `?` stand for several.
    #[schemars(extend("examples" = ["sched:sched_process_fork", "kmem:*"]))]
    pub(in crate::config) event: Option<At<String>>,
    /// Several tracepoints, told apart by the label `event`.
    #[schemars(extend("examples" = [["kmem:kmalloc", "kmem:kfree"], ["irq:*"]]))]
    pub(in crate::config) events: Option<At<List<String>>>,
    /// Where a time begins: the first of two tracepoints. The metric is a histogram of the seconds until `to`.
    #[schemars(extend("examples" = ["block:block_rq_issue"]))]
    pub(in crate::config) from: Option<At<String>>,
    /// Where the time that begins at `from` ends. The same event as in `from` gives the time from each hit to the next
    /// with the same key.
    #[schemars(extend("examples" = ["block:block_rq_complete"]))]
    pub(in crate::config) to: Option<At<String>>,
    /// What is the same in `from` and the `to` that belongs to it: fields that both have, `$cpu`, `$tid` or `$pid`.
    /// `$tid`, the thread, by default.
    #[schemars(extend("examples" = [["dev", "sector"], ["irq", "$cpu"]]))]
    pub(in crate::config) key: Option<At<List<String>>>,
    /// How long a `from` waits for its `to` before it is given up and counted as expired: 1ms to 1h; `60s` by default.
    pub(in crate::config) timeout: Option<At<Period>>,
    /// How many may wait at a time; what is over it is counted as lost. 16384 by default.
    #[schemars(range(min = 1, max = PENDING_MAX))]
    pub(in crate::config) pending: Option<At<u64>>,
    /// Which events to take, in the kernel's filter language. Of a pair it is about `from`.
    #[schemars(extend("examples" = ["delay > 1000000 && comm != \"java\""]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// Fields that become labels: their names, or `label: field`. Of a pair, `from.` and `to.` say whose field.
    pub(in crate::config) labels: Option<At<Labels>>,
    /// How many values of one label are kept apart, 100 by default; the others are counted as `other`.
    #[schemars(range(min = 1, max = VALUES_MAX))]
    pub(in crate::config) values: Option<At<u64>>,
    /// Add up a field instead of counting events.
    pub(in crate::config) sum: Option<At<Sum>>,
    /// How a field is distributed, or for a pair the time that passes.
    pub(in crate::config) histogram: Option<At<Histogram>>,
    /// For whom to count; `host` by default.
    pub(in crate::config) per: Option<At<List<TracedPer>>>,
    /// Other cgroups than those of the file, for this entry; what is left out is as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Other processes than those of the file, for this entry; what is left out is as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}

/// One entry of `probes`: one metric of a place in the kernel or a program.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Probe {
    /// A function of the kernel, `[module:]function[+offset]`, at its entry.
    #[schemars(extend("examples" = ["tcp_sendmsg", "nf_conntrack:nf_conntrack_in"]))]
    pub(in crate::config) kprobe: Option<At<String>>,
    /// A function of the kernel at its return.
    #[schemars(extend("examples" = ["vfs_read"]))]
    pub(in crate::config) kretprobe: Option<At<String>>,
    /// A function of a program or library, `/path:function[+offset]`, at its entry; or an offset in the file.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc", "/usr/bin/app:0x1234"]))]
    pub(in crate::config) uprobe: Option<At<String>>,
    /// A function of a program or library at its return.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc"]))]
    pub(in crate::config) uretprobe: Option<At<String>>,
    /// A marker that was compiled into a program (USDT), `/path:provider:name`.
    #[schemars(extend("examples" = ["/usr/bin/postgres:postgresql:query__start"]))]
    pub(in crate::config) usdt: Option<At<String>>,
    /// In whose files the path of a program is; the host's by default.
    #[serde(rename = "in")]
    pub(in crate::config) within: Option<At<Within>>,
    /// What to take: `[name=]fetch[:type]` as for `perf probe`, or variables by name where the kernel has BTF.
    #[schemars(extend("examples" = [["size=%di:u64"], ["port=sk->__sk_common.skc_dport"], ["ret=$retval:s32"]]))]
    pub(in crate::config) arguments: Option<At<List<String>>>,
    /// Which hits to take, in the kernel's filter language, about the arguments.
    #[schemars(extend("examples" = ["size > 4096"]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// Arguments that become labels: their names, or `label: argument`.
    pub(in crate::config) labels: Option<At<Labels>>,
    /// How many values of one label are kept apart, 100 by default; the others are counted as `other`.
    #[schemars(range(min = 1, max = VALUES_MAX))]
    pub(in crate::config) values: Option<At<u64>>,
    /// Add up an argument instead of counting hits.
    pub(in crate::config) sum: Option<At<Sum>>,
    /// How an argument is distributed; `seconds` is the time from the function's entry to its return.
    pub(in crate::config) histogram: Option<At<Histogram>>,
    /// For whom to count; `host` by default.
    pub(in crate::config) per: Option<At<List<TracedPer>>>,
    /// Other cgroups than those of the file, for this entry; what is left out is as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Other processes than those of the file, for this entry; what is left out is as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
}

/// In whose files a path is: those of the processes of a cgroup, or of one process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Within {
    /// The path of the cgroup of a container, below the mount point of the cgroup file system. No pattern.
    #[schemars(extend("examples" = ["/system.slice/docker-4f0c….scope"]))]
    pub(in crate::config) cgroup: Option<At<String>>,
    /// The id of a process.
    #[schemars(range(min = 1, max = PID_MAX))]
    pub(in crate::config) pid: Option<At<u64>>,
}

/// The most that wait for their second event: some 100 MB.
pub(in crate::config) const PENDING_MAX: u64 = 1 << 20;
/// The most values of one label; a metric of more is no use to anybody who looks at it.
pub(in crate::config) const VALUES_MAX: u64 = 10_000;
