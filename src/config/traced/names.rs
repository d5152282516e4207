//! Detection of entries with the same metric name.

use std::collections::BTreeMap;

use super::Traced;
use crate::config::Counters;
use crate::config::counters::metrics;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::yaml::NodeId;
use crate::metrics::{Kind, Metadata};

/// Detects entries with the same metric name. Different scopes do not prevent a conflict, because all scopes share the metric of
/// unattributed events, `perf_unattributed_<name>_total`.
pub(super) struct Names<'c> {
    /// Metrics of `counters`, with their entries.
    counters: BTreeMap<String, &'c str>,
    /// Other metrics, with the first entry that has each.
    first: BTreeMap<String, String>,
}

impl<'c> Names<'c> {
    pub(super) fn new(counters: &'c [Counters]) -> Self {
        Self { counters: metrics(counters), first: BTreeMap::new() }
    }

    /// Claims the metric names of an entry, or reports a conflict.
    pub(super) fn look(&mut self, node: NodeId, traced: &Traced, report: &mut Report<'_>) {
        if report.blames(node) {
            return;
        }
        match self.clash(traced) {
            Some(message) => report.error(node, message, "give the entry another name"),
            None => self.take(traced),
        }
    }

    /// Returns the conflict of an entry's metric names, if there is one.
    pub(super) fn clash(&self, traced: &Traced) -> Option<String> {
        let me = me(traced);
        [traced.base().to_owned(), traced.stem()].iter().find_map(|name| {
            let owner = self.first.get(name).filter(|owner| **owner != me).cloned();
            let owner = owner.or_else(|| Some(format!("counters.{}", self.counters.get(name)?)));
            match (Metadata::new(name, "-", "", Kind::Counter), owner) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(_), Some(owner)) => {
                    Some(format!("{} is already the name of metrics of {}", shown(name), shown(&owner)))
                }
                (Ok(_), None) => None,
            }
        })
    }

    /// Claims the metric names of the entry.
    pub(super) fn take(&mut self, traced: &Traced) {
        let me = me(traced);
        self.first.extend([traced.base().to_owned(), traced.stem()].map(|name| (name, me.clone())));
    }
}

/// Returns the path of an entry.
fn me(traced: &Traced) -> String {
    format!("{}.{}", traced.kind.section(), traced.name)
}
