//! The rings of the stream: which records they contain, and the thread switches that are passed on.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::{Bundle, Ingest, Measure, Shares, bundle_fields, clock_fields};
use super::machine::name;
use crate::plan::Granularity;
use crate::ring::testing::{self, Switch};
use crate::ring::{
    Consumer, Losses, RingId, Task, ThreadSwitch, ThreadSwitchReceiver, ThreadSwitchSender, Usage,
};
use crate::sys::{Drained, Fields, ReadFormat, Ring};
use crate::targets::Changed;

/// A ring that a test writes.
#[derive(Debug, Clone, Default)]
struct Memory(Rc<RefCell<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    records: Vec<Vec<u8>>,
    torn: bool,
}

const SIZE: usize = 4096;

impl Ring for Memory {
    fn drain(&mut self, each: impl FnMut(&[u8])) -> Drained {
        let Contents { records, torn } = self.0.take();
        records.iter().map(Vec::as_slice).for_each(each);
        Drained { bytes: records.iter().map(Vec::len).sum(), torn }
    }

    fn size(&self) -> usize {
        SIZE
    }
}

const FIELDS: Fields =
    Fields { tid: true, time: true, read: Some(ReadFormat { untimed: false }), cgroup: true, ..Fields::NONE };

const SOFTWARE: usize = 0;
const HARDWARE: usize = 1;

/// Two CPUs that count software events and hardware events at the same pace, by process.
struct Machine {
    ingest: Ingest<Memory>,
    rings: [[Memory; 2]; 2],
    /// Count and number of switches of each ring.
    totals: [[(u64, u64); 2]; 2],
}

fn id(cpu: usize, number: usize) -> RingId {
    RingId { cpu: cpu as u32, number: number as u32 }
}

/// A thread that is switched out, and its last turn.
fn turn(cpu: u32, time: u64, pid: u32) -> ThreadSwitch {
    ThreadSwitch { time, cgroup: 1, cpu, pid, tid: pid, leaves: true, complete: true }
}

impl Machine {
    fn new() -> Self {
        Self::with(FIELDS)
    }

    fn with(fields: Fields) -> Self {
        let rings: [[Memory; 2]; 2] = Default::default();
        let mut ingest = Ingest::new(Granularity::Process, fields, 2, true);
        for (cpu, rings) in (0..).zip(&rings) {
            let bundle = |counter| Bundle {
                counters: vec![vec![], vec![], vec![counter]],
                measures: vec![Measure::Switches, Measure::Time],
                switches: 0,
                untimed: counter == SOFTWARE,
            };
            let bundles = rings.iter().enumerate().map(|(number, ring)| (bundle(number), ring.clone()));
            ingest.add_cpu(cpu, bundles.collect());
        }
        Self { ingest, rings, totals: Default::default() }
    }

    fn writes(&mut self, cpu: usize, ring: usize, record: Vec<u8>) {
        self.rings[cpu][ring].0.borrow_mut().records.push(record);
    }

    /// Returns the sample of a ring that was just written with these fields, while this process had the CPU.
    fn sample(&self, cpu: usize, ring: usize, pid: u32, fields: &Fields) -> Vec<u8> {
        let (time, switches) = self.totals[cpu][ring];
        let values = vec![switches, time, time];
        let sample = Switch {
            pid,
            tid: pid,
            time,
            cgroup: 1,
            enabled: time,
            running: time,
            values,
            ..Switch::default()
        };
        sample.record(fields)
    }

    /// Counts in one ring of a CPU, one in a nanosecond, then switches out a process.
    fn runs_in(&mut self, cpu: usize, ring: usize, pid: u32, count: u64) {
        self.totals[cpu][ring].0 += count;
        self.totals[cpu][ring].1 += 1;
        let record = self.sample(cpu, ring, pid, &bundle_fields(FIELDS, ring == SOFTWARE));
        self.writes(cpu, ring, record);
    }

    /// Like [`Machine::runs_in`], for the software events of the first CPU.
    fn runs(&mut self, pid: u32, count: u64) {
        self.runs_in(0, SOFTWARE, pid, count);
    }

