//! Values of series at their last report, from which deltas are computed.

use std::iter::Peekable;
use std::slice;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Point, Snapshot};

/// Time in milliseconds for which a missing series is remembered: equal to the lookback of Prometheus.
const RETENTION: u64 = 300_000;

/// Series by labels, with the time of their last report.
type Series = FxHashMap<Arc<Labels>, (Timestamp, Point)>;

/// Series that are temporarily missing, such as counters that could not count for a while. When they return, they continue from their last
/// value.
#[derive(Debug, Default)]
pub(super) struct AbsentSeries {
    /// Missing series, by the name of their family.
    families: FxHashMap<Box<str>, Series>,
}

impl AbsentSeries {
    /// Returns the missing series of a family.
    pub(super) fn of(&self, family: &str) -> Option<&Series> {
        self.families.get(family)
    }

    /// Returns the number of missing series.
    pub(super) fn len(&self) -> usize {
        self.families.values().map(FxHashMap::len).sum()
    }

    /// Adds series that are in the previous snapshot but not in this one, at most as many as this one has. Removes series that have
    /// returned or were missing for too long.
    pub(super) fn follow(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        self.families.retain(|name, series| {
            let mut there = PreviousValues::new(find(now, name).map(|family| (now.taken(), family)), None);
            let mut labels: Vec<Arc<Labels>> = series.keys().cloned().collect();
            labels.sort();
            labels.retain(|labels| there.point(labels).is_some());
            labels.iter().for_each(|labels| drop(series.remove(labels)));
            series.retain(|_, (taken, _)| now.taken().0.saturating_sub(taken.0) <= RETENTION);
            !series.is_empty()
        });
        let mut room = now.series().saturating_sub(self.len());
        for family in before.iter().flat_map(|before| before.families()) {
            if !matches!(family.metadata().kind(), Kind::Counter | Kind::Histogram) {
                continue;
            }
            let name = family.metadata().name();
            let mut there = PreviousValues::new(find(now, name).map(|family| (now.taken(), family)), None);
            for point in family.points() {
                if there.point(&point.labels).is_none() && room > 0 {
                    let taken = before.map_or(now.taken(), Snapshot::taken);
                    let series = self.families.entry(name.into()).or_default();
                    series.insert(Arc::clone(&point.labels), (taken, point.clone()));
                    room -= 1;
                }
            }
        }
    }
}

/// Returns the family with this name.
pub(super) fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s Family> {
    let families = snapshot.families();
    let at = families.binary_search_by(|family| family.metadata().name().cmp(name)).ok()?;
    families.get(at)
}

/// Earlier values of the series of a family.
pub(super) struct PreviousValues<'a> {
    taken: Timestamp,
    points: Peekable<slice::Iter<'a, Point>>,
    away: Option<&'a Series>,
}

impl<'a> PreviousValues<'a> {
    /// Combines the series of a snapshot with those missing in it.
    pub(super) fn new(family: Option<(Timestamp, &'a Family)>, away: Option<&'a Series>) -> Self {
        let (taken, points) =
            family.map_or((Timestamp::default(), &[][..]), |(taken, family)| (taken, family.points()));
        Self { taken, points: points.iter().peekable(), away }
    }

    /// Returns the series with these labels and the time of its last report. Calls must be in the order of the labels.
    pub(super) fn point(&mut self, labels: &Arc<Labels>) -> Option<(Timestamp, &'a Point)> {
        // Usually the series are unchanged, so their labels have the same addresses.
        let found = |point: &&Point| Arc::ptr_eq(&point.labels, labels);
        while !self.points.peek().is_some_and(found)
            && self.points.next_if(|point| point.labels < *labels).is_some()
        {}
        match self.points.next_if(|point| found(point) || point.labels == *labels) {
            Some(point) => Some((self.taken, point)),
            None => self.away?.get(labels).map(|(taken, point)| (*taken, point)),
        }
    }
}
