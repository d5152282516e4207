//! Metrics that perf derives from counts: ratios to time and to other counts. Without I/O.
//!
//! The formulas and units are those of perf (`tools/perf/util/stat-shadow.c`).

use std::time::Duration;

use crate::event::{Event, Kind};

/// The meaning of an event in a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// `task-clock` or `cpu-clock`, in milliseconds.
    Clock,
    Cycles,
    Instructions,
    CacheReferences,
    CacheMisses,
    Branches,
    BranchMisses,
    StalledFrontend,
    StalledBackend,
    Loads(Cache),
    LoadMisses(Cache),
    /// A count of occurrences, for which a rate is useful.
    Occurrences,
    /// Any other event: a quantity, or the count of an uncore PMU.
    Other,
}

/// The caches for which perf shows the ratio of misses to loads. The values are those of `enum perf_hw_cache_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    L1Data = 0,
    L1Instruction = 1,
    LastLevel = 2,
    DataTlb = 3,
    InstructionTlb = 4,
}

impl Cache {
    /// All caches in order of their values, with the unit that perf prints for their loads.
    const ALL: [(Self, &'static str); 5] = [
        (Self::L1Data, "of all L1-dcache accesses"),
        (Self::L1Instruction, "of all L1-icache accesses"),
        (Self::LastLevel, "of all LL-cache accesses"),
        (Self::DataTlb, "of all dTLB cache accesses"),
        (Self::InstructionTlb, "of all iTLB cache accesses"),
    ];
}

impl Role {
    /// Returns the role of an event. A formula combines events of matching roles only if they have the same [`View`].
    pub(super) fn of(event: &Event) -> Self {
        // The upper half identifies the core PMU on hybrid machines (`PERF_PMU_TYPE_SHIFT`).
        let config = event.selector.config[0] & u64::from(u32::MAX);
        match event.kind {
            _ if event.kind == Kind::Software && config <= 1 => Self::Clock,
            _ if event.scale.is_some() => Self::Other,
            Kind::Hardware => Self::of_hardware(config),
            Kind::Cache => Self::of_cache(config),
            Kind::Pmu => Self::Other,
            Kind::Raw | Kind::Software | Kind::Tracepoint | Kind::Probe | Kind::Breakpoint => {
                Self::Occurrences
            }
        }
    }

    /// The values are those of `enum perf_hw_id` in `include/uapi/linux/perf_event.h`.
    const fn of_hardware(config: u64) -> Self {
        match config {
            0 => Self::Cycles,
            1 => Self::Instructions,
            2 => Self::CacheReferences,
            3 => Self::CacheMisses,
            4 => Self::Branches,
            5 => Self::BranchMisses,
            7 => Self::StalledFrontend,
            8 => Self::StalledBackend,
            _ => Self::Occurrences,
        }
    }

    /// The value is `cache | operation << 8 | result << 16`; operation 0 is a load, result 1 is a miss.
    fn of_cache(config: u64) -> Self {
        let Some(&(cache, _)) = Cache::ALL.get((config & 0xff) as usize) else { return Self::Occurrences };
        match config >> 8 {
            0 => Self::Loads(cache),
            0x100 => Self::LoadMisses(cache),
            _ => Self::Occurrences,
        }
    }
}

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

/// A metric derived from a count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metric {
    /// Value of the metric.
    pub value: f64,
    /// Unit, as perf prints it.
    pub unit: String,
    /// Number format, as in perf.
    pub style: Style,
}

/// Number format of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Three decimals.
    Fine,
    /// Two decimals.
    Ratio,
    /// Two decimals and a percent sign.
    Percent,
}

impl Metric {
    fn new(style: Style, value: f64, unit: &str) -> Self {
        Self { value, unit: unit.to_owned(), style }
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
    let share =
        |whole, unit| base(whole).map(|whole| Metric::new(Style::Percent, 100.0 * value / whole, unit));
    let metric = match role {
        Role::Instructions => return instructions(value, base),
        Role::Clock => (!elapsed.is_zero())
            .then(|| Metric::new(Style::Fine, value / (elapsed.as_secs_f64() * 1e3), "CPUs utilized")),
        // Cycles per millisecond are thousands of cycles per second.
        Role::Cycles => base(Role::Clock).map(|clock| Metric::new(Style::Fine, value / clock / 1e6, "GHz")),
        Role::CacheMisses => share(Role::CacheReferences, "of all cache refs"),
        Role::BranchMisses => share(Role::Branches, "of all branches"),
        Role::LoadMisses(cache) => share(Role::Loads(cache), Cache::ALL[cache as usize].1),
        Role::StalledFrontend => share(Role::Cycles, "frontend cycles idle"),
        Role::StalledBackend => share(Role::Cycles, "backend cycles idle"),
        Role::CacheReferences | Role::Branches | Role::Loads(_) | Role::Occurrences => {
            base(Role::Clock).map(|clock| rate(value / clock * 1e3))
        }
        Role::Other => None,
    };
    metric.into_iter().collect()
}

fn instructions(value: f64, base: impl Fn(Role) -> Option<f64>) -> Vec<Metric> {
    let per_cycle =
        base(Role::Cycles).map(|cycles| Metric::new(Style::Ratio, value / cycles, "insn per cycle"));
    let stalled = match (base(Role::StalledFrontend), base(Role::StalledBackend)) {
        (Some(frontend), Some(backend)) => Some(frontend.max(backend)),
        (frontend, backend) => frontend.or(backend),
    };
    let per_instruction = stalled
        .filter(|_| value > 0.0)
        .map(|stalled| Metric::new(Style::Ratio, stalled / value, "stalled cycles per insn"));
    per_cycle.into_iter().chain(per_instruction).collect()
}

/// Formats a rate per second of CPU time, with the prefix that keeps it readable.
fn rate(per_second: f64) -> Metric {
    let mut value = per_second;
    let mut prefix = "";
    for larger in ["K", "M", "G"] {
        if value <= 1000.0 {
            break;
        }
        value /= 1000.0;
        prefix = larger;
    }
    Metric::new(Style::Fine, value, &format!("{prefix}/sec"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Selector, parse};
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
            (Role::Occurrences, 0.0, "0.000 /sec"),
        ] {
            assert_eq!(told(role, value, count), [expected], "{role:?}");
        }
        assert!(told(Role::Other, 1.0, count).is_empty());
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

    fn event(text: &str) -> Event {
        let catalog = crate::event::Catalog::load(
            &Roots::under(std::path::Path::new("/nonexistent")),
            &Facts::default(),
        );
        let groups = parse(text).unwrap();
        catalog.resolve(&groups[0].events[0]).unwrap().remove(0)
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
            ("faults", Role::Occurrences),
            ("r1a8", Role::Occurrences),
        ] {
            assert_eq!(Role::of(&event(text)), role, "{text}");
        }
        let mut atom = event("instructions");
        atom.selector = Selector { config: [10 << 32 | 1, 0, 0, 0], ..atom.selector };
        assert_eq!(Role::of(&atom), Role::Instructions);
    }

    #[test]
    fn views_differ_by_what_is_counted_and_not_by_how_it_is_scheduled() {
        let view = |text| View::of(&event(text));
        assert_ne!(view("cycles:u"), view("instructions"));
        assert_eq!(view("cycles:u"), view("instructions:uD"));
        let mut atom = event("cycles");
        atom.pmu = Some("cpu_atom".into());
        assert_ne!(View::of(&atom), view("instructions"));
    }
}
