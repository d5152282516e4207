use std::fs;

use super::room::TIDY_EVERY;
use super::*;
use crate::budget::{Part, Share};
use crate::health::CpuScope;
use crate::host::Roots;
use crate::profile::sample_profiles::sampler;
use crate::ring::Task;
use crate::ring::testing::{cgroup, exit};
use crate::stack::Process;

impl Analysis {
    /// Counts a sample of a thread of the first entry.
    fn count_of(&mut self, tid: u32, time: u64, value: u64) {
        let task = self.tasks.id(&Sample { pid: tid, tid, ..Sample::default() });
        let key = Key { stack: StackId(0), task, mode: Mode::User, cpu: None };
        self.count(0, time, key, Sum { count: 1, value });
    }
}

#[test]
fn a_profile_under_way_goes_on_when_a_reload_moves_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let (one, other) = (sampler("one"), sampler("other"));
    analysis.set_samplers(&[Arc::clone(&one), Arc::clone(&other)]);
    let [first, second] = [1, 2];
    analysis.begin(first, "one", 5, false);
    analysis.begin(second, "other", 5, false);
    analysis.set_samplers(&[other]);
    let key = Key { stack: StackId(0), task: TaskId(0), mode: Mode::User, cpu: None };
    analysis.count(0, 6, key, Sum { count: 1, value: 7 });
    let counted = analysis.end(second, 9).unwrap();
    let found: Vec<u64> = counted.tally.iter().map(|(_, sum)| sum.value).collect();
    assert_eq!((&*counted.sampler.entry, found), ("other", vec![7]));
    assert!(analysis.end(first, 9).is_none(), "its entry has gone");
}

#[test]
fn profiles_that_follow_each_other_have_every_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    analysis.set_samplers(&[sampler("one")]);
    let number = 1;
    analysis.begin(number, "one", 5, false);
    let count = |analysis: &mut Analysis, time| {
        let key = Key { stack: StackId(0), task: TaskId(0), mode: Mode::User, cpu: None };
        analysis.count(0, time, key, Sum { count: 1, value: time });
    };
    let said = |counted: &Counted| {
        let value: u64 = counted.tally.iter().map(|(_, sum)| sum.value).sum();
        (counted.begin, counted.end, value)
    };
    for time in [4, 6, 19] {
        count(&mut analysis, time);
    }
    analysis.analyzed = 20;
    assert_eq!(
        said(&analysis.renew(number).unwrap()),
        (5, 20, 25),
        "the record at 4 is before the first profile"
    );
    // A late record is in the next profile.
    for time in [18, 20, 39] {
        count(&mut analysis, time);
    }
    analysis.own.ring_full = 3;
    analysis.analyzed = 40;
    let second = analysis.renew(number).unwrap();
    assert_eq!((said(&second), second.losses.ring_full), ((20, 40, 77), 3));
    analysis.analyzed = 30;
    assert_eq!(said(&analysis.renew(number).unwrap()), (40, 40, 0), "time does not go back");
    analysis.set_samplers(&[]);
    assert!(analysis.renew(number).is_none(), "its entry has gone");
    assert!(analysis.recordings.is_empty());
}

#[test]
fn cpus_are_distinguished_in_recordings_of_entries_that_want_them_and_in_requests_that_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let cpus = Sampler { cpus: true, ..(*sampler("one")).clone() };
    analysis.set_samplers(&[Arc::new(cpus), sampler("other")]);
    let numbers = [1, 2, 3];
    analysis.begin(1, "one", 0, false);
    analysis.begin(2, "other", 0, false);
    analysis.begin(3, "other", 0, true);
    for (cpu, place) in [(0, 0), (3, 0), (0, 1), (3, 1)] {
        analysis.sample(cpu, place, &Sample { time: 7, pid: 1, tid: 1, ..Sample::default() }, 10);
    }
    let found = |counted: Counted| {
        let mut cpus: Vec<_> = counted.tally.iter().map(|(key, sum)| (key.cpu, sum.value)).collect();
        cpus.sort_unstable();
        cpus
    };
    let (apart, together) = (vec![(Some(0), 10), (Some(3), 10)], vec![(None, 20)]);
    for entry in ["one", "other"] {
        assert_eq!(found(analysis.last(entry, 9, 9, true).unwrap()), apart);
        assert_eq!(found(analysis.range(entry, 0..9, 9, true).unwrap()), apart);
        assert_eq!(found(analysis.last(entry, 9, 9, false).unwrap()), together);
    }
    let [one, other, of_request] = numbers.map(|number| found(analysis.end(number, 9).unwrap()));
    assert_eq!((one, other, of_request), (apart.clone(), together, apart));
}

