//! What may be written in a configuration file. These types are the one description of it: the JSON schema, the
//! names that misspelt ones are compared with, and the editor's help (the comments of the fields) come from here.
//!
//! Everything may be left out. The values that then hold are in `config/examples/default.yaml`.

mod containers;
mod fields;
mod per;
mod profiles;
mod tasks;
mod traced;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use containers::{Containers, Pods};
pub(super) use fields::{Histogram, Labels, Sum};
pub(super) use per::{Per, ProfilePer, TaskPer, TracedPer};
pub(super) use profiles::{
    FREQUENCY_MAX, FUNCTIONS_MAX, LIMIT_MAX, PERIOD_MAX, Profile, STACK_MAX, STACK_MIN, SampledCgroups,
    SampledProcesses, Unwind,
};
pub(super) use tasks::{Scheduler, Syscalls};
pub(super) use traced::{PENDING_MAX, Probe, Tracefs, Tracepoint, VALUES_MAX, Within};

use super::decode::At;
use super::presets;
use super::push::Export;
use super::value::{Address, Entries, Event, List, Percent, Period, Size};
use crate::event::Preset;
use crate::target::{Attribution, GroupBy};

/// A configuration file. What it does not mention keeps its built-in value.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "perf-exporter")]
pub(super) struct File {
    /// Where to serve metrics: address and port. `0.0.0.0` is every IPv4 address of the host, `[::]` every IPv6 one.
    #[schemars(extend("examples" = ["127.0.0.1:7373", "[::]:7373"]))]
    pub(super) listen: Option<At<Address>>,
    /// When the counters are read.
    pub(super) collection: Option<At<Collection>>,
    /// What to count, and for whom. If this is given at all, it replaces the built-in set.
    pub(super) counters: Option<At<Entries<Counters>>>,
    /// Metrics of tracepoints: events that the kernel has, with their fields as labels, sums and histograms.
    pub(super) tracepoints: Option<At<Entries<Tracepoint>>>,
    /// Ready-made entries of `tracepoints`, by name. If this is given at all, it replaces the built-in list; `[]` is none.
    pub(super) presets: Option<At<List<presets::Preset>>>,
    /// Metrics of probes: any function of the kernel or of a program, with its arguments likewise.
    pub(super) probes: Option<At<Entries<Probe>>>,
    /// Samples of what runs or waits, with the functions that led there. If this is given at all, it replaces the built-in
    /// set; `{}` is none.
    pub(super) profiles: Option<At<Entries<Profile>>>,
    /// Who runs, who waits for a CPU, for how long and for whom: `perf sched`, always on. What it does not mention is as in
    /// the built-in configuration; `{per: []}` is none.
    pub(super) scheduler: Option<At<Scheduler>>,
    /// System calls: how often, how long, and how they end: `perf trace -s`, always on. A record is written at the beginning
    /// and at the end of each call that `include` lets pass, about 1 µs together.
    pub(super) syscalls: Option<At<Syscalls>>,
    /// Where tracepoints and probes are found.
    pub(super) tracefs: Option<Tracefs>,
    /// Which cgroups (containers, pods, services) to count for.
    pub(super) cgroups: Option<At<Cgroups>>,
    /// Which processes to count for, and which of them share a series.
    pub(super) processes: Option<At<Processes>>,
    /// Who tells the names of containers and pods. Each cgroup of a container then has the labels `namespace`, `pod` and
    /// `container`.
    pub(super) containers: Option<At<Containers>>,
    /// Where to push what was measured, beside serving it.
    pub(super) export: Option<At<Export>>,
    /// What the exporter may use at most.
    pub(super) limits: Option<Limits>,
}

/// When the counters are read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Collection {
    /// The longest time between two readings, whether somebody scrapes or not: 100ms to 10m. New cgroups and
    /// processes are found at a reading, and the shares of events that take turns on the hardware are updated.
    pub(super) interval: Option<At<Period>>,
    /// How old a reading may be to answer a scrape, so that two scrapers share one; at most `interval`. `0s` reads
    /// anew for each scrape.
    pub(super) freshness: Option<At<Period>>,
}

