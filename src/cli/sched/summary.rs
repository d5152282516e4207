//! The summary of `perf-exporter sched timehist`: number and duration of the runs of each thread.

use std::collections::BTreeMap;

use super::machine::Observation;
use crate::cli::follow::{Merge, Row, Rows, Spread, milliseconds, shown};
use crate::sched::{PrevState, SchedFact, Thread};

/// Statistics of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sum {
    /// Run times of the completed runs.
    runs: Spread,
    /// Number of times scheduled in, including runs without a known end.
    sched_in: u64,
    migrations: u64,
    /// Delays before runs.
    delays: Spread,
}

impl Merge for Sum {
    fn merge(&mut self, other: Self) {
        self.runs.merge(&other.runs);
        self.sched_in += other.sched_in;
        self.migrations += other.migrations;
        self.delays.merge(&other.delays);
    }
}

/// Sums by thread, and the idle time of each CPU.
pub(super) struct Summary {
    rows: Rows<Sum>,
    idle: BTreeMap<u32, u64>,
    switches: u64,
}

impl Summary {
    pub(super) fn new() -> Self {
        Self { rows: Rows::new(true), idle: BTreeMap::new(), switches: 0 }
    }

    pub(super) fn take(&mut self, seen: &Observation<'_>) {
        let Observation::Fact { thread, fact } = seen else { return };
        match fact {
            SchedFact::SwitchIn(switch_in) if thread.tid != 0 => {
                let sum = self.rows.of(thread);
                sum.sched_in += 1;
                switch_in.delay.iter().for_each(|&delay| sum.delays.add(delay));
            }
            SchedFact::SwitchOut(switch_out) if thread.tid == 0 => {
                *self.idle.entry(switch_out.cpu).or_default() += switch_out.run().unwrap_or_default();
            }
            SchedFact::SwitchOut(switch_out) => {
                self.switches += 1;
                switch_out.run().iter().for_each(|&run| self.rows.of(thread).runs.add(run));
                if switch_out.prev_state == PrevState::Dead {
                    self.rows.end(thread.tid);
                }
            }
            SchedFact::Migrated => self.rows.of(thread).migrations += 1,
            SchedFact::SwitchIn(_) | SchedFact::Ran(_) => {}
        }
    }

    /// Returns the table of perf, for a measurement of `elapsed` nanoseconds.
    pub(super) fn text(self, elapsed: u64) -> String {
        let (mut rows, others) = self.rows.finish();
        rows.retain(|row| row.sum.runs.of.count > 0 || row.sum.sched_in > 0);
        rows.sort_by_key(|row| (row.ended, row.thread.tid, row.thread.comm));
        let mut total = Sum::default();
        rows.iter().chain(&others).for_each(|row| total.merge(row.sum));
        let mut text = String::from("\nRuntime summary\n");
        text += &format!("{:>30}  sched-in     run-time    min-run     avg-run     max-run  stddev", "comm");
        text += "  avg-delay   max-delay  migrations\n";
        text += &format!("{:>30}   (count)       (msec)     (msec)      (msec)      (msec)       %", "");
        text += &format!("     (msec)      (msec)\n{}\n", "-".repeat(132));
        let tasks = rows.len();
        let (ended, live): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.ended);
        live.iter().for_each(|row| write_row(&mut text, &task(&row.thread), row));
        if !ended.is_empty() {
            text.push_str("\nTerminated tasks:\n");
            ended.iter().for_each(|row| write_row(&mut text, &task(&row.thread), row));
        }
        others.iter().for_each(|row| write_row(&mut text, "(others)", row));
        if !self.idle.is_empty() {
            text.push_str("\nIdle stats:\n");
        }
        for (cpu, idle) in &self.idle {
            let share = 100.0 * *idle as f64 / elapsed.max(1) as f64;
            text.push_str(&format!(
                "    CPU {cpu:>2} idle for {:>10.3}  msec  ({share:>6.2}%)\n",
                milliseconds(*idle)
            ));
        }
        text.push_str(&format!("\n    Total number of unique tasks: {tasks}\nTotal number of context switches: {}\n           Total run time (msec): \
             {:.3}\n    Total scheduling time (msec): {:.3}\n",
            self.switches,
            milliseconds(total.runs.total),
            milliseconds(elapsed)
        ));
        text
    }
}

fn write_row(text: &mut String, name: &str, row: &Row<Sum>) {
    let Sum { runs, sched_in, migrations, delays } = &row.sum;
    let known = |figure: f64| if delays.of.count == 0 { "-".to_owned() } else { format!("{figure:.3}") };
    text.push_str(&format!("{name:>30}  {sched_in:>8}  {:>11.3}  {:>9.3}   {:>9.3}   {:>9.3}  {:>6.2}  {:>9}   {:>9}  {migrations:>10}\n",
        milliseconds(runs.total),
        milliseconds(runs.least),
        runs.of.mean / 1e6,
        milliseconds(runs.most),
        runs.of.relative_error(),
        known(delays.of.mean / 1e6),
        known(milliseconds(delays.most)),
    ));
}

/// Formats a thread like perf, with the process ID if it differs from the thread ID.
pub(super) fn task(thread: &Thread) -> String {
    let comm = shown(thread.comm.bytes());
    match thread.pid {
        0 => format!("{comm}[{}]", thread.tid),
        pid if pid == thread.tid => format!("{comm}[{pid}]"),
        pid => format!("{comm}[{}/{pid}]", thread.tid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{Comm, SwitchIn, SwitchOut};

    #[test]
    fn the_summary_is_as_recorded() {
        let mut summary = Summary::new();
        let thread =
            |tid, name: &str| Thread { tid, pid: 812, comm: Comm::new(name.as_bytes()), ..Thread::default() };
        let (web, worker) = (thread(812, "web"), thread(813, "worker"));
        let mut ran = |thread: &Thread, from: u64, to: u64, delay, prev_state| {
            let switch_in = SwitchIn { time: from, cpu: 1, delay, wait: None, migrated: None };
            let switch_out = SwitchOut {
                time: to,
                cpu: 1,
                switch_in: Some(switch_in),
                prev_state,
                next: Thread::default(),
            };
            summary.take(&Observation::Fact { thread, fact: SchedFact::SwitchIn(switch_in) });
            summary.take(&Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) });
        };
        ran(&web, 1_000_000, 3_000_000, Some(500_000), PrevState::Sleeping);
        ran(&Thread::default(), 3_000_000, 5_000_000, None, PrevState::Preempted);
        ran(&web, 5_000_000, 9_000_000, Some(100_000), PrevState::Preempted);
        ran(&worker, 9_000_000, 9_050_000, None, PrevState::Dead);
        summary.take(&Observation::Fact { thread: &web, fact: SchedFact::Migrated });
        insta::assert_snapshot!(summary.text(10_000_000));
    }

    #[test]
    fn a_process_stands_behind_those_of_its_threads_that_have_another_number() {
        let thread = |tid, pid| Thread { tid, pid, comm: Comm::new(b"a\nb"), ..Thread::default() };
        assert_eq!(task(&thread(7, 7)), "a\\nb[7]");
        assert_eq!(task(&thread(8, 7)), "a\\nb[8/7]");
        assert_eq!(task(&thread(8, 0)), "a\\nb[8]");
    }
}
