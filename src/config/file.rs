//! Types that declare what a configuration file may contain. They are the single source of the JSON schema, of the key names that
//! misspelled keys are compared with, and of the help that editors show (doc comments of the fields).
//!
//! Every key is optional. The default values are in `config/examples/default.yaml`.

mod anomalies;
mod containers;
mod deep;
mod derived;
mod fields;
mod per;
mod pods;
mod profiles;
mod tasks;
mod traced;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use anomalies::{Anomaly, MethodName, Season};
pub(super) use containers::{Containers, Pods};
pub(super) use deep::{Annotation, DEEP_CGROUPS_MAX, Deep, DeepRequest};
pub(super) use derived::Derived;
pub(super) use fields::{Histogram, Labels, Sum};
pub(super) use per::{Per, ProfilePer, TaskPer, TracedPer};
pub(super) use pods::{PodRule, PodsOrRules};
pub(super) use profiles::{
    FREQUENCY_MAX, FUNCTIONS_MAX, LIMIT_MAX, PERIOD_MAX, Profile, STACK_MAX, STACK_MIN, SampledCgroups,
    SampledProcesses, Unwind,
};
pub(super) use tasks::{Scheduler, Syscalls};
pub(super) use traced::{PENDING_MAX, Probe, Tracefs, Tracepoint, VALUES_MAX, Within};

use super::decode::At;
use super::presets;
use super::push::Export;
use super::value::{Address, Entries, Event, FileMode, List, Percent, Period, Size};
use super::web::WrittenWeb;
use crate::event::Preset;
use crate::metrics::Level;
use crate::named_enum::named_enum;
use crate::targets::{Attribution, GroupBy};

