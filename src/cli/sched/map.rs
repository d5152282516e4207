//! `perf-exporter sched map`: which thread is on each CPU, a line for each change.

use std::io;

use rustc_hash::FxHashMap;

use super::args::MapArgs;
use super::machine::{Machine, Observation};
use super::{follow, seconds};
use crate::cli::follow::{Listener, StreamItem, shown};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::host::CpuSet;
use crate::sched::{PrevState, SchedFact, Thread};
use crate::sys::Kernel;

const EVENTS: [&str; 3] = ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];

/// Number of short names: `A0` to `Z9`, then `a0` to `z9`. Further threads get the names of earlier ones again, as in perf.
const NAMES: usize = 520;

/// Traces, and prints a line for each change of a CPU.
pub(super) fn run<K: Kernel>(args: &MapArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let cpus = if args.compact { CpuSet::default() } else { host.facts().online.clone() };
    let followed =
        follow(&args.follow, (&EVENTS, false), host, |machine| Map { machine, rows: MapRows::new(&cpus) })?;
    followed.report_missing()?;
    Ok(followed.ending)
}

struct Map {
    machine: Machine,
    rows: MapRows,
}

impl Listener for Map {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let rows = &mut self.rows;
        self.machine.handle(item, &mut |seen| rows.take(&seen));
    }

    fn drained(&mut self, _until: u64) {
        self.rows.settle();
    }

    fn flush(&mut self) -> io::Result<()> {
        put(std::mem::take(&mut self.rows.text))
    }
}

/// What is on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    /// Nothing is known yet.
    Unknown,
    Idle,
    /// A thread that does not belong to the target.
    Other,
    /// A thread of the target.
    Thread(Thread),
}

/// Lines that have not been written yet, and what is on each CPU.
#[derive(Debug, Default)]
struct MapRows {
    text: String,
    /// CPU and short name of its occupant, by column.
    columns: Vec<(u32, String)>,
    names: FxHashMap<u32, String>,
    /// Number of names given so far.
    given: usize,
    /// The newest change. The facts about one switch come one after the other: a thread leaves, the next arrives.
    change: Option<(u32, u64, Occupant)>,
}

impl MapRows {
    fn new(cpus: &CpuSet) -> Self {
        let columns = cpus.iter().map(|cpu| (cpu, short(Occupant::Unknown).to_owned())).collect();
        Self { columns, ..Self::default() }
    }

    fn take(&mut self, seen: &Observation<'_>) {
        let Observation::Fact { thread, fact } = seen else { return };
        match fact {
            SchedFact::SwitchOut(out) => {
                let next = if out.next.tid == 0 { Occupant::Idle } else { Occupant::Other };
                self.change((out.cpu, out.time), next);
                if out.prev_state == PrevState::Dead {
                    self.names.remove(&thread.tid);
                }
            }
            SchedFact::SwitchIn(switch_in) if thread.tid != 0 => {
                self.change((switch_in.cpu, switch_in.time), Occupant::Thread(**thread));
            }
            _ => {}
        }
    }

    fn change(&mut self, (cpu, time): (u32, u64), occupant: Occupant) {
        let is_same = self.change.is_some_and(|(on, at, _)| (on, at) == (cpu, time));
        if !is_same {
            self.settle();
        }
        self.change = Some((cpu, time, occupant));
    }

    /// Adds the line of the newest change.
    fn settle(&mut self) {
        let Some((cpu, time, occupant)) = self.change.take() else { return };
        let (name, legend) = self.named(occupant);
        let at = self.columns.iter().position(|(of, _)| *of == cpu);
        let at = at.unwrap_or_else(|| {
            self.columns.push((cpu, String::new()));
            self.columns.len() - 1
        });
        if let Some((_, occupant)) = self.columns.get_mut(at) {
            *occupant = name;
        }
        self.text.push_str("  ");
        for (column, (_, name)) in self.columns.iter().enumerate() {
            let mark = if column == at { '*' } else { ' ' };
            self.text.push_str(&format!("{mark}{name:<2} "));
        }
        self.text.push_str(&format!("  {:>12} secs {legend}\n", seconds(time)));
    }

