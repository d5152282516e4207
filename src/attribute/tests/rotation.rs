//! Multiplexed hardware events: the owners of a CPU while the events were off the PMU, and for how long.

use super::super::split;
use super::super::timeline::{OwnerKey, Slice};
use super::machine::{Machine, PACE, name};
use crate::health::Interval;
use crate::plan::Granularity;

/// Bundle of the hardware events.
const HARDWARE: usize = 1;

/// Returns a machine with one CPU, whose software events and hardware events count at the same pace.
fn machine() -> Machine {
    Machine::new(Granularity::Cgroup, 1, 2)
}

/// Runs a cgroup. `on`: number of steps in which hardware events are on the PMU. If they are on the PMU at the end (`recorded`), they write
/// a record.
fn runs(machine: &mut Machine, who: u32, steps: u64, on: u64, recorded: bool) {
    machine.counts(0, HARDWARE, on);
    machine.totals(0, HARDWARE).enabled += (steps - on) * PACE;
    if recorded {
        machine.leaves(0, HARDWARE, who);
    }
    machine.runs(0, who, steps);
}

/// Returns the count of hardware events of each owner, and the steps in which they were on the PMU and off the PMU.
fn hardware(machine: &mut Machine) -> Vec<(String, u64, u64, u64)> {
    machine.settles(0);
    let shares = machine.attributor.take(|_| true);
    let rows = shares.iter().map(|(owner, share)| {
        let Interval { enabled, running } = share.presence(HARDWARE);
        (name(owner), share.counts[HARDWARE], running / PACE, (enabled - running) / PACE)
    });
    rows.filter(|&(_, count, seen, missed)| count + seen + missed > 0).collect()
}

fn row(owner: &str, count: u64, seen: u64, missed: u64) -> (String, u64, u64, u64) {
    (owner.to_owned(), count, seen, missed)
}

#[test]
fn events_that_are_never_off_the_pmu_are_seen_all_the_time() {
    let mut machine = machine();
    runs(&mut machine, 5, 10, 10, true);
    runs(&mut machine, 6, 3, 3, true);
    assert_eq!(hardware(&mut machine), [row("cgroup 5", 10, 10, 0), row("cgroup 6", 3, 3, 0)]);
}

#[test]
fn an_interval_with_one_owner_is_the_owners_whatever_part_of_it_was_off_the_pmu() {
    let mut machine = machine();
    runs(&mut machine, 5, 1000, 1000, true);
    // Its clock writes records meanwhile, with the same owner.
    runs(&mut machine, 6, 40_000, 10_000, false);
    runs(&mut machine, 6, 60_000, 20_000, true);
    assert_eq!(
        hardware(&mut machine),
        [row("cgroup 5", 1000, 1000, 0), row("cgroup 6", 30_000, 30_000, 70_000)]
    );
}

