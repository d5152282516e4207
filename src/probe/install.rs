//! Installation of the configured probes.
//!
//! A probe without arguments that is only counted uses the PMUs `kprobe` and `uprobe`. It exists while its event is open. A probe with
//! arguments is defined in tracefs, in a group of this process. It is removed when the configuration changes, when this process ends, or by
//! the next process that starts.

mod events;
mod kernel;
mod locate;
mod place;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tracefs::{Leftover, Line, Probes};
use super::{Definition, Location};
use crate::error::FileError;
use crate::event::Event;
use crate::event::format::Format;
use crate::files::{Files, Opened};
use crate::health::Refusal;
use crate::targets::ContainerMetadata;
use kernel::Kernel;
use locate::{Answer, LocatedProbe, Locator, locate};
use search::{FileKey, FileSources};

/// A probe that the configuration requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredProbe {
    /// The section of the configuration entry: `probes`, `profiles`.
    pub section: &'static str,
    /// Name of the probe.
    pub name: Arc<str>,
    /// Location and arguments.
    pub definition: Definition,
    /// Whether it measures a function from its entry to its return.
    pub timed: bool,
    /// Whether it has a filter, for which the kernel must have its fields.
    pub filtered: bool,
}

/// Section and name of a configuration entry.
pub type Entry = (&'static str, Arc<str>);

/// Result of the installation, by configuration entry: one event, several if a USDT probe has several instances, or the entry and the
/// return of a timed function.
pub type Placements = BTreeMap<Entry, Result<Vec<Placed>, Refusal>>;

impl ConfiguredProbe {
    /// Returns the configuration entry.
    pub fn entry(&self) -> Entry {
        (self.section, Arc::clone(&self.name))
    }

    /// Reports whether the probe is in the kernel instead of a file.
    fn is_in_kernel(&self) -> bool {
        matches!(self.definition.location, Location::Kernel { .. })
    }
}

/// An event, and its record format if it has arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The event to open.
    pub event: Event,
    /// Its record format.
    pub format: Option<Arc<Format>>,
}

/// An installed probe.
#[derive(Debug)]
struct Installed {
    configured: ConfiguredProbe,
    placed: Result<Vec<Placed>, Refusal>,
    /// Names of its tracefs definitions.
    defined: Vec<Arc<str>>,
    /// Description of each event, for users.
    ways: Vec<String>,
    /// The probed files. The kernel accesses them through these descriptors.
    files: Vec<Opened>,
    /// The files at the path at that time, whether they could be probed or not.
    seen: Vec<FileKey>,
    /// What is not probed, for users.
    notes: Vec<String>,
}

/// Description of a probe, for users.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeDescription {
    /// The configuration entry.
    pub entry: Entry,
    /// Its events. They can be opened only if the probe is installed. Only then do they have fields.
    pub events: Vec<Placed>,
    /// For each event, the PMU and the location, or its line in tracefs. Or the reason why there is none.
    pub ways: Result<Vec<String>, Refusal>,
    /// What is not probed although the rest is: files beyond the limit, and files without the location.
    pub notes: Vec<String>,
}

impl ProbeDescription {
    fn of(configured: &ConfiguredProbe) -> Self {
        Self { entry: configured.entry(), events: Vec::new(), ways: Ok(Vec::new()), notes: Vec::new() }
    }
}

/// The tracefs definitions of a probe.
#[derive(Debug)]
pub struct Definitions {
    /// One line for each instance.
    pub lines: Vec<Line>,
    /// The probed files. Keep them open until the kernel has read the lines, because they may refer to their descriptors.
    pub files: Vec<Opened>,
}

/// Finds the location of a probe and returns its tracefs definitions. Changes nothing.
///
/// # Errors
/// The location does not exist, is not accessible, or does not support the arguments.
pub fn definitions(configured: &ConfiguredProbe, files: &Files) -> Result<Definitions, Refusal> {
    let sources = FileSources { files: files.clone(), metadata: None };
    let search = sources.search();
    let (_, found) = place::find(configured, &mut Kernel::ask(files.roots(), [configured]), &search);
    let mut all = Definitions { lines: Vec::new(), files: Vec::new() };
    for site in found?.sites {
        all.lines.extend(events::lines(configured, &site)?);
        all.files.extend(site.file);
    }
    Ok(all)
}

