//! The probes of a configuration, put in place.
//!
//! A probe without arguments that is only counted goes through the PMUs `kprobe` and `uprobe`: it is there for as long
//! as somebody has it open. One with arguments is defined in tracefs, under a group of this process, and is removed
//! when the configuration changes, when this process ends, or by the next one that starts.

mod events;
mod kernel;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::Definition;
use super::root::Opened;
use super::tracefs::{Leftover, Line, Probes};
use crate::error::FileError;
use crate::event::format::Format;
use crate::event::{Event, FileId};
use crate::health::Refusal;
use crate::host::Roots;
use crate::target::CgroupMount;
use kernel::Kernel;
use place::Site;

/// A probe that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// The section of the configuration that its entry is in: `probes`, `profiles`.
    pub section: &'static str,
    /// What it is called.
    pub name: Arc<str>,
    /// Where, and what is taken there.
    pub definition: Definition,
    /// Whether it is a function from its entry to its return.
    pub timed: bool,
    /// Whether only some hits count, so that the kernel must know its fields.
    pub filtered: bool,
}

/// The section and the name of an entry of the configuration.
pub type Entry = (&'static str, Arc<str>);

/// What the probes of the configuration became on this machine, by entry: one event, several where a marker is in
/// several places, or the entry and the return of a timed function.
pub type Placements = BTreeMap<Entry, Result<Vec<Placed>, Refusal>>;

impl Wish {
    /// Whose it is.
    pub fn entry(&self) -> Entry {
        (self.section, Arc::clone(&self.name))
    }
}

/// An event, and what its records hold if it has arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// What to open.
    pub event: Event,
    /// Its record.
    pub format: Option<Arc<Format>>,
}

/// A probe in place.
#[derive(Debug)]
struct Installed {
    wish: Wish,
    placed: Result<Vec<Placed>, Refusal>,
    /// The names of its definitions in tracefs.
    defined: Vec<Arc<str>>,
    /// What it is to the kernel, for people.
    ways: Vec<String>,
    /// The file that it is in: the kernel finds it through this descriptor.
    file: Option<Opened>,
    /// What was at its path then, whether it could be placed there or not.
    seen: Option<FileId>,
}

/// What a probe is, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Whose it is.
    pub entry: Entry,
    /// Its events. They cannot be opened unless the probe is in place, and then they may have fields.
    pub events: Vec<Placed>,
    /// For each of its events the PMU and the place, or its line in tracefs; or why there is none.
    pub ways: Result<Vec<String>, Refusal>,
}

/// What a probe is defined by in tracefs.
#[derive(Debug)]
pub struct Definitions {
    /// One for each of its places.
    pub lines: Vec<Line>,
    /// The file that the probe is in. Keep it until the kernel has read the lines: they may name it by its descriptor.
    pub file: Option<Opened>,
}

/// Finds where a probe is, and says it in the kernel's words. Changes nothing.
///
/// # Errors
/// The place is not there, may not be looked at, or its arguments cannot be taken.
pub fn definitions(wish: &Wish, roots: &Roots) -> Result<Definitions, Refusal> {
    let site = find(wish, &mut Kernel::ask(roots, [wish]))?;
    Ok(Definitions { lines: events::lines(wish, &site)?, file: site.file })
}

fn find(wish: &Wish, kernel: &mut Kernel<'_>) -> Result<Site, Refusal> {
    place::find(wish, cgroups(kernel.roots).as_deref(), kernel)
}

/// Where cgroups are mounted.
fn cgroups(roots: &Roots) -> Option<PathBuf> {
    Some(PathBuf::from(CgroupMount::find(roots).ok()?.dir()))
}

/// All probes of this process.
#[derive(Debug)]
pub struct Installer {
    roots: Roots,
    probes: Probes,
    installed: Vec<Installed>,
    /// Definitions that were still in use when they should have been removed.
    stale: Vec<Arc<str>>,
}

impl Installer {
    /// No probes yet. `pid` is the number of this process where procfs does not tell.
    pub fn new(roots: &Roots, pid: u32) -> Self {
        let probes = Probes::new(roots, pid);
        Self { roots: roots.clone(), probes, installed: Vec::new(), stale: Vec::new() }
    }

    /// Removes what exporters left behind that are gone; see [`Probes::sweep`].
    ///
    /// # Errors
    /// A list of probes that is there and cannot be read.
    pub fn sweep(&self) -> Result<Vec<Leftover>, FileError> {
        self.probes.sweep()
    }

