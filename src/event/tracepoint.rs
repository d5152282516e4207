//! Tracepoints as tracefs names them: `events/SYSTEM/EVENT/id`. Directories are read when they are asked for: a
//! kernel has some two thousand tracepoints, and a configuration names a few.

use std::path::PathBuf;

use super::pattern;
use crate::error::FileError;
use crate::host::{self, Roots};

/// The most tracepoints that one pattern may stand for: each is a descriptor per CPU.
pub(super) const MATCH_LIMIT: usize = 512;
/// The most directories that one listing reads.
const LISTING_LIMIT: usize = 32_768;

/// The tracepoints of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracepoints {
    /// The mount point of tracefs.
    root: PathBuf,
}

/// A tracepoint and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracepoint {
    pub system: String,
    pub event: String,
    /// `perf_event_attr.config`.
    pub id: u64,
}

/// Why a name stands for no tracepoint here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoTracepoint {
    /// The kernel has tracefs and nobody mounted it.
    NotMounted(PathBuf),
    /// The kernel was built without tracing, for even the place to mount it is missing.
    NoTracing(PathBuf),
    /// This process may not look.
    Forbidden(FileError),
    /// Something else is wrong with a file.
    Broken(FileError),
    /// There is no system of this name; perhaps one that is called much like it.
    NoSystem(Option<String>),
    /// The system has no event of this name; perhaps one that is called much like it.
    NoEvent(Option<String>),
    /// The pattern stands for more than [`MATCH_LIMIT`].
    TooMany(usize),
}

impl From<FileError> for NoTracepoint {
    fn from(error: FileError) -> Self {
        use crate::error::Errno;
        match error.errno() {
            Some(Errno::EACCES | Errno::EPERM) => Self::Forbidden(error),
            _ => Self::Broken(error),
        }
    }
}

impl Tracepoints {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { root: roots.tracing.clone() }
    }

    /// Every tracepoint whose system and event match, sorted.
    pub(super) fn find(&self, system: &str, event: &str) -> Result<Vec<Tracepoint>, NoTracepoint> {
        let all = self.systems()?;
        let systems = select(system, &all);
        if systems.is_empty() {
            return Err(NoTracepoint::NoSystem(near(system, &all)));
        }
        let (mut found, mut near_miss) = (Vec::new(), None);
        for system in systems {
            let events = self.events(system)?;
            for event in select(event, &events) {
                found.push((system.clone(), event.clone()));
            }
            near_miss = near_miss.or_else(|| near(event, &events));
        }
        match found.len() {
            0 => Err(NoTracepoint::NoEvent(near_miss)),
            1..=MATCH_LIMIT => found.into_iter().map(|(system, event)| self.open(system, event)).collect(),
            more => Err(NoTracepoint::TooMany(more)),
        }
    }

    /// The names of all tracepoints, as far as they can be read.
    pub(super) fn names(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let systems = self.systems().unwrap_or_default().into_iter();
        let names = systems.flat_map(|system| {
            let events = self.events(&system).unwrap_or_default().into_iter();
            events.map(move |event| (system.clone(), event))
        });
        names.take(LISTING_LIMIT)
    }

    fn systems(&self) -> Result<Vec<String>, NoTracepoint> {
        host::list(&self.root.join("events")).map(names_only).map_err(|error| {
            if !error.is_absent() {
                error.into()
            } else if self.root.is_dir() {
                NoTracepoint::NotMounted(self.root.clone())
            } else {
                NoTracepoint::NoTracing(self.root.clone())
            }
        })
    }

    /// The events of a system that [`systems`](Self::systems) returned.
    fn events(&self, system: &str) -> Result<Vec<String>, NoTracepoint> {
        match host::list(&self.root.join("events").join(system)) {
            Ok(names) => Ok(names_only(names)),
            // A module that was unloaded since, or one of the files (`enable`, `header_page`) beside the systems.
            Err(error) if error.is_absent() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, system: String, event: String) -> Result<Tracepoint, NoTracepoint> {
        let id = host::read_number(&self.root.join("events").join(&system).join(&event).join("id"))?;
        Ok(Tracepoint { system, event, id })
    }
}

/// Leaves out the control files that stand among the directories.
fn names_only(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !matches!(&**name, "enable" | "filter" | "header_event" | "header_page"));
    names
}

fn select<'n>(wanted: &str, names: &'n [String]) -> Vec<&'n String> {
    names.iter().filter(|name| *name == wanted || pattern::matches(wanted, name)).collect()
}

fn near(wanted: &str, names: &[String]) -> Option<String> {
    pattern::nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}
