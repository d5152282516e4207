//! What was read from rings and what was lost on the way: one account for metrics, the status page and the log.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::words::words;

words! {
    /// What the records of rings are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Records {
        /// Of the switch stream.
        Switches = "switches",
        /// Of tracepoints and probes.
        Tracepoints = "tracepoints",
        /// Of the scheduler's tracepoints.
        Scheduler = "scheduler",
        /// Of system calls.
        Syscalls = "syscalls",
        /// Of profiles.
        Samples = "samples",
    }
}

impl Records {
    /// What they are called in messages.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Switches => "records of switches",
            Self::Tracepoints => "records of tracepoints and probes",
            Self::Scheduler => "records of the scheduler",
            Self::Syscalls => "records of system calls",
            Self::Samples => "samples",
        }
    }
}

/// What was read, and what was lost. Each count only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Samples that were read: hits, switches.
    pub records: u64,
    /// Records that found no room in their ring.
    pub ring_full: u64,
    /// Switches that the kernel counted and wrote no record of. Some kernels keep threads of their own out of sight.
    pub unrecorded: u64,
    /// Records that are not what their event should have written.
    pub unreadable: u64,
    /// Records that came after younger ones had been looked at.
    pub late: u64,
    /// Records of a ring that was removed while too many records were queued.
    pub queue_full: u64,
    /// How often the kernel stopped an event for a while, for firing too often.
    pub throttled: u64,
}

impl Losses {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What was read and lost after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            records: each(self.records, other.records),
            ring_full: each(self.ring_full, other.ring_full),
            unrecorded: each(self.unrecorded, other.unrecorded),
            unreadable: each(self.unreadable, other.unreadable),
            late: each(self.late, other.late),
            queue_full: each(self.queue_full, other.queue_full),
            throttled: each(self.throttled, other.throttled),
        }
    }

    /// Records that were lost, by reason: all reasons that there are for records of this kind.
    pub fn reasons(self, records: Records) -> Vec<(&'static str, u64)> {
        let (full, unreadable) = (("ring_full", self.ring_full), ("unreadable", self.unreadable));
        let late = ("late", self.late);
        match records {
            Records::Switches => vec![full, ("unrecorded", self.unrecorded), unreadable],
            Records::Tracepoints | Records::Scheduler | Records::Syscalls => vec![full, unreadable, late],
            Records::Samples => vec![full, unreadable, late, ("queue_full", self.queue_full)],
        }
    }
}

/// The metrics of rings.
#[derive(Debug)]
pub(crate) struct RingMetrics {
    records: Arc<Metadata>,
    lost: Arc<Metadata>,
    bytes: Arc<Metadata>,
}

impl RingMetrics {
    pub(crate) fn new() -> Result<Self, NameError> {
        let counter = |name, help| Metadata::new(name, help, "", Kind::Counter);
        Ok(Self {
            records: counter("perf_ring_records", "Records that were read from the rings of all CPUs.")?,
            lost: counter(
                "perf_lost_records",
                "Records that were not read: ring_full, for which the kernel found no room; unrecorded, which it did not \
                 write; unreadable, which are not what they should be; late, which came after younger ones had been read; \
                 queue_full, which were in a ring that was closed while too many records were queued. What lost records of \
                 switches would have told is counted as unattributed.",
            )?,
            bytes: Metadata::new(
                "perf_ring_bytes",
                "Memory of the rings of all CPUs, which is locked.",
                "bytes",
                Kind::Gauge,
            )?,
        })
    }

    /// The families of the rings of these records, which have so many bytes.
    pub(crate) fn publish(&self, records: Records, losses: Losses, bytes: u64) -> [Family; 3] {
        let ring = ("ring", records.as_str());
        let point =
            |labels, value| Point { labels, value: Value::Integer(value), start: Timestamp::default() };
        let lost = losses.reasons(records).into_iter();
        let lost = lost.map(|(reason, count)| point(Labels::new([ring, ("reason", reason)]), count));
        [
            Family::new(Arc::clone(&self.records), vec![point(Labels::new([ring]), losses.records)]),
            Family::new(Arc::clone(&self.lost), lost.collect()),
            Family::new(Arc::clone(&self.bytes), vec![point(Labels::new([ring]), bytes)]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_records_has_its_name_and_its_reasons_of_loss() {
        let losses = Losses {
            records: 1,
            ring_full: 2,
            unrecorded: 3,
            unreadable: 4,
            late: 5,
            queue_full: 6,
            throttled: 7,
        };
        let (full, unreadable, late) = (("ring_full", 2), ("unreadable", 4), ("late", 5));
        let expected = [
            (Records::Switches, "records of switches", vec![full, ("unrecorded", 3), unreadable]),
            (Records::Tracepoints, "records of tracepoints and probes", vec![full, unreadable, late]),
            (Records::Scheduler, "records of the scheduler", vec![full, unreadable, late]),
            (Records::Syscalls, "records of system calls", vec![full, unreadable, late]),
            (Records::Samples, "samples", vec![full, unreadable, late, ("queue_full", 6)]),
        ];
        for (records, plural, reasons) in expected {
            assert_eq!((records.plural(), losses.reasons(records)), (plural, reasons));
        }
        let nothing = Losses::default();
        assert_eq!(losses.plus(losses).since(losses), losses);
        assert_eq!((losses.since(losses), nothing.since(losses)), (nothing, nothing));
    }

    #[test]
    fn metrics_name_the_ring_and_each_reason_of_loss() {
        let losses = Losses { records: 9, unreadable: 4, ..Losses::default() };
        let families = RingMetrics::new().unwrap().publish(Records::Tracepoints, losses, 4096);
        let found = families.each_ref().map(|family| -> Vec<_> {
            let point = |point: &Point| {
                assert_eq!(point.labels.get("ring"), Some("tracepoints"));
                (point.labels.get("reason").map(str::to_owned), point.value.clone())
            };
            family.points().iter().map(point).collect()
        });
        let expected = [
            vec![(None, 9)],
            vec![(Some("late"), 0), (Some("ring_full"), 0), (Some("unreadable"), 4)],
            vec![(None, 4096)],
        ];
        let value = |(reason, value): (Option<&str>, u64)| (reason.map(str::to_owned), Value::Integer(value));
        assert_eq!(found, expected.map(|points| points.into_iter().map(value).collect::<Vec<_>>()));
    }
}
