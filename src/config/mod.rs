//! The configuration file and its checked form. `file` declares what a file may contain; [`Config`] is the complete result. [`load`]
//! reports all problems of a file at once, each with its position and a correction.
//!
//! ```text
//! text ──yaml──► Node ──decode──► file::File ──check──► Config
//!                  └───────────── report ──────────────► Problem
//! ```

mod anomalies;
mod bounds;
mod check;
pub mod containers;
mod counters;
mod decode;
mod deep;
mod derived;
mod file;
mod incidents;
mod listen;
mod load;
mod locations;
mod memory;
mod metric_word;
mod metrics;
mod patterns;
mod per;
mod pod_rules;
mod pods;
mod presets;
mod problem;
pub mod profiled;
pub mod push;
mod report;
mod schema;
mod selection;
mod tasks;
pub mod traced;
mod value;
pub mod web;
mod yaml;

#[cfg(test)]
mod tests;

pub use counters::{metric_of, metrics_of_cgroups};
pub use deep::{ANNOTATED, DeepEvents, DeepRequest, DeepSet, REQUESTED, load_deep};
pub use derived::{Derived, MetricUse};
pub use incidents::Incidents;
pub use load::{
    DEADLINE, LoadError, Loaded, Loader, OpenedWeb, Pending, load_file, load_valid, open_web, read_web,
};
pub use locations::{Location, Locations, Word};
pub use memory::TooLittle;
pub use metrics::Metrics;
pub use presets::Preset;
pub use problem::{Problem, Problems, Severity};
pub use profiled::Profiled;
pub use schema::schema;
pub use tasks::{Scheduler, Syscalls};
pub use traced::Traced;
pub use web::Web;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::anomaly;
use crate::event::syntax::Group;
use crate::metrics::Level;
use crate::net::listen::Listen;
use crate::targets::Targets;
use file::File;
use report::Report;
use selection::Selections;
use yaml::{Source, Value};

/// Built-in configuration: every setting that has a default, with its default.
pub const BUILT_IN: &str = include_str!("../../config/examples/default.yaml");

/// Parses and checks a configuration file of at most 1 MiB. `file` is the file name used in problems. Settings that the text omits are
/// as in [`BUILT_IN`].
///
/// The problems returned with a configuration are warnings.
///
/// # Errors
/// All problems of the file, ordered by line. After 50 problems, the last one contains the number of omitted problems.
pub fn load(text: &[u8], file: &str) -> Result<(Config, Vec<Problem>), Problems> {
    let (config, problems) = load_all(text, file);
    let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
    match config {
        Some(config) if !broken => Ok((config, problems)),
        _ => Err(Problems(problems)),
    }
}

/// Maximum number of syntax errors that are reported. Each costs another parse of the text.
const SYNTAX_ERRORS: usize = 10;

/// Parses and checks the valid parts of a file. Returns all problems of the file, as [`load`] does, and the settings without the parts that
/// have problems; `None` if there are none.
///
/// A syntax error hides the rest of its entry or section, but no other part of the file.
fn load_all(text: &[u8], file: &str) -> (Option<Config>, Vec<Problem>) {
    let (built_in, selections) = built_in();
    let mut faults = Vec::new();
    let mut rest = Cow::Borrowed(text);
    loop {
        let fault = match Source::parse(&rest, file) {
            Ok(source) => {
                let mut report = Report::new(&source);
                let read = read(&source, &built_in, &selections, &mut report);
                let mut problems = report.finish();
                if !faults.is_empty() {
                    // A warning may be the consequence of a removed block.
                    problems.retain(|problem| problem.severity == Severity::Error);
                    problems.append(&mut faults);
                    problems.sort_by_key(|problem| (problem.line, problem.column));
                }
                let locations = Some(Arc::new(Locations::new(file, &rest)));
                return (read.map(|(config, _)| Config { locations, ..config }), problems);
            }
            Err(fault) => fault,
        };
        let remaining = yaml::without_block(&rest, fault.line, &fault.message);
        let remaining =
            remaining.filter(|_| faults.len() + 1 < SYNTAX_ERRORS && !yaml::is_limit(&fault.message));
        if faults.is_empty() || !yaml::is_consequence(&fault.message) {
            faults.push(fault);
        }
        match remaining {
            Some(remaining) => rest = Cow::Owned(remaining),
            None => return (None, faults),
        }
    }
}