/// One entry of `counters`: what to count, and for whom.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    /// The events, as `perf stat -e` names them.
    #[schemars(extend("examples" = [
        ["cycles", "instructions"],
        ["{cycles,instructions}:u", "L1-dcache-load-misses", "sched:sched_switch"],
        [{"event": "cpu/event=0x3c,umask=0x1/", "name": "ref_cycles"}],
    ]))]
    pub(super) events: Option<At<List<Event>>>,
    /// One of perf stat's sets, instead of `events`.
    pub(super) preset: Option<At<Preset>>,
    /// `true`: all events form one group, which is on the hardware together or not at all, so that their ratios hold.
    /// `false`: each event by itself, but for those in braces. By default `true`, unless there are braces.
    pub(super) group: Option<At<bool>>,
    /// For whom to count; `cpu` by default.
    pub(super) per: Option<At<List<Per>>>,
    /// Other cgroups than those of the file, for this entry; what is left out is as in the file.
    pub(super) cgroups: Option<At<Cgroups>>,
    /// Other processes than those of the file, for this entry; what is left out is as in the file.
    pub(super) processes: Option<At<Processes>>,
}

/// A selection of cgroups. Paths are relative to the mount point of the cgroup file system: `/system.slice/a.service`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cgroups {
    /// Patterns of paths; one that matches is enough. `*` stops at a slash, `**` does not.
    #[schemars(extend("examples" = [["/kubepods*/**", "/system.slice/*"]]))]
    pub(super) include: Option<At<List<String>>>,
    /// Patterns of paths to leave out; stronger than `include`.
    pub(super) exclude: Option<At<List<String>>>,
    /// How deep below the root a cgroup may lie: 1 to 64; `/system.slice` is 1.
    #[schemars(range(min = 1, max = DEPTH_MAX))]
    pub(super) depth: Option<At<u64>>,
    /// Whether a cgroup's counts include those of the cgroups below it. Sums over cgroups then count twice.
    pub(super) descendants: Option<At<bool>>,
    /// How the counts of cgroups are told apart: `auto`, `stream` or `dedicated`.
    ///
    /// `stream`: CPUs × (events + 2) descriptors, however many cgroups, and a record of about 90 bytes and 8 per event
    /// (about 1 µs) for each switch between cgroups; for each context switch as soon as processes or the root cgroup
    /// `/` are counted by stream. Needs Linux 5.13.
    ///
    /// `dedicated`: cgroups × CPUs × events descriptors, and the PMU is re-programmed at each switch between counted
    /// cgroups.
    pub(super) attribution: Option<At<Attribution>>,
}

/// A selection of processes, and how they become series.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Processes {
    /// Rules; one that matches is enough.
    #[schemars(extend("examples" = [[{"comm": "nginx*"}, {"cgroup": "/system.slice/**", "exe": "/usr/bin/*"}]]))]
    pub(super) include: Option<At<List<ProcessRule>>>,
    /// Rules for processes to leave out; stronger than `include`.
    pub(super) exclude: Option<At<List<ProcessRule>>>,
    /// The labels: processes that agree in all of them share a series.
    pub(super) by: Option<At<List<GroupBy>>>,
    /// How the counts of processes are told apart: `auto`, `stream` or `dedicated`.
    ///
    /// `stream`: CPUs × (events + 2) descriptors, however many processes, and a record of about 90 bytes and 8 per
    /// event (about 1 µs) for each context switch. Sees processes that live shorter than `collection.interval`, too.
    ///
    /// `dedicated`: threads × events descriptors, and the PMU is re-programmed at each switch between counted threads.
    /// Misses processes that come and go between two readings.
    pub(super) attribution: Option<At<Attribution>>,
}

/// A rule for processes. Everything that it gives must hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessRule {
    /// A pattern of the command name, which the kernel cuts off after 15 bytes.
    pub(super) comm: Option<At<String>>,
    /// A pattern of the path of the executable. Kernel threads have none.
    pub(super) exe: Option<At<String>>,
    /// A pattern of the path of the cgroup.
    pub(super) cgroup: Option<At<String>>,
    /// The process id.
    #[schemars(range(min = 1, max = PID_MAX))]
    pub(super) pid: Option<At<u64>>,
    /// Whether it is a thread of the kernel (`kworker/0:1`): `exclude: [{kernel: true}]` leaves those out.
    pub(super) kernel: Option<At<bool>>,
}

