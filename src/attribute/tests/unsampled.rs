//! Context switches without a sample, reconstructed from `PERF_RECORD_SWITCH`.

use std::collections::BTreeMap;

use perf_event_open_sys::bindings as abi;
use proptest::prelude::*;

use super::super::unsampled::UnsampledSwitches;
use super::machine::{Machine, PACE, name};
use crate::attribute::Measure;
use crate::plan::Granularity;
use crate::ring::testing;

const IDLE: u32 = 0;

/// A machine with one CPU and `PERF_RECORD_SWITCH`, on which `next` has just replaced `first`.
fn with_records(granularity: Granularity, measure: Measure, first: u32, next: u32) -> Machine {
    let mut machine = Machine::measuring(granularity, 1, 1, measure);
    machine.runs(0, first, 1);
    machine.goes(0, next);
    machine.comes(0, first);
    machine.attributor.take(|_| true);
    machine
}

/// Runs a thread and switches it out without a sample; writes both `PERF_RECORD_SWITCH` of the switch.
fn leaves_unseen(machine: &mut Machine, who: u32, steps: u64, next: u32) {
    machine.runs_unseen(0, steps);
    machine.goes(0, next);
    machine.comes(0, who);
}

/// Returns the steps in which each owner had the CPU, and its count of the first counter. Times are in steps.
fn charged(machine: &mut Machine) -> BTreeMap<String, (u64, u64)> {
    let (shares, unit) = (machine.attributor.take(|_| true), machine.unit);
    let mut charged = BTreeMap::<String, (u64, u64)>::new();
    for (owner, share) in shares.iter().filter(|(_, share)| !share.is_empty()) {
        let steps = u64::try_from(share.time.as_nanos()).unwrap() / PACE;
        let (time, count) = charged.entry(name(owner)).or_default();
        (*time, *count) = (*time + steps, *count + share.counts[0] / unit);
    }
    charged
}

fn owned<const N: usize>(expected: [(&str, u64, u64); N]) -> BTreeMap<String, (u64, u64)> {
    expected.map(|(owner, steps, count)| (owner.to_owned(), (steps, count))).into()
}

#[test]
fn idle_that_leaves_unseen_has_its_time_and_who_comes_has_the_counts() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 7);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("idle", 30, 0), ("7 ?", 12, 42)]));
    assert_eq!(machine.attributor.losses().unrecorded, 0);
}

#[test]
fn a_clock_that_ticks_after_an_unseen_switch_splits_as_well_and_only_once() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 7);
    machine.counts(0, 0, 10);
    machine.ticks(0, 0, 7);
    machine.runs(0, 7, 2);
    assert_eq!(charged(&mut machine), owned([("idle", 30, 0), ("7 ?", 12, 42)]));
}

#[test]
fn times_and_switches_of_an_unseen_owner_are_its_own() {
    for (measure, idles) in [(Measure::Time, 30), (Measure::Switches, 1), (Measure::Other, 0)] {
        let mut machine = with_records(Granularity::Process, measure, 5, IDLE);
        leaves_unseen(&mut machine, IDLE, 30, 7);
        machine.runs(0, 7, 12);
        assert_eq!(
            charged(&mut machine),
            owned([("idle", 30, idles), ("7 ?", 12, 42 - idles)]),
            "{measure:?}"
        );
    }
}

#[test]
fn between_cgroups_what_was_before_idle_left_unseen_is_of_the_root() {
    let mut machine = with_records(Granularity::Cgroup, Measure::Switches, 5, IDLE);
    // A thread of the root, which does not change the cgroup: all three switches have no sample, and the leader counts the last one.
    for (from, to) in [(IDLE, 70), (70, IDLE)] {
        machine.counts(0, 0, 10);
        machine.goes(0, to);
        machine.comes(0, from);
    }
    leaves_unseen(&mut machine, IDLE, 10, 80);
    machine.runs(0, 6, 12);
    assert_eq!(charged(&mut machine), owned([("cgroup 1", 30, 3), ("cgroup 6", 12, 39)]));
}

