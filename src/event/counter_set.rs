//! Counters of a PMU, and the counters that each event can use.
//!
//! The kernel does not publish the number of counters. It is derived from the CPU model ([`Catalog::capacity`]), or measured with groups
//! that the kernel rejects when they are too large ([`Capacity::measured`]).
//!
//! [`Catalog::capacity`]: super::Catalog::capacity

mod documented;
mod features;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use super::{Event, Kind, Topdown};
pub(super) use features::CpuFeatures;

/// First bit of the fixed counters in a [`CounterMask`].
const FIXED: u32 = 32;
/// First bit of the counters of topdown metrics in a [`CounterMask`]. The kernel numbers them alike (`INTEL_PMC_IDX_METRIC_BASE`).
const METRICS: u32 = 48;

/// Counters that an event can use: bits 0 to 31 are general counters, 32 to 47 fixed counters, and 48 to 55 topdown metrics, which the
/// hardware derives from the counter of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CounterMask(u64);

impl CounterMask {
    /// Returns the first `number` general counters.
    pub fn general(number: u32) -> Self {
        Self((1 << number.min(FIXED)) - 1)
    }

    /// Returns the fixed counter with this number.
    pub fn fixed(number: u32) -> Self {
        Self(1 << (FIXED + number.min(METRICS - FIXED - 1)))
    }

    /// Returns the numbers of the bits.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |bit| self.0 >> bit & 1 == 1)
    }

    /// Reports whether it contains no counter: the PMU cannot count the event.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reports whether it is a topdown metric, which the kernel counts only in a group that slots lead.
    pub fn is_topdown_metric(self) -> bool {
        self.0 >> METRICS != 0
    }

    /// Reads the counters of a vendor's event list: `0,1,2,3`. `None` for a text without general counters.
    fn parse(text: &str) -> Option<Self> {
        let bits: Option<u64> = text
            .split(',')
            .map(|number| number.trim().parse::<u32>().ok().filter(|&bit| bit < FIXED))
            .map(|bit| bit.map(|bit| 1u64 << bit))
            .sum();
        bits.map(Self)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for CounterMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A counter that counts one event only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedCounter {
    /// The event, in perf's spelling.
    pub event: Arc<str>,
    /// Number among the fixed counters.
    number: u32,
    /// Event code, as in `config`.
    code: u32,
}

/// Which counters of a PMU an event can use.
#[derive(Debug, Clone, PartialEq, Default)]
enum Rules {
    /// Each event can use each general counter. Only generic events have fixed counters.
    #[default]
    Any,
    /// Intel, core and uncore.
    Intel {
        /// Counters by event code and unit mask, for events that cannot use all general counters.
        restricted: BTreeMap<u32, CounterMask>,
        /// Counters of the generic cache events.
        cache: CounterMask,
    },
    /// AMD cores since Zen.
    Amd,
    /// Arm.
    Arm,
}

/// Source of the number of counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// The document or the flag that determines it.
    Documented(String),
    /// The kernel accepted this many events in a group, and no more.
    Measured,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Documented(text) => f.write_str(text),
            Self::Measured => f.write_str("measured"),
        }
    }
}

/// The counters of a PMU.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterSet {
    /// Number of general counters.
    pub general: u32,
    /// Fixed counters.
    pub fixed: Vec<FixedCounter>,
    /// Source of the numbers.
    pub basis: Basis,
    rules: Rules,
}

/// Number of events of a PMU that can be counted at the same time.
#[derive(Debug, Clone, PartialEq)]
pub enum Capacity {
    /// Each event is counted at all times: `msr`, `power`, free-running counters.
    Unlimited,
    /// Not known.
    Unknown(UnknownCounters),
    /// The counters are known.
    Limited(CounterSet),
}

/// A PMU with an unknown number of counters.
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownCounters {
    /// The reason.
    pub reason: String,
    rules: Rules,
}

impl Capacity {
    fn unknown(reason: impl Into<String>, rules: Rules) -> Self {
        Self::Unknown(UnknownCounters { reason: reason.into(), rules })
    }

    /// Returns the capacity with measured numbers: of general counters, and the events that have a fixed counter.
    #[must_use]
    pub fn measured(self, general: u32, fixed: &[&str]) -> Self {
        let (rules, known) = match self {
            Self::Unlimited => return Self::Unlimited,
            Self::Unknown(UnknownCounters { rules, .. }) => (rules, Vec::new()),
            Self::Limited(set) => (set.rules, set.fixed),
        };
        let generic = fixed.iter().filter_map(|event| rules.fixed(event));
        // Only generic events are measured. Others are as documented.
        let other = known.into_iter().filter(|known| rules.fixed(&known.event).is_none());
        let fixed = generic.chain(other).collect();
        Self::Limited(CounterSet { general, fixed, basis: Basis::Measured, rules })
    }
}

