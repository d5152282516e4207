//! The configuration in two shapes: `file` is what may be written, [`Config`] is what the program needs. Between
//! them [`load`] reports every problem of a file at once, each with its place and what to write instead.
//!
//! ```text
//! text ──yaml──► Node ──decode──► file::File ──check──► Config
//!                  └───────────── report ──────────────► Problem
//! ```

mod bounds;
mod check;
pub mod containers;
mod counters;
mod decode;
mod file;
mod load;
mod memory;
mod per;
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
mod yaml;

#[cfg(test)]
mod tests;

pub use load::{DEADLINE, LoadError, Loaded, Loader, Pending, load_file};
pub use memory::TooLittle;
pub use presets::Preset;
pub use problem::{Problem, Problems, Severity};
pub use profiled::Profiled;
pub use schema::schema;
pub use tasks::{Scheduler, Syscalls};
pub use traced::Traced;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::event::syntax::Group;
use crate::target::Targets;
use file::File;
use report::Report;
use selection::Selections;
use yaml::{Source, Value};

/// The built-in configuration: every setting that has a default, with it.
pub const BUILT_IN: &str = include_str!("../../config/examples/default.yaml");

/// Reads a configuration file of at most 1 MiB. `file` is its name in the problems. What the text does not mention is
/// as in [`BUILT_IN`].
///
/// The problems beside a configuration are warnings.
///
/// # Errors
/// Every problem of the file, in the order of its lines; if there are more than 50, the last says how many are left
/// out.
pub fn load(text: &[u8], file: &str) -> Result<(Config, Vec<Problem>), Problems> {
    let (built_in, selections) = built_in();
    let source = Source::parse(text, file).map_err(|problem| Problems(vec![problem]))?;
    let mut report = Report::new(&source);
    let config = read(&source, &built_in, &selections, &mut report);
    let problems = report.finish();
    let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
    match config {
        Some((config, _)) if !broken => Ok((config, problems)),
        _ => Err(Problems(problems)),
    }
}

/// What a file says, over what `base` says, and whom entries of its own would count for.
fn read(
    source: &Source<'_>,
    base: &Config,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<(Config, Selections)> {
    let root = source.root();
    let file = match root.value {
        Value::Null => {
            report.warning(root.id, "the file is empty: the built-in configuration holds", None);
            File::default()
        }
        _ => decode::decode(root, report)?,
    };
    Some(check::check(&file, base, selections, report))
}

/// [`BUILT_IN`], read over nothing. A test holds that it has no problems and leaves nothing unsaid.
fn built_in() -> (Config, Selections) {
    let nothing = Config {
        listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        collection: Collection::default(),
        counters: Vec::new(),
        traced: Vec::new(),
        profiles: Vec::new(),
        profile_cpus: false,
        scheduler: None,
        syscalls: None,
        mount_tracefs: false,
        containers: containers::Containers::default(),
        push: push::Push::default(),
        limits: Limits::default(),
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

/// What the program needs to know, complete and consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to serve.
    pub listen: SocketAddr,
    /// When to collect.
    pub collection: Collection,
    /// What to count, in the order of the file.
    pub counters: Vec<Counters>,
    /// What tracepoints and probes are made of: first those of `tracepoints`, then those of `probes`, then those of
    /// `presets`, each in the order of the file.
    pub traced: Vec<Traced>,
    /// What is sampled with its callers, in the order of the file.
    pub profiles: Vec<Profiled>,
    /// Whether profiles tell CPUs apart, for whoever is sent them.
    pub profile_cpus: bool,
    /// What is told of the scheduler; `None` = nothing.
    pub scheduler: Option<Scheduler>,
    /// What is told of system calls; `None` = nothing.
    pub syscalls: Option<Syscalls>,
    /// Whether to mount tracefs where it is not.
    pub mount_tracefs: bool,
    /// Who tells the names of containers.
    pub containers: containers::Containers,
    /// What is pushed where. Where a section is missing, the environment may say otherwise.
    pub push: push::Push,
    /// The bounds.
    pub limits: Limits,
}

/// When collections happen. One collection serves every reader that asks within `freshness` of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collection {
    /// The longest time between two collections, whether somebody asks or not: scaling of multiplexed counters and
    /// the discovery of new cgroups and processes depend on it.
    pub interval: Duration,
    /// How old a collection may be to answer a scrape.
    pub freshness: Duration,
}

/// The bounds that the program keeps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Series per metric; counts of those over it are aggregated into the series `other`.
    pub series: usize,
    /// Names that the processes of one cgroup may have in the labels of a metric; a fifth of them may be new each minute.
    pub names_per_cgroup: usize,
    /// File descriptors for events; `None` = what `RLIMIT_NOFILE` allows, less a reserve.
    pub descriptors: Option<usize>,
    /// HTTP requests for pages and profiles that are answered at the same time.
    pub connections: usize,
    /// Bytes of everything that grows; `None` = [`Demand::default_limit`](crate::budget::Demand::default_limit).
    pub memory: Option<u64>,
    /// An upper bound for the rings' share of `memory`, in bytes; `None` = none beside the share.
    pub ring_memory: Option<u64>,
    /// Bytes of debug information of one file that lines are looked up in, uncompressed.
    pub debug_info: u64,
    /// The part of the time of all CPUs that the program may take, above 0 and at most 1; `None` = any.
    pub cpu: Option<f64>,
}

/// One entry of `counters`: what to count, and for whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    /// The entry's name in the file.
    pub name: Arc<str>,
    /// The groups, each scheduled together.
    pub groups: Vec<Group>,
    /// For whom; each at most once.
    pub per: Vec<Targets>,
}
