//! How far counts of hardware events can be trusted: the time for which they were on the PMU, and the types of CPUs.

use std::sync::Arc;

use super::additional::{Additional, COUNTERS_MAX};
use super::grid::Grid;
use super::quantity::Quantity;
use super::subject::Subject;
use crate::metrics::Labels;

/// Maximum number of types of CPUs that are distinguished.
const TYPES_MAX: usize = 4;

/// The family with the fraction of the time in which groups of events were on the PMU.
pub(super) const RUNNING: &str = "perf_event_running_ratio";

/// Types of CPUs, by the names of their PMUs. Counts have this label on machines with several types only.
#[derive(Debug, Default)]
pub(super) struct CpuTypes(Vec<Arc<str>>);

impl CpuTypes {
    /// Returns the number of the type of a series; `None` if the machine has one type.
    pub(super) fn number(&mut self, labels: &Labels) -> Option<u8> {
        let pmu = labels.get("pmu")?;
        let known = self.0.iter().position(|known| &**known == pmu);
        let place = known.unwrap_or_else(|| {
            if self.0.len() < TYPES_MAX {
                self.0.push(pmu.into());
            }
            self.0.len() - 1
        });
        u8::try_from(place).ok()
    }

    /// Returns the type on which most events of a family happened in the last step of a grid, and their share. `None` if the machine has one
    /// type of CPU, or none of the events happened.
    pub(super) fn most(
        &self,
        additional: &Additional,
        subject: &Subject,
        family: &str,
        grid: &Grid,
    ) -> Option<(&Arc<str>, f64)> {
        let events = typed(additional, family)?;
        let of = |(number, name)| (subject.amount(Quantity::OnType(events, number), grid), name);
        let all: Vec<(f64, &Arc<str>)> = (0..).zip(&self.0).map(of).collect();
        let total: f64 = all.iter().map(|(amount, _)| amount).sum();
        let most = all.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
        most.filter(|_| total > 0.0).map(|(amount, name)| (name, amount / total))
    }
}

/// Returns the fraction of the time in which the events of a family were on the PMU, in the last step of a grid: the lowest one of the groups of
/// their entry of `counters`. `None` if they were there all the time.
pub(super) fn running_ratio(
    additional: &Additional,
    subject: &Subject,
    family: &str,
    grid: &Grid,
) -> Option<f64> {
    let entry = additional.entry_of(family)?;
    let known = subject.amount(Quantity::Known(entry), grid);
    let waiting = subject.amount(Quantity::Waiting(entry), grid);
    (known > 0.0).then(|| (1.0 - waiting / known).max(0.0))
}

/// Returns the number of the events of a family among those that are recorded by type of CPU.
fn typed(additional: &Additional, family: &str) -> Option<u8> {
    if family == "perf_cgroup_instructions" {
        return Quantity::Instructions.typed();
    }
    let mut all = additional.counters.iter().take(COUNTERS_MAX);
    let number = all.position(|counter| &**counter == family)?;
    Quantity::Counter(u8::try_from(number).ok()?).typed()
}
