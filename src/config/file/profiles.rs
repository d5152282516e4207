//! What may be written under `profiles`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ProcessRule, ProfilePer, Within};
use crate::config::decode::At;
use crate::config::value::{Cpus, List, Period, Size};

/// One entry of `profiles`: samples of what runs or waits, each with the functions that led there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Profile {
    /// What is sampled: one event, as `perf record -e` names it.
    #[schemars(extend("examples" = ["cpu-clock", "cycles", "page-faults", "block:block_rq_issue"]))]
    pub(in crate::config) event: Option<At<String>>,
    /// Instead of `event`: whoever calls a function of the kernel, `[module:]function[+offset]`.
    #[schemars(extend("examples" = ["tcp_sendmsg", "nf_conntrack:nf_conntrack_in"]))]
    pub(in crate::config) kprobe: Option<At<String>>,
    /// Instead of `event`: to whom a function of the kernel returns.
    #[schemars(extend("examples" = ["vfs_read"]))]
    pub(in crate::config) kretprobe: Option<At<String>>,
    /// Instead of `event`: whoever calls a function of a program or library, `/path:function[+offset]`; or an offset in
    /// the file.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc", "/usr/bin/app:0x1234"]))]
    pub(in crate::config) uprobe: Option<At<String>>,
    /// Instead of `event`: to whom a function of a program or library returns.
    #[schemars(extend("examples" = ["/usr/lib/libc.so.6:malloc"]))]
    pub(in crate::config) uretprobe: Option<At<String>>,
    /// Instead of `event`: who passes a marker that was compiled into a program (USDT), `/path:provider:name`.
    #[schemars(extend("examples" = ["/usr/bin/postgres:postgresql:query__start"]))]
    pub(in crate::config) usdt: Option<At<String>>,
    /// Beside `uprobe`, `uretprobe` or `usdt`: in whose files the path is; the host's by default.
    #[serde(rename = "in")]
    pub(in crate::config) within: Option<At<Within>>,
    /// Which hits of a tracepoint to take, in the kernel's filter language.
    #[schemars(extend("examples" = ["bytes > 65536"]))]
    pub(in crate::config) filter: Option<At<String>>,
    /// About how many samples a second each CPU takes while the event happens; 19 by default, but of probes. The kernel
    /// chooses the period, and each sample counts for as much as it stands for.
    #[schemars(range(min = 1, max = FREQUENCY_MAX))]
    pub(in crate::config) frequency: Option<At<u64>>,
    /// Instead of `frequency`: every so many hits are a sample, 1 for each of them, which is what probes have by default. For
    /// clocks it is nanoseconds.
    #[schemars(range(min = 1, max = PERIOD_MAX))]
    pub(in crate::config) period: Option<At<u64>>,
    /// Instead of `event`: where threads wait, off the CPU, for at least so long: 0s to 1h.
    pub(in crate::config) threshold: Option<At<Period>>,
    /// Beside `threshold`: with about how many waits a second on each CPU the stack is recorded; 1000 by default. The
    /// kernel takes a fair part of them, which counts for all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub(in crate::config) limit: Option<At<u64>>,
    /// How the callers within programs are found: `auto`, `fp` or `dwarf`.
    pub(in crate::config) unwind: Option<At<Unwind>>,
    /// How much of a program's stack each sample copies to unwind it by DWARF: 1KiB to 60KiB, a multiple of 8 bytes;
    /// 16KiB by default.
    #[schemars(extend("minimum" = STACK_MIN, "maximum" = STACK_MAX))]
    pub(in crate::config) stack: Option<At<Size>>,
    /// Whether to look up lines of the source, and functions that were inlined; `false` by default. For programs with debug
    /// information, their own or in debug files (`limits.debug_info` bounds it).
    pub(in crate::config) lines: Option<At<bool>>,
    /// Whether to sample what the kernel does as well; `true` by default.
    pub(in crate::config) kernel: Option<At<bool>>,
    /// Whether clocks sample idle CPUs as well; `false` by default.
    pub(in crate::config) idle: Option<At<bool>>,
    /// Only tasks of these cgroups; those of every cgroup by default.
    pub(in crate::config) cgroups: Option<At<SampledCgroups>>,
    /// Only these processes; every process by default.
    pub(in crate::config) processes: Option<At<SampledProcesses>>,
    /// Only these CPUs; every CPU by default.
    pub(in crate::config) cpus: Option<At<Cpus>>,
    /// By which part of the machine `perf_samples_total` tells samples apart; by none by default.
    pub(in crate::config) per: Option<At<ProfilePer>>,
    /// How many functions get a metric of their own: the busiest, 0 to 1000; 50 by default.
    #[schemars(range(max = FUNCTIONS_MAX))]
    pub(in crate::config) functions: Option<At<u64>>,
    /// What the pages show unless they are asked for another time: the last so long, 10s to 10m; 60s by default.
    pub(in crate::config) window: Option<At<Period>>,
}

/// Cgroups whose tasks are sampled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct SampledCgroups {
    /// Patterns of paths; one that matches is enough.
    #[schemars(extend("examples" = [["/kubepods*/**"]]))]
    pub(in crate::config) include: Option<At<List<String>>>,
    /// Patterns of paths to leave out; stronger than `include`.
    pub(in crate::config) exclude: Option<At<List<String>>>,
}

/// Processes that are sampled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct SampledProcesses {
    /// Rules; one that matches is enough.
    #[schemars(extend("examples" = [[{"comm": "postgres"}]]))]
    pub(in crate::config) include: Option<At<List<ProcessRule>>>,
    /// Rules for processes to leave out; stronger than `include`.
    pub(in crate::config) exclude: Option<At<List<ProcessRule>>>,
}

/// How the callers within programs are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Unwind {
    /// By DWARF, and by frame pointers where there is none of it, or the copy of the stack ends.
    Auto,
    /// By frame pointers, which the kernel follows itself: nothing is copied. For programs that were built with them
    /// (`-fno-omit-frame-pointer`, Go) on distributions that have them in their libraries (Fedora 38, Ubuntu 24.04).
    Fp,
    /// By DWARF alone: what compilers leave in `.eh_frame`. Each sample copies a part of the stack.
    Dwarf,
}

/// More samples a second disturb what they look at.
pub(in crate::config) const FREQUENCY_MAX: u64 = 10_000;
/// A sample in some minutes of a busy CPU's cycles.
pub(in crate::config) const PERIOD_MAX: u64 = 1_000_000_000_000;
/// The most stacks of waits a second and CPU: with frame pointers some 50 MB a second.
pub(in crate::config) const LIMIT_MAX: u64 = 100_000;
/// The least that is worth unwinding.
pub(in crate::config) const STACK_MIN: u64 = 1 << 10;
/// A record ends at 64 KiB, and has the registers and the call chain in it as well.
pub(in crate::config) const STACK_MAX: u64 = 60 << 10;
/// The most functions with metrics of their own; each is a series.
pub(in crate::config) const FUNCTIONS_MAX: u64 = 1000;
