//! Tracepoints in tracefs: `events/SYSTEM/EVENT/id`. Directories are read on demand, because a kernel has about two thousand tracepoints
//! and a configuration names a few.

use std::path::PathBuf;

use super::format::Format;
use super::pattern;
use crate::error::FileError;
use crate::host::{self, Roots};

/// Maximum number of tracepoints that one pattern may match. Each takes one file descriptor per CPU.
pub(super) const MATCH_LIMIT: usize = 512;
/// Maximum number of tracepoints that one listing returns.
const LISTING_LIMIT: usize = 32_768;

/// The tracepoints of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracepoints {
    /// Mount point of tracefs.
    root: PathBuf,
}

/// A tracepoint and its ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracepoint {
    pub system: String,
    pub event: String,
    /// ID for `perf_event_attr.config`.
    pub id: u64,
}

/// The reason why a name matches no tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoTracepoint {
    /// The kernel supports tracefs, but it is not mounted.
    NotMounted(PathBuf),
    /// The kernel was built without tracing: even the mount point is missing.
    NoTracing(PathBuf),
    /// This process lacks the permission to read tracefs.
    Forbidden(FileError),
    /// Any other error of a file.
    Broken(FileError),
    /// No system has this name. A similar name, if there is one.
    NoSystem(Option<String>),
    /// The system has no event with this name. A similar name, if there is one.
    NoEvent(Option<String>),
    /// The pattern matches more than [`MATCH_LIMIT`] tracepoints.
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

    /// Returns every tracepoint whose system and event match, sorted.
    pub(super) fn find(&self, system: &str, event: &str) -> Result<Vec<Tracepoint>, NoTracepoint> {
        if is_name(system) && is_name(event) {
            match self.open(system, event) {
                Ok(tracepoint) => return Ok(vec![tracepoint]),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let all = self.systems()?;
        let systems = select(system, &all);
        if systems.is_empty() {
            return Err(NoTracepoint::NoSystem(near(system, &all)));
        }
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for system in systems {
            let events = self.events(system)?;
            found.extend(select(event, &events).into_iter().map(|event| (system.clone(), event.clone())));
            others.extend(events);
        }
        match found.len() {
            0 => Err(NoTracepoint::NoEvent(near(event, &others))),
            1..=MATCH_LIMIT => {
                found.iter().map(|(system, event)| self.open(system, event).map_err(Into::into)).collect()
            }
            more => Err(NoTracepoint::TooMany(more)),
        }
    }

    /// Returns the record format of a tracepoint.
    pub(super) fn format(&self, system: &str, event: &str) -> Result<Format, FileError> {
        let events = self.root.join("events");
        if !is_name(system) || !is_name(event) {
            return Err(FileError::malformed(
                events,
                format!("{system}:{event} is not a valid tracepoint name"),
            ));
        }
        let path = events.join(system).join(event).join("format");
        let text = host::read_text(&path)?;
        Format::parse(&text).map_err(|error| FileError::malformed(path, error.to_string()))
    }

    /// Returns the names of all readable tracepoints, at most [`LISTING_LIMIT`].
    pub(super) fn names(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let systems = self.systems().unwrap_or_default().into_iter();
        let names = systems.flat_map(|system| {
            let events = self.events(&system).unwrap_or_default().into_iter();
            events.map(move |event| (system.clone(), event))
        });
        names.take(LISTING_LIMIT)
    }

    fn systems(&self) -> Result<Vec<String>, NoTracepoint> {
        host::list(&self.root.join("events")).map_err(|error| {
            if !error.is_absent() {
                error.into()
            } else if self.root.is_dir() {
                NoTracepoint::NotMounted(self.root.clone())
            } else {
                NoTracepoint::NoTracing(self.root.clone())
            }
        })
    }

    /// Returns the events of a system that [`systems`](Self::systems) returned. Events without an ID are for ftrace only, and are skipped.
    fn events(&self, system: &str) -> Result<Vec<String>, NoTracepoint> {
        let dir = self.root.join("events").join(system);
        match host::list(&dir) {
            Ok(mut names) => {
                names.retain(|name| dir.join(name).join("id").exists());
                Ok(names)
            }
            // An unloaded module, or one of the files (`enable`, `header_page`) next to the systems.
            Err(error) if error.is_absent() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, system: &str, event: &str) -> Result<Tracepoint, FileError> {
        let id = host::read_number(&self.root.join("events").join(system).join(event).join("id"))?;
        Ok(Tracepoint { system: system.to_owned(), event: event.to_owned(), id })
    }
}

/// Reports whether a word can be the name of a directory, instead of a pattern or a path.
fn is_name(word: &str) -> bool {
    !pattern::is_pattern(word) && !word.contains('/') && !word.starts_with('.') && !word.is_empty()
}

fn select<'n>(wanted: &str, names: &'n [String]) -> Vec<&'n String> {
    names.iter().filter(|name| *name == wanted || pattern::matches(wanted, name)).collect()
}