/// A configuration file. Keys that it omits keep their built-in values.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "perf-exporter")]
pub(super) struct File {
    /// Addresses and ports of the HTTP server, or unix sockets (`unix:/run/perf-exporter/http.sock`). `0.0.0.0` means all IPv4 addresses
    /// of the host, `[::]` all IPv6 addresses. Clients of a unix socket are clients on this machine. Sockets that systemd passes (socket
    /// activation) replace these addresses.
    #[schemars(extend("examples" = ["127.0.0.1:7373", ["[::]:7373", "unix:/run/perf-exporter/http.sock"]]))]
    pub(super) listen: Option<At<List<Address>>>,
    /// Further addresses, for administrators. Their clients have the rights of clients on this machine: profiles, pages and reloads, if
    /// `web.access` allows them for `loopback`.
    #[schemars(extend("examples" = ["10.0.0.5:7374", "unix:/run/perf-exporter/admin.sock"]))]
    pub(super) admin: Option<At<List<Address>>>,
    /// Permissions of unix sockets, `0660` by default. The owner and the group are those of the exporter.
    #[schemars(extend("examples" = ["0600"]))]
    pub(super) socket_mode: Option<At<FileMode>>,
    /// Access to the HTTP server.
    pub(super) web: Option<WrittenWeb>,
    /// When the counters are read.
    pub(super) collection: Option<At<Collection>>,
    /// The past that the exporter keeps in memory, for its pages.
    pub(super) history: Option<At<History>>,
    /// Figures of each cgroup that are compared with their own past on this node. If present, it replaces the built-in set; `{}` disables it.
    /// It needs a history.
    pub(super) anomalies: Option<At<Entries<Anomaly>>>,
    /// Directory for what was learned of `anomalies`, so that a restart does not begin at nothing. It must exist, and be writable by the user
    /// of the exporter. A file in it has at most 8 MiB. Without a directory nothing is written. Relative paths start at the directory of the
    /// configuration file.
    #[schemars(extend("examples" = ["/var/lib/perf-exporter"]))]
    pub(super) anomalies_directory: Option<At<String>>,
    /// File with usual values of workloads that were computed from a whole fleet: a JSON list of mean and deviation, at most 4 MiB. They take
    /// the place of what is learned on the node. Relative paths start at the directory of the configuration file.
    #[schemars(extend("examples" = ["/etc/perf-exporter/specifications.json"]))]
    pub(super) anomalies_specifications: Option<At<String>>,
    /// Evidence about anomalies, alerts and requests, kept as files.
    pub(super) incidents: Option<At<Incidents>>,
    /// Which metrics scrapes and pushes get. The pages of the exporter and the history always have all of them.
    pub(super) metrics: Option<At<Metrics>>,
    /// Events to count and the targets to count them for. If present, it replaces the built-in set.
    pub(super) counters: Option<At<Entries<Counters>>>,
    /// Metrics that are computed from counts, by name, in addition to the built-in ones. An entry of `counters` counts their events with
    /// `metrics`.
    pub(super) derived: Option<At<Entries<Derived>>>,
    /// Sets of events that are counted for a few cgroups, for a limited time. `POST /api/v1/deep` begins further ones.
    pub(super) deep: Option<At<Entries<Deep>>>,
    /// Metrics of kernel tracepoints, with their fields as labels, sums and histograms.
    pub(super) tracepoints: Option<At<Entries<Tracepoint>>>,
    /// Presets of `tracepoints`, by name. If present, it replaces the built-in list; `[]` disables all presets.
    pub(super) presets: Option<At<List<presets::Preset>>>,
    /// Metrics of probes on any function of the kernel or of a program, with its arguments as labels, sums and histograms.
    pub(super) probes: Option<At<Entries<Probe>>>,
    /// Stack sampling of running or waiting threads. If present, it replaces the built-in set; `{}` disables it.
    pub(super) profiles: Option<At<Entries<Profile>>>,
    /// Scheduler metrics, as a continuous `perf sched`: time on a CPU, run queue latency and preemption. Keys that it omits keep their
    /// built-in values; `{per: []}` disables it.
    pub(super) scheduler: Option<At<Scheduler>>,
    /// System call metrics, as a continuous `perf trace -s`: number, duration and results. The kernel writes one record at the start and
    /// one at the end of each call that `include` selects. Both records together cost about 1 µs.
    pub(super) syscalls: Option<At<Syscalls>>,
    /// Access to tracepoints and probes.
    pub(super) tracefs: Option<Tracefs>,
    /// Cgroups (containers, pods, services) to count for.
    pub(super) cgroups: Option<At<Cgroups>>,
    /// Containers and pods to count for, by their names and labels. Replaces the built-in `cgroups.include`, unless both are given. A container
    /// is selected when its metadata is known: see `containers`.
    pub(super) pods: Option<At<PodsOrRules>>,
    /// Processes to count for, and the labels that group them into series.
    pub(super) processes: Option<At<Processes>>,
    /// Metadata sources of container and pod names. Each cgroup of a container has the labels `namespace`, `pod` and `container`.
    pub(super) containers: Option<At<Containers>>,
    /// Push destinations for the measurements, in addition to scraping.
    pub(super) export: Option<At<Export>>,
    /// Resource limits of the exporter.
    pub(super) limits: Option<Limits>,
}

/// When the counters are read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Collection {
    /// Maximum time between two collections, also without scrapes: 100ms to 10m. At each collection, new cgroups and processes are
    /// discovered and the scaling of multiplexed events is updated.
    pub(super) interval: Option<At<Period>>,
    /// Maximum age of a collection that may answer a scrape, so that two scrapers share one; at most `interval`. `0s` collects for each
    /// scrape.
    pub(super) freshness: Option<At<Period>>,
}

/// The past of the machine, of cgroups and of programs, and how detailed it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    /// How long the past and the samples of profiles are kept: at most 24h. `0s` disables the history; samples are then kept for the windows
    /// of profiles. If the shares of `limits.memory` are full, the least active cgroups and programs and the oldest samples are dropped
    /// earlier.
    #[serde(rename = "for")]
    pub(super) kept: Option<At<Period>>,
    /// Length of a step in the last five minutes, and so the maximum time between two collections: 1s to 10s. Older steps are 10s long.
    pub(super) step: Option<At<Period>>,
}

