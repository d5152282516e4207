//! All rules of a configuration that select containers by their metadata.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::traced::EventSource;
use super::{Config, profiled};
use crate::probe::{Definition, Within};
use crate::targets::{PodRule, Targets};

impl Config {
    /// Returns all rules that select containers by their metadata.
    pub fn pod_rules(&self) -> impl Iterator<Item = &PodRule> {
        let counters = self.counters.iter().flat_map(|entry| &entry.per);
        let traced = self.traced.iter().flat_map(|entry| &entry.per);
        let scheduler = self.scheduler.iter().flat_map(|section| &section.per);
        let syscalls = self.syscalls.iter().flat_map(|section| &section.per);
        let counted = counters.chain(traced).chain(scheduler).chain(syscalls);
        let counted = counted.filter_map(|targets| match targets {
            Targets::Cgroups(selection) => Some(selection),
            Targets::Cpus(_) | Targets::Processes(_) => None,
        });
        let sampled = self.profiles.iter().filter_map(|entry| entry.targets.cgroups.as_ref());
        let probes = self.traced.iter().filter_map(|entry| match &entry.source {
            EventSource::Probe(definition) | EventSource::Timed(definition) => Some(definition),
            EventSource::Events(_) | EventSource::Pair(_) => None,
        });
        let sampled_probes = self.profiles.iter().filter_map(|entry| match &entry.source {
            profiled::Source::Probe { definition, .. } => Some(definition),
            _ => None,
        });
        let of_probe = |definition| match within_of(definition) {
            Within::Containers(rule) if !rule.pod.is_empty() => Some(&rule.pod),
            _ => None,
        };
        let selections = counted.chain(sampled).flat_map(|selection| selection.pods.rules());
        let deep = self.deep.iter().map(|set| &set.cgroups).flat_map(|selection| selection.pods.rules());
        selections.chain(deep).chain(probes.chain(sampled_probes).filter_map(of_probe))
    }

    /// Returns the keys of the pod labels in all rules, in alphabetical order.
    pub(super) fn selecting_labels(&self) -> Vec<Arc<str>> {
        let keys: BTreeSet<&Arc<str>> = self.pod_rules().flat_map(PodRule::label_keys).collect();
        keys.into_iter().cloned().collect()
    }
}

fn within_of(definition: &Definition) -> &Within {
    &definition.within
}
