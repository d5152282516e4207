//! Metrics that perf derives from counts: ratios to time and to other counts. Without I/O.
//!
//! The formulas and units are those of perf (`tools/perf/util/stat-shadow.c`).

use std::time::Duration;

use super::metric::{Metric, Style, rate};
use super::role::{Cache, Role};
use crate::event::Event;

/// Name of the metric of clocks.
const CPUS: &str = "CPUs_utilized";

/// The execution modes and the PMU that an event covers. A ratio of two counts is only valid if both have the same view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct View {
    /// Excluded modes: user, kernel, hypervisor; idle, host, guest.
    excluded: [[bool; 3]; 2],
    pmu: Option<std::sync::Arc<str>>,
}

impl View {
    pub(super) fn of(event: &Event) -> Self {
        let of = event.modifiers;
        let sides = [of.exclude_user, of.exclude_kernel, of.exclude_hv];
        let excluded = [sides, [of.exclude_idle, of.exclude_host, of.exclude_guest]];
        Self { excluded, pmu: event.pmu.clone() }
    }
}

/// Returns the metrics for a count of `value` in `elapsed`. `of` returns counts of the same target and view. Counts of zero are ignored.
pub(super) fn metrics(
    role: Role,
    value: f64,
    elapsed: Duration,
    of: impl Fn(Role) -> Option<f64>,
) -> Vec<Metric> {
    let base = |role| of(role).filter(|&count| count > 0.0);
    let share = |name, whole, unit| {
        base(whole).map(|whole| Metric::new(name, Style::Percent, 100.0 * value / whole, unit))
    };
    let rate = |name| base(Role::Clock).map(|clock| rate(name, value / clock * 1e3));
    let metric = match role {
        Role::Instructions => return instructions(value, base),
        Role::Topdown(category) => return category.metrics(value, base),
        Role::Transaction(event) => event.metric(value, base),
        Role::Clock => (!elapsed.is_zero())
            .then(|| Metric::new(CPUS, Style::Fine, value / (elapsed.as_secs_f64() * 1e3), "CPUs utilized")),
        // Cycles per millisecond are thousands of cycles per second.
        Role::Cycles => base(Role::Clock)
            .map(|clock| Metric::new("cycles_frequency", Style::Fine, value / clock / 1e6, "GHz")),
        Role::CacheMisses => share("cache_miss_rate", Role::CacheReferences, "of all cache refs"),
        Role::BranchMisses => share("branch_miss_rate", Role::Branches, "of all branches"),
        Role::LoadMisses(cache) => {
            let (_, name, unit) = Cache::ALL[cache as usize];
            share(name, Role::Loads(cache), unit)
        }
        Role::StalledFrontend => share("frontend_cycles_idle", Role::Cycles, "frontend cycles idle"),
        Role::StalledBackend => share("backend_cycles_idle", Role::Cycles, "backend cycles idle"),
        Role::ContextSwitches => rate("cs_per_second"),
        Role::Migrations => rate("migrations_per_second"),
        Role::PageFaults => rate("page_faults_per_second"),
        Role::Branches => rate("branch_frequency"),
        Role::CacheReferences | Role::Loads(_) | Role::Occurrences => rate(""),
        Role::Other => None,
    };
    metric.into_iter().collect()
}

