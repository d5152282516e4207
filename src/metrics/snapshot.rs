//! The result of one collection, sorted and free of duplicates by construction: Prometheus rejects a whole scrape that contains a series
//! twice.

use std::sync::Arc;

use super::{Histogram, Kind, Labels, Metadata};
use crate::clock::Timestamp;

/// All series of one collection. Immutable; readers share it in an `Arc`.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    taken: Timestamp,
    families: Vec<Family>,
    conflicts: Vec<Conflict>,
}

/// All series of one name.
#[derive(Debug, Clone)]
pub struct Family {
    metadata: Arc<Metadata>,
    points: Vec<Point>,
    left_out: usize,
}

/// One series of a family at the time of the snapshot.
#[derive(Debug, Clone)]
pub struct Point {
    /// Labels, shared with every other family that has a series of the same object.
    pub labels: Arc<Labels>,
    /// Value at the time of the snapshot.
    pub value: Value,
    /// Start time of a counter or histogram; meaningless for a gauge.
    pub start: Timestamp,
}

impl Point {
    /// Creates a point of a gauge.
    pub fn gauge(labels: Arc<Labels>, value: Value) -> Self {
        Self { labels, value, start: Timestamp::default() }
    }
}

/// A sample value. Counts stay integers as long as possible.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer, printed exactly.
    Integer(u64),
    /// A floating-point quantity.
    Float(f64),
    /// A distribution.
    Histogram(Arc<Histogram>),
}

impl Value {
    /// Returns the number; `None` for a distribution.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Histogram(_) => None,
        }
    }
}

/// Series omitted from a snapshot because of a bug in the code that measured them. Reporting them keeps the scrape valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// Family of the omitted points.
    pub family: Arc<Metadata>,
    /// Number of omitted points. Their label set was a duplicate, their value did not match the kind of the family, or another family of
    /// the same name has a different kind or unit.
    pub points: usize,
}

impl Snapshot {
    /// Sorts the families by name. Families that share name, kind and unit are merged. Of families that share only the name, the first is
    /// kept.
    pub fn new(taken: Timestamp, families: impl IntoIterator<Item = Family>) -> Self {
        let mut incoming: Vec<Family> = families.into_iter().collect();
        incoming.sort_by(|a, b| a.metadata.name().cmp(b.metadata.name()));
        let mut families: Vec<Family> = Vec::with_capacity(incoming.len());
        let mut conflicts = Vec::new();
        for family in incoming {
            match families.last_mut() {
                Some(last) if last.metadata.name() == family.metadata.name() => {
                    if last.metadata.kind() == family.metadata.kind()
                        && last.metadata.unit() == family.metadata.unit()
                    {
                        last.absorb(family);
                    } else {
                        let points = family.points.len() + family.left_out;
                        conflicts.push(Conflict { family: family.metadata, points });
                    }
                }
                _ => families.push(family),
            }
        }
        conflicts.extend(
            families
                .iter()
                .filter(|family| family.left_out > 0)
                .map(|family| Conflict { family: Arc::clone(&family.metadata), points: family.left_out }),
        );
        Self { taken, families, conflicts }
    }

    /// Returns the time at which the collection ended.
    pub fn taken(&self) -> Timestamp {
        self.taken
    }

    /// Returns the families, sorted by name, without duplicate names.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Returns the family with this name, which is without the suffix of its kind.
    pub fn family(&self, name: &str) -> Option<&Family> {
        let place = self.families.binary_search_by(|family| family.metadata.name().cmp(name)).ok()?;
        self.families.get(place)
    }

    /// Returns the snapshot with a part of its families. `family` returns the part of each, or `None` for none.
    #[must_use]
    pub fn part(&self, family: impl FnMut(&Family) -> Option<Family>) -> Self {
        let families = self.families.iter().filter_map(family).collect();
        Self { taken: self.taken, families, conflicts: Vec::new() }
    }

    /// Returns the omitted series; empty unless there is a bug.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Returns the approximate memory of the snapshot in bytes. Shared labels and histograms are included in part.
    pub fn bytes(&self) -> u64 {
        let of_point = |point: &Point| {
            let histogram = match &point.value {
                Value::Histogram(histogram) => histogram.bytes() / Arc::strong_count(histogram),
                Value::Integer(_) | Value::Float(_) => 0,
            };
            size_of::<Point>() + point.labels.bytes() / Arc::strong_count(&point.labels) + histogram
        };
        self.families.iter().flat_map(|family| &family.points).map(of_point).sum::<usize>() as u64
    }

    /// Returns the number of series; a histogram is one series.
    pub fn series(&self) -> usize {
        self.families.iter().map(|family| family.points.len()).sum()
    }
}

