//! Records of a few tracepoints, in the order of their times, for somebody at a shell: what `sched` and `trace` share.
//!
//! ```text
//! Source: a tracepoint and its format ─┐
//! observe::Subject (whom) ─────────────┴► Rings: opened on each CPU, merged ─► Listener: a line, a table, a file
//! ```

mod rings;
mod rows;
mod spread;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Notify;

use super::observe::{Ending, Failure, Happened, Host, Program, Subject, measure, notes};
use crate::config::profiled::one_event;
use crate::error::printable;
use crate::event::format::{Field, Format};
use crate::event::{Catalog, Event};
use crate::health::{Cause, Judgement, Refusal};
use crate::plan;
use crate::ring::{Losses, Record, Sample};
use crate::sys::spawn::Waiting;
use crate::sys::{Fields, Kernel, Sideband};
use crate::target::Whom;
use rings::Rings;
pub(super) use rows::{Merge, Row, Rows};
pub(super) use spread::{Spread, milliseconds};

/// How often rings are read that did not wake the reader up.
const TICK: Duration = Duration::from_millis(100);

/// How far behind records are told: on one CPU a record may still be written when a younger one of another is read.
const BEHIND: u64 = 5_000_000;

/// A tracepoint whose records are followed.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) event: Event,
    pub(super) format: Format,
}

impl Source {
    /// The tracepoint of this name on this host. A `filter` is in the kernel's language.
    ///
    /// # Errors
    /// Why there is none, or why it cannot be looked into.
    fn find(name: &str, filter: Option<&str>, catalog: &Catalog) -> Result<Self, Refusal> {
        let broken = |reason: String| {
            let judgement = Judgement { cause: Cause::Broken, reason, remedy: None };
            judgement.refusal(&name.into(), "this host", None)
        };
        let written = one_event(name).map_err(|error| broken(error.to_string()))?;
        let found = catalog.resolve(&written).map_err(|unresolved| plan::refusal(&written, &unresolved))?;
        let event = found.into_iter().next().ok_or_else(|| broken("it stands for nothing".into()))?;
        let format = name.split_once(':').map(|(system, event)| catalog.format(system, event));
        let format = format.ok_or_else(|| broken("it is no tracepoint".into()))?;
        let format = format.map_err(|error| broken(error.to_string()))?;
        Ok(Self { event: Event { filter: filter.map(Arc::from), ..event }, format })
    }