fn instructions(value: f64, base: impl Fn(Role) -> Option<f64>) -> Vec<Metric> {
    let per_cycle = base(Role::Cycles)
        .map(|cycles| Metric::new("insn_per_cycle", Style::Ratio, value / cycles, "insn per cycle"));
    let stalled = match (base(Role::StalledFrontend), base(Role::StalledBackend)) {
        (Some(frontend), Some(backend)) => Some(frontend.max(backend)),
        (frontend, backend) => frontend.or(backend),
    };
    let name = "stalled_cycles_per_instruction";
    let per_instruction = stalled
        .filter(|_| value > 0.0)
        .map(|stalled| Metric::new(name, Style::Ratio, stalled / value, "stalled cycles per insn"));
    per_cycle.into_iter().chain(per_instruction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Selector, parse, syntax};
    use crate::host::{Facts, Roots};

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts of half a second of CPU time at 2 GHz.
    fn count(role: Role) -> Option<f64> {
        Some(match role {
            Role::Clock => 500.0,
            Role::Cycles => 1e9,
            Role::Instructions => 2.5e9,
            Role::CacheReferences => 4e6,
            Role::Branches => 5e8,
            Role::StalledFrontend => 1e8,
            Role::StalledBackend => 5e8,
            Role::Loads(_) => 8e8,
            _ => return None,
        })
    }

    fn told(role: Role, value: f64, of: impl Fn(Role) -> Option<f64>) -> Vec<String> {
        let written = |metric: &Metric| format!("{:.3} {}", metric.value, metric.unit);
        metrics(role, value, SECOND, of).iter().map(written).collect()
    }

    #[test]
    fn a_count_is_related_to_what_perf_relates_it_to() {
        let l1 = Cache::L1Data;
        for (role, value, expected) in [
            (Role::Clock, 500.0, "0.500 CPUs utilized"),
            (Role::Cycles, 1e9, "2.000 GHz"),
            (Role::BranchMisses, 5e6, "1.000 of all branches"),
            (Role::CacheMisses, 1e6, "25.000 of all cache refs"),
            (Role::LoadMisses(l1), 4e7, "5.000 of all L1-dcache accesses"),
            (Role::LoadMisses(Cache::LastLevel), 4e7, "5.000 of all LL-cache accesses"),
            (Role::LoadMisses(Cache::InstructionTlb), 4e7, "5.000 of all iTLB cache accesses"),
            (Role::StalledFrontend, 1e8, "10.000 frontend cycles idle"),
            (Role::StalledBackend, 5e8, "50.000 backend cycles idle"),
            (Role::Branches, 6e8, "1.200 G/sec"),
            (Role::Loads(l1), 8e5, "1.600 M/sec"),
            (Role::Occurrences, 600.0, "1.200 K/sec"),
            (Role::Occurrences, 500.0, "1000.000 /sec"),
            (Role::PageFaults, 0.0, "0.000 /sec"),
        ] {
            assert_eq!(told(role, value, count), [expected], "{role:?}");
        }
        assert!(told(Role::Other, 1.0, count).is_empty());
    }

    #[test]
    fn a_rate_has_a_prefix_that_can_be_removed() {
        for (per_second, value) in [(2.5e6, 2.5), (700.0, 700.0), (3e12, 3000.0)] {
            let rate = rate("", per_second);
            assert!((rate.value - value).abs() < 1e-9, "{rate:?}");
            assert!((rate.without_prefix() / per_second - 1.0).abs() < 1e-9, "{rate:?}");
        }
        assert_eq!(Metric::new("", Style::Fine, 2.5, "GHz").without_prefix(), 2.5);
    }

    #[test]
    fn instructions_have_two_relations_where_stalls_are_counted() {
        let both = ["2.500 insn per cycle", "0.200 stalled cycles per insn"];
        assert_eq!(told(Role::Instructions, 2.5e9, count), both);
        let no_stalls = |role| match role {
            Role::StalledBackend | Role::StalledFrontend => None,
            role => count(role),
        };
        assert_eq!(told(Role::Instructions, 2.5e9, no_stalls), both[..1]);
        assert_eq!(told(Role::Instructions, 0.0, count), ["0.000 insn per cycle"]);
    }

    #[test]
    fn nothing_is_related_to_what_was_not_counted_or_is_zero() {
        for role in [
            Role::Cycles,
            Role::Instructions,
            Role::BranchMisses,
            Role::CacheMisses,
            Role::LoadMisses(Cache::DataTlb),
            Role::StalledFrontend,
            Role::Occurrences,
        ] {
            assert!(told(role, 7.0, |_| None).is_empty(), "{role:?}");
            assert!(told(role, 7.0, |_| Some(0.0)).is_empty(), "{role:?}");
        }
        assert!(metrics(Role::Clock, 7.0, Duration::ZERO, count).is_empty());
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
        for (text, role) in [
            ("task-clock", Role::Clock),
            ("cpu-clock", Role::Clock),
            ("cpu-cycles", Role::Cycles),
            ("instructions:u", Role::Instructions),
            ("branch-instructions", Role::Branches),
            ("bus-cycles", Role::Occurrences),
            ("L1-icache-load-misses", Role::LoadMisses(Cache::L1Instruction)),
            ("LLC-loads", Role::Loads(Cache::LastLevel)),
            ("LLC-stores", Role::Occurrences),
            ("dTLB-store-misses", Role::Occurrences),
            ("node-loads", Role::Occurrences),
            ("faults", Role::PageFaults),
            ("cs", Role::ContextSwitches),
            ("migrations", Role::Migrations),
            ("minor-faults", Role::Occurrences),
            ("r1a8", Role::Occurrences),
        ] {
            let (event, written) = event(text);
            assert_eq!(Role::of(&event, &written), role, "{text}");
        }
        let (mut atom, written) = event("instructions");
        atom.selector = Selector { config: [10 << 32 | 1, 0, 0, 0], ..atom.selector };
        assert_eq!(Role::of(&atom, &written), Role::Instructions);
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
