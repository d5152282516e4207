//! `perf-exporter sched timehist`: one line for each run of a thread.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use super::args::TimehistArgs;
use super::machine::{Machine, Observation};
use super::summary::{Summary, task};
use super::{follow, seconds};
use crate::cli::follow::{Listener, StreamItem};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::export::trace_json::TraceJson;
use crate::sched::{SchedFact, SwitchOut, Thread};
use crate::sys::Kernel;

const EVENTS: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task"];

/// Traces, and prints lines or writes a trace file.
pub(super) fn run<K: Kernel>(args: &TimehistArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let json = args.json.as_deref().map(create).transpose()?;
    let mut followed = follow(&args.follow, &EVENTS, host, |machine| {
        let mut lines = args.shows_lines().then(|| Lines::new(args));
        lines.iter_mut().for_each(Lines::head);
        Timehist { machine, lines, summary: args.shows_summary().then(Summary::new), json }
    })?;
    let (begun, ended) = followed.time;
    followed.listener.json.iter_mut().try_for_each(|json| json.end(ended))?;
    followed.report_missing()?;
    if let Some(summary) = followed.listener.summary {
        put(summary.text(ended.saturating_sub(begun)))?;
    }
    Ok(followed.ending)
}

/// Passes observations to the enabled outputs.
struct Timehist {
    machine: Machine,
    lines: Option<Lines>,
    summary: Option<Summary>,
    json: Option<TraceJson<Box<dyn Write>>>,
}

/// Creates the file of a trace; `-` is standard output.
///
/// # Errors
/// If the file cannot be created.
fn create(path: &Path) -> anyhow::Result<TraceJson<Box<dyn Write>>> {
    if path == "-" {
        return Ok(TraceJson::new(Box::new(io::stdout())));
    }
    let file = File::create(path).with_context(|| format!("--json {}", path.display()))?;
    Ok(TraceJson::new(Box::new(file)))
}

impl Listener for Timehist {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let Self { machine, lines, summary, json } = self;
        machine.handle(item, &mut |seen| {
            lines.iter_mut().for_each(|lines| lines.take(&seen));
            summary.iter_mut().for_each(|summary| summary.take(&seen));
            if let (Some(json), Observation::Fact { thread, fact }) = (json.as_mut(), &seen) {
                json.add(thread, fact);
            }
        });
    }

    fn flush(&mut self) -> io::Result<()> {
        self.json.as_mut().map_or(Ok(()), TraceJson::flush)?;
        let Some(lines) = &mut self.lines else { return Ok(()) };
        put(std::mem::take(&mut lines.text))
    }
}

/// Lines that have not been written yet.
struct Lines {
    text: String,
    state: bool,
    wakeups: bool,
    migrations: bool,
    next: bool,
}

impl Lines {
    fn new(args: &TimehistArgs) -> Self {
        let TimehistArgs { state, wakeups, migrations, next, .. } = *args;
        Self { text: String::new(), state, wakeups, migrations, next }
    }

    fn head(&mut self) {
        let (state, below, rule) = if self.state { ("  state", "       ", "  -----") } else { ("", "", "") };
        self.text += &format!(
            "           time    cpu  task name                       wait time  sch delay   run time{state}\n"
        );
        self.text += &format!(
            "                        [tid/pid]                          (msec)     (msec)     (msec){below}\n"
        );
        self.text += &format!(
            "--------------- ------  ------------------------------  ---------  ---------  ---------{rule}\n"
        );
    }

    fn take(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) } if thread.tid != 0 => {
                self.switch_out(thread, switch_out);
            }
            Observation::Wakes { at, by, thread } if self.wakeups => {
                self.besides(*at, by, &format!("awakened: {}", task(thread)));
            }
            Observation::Migrates { at, by, thread, from, to } if self.migrations => {
                self.besides(*at, by, &format!("migrated: {} cpu {from} => {to}", task(thread)));
            }
            _ => {}
        }
    }

    fn switch_out(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        let wait = switch_out.switch_in.and_then(|switch_in| switch_in.wait).map(|(_, wait)| wait);
        let delay = switch_out.switch_in.and_then(|switch_in| switch_in.delay);
        self.text.push_str(&format!(
            "{:>15} [{:04}]  {:<30}  {:>9}  {:>9}  {:>9}",
            seconds(switch_out.time),
            switch_out.cpu,
            task(thread),
            known(wait),
            known(delay),
            known(switch_out.run())
        ));
        if self.state {
            self.text.push_str(&format!("  {:>5}", switch_out.prev_state.letter()));
        }
        if self.next {
            let next = &switch_out.next;
            let name = if next.tid == 0 { "<idle>".to_owned() } else { task(next) };
            self.text.push_str(&format!("  next: {name}"));
        }
        self.text.push('\n');
    }

    fn besides(&mut self, (cpu, time): (u32, u64), by: &Thread, what: &str) {
        let name = if by.tid == 0 { "<idle>".to_owned() } else { task(by) };
        let state = if self.state { "       " } else { "" };
        self.text.push_str(&format!(
            "{:>15} [{cpu:04}]  {name:<30}{:>33}{state}  {what}\n",
            seconds(time),
            ""
        ));
    }
}

/// Formats a time in milliseconds; a dash if its begin was not recorded. As in perf, fractions of a microsecond are truncated. With
/// rounding, sums over many short waits would differ from perf.
fn known(time: Option<u64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{}.{:03}", time / 1_000_000, time % 1_000_000 / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{Comm, PrevState, SwitchIn};

    #[test]
    fn times_are_cut_off_and_not_rounded() {
        assert_eq!(known(Some(12_003_999)), "12.003");
        assert_eq!(known(Some(999)), "0.000");
        assert_eq!(known(None), "-");
    }

    #[test]
    fn the_lines_are_as_recorded() {
        let thread = |tid, name: &[u8]| Thread { tid, pid: 812, comm: Comm::new(name), ..Thread::default() };
        let (web, hostile) = (thread(812, b"web"), thread(813, b"\x1b[2J\n"));
        let mut lines =
            Lines { text: String::new(), state: true, wakeups: true, migrations: true, next: true };
        lines.head();
        let switch_in = SwitchIn {
            time: 74_490_000_050_000,
            cpu: 3,
            delay: Some(50_000),
            wait: Some((PrevState::Sleeping, 10_000_000)),
            migrated: None,
        };
        let switch_out = SwitchOut {
            time: 74_490_002_050_999,
            cpu: 3,
            switch_in: Some(switch_in),
            prev_state: PrevState::Preempted,
            next: hostile,
        };
        let at = (3, 74_490_000_000_000);
        lines.take(&Observation::Wakes { at, by: Thread::default(), thread: web });
        lines.take(&Observation::Migrates { at, by: hostile, thread: web, from: 0, to: 3 });
        lines.take(&Observation::Fact { thread: &web, fact: SchedFact::SwitchIn(switch_in) });
        lines.take(&Observation::Fact { thread: &web, fact: SchedFact::SwitchOut(switch_out) });
        let unseen =
            SwitchOut { switch_in: None, prev_state: PrevState::Dead, next: Thread::default(), ..switch_out };
        lines.take(&Observation::Fact { thread: &hostile, fact: SchedFact::SwitchOut(unseen) });
        lines.take(&Observation::Fact { thread: &Thread::default(), fact: SchedFact::SwitchOut(unseen) });
        insta::assert_snapshot!(lines.text);
    }
}