    /// Counts in the software events of the first CPU, then switches out a process without a sample. Only the process that replaces it
    /// writes a record, which contains it.
    fn runs_unseen(&mut self, pid: u32, count: u64) {
        self.totals[0][SOFTWARE].0 += count;
        self.totals[0][SOFTWARE].1 += 1;
        let time = self.totals[0][SOFTWARE].0;
        self.writes(0, SOFTWARE, testing::switch(false, (pid, pid), time));
    }

    /// Writes the `PERF_RECORD_SWITCH` of a process that is switched out; `next` comes after it.
    fn switches(&mut self, next: u32) {
        let time = self.totals[0][SOFTWARE].0;
        self.writes(0, SOFTWARE, testing::switch(true, (next, next), time));
    }

    /// Returns a follower of the thread switches.
    fn follows(&mut self) -> ThreadSwitchReceiver {
        let passing = Arc::new(ThreadSwitchSender::default());
        self.ingest.send_thread_switches(Arc::clone(&passing));
        ThreadSwitchReceiver::new(passing, || {})
    }

    /// Returns the words of a read of both groups of the first CPU.
    fn words(&self) -> [Vec<u64>; 2] {
        let [(software, thread_switches), (hardware, others)] = self.totals[0];
        [
            vec![3, thread_switches, software, software],
            vec![3, hardware, hardware, others, hardware, hardware],
        ]
    }

    fn counts(&mut self) -> Vec<(String, [u64; 2])> {
        counts(&self.ingest.take(|_| true))
    }
}

/// Returns the counts of each owner with counts.
fn counts(shares: &Shares) -> Vec<(String, [u64; 2])> {
    let counted = shares.iter().filter(|(_, share)| share.counts != [0, 0]);
    counted.map(|(owner, share)| (name(owner), [share.counts[0], share.counts[1]])).collect()
}

fn owned<const N: usize>(expected: [(&str, [u64; 2]); N]) -> Vec<(String, [u64; 2])> {
    expected.map(|(owner, counts)| (owner.to_owned(), counts)).to_vec()
}

/// Returns the thread switches that were passed on, and whether some are missing.
fn taken(thread_switches: &ThreadSwitchReceiver) -> (Vec<ThreadSwitch>, bool) {
    let mut taken = Vec::new();
    let gap = thread_switches.take(&mut taken);
    (taken, gap)
}

#[test]
fn all_rings_are_read() {
    let mut machine = Machine::new();
    machine.runs_in(0, SOFTWARE, 5, 10);
    machine.runs_in(0, HARDWARE, 5, 20);
    machine.runs_in(1, HARDWARE, 6, 40);
    assert_eq!(machine.counts(), owned([("5 ?", [10, 20]), ("6 ?", [0, 40])]));
    assert_eq!(machine.ingest.losses(), Losses { records: 3, ..Losses::default() });
}

#[test]
fn the_ring_of_software_events_contains_the_owner_of_a_record_without_a_pid() {
    let mut machine = Machine::new();
    machine.runs_in(0, HARDWARE, u32::MAX, 20);
    machine.writes(
        0,
        SOFTWARE,
        testing::exit(Task { pid: 6, parent_pid: 1, tid: 6, parent_tid: 1, time: 0 }),
    );
    machine.runs(u32::MAX, 20);
    assert_eq!(machine.counts(), owned([("6 ?", [20, 20])]));
}

#[test]
fn processes_that_changed_are_those_in_all_rings() {
    let mut machine = Machine::new();
    assert_eq!(machine.ingest.take_changed(), None);
    machine.writes(1, SOFTWARE, testing::comm(7, 7, b"tool", true));
    let news = machine.ingest.take_changed().unwrap();
    assert!(news.changed.iter().eq([&7]) && news.ending.is_empty(), "{news:?}");
    assert_eq!(machine.ingest.take_changed(), Some(Changed::default()));
    machine.ingest.describe(6, &"sh".into(), false);
    machine.runs(6, 1);
    assert_eq!(machine.counts(), owned([("6 sh", [1, 0])]));
}

