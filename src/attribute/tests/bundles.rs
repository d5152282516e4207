//! The bundles of a CPU: which counters their members provide, and up to which time they are attributed.

use super::super::cpu::{Cpu, Step};
use super::super::timeline::{OwnerKey, Slice};
use super::super::{Attributor, Bundle, Measure, bundle_fields};
use super::machine::{Machine, PACE, Totals, name};
use crate::health::Interval;
use crate::plan::{Granularity, MAX_MEMBERS};
use crate::ring::testing::Switch;
use crate::sys::{Fields, ReadFormat};

const FIELDS: Fields =
    Fields { cgroup: true, time: true, read: Some(ReadFormat { untimed: false }), ..Fields::NONE };

/// Bundle of the hardware events.
const HARDWARE: usize = 1;

/// Returns a software bundle. `counters`: those of each member, the leader first.
fn software(counters: Vec<Vec<usize>>) -> Bundle {
    Bundle { counters, measures: vec![Measure::CgroupSwitches, Measure::Time], switches: 0, untimed: true }
}

/// Returns a CPU with hardware events, and the step of a record 300 nanoseconds after the previous one.
fn cpu() -> (Cpu, Step) {
    let hardware = Bundle { untimed: false, ..software(vec![vec![], vec![], vec![0]]) };
    let bundles = [software(vec![vec![], vec![]]), hardware];
    let step = Step { times: Interval { enabled: 300, running: 100 }, unrecorded: 0, gap: false };
    (Cpu::new(0, &bundles, FIELDS, Granularity::Cgroup), step)
}

/// Attributes one record of a software bundle to a cgroup. Returns its counts.
fn counts(counters: Vec<Vec<usize>>, width: usize, values: &[u64]) -> Vec<(String, Vec<u64>)> {
    let mut attributor = Attributor::new(Granularity::Cgroup, FIELDS, width, false);
    attributor.add_cpu(0, &[software(counters)]);
    let switch = Switch { cgroup: 5, values: values.to_vec(), ..Switch::default() };
    attributor.read(0, 0, |read| read(&switch.record(&bundle_fields(FIELDS, true))));
    let shares = attributor.take(|_| true);
    let counted = shares.iter().filter(|(_, share)| !share.is_empty());
    counted.map(|(owner, share)| (name(owner), share.counts.to_vec())).collect()
}

#[test]
fn a_member_may_provide_any_counters_or_none() {
    // Counters 0 and 1 are consecutive members, counter 2 is not. One member provides counters 3 and 4, another the last two.
    let counters = vec![vec![], vec![], vec![0], vec![1], vec![], vec![2], vec![6], vec![3, 4], vec![5, 7]];
    let values = [1, 1000, 10, 20, 99, 30, 40, 50, 60];
    let expected = vec![10, 20, 30, 50, 50, 60, 40, 60];
    assert_eq!(counts(counters, 8, &values), [("cgroup 5".to_owned(), expected)]);
}

#[test]
fn a_bundle_has_as_many_members_as_a_group_may_have_behind_its_leader_and_its_clock() {
    let counters: Vec<_> =
        [vec![], vec![]].into_iter().chain((0..MAX_MEMBERS).map(|one| vec![one])).collect();
    let mut values = vec![7; 2 + MAX_MEMBERS];
    values[0] = 1;
    let expected = [("cgroup 5".to_owned(), vec![7; MAX_MEMBERS])];
    assert_eq!(counts(counters, MAX_MEMBERS, &values), expected);
}

#[test]
fn a_bundle_without_members_has_no_counts() {
    let mut attributor = Attributor::new(Granularity::Cgroup, FIELDS, 1, true);
    attributor.add_cpu(0, &[software(vec![vec![], vec![], vec![0]]), software(Vec::new())]);
    attributor.settle(0);
    assert!(attributor.take(|_| true).iter().all(|(_, share)| share.is_empty()));
}

#[test]
fn a_counter_that_falls_adds_nothing_until_it_rises_again() {
    let mut machine = Machine::new(Granularity::Cgroup, 1, 2);
    for (switches, time, count) in [(0, 1000, 100), (1, 400, 40), (2, 500, 50)] {
        let counts = vec![count];
        *machine.totals(0, HARDWARE) = Totals { enabled: time, running: time, switches, counts };
        machine.leaves(0, HARDWARE, 5);
    }
    machine.settles(0);
    let shares = machine.attributor.take(|_| true);
    let (_, share) = shares.iter().find(|(_, share)| !share.is_empty()).unwrap();
    assert_eq!(share.counts, [0, 110]);
    assert_eq!(share.presence(HARDWARE), Interval { enabled: 1100, running: 1100 });
}

