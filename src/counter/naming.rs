//! Selection of targets by groups, and labels of their series.

use std::sync::Arc;

use super::subject::Subject;
use crate::metrics::Labels;
use crate::plan::Group;
use crate::series::{Naming, Own, OwnName};
use crate::targets::Targets;

/// Reports whether a group selects this target.
pub(super) fn selects(plan: &Group, subject: &Subject) -> bool {
    match (&plan.targets, subject) {
        (Targets::Cpus(_), Subject::Cpu(_)) => true,
        (Targets::Cgroups(selection), Subject::Cgroup(cgroup)) => selection.matches(cgroup),
        (Targets::Processes(selection), Subject::Process(process)) => selection.matches(process),
        _ => false,
    }
}

/// Returns the labels of the series of a target. `rest`: labels of the aggregated series.
pub(super) fn naming_of<I: Default>(plan: &Group, rest: &Arc<Labels>, subject: &Subject) -> Naming<I> {
    let rest = Arc::clone(rest);
    let labels = match (&plan.targets, subject) {
        (Targets::Processes(selection), Subject::Process(process)) => {
            let own = selection.own_name(process).map(|name| {
                let owner = process.cgroup.clone().unwrap_or_default();
                let labels = labels(plan, selection.labels_without_name(process));
                Own { name: OwnName { owner, name }, labels, info: I::default() }
            });
            return Naming { labels: labels(plan, selection.labels(process)), rest, own, info: I::default() };
        }
        (_, Subject::Cgroup(cgroup)) => labels(plan, [("cgroup", Arc::clone(&cgroup.path))]),
        (Targets::Cpus(cpus), Subject::Cpu(cpu)) => labels(plan, cpus.label_of(*cpu)),
        (_, Subject::Cpu(_)) => labels(plan, None),
        (_, Subject::Process(process)) => labels(plan, [("comm", Arc::clone(&process.comm))]),
    };
    Naming { labels, rest, own: None, info: I::default() }
}

/// Returns the labels of the aggregated series.
pub(super) fn other_labels(plan: &Group) -> Arc<Labels> {
    let rest = || Arc::from("other");
    match &plan.targets {
        Targets::Cpus(cpus) => labels(plan, cpus.label().map(|label| (label, rest()))),
        Targets::Cgroups(_) => labels(plan, [("cgroup", rest())]),
        Targets::Processes(selection) => labels(plan, selection.by.iter().map(|by| (by.as_str(), rest()))),
    }
}

/// Returns the labels that distinguish the series of a group in families about all groups.
pub(super) fn group_labels(plan: &Group) -> Vec<(Arc<str>, Arc<str>)> {
    let leader = plan.counters.first().map_or_else(|| "".into(), |counter| Arc::clone(&counter.event.name));
    vec![
        ("counters".into(), Arc::clone(&plan.entry)),
        ("leader".into(), leader),
        ("scope".into(), plan.scope().as_str().into()),
        ("pmu".into(), plan.pmu.clone().unwrap_or_else(|| "".into())),
    ]
}

/// Returns the labels of a series of a group, including its PMU or its event where there are several.
pub(super) fn labels<'a>(plan: &Group, own: impl IntoIterator<Item = (&'a str, Arc<str>)>) -> Arc<Labels> {
    let pmu = plan.pmu.iter().map(|pmu| ("pmu", Arc::clone(pmu)));
    let event = plan.event.iter().map(|event| ("event", Arc::clone(event)));
    Labels::new(own.into_iter().chain(pmu).chain(event))
}