/// What the exporter may use at most.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    /// Series per metric; what is over it is added up in one series `other`.
    #[schemars(range(min = 1, max = SERIES_MAX))]
    pub(super) series: Option<At<u64>>,
    /// Names of processes in the labels of one metric, for each cgroup; 100 by default. Of these a fifth may be new each
    /// minute. The processes of a cgroup that has more are aggregated into `other`, so that a process that renames itself
    /// takes no series from other cgroups. Threads of the kernel are not limited.
    #[schemars(range(min = 1, max = SERIES_MAX))]
    pub(super) names_per_cgroup: Option<At<u64>>,
    /// File descriptors for events: one per event and CPU, and with `attribution: dedicated` for every target as well.
    /// By default what the limit of open files (`RLIMIT_NOFILE`) allows, less a reserve.
    #[schemars(range(min = 1, max = DESCRIPTORS_MAX))]
    pub(super) descriptors: Option<At<u64>>,
    /// HTTP requests for status pages and profiles that are answered at the same time: a quarter of them for pages, the
    /// rest for profiles. Scrapes, health checks and connections that wait for a request have 16 places of their own.
    #[schemars(range(min = 1, max = CONNECTIONS_MAX))]
    pub(super) connections: Option<At<u64>>,
    /// Memory for everything that grows, from 8MiB to 1TiB in all: rings, unwind tables, symbols, stacks, series, queues.
    /// Each part has a share of it. By default 64MiB and 2MiB for each CPU; 48MiB less without profiles.
    #[schemars(extend("minimum" = MEMORY_MIN, "maximum" = MEMORY_MAX))]
    pub(super) memory: Option<At<Size>>,
    /// Upper bound for the share of `memory` that rings have, from 256KiB to 16GiB. Rings are what the kernel writes records
    /// to; they are locked in memory, so never swapped out. Larger rings lose fewer records at times of many switches.
    #[schemars(extend("minimum" = RING_MEMORY_MIN, "maximum" = RING_MEMORY_MAX))]
    pub(super) ring_memory: Option<At<Size>>,
    /// Debug information of one file, uncompressed, from 1MiB to 16GiB; 256MiB by default. For profiles with `lines: true`
    /// it is in memory while lines are looked up, one file after another. Files with more have no lines. Of all files
    /// together four times as much is read for one profile.
    #[schemars(extend("minimum" = DEBUG_INFO_MIN, "maximum" = DEBUG_INFO_MAX))]
    pub(super) debug_info: Option<At<Size>>,
    /// The part of the time of all CPUs of the host that the exporter may take: `2%` of 8 CPUs are 160 ms a second. When it
    /// takes more for half a minute, it tells less of the scheduler and of system calls: no processes, then no cgroups, then
    /// only of one in 4 threads, then of one in 16; and more again when load allows. HTTP requests are not part of it. `off`:
    /// whatever it takes.
    pub(super) cpu: Option<At<Percent>>,
}

/// The deepest that cgroups are looked for.
pub(super) const DEPTH_MAX: u64 = 64;
/// The kernel's `PID_MAX_LIMIT` on 64 bits: process ids are below it.
pub(super) const PID_MAX: u64 = (4 << 20) - 1;
/// The most series of one metric; a scrape of more takes seconds.
pub(super) const SERIES_MAX: u64 = 10_000_000;
/// The kernel's ceiling for `fs.nr_open` on 64 bits is higher, its default is 2^20; more are never used in earnest.
pub(super) const DESCRIPTORS_MAX: u64 = 1 << 24;
/// The least and the most debug information of a file: that of a small program, and more than any compiler writes.
pub(super) const DEBUG_INFO_MIN: u64 = 1 << 20;
pub(super) const DEBUG_INFO_MAX: u64 = 16 << 30;
/// The least `limits.memory`; the number of CPUs may require more.
pub(super) const MEMORY_MIN: u64 = 8 << 20;
/// The most `limits.memory`: more than any machine has for this.
pub(super) const MEMORY_MAX: u64 = 1 << 40;
/// The least memory for rings: some thousand records, so that a few CPUs get along.
pub(super) const RING_MEMORY_MIN: u64 = 256 << 10;
/// The most memory for rings: 16 MiB for each of 1024 CPUs, which is many seconds of switches.
pub(super) const RING_MEMORY_MAX: u64 = 16 << 30;
/// More connections than any number of scrapers needs.
pub(super) const CONNECTIONS_MAX: u64 = 10_000;
