//! Tests that records of one history lead to the same processes, in time order and ring by ring.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{Order, Processes, Task};
use crate::ring::{self, Record};
use crate::targets::{CgroupId, Changed};

/// Number of CPUs, whose rings are read one after another.
const CPUS: usize = 3;
/// First process ID of the processes that exist before the records, one on each CPU.
const FIRST: u32 = 10;
const NAMES: [&str; 3] = ["sh", "tool", "server"];

/// Activity of one of the existing processes.
#[derive(Debug, Clone)]
enum Step {
    /// Creates another process on this CPU.
    Forks(Index, usize),
    TakesName(Index, usize),
    Runs(Index, u64),
    Ends(Index),
}

/// Record or context switch.
#[derive(Debug, Clone, Copy)]
enum Event {
    Fork(ring::Task),
    Comm(u32, &'static str, u64),
    /// Number of the run, process ID, and cgroup.
    Run(usize, u32, u64),
    Exit(ring::Task),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (any::<Index>(), 0..CPUS).prop_map(|(who, cpu)| Step::Forks(who, cpu)),
        2 => (any::<Index>(), 0..NAMES.len()).prop_map(|(who, name)| Step::TakesName(who, name)),
        4 => (any::<Index>(), 1u64..3).prop_map(|(who, cgroup)| Step::Runs(who, cgroup)),
        1 => any::<Index>().prop_map(Step::Ends),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Process of the model.
#[derive(Debug, Clone, Copy)]
struct Model {
    pid: u32,
    cpu: usize,
}

/// History: events with their CPUs, in time order.
#[derive(Debug, Default)]
struct History {
    events: Vec<(usize, Event)>,
    runs: usize,
    processes: Vec<Model>,
}

impl History {
    fn of(steps: &[Step]) -> Self {
        let mut history = Self::default();
        let mut alive: Vec<Model> = (0..CPUS).map(|cpu| Model { pid: FIRST + cpu as u32, cpu }).collect();
        let mut next = 100;
        for (step, time) in steps.iter().zip(1..) {
            if alive.is_empty() {
                break;
            }
            match step {
                Step::Forks(who, cpu) => {
                    let parent = *who.get(&alive);
                    history.events.push((parent.cpu, Event::Fork(told(next, parent.pid, time))));
                    alive.push(Model { pid: next, cpu: *cpu });
                    next += 1;
                }
                Step::TakesName(who, name) => {
                    let who = who.get(&alive);
                    history.events.push((who.cpu, Event::Comm(who.pid, NAMES[*name], time)));
                }
                Step::Runs(who, cgroup) => {
                    let who = who.get(&alive);
                    history.events.push((who.cpu, Event::Run(history.runs, who.pid, *cgroup)));
                    history.runs += 1;
                }
                Step::Ends(who) => {
                    let at = who.index(alive.len());
                    let who = alive.swap_remove(at);
                    history.events.push((who.cpu, Event::Exit(told(who.pid, 1, time))));
                    history.processes.push(who);
                }
            }
        }
        history.processes.extend(alive);
        history
    }

    /// Returns the events ring by ring: `order` selects the CPU of each next event, then the rest follows.
    fn by_ring(&self, order: &[usize]) -> Vec<Event> {
        let of = |cpu: usize| self.events.iter().filter(move |(on, _)| *on == cpu).map(|&(_, event)| event);
        let mut rings: Vec<_> = (0..CPUS).map(of).collect();
        let mut events: Vec<Event> = order.iter().filter_map(|&cpu| rings[cpu].next()).collect();
        events.extend(rings.into_iter().rev().flatten());
        events
    }
}

fn told(pid: u32, parent_pid: u32, time: u64) -> ring::Task {
    ring::Task { pid, parent_pid, tid: pid, parent_tid: parent_pid, time }
}

/// State after all events.
struct Outcome {
    processes: Processes,
    changed: Option<Changed>,
    /// Tasks by the number of the run.
    runs: BTreeMap<usize, Task>,
}

fn outcome(order: Order, events: impl Iterator<Item = Event>) -> Outcome {
    let mut processes = Processes::new(order);
    for cpu in 0..CPUS as u32 {
        processes.describe(FIRST + cpu, &"first".into(), false);
    }
    assert_eq!(processes.take_changed(), None);
    let mut tasks = BTreeMap::new();
    for event in events {
        match event {
            Event::Fork(task) => processes.apply_record(&Record::Fork(task), task.time),
            Event::Exit(task) => processes.apply_record(&Record::Exit(task), task.time),
            Event::Comm(pid, name, time) => {
                let comm = ring::Comm { pid, tid: pid, name: name.as_bytes(), exec: true };
                processes.apply_record(&Record::Comm(comm), time);
            }
            Event::Run(run, pid, cgroup) => {
                let cgroup = Some(CgroupId(cgroup));
                let task = processes.task(pid, cgroup).or_else(|| processes.add_task(pid, cgroup));
                tasks.insert(run, task.unwrap() as usize);
            }
        }
    }
    let changed = processes.take_changed();
    let named = processes.end_round(|_| true);
    let runs = tasks.into_iter().map(|(run, task)| (run, named[task].clone())).collect();
    Outcome { processes, changed, runs }
}

proptest! {
    #[test]
    fn rings_that_are_read_one_after_another_tell_the_same_processes_as_records_in_the_order_of_time(
        steps in steps(),
        order in proptest::collection::vec(0..CPUS, 0..60),
    ) {
        let history = History::of(&steps);
        let by_time = outcome(Order::Time, history.events.iter().map(|&(_, event)| event));
        let by_ring = outcome(Order::Ring, history.by_ring(&order).into_iter());
        prop_assert_eq!(&by_ring.changed, &by_time.changed);
        prop_assert_eq!(by_ring.runs, by_time.runs);
        for Model { pid, .. } in history.processes {
            prop_assert_eq!(by_ring.processes.name(pid), by_time.processes.name(pid), "{}", pid);
        }
    }

    #[test]
    fn in_the_order_of_time_both_ways_of_reading_are_one(steps in steps()) {
        let history = History::of(&steps);
        let [by_time, by_ring] = [Order::Time, Order::Ring]
            .map(|order| outcome(order, history.events.iter().map(|&(_, event)| event)));
        prop_assert_eq!(by_ring.changed, by_time.changed);
        prop_assert_eq!(by_ring.runs, by_time.runs);
        for Model { pid, .. } in history.processes {
            prop_assert_eq!(by_ring.processes.name(pid), by_time.processes.name(pid));
        }
    }
}
