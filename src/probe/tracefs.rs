//! Probes in tracefs: a line in `kprobe_events` or `uprobe_events` makes a tracepoint of a place, with its arguments as
//! fields; another line removes it. The lines are those of the kernel's `Documentation/trace/kprobetrace.rst` and
//! `uprobetracer.rst`.
//!
//! What is defined belongs to the machine, not to the process: it stays until somebody removes it. So the names say
//! whose it is ([`Owner`]), [`Probes`] removes what it made when it is dropped, and [`Probes::sweep`] removes what
//! those left behind who could not. A probe that nobody has opened costs nothing.

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
pub use sweep::{Fate, Leftover};

use self::refusal::Unwritten;
use super::argument::Site;
use crate::error::{Errno, FileError};
use crate::host::Roots;

/// The longest name of an event, in bytes (`MAX_EVENT_NAME_LEN` of the kernel, without its NUL).
const NAME_LIMIT: usize = 63;
/// How many events of one name are told apart by a number.
const SAME_NAME_LIMIT: u32 = 10_000;

/// The group of probes that were made to stay.
const LASTING_GROUP: &str = "perf_exporter";

/// A probe that the kernel has taken, as a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Added {
    /// The system of the tracepoint: the group.
    pub system: Arc<str>,
    /// The event.
    pub event: Arc<str>,
}

/// The probes of this process. Writing takes what owns tracefs, usually root.
#[derive(Debug)]
pub struct Probes {
    roots: Roots,
    owner: Option<Owner>,
    group: Arc<str>,
    held: Vec<Held>,
}

/// A probe that has to be removed again.
#[derive(Debug)]
struct Held {
    event: Arc<str>,
    site: Site,
}

impl Probes {
    /// No probes yet, in the group of this process. `pid` is its number where procfs does not tell.
    pub fn new(roots: &Roots, pid: u32) -> Self {
        let owner = Owner::own(roots, pid);
        Self { roots: roots.clone(), owner: Some(owner), group: owner.group().into(), held: Vec::new() }
    }

    /// Probes that outlive this process, in a group of their own that nobody sweeps: what a person adds at a shell.
    pub fn lasting(roots: &Roots) -> Self {
        Self { roots: roots.clone(), owner: None, group: LASTING_GROUP.into(), held: Vec::new() }
    }

    /// The group that all of them are in: the system of their tracepoints.
    pub fn group(&self) -> &Arc<str> {
        &self.group
    }

    /// Defines a probe under a name like `event`: what the kernel does not take in a name becomes `_`, and a number is
    /// appended where the name is taken.
    ///
    /// # Errors
    /// The kernel refuses it, or there is no place to say it.
    pub fn add(&mut self, event: &str, line: &Line) -> Result<Added, ProbeRefusal> {
        let event = self.free_name(event)?;
        let definition = line.definition(&self.group, &event);
        write(&self.roots, line.site(), &definition)
            .map_err(|why| why.of_definition(&self.roots, line, &definition))?;
        self.held.push(Held { event: Arc::clone(&event), site: line.site() });
        Ok(Added { system: Arc::clone(&self.group), event })
    }

    /// Whether probes of a site can be defined here. Changes nothing.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn check(&self, site: Site) -> Result<(), ProbeRefusal> {
        open(&self.roots, site).map(drop).map_err(|why| why.of_removal(&self.roots, site))
    }

    /// Removes a probe of this group. One that is not there any more counts as removed.
    ///
    /// # Errors
    /// The kernel refuses, usually because the tracepoint is still open somewhere (`EBUSY`). It can be tried again.
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

    /// Every probe that is defined on this machine, whoever made it.
    ///
    /// # Errors
    /// A file that is there and cannot be read. Kernels that have one kind of probes or none are no error.
    pub fn list(&self) -> Result<Vec<Listed>, FileError> {
        listed::list(&self.roots)
    }

    /// Removes the probes of exporters that are gone, and gives the fate of each. Nobody else's are touched.
    ///
    /// An exporter is gone if no process has its number and its start time. Another container's has a number that
    /// means nothing here, so all processes are looked at; where they cannot be seen, because this process has a PID
    /// namespace of its own, its probes stay. What somebody has open is never removed: the kernel refuses that.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn sweep(&self) -> Result<Vec<Leftover>, FileError> {
        sweep::sweep(&self.roots, self.owner)
    }

    /// Where the probe of a name is that this value did not make.
    fn listed_site(&self, event: &str) -> Result<Option<Site>, ProbeRefusal> {
        let listed = self.list().map_err(|error| refusal::unreadable(&self.roots, &error))?;
        let found = listed.iter().find(|probe| probe.system == self.group && &*probe.event == event);
        Ok(found.map(Listed::site))
    }

    /// What [`add`](Self::add) calls a probe: a name that no event of the group has. A second definition of a name would
    /// not be an error for the kernel: it adds the place to the event.
    ///
    /// # Errors
    /// There are too many of this name.
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
        for Held { event, site } in std::mem::take(&mut self.held) {
            if let Err(refusal) = undefine(&self.roots, site, &self.group, &event) {
                tracing::warn!("the probe {}/{event} could not be removed: {refusal}", self.group);
            }
        }
    }
}

/// A name as the kernel takes one for an event. It is ASCII.
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
        // Gone already, perhaps by somebody else's hand.
        Ok(()) | Err(Unwritten::Answered(Errno::ENOENT)) => Ok(()),
        Err(why) => Err(why.of_removal(roots, site)),
    }
}

/// Where probes of a site are defined.
fn events_file(roots: &Roots, site: Site) -> PathBuf {
    roots.tracing.join(match site {
        Site::Kernel => "kprobe_events",
        Site::User => "uprobe_events",
    })
}

/// Tells the kernel one line.
fn write(roots: &Roots, site: Site, line: &str) -> Result<(), Unwritten> {
    open(roots, site)?
        .write_all(format!("{line}\n").as_bytes())
        .map_err(|error| Unwritten::Answered(Errno::of(&error)))
}

/// Opened to append: opening these files to truncate removes everybody's probes.
fn open(roots: &Roots, site: Site) -> Result<File, Unwritten> {
    let opened = OpenOptions::new().append(true).open(events_file(roots, site));
    opened.map_err(|error| Unwritten::Closed(Errno::of(&error)))
}
