//! The sections `tracepoints` and `probes`: their entries, and names that would be one metric.

use std::collections::BTreeMap;

use super::probes::probe;
use super::tracepoints::tracepoint;
use super::{Traced, TracedKind};
use crate::config::Counters;
use crate::config::counters::{metric_word, metrics};
use crate::config::decode::At;
use crate::config::file::{File, Tracepoint};
use crate::config::per::reselected;
use crate::config::presets::presets;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::Selections;
use crate::config::value::Entries;
use crate::config::yaml::NodeId;
use crate::metrics::{Kind, Metadata};

/// What both sections say, over the entries of `base` for one that the file does not mention.
pub(in crate::config) fn traced(
    file: &File,
    base: &[Traced],
    counters: &[Counters],
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Traced> {
    let mut names = Names { counters: metrics(counters), first: BTreeMap::new() };
    let kept =
        |kind| base.iter().filter(move |entry| entry.kind == kind).map(|entry| entry.reselected(selections));
    let mut all = Vec::new();
    match &file.tracepoints {
        Some(entries) => {
            all.extend(section(entries, &mut names, report, |name, entry, report| {
                tracepoint(name, entry, selections, report)
            }));
        }
        None => all.extend(kept(TracedKind::Tracepoint)),
    }
    match &file.probes {
        Some(entries) => {
            all.extend(section(entries, &mut names, report, |name, entry, report| {
                probe(name, entry, selections, report)
            }));
        }
        None => all.extend(kept(TracedKind::Probe)),
    }
    let ready_made = presets(file, base, &all, selections, &mut names, report);
    all.extend(ready_made);
    all
}

/// What entries of `tracepoints` say, whatever else there is.
pub(in crate::config) fn tracepoints(
    entries: &At<Entries<Tracepoint>>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Traced> {
    let all = entries.value.0.iter();
    all.filter_map(|(name, entry)| tracepoint(name, entry, selections, report)).collect()
}

/// The entries of one section, in their order.
fn section<T>(
    entries: &At<Entries<T>>,
    names: &mut Names<'_>,
    report: &mut Report<'_>,
    mut read: impl FnMut(&At<String>, &At<T>, &mut Report<'_>) -> Option<Traced>,
) -> Vec<Traced> {
    let mut all = Vec::new();
    for (name, entry) in &entries.value.0 {
        metric_word(name.node, name, "entries", report);
        if let Some(traced) = read(name, entry, report) {
            names.look(name.node, &traced, report);
            all.push(traced);
        }
    }
    all
}

/// Finds entries that would be one metric. Scopes do not tell them apart: what stands in no series has one metric over
/// all scopes, `perf_unattributed_<name>_total`.
pub(in crate::config) struct Names<'c> {
    /// The metrics of `counters`, and in which entry.
    counters: BTreeMap<String, &'c str>,
    /// The others, and the entry that has each first.
    first: BTreeMap<String, String>,
}

impl Names<'_> {
    fn look(&mut self, node: NodeId, traced: &Traced, report: &mut Report<'_>) {
        if report.blames(node) {
            return;
        }
        match self.clash(traced) {
            Some(message) => report.error(node, message, Some("give the entry another name".into())),
            None => self.take(traced),
        }
    }

    /// Why an entry cannot have its metrics.
    pub(in crate::config) fn clash(&self, traced: &Traced) -> Option<String> {
        let me = me(traced);
        [traced.base().to_owned(), traced.stem()].iter().find_map(|name| {
            let owner = self.first.get(name).filter(|owner| **owner != me).cloned();
            let owner = owner.or_else(|| Some(format!("counters.{}", self.counters.get(name)?)));
            match (Metadata::new(name, "-", "", Kind::Counter), owner) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(_), Some(owner)) => {
                    Some(format!("{} names metrics of {} already", shown(name), shown(&owner)))
                }
                (Ok(_), None) => None,
            }
        })
    }

    /// Its metrics are this entry's.
    pub(in crate::config) fn take(&mut self, traced: &Traced) {
        let me = me(traced);
        self.first.extend([traced.base().to_owned(), traced.stem()].map(|name| (name, me.clone())));
    }
}

/// Where an entry stands, in a word.
fn me(traced: &Traced) -> String {
    format!("{}.{}", traced.kind.section(), traced.name)
}

impl Traced {
    /// The same for other cgroups and processes.
    fn reselected(&self, selections: &Selections) -> Self {
        Self { per: reselected(&self.per, selections), ..self.clone() }
    }
}
