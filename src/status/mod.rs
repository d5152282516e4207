//! Status of the exporter: the content of the status page and of `/api/v1/status`.
//!
//! Plain data, filled by the collection. Every text may be untrusted input (names of commands, cgroups and events, text of a file). The
//! page escapes and truncates texts, JSON escapes them. JSON fields are the fields of these types, times are RFC 3339 in UTC, durations are
//! in seconds.

pub(crate) mod counters;
pub(crate) mod profiles;
mod pushes;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod threads;
pub(crate) mod traces;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::budget::PartState;
use crate::clock::Timestamp;
use crate::container;
use crate::deep::DeepReport;
use crate::event::Catalog;
use crate::files;
use crate::health::SameReason;
use crate::host::{Capabilities, Facts};
use crate::ring::{Losses, Records};
use crate::sys::OpenDescriptors;
use crate::targets::{SkippedTargets, Watch};

pub use counters::{CounterStatus, EventStatus, Shared, Stream, Unattributed, UnattributedPart};
pub use profiles::ProfileStatus;
pub use pushes::{PushFailure, PushStatus};
pub use threads::{Delay, Stuck, Threads};
pub use traces::{Pairs, TraceStatus, Unpaired};

/// Complete status at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Time of the status.
    pub now: Timestamp,
    /// Start time of the process.
    pub started: Timestamp,
    /// Version of the program, with its commit if known.
    pub version: String,
    /// The active configuration.
    pub configuration: Configuration,
    /// The machine.
    pub host: Host,
    /// Counters by entry of `counters` and scope, in the order of the file.
    pub counters: Vec<CounterStatus>,
    /// The switch stream, for entries whose `how` is the switch stream; `None` if there are none.
    pub stream: Option<Stream>,
    /// Sets of events that are counted for a few cgroups, for a limited time.
    pub deep: DeepReport,
    /// Tracepoints and probes with decoded fields, in the order of the file.
    pub traces: Vec<TraceStatus>,
    /// Threads with the longest waits; `None` if threads are not traced.
    pub threads: Option<Threads>,
    /// Sampled profiles.
    pub profiles: Vec<ProfileStatus>,
    /// Containers and their metadata sources.
    pub containers: container::Account,
    /// Push exports and their state.
    pub pushes: Vec<PushStatus>,
    /// Events that could not be opened.
    pub refusals: Vec<SameReason>,
    /// Perf event descriptors.
    pub descriptors: Usage,
    /// Number of series of each metric.
    pub series: Vec<Series>,
    /// Measurements that were lost.
    pub losses: Vec<Loss>,
    /// The last collection; `None` before the first.
    pub collection: Option<Collection>,
    /// Resource usage of the exporter.
    pub cost: Cost,
    /// Memory usage of each part of the exporter within `limits.memory`.
    pub memory: Vec<PartState>,
    /// Open descriptors of every kind.
    pub open_descriptors: OpenDescriptors,
    /// Access to files of other processes.
    pub files: files::Report,
}

/// Origin of the configuration and result of the last attempt to load it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Configuration {
    /// Path of the file; `None` for the built-in configuration.
    #[serde(serialize_with = "shown")]
    pub file: Option<PathBuf>,
    /// Time at which the active configuration was loaded.
    pub loaded: Timestamp,
    /// The last reload, if it failed. The active configuration is then the one loaded before it.
    pub failed_reload: Option<FailedReload>,
}

/// A failed reload of the configuration, which had no effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedReload {
    /// Time of the reload.
    pub at: Timestamp,
    /// All problems of the file, with line numbers.
    pub problems: Vec<String>,
}

/// Properties of the machine that determine what can be measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// Output of `uname -r`, and the architecture.
    pub kernel: String,
    /// Online CPUs in the kernel's list format: `0-7,9`.
    pub cpus: String,
    /// Value of `kernel.perf_event_paranoid`; `None` if the kernel does not support perf events.
    pub paranoid: Option<i32>,
    /// Relevant effective capabilities: `CAP_PERFMON`, …
    pub capabilities: Vec<String>,
    /// Names of the PMUs in sysfs.
    pub pmus: Vec<String>,
    /// Whether this is a virtual machine, where hardware events may be missing or wrong.
    pub virtual_machine: bool,
    /// Further relevant facts: the NMI watchdog uses a counter, lockdown is on, …
    pub notes: Vec<String>,
}