/// Parses and checks a web configuration file of at most 1 MiB: the keys of the section `web`. Settings that it omits are as in `base`.
/// `file` is the path of the file: relative paths start at its directory.
///
/// The problems returned with the settings are warnings.
///
/// # Errors
/// All problems of the file, as [`load`] returns them.
pub fn load_web(text: &[u8], file: &str, base: &Web) -> Result<(Web, Vec<Problem>), Problems> {
    let source = Source::parse(text, file).map_err(|problem| Problems(vec![problem]))?;
    let mut report = Report::new(&source);
    let written = match source.root().value {
        Value::Null => Some(web::WrittenWeb::default()),
        _ => decode::decode(source.root(), &mut report),
    };
    let checked = written.map(|written| web::web(Some(&written), base, &mut report));
    finished(checked, report)
}

/// Returns what was checked with its warnings, or all problems if one is an error.
fn finished<T>(checked: Option<T>, report: Report<'_>) -> Result<(T, Vec<Problem>), Problems> {
    let problems = report.finish();
    let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
    match checked {
        Some(checked) if !broken => Ok((checked, problems)),
        _ => Err(Problems(problems)),
    }
}

/// Returns the configuration of a file merged over `base`, and the selections that its entries inherit.
fn read(
    source: &Source<'_>,
    base: &Config,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<(Config, Selections)> {
    let root = source.root();
    let file = match root.value {
        Value::Null => {
            report.warning(root.id, "the file is empty; the built-in configuration is used", None);
            File::default()
        }
        _ => decode::decode(root, report)?,
    };
    Some(check::check(&file, base, selections, report))
}

/// Parses [`BUILT_IN`] without a base. A test checks that it has no problems and sets every setting.
fn built_in() -> (Config, Selections) {
    let nothing = Config {
        listen: Listen { all: Vec::new(), admin: Vec::new(), socket_mode: 0 },
        web: Web::default(),
        collection: Collection::default(),
        history: History::default(),
        anomalies: anomaly::Settings::default(),
        incidents: Arc::default(),
        metrics: Arc::default(),
        counters: Vec::new(),
        deep: Vec::new(),
        traced: Vec::new(),
        profiles: Vec::new(),
        profile_cpus: false,
        scheduler: None,
        syscalls: None,
        mount_tracefs: false,
        containers: containers::Containers::default(),
        push: push::Push::default(),
        limits: Limits::default(),
        locations: None,
    };
    let read = Source::parse(BUILT_IN.as_bytes(), "built-in")
        .ok()
        .and_then(|source| read(&source, &nothing, &Selections::default(), &mut Report::new(&source)));
    read.unwrap_or_else(|| (nothing, Selections::default()))
}

impl Default for Config {
    /// The built-in configuration.
    fn default() -> Self {
        built_in().0
    }
}

/// Complete and consistent configuration, as the program uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sockets of the HTTP server.
    pub listen: Listen,
    /// Access to the HTTP server.
    pub web: Web,
    /// Timing of collections.
    pub collection: Collection,
    /// The past that is kept in memory.
    pub history: History,
    /// Figures that are compared with their past.
    pub anomalies: anomaly::Settings,
    /// Where the evidence of incidents is kept.
    pub incidents: Arc<Incidents>,
    /// Which metrics are published.
    pub metrics: Arc<Metrics>,
    /// Entries of `counters`, in the order of the file.
    pub counters: Vec<Counters>,
    /// Entries of `deep`, in the order of the file.
    pub deep: Vec<DeepSet>,
    /// Metrics of tracepoints and probes: the entries of `tracepoints`, then of `probes`, then of `presets`, each in the order of the file.
    pub traced: Vec<Traced>,
    /// Entries of `profiles`, in the order of the file.
    pub profiles: Vec<Profiled>,
    /// Whether pushed profiles have the CPU of each sample.
    pub profile_cpus: bool,
    /// Scheduler metrics; `None` = disabled.
    pub scheduler: Option<Scheduler>,
    /// System call metrics; `None` = disabled.
    pub syscalls: Option<Syscalls>,
    /// Whether to mount tracefs if it is not mounted.
    pub mount_tracefs: bool,
    /// Metadata sources of container and pod names.
    pub containers: containers::Containers,
    /// Push destinations. Environment variables apply to sections that the file omits.
    pub push: push::Push,
    /// Resource limits.
    pub limits: Limits,
    /// Text of the file, to show the position of what this host does not have; `None` = the built-in configuration.
    pub locations: Option<Arc<Locations>>,
}

