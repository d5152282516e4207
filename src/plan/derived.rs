//! Metrics of entries: the groups of events that they are computed from.

use std::sync::Arc;

use super::{Builder, Group, PlanRefusal, refusal};
use crate::config::{Counters, MetricUse};
use crate::deep;
use crate::event::metric;
use crate::event::syntax::{self, Name};
use crate::event::{Catalog, Event, Kind, Unresolved};
use crate::health::Refusal;
use crate::targets::Targets;

impl Builder<'_> {
    /// Plans the events of the metrics of an entry, for one scope. An event that is counted for the same targets already is left out: both
    /// counts would be one series.
    pub(super) fn metrics(&mut self, catalog: &Catalog, entry: &Counters, per: &Targets) {
        let mut groups = Vec::new();
        for metric in &entry.metrics {
            match needs(catalog, metric) {
                Ok(needs) => groups.extend(needs),
                Err((name, unresolved)) => {
                    let refusal = PlanRefusal::unresolved(&symbol(&name), &unresolved);
                    self.refuse(&entry.name, per.scope(), refusal);
                }
            }
        }
        for group in metric::packed(groups) {
            let mut resolved: Vec<Event> = Vec::new();
            for event in &group.events {
                match catalog.resolve(event) {
                    Ok(instances) => {
                        let name = &entry.name;
                        resolved.extend(instances.into_iter().filter(|event| !self.counts(name, per, event)));
                    }
                    Err(unresolved) => {
                        self.refuse(&entry.name, per.scope(), PlanRefusal::unresolved(event, &unresolved));
                    }
                }
            }
            self.add(&entry.name, per, resolved);
        }
    }

    /// Reports whether an event is counted for the same targets under the same name. An entry of `counters` that counts an event of a set of
    /// `deep` per cgroup counts it for the cgroups of the set.
    fn counts(&self, entry: &str, per: &Targets, event: &Event) -> bool {
        let beside_cores = event.kind == Kind::Pmu && event.cpus.is_some();
        let same = |Group { entry: other, targets, .. }: &&Group| {
            targets == per
                || deep::is_entry(entry) && !deep::is_entry(other) && targets.scope() == per.scope()
                || beside_cores && matches!(targets, Targets::Cpus(_))
        };
        let groups = self.groups.iter().filter(same);
        let mut counted = groups.flat_map(|group| &group.counters).map(|counter| &counter.event);
        counted.any(|counted| counted.stem == event.stem && counted.pmu == event.pmu)
    }
}

/// Returns the groups of events that a metric needs on this host.
///
/// # Errors
/// The refusal of a metric that this host does not have.
pub fn metric_groups(catalog: &Catalog, metric: &MetricUse) -> Result<Vec<syntax::Group>, Refusal> {
    needs(catalog, metric).map_err(|(name, unresolved)| refusal(&symbol(&name), &unresolved))
}

fn needs(catalog: &Catalog, metric: &MetricUse) -> Result<Vec<syntax::Group>, (Arc<str>, Unresolved)> {
    match metric {
        MetricUse::BuiltIn(name) => {
            let metrics = catalog.metrics(name).map_err(|unresolved| (Arc::clone(name), unresolved))?;
            Ok(metrics.into_iter().flat_map(|metric| metric.needs).collect())
        }
        MetricUse::Derived(derived) => Ok(metric::groups(&catalog.on_host(&derived.expression), None)),
    }
}

