use proptest::prelude::*;

use super::*;
use crate::profile::model::Mode;
use crate::profile::tasks::TaskId;
use crate::stack::StackId;

const SECOND: u64 = 1_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);

fn key(stack: u32) -> Key {
    Key { stack: StackId(stack), task: TaskId(stack / 3), mode: Mode::User, cpu: None }
}

fn one(value: u64) -> Sum {
    Sum { count: 1, value }
}

/// Returns the stacks of a tally with their counts.
fn found(tally: &Tally) -> Vec<(u32, u64)> {
    let mut found: Vec<(u32, u64)> = tally.iter().map(|(key, sum)| (key.stack.0, sum.count)).collect();
    found.sort_unstable();
    found
}

/// Returns a log with one sample a second, each with another stack, from the first second on.
fn seconds(length: Duration, samples: u64) -> SampleLog {
    let mut log = SampleLog::new(length);
    log.start(0);
    (1..=samples).for_each(|second| log.add(second * SECOND, key(second as u32), one(10)));
    log
}

/// Returns the lowest stack of all samples, which is that of the oldest one.
fn oldest(log: &SampleLog) -> Option<u32> {
    found(&log.tally(&(0..u64::MAX), true)).first().map(|&(stack, _)| stack)
}

#[test]
fn a_range_has_its_begin_and_not_its_end() {
    let log = seconds(MINUTE, 10);
    assert_eq!(found(&log.tally(&(3 * SECOND..6 * SECOND), true)), [(3, 1), (4, 1), (5, 1)]);
    assert_eq!(found(&log.tally(&(9 * SECOND..u64::MAX), true)), [(9, 1), (10, 1)]);
    assert_eq!(found(&log.tally(&(6 * SECOND..6 * SECOND), true)), []);
}

#[test]
fn samples_leave_by_age_and_the_log_knows_from_when_on_it_has_all() {
    let chunks = 2 * CHUNK as u64;
    let mut log = seconds(MINUTE, chunks + 100);
    assert_eq!(log.begin(), Some(0));
    let now = (chunks + 100) * SECOND;
    assert!(log.forget(now));
    assert_eq!((log.samples(), oldest(&log)), (100, Some((chunks + 1) as u32)));
    assert_eq!(log.begin(), Some(chunks * SECOND + TICK));
    assert!(!log.forget(now));
    assert!(log.forget(now + 61 * SECOND));
    assert_eq!((log.samples(), oldest(&log), log.begin()), (0, None, Some(now + TICK)));
}

#[test]
fn few_samples_expire_without_a_chunk() {
    let mut log = seconds(MINUTE, 100);
    assert!(!log.forget(80 * SECOND), "fewer than half have expired");
    assert!(log.forget(120 * SECOND));
    assert_eq!((log.samples(), oldest(&log)), (41, Some(60)));
}

#[test]
fn the_oldest_are_dropped_first_and_all_they_stand_for_are_counted() {
    let mut log = SampleLog::new(MINUTE);
    let samples = 2 * CHUNK as u64 + 3;
    (0..samples).for_each(|at| log.add(at * TICK, key(7), Sum { count: 2, value: at }));
    let mut dropped = Vec::new();
    while log.samples() > 0 {
        dropped.push(log.drop_oldest());
    }
    assert_eq!(dropped, [2 * CHUNK as u64, 2 * CHUNK as u64, 4, 2]);
    assert_eq!((log.drop_oldest(), log.begin(), log.samples()), (0, Some(samples * TICK), 0));
}

#[test]
fn samples_of_a_clock_are_small_and_equal_ones_take_almost_nothing() {
    let mut varied = SampleLog::new(MINUTE);
    let mut alike = SampleLog::new(MINUTE);
    let samples = 100 * CHUNK as u64;
    for at in 0..samples {
        // Many stacks, of which few are frequent.
        let stack = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as u32;
        varied.add(at * 822_000, key((stack >> (at % 20)) * 7), one(52_631_578));
        alike.add(at * 822_000, key(1), one(52_631_578));
    }
    let bytes = |log: &SampleLog| log.bytes() as f64 / samples as f64;
    assert!(bytes(&varied) < 6.0, "{}", bytes(&varied));
    assert!(bytes(&alike) < 1.5, "{}", bytes(&alike));
}

#[test]
fn the_cpu_of_a_sample_takes_as_many_bits_as_the_number_of_the_last_cpu() {
    let bytes = |cpus: Option<u64>| {
        let mut log = SampleLog::new(MINUTE);
        let samples = 100 * CHUNK as u64;
        for at in 0..samples {
            let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let cpu = cpus.map(|cpus| (random % cpus) as u16);
            log.add(at * TICK, Key { cpu, ..key((random >> 20) as u32 % 500) }, one(52_631_578));
        }
        log.column_bytes as f64 / samples as f64
    };
    let without = bytes(None);
    for (cpus, bits) in [(1, 0.0), (2, 1.0), (64, 6.0), (256, 8.0)] {
        let more = (bytes(Some(cpus)) - without) * 8.0;
        assert!((more - bits).abs() < 0.1, "{cpus} CPUs: {more} bits");
    }
}

/// A sample of the model: its time, key and sum.
type Expected = (u64, Key, Sum);

