//! Catalog of the events that this host supports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::counter_set::CpuFeatures;
use super::format::Format;
use super::metric::HostConstants;
use super::pmu::{self, Named, Pmu};
use super::tracepoint::Tracepoints;
use super::vendor::{CpuId, ModelTable};
use super::{Kind, generic, parse, pattern, stem};
use crate::error::FileError;
use crate::host::{Facts, KernelVersion, Roots};

/// Catalog of the host's events: perf's generic names, the PMUs of sysfs and the tracepoints of tracefs.
///
/// [`load`](Self::load) reads the PMUs once, about ten small files per PMU. Tracepoints are read on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    pub(super) pmus: Vec<Pmu>,
    pub(super) tracepoints: Tracepoints,
    pub(super) facts: Facts,
    /// The models of the core PMUs with a table of the vendor's events, by the name of the PMU.
    pub(super) models: Vec<(Arc<str>, ModelTable)>,
    /// Properties of the host that metrics depend on.
    pub(super) constants: HostConstants,
    pub(super) features: CpuFeatures,
    problems: Vec<FileError>,
}

/// One line of [`Catalog::events`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name as a configuration spells it: `cycles`, `uncore_imc/cas_count_read/`, `sched:sched_switch`.
    pub name: Arc<str>,
    /// Other names for the same event.
    pub aliases: &'static [&'static str],
    /// The family of the event.
    pub kind: Kind,
    /// The PMU or the tracepoint system that provides the event; `None` for a generic name.
    pub source: Option<Arc<str>>,
    /// Description: one sentence without a full stop.
    pub help: Arc<str>,
}

/// An event that this host cannot provide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event}: {reason}; {}", suggestion.as_ref().map_or_else(|| remedy.clone(), |name| format!("did you mean {name}?")))]
pub struct Unresolved {
    /// The event as written in the configuration.
    pub event: Arc<str>,
    /// The category of the cause.
    pub cause: Missing,
    /// The reason, in words.
    pub reason: String,
    /// What would fix it.
    pub remedy: String,
    /// The most likely intended name.
    pub suggestion: Option<String>,
}

/// Category of the cause for which an event is unavailable. The program acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Missing {
    /// No known host has an event of this name. Most likely a typing error.
    UnknownName,
    /// The PMU exists, but lacks this event or field, or the value does not fit.
    BadTerm,
    /// This kernel has no tracepoint of this name. Most likely a typing error, or it belongs to another kernel or to a module that is not
    /// loaded.
    UnknownTracepoint,
    /// The request is meaningless, or this program does not support it on any host.
    Refused,
    /// Other hosts or kernels provide it, or may provide it. This host does not.
    AbsentOnHost,
    /// This process lacks the required permission.
    Forbidden,
    /// A file of the kernel could not be read or parsed.
    Broken,
}

impl Missing {
    /// Reports whether the text is wrong on every host. A term that one PMU rejects may be valid for another PMU.
    pub const fn is_mistake(self) -> bool {
        matches!(self, Self::UnknownName | Self::Refused)
    }

    /// Reports whether this host has nothing of this name, and another host may have it.
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::UnknownTracepoint | Self::BadTerm)
    }
}

impl Unresolved {
    /// Returns an error that does not name its event yet.
    pub(super) fn new(cause: Missing, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (reason, remedy) = (reason.into(), remedy.into());
        Self { event: Arc::default(), cause, reason, remedy, suggestion: None }
    }

    /// Adds the most likely intended name.
    pub(super) fn meant(self, suggestion: Option<impl Into<String>>) -> Self {
        Self { suggestion: suggestion.map(Into::into), ..self }
    }
}

/// Time between rotations with the usual tick of 250 Hz, in milliseconds.
const ROTATION_INTERVAL_MS: u64 = 4;

/// Names of events, and the description of each.
type Described = BTreeMap<Arc<str>, Arc<str>>;