/// Where the evidence of incidents is kept, and how much of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Incidents {
    /// The directory, an absolute path. The exporter creates it, readable for its user only. Without a directory, no evidence is kept.
    #[schemars(extend("examples" = ["/var/lib/perf-exporter/incidents"]))]
    pub(super) directory: Option<At<String>>,
    /// Maximum number of incidents: 1 to 10000. The oldest ones are removed.
    #[schemars(range(min = 1, max = INCIDENTS_MAX))]
    pub(super) number: Option<At<u64>>,
    /// Maximum size of all incidents together: 1 MiB to 100 GiB. One incident has at most a quarter of it.
    pub(super) size: Option<At<Size>>,
    /// Time after the begin of an incident in which further triggers of the same cgroup are ignored: 0s to 24h.
    pub(super) cooldown: Option<At<Period>>,
    /// Whether to create an event of Kubernetes about each incident: about its pod, or about the node. The service account needs the right to create
    /// events.
    pub(super) kubernetes_events: Option<At<bool>>,
}

/// Which metrics scrapes and pushes get.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    /// How many metrics are published. `basic`: the host, counters of cgroups, entries of the file and the exporter itself. `standard` also:
    /// what the dashboards and alerts need of each cgroup. `full`: everything that is measured. docs/metrics.md has the level of each metric.
    pub(super) level: Option<At<Level>>,
    /// Names or patterns of metrics that are published whole at any level.
    #[schemars(extend("examples" = [["perf_process_*", "perf_cgroup_sched_preempted_by_cgroup_total"]]))]
    pub(super) include: Option<At<List<String>>>,
    /// Names or patterns of metrics that are not published; takes precedence over `include`.
    #[schemars(extend("examples" = [["perf_function_samples_total"]]))]
    pub(super) exclude: Option<At<List<String>>>,
}

/// An entry of `counters`: the events and the targets to count them for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    /// The events, in the syntax of `perf stat -e`.
    #[schemars(extend("examples" = [
        ["cycles", "instructions"],
        ["{cycles,instructions}:u", "L1-dcache-load-misses", "sched:sched_switch"],
        [{"event": "cpu/event=0x3c,umask=0x1/", "name": "ref_cycles"}],
    ]))]
    pub(super) events: Option<At<List<Event>>>,
    /// A `perf stat` event set, instead of `events`.
    pub(super) preset: Option<At<Preset>>,
    /// Metrics or groups of metrics, to count the events that they are computed from: built-in ones (`perf-exporter list metric`), and those of
    /// `derived`. Their events are grouped as the metrics need it. An event that is counted already is not counted again.
    #[schemars(extend("examples" = [["ipc", "branch_mpki"], ["topdown-l1"]]))]
    pub(super) metrics: Option<At<List<String>>>,
    /// `true`: all events form one group, which the kernel schedules as a unit, so that ratios between the events are exact. Events that do
    /// not fit are not counted. `false`: each event is scheduled separately, except events in braces. By default, the events form one group,
    /// or as few groups as fit on the PMU; with braces, the default is `false`.
    pub(super) group: Option<At<bool>>,
    /// `always`: the groups are on the PMU at all times, or have the state `full`. `rotate`, the default: they share the PMU with other
    /// groups if it has too few counters.
    pub(super) priority: Option<At<Priority>>,
    /// Targets to count for; `cpu` by default.
    pub(super) per: Option<At<List<Per>>>,
    /// Cgroups for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(super) cgroups: Option<At<Cgroups>>,
    /// Containers and pods for this entry, in addition to `cgroups.include` of the entry. If it has neither, both are as in the file.
    pub(super) pods: Option<At<PodsOrRules>>,
    /// Processes for this entry, instead of those of the file. Keys that it omits are as in the file.
    pub(super) processes: Option<At<Processes>>,
    /// The lowest level of `metrics` at which the metrics of the entry are published; `basic` by default.
    pub(super) level: Option<At<Level>>,
}

named_enum! {
    /// Priority of an entry of `counters` on the PMU.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum Priority {
        /// Multiplexed with other groups.
        #[default]
        Rotate = "rotate",
        /// Always on the PMU: pinned.
        Always = "always",
    }
}

