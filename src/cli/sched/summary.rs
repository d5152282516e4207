//! The summary of `perf-exporter sched timehist`: number and duration of the runs of each thread.

use std::collections::BTreeMap;

use super::machine::Seen;
use crate::cli::follow::{Merge, Row, Rows, Spread, milliseconds, shown};
use crate::sched::{Left, Told, Who};

/// Statistics of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sum {
    /// Run times of the completed runs.
    runs: Spread,
    /// Number of times scheduled in, including runs without a known end.
    came: u64,
    migrations: u64,
    /// Delays before runs.
    delays: Spread,
}

impl Merge for Sum {
    fn merge(&mut self, other: Self) {
        self.runs.merge(&other.runs);
        self.came += other.came;
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

    pub(super) fn take(&mut self, seen: &Seen<'_>) {
        let Seen::Told { who, told } = seen else { return };
        match told {
            Told::Came(came) if who.tid != 0 => {
                let sum = self.rows.of(who);
                sum.came += 1;
                came.delay.iter().for_each(|&delay| sum.delays.add(delay));
            }
            Told::Went(went) if who.tid == 0 => {
                *self.idle.entry(went.cpu).or_default() += went.run().unwrap_or_default();
            }
            Told::Went(went) => {
                self.switches += 1;
                went.run().iter().for_each(|&run| self.rows.of(who).runs.add(run));
                if went.left == Left::Dead {
                    self.rows.end(who.tid);
                }
            }
            Told::Migrated => self.rows.of(who).migrations += 1,
            Told::Came(_) | Told::Ran(_) => {}
        }
    }

    /// Returns the table of perf, for a measurement of `elapsed` nanoseconds.
    pub(super) fn text(self, elapsed: u64) -> String {
        let (mut rows, others) = self.rows.finish();
        rows.retain(|row| row.sum.runs.of.count > 0 || row.sum.came > 0);
        rows.sort_by_key(|row| (row.ended, row.who.tid, row.who.comm));
        let mut total = Sum::default();
        rows.iter().chain(&others).for_each(|row| total.merge(row.sum));
        let mut text = String::from("\nRuntime summary\n");
        text += &format!("{:>30}  sched-in     run-time    min-run     avg-run     max-run  stddev", "comm");
        text += "  avg-delay   max-delay  migrations\n";
        text += &format!("{:>30}   (count)       (msec)     (msec)      (msec)      (msec)       %", "");
        text += &format!("     (msec)      (msec)\n{}\n", "-".repeat(132));
        let tasks = rows.len();
        let (ended, live): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.ended);
        live.iter().for_each(|row| write_row(&mut text, &task(&row.who), row));
        if !ended.is_empty() {
            text.push_str("\nTerminated tasks:\n");
            ended.iter().for_each(|row| write_row(&mut text, &task(&row.who), row));
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
    let Sum { runs, came, migrations, delays } = &row.sum;
    let known = |figure: f64| if delays.of.count == 0 { "-".to_owned() } else { format!("{figure:.3}") };
    text.push_str(&format!("{name:>30}  {came:>8}  {:>11.3}  {:>9.3}   {:>9.3}   {:>9.3}  {:>6.2}  {:>9}   {:>9}  {migrations:>10}\n",
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
pub(super) fn task(who: &Who) -> String {
    let comm = shown(who.comm.bytes());
    match who.pid {
        0 => format!("{comm}[{}]", who.tid),
        pid if pid == who.tid => format!("{comm}[{pid}]"),
        pid => format!("{comm}[{}/{pid}]", who.tid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{Came, Comm, Went};

    #[test]
    fn the_summary_is_as_recorded() {
        let mut summary = Summary::new();
        let who = |tid, name: &str| Who { tid, pid: 812, comm: Comm::new(name.as_bytes()), ..Who::default() };
        let (web, worker) = (who(812, "web"), who(813, "worker"));
        let mut ran = |who: &Who, from: u64, to: u64, delay, left| {
            let came = Came { time: from, cpu: 1, delay, wait: None, migrated: None };
            let went = Went { time: to, cpu: 1, came: Some(came), left, next: Who::default() };
            summary.take(&Seen::Told { who, told: Told::Came(came) });
            summary.take(&Seen::Told { who, told: Told::Went(went) });
        };
        ran(&web, 1_000_000, 3_000_000, Some(500_000), Left::Sleeping);
        ran(&Who::default(), 3_000_000, 5_000_000, None, Left::Preempted);
        ran(&web, 5_000_000, 9_000_000, Some(100_000), Left::Preempted);
        ran(&worker, 9_000_000, 9_050_000, None, Left::Dead);
        summary.take(&Seen::Told { who: &web, told: Told::Migrated });
        insta::assert_snapshot!(summary.text(10_000_000));
    }

    #[test]
    fn a_process_stands_behind_those_of_its_threads_that_have_another_number() {
        let who = |tid, pid| Who { tid, pid, comm: Comm::new(b"a\nb"), ..Who::default() };
        assert_eq!(task(&who(7, 7)), "a\\nb[7]");
        assert_eq!(task(&who(8, 7)), "a\\nb[8/7]");
        assert_eq!(task(&who(8, 0)), "a\\nb[8]");
    }
}
