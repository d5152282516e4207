//! The metrics that `-M` and `--topdown` select, and those that are shown without a selection.

use std::sync::LazyLock;

use crate::event::metric::{self, Metric};
use crate::event::{Catalog, Missing, Unresolved, syntax};

/// Names of one `-M` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricList(Vec<String>);

/// The metrics to show.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    metrics: Vec<Metric>,
    /// Whether the metrics were selected by name. Otherwise, they are shown wherever their events are counted, together with plain rates.
    pub(super) by_name: bool,
}

impl MetricList {
    /// Parses comma-separated names of metrics and groups. Case is ignored.
    ///
    /// # Errors
    /// Names the closest metric of an unknown name, and the groups.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        for word in &words {
            metric::find(word).map_err(|unknown| unknown.to_string())?;
        }
        Ok(Self(words))
    }

    /// Returns the names.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Shown {
    /// Returns the metrics that are shown without a selection.
    pub(super) fn automatic() -> &'static Self {
        static AUTOMATIC: LazyLock<Shown> =
            LazyLock::new(|| Shown { metrics: metric::automatic(), by_name: false });
        &AUTOMATIC
    }

    /// Returns the metrics with these names on this host, or those that are shown without a selection if there are no names.
    ///
    /// # Errors
    /// If the host does not have one of the metrics, or none of a group.
    pub(super) fn on_host<'w>(
        words: impl IntoIterator<Item = &'w str>,
        catalog: &Catalog,
    ) -> Result<Self, Unresolved> {
        let mut metrics: Vec<Metric> = Vec::new();
        for word in words {
            let new = catalog.metrics(word)?;
            metrics.extend(new.into_iter().filter(|new| !metrics.contains(new)).collect::<Vec<_>>());
        }
        Ok(Self::selected(metrics))
    }

    /// Returns the metrics with these names, independent of a host, or those that are shown without a selection if there are no names.
    pub(super) fn of_recording<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let definitions = words.into_iter().flat_map(|word| metric::find(word).unwrap_or_default());
        Self::selected(definitions.map(Metric::without_host).collect())
    }

    fn selected(metrics: Vec<Metric>) -> Self {
        if metrics.is_empty() { Self::automatic().clone() } else { Self { metrics, by_name: true } }
    }

    /// Returns the metrics that are shown next to a count of the event with this key, of a PMU if there are several for the cores.
    pub(super) fn at<'a>(&'a self, key: &'a str, pmu: Option<&'a str>) -> impl Iterator<Item = &'a Metric> {
        let is_here = move |metric: &&Metric| {
            metric.is_at(key) && metric.pmu.as_deref().is_none_or(|own| pmu == Some(own))
        };
        self.metrics.iter().filter(is_here)
    }

    /// Adds the events that the selected metrics need, unless a group counts them already.
    pub(super) fn add_events(&self, to: &mut Vec<syntax::Group>) {
        let needed = self.metrics.iter().filter(|_| self.by_name).flat_map(|metric| metric.needs.clone());
        for group in metric::merged(needed) {
            if !to.iter().any(|other| metric::contains(other, &group)) {
                to.push(group);
            }
        }
    }
}

/// Returns the names of the metrics of `--topdown`: both levels, or the first one where the CPU has no second one.
///
/// # Errors
/// If the CPU has none.
pub(super) fn topdown(catalog: &Catalog) -> Result<Vec<&'static str>, Unresolved> {
    let mut words = vec!["topdown-l1"];
    catalog.metrics("topdown-l1")?;
    match catalog.metrics("topdown-l2") {
        Ok(_) => words.push("topdown-l2"),
        Err(Unresolved { cause: Missing::AbsentOnHost, .. }) => {}
        Err(other) => return Err(other),
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::aggregation::Parts;
    use crate::cli::stat::table::Frame;
    use crate::cli::stat::tests::testing::{lines, machine_with};
    use crate::event::metric::definitions;
    use crate::host::{Facts, Roots};

    fn nowhere() -> Catalog {
        Catalog::load(&Roots::under(std::path::Path::new("/nonexistent")), &Facts::default())
    }

    fn shown(words: &str, catalog: &Catalog) -> Shown {
        Shown::on_host(MetricList::parse(words).unwrap().words(), catalog).unwrap()
    }

    #[test]
    fn names_aliases_and_groups_select_metrics() {
        let names = |text: &str| -> Vec<&str> {
            shown(text, &nowhere()).metrics.iter().map(|metric| metric.definition.name).collect()
        };
        assert_eq!(names("IPC, ghz"), ["insn_per_cycle", "cycles_frequency"]);
        assert_eq!(names("tlb"), ["dtlb_miss_rate", "itlb_miss_rate"]);
        assert_eq!(names("default").len(), 12);
        assert_eq!(names("ipc,IPC"), ["insn_per_cycle"]);
    }

    #[test]
    fn an_unknown_name_leads_to_the_closest_and_to_the_groups() {
        let error = MetricList::parse("IPC,insn_per_cylce").unwrap_err();
        assert!(
            error.contains("insn_per_cylce") && error.contains("did you mean insn_per_cycle?"),
            "{error}"
        );
        let error = MetricList::parse("horses").unwrap_err();
        assert!(error.contains("groups of metrics") || error.contains("a group (default"), "{error}");
    }

    #[test]
    fn the_events_of_each_metric_of_generic_events_have_this_metric() {
        let parts = Parts::default();
        for definition in definitions().filter(|definition| definition.automatic) {
            let Ok(selected) = Shown::on_host([definition.name], &nowhere()) else { continue };
            let mut groups = Vec::new();
            selected.add_events(&mut groups);
            let events: Vec<String> = groups.iter().map(ToString::to_string).collect();
            let lines = lines("intel-server", &events.join(","));
            let frame = Frame { metrics: &selected, ..Frame::of(&lines, &parts) };
            let all = (0..lines.len()).flat_map(|line| frame.possible_metrics(line));
            assert_eq!(all.filter(|found| found.name == definition.name).count(), 1, "{}", definition.name);
        }
    }

    #[test]
    fn topdown_events_are_one_group_with_slots_first() {
        const FIRST: [&str; 5] =
            ["slots", "topdown-retiring", "topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"];
        const SECOND: [&str; 4] =
            ["topdown-heavy-ops", "topdown-br-mispredict", "topdown-fetch-lat", "topdown-mem-bound"];
        let events = |events: &[&str]| {
            let (_dir, catalog) = machine_with("cpu", events);
            let mut groups = Vec::new();
            Shown::on_host(topdown(&catalog).unwrap(), &catalog).unwrap().add_events(&mut groups);
            groups.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let both = events(&[&FIRST[..], &SECOND].concat());
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(both[0].starts_with("{slots,topdown-retiring,"), "{both:?}");
        assert!(both[0].ends_with("topdown-mem-bound}"), "{both:?}");
        let first = events(&FIRST);
        assert!(first.len() == 1 && !first[0].contains("heavy"), "{first:?}");
    }

    #[test]
    fn a_cpu_without_topdown_events_leads_to_those_that_have_them() {
        let error = topdown(&nowhere()).unwrap_err().to_string();
        for words in ["no hardware counters", "Intel since Ice Lake", "AMD Zen 4"] {
            assert!(error.contains(words), "{error}");
        }
    }
}