#[test]
fn a_thread_of_which_no_record_tells_is_known_from_who_comes_after_it() {
    let mut machine = Machine::measuring(Granularity::Process, 1, 1, Measure::Time);
    machine.runs(0, 5, 1);
    machine.goes(0, 68);
    machine.attributor.take(|_| true);
    machine.runs_unseen(0, 30);
    machine.comes(0, 68);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("68 ?", 30, 30), ("7 ?", 12, 12)]));
}

#[test]
fn two_threads_of_a_process_that_say_nothing_are_known_by_the_first_and_the_last() {
    let mut machine = Machine::measuring(Granularity::Process, 1, 1, Measure::Switches);
    machine.runs(0, 5, 1);
    machine.goes(0, 68);
    machine.attributor.take(|_| true);
    machine.runs_unseen(0, 30);
    machine.runs_unseen(0, 5);
    // Thread 70 of process 68 was the last one.
    let time = machine.totals(0, 0).enabled;
    machine.reads(0, 0, &testing::switch(false, (68, 70), time));
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("68 ?", 35, 2), ("7 ?", 12, 45)]));
}

#[test]
fn of_what_several_threads_may_have_counted_nobody_is_the_owner() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, 68);
    leaves_unseen(&mut machine, 68, 30, 7);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("68 ?", 30, 0), ("7 ?", 12, 0), ("unrecorded", 0, 42)]));
}

#[test]
fn a_slice_is_not_split_if_more_switches_have_no_sample_than_are_told() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 7);
    machine.runs_unseen(0, 5);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("unrecorded", 47, 47)]));
    assert_eq!(machine.attributor.losses().unrecorded, 2);
}

#[test]
fn a_record_of_the_clock_is_of_no_switch() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    machine.counts(0, 0, 10);
    machine.ticks(0, 0, IDLE);
    leaves_unseen(&mut machine, IDLE, 20, 7);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("idle", 30, 10), ("7 ?", 12, 32)]));
}

#[test]
fn a_thread_between_idle_and_the_next_sample_makes_the_owner_of_the_counts_uncertain() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 68);
    leaves_unseen(&mut machine, 68, 20, 7);
    machine.runs(0, 7, 12);
    let expected = [("idle", 30, 0), ("68 ?", 20, 0), ("7 ?", 12, 0), ("unrecorded", 0, 62)];
    assert_eq!(charged(&mut machine), owned(expected));
}

#[test]
fn an_owner_that_leaves_unseen_has_no_more_than_was_counted() {
    let mut machine = with_records(Granularity::Process, Measure::Time, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 7);
    // This clock ran for 20 of the 42 steps.
    machine.totals(0, 0).counts[0] -= 22 * PACE;
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("idle", 30, 20), ("7 ?", 12, 0)]));
}

#[test]
fn a_thread_without_a_pid_that_leaves_unseen_is_unknown() {
    let mut machine = with_records(Granularity::Process, Measure::Time, 5, u32::MAX);
    leaves_unseen(&mut machine, u32::MAX, 30, 7);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("unknown", 30, 30), ("7 ?", 12, 12)]));
}

#[test]
fn switches_before_a_gap_are_not_those_of_the_slice_after_it() {
    let mut machine = with_records(Granularity::Process, Measure::Other, 5, IDLE);
    leaves_unseen(&mut machine, IDLE, 30, 7);
    machine.loses(0, 0);
    machine.runs(0, 7, 12);
    machine.goes(0, IDLE);
    leaves_unseen(&mut machine, IDLE, 20, 7);
    machine.runs(0, 7, 5);
    assert_eq!(charged(&mut machine), owned([("lost", 42, 42), ("idle", 20, 0), ("7 ?", 5, 25)]));
}

