//! What the series of a group of counters count.

use std::sync::{Arc, OnceLock};

use crate::clock::Timestamp;
use crate::health::Interval;
use crate::metrics::Labels;
use crate::plan::Group;
use crate::series::{Series, Table, Total};

use super::naming::group_labels;

/// Nanoseconds of recent CPU time below which no series takes the labels of another. Of targets that only wake up now and then
/// some always did so last, and would alternate.
const LEAST_ACTIVITY: u64 = 1_000_000;

/// The series of one group. The labels are those of families about all groups, rendered when they are first published.
pub(super) type SeriesTable = Table<Counts, OnceLock<Arc<Labels>>>;

/// A total for each counter of a group.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    /// Of each counter.
    pub(super) totals: Box<[u64]>,
    /// Which counters have ever counted. The total of the others is unknown, not zero.
    pub(super) counted: Box<[bool]>,
    /// Which counters are not plausible in this collection.
    pub(super) doubted: Box<[bool]>,
    /// Of an aggregated series: which counters are plausible in one of its series at least.
    believed: Box<[bool]>,
    /// Enabled and running time in this collection.
    pub(super) interval: Interval,
}

/// An empty table for a group.
pub(super) fn table(plan: &Group, limit: usize, now: Timestamp) -> SeriesTable {
    Table::new(Counts::new(plan.counters.len()), limit, LEAST_ACTIVITY, now)
}

/// Adds the CPU time of this collection to the activity of all series.
pub(super) fn note_activity(table: &mut SeriesTable) {
    table.iter_mut().for_each(|series: &mut Series<Counts, _>| series.active = series.total.interval.enabled);
}

/// The labels of a series in families about all groups.
pub(super) fn quality_labels(own: &Labels, known: &OnceLock<Arc<Labels>>, plan: &Group) -> Arc<Labels> {
    let render = || {
        let group = group_labels(plan);
        Labels::new(own.pairs().chain(group.iter().map(|(name, value)| (&**name, &**value))))
    };
    Arc::clone(known.get_or_init(render))
}

impl Counts {
    fn new(counters: usize) -> Self {
        let [counted, doubted, believed] = [(); 3].map(|()| vec![false; counters].into());
        Self { totals: vec![0; counters].into(), counted, doubted, believed, interval: Interval::default() }
    }

    /// The total of a counter, unless it is unknown or not plausible.
    ///
    /// One implausible series does not take away what the others of an aggregated series counted, as it does from those with the
    /// same labels: labels stand for one thing that a user can look into, `other` for a thousand.
    pub(super) fn known(&self, counter: usize) -> Option<u64> {
        let plausible = !*self.doubted.get(counter)? || *self.believed.get(counter)?;
        self.totals.get(counter).copied().filter(|_| plausible && self.counted[counter])
    }
}

impl Total for Counts {
    fn absorb(&mut self, from: &mut Self) {
        for (total, more) in self.totals.iter_mut().zip(&mut from.totals) {
            *total = total.saturating_add(std::mem::take(more));
        }
        for (believed, (counted, doubted)) in
            self.believed.iter_mut().zip(from.counted.iter().zip(&from.doubted))
        {
            *believed |= counted & !doubted;
        }
        for (doubted, more) in self.doubted.iter_mut().zip(&from.doubted) {
            *doubted |= more;
        }
        for (counted, more) in self.counted.iter_mut().zip(&mut from.counted) {
            *counted |= std::mem::take(more);
        }
        let Interval { enabled, running } = std::mem::take(&mut from.interval);
        self.interval.enabled = self.interval.enabled.saturating_add(enabled);
        self.interval.running = self.interval.running.saturating_add(running);
    }

    fn begin_collection(&mut self) {
        self.interval = Interval::default();
        self.doubted.fill(false);
        self.believed.fill(false);
    }

    fn bytes(&self) -> usize {
        self.totals.len() * (size_of::<u64>() + 3)
    }
}