#[test]
fn a_last_reading_is_raised_to_the_last_record() {
    let mut machine = Machine::new(Granularity::Cgroup, 1, 2);
    for bundle in [0, HARDWARE] {
        machine.counts(0, bundle, 10);
        machine.leaves(0, bundle, 5);
    }
    let last = [0, HARDWARE].map(|bundle| machine.totals(0, bundle).words(bundle));
    // The number of members is part of the format. The last value of the second bundle is higher than that of its record.
    let mut words = last.clone();
    words.iter_mut().for_each(|words| words[1..].fill(0));
    *words[HARDWARE].last_mut().unwrap() = 12;
    machine.attributor.remove_cpu(0, &mut words);
    assert_eq!(words[0], last[0]);
    assert_eq!(words[HARDWARE], [3, 10 * PACE, 10 * PACE, 1, 10 * PACE, 12]);
    assert_eq!(machine.shares(), [("cgroup 5".to_owned(), vec![10, 10]), ("ended".to_owned(), vec![0, 2])]);
}

#[test]
fn a_waiting_span_begins_with_the_enabled_time_of_its_record() {
    let (mut cpu, step) = cpu();
    let bundle = &mut cpu.bundles[HARDWARE];
    bundle.wait(1000, step, OwnerKey::Idle, true);
    // At the start of the clock.
    bundle.wait(200, step, OwnerKey::Idle, true);
    let spans: Vec<_> = bundle.waiting.iter().map(|waiting| (waiting.span.from, waiting.span.to)).collect();
    assert_eq!(spans, [(700, 1000), (0, 200)]);
}

#[test]
fn a_waiting_span_begins_after_the_slices_that_were_passed_over() {
    let (mut cpu, step) = cpu();
    let bundle = &mut cpu.bundles[HARDWARE];
    bundle.pass_over(&Slice { begin: 100, end: 800, owner: OwnerKey::Idle });
    bundle.wait(1000, step, OwnerKey::Idle, true);
    // The record is older than the end of the slice.
    bundle.wait(750, step, OwnerKey::Idle, true);
    let spans: Vec<_> = bundle.waiting.iter().map(|waiting| (waiting.span.from, waiting.span.to)).collect();
    assert_eq!(spans, [(800, 1000), (750, 750)]);
    assert!(bundle.waiting.iter().all(|waiting| waiting.passed_over));
}

#[test]
fn time_is_passed_over_once() {
    let (mut cpu, step) = cpu();
    let bundle = &mut cpu.bundles[HARDWARE];
    let mut passes = |begin, end| bundle.pass_over(&Slice { begin, end, owner: OwnerKey::Idle });
    assert_eq!(passes(100, 300), 200);
    assert_eq!(passes(200, 250), 0, "it is part of the previous slice");
    assert_eq!(passes(250, 400), 100, "only its end is new");
    bundle.conclude_step(500, None);
    assert_eq!(
        bundle.pass_over(&Slice { begin: 400, end: 500, owner: OwnerKey::Idle }),
        0,
        "a record covers it"
    );
    bundle.wait(600, step, OwnerKey::Idle, true);
    assert!(!bundle.waiting[0].passed_over);
}

#[test]
fn slices_that_all_bundles_recorded_are_removed_and_others_are_kept() {
    let mut machine = Machine::new(Granularity::Cgroup, 1, 3);
    for bundle in [1, 2] {
        machine.counts(0, bundle, 20_000);
        machine.leaves(0, bundle, 5);
    }
    machine.runs(0, 5, 20_000);
    machine.settles(0);
    // The second bundle of hardware events is off the PMU while cgroup 6 runs.
    machine.counts(0, 1, 30_000);
    machine.leaves(0, 1, 6);
    machine.runs(0, 6, 30_000);
    machine.settles(0);
    let timeline = &mut machine.attributor.cpus.get_mut(&0).unwrap().timeline;
    let kept = timeline.pop_beyond(0, u64::MAX).map(|slice| slice.owner);
    assert_eq!((kept, timeline.pop_beyond(0, u64::MAX)), (Some(OwnerKey::Cgroup(6)), None));
}

#[test]
fn a_cpu_without_hardware_events_keeps_no_slices() {
    let mut machine = Machine::new(Granularity::Cgroup, 1, 1);
    machine.runs(0, 5, 10);
    assert_eq!(machine.attributor.cpus.get_mut(&0).unwrap().timeline.pop_beyond(0, u64::MAX), None);
}