impl Catalog {
    /// Reads the PMUs from sysfs. Needs no privilege. Unreadable files are skipped and reported by [`problems`](Self::problems).
    pub fn load(roots: &Roots, facts: &Facts) -> Self {
        let mut problems = Vec::new();
        let pmus = pmu::load(&roots.sys, &mut problems);
        let models = pmus.iter().filter(|pmu| pmu.core).filter_map(|pmu| {
            let cpu = pmu.cpus.as_ref().and_then(|cpus| cpus.iter().next()).unwrap_or(0);
            Some((Arc::clone(&pmu.name), ModelTable::of(&CpuId::read(roots, cpu)?)?))
        });
        let models = models.collect();
        let (tracepoints, features) = (Tracepoints::new(roots), CpuFeatures::read(roots));
        let constants = HostConstants::new(roots, &facts.online);
        Self { pmus, tracepoints, facts: facts.clone(), models, constants, features, problems }
    }

    /// Adds the CPUs that each core PMU had in an earlier catalog of this host. Some kernels list only the online CPUs.
    pub fn keep_cpus(&mut self, before: &Self) {
        for pmu in self.pmus.iter_mut().filter(|pmu| pmu.core) {
            let known = before.pmus.iter().find(|known| known.name == pmu.name);
            if let Some((cpus, known)) = pmu.cpus.as_mut().zip(known.and_then(|known| known.cpus.as_ref())) {
                *cpus = cpus.iter().chain(known.iter()).collect();
            }
        }
    }

    /// Returns the facts about the host.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the files that could not be read or parsed. The rest of their PMU is in the catalog.
    pub fn problems(&self) -> &[FileError] {
        &self.problems
    }

    /// Returns the time after which the kernel rotates the groups of a PMU (`perf_event_mux_interval_ms`); `None` = the PMU of the cores.
    /// It is 4 ms if the kernel does not report it.
    pub fn rotation_interval(&self, pmu: Option<&str>) -> Duration {
        let is_meant = |found: &&Pmu| pmu.map_or(found.core, |name| *found.name == *name);
        let interval = self.pmus.iter().find(is_meant).and_then(|pmu| pmu.rotation_interval_ms);
        Duration::from_millis(interval.unwrap_or(ROTATION_INTERVAL_MS))
    }

    /// Reports whether the host has a core PMU. Without one, there are no hardware events.
    pub fn has_core_pmu(&self) -> bool {
        self.pmus.iter().any(|pmu| pmu.core)
    }

    /// Returns the name of the first core PMU.
    pub fn core_pmu(&self) -> Option<&str> {
        self.pmus.iter().find(|pmu| pmu.core).map(|pmu| &*pmu.name)
    }

    /// Reports whether a PMU is one of the cores; `None` = the only one.
    pub fn is_core(&self, pmu: Option<&str>) -> bool {
        pmu.is_none() || self.pmus.iter().any(|found| found.core && pmu == Some(&*found.name))
    }

    /// Returns the names of the PMUs, as in sysfs.
    pub fn pmus(&self) -> impl Iterator<Item = &str> {
        self.pmus.iter().map(|pmu| &*pmu.name)
    }

