//! The probes of a configuration, put in place.
//!
//! A probe without arguments that is only counted goes through the PMUs `kprobe` and `uprobe`: it is there for as long
//! as somebody has it open. One with arguments is defined in tracefs, under a group of this process, and is removed
//! when the configuration changes, when this process ends, or by the next one that starts.

mod events;
mod kernel;
mod place;
mod seek;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::tracefs::{Leftover, Line, Probes};
use super::{Definition, Location};
use crate::error::FileError;
use crate::event::format::Format;
use crate::event::{Event, FileId};
use crate::files::{Files, Opened};
use crate::health::Refusal;
use crate::host::Roots;
use crate::target::CgroupMount;
use kernel::Kernel;
use place::Site;
use seek::{Answer, Seeker, Sought, seek};

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

    /// Whether the probe is in the kernel, and not in a file.
    fn is_in_kernel(&self) -> bool {
        matches!(self.definition.location, Location::Kernel { .. })
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
pub fn definitions(wish: &Wish, files: &Files) -> Result<Definitions, Refusal> {
    let site = find(wish, &mut Kernel::ask(files.roots(), [wish]), files)?;
    Ok(Definitions { lines: events::lines(wish, &site)?, file: site.file })
}

fn find(wish: &Wish, kernel: &mut Kernel<'_>, files: &Files) -> Result<Site, Refusal> {
    place::find(wish, cgroups(files.roots()).as_deref(), kernel, files)
}

/// Where cgroups are mounted.
fn cgroups(roots: &Roots) -> Option<PathBuf> {
    Some(PathBuf::from(CgroupMount::find(roots).ok()?.dir()))
}

/// All probes of this process.
#[derive(Debug)]
pub struct Installer {
    files: Files,
    /// Who looks into files; `None` = the calling thread.
    seeker: Option<Seeker>,
    /// Places that were found and not used yet.
    found: Vec<Sought>,
    /// Probes whose paths lead to other files than they are in.
    moved: Vec<Entry>,
    probes: Probes,
    installed: Vec<Installed>,
    /// Definitions that were still in use when they should have been removed.
    stale: Vec<Arc<str>>,
}

impl Installer {
    /// No probes yet. `pid` is the number of this process where procfs does not tell.
    pub fn new(files: impl Into<Files>, pid: u32) -> Self {
        let files = files.into();
        let probes = Probes::new(files.roots(), pid);
        let (found, moved) = (Vec::new(), Vec::new());
        Self { files, seeker: None, found, moved, probes, installed: Vec::new(), stale: Vec::new() }
    }

    /// The same for a thread that must not wait for files: another one looks into them. A probe whose file is not open
    /// in two seconds is refused for now, and among [`outdated`](Self::outdated) as soon as it is.
    pub fn aside(files: &Files, pid: u32) -> Self {
        Self { seeker: Seeker::start(files), ..Self::new(files, pid) }
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
        let moved = std::mem::take(&mut self.moved);
        let (mut kept, gone): (Vec<_>, Vec<_>) = old.into_iter().partition(|probe| {
            probe.placed.is_ok() && wishes.contains(&probe.wish) && !moved.contains(&probe.wish.entry())
        });
        self.stale.extend(gone.into_iter().flat_map(|probe| probe.defined));
        let is_kept = |wish: &&Wish| kept.iter().any(|probe| probe.wish == **wish);
        let missing = wishes.iter().filter(|wish| !is_kept(wish)).cloned().collect();
        let mut sought = self.places(missing);
        for wish in wishes {
            let there = kept.iter().position(|probe| probe.wish == *wish);
            let probe = match there {
                Some(at) => kept.swap_remove(at),
                None => {
                    let at = sought.iter().position(|sought| sought.wish == *wish);
                    let found = at.map(|at| sought.swap_remove(at));
                    self.install(found.unwrap_or_else(|| Sought::pending(wish)))
                }
            };
            self.installed.push(probe);
        }
        self.installed.iter().map(|probe| (probe.wish.entry(), probe.placed.clone())).collect()
    }

    /// Where probes are, as far as that is known or found soon.
    fn places(&mut self, mut missing: Vec<Wish>) -> Vec<Sought> {
        let Some(seeker) = &mut self.seeker else { return seek(&missing, &self.files) };
        let mut sought = std::mem::take(&mut self.found);
        missing.retain(|wish| !sought.iter().any(|sought| sought.wish == *wish));
        // The kernel's own symbols and types cannot hang: a probe that needs no other file is placed at once.
        let (in_kernel, in_files): (Vec<_>, Vec<_>) = missing.into_iter().partition(Wish::is_in_kernel);
        sought.extend(seek(&in_kernel, &self.files));
        for answer in seeker.places(in_files) {
            if let Answer::Places(places) = answer {
                sought.extend(places);
            }
        }
        sought
    }

    /// What would be put in place, without doing so: for each probe what it would be to the kernel, or why it cannot be.
    pub fn look(&self, wishes: &[Wish]) -> Vec<Look> {
        let roots = self.files.roots();
        let mut kernel = Kernel::ask(roots, wishes);
        let look = |wish: &Wish| {
            let seen = find(wish, &mut kernel, &self.files).and_then(|site| {
                let mut maker = events::Maker::new(wish, &site, roots, None);
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

    /// The probes whose paths lead to other files than they are in: a package was upgraded, a container has started anew,
    /// or a file could be opened at last. To be placed again. A path that leads nowhere just now is left for later. Where
    /// another thread looks, this waits for nothing: it has a look begun if that is `due`, and returns what the last ones
    /// have found.
    pub fn outdated(&mut self, due: bool) -> Vec<Arc<str>> {
        let wishes = || self.installed.iter().map(|probe| probe.wish.clone()).collect::<Vec<_>>();
        let Some(seeker) = &mut self.seeker else {
            let now = if due { seek::files_of(&wishes(), &self.files) } else { Vec::new() };
            return self.note_moved(now);
        };
        if due {
            seeker.files(wishes());
        }
        match seeker.answer() {
            None => Vec::new(),
            Some(Answer::Files(now)) => self.note_moved(now),
            Some(Answer::Places(places)) => {
                self.found = places;
                self.found.iter().map(|sought| Arc::clone(&sought.wish.name)).collect()
            }
        }
    }

    fn note_moved(&mut self, now: Vec<(Entry, Option<FileId>)>) -> Vec<Arc<str>> {
        let is_moved = |(entry, now): &(Entry, Option<FileId>)| {
            let probe = self.installed.iter().find(|probe| probe.wish.entry() == *entry);
            now.is_some() && probe.is_some_and(|probe| probe.seen != *now)
        };
        self.moved = now.into_iter().filter(is_moved).map(|(entry, _)| entry).collect();
        self.moved.iter().map(|(_, name)| Arc::clone(name)).collect()
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

    fn install(&mut self, Sought { wish, seen, site }: Sought) -> Installed {
        let mut probe = Installed {
            wish,
            placed: Ok(Vec::new()),
            defined: Vec::new(),
            ways: Vec::new(),
            file: None,
            seen,
        };
        let site = match site {
            Ok(site) => site,
            Err(refusal) => return Installed { placed: Err(refusal), ..probe },
        };
        let mut maker = events::Maker::new(&probe.wish, &site, self.files.roots(), Some(&mut self.probes));
        probe.placed = maker.all();
        (probe.defined, probe.ways) = (maker.defined, maker.ways);
        if probe.placed.is_err() {
            self.stale.append(&mut probe.defined);
        }
        probe.file = site.file;
        probe
    }
}
