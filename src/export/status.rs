//! What the exporter tells people about itself: the content of the page and of `/api/v1/status`.
//!
//! Plain data, filled by whoever runs the collection. Every text may come from outside (names of commands, of cgroups,
//! of events, the text of a file); the page escapes it and cuts it, JSON escapes it. Fields of JSON are the fields
//! here, times are RFC 3339 in UTC, durations seconds.

mod containers;
mod files;
mod pushes;
#[cfg(test)]
pub(crate) mod tests;
mod threads;

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::clock::Timestamp;
use crate::health::Cause;
pub use containers::{ContainerSource, Containers};
pub use files::{FilesStatus, StuckFile};
pub use pushes::{PushFailure, PushStatus};
pub use threads::{Delay, Stuck, Threads};

/// Everything, as of one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The moment.
    #[serde(serialize_with = "rfc3339")]
    pub now: Timestamp,
    /// When the process started.
    #[serde(serialize_with = "rfc3339")]
    pub started: Timestamp,
    /// The version of the program, with its commit where that is known.
    pub version: String,
    /// The configuration in force.
    pub configuration: Configuration,
    /// The machine.
    pub host: Host,
    /// What is counted, per entry of `counters` and scope, in the order of the file.
    pub counters: Vec<CounterStatus>,
    /// What counts for the entries whose `how` is the switch stream; `None` if there are none.
    pub stream: Option<Stream>,
    /// What looks into the fields of tracepoints and probes, in the order of the file.
    pub traces: Vec<TraceStatus>,
    /// What is told of threads; `None` if nothing is.
    pub threads: Option<Threads>,
    /// What is sampled with its callers.
    pub profiles: Vec<ProfileStatus>,
    /// Who containers are, and who tells.
    pub containers: Containers,
    /// What is pushed, and whether it is taken.
    pub pushes: Vec<PushStatus>,
    /// What could not be opened.
    pub refusals: Vec<Refusal>,
    /// Perf event descriptors.
    pub descriptors: Usage,
    /// Series of each metric.
    pub series: Vec<Series>,
    /// What was measured and lost.
    pub losses: Vec<Loss>,
    /// The last collection; `None` before the first.
    pub collection: Option<Collection>,
    /// What the exporter itself costs.
    pub cost: Cost,
    /// What each part of the exporter holds of `limits.memory`.
    pub memory: Vec<MemoryPart>,
    /// Open descriptors of every kind.
    pub open_descriptors: Vec<DescriptorKind>,
    /// Files of other processes.
    pub files: FilesStatus,
}

/// Where the configuration came from and how the last attempt to load it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Configuration {
    /// The file; `None` = the built-in configuration.
    pub file: Option<String>,
    /// When the configuration in force was loaded.
    #[serde(serialize_with = "rfc3339")]
    pub loaded: Timestamp,
    /// The attempt to reload that failed since then, if one did: the configuration in force is the one before it.
    pub failed_reload: Option<FailedReload>,
}

/// An attempt to reload the configuration that changed nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedReload {
    /// When.
    #[serde(serialize_with = "rfc3339")]
    pub at: Timestamp,
    /// Each problem of the file, with its line.
    pub problems: Vec<String>,
}

/// The machine, as far as it decides what can be measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// `uname -r` and the architecture.
    pub kernel: String,
    /// The CPUs that are online, as the kernel lists them: `0-7,9`.
    pub cpus: String,
    /// `kernel.perf_event_paranoid`; `None` where the kernel has no perf events.
    pub paranoid: Option<i32>,
    /// Effective capabilities that matter here: `CAP_PERFMON`, …
    pub capabilities: Vec<String>,
    /// PMUs by their names in sysfs.
    pub pmus: Vec<String>,
    /// Whether this is a virtual machine: hardware events may be missing or wrong there.
    pub virtual_machine: bool,
    /// Further facts worth a line: the NMI watchdog holds a counter, lockdown is on, …
    pub notes: Vec<String>,
}

/// One entry of `counters` in one scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CounterStatus {
    /// The entry's name in the file.
    pub entry: String,
    /// For whom: `cpu`, `cgroup`, `process`.
    pub scope: String,
    /// How it is done, in a few words: `16 CPUs, own descriptors`, `212 cgroups, switch stream`.
    pub how: String,
    /// Its events.
    pub events: Vec<EventStatus>,
}

/// One event of an entry in one scope. The counts are of open or refused instances: one for each CPU, cgroup or
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventStatus {
    /// The event as perf prints it.
    pub event: String,
    /// Count all the time that they are enabled.
    pub counting: u64,
    /// Share the PMU with other events, so that their counts are scaled.
    pub shared: Option<Shared>,
    /// Are open and never came to the PMU, or stand still where they must not.
    pub stalled: u64,
    /// Could not be opened.
    pub refused: u64,
}

/// Instances of an event that were multiplexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// How many.
    pub count: u64,
    /// The smallest share of the time that one of them ran, in percent.
    pub lowest_percent: u8,
}

/// An entry of `profiles`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileStatus {
    /// Its name.
    pub entry: String,
    /// How it is sampled, in a few words.
    pub what: String,
    /// What writes its samples.
    pub events: Vec<EventStatus>,
    /// So far.
    pub samples: u64,
}

