//! `perf-exporter sched latency`: a table of how long threads waited for a CPU.

use std::cmp::Ordering;

use super::args::{Key, LatencyArgs};
use super::machine::{Machine, Seen};
use super::{follow, seconds};
use crate::cli::follow::{Heard, Listener, Merge, Row, Rows, Spread, milliseconds, shown};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::sched::{Left, Told};
use crate::sys::Kernel;

/// Tracepoints of this command. `sched_stat_runtime` also covers threads that never leave their CPU.
const EVENTS: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_stat_runtime"];

/// Traces, and prints the table at the end.
pub(super) fn run<K: Kernel>(args: &LatencyArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let delays = Delays { rows: Rows::new(args.pids) };
    let followed = follow(&args.follow, &EVENTS, host, |machine| Latency { machine, delays })?;
    followed.tell_what_is_missing()?;
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
    fn hear(&mut self, heard: &Heard<'_>) {
        let delays = &mut self.delays;
        self.machine.hear(heard, &mut |seen| delays.take(&seen));
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
    fn take(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Ran { who, time } if who.tid != 0 => self.rows.of(who).runtime += time,
            Seen::Told { who, told: Told::Came(came) } if who.tid != 0 => {
                let sum = self.rows.of(who);
                sum.count += 1;
                let Some(delay) = came.delay else { return };
                if delay > sum.delays.most {
                    sum.ended = came.time;
                }
                sum.delays.add(delay);
            }
            Seen::Told { who, told: Told::Went(went) } if went.left == Left::Dead => self.rows.end(who.tid),
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
        Key::Pid => a.who.tid.cmp(&b.who.tid),
    };
    let sorted = sort.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    // Makes the order deterministic.
    sorted.then_with(|| a.who.comm.cmp(&b.who.comm)).then_with(|| a.who.tid.cmp(&b.who.tid))
}

fn name(row: &Row<Sum>) -> String {
    let comm = shown(row.who.comm.bytes());
    match row.threads {
        0 | 1 => format!("{comm}:{}", row.who.tid),
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
    use crate::sched::{Came, Comm, Went, Who};

    fn who(tid: u32, name: &[u8]) -> Who {
        Who { tid, pid: tid, comm: Comm::new(name), ..Who::default() }
    }

    fn delays(pids: bool) -> Delays {
        let mut delays = Delays { rows: Rows::new(pids) };
        let web = [who(812, b"web"), who(813, b"web")];
        let hostile = who(4711, b"\x1b[31mred");
        let mut came = |who: &Who, time, delay| {
            let came = Came { time, cpu: 0, delay, wait: None, migrated: None };
            delays.take(&Seen::Told { who, told: Told::Came(came) });
        };
        came(&web[0], 74_490_821_533_000, Some(4_283_000));
        came(&web[1], 74_491_000_000_000, Some(17_000));
        came(&web[1], 74_491_000_100_000, None);
        came(&hostile, 74_490_600_000_000, Some(250));
        came(&Who::default(), 1, Some(1_000_000_000));
        delays.take(&Seen::Ran { who: web[0], time: 1_186_534_000 });
        delays.take(&Seen::Ran { who: hostile, time: 51_000 });
        delays.take(&Seen::Ran { who: who(9, b"spins"), time: 4_000_000 });
        let went = Went { time: 9, cpu: 0, came: None, left: Left::Dead, next: Who::default() };
        delays.take(&Seen::Told { who: &web[0], told: Told::Went(went) });
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
