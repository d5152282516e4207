use super::*;
use crate::budget::{Part, Share};
use crate::profile::replayed::Held;
use crate::profile::specimen::sampler;
use crate::ring::testing::{bytes, record};

#[test]
fn a_profile_under_way_goes_on_when_a_reload_moves_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    let (one, other) = (sampler("one"), sampler("other"));
    intake.set_samplers(&[Arc::clone(&one), Arc::clone(&other)]);
    let [first, second] = ["one", "other"].map(|entry| intake.begin(entry, 5).unwrap());
    intake.set_samplers(&[other]);
    let key = Key { stack: StackId(0), task: TaskId(0), mode: Mode::User, cpu: None };
    intake.count(0, 6, key, Sum { count: 1, value: 7 });
    let counted = intake.end(second, 9).unwrap();
    let found: Vec<u64> = counted.tally.iter().map(|(_, sum)| sum.value).collect();
    assert_eq!((&*counted.sampler.entry, found), ("other", vec![7]));
    assert!(intake.end(first, 9).is_none(), "its entry has gone");
}

#[test]
fn what_stays_in_a_ring_because_too_much_waits_does_not_come_late() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    // A name, then pid and tid, time and identifier: nobody's.
    let named = |length: usize, time: u64| {
        let name = vec![0; length / 8];
        record(3, 0, &bytes(&[&[0][..], &name, &[0, time, 0]].concat()))
    };
    let many = (0..1 + intake.room.waiting(0) / 60_000).map(|at| named(60_000, at as u64 % 5)).collect();
    intake.add(0, Held(many));
    intake.pull(10);
    assert!(!intake.look(), "there is more than is looked at at a time");
    intake.add(1, Held(vec![named(8, 15)]));
    intake.pull(20);
    while !intake.look() {}
    intake.pull(30);
    while !intake.look() {}
    assert_eq!((intake.losses.late, intake.merger.waiting()), (0, 0));
}

#[test]
fn profiles_that_follow_each_other_have_every_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    intake.set_samplers(&[sampler("one")]);
    let number = intake.begin("one", 5).unwrap();
    let count = |intake: &mut Intake<Held>, time| {
        let key = Key { stack: StackId(0), task: TaskId(0), mode: Mode::User, cpu: None };
        intake.count(0, time, key, Sum { count: 1, value: time });
    };
    let said = |counted: &Counted| {
        let value: u64 = counted.tally.iter().map(|(_, sum)| sum.value).sum();
        (counted.begin, counted.end, value)
    };
    for time in [4, 6, 19] {
        count(&mut intake, time);
    }
    intake.pull(20);
    assert!(intake.look());
    assert_eq!(said(&intake.renew(number).unwrap()), (5, 20, 25), "4 was before the first one");
    // One that comes late is in the next.
    for time in [18, 20, 39] {
        count(&mut intake, time);
    }
    intake.losses.ring_full = 3;
    intake.pull(40);
    let second = intake.renew(number).unwrap();
    assert_eq!((said(&second), second.losses.ring_full), ((20, 40, 77), 3));
    intake.pull(30);
    assert_eq!(said(&intake.renew(number).unwrap()), (40, 40, 0), "time does not go back");
    intake.set_samplers(&[]);
    assert!(intake.renew(number).is_none(), "its entry has gone");
    assert!(intake.recordings.is_empty());
}

#[test]
fn every_entry_can_be_followed_while_others_ask() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    intake.set_samplers(&[sampler("one"), sampler("other")]);
    let begun = (0..100).filter(|_| intake.begin("one", 5).is_some()).count();
    assert_eq!(begun, MOST_RECORDINGS + 2);
}

#[test]
fn cpus_are_told_apart_in_profiles_and_not_in_windows() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    let cpus = Sampler { cpus: true, ..(*sampler("one")).clone() };
    intake.set_samplers(&[Arc::new(cpus), sampler("other")]);
    let numbers = ["one", "other"].map(|entry| intake.begin(entry, 0).unwrap());
    for (cpu, place) in [(0, 0), (3, 0), (0, 1), (3, 1)] {
        intake.sample(cpu, place, &Sample { time: 7, pid: 1, tid: 1, ..Sample::default() }, 10);
    }
    let found = |counted: Counted| {
        let mut cpus: Vec<_> = counted.tally.iter().map(|(key, sum)| (key.cpu, sum.value)).collect();
        cpus.sort_unstable();
        cpus
    };
    assert_eq!(found(intake.last("one", 9, 9).unwrap()), [(None, 20)]);
    let [one, other] = numbers.map(|number| found(intake.end(number, 9).unwrap()));
    assert_eq!((one, other), (vec![(Some(0), 10), (Some(3), 10)], vec![(None, 20)]));
}

#[test]
fn the_oldest_samples_of_windows_make_room_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    let limit = 2 << 20;
    let shares = MemoryShares { stacks: Share::fixed(Part::Stacks, limit), ..MemoryShares::ample() };
    intake.keep_within(&shares);
    let one = sampler("one");
    let length = u64::try_from(one.window.as_nanos()).unwrap();
    intake.set_samplers(&[one]);
    let most = 40_000;
    for number in 1..=most {
        let time = length / most * number;
        // Each of a thread of its own, of which nothing is left when all samples are gone.
        let tid = number as u32;
        intake.sample(0, 0, &Sample { time, pid: tid, tid, ..Sample::default() }, 1);
        if number % 1000 == 0 {
            // What is published needs the tasks until then.
            intake.take();
            intake.emptied = time;
            intake.make_room(false);
        }
    }
    assert!(shares.stacks.used() <= limit, "{}", shares.stacks.used());
    let left: u64 = intake.last("one", length, length).unwrap().tally.iter().map(|(_, sum)| sum.count).sum();
    assert!(left > 1000, "the newest are there: {left}");
    assert_eq!(left + intake.dropped_for_room(), most);
    let newest = intake.tasks.id(&Sample { pid: most as u32, tid: most as u32, ..Sample::default() });
    assert!(intake.last("one", length, length).unwrap().tally.iter().any(|(key, _)| key.task == newest));
}