#[test]
fn cpus_are_told_apart_in_metrics_alone_where_only_those_are_to_show_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let of_cpus = Sampler { per: Some(CpuScope::Cpu), ..(*sampler("one")).clone() };
    analysis.set_samplers(&[Arc::new(of_cpus)]);
    analysis.begin(1, "one", 0, false);
    for cpu in [0, 3, 3] {
        analysis.sample(cpu, 0, &Sample { time: 7, pid: 1, tid: 1, ..Sample::default() }, 10);
    }
    let mut fresh: Vec<_> =
        analysis.sources[0].fresh.iter().map(|(&(_, _, cpu), sum)| (cpu, sum.count)).collect();
    fresh.sort_unstable();
    assert_eq!(fresh, [(Some(0), 1), (Some(3), 2)]);
    let recorded = analysis.end(1, 9).unwrap();
    assert_eq!(recorded.tally.iter().map(|(key, sum)| (key.cpu, sum.count)).collect::<Vec<_>>(), [(None, 3)]);
}

#[test]
fn the_oldest_samples_make_room_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let limit = 2 << 20;
    let shares = MemoryShares { stacks: Share::fixed(Part::Stacks, limit), ..MemoryShares::for_command() };
    analysis.keep_within(&shares);
    let one = sampler("one");
    let length = u64::try_from(one.window.as_nanos()).unwrap();
    analysis.set_samplers(&[one]);
    let most = 40_000;
    for number in 1..=most {
        let time = length / most * number;
        // Each sample has its own thread, which is dropped when all its samples are gone.
        let tid = number as u32;
        analysis.sample(0, 0, &Sample { time, pid: tid, tid, ..Sample::default() }, 1);
        if number % 1000 == 0 {
            analysis.sources.iter_mut().for_each(|source| source.fresh.clear());
            analysis.analyzed = time;
            analysis.make_room(false);
        }
    }
    assert!(shares.stacks.used() <= limit, "{}", shares.stacks.used());
    let left: u64 =
        analysis.last("one", length, length, false).unwrap().tally.iter().map(|(_, sum)| sum.count).sum();
    assert!(left > 1000, "the newest are there: {left}");
    assert_eq!(left + analysis.held_memory.dropped, most);
    let newest = analysis.tasks.id(&Sample { pid: most as u32, tid: most as u32, ..Sample::default() });
    assert!(
        analysis.last("one", length, length, false).unwrap().tally.iter().any(|(key, _)| key.task == newest)
    );
}

#[test]
fn tasks_that_no_sample_has_are_dropped_however_few_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let one = sampler("one");
    let length = u64::try_from(one.window.as_nanos()).unwrap();
    analysis.set_samplers(&[one]);
    for tid in 1..=1000 {
        analysis.sample(0, 0, &Sample { time: 1, pid: tid, tid, ..Sample::default() }, 1);
    }
    let before = analysis.tasks.len();
    assert!(before >= 1000, "{before}");
    let later = 2 * length + TIDY_EVERY;
    analysis.analyzed = later;
    let gone = analysis.sources.iter_mut().any(|source| source.log.forget(later));
    analysis.make_room(gone);
    assert!(analysis.tasks.len() < 10, "{}", analysis.tasks.len());
}

