//! What the exporter tells people about itself: the content of the page and of `/api/v1/status`.
//!
//! Plain data, filled by whoever runs the collection. Every text may come from outside (names of commands, of cgroups,
//! of events, the text of a file); the page escapes it and cuts it, JSON escapes it. Fields of JSON are the fields
//! here, times are RFC 3339 in UTC, durations seconds.

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
use crate::event::Catalog;
use crate::files;
use crate::health::SameReason;
use crate::host::{Capabilities, Facts};
use crate::ring::{Losses, Records};
use crate::sys::OpenDescriptors;
use crate::target::{LeftOut, Watch};

pub use counters::{CounterStatus, EventStatus, Shared, Stream, Unattributed, UnattributedPart};
pub use profiles::ProfileStatus;
pub use pushes::{PushFailure, PushStatus};
pub use threads::{Delay, Stuck, Threads};
pub use traces::{Pairs, TraceStatus, Unpaired};

/// Everything, as of one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The moment.
    pub now: Timestamp,
    /// When the process started.
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
    pub containers: container::Account,
    /// What is pushed, and whether it is taken.
    pub pushes: Vec<PushStatus>,
    /// What could not be opened.
    pub refusals: Vec<SameReason>,
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
    pub memory: Vec<PartState>,
    /// Open descriptors of every kind.
    pub open_descriptors: OpenDescriptors,
    /// Files of other processes.
    pub files: files::Report,
}

/// Where the configuration came from and how the last attempt to load it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Configuration {
    /// The file; `None` = the built-in configuration.
    #[serde(serialize_with = "shown")]
    pub file: Option<PathBuf>,
    /// When the configuration in force was loaded.
    pub loaded: Timestamp,
    /// The attempt to reload that failed since then, if one did: the configuration in force is the one before it.
    pub failed_reload: Option<FailedReload>,
}

/// An attempt to reload the configuration that changed nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedReload {
    /// When.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// What was lost: `records`, `series`, …
    pub what: &'static str,
    /// Why.
    pub reason: &'static str,
    /// How many since the start.
    pub count: u64,
}

/// The last collection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Collection {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    #[serde(rename = "duration_seconds", with = "crate::clock::seconds")]
    pub duration: Duration,
    /// The longest time until the next.
    #[serde(rename = "interval_seconds", with = "crate::clock::seconds")]
    pub interval: Duration,
    /// How many series it has.
    pub series: u64,
}

/// What the exporter itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time since the start.
    #[serde(rename = "cpu_seconds", with = "crate::clock::seconds")]
    pub cpu: Duration,
    /// CPU time of late, in percent of one CPU; `None` in the first second.
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

impl Host {
    /// The machine, with further `notes`.
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
            all.push("the NMI watchdog holds one hardware counter on every CPU".into());
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
    /// `count` of `what`.
    pub(crate) fn new(what: &'static str, reason: &'static str, count: usize) -> Self {
        Self { what, reason, count: count as u64 }
    }

    /// What rings with records of a kind lost.
    pub(crate) fn of_rings(records: Records, losses: Losses) -> impl Iterator<Item = Self> {
        let reasons = losses.reasons(records).into_iter();
        reasons.map(move |(reason, count)| Self { what: records.plural(), reason, count })
    }

    /// Cgroups and processes that are not followed.
    pub(crate) fn of_targets(watch: &Watch) -> Vec<Self> {
        let (cgroups, processes) = watch.left_out();
        let reasons = |(what, left_out): (&'static str, LeftOut)| {
            [
                ("more than are followed", left_out.too_many),
                ("too deep below the root", left_out.too_deep),
                ("may not be looked at", left_out.forbidden),
                ("cannot be read", left_out.broken),
                ("names that cannot be told apart", left_out.ambiguous),
            ]
            .map(|(reason, count)| Self::new(what, reason, count))
        };
        [("cgroups", cgroups), ("processes", processes)].into_iter().flat_map(reasons).collect()
    }
}

fn shown<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}