    /// Returns every event that has a name on this host: generic names, then PMUs, then tracepoints, each sorted by source. Reads tracefs;
    /// if tracefs is not accessible, the result has no tracepoints. Files whose names the grammar does not accept are skipped.
    pub fn events(&self) -> impl Iterator<Item = Listed> + '_ {
        let generics = generic::all().filter(|(event, _)| self.has(event.since)).map(|(event, aliases)| {
            Listed { name: event.name, aliases, kind: event.kind, source: None, help: event.help }
        });
        let tracepoints = self.tracepoints.names().map(|(system, event)| Listed {
            name: format!("{system}:{event}").into(),
            aliases: &[],
            kind: Kind::Tracepoint,
            help: format!("Number of times the kernel reached the tracepoint {system}:{event}").into(),
            source: Some(system.into()),
        });
        generics.chain(self.pmu_events()).chain(tracepoints).filter(|listed| parse(&listed.name).is_ok())
    }

    /// Returns the record format of the tracepoint `SYSTEM:EVENT`. Reads one file of tracefs.
    ///
    /// # Errors
    /// The kernel's error, or [`Malformed`](crate::error::FileErrorKind::Malformed) for an invalid tracepoint name and for a file that is
    /// not a valid format.
    pub fn format(&self, system: &str, event: &str) -> Result<Format, FileError> {
        self.tracepoints.format(system, event)
    }

    /// Returns the events of the PMUs: those of sysfs and those of the vendor's table. Events of one PMU family are listed once.
    fn pmu_events(&self) -> impl Iterator<Item = Listed> + '_ {
        let mut families: BTreeMap<&str, (&Pmu, Described)> = BTreeMap::new();
        for pmu in &self.pmus {
            // A generic name for the same event is already listed.
            let own = pmu.events.iter().filter(|(name, _)| !pmu.core || generic::find(name).is_none());
            let family = stem::without_instance(&pmu.name);
            let (_, events) = families.entry(family).or_insert((pmu, Described::new()));
            events.extend(own.map(|(event, named)| (named.written(event), pmu_help(family, event).into())));
        }
        for (pmu, events) in families.values_mut() {
            let Some(table) = self.vendor(pmu) else { continue };
            for event in table.events_of(&pmu.name, pmu.core) {
                events.entry(event.name.into()).or_insert_with(|| event.help(&table.model));
            }
        }
        families.into_iter().flat_map(|(family, (pmu, events))| {
            let source: Arc<str> = family.into();
            events.into_iter().map(move |(event, help)| Listed {
                name: format!("{family}/{event}/").into(),
                aliases: &[],
                kind: pmu.events_kind(),
                source: Some(Arc::clone(&source)),
                help,
            })
        })
    }

    /// Returns the table with the vendor's events of a PMU. PMUs outside of the cores have those of the first core PMU's model.
    pub(super) fn vendor(&self, pmu: &Pmu) -> Option<&ModelTable> {
        let own = self.models.iter().find(|(name, _)| !pmu.core || *name == pmu.name);
        own.map(|(_, table)| table)
    }

    /// Returns the event of the vendor's table with this name, for a PMU.
    pub(super) fn vendor_event(&self, pmu: &Pmu, name: &str) -> Option<Named> {
        let table = self.vendor(pmu)?;
        let event = table.find(&pmu.name, pmu.core, name)?;
        Some(Named { help: Some(event.help(&table.model)), ..event.named()? })
    }

    /// Reports whether the kernel is at least `since`. An unknown kernel version counts as recent enough.
    pub(super) fn has(&self, since: KernelVersion) -> bool {
        self.facts.kernel == KernelVersion::default() || self.facts.kernel >= since
    }

    /// Returns the core PMUs: more than one on a hybrid machine.
    pub(super) fn core_pmus(&self) -> Vec<&Pmu> {
        self.pmus.iter().filter(|pmu| pmu.core).collect()
    }

    /// Returns the PMUs that a word selects, as in perf: an exact name, a pattern, or a family (`uncore_imc` for `uncore_imc_0` …). The
    /// prefix `uncore_` may be omitted. `cpu` selects every core PMU.
    pub(super) fn select(&self, word: &str) -> Vec<&Pmu> {
        if let Some(exact) = self.pmus.iter().find(|pmu| &*pmu.name == word) {
            return vec![exact];
        }
        if word == "cpu" {
            return self.core_pmus();
        }
        let is_meant = |name: &str| match pattern::is_pattern(word) {
            true => pattern::matches(word, name),
            false => name == word || stem::without_instance(name) == word,
        };
        let either =
            |pmu: &&Pmu| is_meant(&pmu.name) || pmu.name.strip_prefix("uncore_").is_some_and(is_meant);
        self.pmus.iter().filter(either).collect()
    }
}

/// Returns the description of an event that a PMU names.
pub(super) fn pmu_help(family: &str, event: &str) -> String {
    format!("Event {event} of the PMU {family}")
}
