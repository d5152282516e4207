//! What `tracepoints` and `probes` come to: which events, what becomes of their fields, and for whom.

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
pub(super) use probes::{Place, one_place, root};

use schemars::JsonSchema;
use serde::Deserialize;

use super::Preset;
use crate::event::syntax::Event;
use crate::probe::Definition;
use crate::target::Targets;

/// One entry of `tracepoints` or `probes`, or of a preset: one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// Where it stands.
    pub kind: TracedKind,
    /// The entry's name in the file.
    pub name: Arc<str>,
    /// The events.
    pub what: What,
    /// For whom; each at most once.
    pub per: Vec<Targets>,
    /// In the kernel's filter language, not yet held against the fields. Of a [`Pair`] it is about `from`, of a timed
    /// function about its entry.
    pub filter: Option<Arc<str>>,
    /// The fields that become labels.
    pub labels: Vec<Label>,
    /// What is added up.
    pub measure: Measure,
    /// How many values of one label are kept apart; the others are `other`.
    pub values: usize,
}

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TracedKind {
    /// Under `tracepoints`.
    Tracepoint,
    /// Under `probes`.
    Probe,
    /// It is `scheduler`.
    Scheduler,
    /// It is `syscalls`.
    Syscalls,
    /// In a set that stands under `presets`.
    Preset(Preset),
}

impl TracedKind {
    /// The key in the file.
    pub const fn section(self) -> &'static str {
        match self {
            Self::Tracepoint => "tracepoints",
            Self::Probe => "probes",
            Self::Scheduler => "scheduler",
            Self::Syscalls => "syscalls",
            Self::Preset(_) => "presets",
        }
    }

    /// The set that it is of, if it is ready-made.
    pub const fn preset(self) -> Option<Preset> {
        match self {
            Self::Preset(preset) => Some(preset),
            Self::Tracepoint | Self::Probe | Self::Scheduler | Self::Syscalls => None,
        }
    }
}

/// Which events an entry is about.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Tracepoints, by name or pattern; at least one. All of them are [`Name::Tracepoint`](crate::event::syntax::Name).
    Events(Vec<Event>),
    /// The time between two tracepoints.
    Pair(Pair),
    /// A probe.
    Probe(Definition),
    /// A function, from its entry to its return, by thread.
    Timed(Definition),
}

/// Two tracepoints that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The first; no pattern.
    pub from: Event,
    /// The second; no pattern.
    pub to: Event,
    /// What is the same in both: fields that both have, `$cpu`, `$tid` or `$pid`; at least one.
    pub key: Vec<Arc<str>>,
    /// How long the first is remembered.
    pub timeout: Duration,
    /// How many are remembered at a time.
    pub pending: usize,
}

/// A field that becomes a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label {
    /// The label's name, fit for Prometheus.
    pub name: Arc<str>,
    /// The field. In a [`Pair`], `from.` or `to.` in front say whose.
    pub field: Arc<str>,
}

/// What is added up over the events.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// Their number.
    Count,
    /// A field.
    Sum(Quantity),
    /// A field, in a histogram. Bounds are in the base unit and grow; without any the buckets are exponential.
    Histogram(Quantity, Option<Vec<f64>>),
    /// The seconds that pass in a [`Pair`] or [`What::Timed`], in a histogram with bounds likewise.
    Elapsed(Option<Vec<f64>>),
}

/// A field that is a quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The field.
    pub field: Arc<str>,
    /// What it is in; `None` = a plain number.
    pub unit: Option<Unit>,
}

impl Quantity {
    /// Prometheus' base unit, which the metric is in: `seconds`, `bytes` or empty.
    pub fn base(&self) -> &'static str {
        self.unit.map_or("", |unit| unit.in_base().0)
    }

    /// What 1 in the field is worth in the base unit.
    pub fn factor(&self) -> f64 {
        self.unit.map_or(1.0, |unit| unit.in_base().1)
    }
}

/// What a field is in. The metric is in seconds or bytes.
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
    /// 1024 bytes, which the kernel calls kB.
    Kibibytes,
    /// 512 bytes: the sectors of block events, whatever the device has.
    Sectors,
    /// Pages of the size that this kernel has.
    Pages,
}

impl Unit {
    /// Prometheus' base unit, and what 1 of this one is worth in it.
    fn in_base(self) -> (&'static str, f64) {
        match self {
            Self::Seconds => ("seconds", 1.0),
            Self::Milliseconds => ("seconds", 1e-3),
            Self::Microseconds => ("seconds", 1e-6),
            Self::Nanoseconds => ("seconds", 1e-9),
            Self::Bytes => ("bytes", 1.0),
            Self::Kibibytes => ("bytes", 1024.0),
            Self::Sectors => ("bytes", 512.0),
            // Fixed for as long as the kernel runs: 4 KiB on x86-64, up to 64 KiB on arm64.
            Self::Pages => ("bytes", rustix::param::page_size() as f64),
        }
    }
}

impl Traced {
    /// The base unit of the metric; empty for a plain number.
    pub fn unit(&self) -> &'static str {
        match &self.measure {
            Measure::Count => "",
            Measure::Sum(quantity) | Measure::Histogram(quantity, _) => quantity.base(),
            Measure::Elapsed(_) => "seconds",
        }
    }

    /// The entry's name without the unit at its end: what the metric of the hits is called, behind the scope.
    pub fn base(&self) -> &str {
        let unit = self.unit();
        let base = self.name.strip_suffix(unit).and_then(|name| name.strip_suffix('_'));
        base.filter(|base| !unit.is_empty() && !base.is_empty()).unwrap_or(&self.name)
    }

    /// The entry that refusals name: of what is ready-made its set, which is what stands in the file.
    pub fn entry(&self) -> Arc<str> {
        self.kind.preset().map_or_else(|| Arc::clone(&self.name), |preset| preset.as_str().into())
    }

    /// What the metric of the sum or the histogram is called: the same with the unit at its end, or for a sum without
    /// a unit with the field, for the hits have the plain name. Where there is neither, [`base`](Self::base).
    pub fn stem(&self) -> String {
        match (self.unit(), &self.measure) {
            ("", Measure::Sum(quantity)) => format!("{}_{}", self.name, quantity.field.to_ascii_lowercase()),
            ("", _) => self.name.to_string(),
            (unit, _) => format!("{}_{unit}", self.base()),
        }
    }
}
