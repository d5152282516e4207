//! Probes in tracefs. A line in `kprobe_events` or `uprobe_events` defines a tracepoint at a location, with the probe's arguments as
//! fields. Another line removes it. The syntax is described in the kernel's `Documentation/trace/kprobetrace.rst` and `uprobetracer.rst`.
//!
//! A definition is global to the machine and persists until it is removed. So the group name identifies the owner ([`Owner`]). [`Probes`]
//! removes its probes when it is dropped, and [`Probes::sweep`] removes those that ended processes left behind. A probe that is not open
//! causes no overhead.

mod complaint;
mod line;
mod listed;
mod mount;
mod owner;
mod refusal;
mod sweep;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub use complaint::complaint;
pub use line::Line;
pub use listed::Listed;
pub use mount::mount;
pub use owner::{Life, Owner};
pub use refusal::ProbeRefusal;
pub use sweep::{Leftover, SweepResult};

use self::refusal::Unwritten;
use super::argument::Site;
use crate::error::{Errno, FileError};
use crate::host::Roots;

/// Maximum length of an event name, in bytes (`MAX_EVENT_NAME_LEN` of the kernel, without its NUL).
const NAME_LIMIT: usize = 63;
/// Maximum number of events whose names differ only by a numeric suffix.
const SAME_NAME_LIMIT: u32 = 10_000;

/// Group of persistent probes.
const LASTING_GROUP: &str = "perf_exporter";

/// A probe that the kernel accepted, as a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Added {
    /// System of the tracepoint: the group.
    pub system: Arc<str>,
    /// The event name.
    pub event: Arc<str>,
}

/// The probes of this process. Writing requires the owner of tracefs, usually root.
#[derive(Debug)]
pub struct Probes {
    roots: Roots,
    owner: Option<Owner>,
    group: Arc<str>,
    held: Vec<PendingRemoval>,
}

/// A probe that must be removed later.
#[derive(Debug)]
struct PendingRemoval {
    event: Arc<str>,
    site: Site,
}

impl Probes {
    /// Creates an empty set of probes in the group of this process. `pid` is the process ID if procfs is unavailable.
    pub fn new(roots: &Roots, pid: u32) -> Self {
        let owner = Owner::own(roots, pid);
        Self { roots: roots.clone(), owner: Some(owner), group: owner.group().into(), held: Vec::new() }
    }

    /// Creates an empty set of probes that outlive this process, in a separate group that is never swept. For probes added on the command
    /// line.
    pub fn lasting(roots: &Roots) -> Self {
        Self { roots: roots.clone(), owner: None, group: LASTING_GROUP.into(), held: Vec::new() }
    }

    /// Returns the group of all these probes: the system of their tracepoints.
    pub fn group(&self) -> &Arc<str> {
        &self.group
    }

    /// Defines a probe with a name similar to `event`. Characters that the kernel does not accept become `_`, and a number is appended if
    /// the name is in use.
    ///
    /// # Errors
    /// The kernel rejected the probe, or the file for definitions could not be opened.
    pub fn add(&mut self, event: &str, line: &Line) -> Result<Added, ProbeRefusal> {
        let event = self.free_name(event)?;
        let definition = line.definition(&self.group, &event);
        write(&self.roots, line.site(), &definition)
            .map_err(|why| why.of_definition(&self.roots, line, &definition))?;
        self.held.push(PendingRemoval { event: Arc::clone(&event), site: line.site() });
        Ok(Added { system: Arc::clone(&self.group), event })
    }

