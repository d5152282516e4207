//! The one model of metrics: families of points, as plain data. It knows no wire format; [`export`](crate::export)
//! turns it into text, and every reader of one collection shares one [`Snapshot`].
//!
//! Names follow Prometheus' conventions (base units, snake case) and are stored without the `_total` that the text
//! formats put behind a counter.

mod histogram;
mod labels;

pub use histogram::Histogram;
pub use labels::{Labels, escape_help, escape_label};

use std::sync::Arc;

use crate::clock::Timestamp;

/// Everything that one collection measured, sorted by family name. Immutable: readers share it behind an `Arc`.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// When the collection ended.
    pub taken: Timestamp,
    /// The families, sorted by name, each name once.
    pub families: Vec<Family>,
}

/// All series of one name.
#[derive(Debug, Clone)]
pub struct Family {
    /// The name without `_total`: `perf_cpu_cycles`, `perf_cgroup_task_clock_seconds`.
    pub name: Arc<str>,
    /// One sentence, unescaped.
    pub help: Arc<str>,
    /// The unit that the name ends with (`seconds`, `bytes`, `ratio`), or empty.
    pub unit: Arc<str>,
    /// What kind of values the points are.
    pub kind: Kind,
    /// The series, sorted by labels, each label set once.
    pub points: Vec<Point>,
}

/// What the values of a family mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from its start time.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; the labels are the message.
    Info,
    /// A distribution.
    Histogram,
}

/// One series of a family at the time of the snapshot.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its labels, shared with every other family that has a series for the same thing.
    pub labels: Arc<Labels>,
    /// Its value.
    pub value: Value,
    /// Since when a counter or histogram has been counting; for a gauge, without meaning.
    pub start: Timestamp,
}

/// A value. Counts stay integers for as long as they are integers.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number, printed exactly.
    Integer(u64),
    /// A quantity.
    Float(f64),
    /// A distribution.
    Histogram(Arc<Histogram>),
}
