use super::*;
use crate::profile::specimen::sampler;
use crate::ring::testing::{bytes, record};
use crate::sys::Drained;

/// Holds records.
#[derive(Default)]
struct Held(Vec<Vec<u8>>);

impl Ring for Held {
    fn drain(&mut self, mut each: impl FnMut(&[u8])) -> Drained {
        self.0.drain(..).for_each(|record| each(&record));
        Drained::default()
    }

    fn size(&self) -> usize {
        0
    }
}

#[test]
fn a_profile_under_way_goes_on_when_a_reload_moves_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut intake: Intake<Held> = Intake::new(&Roots::under(dir.path()));
    let (one, other) = (sampler("one"), sampler("other"));
    intake.set_samplers(&[Arc::clone(&one), Arc::clone(&other)]);
    let [first, second] = ["one", "other"].map(|entry| intake.begin(entry, 5).unwrap());
    intake.set_samplers(&[other]);
    let key = Key { stack: StackId(0), task: TaskId(0), mode: Mode::User };
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
    let many = (0..1 + MOST_WAITING / 60_000).map(|at| named(60_000, at as u64 % 5)).collect();
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
