//! Time-ordered records of tracepoints for the commands `kmem`, `lock`, `sched` and `trace`.
//!
//! ```text
//! Source: a tracepoint and its format ─┐
//! observe::Subject (target) ───────────┴► Rings: opened on each CPU, merged ─► Listener: a line, a table, a file
//! ```

mod args;
mod call_chains;
mod functions;
mod output;
mod own;
mod rings;
mod rows;
mod spread;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Notify;

use super::observe::{Ending, Failure, Host, Program, Subject, WaitEvent, measure, notes};
use crate::config::profiled::one_event;
use crate::error::printable;
use crate::event::format::{Field, Format};
use crate::event::{Catalog, Event};
use crate::health::{Cause, Judgement, Refusal};
use crate::plan;
use crate::ring::{Losses, Record, Sample};
use crate::sys::spawn::Waiting;
use crate::sys::{Fields, Kernel, Sideband};
use crate::targets::OpenTarget;
pub(super) use args::FollowArgs;
pub(super) use call_chains::{CallChains, StackFrame};
pub(super) use functions::Functions;
pub(super) use output::Output;
pub(super) use own::OwnProcesses;
use rings::Rings;
pub(super) use rows::{Merge, Row, Rows};
pub(super) use spread::{Spread, milliseconds};

/// Interval at which rings are read that did not wake the reader.
const TICK: Duration = Duration::from_millis(100);

/// Reordering window in nanoseconds. A record can still be written on one CPU while a younger record of another CPU is read.
const BEHIND: u64 = 5_000_000;

/// A tracepoint, or another event, with records to read.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) event: Event,
    pub(super) format: Format,
    /// The fields of its records, if they differ from those of the session: in others than identifier, instruction, thread and time.
    pub(super) fields: Option<Fields>,
}

impl Source {
    /// Finds the tracepoint of this name on this host. `filter` is in the filter syntax of the kernel.
    ///
    /// # Errors
    /// The reason why the tracepoint does not exist or cannot be decoded.
    fn find(name: &str, filter: Option<&str>, catalog: &Catalog) -> Result<Self, Refusal> {
        let broken = |reason: String| {
            let judgement = Judgement { cause: Cause::Broken, reason, remedy: None };
            judgement.refusal(&name.into(), "this host", None)
        };
        let written = one_event(name).map_err(|error| broken(error.to_string()))?;
        let found = catalog.resolve(&written).map_err(|unresolved| plan::refusal(&written, &unresolved))?;
        let event = found.into_iter().next().ok_or_else(|| broken("it resolves to no event".into()))?;
        let format = name.split_once(':').map(|(system, event)| catalog.format(system, event));
        let format = format.ok_or_else(|| broken("it is not a tracepoint".into()))?;
        let format = format.map_err(|error| broken(error.to_string()))?;
        Ok(Self { event: Event { filter: filter.map(Arc::from), ..event }, format, fields: None })
    }

    /// Finds a software event.
    ///
    /// # Errors
    /// The reason why it does not exist.
    pub(super) fn software(name: &str, catalog: &Catalog) -> Result<Self, Failure> {
        let written = one_event(name).map_err(anyhow::Error::from)?;
        let found = catalog.resolve(&written);
        let found =
            found.map_err(|unresolved| Failure::Nothing(vec![plan::refusal(&written, &unresolved)]))?;
        let event = found.into_iter().next().with_context(|| format!("{name} resolves to no event"))?;
        Ok(Self { event, format: Format::without_fields(name), fields: None })
    }

    /// Finds all tracepoints in `names`. All are required: results from only some of them would be misleading.
    ///
    /// # Errors
    /// The reasons for the missing tracepoints.
    pub(super) fn find_all(
        names: &[&str],
        filter: Option<&str>,
        catalog: &Catalog,
    ) -> Result<Vec<Self>, Failure> {
        let (mut sources, mut refusals) = (Vec::new(), Vec::new());
        for name in names {
            match Self::find(name, filter, catalog) {
                Ok(source) => sources.push(source),
                Err(refusal) => refusals.push(refusal),
            }
        }
        if refusals.is_empty() { Ok(sources) } else { Err(Failure::Nothing(refusals)) }
    }
}

