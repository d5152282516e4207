//! Keys of `tracepoints` and `probes`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Cgroups, Histogram, Labels, PID_MAX, PodsOrRules, Processes, Sum, TracedPer};
use crate::config::decode::At;
use crate::config::value::{List, Period, Texts};
use crate::metrics::Level;

/// Access to tracepoints and probes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tracefs {
    /// Whether to mount tracefs if it is not mounted; requires `CAP_SYS_ADMIN`. If `false`, a missing mount is an error that contains the
    /// mount command.
    pub(in crate::config) mount: Option<At<bool>>,
}

/// An entry of `tracepoints`: one metric of kernel tracepoints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tracepoint {
    /// The tracepoint, `system:event`. The wildcards `*` and `?` match several.
    #[schemars(extend("examples" = ["sched:sched_process_fork", "kmem:*"]))]
    pub(in crate::config) event: Option<At<String>>,
    /// Several tracepoints, distinguished by the label `event`.
    #[schemars(extend("examples" = [["kmem:kmalloc", "kmem:kfree"], ["irq:*"]]))]
    pub(in crate::config) events: Option<At<List<String>>>,
    /// Start of a measured time: the first of two tracepoints. The metric is a histogram of the seconds until `to`.
    #[schemars(extend("examples" = ["block:block_rq_issue"]))]
    pub(in crate::config) from: Option<At<String>>,
    /// End of the time that starts at `from`. With the same event as in `from`, the time is measured from each hit to the next hit with the
    /// same key.
    #[schemars(extend("examples" = ["block:block_rq_complete"]))]
    pub(in crate::config) to: Option<At<String>>,
    /// What matches a `from` to its `to`: fields that both events have, `$cpu`, `$tid` or `$pid`. The default is `$tid`, the thread.
    #[schemars(extend("examples" = [["dev", "sector"], ["irq", "$cpu"]]))]
    pub(in crate::config) key: Option<At<List<String>>>,
    /// Maximum time from a `from` to its `to`, after which the `from` is counted as expired: 1ms to 1h; `60s` by default.
    pub(in crate::config) timeout: Option<At<Period>>,
    /// Maximum number of pending `from` events; further ones are counted as lost. 16384 by default.
    #[schemars(range(min = 1, max = PENDING_MAX))]
    pub(in crate::config) pending: Option<At<u64>>,
    /// Filter of events, in the kernel's filter language. For a pair, it applies to `from`.
    #[schemars(extend("examples" = ["delay > 1000000 && comm != \"java\""]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// Fields that become labels: their names, or `label: field`. For a pair, the prefixes `from.` and `to.` select the event.
    pub(in crate::config) labels: Option<At<Labels>>,
    /// Maximum number of distinct values of one label, 100 by default; further values are aggregated into `other`.
    #[schemars(range(min = 1, max = VALUES_MAX))]
    pub(in crate::config) values: Option<At<u64>>,
    /// Sum a field instead of counting events.
    pub(in crate::config) sum: Option<At<Sum>>,
    /// Histogram of a field, or for a pair of the duration.
    pub(in crate::config) histogram: Option<At<Histogram>>,
    /// Targets to count for; `host` by default.
    pub(in crate::config) per: Option<At<List<TracedPer>>>,
    /// Cgroups for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Containers and pods for this entry, in addition to `cgroups.include` of the entry. If it has neither, both are as in the file.
    pub(in crate::config) pods: Option<At<PodsOrRules>>,
    /// Processes for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
    /// The lowest level of `metrics` at which the metrics of the entry are published; `basic` by default.
    pub(in crate::config) level: Option<At<Level>>,
}