/// Usage of a limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Amount in use.
    pub used: u64,
    /// Limit; `None` if there is no separate limit.
    pub limit: Option<u64>,
}

/// Series of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Series {
    /// Exposed name of the metric.
    pub metric: String,
    /// Number of its series.
    pub series: u64,
    /// Number of targets without a series of their own: their counts are aggregated into the series `other`.
    pub in_other: u64,
}

/// Measurements that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Kind of lost data: `records`, `series`, …
    pub what: &'static str,
    /// Reason of the loss.
    pub reason: &'static str,
    /// Number of losses since the start.
    pub count: u64,
}

/// The last collection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Collection {
    /// End time.
    pub at: Timestamp,
    /// Duration.
    #[serde(rename = "duration_seconds", with = "crate::clock::seconds")]
    pub duration: Duration,
    /// Maximum time until the next collection.
    #[serde(rename = "interval_seconds", with = "crate::clock::seconds")]
    pub interval: Duration,
    /// Number of series.
    pub series: u64,
}

/// Resource usage of the exporter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time since the start.
    #[serde(rename = "cpu_seconds", with = "crate::clock::seconds")]
    pub cpu: Duration,
    /// CPU usage over the last interval of at least one second, in percent of one CPU; `None` in the first second.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

impl Host {
    /// Describes the machine, with additional `notes`.
    pub(crate) fn of(facts: &Facts, catalog: &Catalog, watch: &Watch, notes: Vec<String>) -> Self {
        let known = [
            ("CAP_PERFMON", Capabilities::PERFMON),
            ("CAP_SYS_ADMIN", Capabilities::SYS_ADMIN),
            ("CAP_SYS_PTRACE", Capabilities::SYS_PTRACE),
            ("CAP_DAC_READ_SEARCH", Capabilities::DAC_READ_SEARCH),
            ("CAP_IPC_LOCK", Capabilities::IPC_LOCK),
        ];
        let mut all: Vec<String> = watch.problems().collect();
        all.extend(catalog.problems().iter().map(ToString::to_string));
        if facts.nmi_watchdog && catalog.has_core_pmu() {
            all.push("the NMI watchdog uses one hardware counter on every CPU".into());
        }
        if let Some(mode) = &facts.lockdown {
            all.push(format!("kernel lockdown is in {mode} mode"));
        }
        all.extend(notes);
        let held = known.into_iter().filter(|&(_, number)| facts.capabilities.has(number));
        Self {
            kernel: format!("{} {}", facts.kernel, std::env::consts::ARCH),
            cpus: watch.online().to_string(),
            paranoid: facts.paranoid,
            capabilities: held.map(|(name, _)| name.into()).collect(),
            pmus: catalog.pmus().map(str::to_owned).collect(),
            virtual_machine: facts.virtual_machine,
            notes: all,
        }
    }
}

impl Loss {
    /// Creates a loss of `count` units of `what`.
    pub(crate) fn new(what: &'static str, reason: &'static str, count: usize) -> Self {
        Self { what, reason, count: count as u64 }
    }

    /// Returns the losses of rings for one kind of records.
    pub(crate) fn of_rings(records: Records, losses: Losses) -> impl Iterator<Item = Self> {
        let reasons = losses.reasons(records).into_iter();
        reasons.map(move |(reason, count)| Self { what: records.plural(), reason, count })
    }

    /// Returns the cgroups and processes that are omitted from the selection.
    pub(crate) fn of_targets(watch: &Watch) -> Vec<Self> {
        let (cgroups, processes) = watch.left_out();
        let reasons = |(what, left_out): (&'static str, SkippedTargets)| {
            [
                ("above the limit", left_out.too_many),
                ("too deep below the root", left_out.too_deep),
                ("permission denied", left_out.forbidden),
                ("unreadable", left_out.broken),
                ("ambiguous names", left_out.ambiguous),
            ]
            .map(|(reason, count)| Self::new(what, reason, count))
        };
        [("cgroups", cgroups), ("processes", processes)].into_iter().flat_map(reasons).collect()
    }
}

fn shown<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}
