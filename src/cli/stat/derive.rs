//! Metrics next to counts: those of built-in metrics, if their events are counted, and rates. Without I/O.

use std::time::Duration;

use super::metric::{Metric, rate};
use super::metric_list::Shown;
use crate::event::metric::CLOCK;
use crate::event::{Event, Kind, metric};

/// The execution modes and the PMU that an event covers. A ratio of two counts of cores is only valid if both have the same view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct View {
    /// Excluded modes: user, kernel, hypervisor; idle, host, guest.
    excluded: [[bool; 3]; 2],
    pub(super) pmu: Option<std::sync::Arc<str>>,
}

impl View {
    pub(super) fn of(event: &Event) -> Self {
        let of = event.modifiers;
        let sides = [of.exclude_user, of.exclude_kernel, of.exclude_hv];
        let excluded = [sides, [of.exclude_idle, of.exclude_host, of.exclude_guest]];
        Self { excluded, pmu: event.pmu.clone() }
    }
}

/// A count, as far as metrics depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count<'a> {
    /// The key of its event in formulas.
    pub key: &'a str,
    /// The PMU, if the event belongs to one of several.
    pub pmu: Option<&'a str>,
    /// Whether a rate is useful: it counts occurrences.
    pub has_rate: bool,
    /// The count, in its base unit.
    pub value: f64,
}

/// Reports whether a rate of an event is useful: it counts occurrences, not a quantity, and not on a PMU outside of the cores.
pub(super) fn has_rate(event: &Event, key: &str) -> bool {
    event.scale.is_none() && event.kind != Kind::Pmu && key != CLOCK && key != "slots"
}

/// Returns the metrics for a count in `elapsed`. `of` returns counts of the same target and view by their keys, in their base units.
pub(super) fn metrics(
    shown: &Shown,
    count: Count<'_>,
    elapsed: Duration,
    of: &dyn Fn(&str) -> Option<f64>,
) -> Vec<Metric> {
    let of = |key: &str| if key == count.key { Some(count.value) } else { of(key) };
    let elapsed = (!elapsed.is_zero()).then_some(elapsed.as_secs_f64());
    let value = |metric: &metric::Metric| Some(Metric::of(metric.definition, metric.value(elapsed, &of)?));
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in shown.at(count.key, count.pmu).filter_map(value) {
        // On a machine with several types of cores, a metric may have several formulas.
        if !metrics.iter().any(|other| other.name == metric.name) {
            metrics.push(metric);
        }
    }
    metrics.extend(plain_rate(shown, count, &of));
    metrics
}