#[test]
fn a_process_that_no_stack_refers_to_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let process = dir.path().join("proc/7");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("maps"), "1000-2000 r-xp 00000000 00:00 0\n").unwrap();
    fs::write(process.join("status"), "Name:\tx\nNSpid:\t7\n").unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let one = sampler("one");
    let later = 2 * u64::try_from(one.window.as_nanos()).unwrap() + TIDY_EVERY;
    analysis.set_samplers(&[one]);
    // PERF_CONTEXT_USER, and an address in memory without a file.
    let callchain = [-512i64, 0x1001].map(i64::to_ne_bytes);
    let sample = Sample { time: 1, pid: 7, tid: 7, callchain: &callchain, ..Sample::default() };
    analysis.sample(0, 0, &sample, 1);
    let jit_processes = analysis.take_work(true).unwrap().jit_processes;
    assert_eq!(jit_processes.len(), 1);
    analysis.read(0, &exit(Task { pid: 7, tid: 7, parent_pid: 1, parent_tid: 1, time: 2 }));
    assert_eq!(analysis.take_work(false).unwrap().ended, jit_processes);
    analysis.analyzed = later;
    let gone = analysis.sources.iter_mut().any(|source| source.log.forget(later));
    analysis.make_room(gone);
    let gone = analysis.take_work(false).unwrap().gone;
    assert!(matches!(&gone[..], [(id, Process { pid: 7, .. })] if jit_processes == [*id]), "{gone:?}");
    assert!(analysis.take_work(false).is_none());
}

#[test]
fn a_range_of_the_log_begins_and_ends_where_the_samples_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    analysis.keep_for(Duration::from_secs(3600));
    analysis.set_samplers(&[sampler("one")]);
    const SECOND: u64 = 1_000_000_000;
    analysis.sources[0].log.start(10 * SECOND);
    for second in 10..=7_000 {
        let sample = Sample { time: second * SECOND, pid: 1, tid: 1, ..Sample::default() };
        analysis.sample(0, 0, &sample, second);
    }
    let now = 7_000 * SECOND;
    let range = |analysis: &Analysis, from: u64, to: u64| {
        let counted = analysis.range("one", from * SECOND..to * SECOND, now, false).unwrap();
        let values: u64 = counted.tally.iter().map(|(_, sum)| sum.value).sum();
        (counted.begin / SECOND, counted.end / SECOND, values)
    };
    assert_eq!(range(&analysis, 100, 103), (100, 103, 100 + 101 + 102));
    assert_eq!(range(&analysis, 0, 12), (10, 12, 10 + 11), "sampling began at 10 s");
    assert_eq!(range(&analysis, 6_999, 8_000), (6_999, 7_000, 6_999 + 7_000), "the future is not there yet");
    let last = analysis.last("one", now, u64::MAX, false).unwrap();
    assert_eq!(
        (last.begin / SECOND, last.tally.iter().map(|(_, sum)| sum.count).sum()),
        (6_940, 61),
        "the window"
    );
    // The first chunk has expired.
    analysis.sources[0].log.forget(now);
    let (begin, end, values) = range(&analysis, 100, 103);
    assert!(begin > 2_000 && begin == end && values == 0, "{begin} {end}");
    assert!(analysis.range("none", 0..now, now, false).is_none());
    let mut found = Vec::new();
    let times = 6_998 * SECOND..7_000 * SECOND;
    let from = analysis.times(
        "one",
        &times,
        |key| key.mode == Mode::User,
        |time, count| found.push((time / SECOND, count)),
    );
    assert_eq!((from.unwrap() / SECOND, found), (begin, vec![(6_998, 1), (6_999, 1)]));
}

#[test]
fn names_of_all_frames_are_looked_up_once_a_minute_and_new_ones_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    analysis.set_samplers(&[sampler("one")]);
    let sample = |analysis: &mut Analysis, address: i64| {
        // PERF_CONTEXT_KERNEL
        let callchain = [-128i64, address].map(i64::to_ne_bytes);
        let sample = Sample { time: 1, pid: 7, tid: 7, callchain: &callchain, ..Sample::default() };
        analysis.sample(0, 0, &sample, 1);
    };
    sample(&mut analysis, 0x1000);
    assert!(analysis.take_frames().is_empty(), "a command keeps no samples");
    analysis.keep_for(Duration::from_secs(3600));
    let kernel = |frames: Vec<Frame>| frames.iter().filter(|frame| matches!(frame, Frame::Kernel(_))).count();
    assert_eq!(kernel(analysis.take_frames()), 1);
    assert_eq!(analysis.take_frames(), []);
    sample(&mut analysis, 0x2000);
    assert_eq!(kernel(analysis.take_work(true).unwrap().kept), 1);
    assert_eq!(analysis.take_frames(), []);
    analysis.analyzed = 60_000_000_000;
    assert_eq!(kernel(analysis.take_frames()), 2);
    // Frames have other numbers.
    analysis.tidy();
    assert_eq!(kernel(analysis.take_frames()), 2);
}

