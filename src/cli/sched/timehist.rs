//! `perf-exporter sched timehist`: one line for each run of a thread.

use std::io;
use std::ops::Range;

use super::args::TimehistArgs;
use super::machine::{Machine, Observation};
use super::summary::{Summary, task};
use super::window::Window;
use super::{follow, seconds};
use crate::cli::follow::{Functions, Listener, Output, StreamItem};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::export::trace_json::TraceJson;
use crate::host::CpuSet;
use crate::sched::{SchedFact, SwitchOut, Thread};
use crate::stack::Chain;
use crate::sys::Kernel;
use crate::targets::Glob;

const EVENTS: [&str; 4] =
    ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task"];

/// Traces, and prints lines or writes a trace file.
pub(super) fn run<K: Kernel>(args: &TimehistArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let output = args.json.as_deref().map(|path| Output::open("--json", Some(path)));
    let json = output.transpose()?.map(TraceJson::new);
    let functions = args.call_graph.then(|| Functions::read(host.roots));
    if let Some(problem) = functions.as_ref().and_then(Functions::problem) {
        tracing::warn!("-g shows addresses: {problem}");
    }
    let mut followed = follow(&args.follow, (&EVENTS, args.call_graph), host, |machine| {
        let mut lines = args.shows_lines().then(|| Lines::new(args, &host.facts().online, functions));
        lines.iter_mut().for_each(Lines::head);
        let summary = args.shows_summary().then(Summary::new);
        let window = Window::of(args.time.as_ref());
        Timehist { machine, window, comms: args.comm.clone(), lines, summary, json }
    })?;
    let (begun, ended) = followed.listener.window.clip(followed.time);
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
    window: Window,
    /// Names of the threads to show; empty for all.
    comms: Vec<Glob>,
    lines: Option<Lines>,
    summary: Option<Summary>,
    json: Option<TraceJson<Output>>,
}

impl Listener for Timehist {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let Self { machine, window, comms, lines, summary, json } = self;
        lines.iter_mut().for_each(|lines| lines.chain(item));
        machine.handle(item, &mut |seen| {
            let Some(seen) = window.include(item, seen).filter(|seen| is_named(seen, comms)) else { return };
            lines.iter_mut().for_each(|lines| lines.take(&seen));
            summary.iter_mut().for_each(|summary| summary.take(&seen));
            if let (Some(json), Observation::Fact { thread, fact }) = (json.as_mut(), &seen) {
                json.add(thread, fact);
            }
        });
    }

    fn drained(&mut self, until: u64) {
        self.window.drained(until);
    }

    fn is_done(&self) -> bool {
        self.window.is_over()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.json.as_mut().map_or(Ok(()), TraceJson::flush)?;
        let Some(lines) = &mut self.lines else { return Ok(()) };
        put(std::mem::take(&mut lines.text))
    }
}

/// Reports whether an observation is of a thread with one of these names. Without names, all are.
fn is_named(seen: &Observation<'_>, comms: &[Glob]) -> bool {
    let has = |thread: &Thread| {
        let name = String::from_utf8_lossy(thread.comm.bytes());
        comms.iter().any(|comm| comm.matches_name(&name))
    };
    comms.is_empty()
        || match seen {
            Observation::Fact { thread, .. } => has(thread),
            Observation::Wakes { by, thread, .. } | Observation::Migrates { by, thread, .. } => {
                has(by) || has(thread)
            }
            Observation::Ran { thread, .. } => has(thread),
        }
}

/// Functions that every thread leaves its CPU in, so that they tell nothing. perf omits them, too.
const SCHEDULE: [&str; 3] = ["__schedule", "schedule", "preempt_schedule"];

/// Lines that have not been written yet.
#[derive(Default)]
struct Lines {
    text: String,
    /// The CPUs of the columns: the first, and one after the last. Empty without columns.
    columns: Range<u32>,
    idle: bool,
    functions: Option<Functions>,
    /// Maximum number of functions.
    depth: usize,
    /// The call chain of the record that is handled.
    chain: Chain,
    state: bool,
    wakeups: bool,
    migrations: bool,
    next: bool,
}

impl Lines {
    fn new(args: &TimehistArgs, online: &CpuSet, functions: Option<Functions>) -> Self {
        let TimehistArgs { state, wakeups, migrations, next, cpu_visual, idle_hist, .. } = *args;
        let end = online.iter().max().filter(|_| cpu_visual).map_or(0, |last| last + 1);
        let (columns, idle, depth) = (0..end, idle_hist, usize::from(args.max_stack));
        Self { columns, idle, functions, depth, state, wakeups, migrations, next, ..Self::default() }
    }