/// Returns the metrics that a count can have, with arbitrary values. `has` reports which counts there are.
pub(super) fn possible(shown: &Shown, count: Count<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Metric> {
    let has = |key: &str| key == count.key || has(key);
    let possible = shown.at(count.key, count.pmu).filter(|metric| metric.is_possible(&has));
    let mut metrics: Vec<Metric> = possible.map(|metric| Metric::of(metric.definition, 1.0)).collect();
    metrics.extend(plain_rate(shown, count, &|key| has(key).then_some(1.0)));
    metrics
}

/// Returns the rate of an event that has no metric of its own.
fn plain_rate(shown: &Shown, count: Count<'_>, of: &dyn Fn(&str) -> Option<f64>) -> Option<Metric> {
    let has_rate = count.has_rate && !shown.by_name && shown.at(count.key, count.pmu).next().is_none();
    let clock = of(CLOCK).filter(|&clock| clock > 0.0 && has_rate)?;
    Some(rate("", count.value / clock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::metric::resolved_key;
    use crate::event::{Selector, parse, syntax};
    use crate::host::{Facts, Roots};

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts of half a second of CPU time at 2 GHz.
    fn counted(key: &str) -> Option<f64> {
        Some(match key {
            CLOCK => 0.5,
            "cycles" => 1e9,
            "instructions" => 2.5e9,
            "cache-references" => 4e6,
            "branches" => 5e8,
            "stalled-cycles-frontend" => 1e8,
            "stalled-cycles-backend" => 5e8,
            "L1-dcache-loads" | "LLC-loads" | "iTLB-loads" => 8e8,
            _ => return None,
        })
    }

    fn shown(key: &str, value: f64, of: impl Fn(&str) -> Option<f64>) -> Vec<String> {
        let count = Count { key, pmu: None, has_rate: key != CLOCK && key != "slots", value };
        let written = |metric: &Metric| format!("{:.3} {}", metric.value, metric.unit);
        metrics(Shown::automatic(), count, SECOND, &of).iter().map(written).collect()
    }

    #[test]
    fn a_count_is_related_to_what_perf_relates_it_to() {
        for (key, value, expected) in [
            (CLOCK, 0.5, "0.500 CPUs utilized"),
            ("cycles", 1e9, "2.000 GHz"),
            ("branch-misses", 5e6, "1.000 of all branches"),
            ("cache-misses", 1e6, "25.000 of all cache refs"),
            ("L1-dcache-load-misses", 4e7, "5.000 of all L1-dcache accesses"),
            ("LLC-load-misses", 4e7, "5.000 of all LL-cache accesses"),
            ("iTLB-load-misses", 4e7, "5.000 of all iTLB cache accesses"),
            ("stalled-cycles-frontend", 1e8, "10.000 frontend cycles idle"),
            ("stalled-cycles-backend", 5e8, "50.000 backend cycles idle"),
            ("branches", 6e8, "1.200 G/sec"),
            ("L1-dcache-loads", 8e5, "1.600 M/sec"),
            ("bus-cycles", 600.0, "1.200 K/sec"),
            ("bus-cycles", 500.0, "1000.000 /sec"),
            ("page-faults", 0.0, "0.000 /sec"),
        ] {
            assert_eq!(shown(key, value, counted), [expected], "{key}");
        }
        assert!(shown("slots", 1.0, counted).is_empty());
    }

    #[test]
    fn instructions_have_two_relations_where_stalls_are_counted() {
        let both = ["2.500 insn per cycle", "0.200 stalled cycles per insn"];
        assert_eq!(shown("instructions", 2.5e9, counted), both);
        let one = |key: &str| counted(key).filter(|_| key != "stalled-cycles-backend");
        assert_eq!(shown("instructions", 2.5e9, one)[1], "0.040 stalled cycles per insn");
        let none = |key: &str| counted(key).filter(|_| !key.starts_with("stalled"));
        assert_eq!(shown("instructions", 2.5e9, none), both[..1]);
        assert_eq!(shown("instructions", 0.0, counted), ["0.000 insn per cycle"]);
    }

    #[test]
    fn each_category_is_a_share_of_all_slots_and_the_second_level_has_a_rest() {
        let count = |key: &str| {
            Some(match key {
                "topdown-retiring" => 30.0,
                "topdown-be-bound" => 50.0,
                "topdown-fe-bound" => 20.0,
                "topdown-bad-spec" => 0.0,
                _ => return None,
            })
        };
        assert_eq!(shown("topdown-retiring", 30.0, count), ["30.000 Retiring"]);
        assert_eq!(shown("topdown-bad-spec", 0.0, count), ["0.000 Bad Speculation"]);
        assert_eq!(shown("topdown-mem-bound", 45.0, count), ["45.000 Memory Bound", "5.000 Core Bound"]);
        let heavy = ["31.000 Heavy Operations", "0.000 Light Operations"];
        assert_eq!(shown("topdown-heavy-ops", 31.0, count), heavy);
        assert!(shown("topdown-retiring", 0.0, |_| None).is_empty());
    }

    #[test]
    fn transactions_have_shares_of_cycles_and_cycles_of_each() {
        let count = |key: &str| match key {
            "cycles" => Some(1000.0),
            "cycles-t" => Some(400.0),
            _ => None,
        };
        for (event, value, expected) in [
            ("cycles-t", 400.0, "40.000 transactional cycles"),
            ("cycles-ct", 300.0, "10.000 aborted cycles"),
            ("cycles-ct", 401.0, "0.000 aborted cycles"),
            ("tx-start", 8.0, "50.000 cycles / transaction"),
            ("el-start", 4.0, "100.000 cycles / elision"),
        ] {
            assert_eq!(shown(event, value, count), [expected]);
        }
        assert!(shown("tx-start", 0.0, count).is_empty());
    }

    #[test]
    fn nothing_is_related_to_what_was_not_counted_or_is_zero() {
        for key in
            ["cycles", "instructions", "branch-misses", "cache-misses", "dTLB-load-misses", "bus-cycles"]
        {
            assert!(shown(key, 7.0, |_| None).is_empty(), "{key}");
            let is_zero = |other: &str| (!other.starts_with("stalled")).then_some(0.0);
            assert!(shown(key, 7.0, is_zero).is_empty(), "{key}");
        }
        let clock = Count { key: CLOCK, pmu: None, has_rate: false, value: 7.0 };
        assert!(metrics(Shown::automatic(), clock, Duration::ZERO, &counted).is_empty());
    }

    fn event(text: &str) -> (Event, syntax::Name) {
        let catalog = crate::event::Catalog::load(
            &Roots::under(std::path::Path::new("/nonexistent")),
            &Facts::default(),
        );
        let groups = parse(text).unwrap();
        let written = &groups[0].events[0];
        (catalog.resolve(written).unwrap().remove(0), written.name.clone())
    }

    #[test]
    fn events_are_known_by_their_numbers_whatever_they_are_called() {
        for (text, key) in [
            ("task-clock", CLOCK),
            ("cpu-clock", CLOCK),
            ("cpu-cycles", "cycles"),
            ("0:1", "instructions"),
            ("instructions:u", "instructions"),
            ("branch-instructions", "branches"),
            ("L1-icache-load-misses", "L1-icache-load-misses"),
            ("LLC-read", "LLC-loads"),
            ("faults", "page-faults"),
            ("cs", "context-switches"),
            ("migrations", "cpu-migrations"),
            ("r1a8", "r1a8"),
        ] {
            let (event, written) = event(text);
            assert_eq!(&*resolved_key(&event, &written), key, "{text}");
        }
        let (mut atom, written) = event("instructions");
        atom.selector = Selector { config: [10 << 32 | 1, 0, 0, 0], ..atom.selector };
        assert_eq!(&*resolved_key(&atom, &written), "instructions");
    }

    #[test]
    fn views_differ_by_what_is_counted_and_not_by_how_it_is_scheduled() {
        let view = |text| View::of(&event(text).0);
        assert_ne!(view("cycles:u"), view("instructions"));
        assert_eq!(view("cycles:u"), view("instructions:uD"));
        let (mut atom, _) = event("cycles");
        atom.pmu = Some("cpu_atom".into());
        assert_ne!(View::of(&atom), view("instructions"));
    }
}
