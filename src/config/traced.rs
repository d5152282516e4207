//! Checks of `tracepoints` and `probes`: events, measured fields and targets.

mod entries;
mod fields;
mod names;
mod presets;
mod probes;
#[cfg(test)]
mod tests;
mod tracepoints;

use std::sync::Arc;
use std::time::Duration;

pub(super) use entries::traced;
pub(super) use fields::{Fields, filter};
pub(super) use probes::{Place, one_place, within};

use schemars::JsonSchema;
use serde::Deserialize;

use super::Preset;
use crate::event::syntax::Event;
use crate::metrics::Level;
use crate::probe::Definition;
use crate::targets::Targets;

/// Entry of `tracepoints` or `probes`, or of a preset: one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// Section of the entry.
    pub kind: TracedKind,
    /// Name of the entry in the file.
    pub name: Arc<str>,
    /// Events.
    pub source: EventSource,
    /// Targets, without duplicates.
    pub per: Vec<Targets>,
    /// Filter in the kernel's filter language, not yet checked against the fields. For a [`Pair`] it applies to `from`, for a timed
    /// function to its entry.
    pub filter: Option<Arc<str>>,
    /// Fields that become labels.
    pub labels: Vec<Label>,
    /// Measured value.
    pub measure: Measure,
    /// Maximum number of distinct values of one label; further values are aggregated into `other`.
    pub values: usize,
    /// Lowest level at which the metrics are published.
    pub level: Level,
}

/// Section of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TracedKind {
    /// `tracepoints`.
    Tracepoint,
    /// `probes`.
    Probe,
    /// `scheduler`.
    Scheduler,
    /// `syscalls`.
    Syscalls,
    /// Preset that is enabled in `presets`.
    Preset(Preset),
}

impl TracedKind {
    /// Returns the key in the file.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Tracepoint => "tracepoints",
            Self::Probe => "probes",
            Self::Scheduler => "scheduler",
            Self::Syscalls => "syscalls",
            Self::Preset(_) => "presets",
        }
    }

    /// Returns the preset of the entry, if it has one.
    pub const fn preset(self) -> Option<Preset> {
        match self {
            Self::Preset(preset) => Some(preset),
            Self::Tracepoint | Self::Probe | Self::Scheduler | Self::Syscalls => None,
        }
    }
}

/// Events of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum EventSource {
    /// Tracepoints, by name or pattern; at least one. All of them are [`Name::Tracepoint`](crate::event::syntax::Name).
    Events(Vec<Event>),
    /// Time between two tracepoints.
    Pair(Pair),
    /// Probe.
    Probe(Definition),
    /// Function from its entry to its return, by thread.
    Timed(Definition),
}

/// Two tracepoints that are matched by a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// First event; not a pattern.
    pub from: Event,
    /// Second event; not a pattern.
    pub to: Event,
    /// Key that matches both events: fields that both have, `$cpu`, `$tid` or `$pid`; at least one.
    pub key: Vec<Arc<str>>,
    /// Maximum time from the first event to the second.
    pub timeout: Duration,
    /// Maximum number of pending first events.
    pub pending: usize,
}

/// Field that becomes a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label {
    /// Label name, valid in Prometheus.
    pub name: Arc<str>,
    /// Field. In a [`Pair`], the prefix `from.` or `to.` selects the event.
    pub field: Arc<str>,
}

/// Measured value of the events.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// Number of events.
    Count,
    /// Sum of a field.
    Sum(Quantity),
    /// Histogram of a field. Bounds are in the base unit and ascending; `None` = exponential buckets.
    Histogram(Quantity, Option<Vec<f64>>),
    /// Histogram of the duration of a [`Pair`] or [`EventSource::Timed`], in seconds, with the same kind of bounds.
    Elapsed(Option<Vec<f64>>),
}

/// Field with a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// Field.
    pub field: Arc<str>,
    /// Unit of the field; `None` = a plain number.
    pub unit: Option<Unit>,
}

impl Quantity {
    /// Returns the Prometheus base unit of the metric: `seconds`, `bytes` or empty.
    pub fn base(&self) -> &'static str {
        self.unit.map_or("", |unit| unit.in_base().0)
    }

    /// Returns the factor from the unit of the field to the base unit.
    pub fn factor(&self) -> f64 {
        self.unit.map_or(1.0, |unit| unit.in_base().1)
    }
}

/// Unit of a field. The metric is in seconds or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths of a second.
    Microseconds,
    /// Billionths of a second.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// 1024 bytes; the kernel's kB.
    Kibibytes,
    /// 512 bytes: the sectors of block events, independent of the device.
    Sectors,
    /// Pages of the page size of this kernel.
    Pages,
}

impl Unit {
    /// Returns the Prometheus base unit and the factor to it.
    fn in_base(self) -> (&'static str, f64) {
        match self {
            Self::Seconds => ("seconds", 1.0),
            Self::Milliseconds => ("seconds", 1e-3),
            Self::Microseconds => ("seconds", 1e-6),
            Self::Nanoseconds => ("seconds", 1e-9),
            Self::Bytes => ("bytes", 1.0),
            Self::Kibibytes => ("bytes", 1024.0),
            Self::Sectors => ("bytes", 512.0),
            // Constant while the kernel runs: 4 KiB on x86-64, up to 64 KiB on arm64.
            Self::Pages => ("bytes", rustix::param::page_size() as f64),
        }
    }
}

impl Traced {
    /// Returns the base unit of the metric; empty for a plain number.
    pub fn unit(&self) -> &'static str {
        match &self.measure {
            Measure::Count => "",
            Measure::Sum(quantity) | Measure::Histogram(quantity, _) => quantity.base(),
            Measure::Elapsed(_) => "seconds",
        }
    }

    /// Returns the entry's name without a unit suffix: the metric name of the hits, after the scope.
    pub fn base(&self) -> &str {
        let unit = self.unit();
        let base = self.name.strip_suffix(unit).and_then(|name| name.strip_suffix('_'));
        base.filter(|base| !unit.is_empty() && !base.is_empty()).unwrap_or(&self.name)
    }

    /// Returns the name of the entry in messages: the preset for entries of a preset, because the file contains only that.
    pub fn entry(&self) -> Arc<str> {
        self.kind.preset().map_or_else(|| Arc::clone(&self.name), |preset| preset.as_str().into())
    }

    /// Returns the metric name of the sum or the histogram: [`base`](Self::base) with the unit. A sum without a unit has the name of the
    /// field appended, because the hits have the plain name. Otherwise returns the entry's name.
    pub fn stem(&self) -> String {
        match (self.unit(), &self.measure) {
            ("", Measure::Sum(quantity)) => format!("{}_{}", self.name, quantity.field.to_ascii_lowercase()),
            ("", _) => self.name.to_string(),
            (unit, _) => format!("{}_{unit}", self.base()),
        }
    }
}
