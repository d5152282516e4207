//! Tests that the switch stream, together with `sched:sched_switch` for threads that do not sleep, yields the same facts as
//! `sched:sched_switch` for all threads. The same holds on kernels that write nothing while the idle task runs, if CPUs report incoming
//! tasks.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::metrics::Buckets;
use crate::sched::{Event, PrevState, RecordThread, Sum, Sums, Timeline, Untracked};

const CPUS: u32 = 2;
const THREADS: u32 = 5;
const NAMES: [&[u8]; 6] = [b"swapper", b"a", b"b", b"c", b"d", b"e"];

/// Activity of the machine.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// Wakeup of a thread.
    Wakes(u32),
    /// Switch of a CPU to a runnable thread, if there is one.
    Outgoing(u32, PrevState),
    /// Migration of a runnable thread to another CPU.
    Migrates(u32),
    /// Clock record of a CPU.
    Ticks(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    let (cpu, thread) = (0..CPUS, 1..=THREADS);
    let prev_state = prop_oneof![
        6 => Just(PrevState::Sleeping),
        3 => Just(PrevState::Preempted),
        2 => Just(PrevState::Blocked),
        1 => Just(PrevState::Dead),
    ];
    prop_oneof![
        4 => thread.clone().prop_map(Happens::Wakes),
        6 => (cpu.clone(), prev_state).prop_map(|(cpu, prev_state)| Happens::Outgoing(cpu, prev_state)),
        1 => thread.prop_map(Happens::Migrates),
        2 => cpu.prop_map(Happens::Ticks),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Sleeps,
    Ready,
    Runs,
}

/// Timeline with its facts, aggregated by thread.
struct SchedFact {
    timeline: Timeline,
    sums: Sums<u32>,
}

impl SchedFact {
    fn new() -> Self {
        Self { timeline: Timeline::default(), sums: Sums::new(Buckets::exponential("seconds")) }
    }

    fn enter(&mut self, at: (u32, u64), of: (u32, u64), event: Event<'_>) {
        let sums = &mut self.sums;
        self.timeline.enter(at, of, event, &mut |thread, report| sums.add(thread.tid, thread, &report));
    }

    fn take(mut self) -> (BTreeMap<u32, Sum>, Untracked) {
        let sums = self.sums.take().sums.into_iter();
        // The longest delay may be attributed to different identities.
        let sums = sums.filter_map(|(tid, sum)| Some((tid?, Sum { longest: None, ..sum })));
        (sums.collect(), self.timeline.untracked())
    }
}

/// Machine with several timelines.
struct Machine {
    time: u64,
    on: [u32; CPUS as usize],
    states: [State; THREADS as usize + 1],
    /// Input: records of all switches.
    full: SchedFact,
    /// Input: the switch stream.
    quiet: SchedFact,
    /// Input: the switch stream of a kernel that writes nothing while the idle task runs, and the incoming tasks of CPUs.
    dark: SchedFact,
    /// CPUs on which `dark` missed a switch since its last record.
    missed: [bool; CPUS as usize],
}

impl Machine {
    fn new() -> Self {
        let states = [State::Sleeps; THREADS as usize + 1];
        let (on, missed) = ([0; CPUS as usize], [false; CPUS as usize]);
        Self {
            time: 1000,
            on,
            states,
            full: SchedFact::new(),
            quiet: SchedFact::new(),
            dark: SchedFact::new(),
            missed,
        }
    }

    fn party(tid: u32) -> RecordThread<'static> {
        RecordThread { tid, comm: NAMES[tid as usize] }
    }

    fn of(tid: u32) -> (u32, u64) {
        if tid == 0 { (0, 1) } else { (tid + 100, u64::from(tid) + 1000) }
    }

    fn all(&mut self, cpu: u32, event: Event<'_>) {
        let of = Self::of(self.on[cpu as usize]);
        for report in [&mut self.full, &mut self.quiet, &mut self.dark] {
            report.enter((cpu, self.time), of, event);
        }
    }

    /// Passes a record of the switch stream to `dark`.
    fn turn(&mut self, cpu: u32, of: (u32, u64), event: Event<'_>) {
        if std::mem::take(&mut self.missed[cpu as usize]) {
            self.dark.timeline.miss(cpu, of.0);
        }
        self.dark.enter((cpu, self.time), of, event);
    }

    fn goes_on(&mut self, happens: Happens) {
        self.time += 10;
        match happens {
            Happens::Wakes(tid) => {
                self.all(0, Event::Wakes(Self::party(tid)));
                if self.states[tid as usize] == State::Sleeps {
                    self.states[tid as usize] = State::Ready;
                }
            }
            Happens::Migrates(tid) if self.states[tid as usize] == State::Ready => {
                self.all(0, Event::Migrates(Self::party(tid)));
            }
            Happens::Migrates(_) => {}
            Happens::Ticks(cpu) => {
                let tid = self.on[cpu as usize];
                self.quiet.enter((cpu, self.time), Self::of(tid), Event::Runs { tid });
                if tid != 0 {
                    self.turn(cpu, Self::of(tid), Event::Runs { tid });
                }
            }
            Happens::Outgoing(cpu, prev_state) => self.leaves(cpu, prev_state),
        }
    }

    fn leaves(&mut self, cpu: u32, prev_state: PrevState) {
        let from = self.on[cpu as usize];
        let to = (1..=THREADS).find(|&tid| self.states[tid as usize] == State::Ready).unwrap_or(0);
        let prev_state = if from == 0 { PrevState::Preempted } else { prev_state };
        if from == to {
            return;
        }
        let (at, of) = ((cpu, self.time), Self::of(from));
        let switch = Event::Switch { from: Self::party(from), prev_state, to: Self::party(to) };
        let dies = prev_state == PrevState::Dead;
        self.full.enter(at, of, switch);
        if dies {
            // The exit record precedes the switch.
            for report in [&mut self.quiet, &mut self.dark] {
                report.enter((cpu, self.time - 1), of, Event::Runs { tid: from });
            }
        }
        if from != 0 && prev_state != PrevState::Sleeping {
            self.quiet.enter(at, of, switch);
            self.dark.enter(at, of, switch);
        }
        let (of, tid) = if dies { ((u32::MAX, 1), u32::MAX) } else { (of, from) };
        self.quiet.enter(at, of, Event::Outgoing { tid });
        let next = (Self::of(to).0, 0);
        if from == 0 {
            self.missed[cpu as usize] = true;
        } else {
            self.turn(cpu, of, Event::Outgoing { tid });
            self.dark.enter(at, next, Event::Runs { tid: to });
        }
        if to != 0 {
            self.dark.enter(at, next, Event::Incoming { tid: to });
        }
        let state = if prev_state == PrevState::Preempted { State::Ready } else { State::Sleeps };
        (self.states[from as usize], self.states[to as usize]) = (state, State::Runs);
        self.on[cpu as usize] = to;
    }

    /// Lets all threads sleep, so that no facts are pending.
    fn ends(&mut self) {
        for _ in 0..=THREADS {
            (0..CPUS).for_each(|cpu| self.goes_on(Happens::Outgoing(cpu, PrevState::Sleeping)));
        }
        // The stream reports the last incoming task when it leaves.
        (0..CPUS).for_each(|cpu| self.goes_on(Happens::Ticks(cpu)));
    }
}

proptest! {
    #[test]
    fn all_tell_the_same_of_every_thread(plan in vec(happens(), 0..200)) {
        let mut machine = Machine::new();
        plan.into_iter().for_each(|happens| machine.goes_on(happens));
        machine.ends();
        let full = machine.full.take();
        prop_assert_eq!(&full, &machine.quiet.take());
        prop_assert_eq!(&full, &machine.dark.take());
    }
}

#[test]
fn others_that_ran_in_between_are_charged_to_nobody() {
    let mut report = SchedFact::new();
    report.enter((0, 10), (101, 1001), Event::Outgoing { tid: 1 });
    report.timeline.miss(0, 2);
    report.enter((0, 50), (102, 1002), Event::Outgoing { tid: 2 });
    report.enter((0, 70), (103, 1003), Event::Outgoing { tid: 3 });
    assert_eq!(report.timeline.untracked(), Untracked { unseen: 1, ..Untracked::default() });
    let (sums, _) = report.take();
    let ran: Vec<(u32, u64)> = sums.iter().map(|(&tid, sum)| (tid, sum.ran)).collect();
    assert_eq!(ran, [(1, 0), (2, 0), (3, 20)]);
}