impl Family {
    /// Sorts the points by their labels. Of duplicate label sets the first is kept. Points whose value does not match the kind are omitted.
    /// [`Snapshot::conflicts`] reports both.
    pub fn new(metadata: Arc<Metadata>, points: Vec<Point>) -> Self {
        let mut family = Self { metadata, points, left_out: 0 };
        family.normalise();
        family
    }

    /// Returns the name, help text, unit and kind.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// Returns the series, sorted by labels, without duplicate label sets.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Replaces the labels of all series. Series for which `label` returns `None` are dropped.
    #[must_use]
    pub fn relabelled(mut self, mut label: impl FnMut(&Arc<Labels>) -> Option<Arc<Labels>>) -> Self {
        let mut changed = false;
        self.points.retain_mut(|point| {
            let Some(labels) = label(&point.labels) else { return false };
            changed |= !Arc::ptr_eq(&labels, &point.labels);
            point.labels = labels;
            true
        });
        if changed {
            self.normalise();
        }
        self
    }

    /// Returns the family with a part of its series. `point` returns a series, with the same labels, or `None` for none.
    #[must_use]
    pub fn part(&self, point: impl FnMut(&Point) -> Option<Point>) -> Self {
        let points = self.points.iter().filter_map(point).collect();
        Self { metadata: Arc::clone(&self.metadata), points, left_out: 0 }
    }

    fn absorb(&mut self, other: Self) {
        if other.metadata.detail().level < self.metadata.detail().level {
            self.metadata = other.metadata;
        }
        self.points.extend(other.points);
        self.left_out += other.left_out;
        self.normalise();
    }

    fn normalise(&mut self) {
        let before = self.points.len();
        let distribution = self.metadata.kind() == Kind::Histogram;
        self.points.retain(|point| matches!(point.value, Value::Histogram(_)) == distribution);
        // Collections are usually sorted already. The sort is stable, so the first of two equal points stays first.
        if !self.points.is_sorted_by(|a, b| a.labels <= b.labels) {
            self.points.sort_by(|a, b| a.labels.cmp(&b.labels));
        }
        self.points.dedup_by(|later, earlier| later.labels == earlier.labels);
        self.left_out += before - self.points.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(name: &str) -> Arc<Metadata> {
        Metadata::new(name, "help", "", Kind::Counter).unwrap()
    }

    fn point(cpu: &str, value: u64) -> Point {
        Point { labels: Labels::new([("cpu", cpu)]), value: Value::Integer(value), start: Timestamp(0) }
    }

    fn values(family: &Family) -> Vec<(&str, &Value)> {
        family.points().iter().map(|point| (point.labels.text(), &point.value)).collect()
    }

    #[test]
    fn points_are_sorted_and_the_first_of_two_equals_stays() {
        let family = Family::new(counter("a"), vec![point("1", 1), point("0", 2), point("1", 3)]);
        assert_eq!(
            values(&family),
            [(r#"cpu="0""#, &Value::Integer(2)), (r#"cpu="1""#, &Value::Integer(1)),]
        );
        let snapshot = Snapshot::new(Timestamp(0), [family]);
        assert_eq!(snapshot.conflicts(), [Conflict { family: counter("a"), points: 1 }]);
    }

    #[test]
    fn a_value_of_another_kind_is_left_out_and_told() {
        let histogram = Value::Histogram(Arc::new(Histogram::new(&[1.0])));
        let odd = Point { labels: Labels::none(), value: histogram, start: Timestamp(0) };
        let snapshot = Snapshot::new(Timestamp(0), [Family::new(counter("a"), vec![point("0", 1), odd])]);
        assert_eq!((snapshot.series(), snapshot.conflicts().len()), (1, 1));
    }

    #[test]
    fn families_of_one_name_are_one_family() {
        let part = |cpu| Family::new(counter("a"), vec![point(cpu, 1)]);
        let snapshot = Snapshot::new(Timestamp(0), [part("1"), part("0")]);
        assert_eq!(snapshot.families().len(), 1);
        assert_eq!(snapshot.series(), 2);
        assert_eq!(snapshot.conflicts(), []);
    }

    #[test]
    fn of_two_kinds_under_one_name_the_first_stays_and_the_other_is_told() {
        let gauge = Metadata::new("a", "help", "", Kind::Gauge).unwrap();
        let snapshot = Snapshot::new(
            Timestamp(0),
            [
                Family::new(counter("b"), vec![point("0", 1)]),
                Family::new(counter("a"), vec![point("0", 1)]),
                Family::new(Arc::clone(&gauge), vec![point("0", 1)]),
            ],
        );
        let names: Vec<_> = snapshot.families().iter().map(|family| family.metadata().name()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(snapshot.conflicts(), [Conflict { family: gauge, points: 1 }]);
    }
}