fn symbol(name: &Arc<str>) -> syntax::Event {
    syntax::Event { name: Name::Symbol(Arc::clone(name)), modifiers: "".into(), alias: None }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use crate::clock::{Monotonic, Timestamp};
    use crate::config;
    use crate::deep::{Moment, Registry};
    use crate::event::Catalog;
    use crate::host::{Facts, Roots};
    use crate::plan::{Entries, Plan, StreamSupport, plan};
    use crate::targets::Cgroup;

    fn planned(yaml: &str, host: &str) -> Plan {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts").join(host);
        let roots = Roots::under(&root);
        let catalog = Catalog::load(&roots, &Facts::read(&roots));
        let (config, _) = config::load(yaml.as_bytes(), "f").unwrap();
        plan(&Entries::counters(&config.counters), &catalog, &StreamSupport::foreseen(catalog.facts()))
    }

    /// Returns the metrics of each group, by entry.
    fn groups(plan: &Plan) -> Vec<String> {
        let metrics = |group: &crate::plan::Group| {
            let names = group.counters.iter().map(|counter| counter.metric.sample_name());
            format!("{}: {}", group.entry, names.collect::<Vec<_>>().join(" "))
        };
        plan.groups.iter().map(|group| metrics(group)).collect()
    }

    #[test]
    fn metrics_with_common_events_share_a_group_and_count_each_event_once() {
        let plan = planned("counters: {a: {metrics: [ipc, branch_mpki, cpi]}}", "intel-server");
        assert_eq!(
            groups(&plan),
            ["a: perf_cpu_instructions_total perf_cpu_cycles_total perf_cpu_branch_misses_total"]
        );
        assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    }

    #[test]
    fn an_event_that_another_entry_counts_is_not_counted_again_whatever_their_order() {
        let plan = planned("counters: {a: {metrics: ipc}, b: {events: [cycles, faults]}}", "intel-server");
        assert_eq!(
            groups(&plan),
            ["b: perf_cpu_cycles_total perf_cpu_faults_total", "a: perf_cpu_instructions_total"]
                .map(|text| text.replace("faults", "page_faults"))
        );
        assert!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    }

    #[test]
    fn the_events_of_metrics_have_the_priority_of_their_entry() {
        let entries = ["metrics: ipc, priority: always", "events: [r1a8], per: cpu"];
        for [first, second] in [entries, [entries[1], entries[0]]] {
            let plan = planned(&format!("counters: {{a: {{{first}}}, b: {{{second}}}}}"), "intel-server");
            let pinned = plan.groups.iter().map(|group| {
                let leader = &group.counters[0].event;
                (&*leader.name, leader.modifiers.pinned)
            });
            assert_eq!(pinned.collect::<Vec<_>>(), [("r1a8", false), ("instructions", true)]);
        }
    }

    #[test]
    fn a_category_of_slots_in_a_metric_of_the_file_brings_slots_with_it() {
        let yaml = "derived: {x: {expression: 'cpu_core/topdown-retiring/ / cpu_core/cycles/'}}\ncounters: {a: {metrics: x}}";
        let plan = planned(yaml, "intel-hybrid");
        assert_eq!(plan.groups.len(), 1, "{:?}", plan.refusals);
        let names: Vec<&str> = plan.groups[0].counters.iter().map(|counter| &*counter.event.name).collect();
        assert_eq!(names, ["cpu_core/slots/", "cpu_core/topdown-retiring/", "cpu_core/cycles/"]);
    }

    #[test]
    fn the_events_of_a_metric_of_the_file_are_counted() {
        let yaml = "derived: {x: {expression: 'r1a8 / (cycles + 0 * #num_cpus_online)'}}\ncounters: {a: {metrics: x, per: cgroup}}";
        let plan = planned(yaml, "intel-server");
        assert_eq!(groups(&plan), ["a: perf_cgroup_r1a8_total perf_cgroup_cycles_total"]);
    }

    #[test]
    fn a_set_counts_the_events_of_its_metrics_that_no_entry_counts_per_cgroup() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts/intel-server");
        let roots = Roots::under(&root);
        let catalog = Catalog::load(&roots, &Facts::read(&roots));
        let (config, _) = config::load(b"counters: {a: {events: [cycles], per: cgroup}}", "f").unwrap();
        let cgroups = [Arc::new(Cgroup::at("/x")), Arc::new(Cgroup::at("/y"))];
        let mut registry = Registry::default();
        for (metrics, cgroup) in [("ipc", "/x"), ("branch_mpki", "/y")] {
            let request = format!(r#"{{"metrics": ["{metrics}"], "cgroups": ["{cgroup}"]}}"#);
            let request = config::load_deep(request.as_bytes()).unwrap();
            let now = Moment { monotonic: Monotonic(Duration::ZERO), wall: Timestamp(0) };
            registry.request(request, "test", (&config.counters, &cgroups, 16), now).unwrap();
        }
        let entries = [config.counters.to_vec(), registry.entries(&config.counters)].concat();
        let support = StreamSupport::foreseen(catalog.facts());
        let plan = plan(&Entries::counters(&entries), &catalog, &support);
        let expected = [
            "a: perf_cgroup_cycles_total",
            "deep:ipc: perf_cgroup_instructions_total",
            "deep:branch_mpki: perf_cgroup_branch_misses_total",
        ];
        assert_eq!(groups(&plan), expected);
        // Both sets need instructions, which one series cannot have for different cgroups from two entries.
        let [refused] = &plan.refusals[..] else { panic!("{:?}", plan.refusals) };
        assert!(refused.refusal.reason.ends_with("is already counted by entry deep:ipc"), "{refused:?}");
    }

    #[test]
    fn a_metric_of_other_cpus_is_a_refusal_and_no_mistake() {
        let plan = planned("counters: {a: {metrics: [smt_contention, ipc]}}", "intel-server");
        let [refused] = &plan.refusals[..] else { panic!("{:?}", plan.refusals) };
        assert!(!refused.mistake, "{refused:?}");
        assert_eq!(&*refused.refusal.event, "smt_contention");
        assert!(refused.refusal.reason.contains("AMD Zen 4"), "{refused:?}");
        assert_eq!(plan.groups.len(), 1);
    }
}