    /// Returns the short name of an occupant, and its explanation if the name is new.
    fn named(&mut self, occupant: Occupant) -> (String, String) {
        let Occupant::Thread(thread) = occupant else { return (short(occupant).to_owned(), String::new()) };
        if let Some(name) = self.names.get(&thread.tid) {
            return (name.clone(), String::new());
        }
        let number = self.given % NAMES;
        self.given += 1;
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let letter = letters.get(number % 26 + 26 * (number / 260)).copied().map_or('?', char::from);
        let name = format!("{letter}{}", number % 260 / 26);
        self.names.insert(thread.tid, name.clone());
        let legend = format!("{name} => {}:{}", shown(thread.comm.bytes()), thread.tid);
        (name, legend)
    }
}

fn short(occupant: Occupant) -> &'static str {
    match occupant {
        Occupant::Unknown | Occupant::Thread(_) => "",
        Occupant::Idle => ".",
        Occupant::Other => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{Comm, SwitchIn, SwitchOut};

    fn thread(tid: u32, name: &[u8]) -> Thread {
        Thread { tid, pid: tid, comm: Comm::new(name), ..Thread::default() }
    }

    /// A switch between two threads, as a machine reports it if both belong to the target.
    fn switch(rows: &mut MapRows, (cpu, time): (u32, u64), from: Thread, to: Thread, prev_state: PrevState) {
        let out = SwitchOut { time, cpu, switch_in: None, prev_state, next: to };
        rows.take(&Observation::Fact { thread: &from, fact: SchedFact::SwitchOut(out) });
        let switch_in = SwitchIn { time, cpu, delay: None, wait: None, migrated: None };
        rows.take(&Observation::Fact { thread: &to, fact: SchedFact::SwitchIn(switch_in) });
    }

    fn rows(cpus: &str) -> String {
        let mut rows = MapRows::new(&cpus.parse().unwrap());
        let (idle, web, hostile) = (Thread::default(), thread(7, b"web"), thread(8, b"\x1b[2J"));
        switch(&mut rows, (0, 74_490_000_050_000), idle, web, PrevState::Preempted);
        switch(&mut rows, (1, 74_490_000_060_000), idle, hostile, PrevState::Preempted);
        switch(&mut rows, (0, 74_490_000_070_000), web, idle, PrevState::Sleeping);
        switch(&mut rows, (1, 74_490_000_080_000), hostile, web, PrevState::Dead);
        // The next thread does not belong to the target.
        let next = thread(9, b"other");
        let out = SwitchOut {
            time: 74_490_000_090_000,
            cpu: 1,
            switch_in: None,
            prev_state: PrevState::Preempted,
            next,
        };
        rows.take(&Observation::Fact { thread: &web, fact: SchedFact::SwitchOut(out) });
        rows.settle();
        rows.text
    }

    #[test]
    fn the_lines_are_as_recorded() {
        insta::assert_snapshot!(rows("0-1"));
    }

    #[test]
    fn columns_of_a_compact_map_are_the_cpus_that_changed() {
        let text = rows("");
        assert_eq!(text.lines().next(), Some("  *A0   74490.000050 secs A0 => web:7"));
        assert_eq!(text.lines().last(), Some("   .  *-    74490.000090 secs "));
    }

    #[test]
    fn there_are_520_names() {
        let mut rows = MapRows::default();
        let mut names: Vec<String> =
            (1..=NAMES as u32).map(|tid| rows.named(Occupant::Thread(thread(tid, b"x"))).0).collect();
        assert_eq!((names[0].as_str(), names[26].as_str(), names[519].as_str()), ("A0", "A1", "z9"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES);
        assert_eq!(rows.named(Occupant::Thread(thread(9999, b"x"))).0, "A0");
    }
}
