//! What series had when they were told last, which differences are taken from.

use std::iter::Peekable;
use std::slice;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Point, Snapshot};

/// For how many milliseconds a series that is away is remembered: as long as Prometheus looks back.
const KEPT: u64 = 300_000;

/// Series by their labels, and when each was told last.
type Series = FxHashMap<Arc<Labels>, (Timestamp, Point)>;

/// Series that were there and are not, such as counters that could not count for a while. When they come back they go on
/// from where they were.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// By the name of their family.
    families: FxHashMap<Box<str>, Series>,
}

impl Away {
    /// Those of a family.
    pub(super) fn of(&self, family: &str) -> Option<&Series> {
        self.families.get(family)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.families.values().map(FxHashMap::len).sum()
    }

    /// Takes in those that were in the snapshot before and are not in this one, no more of them than this one has, and
    /// forgets those that are back or were away for too long.
    pub(super) fn follow(&mut self, before: Option<&Snapshot>, now: &Snapshot) {
        self.families.retain(|name, series| {
            let mut there = Before::new(find(now, name).map(|family| (now.taken(), family)), None);
            let mut labels: Vec<Arc<Labels>> = series.keys().cloned().collect();
            labels.sort();
            labels.retain(|labels| there.point(labels).is_some());
            labels.iter().for_each(|labels| drop(series.remove(labels)));
            series.retain(|_, (taken, _)| now.taken().0.saturating_sub(taken.0) <= KEPT);
            !series.is_empty()
        });
        let mut room = now.series().saturating_sub(self.len());
        for family in before.iter().flat_map(|before| before.families()) {
            if !matches!(family.metadata().kind(), Kind::Counter | Kind::Histogram) {
                continue;
            }
            let name = family.metadata().name();
            let mut there = Before::new(find(now, name).map(|family| (now.taken(), family)), None);
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

/// The family of this name.
pub(super) fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s Family> {
    let families = snapshot.families();
    let at = families.binary_search_by(|family| family.metadata().name().cmp(name)).ok()?;
    families.get(at)
}

/// What the series of a family had.
pub(super) struct Before<'a> {
    taken: Timestamp,
    points: Peekable<slice::Iter<'a, Point>>,
    away: Option<&'a Series>,
}

impl<'a> Before<'a> {
    /// In a snapshot, and those that were not in it.
    pub(super) fn new(family: Option<(Timestamp, &'a Family)>, away: Option<&'a Series>) -> Self {
        let (taken, points) =
            family.map_or((Timestamp::default(), &[][..]), |(taken, family)| (taken, family.points()));
        Self { taken, points: points.iter().peekable(), away }
    }

    /// The series with these labels, and when it was told; they are asked for in their order.
    pub(super) fn point(&mut self, labels: &Arc<Labels>) -> Option<(Timestamp, &'a Point)> {
        // Mostly the series are the same ones, and so are the places of their labels.
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
