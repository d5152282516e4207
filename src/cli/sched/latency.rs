//! `perf-exporter sched latency`: a table of how long threads waited for a CPU.

use std::cmp::Ordering;

use super::args::{Key, LatencyArgs};
use super::machine::{Machine, Observation};
use super::{follow, seconds};
use crate::cli::follow::{Listener, Merge, Row, Rows, Spread, StreamItem, milliseconds, shown};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::sched::{PrevState, SchedFact};
use crate::sys::Kernel;

/// Tracepoints of this command. `sched_stat_runtime` also covers threads that never leave their CPU.
const EVENTS: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_stat_runtime"];

/// Traces, and prints the table at the end.
pub(super) fn run<K: Kernel>(args: &LatencyArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let delays = Delays { rows: Rows::new(args.pids) };
    let followed = follow(&args.follow, (&EVENTS, false), host, |machine| Latency { machine, delays })?;
    followed.report_missing()?;
    let lines = args.lines.map_or(usize::MAX, |lines| lines as usize);
    put(followed.listener.delays.table(&args.sort, lines))?;
    Ok(followed.ending)
}

/// Sums the delays.
struct Latency {
    machine: Machine,
    delays: Delays,
}

impl Listener for Latency {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let delays = &mut self.delays;
        self.machine.handle(item, &mut |seen| delays.take(&seen));
    }
}

/// The delays of a row. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sum {
    runtime: u64,
    /// Number of times scheduled in.
    count: u64,
    /// The known delays.
    delays: Spread,
    /// End of the longest delay.
    ended: u64,
}

impl Sum {
    fn mean(&self) -> f64 {
        if self.delays.of.count == 0 { 0.0 } else { self.delays.total as f64 / self.delays.of.count as f64 }
    }
}

impl Merge for Sum {
    fn merge(&mut self, other: Self) {
        self.runtime += other.runtime;
        self.count += other.count;
        if other.delays.most > self.delays.most {
            self.ended = other.ended;
        }
        self.delays.merge(&other.delays);
    }
}

/// Delays by thread or by name.
struct Delays {
    rows: Rows<Sum>,
}

impl Delays {
    fn take(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Ran { thread, time } if thread.tid != 0 => self.rows.of(thread).runtime += time,
            Observation::Fact { thread, fact: SchedFact::SwitchIn(switch_in) } if thread.tid != 0 => {
                let sum = self.rows.of(thread);
                sum.count += 1;
                let Some(delay) = switch_in.delay else { return };
                if delay > sum.delays.most {
                    sum.ended = switch_in.time;
                }
                sum.delays.add(delay);
            }
            Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) }
                if switch_out.prev_state == PrevState::Dead =>
            {
                self.rows.end(thread.tid);
            }
            _ => {}
        }
    }

    /// Returns the table of perf. Threads that were never scheduled in and never ran are omitted.
    fn table(self, sort: &[Key], lines: usize) -> String {
        let (mut rows, others) = self.rows.finish();
        rows.retain(|row| row.sum.count > 0 || row.sum.runtime > 0);
        rows.sort_by(|a, b| order(a, b, sort));
        let mut total = Sum::default();
        rows.iter().chain(&others).for_each(|row| total.merge(row.sum));
        let mut text = String::new();
        let rule = "-".repeat(139);
        text.push_str(&format!("\n {rule}\n  {:<21} |   Runtime ms  |    Count | Avg delay ms    | Max delay ms    | Max delay start           | \
             Max delay end          |\n {rule}\n",
            "Task"
        ));
        let left_out = rows.len().saturating_sub(lines);
        for row in rows.iter().take(lines) {
            write_row(&mut text, &name(row), &row.sum);
        }
        if let Some(others) = others {
            write_row(&mut text, "(others)", &others.sum);
        }
        if left_out > 0 {
            text.push_str(&format!("  ({left_out} more rows; use a higher -n)\n"));
        }
        text.push_str(&format!(
            " {}\n  {:<21} | {:>10.3} ms | {:>8} |\n {}\n\n",
            "-".repeat(113),
            "TOTAL:",
            milliseconds(total.runtime),
            total.count,
            "-".repeat(51)
        ));
        text
    }
}

