//! Format of the records that the kernel writes.

use crate::plan::{Granularity, Stream};
use crate::sys::{Fields, ReadFormat, Sideband};

/// Returns the fields of a record at a switch. Each field costs time at each switch.
pub fn fields(stream: &Stream) -> Fields {
    Fields {
        // The identifier is not reliable here. Several period-1 events, including those of other users, can fire at one switch. The kernel
        // (seen on 6.18) then writes the identifier of the first into all their records. Each group has a ring of its own instead.
        identifier: false,
        tid: stream.granularity == Granularity::Process,
        // If hardware events were off the PMU, the owners of their counts are found by time.
        time: stream.timed || stream.needs_pmu(),
        read: Some(ReadFormat::default()),
        cgroup: stream.cgroup,
        ..Fields::default()
    }
}

/// Returns the fields of records at switches of one bundle; `fields` are those of the stream. A bundle that never waits for a PMU needs no
/// times of the group: its clock measures the same time.
pub fn bundle_fields(fields: Fields, untimed: bool) -> Fields {
    Fields { read: fields.read.map(|_| ReadFormat { untimed }), ..fields }
}

/// Returns the fields of records of the clock. The period makes these longer than records of switches, which distinguishes them. The
/// time is also that of [sideband](sideband) records, which the clock of the first group of a CPU writes.
pub fn clock_fields(switch: Fields) -> Fields {
    Fields { period: true, time: true, ..switch }
}

/// Fields of the event that writes `PERF_RECORD_SWITCH`, which has two records for each switch.
pub const SWITCHES: Fields = Fields { time: true, ..Fields::NONE };

/// Returns the additional records: names, creation and exit of tasks, and cgroups.
pub fn sideband(stream: &Stream) -> Sideband {
    // The kernel writes records of cgroups only if another kind of sideband record is enabled, and records of names are the rarest.
    let task = stream.granularity == Granularity::Process;
    Sideband { comm: true, task, cgroup: stream.cgroup, ..Sideband::default() }
}

/// Returns the size in bytes of the record of a group with a count of switches, a clock and `counters` others.
pub fn record_size(stream: &Stream, counters: usize, untimed: bool) -> usize {
    let fields = bundle_fields(fields(stream), untimed);
    // Header, number of members, two times, switches, clock.
    let words = 1
        + 1
        + if untimed { 0 } else { 2 }
        + 2
        + counters
        + usize::from(fields.tid)
        + usize::from(fields.time)
        + usize::from(fields.cgroup);
    words * size_of::<u64>()
}