#[test]
fn recordings_go_on_while_the_log_fills_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let shares = MemoryShares { stacks: Share::fixed(Part::Stacks, 2 << 20), ..MemoryShares::for_command() };
    analysis.keep_within(&shares);
    analysis.keep_for(Duration::from_secs(3600));
    analysis.set_samplers(&[sampler("one")]);
    analysis.begin(1, "one", 0, false);
    let most = 400_000;
    for number in 1..=most {
        let time = number * 1_000_000;
        // Few threads, and a value that takes many bits.
        let tid = number as u32 % 50;
        analysis.count_of(tid, time, number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8);
        if number % 1000 == 0 {
            analysis.analyzed = time;
            analysis.make_room(false);
        }
    }
    assert!(shares.stacks.used() <= 2 << 20, "{}", shares.stacks.used());
    assert!(analysis.held_memory.dropped > 0);
    let recorded = analysis.end(1, most * 1_000_000).unwrap().tally;
    assert_eq!((recorded.full, recorded.iter().map(|(_, sum)| sum.count).sum::<u64>()), (0, most));
}

#[test]
fn an_entry_with_many_samples_does_not_shorten_the_log_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    let shares = MemoryShares { stacks: Share::fixed(Part::Stacks, 2 << 20), ..MemoryShares::for_command() };
    analysis.keep_within(&shares);
    analysis.keep_for(Duration::from_secs(3600));
    analysis.set_samplers(&[sampler("many"), sampler("few")]);
    analysis.sources.iter_mut().for_each(|source| source.log.start(0));
    let most = 400_000;
    for number in 1..=most {
        let time = number * 1_000_000;
        let task = analysis.tasks.id(&Sample { pid: 1, tid: 1, ..Sample::default() });
        let key = Key { stack: StackId(0), task, mode: Mode::Sleeping, cpu: None };
        analysis.count(
            0,
            time,
            key,
            Sum { count: 1, value: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8 },
        );
        if number % 1000 == 0 {
            analysis.count(1, time, key, Sum { count: 1, value: 1 });
            analysis.analyzed = time;
            analysis.make_room(false);
        }
    }
    let left = |analysis: &Analysis, entry: &str| {
        let counted = analysis.range(entry, 0..u64::MAX, most * 1_000_000, false).unwrap();
        counted.tally.iter().map(|(_, sum)| sum.count).sum::<u64>()
    };
    assert_eq!(left(&analysis, "few"), most / 1000);
    let many = left(&analysis, "many");
    assert!(many < most && many + analysis.held_memory.dropped == most, "{many}");
}

#[test]
fn caches_are_emptied_every_five_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let mut analysis = Analysis::new(&Roots::under(dir.path()));
    analysis.set_samplers(&[sampler("one")]);
    analysis.read(0, &cgroup(7, b"/removed"));
    let cgroup = |analysis: &mut Analysis, tid| {
        let id = analysis.tasks.id(&Sample { pid: tid, tid, cgroup: 7, ..Sample::default() });
        analysis.tasks.get(id).unwrap().process.cgroup.clone()
    };
    for (minute, known) in [(4, true), (6, true), (9, true), (11, false)] {
        analysis.analyzed = minute * 60_000_000_000;
        analysis.make_room(false);
        let path = cgroup(&mut analysis, minute as u32 + 100);
        assert_eq!(path.is_some(), known, "after {minute} minutes: {path:?}");
    }
}
