//! What the kernel is asked to write.

use crate::plan::{Granularity, Stream};
use crate::sys::{Fields, ReadFormat, Sideband};

/// What a record at a switch carries. Each field costs time at each switch.
pub fn fields(stream: &Stream) -> Fields {
    Fields {
        // Not to be trusted here: when several period-1 events fire at one switch, ours and other people's, the kernel
        // (seen on 6.18) gives all their records the identifier of the first. Each group has a ring of its own instead.
        identifier: false,
        tid: stream.granularity == Granularity::Process,
        // The owners of what hardware events counted are found by time if they were off the PMU.
        time: stream.timed || stream.needs_pmu(),
        read: Some(ReadFormat::default()),
        cgroup: stream.cgroup,
        ..Fields::default()
    }
}

/// The fields of records at switches of one bundle; `fields` are those of the stream. A bundle that never waits for a PMU needs no
/// times of the group: its clock counts the same.
pub fn bundle_fields(fields: Fields, untimed: bool) -> Fields {
    let read = fields.read.map(|read| ReadFormat { untimed, ..read });
    Fields { read, ..fields }
}

/// Returns the fields of records of the clock. The period makes these longer than records of switches, which distinguishes them. The
/// time is also that of [sideband](sideband) records, which the clock of the first group of a CPU writes.
pub fn clock_fields(switch: Fields) -> Fields {
    Fields { period: true, time: true, ..switch }
}

/// Fields of the event that writes `PERF_RECORD_SWITCH`.
pub const SWITCHES: Fields = Fields { tid: true, time: true, ..Fields::NONE };

/// What is written besides: the names of who comes and goes.
pub fn sideband(stream: &Stream) -> Sideband {
    // The kernel writes about cgroups only where one of the others is asked for, and names are the rarest.
    let task = stream.granularity == Granularity::Process;
    Sideband { comm: true, task, cgroup: stream.cgroup, ..Sideband::default() }
}

/// Bytes of the record of a group that has `counters` besides its leader and its clock.
pub fn record_size(stream: &Stream, counters: usize, untimed: bool) -> usize {
    let fields = bundle_fields(fields(stream), untimed);
    // Header, number of members, two times, leader, clock.
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