impl Config {
    /// Returns the maximum time between two collections: a history needs one in each step.
    pub fn interval(&self) -> Duration {
        let Self { collection: Collection { interval, .. }, history, .. } = self;
        if history.is_kept() { history.step.min(*interval) } else { *interval }
    }
}

/// Timing of collections. One collection serves every reader whose request arrives within `freshness` of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collection {
    /// Maximum time between two collections, also without scrapes. Scaling of multiplexed counters and discovery of new cgroups and
    /// processes depend on it.
    pub interval: Duration,
    /// Maximum age of a collection that may answer a scrape.
    pub freshness: Duration,
}

/// The past that is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// How long it is kept; zero = not at all.
    pub kept: Duration,
    /// Length of a step in the last five minutes, and so the maximum time between two collections.
    pub step: Duration,
}

impl History {
    /// Reports whether a history is kept.
    pub fn is_kept(&self) -> bool {
        !self.kept.is_zero()
    }
}

/// Resource limits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Maximum number of series per metric; further series are aggregated into the series `other`.
    pub series: usize,
    /// Maximum number of process names per cgroup in the labels of a metric; at most a fifth of them may be new each minute.
    pub names_per_cgroup: usize,
    /// Maximum number of event descriptors; `None` = `RLIMIT_NOFILE` less a reserve.
    pub descriptors: Option<usize>,
    /// Maximum number of cgroups that one set of `deep` may select.
    pub deep_cgroups: usize,
    /// Maximum number of concurrent HTTP requests for pages and profiles.
    pub connections: usize,
    /// Maximum memory of all growing data, in bytes; `None` = [`Demand::default_limit`](crate::budget::Demand::default_limit).
    pub memory: Option<u64>,
    /// Upper bound of the rings' share of `memory`, in bytes; `None` = the share itself.
    pub ring_memory: Option<u64>,
    /// Maximum uncompressed debug information of one file for line lookup, in bytes.
    pub debug_info: u64,
    /// Maximum fraction of the time of all CPUs that the program may use, above 0 and at most 1; `None` = unlimited.
    pub cpu: Option<f64>,
}

/// Entry of `counters`: events and targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    /// Name of the entry in the file.
    pub name: Arc<str>,
    /// Event groups; the events of a group are scheduled together.
    pub groups: Vec<Group>,
    /// Metrics. Their events are counted in addition.
    pub metrics: Vec<MetricUse>,
    /// Targets, without duplicates.
    pub per: Vec<Targets>,
    /// Lowest level at which the metrics are published.
    pub level: Level,
    /// How the groups share the PMU.
    pub sharing: PmuSharing,
}

/// How the groups of an entry share the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PmuSharing {
    /// Whether a group that does not fit on the PMU becomes several groups, because the file does not require its events to be together.
    pub may_split: bool,
    /// Whether the groups are on the PMU at all times (pinned).
    pub is_always: bool,
}
