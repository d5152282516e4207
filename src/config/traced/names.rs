//! Names of entries that would be one metric.

use std::collections::BTreeMap;

use super::Traced;
use crate::config::Counters;
use crate::config::counters::metrics;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::yaml::NodeId;
use crate::metrics::{Kind, Metadata};

/// Finds entries that would be one metric. Scopes do not tell them apart: what stands in no series has one metric over
/// all scopes, `perf_unattributed_<name>_total`.
pub(super) struct Names<'c> {
    /// The metrics of `counters`, and in which entry.
    counters: BTreeMap<String, &'c str>,
    /// The others, and the entry that has each first.
    first: BTreeMap<String, String>,
}

impl<'c> Names<'c> {
    pub(super) fn new(counters: &'c [Counters]) -> Self {
        Self { counters: metrics(counters), first: BTreeMap::new() }
    }

    /// Takes the metrics of an entry, or reports why they cannot be had.
    pub(super) fn look(&mut self, node: NodeId, traced: &Traced, report: &mut Report<'_>) {
        if report.blames(node) {
            return;
        }
        match self.clash(traced) {
            Some(message) => report.error(node, message, "give the entry another name"),
            None => self.take(traced),
        }
    }

    /// Why an entry cannot have its metrics.
    pub(super) fn clash(&self, traced: &Traced) -> Option<String> {
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
    pub(super) fn take(&mut self, traced: &Traced) {
        let me = me(traced);
        self.first.extend([traced.base().to_owned(), traced.stem()].map(|name| (name, me.clone())));
    }
}

/// Where an entry stands, in a word.
fn me(traced: &Traced) -> String {
    format!("{}.{}", traced.kind.section(), traced.name)
}
