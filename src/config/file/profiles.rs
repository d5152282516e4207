//! Keys of `profiles`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{PodsOrRules, ProcessRule, ProfilePer, Within};
use crate::config::decode::At;
use crate::config::value::{Cpus, List, Period, Size};

/// An entry of `profiles`: samples of running or waiting threads with their call stacks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Profile {
    /// The event to sample, in the syntax of `perf record -e`.
    #[schemars(extend("examples" = ["cpu-clock", "cycles", "page-faults", "block:block_rq_issue"]))]
    pub(in crate::config) event: Option<At<String>>,
    /// Instead of `event`: calls of a kernel function, `[module:]function[+offset]`.
    #[schemars(extend("examples" = ["tcp_sendmsg", "nf_conntrack:nf_conntrack_in"]))]
    pub(in crate::config) kprobe: Option<At<String>>,
    /// Instead of `event`: returns of a kernel function.
    #[schemars(extend("examples" = ["vfs_read"]))]
    pub(in crate::config) kretprobe: Option<At<String>>,
    /// Instead of `event`: calls of a function of a program or library, `/path:function[+offset]`; or an offset in the file.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc", "/usr/bin/app:0x1234"]))]
    pub(in crate::config) uprobe: Option<At<String>>,
    /// Instead of `event`: returns of a function of a program or library.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc"]))]
    pub(in crate::config) uretprobe: Option<At<String>>,
    /// Instead of `event`: hits of a USDT probe in a program, `/path:provider:name`.
    #[schemars(extend("examples" = ["/usr/bin/postgres:postgresql:query__start"]))]
    pub(in crate::config) usdt: Option<At<String>>,
    /// With `uprobe`, `uretprobe` or `usdt`: the root directory for the path; that of the exporter by default.
    #[serde(rename = "in")]
    pub(in crate::config) within: Option<At<Within>>,
    /// Filter of tracepoint hits, in the kernel's filter language.
    #[schemars(extend("examples" = ["bytes > 65536"]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// Approximate number of samples per second on each CPU while the event occurs; 19 by default, except for probes. The kernel adjusts
    /// the period, and each sample is weighted with its period.
    #[schemars(range(min = 1, max = FREQUENCY_MAX))]
    pub(in crate::config) frequency: Option<At<u64>>,
    /// Instead of `frequency`: one in N hits is sampled. 1 samples each hit and is the default of probes. For clocks, the unit is
    /// nanoseconds.
    #[schemars(range(min = 1, max = PERIOD_MAX))]
    pub(in crate::config) period: Option<At<u64>>,
    /// Instead of `event`: stacks of threads that wait off the CPU for at least this time: 0s to 1h.
    pub(in crate::config) threshold: Option<At<Period>>,
    /// With `threshold`: approximate maximum number of recorded stacks per second on each CPU; 1000 by default. Above it, the kernel
    /// samples the waits uniformly, and each sample is weighted accordingly.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub(in crate::config) limit: Option<At<u64>>,
    /// How user stacks are unwound: `auto`, `fp` or `dwarf`.
    pub(in crate::config) unwind: Option<At<Unwind>>,
    /// Size of the user stack that each sample copies for DWARF unwinding: 1KiB to 60KiB, a multiple of 8 bytes; 16KiB by default.
    #[schemars(extend("minimum" = STACK_MIN, "maximum" = STACK_MAX))]
    pub(in crate::config) stack: Option<At<Size>>,
    /// Whether to look up source lines and inlined functions; `false` by default. Requires debug information in the program or in separate
    /// debug files, within `limits.debug_info`.
    pub(in crate::config) lines: Option<At<bool>>,
    /// Whether to include kernel samples; `true` by default.
    pub(in crate::config) kernel: Option<At<bool>>,
    /// Whether clock events sample idle CPUs; `false` by default.
    pub(in crate::config) idle: Option<At<bool>>,
    /// Cgroups whose tasks are sampled; all cgroups by default.
    pub(in crate::config) cgroups: Option<At<SampledCgroups>>,
    /// Containers and pods whose tasks are sampled, in addition to `cgroups.include`; all cgroups if neither is given.
    pub(in crate::config) pods: Option<At<PodsOrRules>>,
    /// Processes that are sampled; all processes by default.
    pub(in crate::config) processes: Option<At<SampledProcesses>>,
    /// CPUs that are sampled; all CPUs by default.
    pub(in crate::config) cpus: Option<At<Cpus>>,
    /// Additional label of `perf_samples_total` for the CPU or NUMA node; none by default.
    pub(in crate::config) per: Option<At<ProfilePer>>,
    /// Maximum number of functions with their own metric, the busiest first: 0 to 1000; 50 by default.
    #[schemars(range(max = FUNCTIONS_MAX))]
    pub(in crate::config) functions: Option<At<u64>>,
    /// Time range of the pages, up to now, if no range is requested: 10s to 10m; 60s by default.
    pub(in crate::config) window: Option<At<Period>>,
}

/// A selection of cgroups whose tasks are sampled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct SampledCgroups {
    /// Patterns of cgroup paths; one match is enough.
    #[schemars(extend("examples" = [["/kubepods*/**"]]))]
    pub(in crate::config) include: Option<At<List<String>>>,
    /// Patterns of cgroup paths to exclude; takes precedence over `include`.
    pub(in crate::config) exclude: Option<At<List<String>>>,
}

/// A selection of processes that are sampled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct SampledProcesses {
    /// Rules; one match is enough.
    #[schemars(extend("examples" = [[{"comm": "postgres"}]]))]
    pub(in crate::config) include: Option<At<List<ProcessRule>>>,
    /// Rules for processes to exclude; takes precedence over `include`.
    pub(in crate::config) exclude: Option<At<List<ProcessRule>>>,
}

/// How user stacks are unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Unwind {
    /// DWARF; frame pointers where DWARF data is missing or the copied stack ends.
    Auto,
    /// Frame pointers, which the kernel follows without copying the stack. Requires programs built with them (`-fno-omit-frame-pointer`,
    /// Go) on distributions whose libraries have them (Fedora 38, Ubuntu 24.04).
    Fp,
    /// DWARF only: the unwind data that compilers write to `.eh_frame`. Each sample copies a part of the stack.
    Dwarf,
}

/// Maximum samples per second. More would disturb the measured workload.
pub(in crate::config) const FREQUENCY_MAX: u64 = 10_000;
/// Maximum period: one sample in some minutes of a busy CPU's cycles.
pub(in crate::config) const PERIOD_MAX: u64 = 1_000_000_000_000;
/// Maximum stacks of waits per second and CPU: with frame pointers some 50 MB per second.
pub(in crate::config) const LIMIT_MAX: u64 = 100_000;
/// Minimum size of a copied stack that is worth unwinding.
pub(in crate::config) const STACK_MIN: u64 = 1 << 10;
/// Maximum size of a copied stack. A record is limited to 64 KiB and also contains the registers and the call chain.
pub(in crate::config) const STACK_MAX: u64 = 60 << 10;
/// Maximum number of functions with their own metric; each is a series.
pub(in crate::config) const FUNCTIONS_MAX: u64 = 1000;