    /// Puts in place what is wanted. Probes that are there already and as they should be stay; those that could not be
    /// placed are tried again; others are forgotten, to be removed by [`tidy`](Self::tidy) once nobody has them open.
    pub fn place(&mut self, wishes: &[Wish]) -> Placements {
        let old = std::mem::take(&mut self.installed);
        let moved = self.moved(&old);
        let (mut kept, gone): (Vec<_>, Vec<_>) = old.into_iter().partition(|probe| {
            probe.placed.is_ok() && wishes.contains(&probe.wish) && !moved.contains(&probe.wish.entry())
        });
        self.stale.extend(gone.into_iter().flat_map(|probe| probe.defined));
        let roots = self.roots.clone();
        let is_kept = |wish: &&Wish| kept.iter().any(|probe| probe.wish == **wish);
        let mut kernel = Kernel::ask(&roots, wishes.iter().filter(|wish| !is_kept(wish)));
        for wish in wishes {
            let there = kept.iter().position(|probe| probe.wish == *wish);
            let probe = match there {
                Some(at) => kept.swap_remove(at),
                None => self.install(wish, &mut kernel),
            };
            self.installed.push(probe);
        }
        self.installed.iter().map(|probe| (probe.wish.entry(), probe.placed.clone())).collect()
    }

    /// What would be put in place, without doing so: for each probe what it would be to the kernel, or why it cannot be.
    pub fn look(&self, wishes: &[Wish]) -> Vec<Look> {
        let mut kernel = Kernel::ask(&self.roots, wishes);
        let look = |wish: &Wish| {
            let seen = find(wish, &mut kernel).and_then(|site| {
                let mut maker = events::Maker::new(wish, &site, &self.roots, None);
                maker.all().map(|events| (events, maker.ways))
            });
            let (events, ways) = match seen {
                Ok((events, ways)) => (events, Ok(ways)),
                Err(refusal) => (Vec::new(), Err(refusal)),
            };
            Look { entry: wish.entry(), events, ways }
        };
        wishes.iter().map(look).collect()
    }

    /// What is in place, or could not be put there.
    pub fn placed(&self) -> Vec<Look> {
        let look = |probe: &Installed| {
            let ways = probe.placed.as_ref().map(|_| probe.ways.clone()).map_err(Refusal::clone);
            Look { entry: probe.wish.entry(), events: probe.placed.clone().unwrap_or_default(), ways }
        };
        self.installed.iter().map(look).collect()
    }

    /// The probes whose paths lead to other files than they are in: a package was upgraded, or a container has started
    /// anew. To be placed again. A path that leads nowhere just now is left for later.
    pub fn outdated(&self) -> Vec<Arc<str>> {
        self.moved(&self.installed).into_iter().map(|(_, name)| name).collect()
    }

    fn moved(&self, probes: &[Installed]) -> Vec<Entry> {
        if probes.is_empty() {
            return Vec::new();
        }
        let cgroups = cgroups(&self.roots);
        let moved = |probe: &&Installed| {
            let now = place::file_of(&probe.wish.definition, cgroups.as_deref(), &self.roots);
            now.is_some() && now != probe.seen
        };
        probes.iter().filter(moved).map(|probe| probe.wish.entry()).collect()
    }

    /// Removes the definitions that nobody wants any more. What is still in use is left for the next time.
    pub fn tidy(&mut self) {
        for event in std::mem::take(&mut self.stale) {
            if let Err(refusal) = self.probes.remove(&event) {
                tracing::warn!(probe = %event, "a probe cannot be removed yet: {refusal}");
                self.stale.push(event);
            }
        }
    }

    fn install(&mut self, wish: &Wish, kernel: &mut Kernel<'_>) -> Installed {
        let mut probe = Installed {
            wish: wish.clone(),
            placed: Ok(Vec::new()),
            defined: Vec::new(),
            ways: Vec::new(),
            file: None,
            seen: place::file_of(&wish.definition, cgroups(&self.roots).as_deref(), &self.roots),
        };
        let site = match find(wish, kernel) {
            Ok(site) => site,
            Err(refusal) => return Installed { placed: Err(refusal), ..probe },
        };
        let mut maker = events::Maker::new(wish, &site, &self.roots, Some(&mut self.probes));
        probe.placed = maker.all();
        (probe.defined, probe.ways) = (maker.defined, maker.ways);
        if probe.placed.is_err() {
            self.stale.append(&mut probe.defined);
        }
        probe.file = site.file;
        probe
    }
}