/// `PERF_COUNT_HW_CPU_CYCLES`.
const CYCLES: u64 = 0;
/// Event codes of Intel's generic events, by `perf_hw_id` (`intel_perfmon_event_map` in `arch/x86/events/intel/core.c`).
const INTEL_GENERIC: [u32; 10] = [0x3c, 0xc0, 0x4f2e, 0x412e, 0xc4, 0xc5, 0x013c, 0, 0, 0x0300];
/// `CPU_CYCLES` of Arm.
const ARM_CYCLES: u32 = 0x11;
/// Retired SSE and AVX floating-point operations of AMD, which can increase by more than a counter can hold in a cycle. The kernel merges two
/// adjacent counters for it (`amd_is_pair_event_code` in `arch/x86/events/amd/core.c`).
const AMD_PAIRED: u64 = 0x003;

impl Rules {
    /// Returns the fixed counter of a generic event, if PMUs with these rules can have it.
    fn fixed(&self, event: &str) -> Option<FixedCounter> {
        let (number, code) = match (self, event) {
            // Intel SDM volume 3, chapter 20, and the kernel's pseudo-encodings of reference cycles and slots.
            (Self::Intel { .. }, "instructions") => (0, 0xc0),
            (Self::Intel { .. }, "cycles") => (1, 0x3c),
            (Self::Intel { .. }, "ref-cycles") => (2, 0x0300),
            (Self::Intel { .. }, "slots") => (3, 0x0400),
            (Self::Arm, "cycles") => (0, ARM_CYCLES),
            (Self::Any, "cycles") => (0, 0),
            (Self::Any, "instructions") => (1, 1),
            (Self::Any, "ref-cycles") => (2, 9),
            _ => return None,
        };
        Some(FixedCounter { event: event.into(), number, code })
    }
}

impl CounterSet {
    /// Returns the number of counters, without those of topdown metrics.
    pub fn len(&self) -> usize {
        self.general as usize + self.fixed.len()
    }

    /// Reports whether the PMU has no counter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a mask for each counter that an event occupies: one, two for an event in a pair of counters, none for an event that needs
    /// no counter of a PMU.
    pub fn needed_by(&self, event: &Event) -> Vec<CounterMask> {
        if !event.kind.needs_pmu() || event.kind == Kind::Breakpoint {
            return Vec::new();
        }
        let all = CounterMask::general(self.general);
        let [config, ..] = event.selector.config;
        match &self.rules {
            Rules::Intel { restricted, cache } => vec![self.of_intel(event, restricted, *cache)],
            Rules::Amd if event.kind == Kind::Raw && amd_event(config) == AMD_PAIRED => {
                let every_other = |first: u64| CounterMask(first).and(all);
                vec![every_other(0x5555_5555), every_other(0xaaaa_aaaa)]
            }
            Rules::Amd => vec![all],
            Rules::Arm => {
                let code = match event.kind {
                    Kind::Hardware if config & 0xffff_ffff == CYCLES => ARM_CYCLES,
                    Kind::Raw => (config & 0xffff) as u32,
                    _ => 0,
                };
                vec![all | self.fixed_of(code, |_| code != 0)]
            }
            Rules::Any => {
                let is_generic = |_: &FixedCounter| event.kind == Kind::Hardware;
                vec![all | self.fixed_of((config & 0xffff_ffff) as u32, is_generic)]
            }
        }
    }

    /// Returns the counter that the NMI watchdog occupies on each CPU: an event of cycles (`kernel/watchdog_perf.c`).
    pub fn watchdog(&self) -> CounterMask {
        let fixed = self.fixed.iter().find(|fixed| &*fixed.event == "cycles");
        let fixed = fixed.map_or(CounterMask::default(), |fixed| CounterMask::fixed(fixed.number));
        CounterMask::general(self.general) | fixed
    }

    fn fixed_of(&self, code: u32, applies: impl Fn(&FixedCounter) -> bool) -> CounterMask {
        let fixed = self.fixed.iter().find(|fixed| fixed.code == code && applies(fixed));
        fixed.map_or(CounterMask::default(), |fixed| CounterMask::fixed(fixed.number))
    }