#[test]
fn a_torn_ring_makes_a_gap() {
    let mut machine = Machine::new();
    let thread_switches = machine.follows();
    machine.runs(5, 10);
    machine.rings[0][SOFTWARE].0.borrow_mut().torn = true;
    machine.ingest.drain(0);
    assert_eq!(taken(&thread_switches), (vec![turn(0, 10, 5)], true));
    machine.runs(5, 20);
    machine.runs(5, 40);
    assert_eq!(machine.counts(), owned([("lost", [20, 0]), ("5 ?", [50, 0])]));
    assert_eq!(machine.ingest.losses().unreadable, 1);
}

#[test]
fn the_usage_of_a_ring_is_all_records_that_it_lost_and_its_most_bytes_since_the_last_call() {
    let mut machine = Machine::new();
    // These are lost in another ring.
    machine.writes(0, HARDWARE, testing::lost(1, 100));
    machine.ingest.drain(0);
    machine.writes(0, SOFTWARE, testing::lost(1, 3));
    machine.writes(0, SOFTWARE, testing::lost(1, 4));
    machine.ingest.drain(0);
    machine.writes(0, SOFTWARE, testing::lost(1, 5));
    machine.ingest.drain(0);
    let record = testing::lost(1, 1).len();
    let ring = id(0, SOFTWARE);
    assert_eq!(machine.ingest.usage(ring), Usage { lost: 12, most: 2 * record });
    assert_eq!(machine.ingest.usage(ring), Usage { lost: 12, most: 0 });
    assert_eq!(machine.ingest.usage(id(0, HARDWARE)), Usage { lost: 100, most: record });
    assert_eq!(machine.ingest.usage(id(7, SOFTWARE)), Usage::default());
}

#[test]
fn a_cpu_that_is_removed_is_read_to_the_end_and_its_rings_are_dropped() {
    let mut machine = Machine::new();
    machine.runs(5, 10);
    machine.runs_in(0, HARDWARE, 5, 20);
    machine.totals[0][SOFTWARE].0 += 1;
    machine.totals[0][HARDWARE].0 += 2;
    machine.ingest.remove_cpu(0, &mut machine.words());
    assert_eq!(machine.counts(), owned([("ended", [1, 2]), ("5 ?", [10, 20])]));
    assert_eq!(machine.ingest.cpus(), [1].into());
    assert_eq!(machine.ingest.bytes(), 2 * SIZE as u64);
    assert_eq!(Rc::strong_count(&machine.rings[0][HARDWARE].0), 1);
}

#[test]
fn counts_are_lost_between_the_removal_of_a_ring_and_the_first_record_in_the_next() {
    let mut machine = Machine::new();
    let thread_switches = machine.follows();
    machine.runs(5, 10);
    let ring = id(0, SOFTWARE);
    machine.ingest.remove(ring);
    assert_eq!(machine.ingest.bytes(), 3 * SIZE as u64);
    assert_eq!(taken(&thread_switches), (vec![turn(0, 10, 5)], true));
    // Nothing reads the old ring any more.
    machine.runs(5, 20);
    machine.ingest.drain(0);
    machine.rings[0][SOFTWARE] = Memory::default();
    machine.ingest.add(ring, machine.rings[0][SOFTWARE].clone());
    assert_eq!(machine.ingest.bytes(), 4 * SIZE as u64);
    machine.runs(5, 40);
    machine.runs(5, 80);
    assert_eq!(machine.counts(), owned([("lost", [60, 0]), ("5 ?", [90, 0])]));
    assert_eq!(taken(&thread_switches), (vec![turn(0, 70, 5), turn(0, 150, 5)], false));
}

#[test]
fn thread_switches_are_passed_on_from_the_software_events_of_each_cpu() {
    let mut machine = Machine::new();
    let thread_switches = machine.follows();
    machine.runs(5, 10);
    machine.runs_in(0, HARDWARE, 5, 10);
    machine.runs_in(1, SOFTWARE, 6, 30);
    machine.ingest.drain_all();
    assert_eq!(taken(&thread_switches), (vec![turn(0, 10, 5), turn(1, 30, 6)], false));
}

#[test]
fn a_turn_states_whether_its_thread_leaves_and_whether_switches_before_it_have_no_record() {
    let mut machine = Machine::new();
    let thread_switches = machine.follows();
    machine.totals[0][SOFTWARE].0 += 10;
    let tick = machine.sample(0, SOFTWARE, 5, &clock_fields(bundle_fields(FIELDS, true)));
    machine.writes(0, SOFTWARE, tick);
    machine.totals[0][SOFTWARE].1 += 1;
    machine.runs(6, 20);
    machine.ingest.drain(0);
    let expected = [
        ThreadSwitch { leaves: false, ..turn(0, 10, 5) },
        ThreadSwitch { complete: false, ..turn(0, 30, 6) },
    ];
    assert_eq!(taken(&thread_switches), (expected.to_vec(), false));
}