fn order(a: &Row<Sum>, b: &Row<Sum>, sort: &[Key]) -> Ordering {
    let by = |key: &Key| match key {
        Key::Avg => b.sum.mean().total_cmp(&a.sum.mean()),
        Key::Max => b.sum.delays.most.cmp(&a.sum.delays.most),
        Key::Count => b.sum.count.cmp(&a.sum.count),
        Key::Runtime => b.sum.runtime.cmp(&a.sum.runtime),
        Key::Pid => a.thread.tid.cmp(&b.thread.tid),
    };
    let sorted = sort.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    // Makes the order deterministic.
    sorted.then_with(|| a.thread.comm.cmp(&b.thread.comm)).then_with(|| a.thread.tid.cmp(&b.thread.tid))
}

fn name(row: &Row<Sum>) -> String {
    let comm = shown(row.thread.comm.bytes());
    match row.threads {
        0 | 1 => format!("{comm}:{}", row.thread.tid),
        more => format!("{comm}:({more})"),
    }
}

fn write_row(text: &mut String, name: &str, sum: &Sum) {
    // perf prints zeros if no delay is known.
    let known = |figure: String| if sum.delays.of.count == 0 { "-".to_owned() } else { figure };
    text.push_str(&format!(
        "  {name:<21} | {:>10.3} ms | {:>8} | avg:{:>8} ms | max:{:>8} ms | max start: {:>12} s | max end: {:>12} s\n",
        milliseconds(sum.runtime),
        sum.count,
        known(format!("{:.3}", sum.mean() / 1e6)),
        known(format!("{:.3}", milliseconds(sum.delays.most))),
        known(seconds(sum.ended - sum.delays.most)),
        known(seconds(sum.ended)),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{Comm, SwitchIn, SwitchOut, Thread};

    fn thread(tid: u32, name: &[u8]) -> Thread {
        Thread { tid, pid: tid, comm: Comm::new(name), ..Thread::default() }
    }

    fn delays(pids: bool) -> Delays {
        let mut delays = Delays { rows: Rows::new(pids) };
        let web = [thread(812, b"web"), thread(813, b"web")];
        let hostile = thread(4711, b"\x1b[31mred");
        let mut switch_in = |thread: &Thread, time, delay| {
            let switch_in = SwitchIn { time, cpu: 0, delay, wait: None, migrated: None };
            delays.take(&Observation::Fact { thread, fact: SchedFact::SwitchIn(switch_in) });
        };
        switch_in(&web[0], 74_490_821_533_000, Some(4_283_000));
        switch_in(&web[1], 74_491_000_000_000, Some(17_000));
        switch_in(&web[1], 74_491_000_100_000, None);
        switch_in(&hostile, 74_490_600_000_000, Some(250));
        switch_in(&Thread::default(), 1, Some(1_000_000_000));
        delays.take(&Observation::Ran { thread: web[0], time: 1_186_534_000 });
        delays.take(&Observation::Ran { thread: hostile, time: 51_000 });
        delays.take(&Observation::Ran { thread: thread(9, b"spins"), time: 4_000_000 });
        let switch_out = SwitchOut {
            time: 9,
            cpu: 0,
            switch_in: None,
            prev_state: PrevState::Dead,
            next: Thread::default(),
        };
        delays.take(&Observation::Fact { thread: &web[0], fact: SchedFact::SwitchOut(switch_out) });
        delays
    }

    const SORT: [Key; 4] = [Key::Avg, Key::Max, Key::Count, Key::Runtime];

    #[test]
    fn the_table_is_as_recorded() {
        insta::assert_snapshot!(delays(false).table(&SORT, usize::MAX));
    }

    #[test]
    fn the_table_by_thread_is_as_recorded() {
        insta::assert_snapshot!(delays(true).table(&[Key::Pid], 3));
    }
}
