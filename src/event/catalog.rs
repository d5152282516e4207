//! What can be named on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::format::Format;
use super::pmu::{self, Pmu};
use super::tracepoint::Tracepoints;
use super::{Kind, generic, parse, pattern, stem};
use crate::error::FileError;
use crate::host::{Facts, KernelVersion, Roots};

/// The events of this host: perf's generic names, the PMUs of sysfs, the tracepoints of tracefs.
///
/// PMUs are read once, by [`load`](Self::load) (about ten small files for each); tracepoints when they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    pub(super) pmus: Vec<Pmu>,
    pub(super) tracepoints: Tracepoints,
    pub(super) facts: Facts,
    problems: Vec<FileError>,
}

/// One line of [`Catalog::events`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// As it can be written in a configuration: `cycles`, `uncore_imc/cas_count_read/`, `sched:sched_switch`.
    pub name: Arc<str>,
    /// Other names for the same.
    pub aliases: &'static [&'static str],
    /// Its family.
    pub kind: Kind,
    /// The PMU or the tracepoint system that it comes from; `None` for a generic name.
    pub source: Option<Arc<str>>,
    /// One sentence, without a full stop at its end.
    pub help: Arc<str>,
}

/// An event that cannot be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// As written.
    pub event: Arc<str>,
    /// What kind of answer this is.
    pub cause: Missing,
    /// Why.
    pub reason: String,
    /// What would help.
    pub remedy: String,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
}

/// Why an event cannot be had, as far as the program acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Missing {
    /// No host has an event of this name, as far as is known: most likely a typing error.
    UnknownName,
    /// The PMU is here, and has no such event or field, or the value does not fit.
    BadTerm,
    /// It asks for something that has no meaning, or that this program does not do, on any host.
    Refused,
    /// Other hosts or kernels have it, or may have it, and this one does not.
    AbsentOnHost,
    /// This process may not look.
    Forbidden,
    /// A file of the kernel could not be used.
    Broken,
}

impl Missing {
    /// Whether the same text is wrong on every host. A term may be right for the PMU of another one.
    pub const fn is_mistake(self) -> bool {
        matches!(self, Self::UnknownName | Self::Refused)
    }
}

impl Unresolved {
    /// Before it is known which event it is about.
    pub(super) fn new(cause: Missing, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (reason, remedy) = (reason.into(), remedy.into());
        Self { event: Arc::default(), cause, reason, remedy, suggestion: None }
    }

    /// With the name that was probably meant.
    pub(super) fn meant(self, suggestion: Option<impl Into<String>>) -> Self {
        Self { suggestion: suggestion.map(Into::into), ..self }
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, reason, remedy, suggestion, .. } = self;
        write!(f, "{event}: {reason}")?;
        match suggestion {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => write!(f, "; {remedy}"),
        }
    }
}

impl std::error::Error for Unresolved {}

impl Catalog {
    /// Reads what sysfs says about PMUs. Needs no privilege. What cannot be read is left out and told by
    /// [`problems`](Self::problems).
    pub fn load(roots: &Roots, facts: &Facts) -> Self {
        let mut problems = Vec::new();
        let pmus = pmu::load(&roots.sys, &mut problems);
        Self { pmus, tracepoints: Tracepoints::new(roots), facts: facts.clone(), problems }
    }

    /// Adds the CPUs that a kind of core had in an earlier catalog of this host. Some kernels list only those that are online.
    pub fn keep_cpus(&mut self, before: &Self) {
        for pmu in self.pmus.iter_mut().filter(|pmu| pmu.core) {
            let known = before.pmus.iter().find(|known| known.name == pmu.name);
            if let Some((cpus, known)) = pmu.cpus.as_mut().zip(known.and_then(|known| known.cpus.as_ref())) {
                *cpus = cpus.iter().chain(known.iter()).collect();
            }
        }
    }

    /// What is known of the host.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The files that broke their format or could not be read. The rest of their PMU is there.
    pub fn problems(&self) -> &[FileError] {
        &self.problems
    }

    /// Whether the host has a PMU for its cores: without one there is no hardware event at all.
    pub fn has_core_pmu(&self) -> bool {
        self.pmus.iter().any(|pmu| pmu.core)
    }

    /// The names of the PMUs, as in sysfs.
    pub fn pmus(&self) -> impl Iterator<Item = &str> {
        self.pmus.iter().map(|pmu| &*pmu.name)
    }

    /// Every event that has a name here: generic names, then PMUs, then tracepoints, each sorted by source. Reads
    /// tracefs; where that is refused, there are no tracepoints. A file whose name the grammar cannot take is left out.
    pub fn events(&self) -> impl Iterator<Item = Listed> + '_ {
        let generics = generic::all().filter(|(event, _)| self.has(event.since)).map(|(event, aliases)| {
            Listed { name: event.name, aliases, kind: event.kind, source: None, help: event.help }
        });
        let tracepoints = self.tracepoints.names().map(|(system, event)| Listed {
            name: format!("{system}:{event}").into(),
            aliases: &[],
            kind: Kind::Tracepoint,
            help: format!("Times that the tracepoint {system}:{event} was passed").into(),
            source: Some(system.into()),
        });
        generics.chain(self.pmu_events()).chain(tracepoints).filter(|listed| parse(&listed.name).is_ok())
    }

    /// What the tracepoint `SYSTEM:EVENT` records. Reads one file of tracefs.
    ///
    /// # Errors
    /// The kernel's refusal, or [`Malformed`](crate::error::FileErrorKind::Malformed) for a name that cannot be one
    /// and for a file that is no format.
    pub fn format(&self, system: &str, event: &str) -> Result<Format, FileError> {
        self.tracepoints.format(system, event)
    }

    /// The events of PMUs, those of one family once.
    fn pmu_events(&self) -> impl Iterator<Item = Listed> + '_ {
        let mut families: BTreeMap<&str, (&Pmu, BTreeSet<&Arc<str>>)> = BTreeMap::new();
        for pmu in &self.pmus {
            // A generic name is the same event, and listed as such.
            let own = pmu.events.keys().filter(|name| !pmu.core || generic::find(name).is_none());
            let (_, events) =
                families.entry(stem::without_instance(&pmu.name)).or_insert((pmu, BTreeSet::new()));
            events.extend(own);
        }
        families.into_iter().flat_map(|(family, (pmu, events))| {
            let source: Arc<str> = family.into();
            events.into_iter().map(move |event| Listed {
                name: format!("{family}/{event}/").into(),
                aliases: &[],
                kind: pmu.events_kind(),
                source: Some(Arc::clone(&source)),
                help: pmu_help(family, event),
            })
        })
    }

    /// Whether the kernel is at least `since`; a kernel whose version is unknown is taken to be.
    pub(super) fn has(&self, since: KernelVersion) -> bool {
        self.facts.kernel == KernelVersion::default() || self.facts.kernel >= since
    }

    /// The PMUs of the cores: more than one on a hybrid machine.
    pub(super) fn core_pmus(&self) -> Vec<&Pmu> {
        self.pmus.iter().filter(|pmu| pmu.core).collect()
    }

    /// The PMUs that a word stands for, as in perf: one by its name; or those that match a pattern; or those of a
    /// family (`uncore_imc` for `uncore_imc_0` …); all with `uncore_` left out as well; and `cpu` for every kind of
    /// core.
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

/// The help of an event that a PMU names.
pub(super) fn pmu_help(family: &str, event: &str) -> Arc<str> {
    format!("Event {event} of the PMU {family}").into()
}