    /// The tracepoints of all these names: without any of them the rest would tell something else than it seems to.
    ///
    /// # Errors
    /// Why some of them cannot be had.
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

/// What is heard, in the order of its times.
#[derive(Debug)]
pub(super) enum Heard<'r> {
    /// A tracepoint was passed: which of the sources, on which CPU.
    Hit { source: usize, cpu: u32, sample: Sample<'r> },
    /// Something that the kernel tells besides.
    Besides { cpu: u32, time: u64, record: Record<'r> },
    /// Records are missing: what was under way is not known any more.
    Gap,
}

/// Whoever makes something of it.
pub(super) trait Listener {
    /// Takes in one of them. What there is to write is kept until [`flush`](Self::flush).
    fn hear(&mut self, heard: &Heard<'_>);

    /// Writes what has come of those before, if that is not left for the end.
    ///
    /// # Errors
    /// When it cannot be written.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What to say of records that were lost; nothing if there are none.
fn lines(losses: Losses) -> Vec<String> {
    let Losses { ring_full, unreadable, late, .. } = losses;
    let full = "were lost for want of room in their rings: what was under way then is left out; look at fewer, or give \
         the program more CPU time";
    let bug = "were not what they should be, which is a bug";
    let lines = [(ring_full, full), (unreadable, bug), (late, "came too late to be put in order")];
    let some = lines.into_iter().filter(|(records, _)| *records > 0);
    some.map(|(records, what)| format!("{records} records {what}")).collect()
}

/// What is followed, of whom, and for how long.
#[derive(Debug)]
pub(super) struct Session<'a, K> {
    pub(super) host: &'a Host<'a, K>,
    pub(super) sources: &'a [Source],
    pub(super) fields: Fields,
    pub(super) sideband: Sideband,
    pub(super) subject: &'a Subject,
    /// Whether events are opened for all that runs, whoever is shown: who waits for a CPU is told by others.
    pub(super) everybody: bool,
    pub(super) program: Program<'a>,
    pub(super) limit: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Followed<L> {
    pub(super) listener: L,
    /// When it began and ended, in nanoseconds of the clock of the records.
    pub(super) time: (u64, u64),
    pub(super) ending: Ending,
    losses: Losses,
    refusals: Vec<Refusal>,
}

impl<L> Followed<L> {
    /// Says on standard error what is missing.
    ///
    /// # Errors
    /// When nobody is there to be told.
    pub(super) fn tell_what_is_missing(&self) -> io::Result<()> {
        let mut out = io::stderr().lock();
        lines(self.losses).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        notes::write_refused(&mut out, "followed", &self.refusals)
    }
}

impl<K: Kernel> Session<'_, K> {
    /// Follows until it ends. `begin` makes a listener for those that are to be shown, and is given the time.
    ///
    /// # Errors
    /// When nothing can be followed, the command cannot be run, or what comes of it cannot be written.
    pub(super) fn follow<L: Listener>(
        &self,
        begin: impl FnOnce(&[Whom], u64) -> Result<L, Failure>,
    ) -> Result<Followed<L>, Failure> {
        measure(async |signals| {
            let Self { host, subject, program, .. } = self;
            let child = program.fork()?;
            let whom = subject.whom(host.roots, child.as_ref().map(Waiting::pid))?;
            let online = &host.facts().online;
            let everybody = [Whom::Cpus(online.clone())];
            let opened: &[Whom] = if self.everybody { &everybody } else { &whom };
            let cpus = if self.everybody { online.clone() } else { subject.where_it_runs(host.facts()) };
            let mut rings = Rings::open(self, opened, &cpus)?;
            let ready = Arc::new(Notify::new());
            rings.listen(&ready);
            let begun = host.clock.kernel();
            let mut listener = begin(&whom, begun)?;
            rings.start().map_err(|errno| anyhow::anyhow!("the events do not start: {errno}"))?;
            let counted = subject.ends_with(host.roots);
            let mut wait = program.start(child, counted, signals, Some(TICK), self.limit)?;
            let happened = loop {
                let happened = tokio::select! {
                    happened = wait.next() => happened,
                    () = ready.notified() => Happened::Interval,
                };
                rings.drain(host.clock.kernel().saturating_sub(BEHIND), &mut |heard| listener.hear(&heard));
                listener.flush()?;
                if happened != Happened::Interval {
                    break happened;
                }
            };
            rings.stop();
            let ended = host.clock.kernel();
            rings.drain(u64::MAX, &mut |heard| listener.hear(&heard));
            listener.flush()?;
            let ending = wait.end(happened).await;
            let (losses, refusals) = rings.finish();
            Ok(Followed { listener, time: (begun, ended), ending, losses, refusals })
        })
    }
}

/// A field that the records of a tracepoint must have.
///
/// # Errors
/// When this kernel's have none.
pub(super) fn field(format: &Format, name: &str) -> anyhow::Result<Field> {
    let found = format.field(name).cloned();
    found.with_context(|| format!("this kernel's {} has no field {name}", format.name()))
}

/// The name of a thread as a terminal may see it: anybody may have chosen it.
pub(super) fn shown(comm: &[u8]) -> String {
    printable(&String::from_utf8_lossy(comm))
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn what_was_lost_is_said_and_nothing_else() {
        assert!(lines(Losses::default()).is_empty());
        let lines = lines(Losses { ring_full: 7, unreadable: 2, late: 1, ..Losses::default() });
        assert!(lines[0].starts_with("7 records were lost for want of room"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_name_cannot_talk_to_a_terminal() {
        assert_eq!(shown(b"\x1b[31mred\n\xff"), "\\u{1b}[31mred\\n\u{fffd}");
    }
}