#[test]
fn switches_before_the_first_sample_are_not_those_of_a_later_slice() {
    let mut machine = Machine::measuring(Granularity::Process, 1, 1, Measure::Other);
    leaves_unseen(&mut machine, IDLE, 30, 5);
    machine.runs(0, 5, 1);
    machine.goes(0, IDLE);
    machine.attributor.take(|_| true);
    leaves_unseen(&mut machine, IDLE, 20, 7);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("idle", 20, 0), ("7 ?", 12, 32)]));
}

#[test]
fn threads_of_two_processes_without_records_are_not_those_of_one() {
    let mut machine = Machine::measuring(Granularity::Process, 1, 1, Measure::Time);
    machine.runs(0, 5, 1);
    machine.goes(0, 68);
    machine.attributor.take(|_| true);
    machine.runs_unseen(0, 30);
    machine.runs_unseen(0, 5);
    machine.comes(0, 70);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("unrecorded", 47, 47)]));
}

#[test]
fn a_record_of_the_outgoing_task_explains_one_incoming_task() {
    let mut machine = with_records(Granularity::Process, Measure::Time, 5, 68);
    // Neither process 68 nor process 5 has a record of its own from here on.
    machine.runs_unseen(0, 30);
    machine.comes(0, 68);
    machine.runs_unseen(0, 20);
    machine.comes(0, 5);
    machine.runs(0, 7, 12);
    assert_eq!(charged(&mut machine), owned([("68 ?", 30, 30), ("5 ?", 20, 20), ("7 ?", 12, 12)]));
}

#[test]
fn between_cgroups_only_idle_is_known_to_be_of_the_root() {
    let mut machine = with_records(Granularity::Cgroup, Measure::Other, 5, 70);
    leaves_unseen(&mut machine, 70, 30, 80);
    machine.runs(0, 6, 12);
    assert_eq!(charged(&mut machine), owned([("unrecorded", 42, 42)]));
}

#[test]
fn a_slice_with_more_than_256_switches_without_a_sample_is_not_split() {
    for (switches, expected) in [
        (256, owned([("idle", 128, 128), ("70 ?", 128, 128), ("7 ?", 1, 1)])),
        (257, owned([("unrecorded", 258, 258)])),
    ] {
        let mut machine = with_records(Granularity::Process, Measure::Time, 5, IDLE);
        for (from, to) in [(IDLE, 70), (70, IDLE)].into_iter().cycle().take(switches) {
            leaves_unseen(&mut machine, from, 1, to);
        }
        machine.runs(0, 7, 1);
        assert_eq!(charged(&mut machine), expected);
    }
}

#[test]
fn the_time_of_a_switch_is_converted_to_the_clock_of_the_group() {
    let mut hidden = UnsampledSwitches::new(Granularity::Process);
    // The clock of the records is 50 000 nanoseconds ahead.
    hidden.sampled(1000, Some(Some((5, 5))));
    hidden.switch_out((IDLE, IDLE), 51_000);
    hidden.switch_in((IDLE, IDLE), 51_300);
    let left = hidden.take(1);
    let length = |since, now| left[0].length(since, now);
    assert_eq!(length(1000, 2000), 300);
    assert_eq!(length(1500, 2000), 0, "a switch before the previous record");
    assert_eq!(length(1000, 1200), 200, "a switch after the next record");
}

#[test]
fn a_record_of_a_switch_without_a_time_is_unreadable() {
    let mut machine = Machine::new(Granularity::Process, 1, 1);
    machine.reads(0, 0, &testing::record(abi::PERF_RECORD_SWITCH, 0, &[]));
    assert_eq!(machine.attributor.losses().unreadable, 1);
}

#[test]
fn switch_records_are_enabled_by_the_samples_of_software_events() {
    let mut machine = Machine::new(Granularity::Process, 1, 2);
    machine.attributor.add_cpu(7, &[]);
    for _ in 0..10 {
        machine.runs_unseen(0, 1);
        machine.runs(0, 5, 1);
    }
    assert!(machine.attributor.cpus_with_unsampled_switches().eq([0]));
}