/// An item of the merged record stream, in order of time.
#[derive(Debug)]
pub(super) enum StreamItem<'r> {
    /// A hit of a tracepoint: the index of its source, and its CPU.
    Hit { source: usize, cpu: u32, sample: Sample<'r> },
    /// Another record of the kernel.
    Besides { cpu: u32, time: u64, record: Record<'r> },
    /// Records were lost. In-flight state must be discarded.
    Gap,
}

/// A consumer of the merged record stream.
pub(super) trait Listener {
    /// Processes one item. Output is buffered until [`flush`](Self::flush).
    fn handle(&mut self, item: &StreamItem<'_>);

    /// Notes that all records before `until` have been processed, in nanoseconds of the clock of the records.
    fn drained(&mut self, _until: u64) {}

    /// Reports whether nothing further is wanted: the session ends.
    fn is_done(&self) -> bool {
        false
    }

    /// Writes the buffered output, unless all output is written at the end.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a line for each kind of record loss that occurred.
fn lines(losses: Losses) -> Vec<String> {
    let Losses { ring_full, unreadable, late, .. } = losses;
    let full = "were lost because the rings were full; operations in flight at that time are omitted; select fewer targets, or \
         give perf-exporter more CPU time";
    let bug = "could not be decoded, which is a bug in perf-exporter";
    let lines = [(ring_full, full), (unreadable, bug), (late, "arrived too late to be sorted by time")];
    let some = lines.into_iter().filter(|(records, _)| *records > 0);
    some.map(|(records, what)| format!("{records} records {what}")).collect()
}

/// The sources, target and duration of a tracing session.
#[derive(Debug)]
pub(super) struct Session<'a, K> {
    pub(super) host: &'a Host<'a, K>,
    pub(super) sources: &'a [Source],
    pub(super) fields: Fields,
    pub(super) sideband: Sideband,
    pub(super) subject: &'a Subject,
    /// Whether events are opened for all threads on all CPUs. Waits for a CPU are reported in records of other threads.
    pub(super) everybody: bool,
    pub(super) program: Program<'a>,
    pub(super) limit: Option<Duration>,
}

/// The result of a session.
#[derive(Debug)]
pub(super) struct SessionResult<L> {
    pub(super) listener: L,
    /// Begin and end, in nanoseconds of the clock of the records.
    pub(super) time: (u64, u64),
    pub(super) ending: Ending,
    losses: Losses,
    refusals: Vec<Refusal>,
}

impl<L> SessionResult<L> {
    /// Reports losses and refusals on standard error.
    ///
    /// # Errors
    /// If standard error cannot be written.
    pub(super) fn report_missing(&self) -> io::Result<()> {
        let mut out = io::stderr().lock();
        lines(self.losses).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        notes::write_refused(&mut out, "traced", &self.refusals)
    }
}

impl<K: Kernel> Session<'_, K> {
    /// Traces until the end of the session. `begin` creates the listener for the shown targets, and receives the start time.
    ///
    /// # Errors
    /// If no event can be opened, the command cannot be run, or the output cannot be written.
    pub(super) fn follow<L: Listener>(
        &self,
        begin: impl FnOnce(&[OpenTarget], u64) -> Result<L, Failure>,
    ) -> Result<SessionResult<L>, Failure> {
        measure(async |signals| {
            let Self { host, subject, program, .. } = self;
            let child = program.fork()?;
            let open_targets = subject.open_targets(host.roots, child.as_ref().map(Waiting::pid))?;
            let online = &host.facts().online;
            let everybody = [OpenTarget::Cpus(online.clone())];
            let opened: &[OpenTarget] = if self.everybody { &everybody } else { &open_targets };
            let cpus = if self.everybody { online.clone() } else { subject.event_cpus(host.facts()) };
            let mut rings = Rings::open(self, opened, &cpus)?;
            let ready = Arc::new(Notify::new());
            rings.listen(&ready);
            let begun = host.clock.kernel();
            let mut listener = begin(&open_targets, begun)?;
            rings.start().map_err(|errno| anyhow::anyhow!("cannot enable the events: {errno}"))?;
            let counted = subject.ends_with(host.roots);
            let mut wait = program.start(child, counted, signals, Some(TICK), self.limit)?;
            let happened = loop {
                let happened = next(wait.next(), &ready).await;
                let until = host.clock.kernel().saturating_sub(BEHIND);
                rings.drain(until, &mut |item| listener.handle(&item));
                listener.drained(until);
                listener.flush()?;
                match happened {
                    WaitEvent::Interval if listener.is_done() => break WaitEvent::TimeUp,
                    WaitEvent::Interval => {}
                    _ => break happened,
                }
            };
            rings.stop();
            let ended = host.clock.kernel();
            rings.drain(u64::MAX, &mut |item| listener.handle(&item));
            listener.flush()?;
            let ending = wait.end(happened).await;
            let (losses, refusals) = rings.finish();
            Ok(SessionResult { listener, time: (begun, ended), ending, losses, refusals })
        })
    }
}

/// Waits for the next event of the measurement, or until rings have records to read.
///
/// Rings that fill faster than they are read are always ready. Timers and signals need a turn of the runtime nevertheless.
async fn next(event: impl Future<Output = WaitEvent>, ready: &Notify) -> WaitEvent {
    let happened = tokio::select! {
        happened = event => happened,
        () = ready.notified() => WaitEvent::Interval,
    };
    tokio::task::yield_now().await;
    happened
}

/// Returns a field that the records of a tracepoint must have.
///
/// # Errors
/// If the tracepoint of this kernel does not have the field.
pub(super) fn field(format: &Format, name: &str) -> anyhow::Result<Field> {
    let found = format.field(name).cloned();
    found.with_context(|| format!("the tracepoint {} of this kernel has no field {name}", format.name()))
}

/// Escapes the name of a thread for a terminal. Thread names are untrusted input.
pub(super) fn shown(comm: &[u8]) -> String {
    printable(&String::from_utf8_lossy(comm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::observe::Wait;
    use crate::host::{Facts, Roots};

    #[test]
    fn a_tracepoint_that_is_not_there_says_so_and_what_would_help() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let catalog = Catalog::load(&roots, &Facts::default());
        let refusal = Source::find("raw_syscalls:sys_enter", None, &catalog).unwrap_err();
        assert_eq!((&*refusal.event, refusal.cause), ("raw_syscalls:sys_enter", Cause::Absent));
        assert!(refusal.remedy.is_some(), "{refusal}");
    }

    #[test]
    fn a_time_limit_ends_a_session_in_which_rings_are_always_ready() {
        let limit = Duration::from_millis(50);
        let turns = measure(async |signals| {
            let (ready, mut wait) = (Notify::new(), Wait::new(signals, None, Vec::new(), None, Some(limit)));
            for turn in 0..1000 {
                ready.notify_one();
                if next(wait.next(), &ready).await == WaitEvent::TimeUp {
                    return Ok(Some(turn));
                }
                // Reading takes time.
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None)
        });
        let turns = turns.unwrap();
        assert!(turns.is_some_and(|turns| turns > 0), "the rings starve the timers: {turns:?}");
    }

    #[test]
    fn what_was_lost_is_said_and_nothing_else() {
        assert!(lines(Losses::default()).is_empty());
        let lines = lines(Losses { ring_full: 7, unreadable: 2, late: 1, ..Losses::default() });
        assert!(lines[0].starts_with("7 records were lost because the rings were full"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_name_cannot_talk_to_a_terminal() {
        assert_eq!(shown(b"\x1b[31mred\n\xff"), "\\u{1b}[31mred\\n\u{fffd}");
    }
}