    fn head(&mut self) {
        let (state, below, rule) = if self.state { ("  state", "       ", "  -----") } else { ("", "", "") };
        let column = |text: &mut dyn FnMut(u32) -> char| match self.columns.is_empty() {
            true => String::new(),
            false => format!(" {} ", self.columns.clone().map(text).collect::<String>()),
        };
        let digits = column(&mut |cpu| char::from_digit(cpu % 16, 16).unwrap_or('?'));
        let (spaces, dashes) = (column(&mut |_| ' '), column(&mut |_| '-'));
        self.text += &format!(
            "           time    cpu {digits} task name                       wait time  sch delay   run time{state}\n"
        );
        self.text += &format!(
            "                       {spaces} [tid/pid]                          (msec)     (msec)     (msec){below}\n"
        );
        self.text += &format!(
            "--------------- ------ {dashes} ------------------------------  ---------  ---------  ---------{rule}\n"
        );
    }

    /// Notes the call chain of a record, which is that of the thread that leaves its CPU.
    fn chain(&mut self, item: &StreamItem<'_>) {
        self.chain.kernel.clear();
        if let (StreamItem::Hit { sample, .. }, Some(_)) = (item, &self.functions) {
            self.chain.take(sample, usize::MAX);
        }
    }

    /// Returns the columns of the CPUs, with a mark for this one.
    fn visual(&self, cpu: u32, is_idle: bool) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let mark = if is_idle { 'i' } else { 's' };
        let marks = self.columns.clone().map(|column| if column == cpu { mark } else { ' ' });
        format!(" {} ", marks.collect::<String>())
    }

    /// Returns the functions in which the thread left its CPU.
    fn functions(&self) -> String {
        let Some(functions) = &self.functions else { return String::new() };
        let names = self.chain.kernel.iter().map(|&address| functions.name(address));
        let names = names.filter(|name| !SCHEDULE.contains(&name.as_str()));
        names.take(self.depth).collect::<Vec<_>>().join(" <- ")
    }

    fn take(&mut self, seen: &Observation<'_>) {
        match seen {
            Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) }
                if (thread.tid == 0) == self.idle =>
            {
                self.switch_out(thread, switch_out);
            }
            Observation::Wakes { at, by, thread } if self.wakeups && !self.idle => {
                self.besides(*at, by, &format!("awakened: {}", task(thread)));
            }
            Observation::Migrates { at, by, thread, from, to } if self.migrations && !self.idle => {
                self.besides(*at, by, &format!("migrated: {} cpu {from} => {to}", task(thread)));
            }
            _ => {}
        }
    }

    fn switch_out(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        let wait = switch_out.switch_in.and_then(|switch_in| switch_in.wait).map(|(_, wait)| wait);
        let delay = switch_out.switch_in.and_then(|switch_in| switch_in.delay);
        self.text.push_str(&format!(
            "{:>15} [{:04}] {} {:<30}  {:>9}  {:>9}  {:>9}",
            seconds(switch_out.time),
            switch_out.cpu,
            self.visual(switch_out.cpu, thread.tid == 0),
            name(thread),
            known(wait),
            known(delay),
            known(switch_out.run())
        ));
        if self.state {
            self.text.push_str(&format!("  {:>5}", switch_out.prev_state.letter()));
        }
        if self.next {
            self.text.push_str(&format!("  next: {}", name(&switch_out.next)));
        }
        let functions = self.functions();
        if !functions.is_empty() {
            self.text.push_str(&format!("  {functions}"));
        }
        self.text.push('\n');
    }

    fn besides(&mut self, (cpu, time): (u32, u64), by: &Thread, what: &str) {
        let state = if self.state { "       " } else { "" };
        self.text.push_str(&format!(
            "{:>15} [{cpu:04}] {} {:<30}{:>33}{state}  {what}\n",
            seconds(time),
            self.visual(cpu, by.tid == 0),
            name(by),
            ""
        ));
    }
}

fn name(thread: &Thread) -> String {
    if thread.tid == 0 { "<idle>".to_owned() } else { task(thread) }
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
        insta::assert_snapshot!(lines(0..0, false));
    }

    #[test]
    fn threads_are_selected_by_their_names() {
        let thread = |name: &[u8]| Thread { tid: 1, comm: Comm::new(name), ..Thread::default() };
        let shows = |names: &[&str], name: &[u8]| {
            let comms: Vec<Glob> = names.iter().map(|name| Glob::new(name).unwrap()).collect();
            let by = thread(b"swapper/0");
            is_named(&Observation::Wakes { at: (0, 0), by, thread: thread(name) }, &comms)
        };
        assert!(shows(&[], b"web") && shows(&["web"], b"web") && shows(&["cc*", "we?"], b"web"));
        assert!(shows(&["swapper/*"], b"web"));
        assert!(!shows(&["we"], b"web") && !shows(&["WEB"], b"web\xff"));
    }

    #[test]
    fn idle_times_and_columns_of_cpus_are_as_recorded() {
        insta::assert_snapshot!(lines(0..5, true));
    }

    fn lines(columns: Range<u32>, idle: bool) -> String {
        let thread = |tid, name: &[u8]| Thread { tid, pid: 812, comm: Comm::new(name), ..Thread::default() };
        let (web, hostile) = (thread(812, b"web"), thread(813, b"\x1b[2J\n"));
        let mut lines = Lines {
            state: true,
            wakeups: true,
            migrations: true,
            next: true,
            columns,
            idle,
            ..Lines::default()
        };
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
        lines.text
    }
}