/// All probes of this process.
#[derive(Debug)]
pub struct Installer {
    sources: FileSources,
    /// The thread that opens files; `None` = the calling thread.
    locator: Option<Locator>,
    /// Locations that were found but not used yet.
    found: Vec<LocatedProbe>,
    /// Probes whose paths now refer to a different file.
    moved: Vec<Entry>,
    probes: Probes,
    installed: Vec<Installed>,
    /// Definitions that were still in use when they should have been removed.
    stale: Vec<Arc<str>>,
}

impl Installer {
    /// Returns an installer without probes. `pid` is the process ID if procfs is unavailable.
    pub fn new(files: impl Into<Files>, pid: u32) -> Self {
        let sources = FileSources { files: files.into(), metadata: None };
        let probes = Probes::new(sources.files.roots(), pid);
        let (found, moved) = (Vec::new(), Vec::new());
        Self { sources, locator: None, found, moved, probes, installed: Vec::new(), stale: Vec::new() }
    }

    /// Uses this metadata to find the containers of probes, on the calling thread.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Arc<dyn ContainerMetadata>) -> Self {
        self.sources.metadata = Some(metadata);
        self
    }

    /// Returns an installer for a thread that must not block on files: another thread opens them. A probe whose file is not open within two
    /// seconds is rejected temporarily. [`outdated`](Self::outdated) returns it when the file is open.
    pub fn aside(files: &Files, metadata: Arc<dyn ContainerMetadata>, pid: u32) -> Self {
        let installer = Self::new(files, pid).with_metadata(metadata);
        Self { locator: Locator::start(&installer.sources), ..installer }
    }

    /// Removes the leftovers of ended exporters; see [`Probes::sweep`].
    ///
    /// # Errors
    /// A list of probes exists but cannot be read.
    pub fn sweep(&self) -> Result<Vec<Leftover>, FileError> {
        self.probes.sweep()
    }

    /// Installs the requested probes. Installed probes that are unchanged stay, and failed probes are retried. Other probes are marked for
    /// removal by [`tidy`](Self::tidy), once they are closed.
    pub fn place(&mut self, configured_probes: &[ConfiguredProbe]) -> Placements {
        let old = std::mem::take(&mut self.installed);
        let moved = std::mem::take(&mut self.moved);
        let (mut kept, gone): (Vec<_>, Vec<_>) = old.into_iter().partition(|probe| {
            probe.placed.is_ok()
                && configured_probes.contains(&probe.configured)
                && !moved.contains(&probe.configured.entry())
        });
        self.stale.extend(gone.into_iter().flat_map(|probe| probe.defined));
        let is_kept =
            |configured: &&ConfiguredProbe| kept.iter().any(|probe| probe.configured == **configured);
        let missing = configured_probes.iter().filter(|configured| !is_kept(configured)).cloned().collect();
        let mut located = self.places(missing);
        for configured in configured_probes {
            let there = kept.iter().position(|probe| probe.configured == *configured);
            let probe = match there {
                Some(at) => kept.swap_remove(at),
                None => {
                    let at = located.iter().position(|located| located.configured == *configured);
                    let found = at.map(|at| located.swap_remove(at));
                    self.install(found.unwrap_or_else(|| LocatedProbe::pending(configured)))
                }
            };
            self.installed.push(probe);
        }
        self.installed.iter().map(|probe| (probe.configured.entry(), probe.placed.clone())).collect()
    }

    /// Returns the locations of probes, as far as they are known or found soon.
    fn places(&mut self, mut missing: Vec<ConfiguredProbe>) -> Vec<LocatedProbe> {
        let Some(locator) = &mut self.locator else { return locate(&missing, &self.sources) };
        let mut located = std::mem::take(&mut self.found);
        missing.retain(|configured| !located.iter().any(|located| located.configured == *configured));
        // The kernel's symbols and types cannot block. So kernel probes are located immediately.
        let (in_kernel, in_files): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(ConfiguredProbe::is_in_kernel);
        located.extend(locate(&in_kernel, &self.sources));
        for answer in locator.places(in_files) {
            if let Answer::Places(places) = answer {
                located.extend(places);
            }
        }
        located
    }

    /// Returns a description of each probe without installing it, or the reason why it cannot be installed.
    pub fn look(&self, configured_probes: &[ConfiguredProbe]) -> Vec<ProbeDescription> {
        let roots = self.sources.files.roots();
        let mut kernel = Kernel::ask(roots, configured_probes);
        let search = self.sources.search();
        let look = |configured: &ConfiguredProbe| {
            let mut description = ProbeDescription::of(configured);
            let described = place::find(configured, &mut kernel, &search).1.and_then(|found| {
                let mut ways = Vec::new();
                for site in &found.sites {
                    let mut maker = events::EventCreator::new(configured, site, roots, None);
                    description.events.extend(maker.all()?);
                    ways.append(&mut maker.ways);
                }
                description.notes = found.notes;
                Ok(ways)
            });
            if described.is_err() {
                description.events.clear();
            }
            ProbeDescription { ways: described, ..description }
        };
        configured_probes.iter().map(look).collect()
    }

    /// Returns a description of each installed or failed probe.
    pub fn placed(&self) -> Vec<ProbeDescription> {
        let look = |probe: &Installed| {
            let ways = probe.placed.as_ref().map(|_| probe.ways.clone()).map_err(Refusal::clone);
            ProbeDescription {
                entry: probe.configured.entry(),
                events: probe.placed.clone().unwrap_or_default(),
                ways,
                notes: probe.notes.clone(),
            }
        };
        self.installed.iter().map(look).collect()
    }

    /// Returns the probes whose paths now refer to a different file, which must be installed again: after the upgrade of a package or the
    /// restart of a container, or because a file was finally opened. Paths that currently lead nowhere are skipped. With a separate thread,
    /// this call does not block: it starts a new check if `due`, and returns the results of earlier checks.
    pub fn outdated(&mut self, due: bool) -> Vec<Arc<str>> {
        let configured_probes =
            || self.installed.iter().map(|probe| probe.configured.clone()).collect::<Vec<_>>();
        let Some(locator) = &mut self.locator else {
            let now = if due { locate::files_of(&configured_probes(), &self.sources) } else { Vec::new() };
            return self.note_moved(now);
        };
        if due {
            locator.files(configured_probes());
        }
        match locator.answer() {
            None => Vec::new(),
            Some(Answer::Files(now)) => self.note_moved(now),
            Some(Answer::Places(places)) => {
                self.found = places;
                self.found.iter().map(|located| Arc::clone(&located.configured.name)).collect()
            }
        }
    }

    fn note_moved(&mut self, now: Vec<(Entry, Vec<FileKey>)>) -> Vec<Arc<str>> {
        // Files that are gone need no action: nothing executes them, and their container may only be restarting.
        let is_moved = |(entry, now): &(Entry, Vec<FileKey>)| {
            let probe = self.installed.iter().find(|probe| probe.configured.entry() == *entry);
            probe.is_some_and(|probe| now.iter().any(|file| !probe.seen.contains(file)))
        };
        self.moved = now.into_iter().filter(is_moved).map(|(entry, _)| entry).collect();
        self.moved.iter().map(|(_, name)| Arc::clone(name)).collect()
    }

    /// Removes the definitions that are no longer requested. Definitions in use are retried on the next call.
    pub fn tidy(&mut self) {
        for event in std::mem::take(&mut self.stale) {
            if let Err(refusal) = self.probes.remove(&event) {
                tracing::warn!(probe = %event, "probe not removed yet, will retry: {refusal}");
                self.stale.push(event);
            }
        }
    }

    fn install(&mut self, LocatedProbe { configured, seen, sites }: LocatedProbe) -> Installed {
        let mut probe = Installed {
            configured,
            placed: Ok(Vec::new()),
            defined: Vec::new(),
            ways: Vec::new(),
            files: Vec::new(),
            seen,
            notes: Vec::new(),
        };
        let found = match sites {
            Ok(found) => found,
            Err(refusal) => return Installed { placed: Err(refusal), ..probe },
        };
        let mut placed = Vec::new();
        for site in found.sites {
            let roots = self.sources.files.roots();
            let mut maker =
                events::EventCreator::new(&probe.configured, &site, roots, Some(&mut self.probes));
            let events = maker.all();
            probe.defined.append(&mut maker.defined);
            probe.ways.append(&mut maker.ways);
            match events {
                Ok(events) => placed.extend(events),
                Err(refusal) => {
                    self.stale.append(&mut probe.defined);
                    return Installed { placed: Err(refusal), ..probe };
                }
            }
            probe.files.extend(site.file);
        }
        for note in &found.notes {
            tracing::warn!(probe = %probe.configured.name, "not probed: {note}");
        }
        Installed { placed: Ok(placed), notes: found.notes, ..probe }
    }
}