#[test]
fn an_interval_with_several_owners_is_of_the_first_and_the_last_and_the_others_have_missed_it() {
    let mut machine = machine();
    runs(&mut machine, 6, 30_000, 15_000, false);
    runs(&mut machine, 7, 40_000, 0, false);
    runs(&mut machine, 5, 60_000, 30_000, true);
    let expected = [
        row("cgroup 6", 15_000, 15_000, 15_000),
        row("cgroup 7", 0, 0, 40_000),
        row("cgroup 5", 30_000, 30_000, 30_000),
    ];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn time_on_the_pmu_that_the_first_and_the_last_owner_are_too_short_for_is_of_those_between() {
    let mut machine = machine();
    runs(&mut machine, 6, 20_000, 10_000, false);
    runs(&mut machine, 7, 100_000, 50_000, false);
    runs(&mut machine, 5, 20_000, 10_000, true);
    let expected = [
        row("cgroup 6", 20_000, 20_000, 0),
        row("cgroup 7", 30_000, 30_000, 70_000),
        row("cgroup 5", 20_000, 20_000, 0),
    ];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn two_owners_of_an_interval_have_the_parts_that_they_count_at_their_own_rates() {
    let mut machine = machine();
    // Three counts per step for one, one count per step for the other.
    for (who, rate) in [(5, 3), (6, 1)] {
        runs(&mut machine, who, 20_000, 20_000, false);
        machine.totals(0, HARDWARE).counts[0] += 20_000 * (rate - 1);
        machine.leaves(0, HARDWARE, who);
    }
    runs(&mut machine, 5, 30_000, 15_000, false);
    machine.totals(0, HARDWARE).counts[0] += 15_000 * 2;
    runs(&mut machine, 6, 30_000, 15_000, true);
    let expected =
        [row("cgroup 5", 60_000 + 45_000, 35_000, 15_000), row("cgroup 6", 20_000 + 15_000, 35_000, 15_000)];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn the_record_that_software_events_wrote_a_moment_earlier_is_of_the_same_switch() {
    let mut machine = machine();
    for who in [5, 6] {
        runs_late(&mut machine, who);
    }
    let owners: Vec<_> =
        hardware(&mut machine).into_iter().map(|(owner, count, ..)| (owner, count)).collect();
    assert_eq!(owners, [("cgroup 5".to_owned(), 20_003), ("cgroup 6".to_owned(), 20_003)]);
}

/// Runs a cgroup. Hardware events are off the PMU for half of the time, and write their record a moment after that of the software events.
fn runs_late(machine: &mut Machine, who: u32) {
    machine.runs(0, who, 40_000);
    machine.counts(0, HARDWARE, 20_003);
    machine.totals(0, HARDWARE).enabled += 20_000 * PACE;
    machine.leaves(0, HARDWARE, who);
}

#[test]
fn the_record_that_software_events_write_a_moment_later_is_of_the_same_switch() {
    let mut machine = machine();
    runs(&mut machine, 5, 20_000, 20_000, false);
    // The record at this switch has an earlier time than that of the software events.
    machine.totals(0, HARDWARE).enabled -= 3000 * PACE;
    machine.totals(0, HARDWARE).running -= 3000 * PACE;
    machine.leaves(0, HARDWARE, 5);
    machine.totals(0, HARDWARE).enabled += 3000 * PACE;
    machine.totals(0, HARDWARE).running += 3000 * PACE;
    runs(&mut machine, 6, 30_000, 10_000, true);
    let owners: Vec<_> =
        hardware(&mut machine).into_iter().map(|(owner, count, ..)| (owner, count)).collect();
    assert_eq!(owners, [("cgroup 5".to_owned(), 20_000), ("cgroup 6".to_owned(), 10_000)]);
}

#[test]
fn a_thread_without_an_id_is_whoever_the_software_events_say() {
    let mut machine = Machine::new(Granularity::Process, 1, 2);
    machine.is_named(0, 5, "first");
    machine.is_named(0, 6, "second");
    // A batch of one ring, then a batch of the other, which alone contains the exits.
    for steps in [50_000, 60_000] {
        machine.counts(0, HARDWARE, steps);
        machine.leaves_without_an_id(0, HARDWARE);
    }
    for (pid, steps) in [(5, 50_000), (6, 60_000)] {
        machine.ends(0, pid);
        machine.counts(0, 0, steps);
        machine.leaves_without_an_id(0, 0);
    }
    assert_eq!(
        hardware(&mut machine),
        [row("5 first", 50_000, 50_000, 0), row("6 second", 60_000, 60_000, 0)]
    );
}

#[test]
fn who_ran_while_the_events_were_off_the_pmu_for_long_has_missed_all_of_it() {
    let mut machine = machine();
    runs(&mut machine, 5, 20_000, 20_000, true);
    for _ in 0..super::super::MAX_SLICES {
        runs(&mut machine, 6, 20_000, 0, false);
        runs(&mut machine, 7, 40_000, 0, false);
        machine.settles(0);
    }
    runs(&mut machine, 7, 10_000, 5000, true);
    let slices = super::super::MAX_SLICES as u64;
    let expected = [
        row("rotated", 5000, 0, 0),
        row("cgroup 5", 20_000, 20_000, 0),
        row("cgroup 6", 0, 0, 20_000 * slices),
        row("cgroup 7", 0, 0, 40_000 * slices + 10_000),
    ];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn the_time_of_slices_that_were_passed_over_is_counted_once() {
    let mut machine = machine();
    runs(&mut machine, 5, 20_000, 20_000, true);
    let slices = super::super::MAX_SLICES as u64 + 1;
    for _ in 0..slices {
        runs(&mut machine, 6, 20_000, 0, false);
        runs(&mut machine, 7, 40_000, 0, false);
        machine.settles(0);
    }
    runs(&mut machine, 7, 10_000, 5000, true);
    let time: u64 = hardware(&mut machine).iter().map(|(_, _, seen, missed)| seen + missed).sum();
    assert_eq!(time, 20_000 + 60_000 * slices + 10_000);
}

#[test]
fn what_software_events_lost_is_nobodys_in_between() {
    let mut machine = machine();
    runs(&mut machine, 5, 20_000, 20_000, true);
    machine.loses(0, 0);
    runs(&mut machine, 6, 30_000, 0, false);
    runs(&mut machine, 6, 30_000, 10_000, true);
    let expected = [
        row("lost", 5000, 5000, 25_000),
        row("cgroup 5", 20_000, 20_000, 0),
        row("cgroup 6", 5000, 5000, 25_000),
    ];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn an_owner_that_the_clock_recorded_also_has_the_time_up_to_its_switch() {
    let mut machine = machine();
    machine.counts(0, HARDWARE, 20_000);
    machine.ticks(0, HARDWARE, 5);
    machine.counts(0, 0, 20_000);
    // The rest of its slice is shorter than the time between two records of one switch may be.
    runs(&mut machine, 5, 5000, 2500, false);
    runs(&mut machine, 6, 20_000, 10_000, true);
    let expected = [row("cgroup 5", 22_500, 22_500, 2500), row("cgroup 6", 10_000, 10_000, 10_000)];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn a_thread_without_an_id_that_the_clock_recorded_has_not_left_the_cpu() {
    let mut machine = Machine::new(Granularity::Process, 1, 2);
    runs(&mut machine, 5, 20_000, 20_000, true);
    machine.ends(0, 6);
    machine.counts(0, HARDWARE, 5000);
    machine.ticks(0, HARDWARE, u32::MAX);
    machine.counts(0, HARDWARE, 20_000);
    machine.leaves_without_an_id(0, HARDWARE);
    machine.counts(0, 0, 25_000);
    machine.leaves_without_an_id(0, 0);
    let expected = [row("5 ?", 20_000, 20_000, 0), row("6 ?", 25_000, 25_000, 0)];
    assert_eq!(hardware(&mut machine), expected);
}

#[test]
fn after_a_lost_record_neither_the_counts_nor_the_time_on_the_pmu_have_an_owner() {
    let mut machine = machine();
    machine.loses(0, HARDWARE);
    runs(&mut machine, 5, 20_000, 10_000, true);
    assert_eq!(hardware(&mut machine), [row("lost", 10_000, 0, 0)]);
}

#[test]
fn software_events_are_never_off_the_pmu() {
    let mut machine = machine();
    for _ in 0..super::super::MAX_SLICES {
        runs(&mut machine, 6, 20_000, 0, false);
        runs(&mut machine, 7, 40_000, 0, false);
        machine.settles(0);
    }
    let shares = machine.attributor.take(|_| true);
    assert!(shares.iter().any(|(_, share)| share.presence(HARDWARE) != Interval::default()));
    assert!(shares.iter().all(|(_, share)| share.presence(0) == Interval::default()));
}

/// Returns consecutive slices of these lengths.
fn slices(lengths: &[u64]) -> Vec<Slice> {
    let slice = |&end: &u64| Slice { begin: 0, end, owner: OwnerKey::Idle };
    lengths.iter().map(slice).collect()
}

#[test]
fn no_slice_has_more_time_on_the_pmu_than_its_length() {
    assert_eq!(split(100, &slices(&[10, 20, 30])), [10, 20, 30]);
    assert_eq!(split(5, &slices(&[0, 10, 0])), [0, 5, 0]);
}