/// A selection of cgroups. Paths are relative to the mount point of the cgroup file system: `/system.slice/a.service`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cgroups {
    /// Patterns of cgroup paths; one match is enough. `*` matches within a path component, `**` across slashes.
    #[schemars(extend("examples" = [["/kubepods*/**", "/system.slice/*"]]))]
    pub(super) include: Option<At<List<String>>>,
    /// Patterns of cgroup paths to exclude; takes precedence over `include`.
    pub(super) exclude: Option<At<List<String>>>,
    /// Maximum depth of a cgroup below the root: 1 to 64. `/system.slice` has depth 1.
    #[schemars(range(min = 1, max = DEPTH_MAX))]
    pub(super) depth: Option<At<u64>>,
    /// Whether the counts of a cgroup include those of its descendants. If `true`, sums over cgroups count events more than once.
    pub(super) descendants: Option<At<bool>>,
    /// How counts are attributed to cgroups: `auto`, `stream` or `dedicated`.
    ///
    /// `stream`: CPUs × (events + 2) descriptors for any number of cgroups. The kernel writes a record at each switch between cgroups
    /// (about 1 µs; about 90 bytes plus 8 per event). If processes or the root cgroup `/` are also counted by stream, it writes a record at
    /// each context switch. Requires Linux 5.13.
    ///
    /// `dedicated`: cgroups × CPUs × events descriptors. The kernel reprograms the PMU at each switch between counted cgroups.
    pub(super) attribution: Option<At<Attribution>>,
}

/// A selection of processes, and the labels that group them into series.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Processes {
    /// Rules; one match is enough.
    #[schemars(extend("examples" = [[{"comm": "nginx*"}, {"cgroup": "/system.slice/**", "exe": "/usr/bin/*"}]]))]
    pub(super) include: Option<At<List<ProcessRule>>>,
    /// Rules for processes to exclude; takes precedence over `include`.
    pub(super) exclude: Option<At<List<ProcessRule>>>,
    /// The labels. Processes with equal values of all labels share a series.
    pub(super) by: Option<At<List<GroupBy>>>,
    /// How counts are attributed to processes: `auto`, `stream` or `dedicated`.
    ///
    /// `stream`: CPUs × (events + 2) descriptors for any number of processes. The kernel writes a record at each context switch (about 1
    /// µs; about 90 bytes plus 8 per event). Includes processes that live shorter than `collection.interval`.
    ///
    /// `dedicated`: threads × events descriptors. The kernel reprograms the PMU at each switch between counted threads. Misses processes
    /// that start and exit between two collections.
    pub(super) attribution: Option<At<Attribution>>,
}

/// A rule for processes. All conditions that it gives must match.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessRule {
    /// A pattern of the command name, which the kernel truncates to 15 bytes.
    pub(super) comm: Option<At<String>>,
    /// A pattern of the path of the executable. Kernel threads have none.
    pub(super) exe: Option<At<String>>,
    /// A pattern of the path of the cgroup.
    pub(super) cgroup: Option<At<String>>,
    /// The process ID.
    #[schemars(range(min = 1, max = PID_MAX))]
    pub(super) pid: Option<At<u64>>,
    /// Whether the process is a kernel thread (`kworker/0:1`). `exclude: [{kernel: true}]` excludes all kernel threads.
    pub(super) kernel: Option<At<bool>>,
}