    fn of_intel(
        &self,
        event: &Event,
        restricted: &BTreeMap<u32, CounterMask>,
        cache: CounterMask,
    ) -> CounterMask {
        let all = CounterMask::general(self.general);
        let [config, ..] = event.selector.config;
        let (code, is_plain) = match event.kind {
            Kind::Cache => return cache.and(all),
            Kind::Hardware => {
                let generic = usize::try_from(config & 0xffff_ffff).unwrap_or(usize::MAX);
                (INTEL_GENERIC.get(generic).copied().unwrap_or_default(), true)
            }
            // Bits above the unit mask change the meaning of the event, and no fixed counter has them.
            _ => ((config & 0xffff) as u32, config >> 16 == 0),
        };
        let (select, umask) = (code & 0xff, code >> 8);
        if event.kind == Kind::Raw && is_plain && Topdown::of_code(config) == Some(Topdown::Category) {
            return CounterMask(1 << (METRICS + (umask & 7)));
        }
        let fixed = self.fixed_of(code, |_| is_plain);
        // Event select 0 is a pseudo-encoding: only a fixed counter has the event.
        if select == 0 && !fixed.is_empty() {
            return fixed;
        }
        // The kernel lets the event of a fixed counter use each general counter too.
        match restricted.get(&code) {
            Some(&only) if fixed.is_empty() => only.and(all | CounterMask(!0 << FIXED)),
            _ => all | fixed,
        }
    }
}

/// Returns AMD's event number, which is in two parts of `config`.
fn amd_event(config: u64) -> u64 {
    config & 0xff | config >> 24 & 0xf00
}

#[cfg(test)]
mod tests {
    use super::super::Selector;
    use super::super::generic::{TYPE_HARDWARE, TYPE_HW_CACHE, TYPE_RAW};
    use super::*;

    fn event(kind: Kind, config: u64) -> Event {
        let number = match kind {
            Kind::Hardware => TYPE_HARDWARE,
            Kind::Cache => TYPE_HW_CACHE,
            _ => TYPE_RAW,
        };
        Event::unnamed(kind, Selector { kind: number, config: [config, 0, 0, 0] }, String::new())
    }

    fn set(rules: Rules, general: u32, fixed: &[&str]) -> CounterSet {
        let unknown = Capacity::unknown("", rules);
        let Capacity::Limited(set) = unknown.measured(general, fixed) else { panic!("limited") };
        set
    }

    fn bits(mask: CounterMask) -> Vec<u32> {
        mask.iter().collect()
    }

    fn intel() -> CounterSet {
        let restricted = [(0x01d1, CounterMask(0xf)), (0x0100, CounterMask::fixed(0))].into();
        let rules = Rules::Intel { restricted, cache: CounterMask(0xf) };
        set(rules, 8, &["instructions", "cycles", "ref-cycles", "slots"])
    }

    /// The constraints of `intel_icl_event_constraints` in the kernel.
    #[test]
    fn events_of_intel_use_the_counters_of_the_kernels_constraints() {
        let all: Vec<u32> = (0..8).collect();
        let with = |fixed: u32| [all.clone(), vec![32 + fixed]].concat();
        for (kind, config, expected) in [
            (Kind::Hardware, 0, with(1)),
            (Kind::Hardware, 1, with(0)),
            (Kind::Hardware, 3, all.clone()),
            (Kind::Hardware, 9, vec![34]),
            (Kind::Raw, 0xc0, with(0)),
            (Kind::Raw, 0x0400, vec![35]),
            (Kind::Raw, 0x8100, vec![49]),
            (Kind::Raw, 0x0100, vec![32]),
            (Kind::Raw, 0x01d1, vec![0, 1, 2, 3]),
            // With a counter mask, the event is not that of the fixed counter.
            (Kind::Raw, 0x0100_00c0, all.clone()),
            (Kind::Cache, 0, vec![0, 1, 2, 3]),
            (Kind::Software, 0, vec![]),
        ] {
            let masks = intel().needed_by(&event(kind, config));
            assert_eq!(masks.into_iter().flat_map(bits).collect::<Vec<_>>(), expected, "{kind} {config:#x}");
        }
    }

    #[test]
    fn a_merged_event_of_amd_occupies_an_even_and_an_odd_counter() {
        let set = set(Rules::Amd, 6, &[]);
        let masks =
            |config| set.needed_by(&event(Kind::Raw, config)).into_iter().map(bits).collect::<Vec<_>>();
        assert_eq!(masks(0xff03), [[0, 2, 4], [1, 3, 5]]);
        assert_eq!(masks(0x1_0000_ff03), [[0, 1, 2, 3, 4, 5]], "event 0x103");
    }

    #[test]
    fn cycles_of_arm_can_use_the_cycle_counter() {
        let set = set(Rules::Arm, 6, &["cycles"]);
        let cycles = [0, 1, 2, 3, 4, 5, 32];
        assert_eq!(bits(set.needed_by(&event(Kind::Hardware, 0))[0]), cycles);
        assert_eq!(bits(set.needed_by(&event(Kind::Raw, 0x11))[0]), cycles);
        assert_eq!(bits(set.needed_by(&event(Kind::Raw, 0x08))[0]), cycles[..6]);
        assert_eq!(bits(set.watchdog()), cycles);
        assert_eq!(set.len(), 7);
    }
}