fn near(wanted: &str, names: &[String]) -> Option<String> {
    pattern::nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;

    fn tracefs(names: &[&str]) -> (tempfile::TempDir, Tracepoints) {
        let dir = tempfile::tempdir().unwrap();
        for (id, name) in names.iter().enumerate() {
            let dir = dir.path().join("events").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("id"), format!("{id}\n")).unwrap();
        }
        let tracepoints = Tracepoints { root: dir.path().to_owned() };
        (dir, tracepoints)
    }

    #[test]
    fn patterns_stand_for_all_that_match_in_both_halves() {
        let (_dir, tracepoints) = tracefs(&["block/rq_issue", "block/rq_done", "sched/switch"]);
        let found = |system, event| -> Vec<String> {
            let found = tracepoints.find(system, event).unwrap();
            found.iter().map(|t| format!("{}:{}={}", t.system, t.event, t.id)).collect()
        };
        assert_eq!(found("block", "rq_*"), ["block:rq_done=1", "block:rq_issue=0"]);
        assert_eq!(found("*", "*s*"), ["block:rq_issue=0", "sched:switch=2"]);
        assert_eq!(found("sched", "switch"), ["sched:switch=2"]);
    }

    #[test]
    fn a_path_is_not_a_name() {
        let (_dir, tracepoints) = tracefs(&["block/rq_issue"]);
        assert_eq!(tracepoints.find("..", "events"), Err(NoTracepoint::NoSystem(None)));
        assert_eq!(tracepoints.find("block", ".."), Err(NoTracepoint::NoEvent(None)));
        assert_eq!(tracepoints.find("block/rq_issue", "id"), Err(NoTracepoint::NoSystem(None)));
    }

    #[test]
    fn a_format_is_read_by_name_alone() {
        let (dir, tracepoints) = tracefs(&["block/rq_issue"]);
        let file = dir.path().join("events/block/rq_issue/format");
        assert!(tracepoints.format("block", "rq_issue").unwrap_err().is_absent());
        std::fs::write(
            &file,
            "name: rq_issue\nID: 7\nformat:\n\tfield:int x;\toffset:8;\tsize:4;\tsigned:1;\n",
        )
        .unwrap();
        assert_eq!(tracepoints.format("block", "rq_issue").unwrap().id(), 7);
        std::fs::write(&file, "name: rq_issue\n").unwrap();
        let error = tracepoints.format("block", "rq_issue").unwrap_err().to_string();
        assert_eq!(error, format!("{}: the line \"ID:\" is missing", file.display()));
        for (system, event) in
            [("..", "events"), ("block", "../block/rq_issue"), ("block", "rq_*"), ("", "x")]
        {
            let error = tracepoints.format(system, event).unwrap_err();
            assert!(error.to_string().ends_with("is not a valid tracepoint name"), "{error}");
        }
    }

    #[test]
    fn a_pattern_that_stands_for_too_many_is_refused_before_any_is_read() {
        let names: Vec<String> = (0..=MATCH_LIMIT).map(|i| format!("s/e{i}")).collect();
        let (_dir, tracepoints) = tracefs(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(tracepoints.find("*", "*"), Err(NoTracepoint::TooMany(MATCH_LIMIT + 1)));
    }

    #[test]
    fn a_refusal_by_the_kernel_is_forbidden_and_an_odd_answer_is_broken() {
        let error = |errno: Errno| FileError::io("/t", &std::io::Error::from_raw_os_error(errno.0));
        assert!(matches!(error(Errno::EACCES).into(), NoTracepoint::Forbidden(_)));
        assert!(matches!(error(Errno::EIO).into(), NoTracepoint::Broken(_)));
    }
}