    /// Checks that probes can be defined at this kind of site. Changes nothing.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn check(&self, site: Site) -> Result<(), ProbeRefusal> {
        open(&self.roots, site).map(drop).map_err(|why| why.of_removal(&self.roots, site))
    }

    /// Removes a probe of this group. Succeeds if the probe does not exist.
    ///
    /// # Errors
    /// The kernel's error, usually because the tracepoint is still open (`EBUSY`). The call can be retried.
    pub fn remove(&mut self, event: &str) -> Result<(), ProbeRefusal> {
        let held = self.held.iter().position(|held| &*held.event == event);
        let site = match held {
            Some(held) => self.held[held].site,
            None => match self.listed_site(event)? {
                Some(site) => site,
                None => return Ok(()),
            },
        };
        undefine(&self.roots, site, &self.group, event)?;
        if let Some(held) = held {
            self.held.swap_remove(held);
        }
        Ok(())
    }

    /// Removes a probe of any group. Succeeds if the probe does not exist.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_listed(&mut self, probe: &Listed) -> Result<(), ProbeRefusal> {
        if probe.system == self.group {
            return self.remove(&probe.event);
        }
        undefine(&self.roots, probe.site(), &probe.system, &probe.event)
    }

    /// Returns every probe that is defined on this machine, by any owner.
    ///
    /// # Errors
    /// A file exists but cannot be read. Missing support for one or both kinds of probes is not an error.
    pub fn list(&self) -> Result<Vec<Listed>, FileError> {
        listed::list(&self.roots)
    }

    /// Removes the probes of ended exporters and returns the result for each. Other probes are not changed.
    ///
    /// An exporter has ended if no process has its PID and its start time. The PID of an exporter in another container is not valid here,
    /// so all processes are searched. If this process cannot see all of them because it is in a PID namespace, the probes stay. Open probes
    /// are never removed, because the kernel rejects that.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub fn sweep(&self) -> Result<Vec<Leftover>, FileError> {
        sweep::sweep(&self.roots, self.owner)
    }

    /// Returns the site of a probe that this value did not define.
    fn listed_site(&self, event: &str) -> Result<Option<Site>, ProbeRefusal> {
        let listed = self.list().map_err(|error| refusal::unreadable(&self.roots, &error))?;
        let found = listed.iter().find(|probe| probe.system == self.group && &*probe.event == event);
        Ok(found.map(Listed::site))
    }

    /// Returns the name that [`add`](Self::add) uses for a probe: one that no event of the group has. The kernel would accept a second
    /// definition of a name, and add the location to the existing event.
    ///
    /// # Errors
    /// Too many events have this name.
    pub fn free_name(&self, wanted: &str) -> Result<Arc<str>, ProbeRefusal> {
        let stem = event_name(wanted);
        let dir = self.roots.tracing.join("events").join(&*self.group);
        let taken = |name: &str| dir.join(name).exists() || self.held.iter().any(|held| &*held.event == name);
        let numbered = (1..SAME_NAME_LIMIT).map(|number| {
            let suffix = format!("_{number}");
            format!("{}{suffix}", &stem[..stem.len().min(NAME_LIMIT - suffix.len())])
        });
        let free = std::iter::once(stem.clone()).chain(numbered).find(|name| !taken(name));
        free.map(Arc::from).ok_or_else(|| refusal::no_name(wanted))
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        if self.owner.is_none() {
            return;
        }
        for PendingRemoval { event, site } in std::mem::take(&mut self.held) {
            if let Err(refusal) = undefine(&self.roots, site, &self.group, &event) {
                tracing::warn!("probe {}/{event} could not be removed: {refusal}", self.group);
            }
        }
    }
}

/// Returns a valid event name of the kernel, in ASCII.
fn event_name(wanted: &str) -> String {
    let mut name = String::new();
    if !wanted.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.push('_');
    }
    name.extend(wanted.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(NAME_LIMIT));
    name.truncate(NAME_LIMIT);
    name
}

fn undefine(roots: &Roots, site: Site, group: &str, event: &str) -> Result<(), ProbeRefusal> {
    match write(roots, site, &format!("-:{group}/{event}")) {
        // It was removed already, possibly by another process.
        Ok(()) | Err(Unwritten::Answered(Errno::ENOENT)) => Ok(()),
        Err(why) => Err(why.of_removal(roots, site)),
    }
}

/// Returns the file in which probes of a site are defined.
fn events_file(roots: &Roots, site: Site) -> PathBuf {
    roots.tracing.join(match site {
        Site::Kernel => "kprobe_events",
        Site::User => "uprobe_events",
    })
}

/// Writes one line.
fn write(roots: &Roots, site: Site, line: &str) -> Result<(), Unwritten> {
    open(roots, site)?
        .write_all(format!("{line}\n").as_bytes())
        .map_err(|error| Unwritten::Answered(Errno::of(&error)))
}

/// Opens the file for appending. Opening it with truncation would remove all probes of the machine.
fn open(roots: &Roots, site: Site) -> Result<File, Unwritten> {
    let opened = OpenOptions::new().append(true).open(events_file(roots, site));
    opened.map_err(|error| Unwritten::Closed(Errno::of(&error)))
}