#[test]
fn a_cpu_is_worth_asking_if_it_hides_at_least_one_switch_in_ten_thousand() {
    for (seen, hidden, asks) in [(0, 9, false), (0, 10, true), (100_000, 10, true), (110_000, 10, false)] {
        let mut machine = Machine::new(Granularity::Process, 1, 1);
        (0..seen).for_each(|_| machine.runs(0, 5, 1));
        for _ in 0..hidden {
            machine.runs_unseen(0, 1);
            machine.runs(0, 5, 1);
        }
        assert_eq!(machine.attributor.cpus_with_unsampled_switches().eq([0]), asks, "{hidden} of {seen}");
    }
}

#[test]
fn hardware_events_share_a_slice_with_an_unseen_switch_as_software_events_tell() {
    let mut machine = Machine::new(Granularity::Process, 1, 2);
    let leaves = |machine: &mut Machine, who: u32, steps: u64| {
        machine.counts(0, 1, steps);
        machine.counts(0, 0, steps);
        machine.leaves(0, 1, who);
        machine.leaves(0, 0, who);
    };
    leaves(&mut machine, 5, 30_000);
    machine.goes(0, IDLE);
    machine.comes(0, 5);
    machine.settles(0);
    machine.attributor.take(|_| true);
    machine.counts(0, 1, 40_000);
    leaves_unseen(&mut machine, IDLE, 40_000, 7);
    leaves(&mut machine, 7, 20_000);
    machine.settles(0);
    let shares = machine.attributor.take(|_| true);
    let hardware = |who: &str| {
        let (_, share) = shares.iter().find(|(owner, _)| name(owner) == who).unwrap();
        (share.counts[1], share.presence(1).running / PACE)
    };
    // Neither has a rate yet, so the counts are split by time.
    assert_eq!([hardware("idle"), hardware("7 ?")], [(40_000, 40_000), (20_000, 20_000)]);
}

/// Returns consecutive slices of a CPU: the thread, its steps, and whether its switch has a sample.
fn slices() -> impl Strategy<Value = Vec<(u32, u64, bool)>> {
    let slices = prop::collection::vec((0..4u32, 1..50u64, any::<bool>()), 1..60);
    slices.prop_map(|mut slices| {
        slices.dedup_by_key(|slice| slice.0);
        slices
    })
}

proptest! {
    #[test]
    fn time_is_that_of_who_had_the_cpu_whoever_leaves_unseen(slices in slices(), ends in 1..3u32) {
        let mut machine = with_records(Granularity::Process, Measure::Time, 9, slices[0].0);
        let mut truth = BTreeMap::<String, (u64, u64)>::new();
        for (place, &(who, steps, sampled)) in slices.iter().enumerate() {
            if sampled {
                machine.runs(0, who, steps);
            } else {
                machine.runs_unseen(0, steps);
            }
            let next = slices.get(place + 1).map_or(9, |slice| slice.0);
            // A silent thread has no records of its own.
            let silent = |who: u32| who == 3;
            if !silent(who) || sampled {
                machine.goes(0, next);
            }
            if !silent(next) {
                machine.comes(0, who);
            }
            let before = place.checked_sub(1).map(|before| slices[before]);
            let came_unseen = before.is_some_and(|(who, _, sampled)| silent(who) && !sampled);
            let owner = match who {
                // Its record does not contain it, and those before and after it write none.
                who if came_unseen && !sampled && silent(next) => {
                    assert!(!silent(who));
                    "unknown".to_owned()
                }
                IDLE => "idle".to_owned(),
                who => format!("{who} ?"),
            };
            let (time, count) = truth.entry(owner).or_default();
            (*time, *count) = (*time + steps, *count + steps);
        }
        machine.runs(0, 9, ends.into());
        truth.insert("9 ?".to_owned(), (ends.into(), ends.into()));
        prop_assert_eq!(charged(&mut machine), truth);
    }
}