#[test]
fn thread_switches_without_a_sample_are_passed_on() {
    let mut machine = Machine::new();
    // The cgroup of a process is known from its samples.
    machine.runs(6, 5);
    machine.runs(5, 5);
    machine.switches(0);
    // There is no follower yet.
    machine.runs_unseen(0, 1);
    machine.runs(6, 1);
    machine.switches(0);
    machine.ingest.drain(0);
    let thread_switches = machine.follows();
    machine.runs_unseen(0, 30);
    machine.runs_unseen(6, 40);
    machine.runs_unseen(8, 50);
    machine.runs(7, 60);
    machine.ingest.drain(0);
    let unknown = ThreadSwitch { cgroup: 0, ..turn(0, 132, 8) };
    assert_eq!(
        taken(&thread_switches),
        (vec![turn(0, 42, 0), turn(0, 82, 6), unknown, turn(0, 192, 7)], false)
    );
}

#[test]
fn no_thread_switches_are_passed_on_from_records_without_a_time() {
    let fields = Fields { time: false, ..FIELDS };
    let mut machine = Machine::with(fields);
    let thread_switches = machine.follows();
    let runs = |machine: &mut Machine, count| {
        machine.totals[0][SOFTWARE].0 += count;
        machine.totals[0][SOFTWARE].1 += 1;
        let record = machine.sample(0, SOFTWARE, 5, &bundle_fields(fields, true));
        machine.writes(0, SOFTWARE, record);
    };
    runs(&mut machine, 10);
    machine.switches(0);
    machine.runs_unseen(0, 20);
    runs(&mut machine, 40);
    // The counts while the CPU was idle are those of the next process.
    assert_eq!(machine.counts(), owned([("5 ?", [70, 0])]));
    assert_eq!(machine.ingest.losses().unrecorded, 0);
    assert_eq!(taken(&thread_switches), (vec![], false));
}

#[test]
fn records_that_are_lost_in_the_ring_of_the_thread_switches_are_missing_among_these() {
    let mut machine = Machine::new();
    let thread_switches = machine.follows();
    machine.writes(0, HARDWARE, testing::lost(1, 1));
    machine.ingest.drain(0);
    assert_eq!(taken(&thread_switches), (vec![], false), "hardware events have none");
    for unreadable in [testing::lost(1, 1), testing::record(9, 0, &[1])] {
        machine.writes(0, SOFTWARE, unreadable);
        machine.ingest.drain(0);
        assert_eq!(taken(&thread_switches), (vec![], true));
    }
}

#[test]
fn only_thread_switches_after_the_begin_of_the_following_are_passed_on() {
    let mut machine = Machine::new();
    machine.runs(5, 10);
    machine.ingest.drain(0);
    let first = machine.follows();
    machine.runs(5, 20);
    machine.ingest.drain(0);
    assert_eq!(taken(&first).0, [turn(0, 30, 5)]);
    machine.ingest.stop_thread_switches();
    assert!(!first.is_open());
    machine.runs(5, 40);
    machine.ingest.drain(0);
    let second = machine.follows();
    machine.runs(5, 80);
    machine.ingest.drain(0);
    assert_eq!(taken(&second).0, [turn(0, 150, 5)]);
    assert_eq!(taken(&first).0, []);
}

#[test]
fn the_end_of_the_follower_ends_the_passing() {
    let mut machine = Machine::new();
    let passing = Arc::new(ThreadSwitchSender::default());
    machine.ingest.send_thread_switches(Arc::clone(&passing));
    let thread_switches = ThreadSwitchReceiver::new(Arc::clone(&passing), || {});
    machine.ingest.drain(0);
    assert_eq!(Arc::strong_count(&passing), 3);
    drop(thread_switches);
    machine.ingest.drain(0);
    assert_eq!(Arc::strong_count(&passing), 1);
}
