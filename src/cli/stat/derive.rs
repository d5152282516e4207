//! Metrics that perf derives from counts: ratios to time and to other counts. Without I/O.
//!
//! The formulas and units are those of perf (`tools/perf/util/stat-shadow.c`).

use std::time::Duration;

use super::hardware_roles::{Topdown, Transaction, named};
use crate::event::{Event, Kind, syntax};

/// Name of the metric of clocks.
const CPUS: &str = "CPUs_utilized";

/// Prefixes of rates, one per thousand.
const PREFIXES: [&str; 4] = ["", "K", "M", "G"];

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
    ContextSwitches,
    Migrations,
    PageFaults,
    Topdown(Topdown),
    Transaction(Transaction),
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
    /// All caches in order of their values, with the name of the metric of their misses, and the unit that perf prints for it.
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::L1Data, "l1d_miss_rate", "of all L1-dcache accesses"),
        (Self::L1Instruction, "l1i_miss_rate", "of all L1-icache accesses"),
        (Self::LastLevel, "llc_miss_rate", "of all LL-cache accesses"),
        (Self::DataTlb, "dtlb_miss_rate", "of all dTLB cache accesses"),
        (Self::InstructionTlb, "itlb_miss_rate", "of all iTLB cache accesses"),
    ];
}

impl Role {
    /// Returns the role of an event, which was requested as `written`. A formula combines events of matching roles only if they have the
    /// same [`View`].
    pub(super) fn of(event: &Event, written: &syntax::Name) -> Self {
        // The upper half identifies the core PMU on hybrid machines (`PERF_PMU_TYPE_SHIFT`).
        let config = event.selector.config[0] & u64::from(u32::MAX);
        match event.kind {
            _ if event.kind == Kind::Software && config <= 1 => Self::Clock,
            // Some PMUs report a scale of 1.
            Kind::Raw if named(written).is_some() => named(written).unwrap_or(Self::Other),
            _ if event.scale.is_some() => Self::Other,
            Kind::Hardware => Self::of_hardware(config),
            Kind::Cache => Self::of_cache(config),
            Kind::Pmu => Self::Other,
            // The values are those of `enum perf_sw_ids`.
            Kind::Software if config == 2 => Self::PageFaults,
            Kind::Software if config == 3 => Self::ContextSwitches,
            Kind::Software if config == 4 => Self::Migrations,
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
        let Some(&(cache, ..)) = Cache::ALL.get((config & 0xff) as usize) else { return Self::Occurrences };
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
    /// Name for `-M`. Empty for rates of other events.
    pub name: &'static str,
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
    /// One decimal and a percent sign.
    Tenths,
    /// No decimals.
    Whole,
}

impl Style {
    /// Reports whether a percent sign follows the number.
    pub(super) fn is_percent(self) -> bool {
        matches!(self, Self::Percent | Self::Tenths)
    }

    /// Formats a value without a percent sign.
    pub(super) fn format(self, value: f64) -> String {
        match self {
            Self::Fine => format!("{value:.3}"),
            Self::Ratio | Self::Percent => format!("{value:.2}"),
            Self::Tenths => format!("{value:.1}"),
            Self::Whole => format!("{value:.0}"),
        }
    }
}

impl Metric {
    pub(super) fn new(name: &'static str, style: Style, value: f64, unit: &str) -> Self {
        Self { name, value, unit: unit.to_owned(), style }
    }

    /// Returns the value without the prefix of its unit: 2500 for 2.5 K/sec.
    pub(super) fn without_prefix(&self) -> f64 {
        let power = PREFIXES.iter().position(|prefix| self.unit == format!("{prefix}/sec"));
        self.value * power.map_or(1.0, |power| 1000_f64.powi(power as i32))
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

/// Formats a rate per second of CPU time, with the prefix that keeps it readable.
fn rate(name: &'static str, per_second: f64) -> Metric {
    let mut value = per_second;
    let mut prefix = "";
    for larger in &PREFIXES[1..] {
        if value <= 1000.0 {
            break;
        }
        value /= 1000.0;
        prefix = larger;
    }
    Metric::new(name, Style::Fine, value, &format!("{prefix}/sec"))
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