fn any_key() -> impl Strategy<Value = Key> {
    let cpu = prop_oneof![Just(None), (0u16..4).prop_map(Some), Just(Some(u16::MAX))];
    let number = prop_oneof![0u32..6, any::<u32>()];
    (number.clone(), number, 0..Mode::ALL.len(), cpu).prop_map(|(stack, task, mode, cpu)| Key {
        stack: StackId(stack),
        task: TaskId(task),
        mode: Mode::ALL[mode],
        cpu,
    })
}

/// Generates samples whose times grow, except for a few late ones.
fn any_samples() -> impl Strategy<Value = Vec<Expected>> {
    let gap = prop_oneof![8 => 0u64..3_000_000, 1 => 0u64..20 * SECOND];
    let sum = prop_oneof![
        Just(one(52_631_578)),
        (1u64..100, any::<u64>()).prop_map(|(count, value)| Sum { count, value: value >> 8 })
    ];
    let sample = (gap, 0u64..2 * SECOND, 0u8..20, any_key(), sum);
    (proptest::collection::vec(sample, 0..300), 1usize..60).prop_map(|(samples, repeat)| {
        let mut now = 5 * SECOND;
        let mut all = Vec::new();
        for (gap, late, is_late, key, sum) in samples {
            for _ in 0..repeat {
                now += gap;
                all.push((if is_late == 0 { now - late } else { now }, key, sum));
            }
        }
        all
    })
}

/// Returns the sums of the samples for which `wanted` returns true.
fn expected(samples: &[Expected], wanted: impl Fn(u64) -> bool) -> Vec<(Key, Sum)> {
    let mut tally = Tally::default();
    samples.iter().filter(|sample| wanted(sample.0 / TICK)).for_each(|sample| tally.add(sample.1, sample.2));
    sorted(&tally)
}

fn sorted(tally: &Tally) -> Vec<(Key, Sum)> {
    let mut sums: Vec<(Key, Sum)> = tally.iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_range_has_the_sums_of_its_samples(samples in any_samples(), from in 0.0f64..1.2, to in 0.0f64..1.2) {
        let mut log = SampleLog::new(Duration::MAX);
        samples.iter().for_each(|&(time, key, sum)| log.add(time, key, sum));
        let end = samples.iter().map(|sample| sample.0).max().unwrap_or(0) as f64;
        let range = (end * from) as u64..(end * to) as u64;
        let within = |tick: u64| (range.start / TICK..range.end / TICK).contains(&tick);
        prop_assert_eq!(sorted(&log.tally(&range, true)), expected(&samples, within));
        prop_assert_eq!(sorted(&log.tally(&(0..u64::MAX), true)), expected(&samples, |_| true));
        let anywhere: Vec<Expected> = samples.iter().map(|&(time, key, sum)| (time, key.anywhere(), sum)).collect();
        prop_assert_eq!(sorted(&log.tally(&range, false)), expected(&anywhere, within));
        prop_assert_eq!(log.samples(), samples.len());
        let (mut times, mut counts) = (Vec::new(), 0);
        log.times(&range, |key| key.mode == Mode::Kernel, |time, count| {
            times.push(time);
            counts += count;
        });
        let kernel = samples.iter().filter(|(time, key, _)| key.mode == Mode::Kernel && within(time / TICK));
        let mut wanted: Vec<u64> = kernel.clone().map(|sample| sample.0 / TICK * TICK).collect();
        times.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!((times, counts), (wanted, kernel.map(|sample| sample.2.count).sum()));
    }

    #[test]
    fn what_is_dropped_and_what_stays_are_all(samples in any_samples(), drops in 0usize..6, seconds in 1u64..200) {
        let mut log = SampleLog::new(Duration::from_secs(seconds));
        log.start(0);
        samples.iter().for_each(|&(time, key, sum)| log.add(time, key, sum));
        let all: u64 = samples.iter().map(|sample| sample.2.count).sum();
        let dropped: u64 = (0..drops).map(|_| log.drop_oldest()).sum();
        let left = |log: &SampleLog| log.tally(&(0..u64::MAX), true).iter().map(|(_, sum)| sum.count).sum::<u64>();
        prop_assert_eq!(left(&log) + dropped, all);
        let now = samples.iter().map(|sample| sample.0).max().unwrap_or(0);
        log.forget(now);
        prop_assert!(log.bytes() >= log.samples());
        // Late samples may be older than the begin.
        let begin = log.begin().unwrap();
        let late = 2 * SECOND;
        let complete = begin + late;
        prop_assert_eq!(
            sorted(&log.tally(&(complete..u64::MAX), true)),
            expected(&samples, |tick| tick >= complete / TICK)
        );
        prop_assert!(begin <= now.saturating_sub(seconds * SECOND) + late + TICK || dropped > 0);
    }

    #[test]
    fn numbers_change_and_everything_else_stays(samples in any_samples()) {
        let mut log = SampleLog::new(Duration::MAX);
        samples.iter().for_each(|&(time, key, sum)| log.add(time, key, sum));
        let to = |key: Key| Key { stack: StackId(key.stack.0 / 2), task: TaskId(key.task.0 ^ 1), ..key };
        log.renumber(to);
        let renumbered: Vec<Expected> = samples.iter().map(|&(time, key, sum)| (time, to(key), sum)).collect();
        prop_assert_eq!(sorted(&log.tally(&(0..u64::MAX), true)), expected(&renumbered, |_| true));
        let chunks: usize = log.chunks.iter().map(Chunk::bytes).sum();
        prop_assert_eq!(log.column_bytes, chunks);
    }
}