/// One entry of `tracepoints` or `probes` whose records are looked into. Entries that only count hits stand among the
/// counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceStatus {
    /// The entry's name in the file.
    pub entry: String,
    /// `tracepoints` or `probes`.
    pub section: String,
    /// What becomes of its hits: `histogram of size in bytes, by comm, per host`.
    pub what: String,
    /// Its events; the counts are of CPUs.
    pub events: Vec<EventStatus>,
    /// Hits in its series; of a pair, pairs.
    pub hits: u64,
    /// Its series.
    pub series: u64,
    /// What tells how its pairs are found; `None` if it is none.
    pub pairs: Option<Pairs>,
}

/// What came of the events of a pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pairs {
    /// First events that wait for their second.
    pub waiting: u64,
    /// Events that found no partner, by reason, as in `perf_unpaired_events_total`.
    pub unpaired: Vec<Unpaired>,
}

/// Events of a pair that found no partner for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// The reason.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// The switch stream: one group of counters for each CPU, and a record of them at each switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stream {
    /// What it tells apart: `cgroup` or `process`.
    pub granularity: String,
    /// The event at which the kernel writes a record.
    pub leader: String,
    /// On how many CPUs it is open.
    pub cpus: u64,
    /// Perf event descriptors on all of them.
    pub descriptors: u64,
    /// The groups of hardware events on a CPU, as the entries of `counters` that each counts for. Several take turns on the PMU.
    /// Software events have one group more.
    pub groups: Vec<Vec<String>>,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Bytes of all rings, and what they may grow to where they run over.
    pub ring_bytes: Usage,
    /// Records that were read since it was opened.
    pub records: u64,
    /// Records that were not. Their counts are `lost` or `unrecorded` among what is unattributed.
    pub lost: u64,
    /// What the CPUs counted and no series has, by scope.
    pub unattributed: Vec<Unattributed>,
}

/// What the CPUs counted of one event, and no series of a scope has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unattributed {
    /// `cgroup` or `process`.
    pub scope: String,
    /// The event: CPU time, if it is counted.
    pub event: String,
    /// How much of all counts since the counters were opened series do have, in percent.
    pub attributed_percent: f64,
    /// Why the rest is in none, the largest part first.
    pub reasons: Vec<UnattributedPart>,
}

/// What no series has for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnattributedPart {
    /// As in `perf_unattributed_<event>_total`.
    pub reason: String,
    /// How much of all counts.
    pub percent: f64,
}

/// What could not be opened for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// The events, each once.
    pub events: Vec<String>,
    /// One of the places: `cpu 0`, `cgroup /system.slice/a.service on cpu 1`, …
    pub target: String,
    /// In how many places one of the events is refused.
    pub count: u64,
    /// What kind of obstacle it is.
    pub cause: Cause,
    /// What the kernel said and what it means here.
    pub reason: String,
    /// What would help; empty if nothing would.
    pub remedy: String,
}

/// How much of something limited is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// So much.
    pub used: u64,
    /// Of so much; `None` = without a limit of its own.
    pub limit: Option<u64>,
}

/// The series of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Series {
    /// The name, as it is scraped.
    pub metric: String,
    /// How many series it has.
    pub series: u64,
    /// How many targets have none with labels of their own: their counts are in the series `other`.
    pub in_other: u64,
}

/// Measurements that were made and did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// What was lost: `records`, `series`, …
    pub what: String,
    /// Why.
    pub reason: String,
    /// How many since the start.
    pub count: u64,
}

/// The last collection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Collection {
    /// When it ended.
    #[serde(serialize_with = "rfc3339")]
    pub at: Timestamp,
    /// How long it took.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// The longest time until the next.
    #[serde(rename = "interval_seconds", serialize_with = "seconds")]
    pub interval: Duration,
    /// How many series it has.
    pub series: u64,
}

/// What the exporter itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time since the start.
    #[serde(rename = "cpu_seconds", serialize_with = "seconds")]
    pub cpu: Duration,
    /// CPU time of late, in percent of one CPU; `None` in the first second.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

/// One part of the memory budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPart {
    /// The part, as the label `part` of `perf_exporter_memory_bytes` has it.
    pub part: &'static str,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Bytes that it may hold.
    pub limit_bytes: u64,
}

/// Descriptors of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescriptorKind {
    /// `event`, `file`, `socket` or `other`.
    pub kind: &'static str,
    /// How many are open.
    pub open: u64,
}

fn rfc3339<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}", Utc(*time)))
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// Prints a moment as `2026-11-21T08:52:06Z`, and by `{:#}` as `2026-11-21 08:52:06 UTC` for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Utc(pub(super) Timestamp);

impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.0 / 1000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let (between, zone) = if f.alternate() { (" ", " UTC") } else { ("T", "Z") };
        write!(f, "{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{zone}")
    }
}

/// The Gregorian date of a day since the Unix epoch. Years are counted from March, so that the leap day is the last
/// of its year and months repeat every 153 days.
fn civil(days: u64) -> (u64, u64, u64) {
    /// Days from 1 March of year 0 to the epoch.
    const EPOCH: u64 = 719_468;
    let days = days + EPOCH;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}
