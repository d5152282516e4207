//! Names of metrics for `-M`: those that are derived from counts, with the events that they need.

use crate::event::{nearest, parse, syntax};

/// A metric that `-M` selects. Names are those of perf (`pmu-events/arch/common/common/metrics.json`, Linux 6.19), as far as it has them.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    name: &'static str,
    /// Another name; empty without one.
    alias: &'static str,
    group: &'static str,
    /// The events that it is derived from.
    events: &'static str,
}

const fn named(name: &'static str, alias: &'static str, group: &'static str, events: &'static str) -> Named {
    Named { name, alias, group, events }
}

const DEFAULT: &str = "Default";
const CACHE: &str = "Cache";
const TLB: &str = "TLB";

const METRICS: [Named; 17] = [
    named("CPUs_utilized", "", DEFAULT, "task-clock"),
    named("cs_per_second", "", DEFAULT, "task-clock,context-switches"),
    named("migrations_per_second", "", DEFAULT, "task-clock,cpu-migrations"),
    named("page_faults_per_second", "", DEFAULT, "task-clock,page-faults"),
    named("cycles_frequency", "GHz", DEFAULT, "task-clock,cycles"),
    named("insn_per_cycle", "IPC", DEFAULT, "{instructions,cycles}"),
    named(
        "stalled_cycles_per_instruction",
        "",
        DEFAULT,
        "{instructions,stalled-cycles-frontend,stalled-cycles-backend}",
    ),
    named("frontend_cycles_idle", "", DEFAULT, "{stalled-cycles-frontend,cycles}"),
    named("backend_cycles_idle", "", DEFAULT, "{stalled-cycles-backend,cycles}"),
    named("branch_frequency", "", DEFAULT, "task-clock,branches"),
    named("branch_miss_rate", "", DEFAULT, "{branches,branch-misses}"),
    named("cache_miss_rate", "", CACHE, "{cache-references,cache-misses}"),
    named("l1d_miss_rate", "", CACHE, "{L1-dcache-loads,L1-dcache-load-misses}"),
    named("llc_miss_rate", "", CACHE, "{LLC-loads,LLC-load-misses}"),
    named("l1i_miss_rate", "", CACHE, "{L1-icache-loads,L1-icache-load-misses}"),
    named("dtlb_miss_rate", "", TLB, "{dTLB-loads,dTLB-load-misses}"),
    named("itlb_miss_rate", "", TLB, "{iTLB-loads,iTLB-load-misses}"),
];

/// The groups of metrics.
const GROUPS: [&str; 3] = [DEFAULT, CACHE, TLB];

/// Metrics of one `-M` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricList(Vec<&'static Named>);

impl MetricList {
    /// Parses comma-separated names of metrics and groups. Case is ignored.
    ///
    /// # Errors
    /// Names the closest metric of an unknown name, and all metrics and groups.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut found = Vec::new();
        for word in text.split(',').map(str::trim) {
            let is = |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(word);
            let before = found.len();
            let selected = |metric: &&Named| is(metric.name) || is(metric.alias) || is(metric.group);
            found.extend(METRICS.iter().filter(selected));
            if found.len() == before {
                return Err(unknown(word));
            }
        }
        Ok(Self(found))
    }

    /// Returns the names of the metrics.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|metric| metric.name)
    }
}

/// Adds the events that the metrics of all lists are derived from, unless a group counts them already.
pub(super) fn add_events(lists: &[MetricList], to: &mut Vec<syntax::Group>) {
    let metrics = lists.iter().flat_map(|list| &list.0);
    // A test checks that all events parse.
    let mut needed: Vec<syntax::Group> =
        metrics.flat_map(|metric| parse(metric.events).unwrap_or_default()).collect();
    // Large groups contain smaller ones.
    needed.sort_by_key(|group| std::cmp::Reverse(group.events.len()));
    for group in needed {
        let has_all = |other: &syntax::Group| group.events.iter().all(|event| other.events.contains(event));
        if !to.iter().any(has_all) {
            to.push(group);
        }
    }
}

fn unknown(word: &str) -> String {
    let names = || METRICS.iter().map(|metric| metric.name);
    let aliases = METRICS.iter().map(|metric| metric.alias).filter(|alias| !alias.is_empty());
    let near = nearest(word, names().chain(aliases).chain(GROUPS));
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let names: Vec<&str> = names().collect();
    format!(
        "there is no metric {word:?}{near}\n  metrics: {}\n  groups: {}",
        names.join(", "),
        GROUPS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::aggregation::Parts;
    use crate::cli::stat::table::Frame;
    use crate::cli::stat::tests::testing::lines;

    #[test]
    fn names_aliases_and_groups_select_metrics() {
        let names = |text: &str| MetricList::parse(text).unwrap().names().collect::<Vec<_>>();
        assert_eq!(names("IPC, ghz"), ["insn_per_cycle", "cycles_frequency"]);
        assert_eq!(names("tlb"), ["dtlb_miss_rate", "itlb_miss_rate"]);
        assert_eq!(names("default").len(), 11);
    }

    #[test]
    fn an_unknown_name_leads_to_the_closest_and_to_the_list() {
        let error = MetricList::parse("IPC,insn_per_cylce").unwrap_err();
        for words in [
            "\"insn_per_cylce\"; did you mean insn_per_cycle?",
            "metrics: CPUs_utilized, ",
            "groups: Default, ",
        ] {
            assert!(error.contains(words), "{error}");
        }
        assert!(!MetricList::parse("horses").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn the_events_of_each_metric_have_this_metric() {
        for metric in &METRICS {
            let (lines, parts) = (lines("intel-server", metric.events), Parts::default());
            let frame = Frame { metrics: &[metric.name], ..Frame::of(&lines, &parts) };
            let all = (0..lines.len()).flat_map(|line| frame.possible_metrics(line));
            assert_eq!(all.filter(|found| found.name == metric.name).count(), 1, "{}", metric.name);
        }
    }
}
