//! Counts of records that were read from rings and lost, for metrics, the status page and the log.

use std::sync::Arc;

use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::named_enum::named_enum;

named_enum! {
    /// Kinds of records in rings.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Records {
        /// Records of the switch stream.
        Switches = "switches",
        /// Records of tracepoints and probes.
        Tracepoints = "tracepoints",
        /// Records of the scheduler's tracepoints.
        Scheduler = "scheduler",
        /// Records of system calls.
        Syscalls = "syscalls",
        /// Records of profiles.
        Samples = "samples",
    }
}

impl Records {
    /// Returns the name of the records in messages, in the plural.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Switches => "switch records",
            Self::Tracepoints => "tracepoint and probe records",
            Self::Scheduler => "scheduler records",
            Self::Syscalls => "system call records",
            Self::Samples => "samples",
        }
    }
}

/// Counts of records that were read and lost. Each count only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Samples that were read: hits or switches.
    pub records: u64,
    /// Records that were lost because their ring was full.
    pub ring_full: u64,
    /// Switches that the kernel counted without writing a record. Some kernels write none for switches of some of their own threads.
    pub unrecorded: u64,
    /// Malformed records, which do not have the format of their event.
    pub unreadable: u64,
    /// Records that arrived late, after newer ones had been processed.
    pub late: u64,
    /// Records of a ring that was removed while too many records were queued.
    pub queue_full: u64,
    /// Number of times that the kernel throttled an event because it fired too often.
    pub throttled: u64,
}

impl Losses {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the counts since `before`.
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

    /// Returns the number of lost records for each reason that applies to this kind of record.
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

/// Metadata of the metrics of rings.
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
            records: counter("perf_ring_records", "Records read from the rings of all CPUs.")?,
            lost: counter(
                "perf_lost_records",
                "Lost records, by reason: ring_full, the ring was full; unrecorded, the kernel did not write the record; \
                 unreadable, the record is malformed; late, the record arrived after newer records were processed; queue_full, \
                 the ring was closed while too many records were queued. Counts affected by lost switch records are \
                 unattributed.",
            )?,
            bytes: Metadata::new(
                "perf_ring_bytes",
                "Locked memory of the rings of all CPUs.",
                "bytes",
                Kind::Gauge,
            )?,
        })
    }

    /// Returns the families of the rings of these records, which have a total size of `bytes`.
    pub(crate) fn publish(&self, records: Records, losses: Losses, bytes: u64) -> [Family; 3] {
        let ring = ("ring", records.as_str());
        let point = |labels, value| Point::gauge(labels, Value::Integer(value));
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
            (Records::Switches, "switch records", vec![full, ("unrecorded", 3), unreadable]),
            (Records::Tracepoints, "tracepoint and probe records", vec![full, unreadable, late]),
            (Records::Scheduler, "scheduler records", vec![full, unreadable, late]),
            (Records::Syscalls, "system call records", vec![full, unreadable, late]),
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
