//! The fields and the size of the records that the stream requests.

use super::super::{bundle_fields, clock_fields, fields, record_size, sideband};
use crate::event::{Catalog, Kind};
use crate::host::{Facts, Roots};
use crate::plan::{Granularity, Set, Stream};
use crate::ring::testing::Switch;
use crate::sys::{Fields, ReadFormat, Sideband};

fn stream(granularity: Granularity, cgroup: bool, timed: bool) -> Stream {
    Stream { granularity, cgroup, timed, sets: Vec::new() }
}

/// Returns a set of one event of this kind.
fn set(kind: Kind) -> Set {
    let catalog = Catalog::load(&Roots::under(tempfile::tempdir().unwrap().path()), &Facts::default());
    let mut events = catalog.resolve(&crate::config::profiled::one_event("page-faults").unwrap()).unwrap();
    events.iter_mut().for_each(|event| event.kind = kind);
    Set { events, entries: Vec::new() }
}

#[test]
fn records_contain_the_thread_and_the_cgroup_only_where_these_are_distinguished() {
    let contents = |granularity, cgroup| {
        let fields = fields(&stream(granularity, cgroup, false));
        (fields.tid, fields.cgroup)
    };
    assert_eq!(contents(Granularity::Cgroup, true), (false, true));
    assert_eq!(contents(Granularity::Process, true), (true, true));
    assert_eq!(contents(Granularity::Process, false), (true, false));
}

#[test]
fn records_contain_the_time_if_threads_are_followed_or_events_need_the_pmu() {
    for (timed, kind, expected) in [
        (false, Kind::Software, false),
        (true, Kind::Software, true),
        (false, Kind::Hardware, true),
        (true, Kind::Hardware, true),
    ] {
        let stream = Stream { sets: vec![set(kind)], ..stream(Granularity::Process, true, timed) };
        assert_eq!(fields(&stream).time, expected, "{timed} {kind:?}");
    }
}

#[test]
fn records_of_the_clock_contain_the_period_and_the_time_in_addition() {
    let switch = fields(&stream(Granularity::Process, true, false));
    let read = Some(ReadFormat::default());
    let expected = Fields { tid: true, cgroup: true, read, period: true, time: true, ..Fields::NONE };
    assert_eq!(clock_fields(switch), expected);
}

#[test]
fn the_kernel_describes_tasks_only_where_processes_are_distinguished() {
    let process = sideband(&stream(Granularity::Process, false, false));
    assert_eq!(process, Sideband { comm: true, task: true, ..Sideband::default() });
    let cgroup = sideband(&stream(Granularity::Cgroup, true, false));
    assert_eq!(cgroup, Sideband { comm: true, cgroup: true, ..Sideband::default() });
}

#[test]
fn the_size_of_a_record_is_that_of_the_record_that_the_kernel_writes() {
    for granularity in [Granularity::Cgroup, Granularity::Process] {
        for (cgroup, timed, untimed) in
            [(false, false, false), (true, false, false), (false, true, false), (false, false, true)]
        {
            let stream = stream(granularity, cgroup, timed);
            for counters in [0, 1, 5] {
                let record = Switch { values: vec![0; 2 + counters], ..Switch::default() }
                    .record(&bundle_fields(fields(&stream), untimed));
                let size = record_size(&stream, counters, untimed);
                assert_eq!(size, record.len(), "{stream:?} {counters} {untimed}");
            }
        }
    }
}
