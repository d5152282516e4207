//! Events of Intel's top-down metrics: Ice Lake and later, on performance cores.
//!
//! The kernel counts a category (`topdown-retiring`) only in a group that `slots` leads, and neither of them may write records
//! (`intel_pmu_hw_config` in `arch/x86/events/intel/core.c`). No machine here has them: the tests use a fake kernel with the same rules.

use super::pmu::Pmu;
use super::{Catalog, Event, Selector, parse};

/// The name of the leader in sysfs. PMUs without this event count something else under the same codes.
const SLOTS: &str = "slots";
/// Event code and unit mask: `INTEL_ARCH_EVENT_MASK`.
const CODE: u64 = 0xffff;

/// Place of an event in a group of top-down metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topdown {
    /// `slots`, which leads the group (`INTEL_TD_SLOTS`).
    Slots,
    /// The slots of a category (`INTEL_TD_METRIC_RETIRING` to `INTEL_TD_METRIC_MEM_BOUND`).
    Category,
}

impl Topdown {
    /// Returns the place of an event of a PMU.
    pub(super) fn of(pmu: &Pmu, selector: &Selector) -> Option<Self> {
        if pmu.core && pmu.events.contains_key(SLOTS) { Self::of_code(selector.config[0]) } else { None }
    }

    /// Returns the place of an event code on a PMU that has top-down metrics.
    pub(crate) const fn of_code(config: u64) -> Option<Self> {
        match config & CODE {
            0x0400 => Some(Self::Slots),
            // Unit masks 0x80 to 0x87 of event 0.
            0x8000 | 0x8100 | 0x8200 | 0x8300 | 0x8400 | 0x8500 | 0x8600 | 0x8700 => Some(Self::Category),
            _ => None,
        }
    }
}

impl Catalog {
    /// Returns the event `slots` that a group of these events needs as its leader, and lacks.
    pub fn missing_slots(&self, events: &[Event]) -> Option<Event> {
        let needy = events.iter().find(|event| event.topdown == Some(Topdown::Category))?;
        let leads = |event: &Event| event.topdown == Some(Topdown::Slots) && event.pmu == needy.pmu;
        if events.iter().any(leads) {
            return None;
        }
        // The PMU has a name only on hybrid machines.
        let groups = parse(&format!("{}/{SLOTS}/", needy.pmu.as_deref().unwrap_or("cpu"))).ok()?;
        self.resolve(groups.first()?.events.first()?).ok()?.into_iter().next()
    }
}
