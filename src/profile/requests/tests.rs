//! Profiles of the past, from records to times of the wall clock.

use super::*;
use crate::host::Roots;
use crate::profile::log::HISTORY;
use crate::profile::replayed::{EVENT, FixedRing, SAMPLE_FIELDS, empty_directory, sample};
use crate::profile::sample_profiles::sampler;

/// A profiler with a sample each 100 ms of ten seconds, in turn of the processes 1 and 2. The wall clock is far from that of the records.
struct Machine {
    _dir: tempfile::TempDir,
    clock: Clock,
    shared: Shared<FixedRing>,
    /// The wall clock time at which sampling began, 50 ms before the first sample.
    begin: u64,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual(Timestamp(77_000_123));
        let begin = 1_795_716_000_000;
        clock.set_wall(Timestamp(begin));
        let shared = Shared::new(clock.clone(), &Roots::under(dir.path()), empty_directory());
        shared.command(Command::Keep(HISTORY));
        shared.set_samplers(&[sampler("cpu")]);
        let first = clock.kernel() + 50_000_000;
        let record = |at: u64| {
            let pid = 1 + (at % 2) as u32;
            sample(pid, pid, first + at * 100_000_000, &[0xffff_ffff_8100_0000 + at])
        };
        shared.drain(None);
        let source = SampleSource { sampler: 0, fields: SAMPLE_FIELDS, weight: Some(7) };
        shared.add(3, [(EVENT, source)], FixedRing((0..100).map(record).collect()));
        clock.advance(Duration::from_secs(10));
        Self { _dir: dir, clock, shared, begin }
    }

    fn range(&self, from: i64, to: i64) -> TimeRange {
        let at = |offset: i64| Timestamp(self.begin.saturating_add_signed(offset));
        TimeRange { from: at(from), to: at(to) }
    }
}

#[test]
fn samples_of_the_past_have_a_cpu_if_it_is_requested() {
    let machine = Machine::new();
    let cpus = |by_cpu| {
        let selection = Selection { by_cpu, ..Selection::default() };
        let profile = machine.shared.range("cpu", machine.range(0, 10_000), &selection).unwrap();
        assert_eq!(profile.taken(), 100);
        let mut cpus: Vec<_> = profile.samples.iter().map(|sample| sample.cpu).collect();
        cpus.dedup();
        cpus
    };
    assert_eq!((cpus(true), cpus(false)), (vec![Some(3)], vec![None]));
    let recording = machine.shared.begin("cpu", true).unwrap();
    let source = SampleSource { sampler: 0, fields: SAMPLE_FIELDS, weight: Some(7) };
    let record = sample(1, 1, machine.clock.kernel() + 1_000_000, &[0xffff_ffff_8100_0000]);
    machine.shared.add(5, [(EVENT, source)], FixedRing(vec![record]));
    machine.clock.advance(Duration::from_secs(1));
    let profile = machine.shared.end(recording, &Selection::default()).unwrap();
    assert_eq!(profile.samples.iter().map(|sample| sample.cpu).collect::<Vec<_>>(), [Some(5)]);
}

#[test]
fn a_range_of_the_wall_clock_has_exactly_its_samples() {
    let machine = Machine::new();
    let everything = Selection::default();
    for (from, to, samples) in [(2_000, 3_500, 15), (2_050, 2_051, 1), (2_051, 2_150, 0), (0, 10_000, 100)] {
        let range = machine.range(from, to);
        let profile = machine.shared.range("cpu", range, &everything).unwrap();
        assert_eq!((profile.taken(), profile.total()), (samples, samples * 7), "{from} {to}");
        assert_eq!((profile.start, profile.duration.as_millis() as i64), (range.from, to - from));
    }
    // The past before sampling began, and the future, are not covered.
    let profile = machine.shared.range("cpu", machine.range(-5_000, 60_000), &everything).unwrap();
    assert_eq!((profile.start, profile.duration), (Timestamp(machine.begin), Duration::from_secs(10)));
    assert_eq!(profile.taken(), 100);
    let before = machine.shared.range("cpu", machine.range(-5_000, -4_000), &everything).unwrap();
    assert_eq!(
        (before.start, before.duration, before.taken()),
        (Timestamp(machine.begin), Duration::ZERO, 0)
    );
    let unknown = machine.shared.range("none", machine.range(0, 1), &everything);
    assert!(matches!(unknown, Err(NoProfile::Unknown { .. })));
    let log = machine.shared.log_states()["cpu"];
    assert_eq!((log.begin, log.samples), (Some(Timestamp(machine.begin)), 100));
}

#[test]
fn a_profile_of_the_window_ends_now() {
    let machine = Machine::new();
    let last = |length| machine.shared.last("cpu", length, &Selection::default()).unwrap();
    assert_eq!(last(Duration::from_secs(2)).taken(), 20);
    assert_eq!(last(Duration::MAX).taken(), 100);
    machine.clock.advance(Duration::from_secs(55));
    // The window has a minute: it begins five seconds after sampling.
    let profile = last(Duration::MAX);
    assert_eq!((profile.taken(), profile.start), (50, Timestamp(machine.begin + 5_000)));
    assert_eq!(
        machine.shared.range("cpu", machine.range(0, 90_000), &Selection::default()).unwrap().taken(),
        100
    );
}

#[test]
fn a_heat_map_has_the_selected_samples_at_their_offsets() {
    let machine = Machine::new();
    let only = Selection { pid: Some(2), ..Selection::default() };
    let map = |selection: &Selection| {
        machine.shared.heat("cpu", machine.range(-1_500, 2_200), 20, selection).unwrap()
    };
    let all = map(&Selection::default());
    assert_eq!((all.from, all.counts.len()), (Timestamp(machine.begin - 2_000), 5));
    assert_eq!(all.complete_from, Timestamp(machine.begin));
    let rows = |map: &HeatMap, second: usize| {
        let rows = map.counts[second].iter().enumerate();
        rows.filter(|(_, count)| **count > 0).map(|(row, _)| row).collect::<Vec<_>>()
    };
    assert_eq!((rows(&all, 1), rows(&all, 2)), (vec![], vec![1, 3, 5, 7, 9, 11, 13, 15, 17, 19]));
    assert_eq!(rows(&map(&only), 4), [3, 7, 11, 15, 19]);
    let unknown = machine.shared.heat("none", machine.range(0, 1), 20, &only);
    assert!(matches!(unknown, Err(NoProfile::Unknown { .. })));
}

#[test]
fn a_step_of_the_wall_clock_moves_ranges() {
    let machine = Machine::new();
    machine.clock.set_wall(Timestamp(machine.begin + 110_000));
    let range = machine.range(102_000, 103_500);
    assert_eq!(machine.shared.range("cpu", range, &Selection::default()).unwrap().taken(), 15);
}