/// Resource limits of the exporter.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    /// Maximum number of series per metric. Further series are aggregated into the series `other`.
    #[schemars(range(min = 1, max = SERIES_MAX))]
    pub(super) series: Option<At<u64>>,
    /// Maximum number of process names per cgroup in the labels of one metric; 100 by default. At most a fifth of them may be new each
    /// minute. Further processes of the cgroup are aggregated into `other`, so that processes that rename themselves do not use up the
    /// series of other cgroups. Kernel threads are not limited.
    #[schemars(range(min = 1, max = SERIES_MAX))]
    pub(super) names_per_cgroup: Option<At<u64>>,
    /// Maximum number of event descriptors: one per event and CPU, and with `attribution: dedicated` also one per target. The default is
    /// the limit of open files (`RLIMIT_NOFILE`) less a reserve.
    #[schemars(range(min = 1, max = DESCRIPTORS_MAX))]
    pub(super) descriptors: Option<At<u64>>,
    /// Maximum number of cgroups that one set of `deep` may select; 16 by default. A set that selects more does not begin, or ends.
    #[schemars(range(min = 1, max = DEEP_CGROUPS_MAX))]
    pub(super) deep_cgroups: Option<At<u64>>,
    /// Maximum number of concurrent HTTP requests for status pages and profiles: a quarter for pages, the rest for profiles. Scrapes,
    /// health checks and idle connections have 16 separate slots.
    #[schemars(range(min = 1, max = CONNECTIONS_MAX))]
    pub(super) connections: Option<At<u64>>,
    /// Maximum memory of all growing data, from 8MiB to 1TiB: rings, unwind tables, symbols, stacks, series, queues. Each part has a share
    /// of it. The default is 64MiB plus 2MiB per CPU, or 48MiB less without profiles.
    #[schemars(extend("minimum" = MEMORY_MIN, "maximum" = MEMORY_MAX))]
    pub(super) memory: Option<At<Size>>,
    /// Upper bound of the rings' share of `memory`, from 256KiB to 16GiB. The kernel writes records to rings, which are locked in memory
    /// and never swapped out. With larger rings fewer records are lost when context switches are frequent.
    #[schemars(extend("minimum" = RING_MEMORY_MIN, "maximum" = RING_MEMORY_MAX))]
    pub(super) ring_memory: Option<At<Size>>,
    /// Maximum uncompressed debug information of one file, from 1MiB to 16GiB; 256MiB by default. It is held in memory during line lookup
    /// for profiles with `lines: true`, one file at a time. Lines of files above the limit are not looked up. For one profile, at most four
    /// times the limit is read from all files together.
    #[schemars(extend("minimum" = DEBUG_INFO_MIN, "maximum" = DEBUG_INFO_MAX))]
    pub(super) debug_info: Option<At<Size>>,
    /// Maximum fraction of the time of all CPUs of the host that the exporter may use: `2%` of 8 CPUs is 160 ms per second. Above it for
    /// half a minute, the exporter reduces the detail of scheduler and system call metrics: first without processes, then without cgroups,
    /// then one in 4 threads, then one in 16. Detail is restored when the load allows. HTTP requests are not included. `off` disables the
    /// limit.
    pub(super) cpu: Option<At<Percent>>,
}

/// Maximum depth of the cgroups that are searched.
pub(super) const DEPTH_MAX: u64 = 64;
/// Maximum process ID: the kernel's `PID_MAX_LIMIT` on 64 bits less one.
pub(super) const PID_MAX: u64 = (4 << 20) - 1;
/// Maximum number of series of one metric. A scrape of more takes seconds.
pub(super) const SERIES_MAX: u64 = 10_000_000;
/// Maximum of `limits.descriptors`. The default of `fs.nr_open` is 2^20; its maximum on 64 bits is higher than this bound.
pub(super) const DESCRIPTORS_MAX: u64 = 1 << 24;
/// Bounds of `limits.debug_info`: the debug information of a small program, and more than any compiler writes.
pub(super) const DEBUG_INFO_MIN: u64 = 1 << 20;
pub(super) const DEBUG_INFO_MAX: u64 = 16 << 30;
/// Minimum of `limits.memory`; the number of CPUs may require more.
pub(super) const MEMORY_MIN: u64 = 8 << 20;
/// Maximum of `limits.memory`, above the needs of any machine.
pub(super) const MEMORY_MAX: u64 = 1 << 40;
/// Minimum memory of rings: some thousand records, enough for a few CPUs.
pub(super) const RING_MEMORY_MIN: u64 = 256 << 10;
/// Maximum memory of rings: 16 MiB for each of 1024 CPUs, which holds many seconds of context switches.
pub(super) const RING_MEMORY_MAX: u64 = 16 << 30;
/// Maximum of `incidents.number`: a list of more takes seconds.
pub(super) const INCIDENTS_MAX: u64 = 10_000;
/// Bounds of `incidents.size`: one report, and more than the memory of a machine.
pub(super) const INCIDENTS_SIZE_MIN: u64 = 1 << 20;
pub(super) const INCIDENTS_SIZE_MAX: u64 = 100 << 30;
/// Maximum of `limits.connections`, above the needs of any number of scrapers.
pub(super) const CONNECTIONS_MAX: u64 = 10_000;