/// An entry of `probes`: one metric of a location in the kernel or in a program.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Probe {
    /// A kernel function, `[module:]function[+offset]`, at its entry.
    #[schemars(extend("examples" = ["tcp_sendmsg", "nf_conntrack:nf_conntrack_in"]))]
    pub(in crate::config) kprobe: Option<At<String>>,
    /// A kernel function at its return.
    #[schemars(extend("examples" = ["vfs_read"]))]
    pub(in crate::config) kretprobe: Option<At<String>>,
    /// A function of a program or library, `/path:function[+offset]`, at its entry; or an offset in the file.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc", "/usr/bin/app:0x1234"]))]
    pub(in crate::config) uprobe: Option<At<String>>,
    /// A function of a program or library at its return.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc"]))]
    pub(in crate::config) uretprobe: Option<At<String>>,
    /// A USDT probe in a program, `/path:provider:name`.
    #[schemars(extend("examples" = ["/usr/bin/postgres:postgresql:query__start"]))]
    pub(in crate::config) usdt: Option<At<String>>,
    /// The root directory for the path of a program; that of the exporter by default.
    #[serde(rename = "in")]
    pub(in crate::config) within: Option<At<Within>>,
    /// Arguments to record: `[name=]fetch[:type]` as in `perf probe`, or variables by name if the kernel has BTF.
    #[schemars(extend("examples" = [["size=%di:u64"], ["port=sk->__sk_common.skc_dport"], ["ret=$retval:s32"]]))]
    pub(in crate::config) arguments: Option<At<List<String>>>,
    /// Filter of hits by their arguments, in the kernel's filter language.
    #[schemars(extend("examples" = ["size > 4096"]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// Arguments that become labels: their names, or `label: argument`.
    pub(in crate::config) labels: Option<At<Labels>>,
    /// Maximum number of distinct values of one label, 100 by default; further values are aggregated into `other`.
    #[schemars(range(min = 1, max = VALUES_MAX))]
    pub(in crate::config) values: Option<At<u64>>,
    /// Sum an argument instead of counting hits.
    pub(in crate::config) sum: Option<At<Sum>>,
    /// Histogram of an argument; `seconds` is the time from the entry of the function to its return.
    pub(in crate::config) histogram: Option<At<Histogram>>,
    /// Targets to count for; `host` by default.
    pub(in crate::config) per: Option<At<List<TracedPer>>>,
    /// Cgroups for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) cgroups: Option<At<Cgroups>>,
    /// Containers and pods for this entry, in addition to `cgroups.include` of the entry. If it has neither, both are as in the file.
    pub(in crate::config) pods: Option<At<PodsOrRules>>,
    /// Processes for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(in crate::config) processes: Option<At<Processes>>,
    /// The lowest level of `metrics` at which the metrics of the entry are published; `basic` by default.
    pub(in crate::config) level: Option<At<Level>>,
}

/// The processes whose root directories contain a path: those of cgroups, of containers, or one process. Conditions on cgroups and
/// containers must all match.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Within {
    /// The path of a cgroup, below the mount point of the cgroup file system, or a pattern of paths. With a pattern, the file is searched in
    /// every cgroup that matches, also in later ones.
    #[schemars(extend("examples" = ["/system.slice/docker-4f0c….scope", "/kubepods*/**/cri-containerd-*.scope"]))]
    pub(in crate::config) cgroup: Option<At<String>>,
    /// A pattern of the namespace of a pod.
    #[schemars(extend("examples" = ["shop"]))]
    pub(in crate::config) namespace: Option<At<String>>,
    /// A pattern of the name of a pod.
    #[schemars(extend("examples" = ["web-*"]))]
    pub(in crate::config) pod: Option<At<String>>,
    /// A pattern of the name of a container.
    #[schemars(extend("examples" = ["app"]))]
    pub(in crate::config) container: Option<At<String>>,
    /// Labels of a pod, with patterns of their values.
    #[schemars(extend("examples" = [{"app": "web"}]))]
    pub(in crate::config) labels: Option<At<Texts>>,
    /// The process ID.
    #[schemars(range(min = 1, max = PID_MAX))]
    pub(in crate::config) pid: Option<At<u64>>,
}

/// Maximum number of pending `from` events: some 100 MB.
pub(in crate::config) const PENDING_MAX: u64 = 1 << 20;
/// Maximum number of distinct values of one label.
pub(in crate::config) const VALUES_MAX: u64 = 10_000;
