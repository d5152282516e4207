//! `perf-exporter trace`: the equivalent of `perf trace`. Shows system calls as they end, tracepoints, and summaries of calls.
//!
//! ```text
//! follow::Session: raw_syscalls, filtered by the kernel ─► syscall::Calls ─┬► a line for each call, with paths of descriptors
//!                                                                          └► summary: a table for each thread
//!                  other tracepoints ──────────────────────────────────────► a line for each hit
//! ```

mod args;
mod arguments;
mod classes;
mod descriptors;
mod events;
mod lines;
mod select;
mod summary;
mod words;

use std::io;

use anyhow::Context;
use rustc_hash::FxHashMap;

use super::follow::{Listener, Output, Session, Source, StreamItem, field};
use super::observe::{Ending, Failure, Host};
use crate::clock::Clock;
use crate::error::printable;
use crate::event::Catalog;
use crate::event::format::{Field, Format, Printer, Value};
use crate::register::ThreadNames;
use crate::ring::{Record, Sample};
use crate::sched::{Comm, Thread};
use crate::sys::{Fields, Kernel, Sideband};
use crate::syscall::{Abi, Call, Calls, PendingCall};
pub(super) use args::TraceArgs;
use arguments::REGISTERS;
use descriptors::{CLOSING, Descriptors};
use lines::{Lines, Shape};
use select::Selection;
use summary::Summary;

/// Maximum number of calls in flight whose arguments are stored.
const MAX: usize = 1 << 17;

const CALLS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// Traces, prints, and ends like the command.
pub(super) fn trace<K: Kernel>(args: &TraceArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let usage = |error: String| Failure::Usage(anyhow::anyhow!(error));
    let abi = Abi::here(true).context("the system call numbers of this architecture are not supported")?;
    let (calls, events) = events::divide(&args.selected).map_err(usage)?;
    // Paths of descriptors are certain only if all that closes descriptors is known.
    let also: &[&str] = if args.summary { &[] } else { &CLOSING };
    let selection = calls.map(|text| Selection::parse(&text, &[Some(abi), Abi::here(false)], also));
    let selection = selection.transpose().map_err(usage)?;
    let with_calls = selection.is_some() || events.is_empty();
    let output = Output::open("-o", args.output.as_deref())?;
    let subject = host.find(&args.follow.target())?;
    let (sources, traced) =
        sources(with_calls, &events, selection.as_ref(), subject.is_processes(), &host.catalog)?;
    let fields =
        Fields { identifier: true, tid: true, time: true, raw: true, width: true, ..Fields::default() };
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, comm: true, ..Sideband::default() },
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let followed = session.follow(|_, begun| {
        let lines = || {
            let descriptors = Descriptors::new(host.roots.proc.clone());
            Lines::new(&host.catalog, descriptors, Shape::of(args, begun, with_calls))
        };
        Ok(Tracer {
            traced,
            abi,
            selection,
            names: ThreadNames::read(host.roots),
            own: std::process::id(),
            clock: host.clock.clone(),
            calls: Calls::default(),
            under_way: FxHashMap::default(),
            lines: (!args.summary).then(lines),
            summary: (args.summary || args.with_summary).then(Summary::new),
            output,
            unreadable: 0,
        })
    });
    let mut followed = followed?;
    followed.listener.end(followed.time.1)?;
    followed.report_missing()?;
    let unreadable = followed.listener.unreadable;
    if unreadable > 0 {
        tracing::error!(records = unreadable, "cannot decode records, which is a bug in perf-exporter");
    }
    Ok(followed.ending)
}

/// Returns the tracepoints to open, and what each is.
fn sources(
    with_calls: bool,
    events: &[&str],
    selection: Option<&Selection>,
    others_only: bool,
    catalog: &Catalog,
) -> Result<(Vec<Source>, Vec<Traced>), Failure> {
    let (mut sources, mut traced) = (Vec::new(), Vec::new());
    if with_calls {
        let filter = filter(selection, others_only);
        sources = Source::find_all(&CALLS, filter.as_deref(), catalog)?;
        let [enter, exit] =
            [0, 1].map(|at: usize| sources.get(at).map(|source| CallFields::of(&source.format)));
        traced.extend(enter.transpose()?.map(Traced::Enter));
        traced.extend(exit.transpose()?.map(Traced::Exit));
    }
    let filter = filter(None, others_only);
    for (source, printer) in events::find(events, filter.as_deref(), catalog)? {
        traced.push(Traced::Event { name: source.event.name.to_string(), printer });
        sources.push(source);
    }
    Ok((sources, traced))
}

/// Returns the filter for the kernel. It excludes this process, which would otherwise trace its own output endlessly. Records of its other
/// threads are dropped when they are read.
fn filter(selection: Option<&Selection>, others_only: bool) -> Option<String> {
    let own = (!others_only).then(|| format!("common_pid != {}", std::process::id()));
    match (selection.and_then(Selection::filter), own) {
        (Some(calls), Some(own)) => Some(format!("({calls}) && {own}")),
        (calls, own) => calls.or(own),
    }
}

/// Fields in the records of one of the two events.
#[derive(Debug)]
struct CallFields {
    number: Field,
    /// The arguments, or the result.
    payload: Field,
}

impl CallFields {
    fn of(format: &Format) -> anyhow::Result<Self> {
        let payload = if format.name() == "sys_enter" { "args" } else { "ret" };
        Ok(Self { number: field(format, "id")?, payload: field(format, payload)? })
    }
}

/// A traced tracepoint.
#[derive(Debug)]
enum Traced {
    /// The entry of a call.
    Enter(CallFields),
    /// The exit of a call.
    Exit(CallFields),
    /// Another one.
    Event { name: String, printer: Printer },
}

/// Pairs entries and exits of calls.
struct Tracer<'a> {
    traced: Vec<Traced>,
    abi: Abi,
    selection: Option<Selection>,
    names: ThreadNames,
    own: u32,
    clock: Clock,
    calls: Calls,
    /// Calls in flight with their arguments, by thread.
    under_way: FxHashMap<u32, (PendingCall, [u64; REGISTERS])>,
    lines: Option<Lines<'a>>,
    summary: Option<Summary>,
    output: Output,
    unreadable: u64,
}

impl Listener for Tracer<'_> {
    fn handle(&mut self, item: &StreamItem<'_>) {
        match item {
            StreamItem::Hit { sample, .. } if sample.pid == self.own => {}
            StreamItem::Hit { source, cpu, sample } => {
                if self.hit(*source, *cpu, sample).is_none() {
                    self.unreadable += 1;
                }
            }
            StreamItem::Besides { record, .. } => self.besides(record),
            StreamItem::Gap => {
                self.calls.mark_gap();
                self.under_way.clear();
                self.lines.iter_mut().for_each(Lines::lose);
            }
        }
    }

    fn drained(&mut self, until: u64) {
        let now = self.clock.kernel();
        self.lines.iter_mut().for_each(|lines| lines.settle(until, now));
    }

    fn is_done(&self) -> bool {
        self.lines.as_ref().is_some_and(Lines::is_done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), |lines| lines.flush(&mut self.output))
    }
}

impl Tracer<'_> {
    fn hit(&mut self, source: usize, cpu: u32, sample: &Sample<'_>) -> Option<()> {
        let comm = self.names.get(sample.tid).map(Comm::new).unwrap_or_default();
        let thread = Thread { tid: sample.tid, pid: sample.pid, comm, ..Thread::default() };
        let (fields, is_entry) = match self.traced.get(source)? {
            Traced::Enter(fields) => (fields, true),
            Traced::Exit(fields) => (fields, false),
            Traced::Event { name, printer } => {
                let said = printer.print(sample.raw, &mut |_| None);
                let text = format!("{name}({})", printable(&said));
                self.lines.iter_mut().for_each(|lines| lines.event(thread, sample.time, text.clone()));
                return Some(());
            }
        };
        // A negative number is not a valid call: a program used -1, or a signal handler returned.
        let number = u32::try_from(fields.number.number(sample.raw)?).unwrap_or(u32::MAX);
        // On some architectures, 32-bit programs use different call numbers.
        let abi = Abi::here(!sample.narrow).unwrap_or(self.abi);
        let call = Call { abi, number };
        if self.selection.as_ref().is_some_and(|selection| !selection.records(call)) {
            return Some(());
        }
        if is_entry {
            let Value::Bytes(bytes) = fields.payload.value(sample.raw)? else { return None };
            let words = bytes.as_chunks::<{ size_of::<u64>() }>().0;
            let mut registers = [0; REGISTERS];
            for (register, word) in registers.iter_mut().zip(words) {
                *register = u64::from_ne_bytes(*word);
            }
            self.begin(PendingCall { thread, call, time: sample.time, cpu }, registers);
        } else {
            let result = fields.payload.number(sample.raw)? as i64;
            self.ended(thread, call, sample.time, result);
        }
        Some(())
    }

    /// Reports whether a call is shown. Others are recorded for what they do to descriptors.
    fn takes(&self, call: Call) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.takes(call))
    }

    fn begin(&mut self, begun: PendingCall, registers: [u64; REGISTERS]) {
        let tid = begun.thread.tid;
        if self.takes(begun.call) {
            self.summary.iter_mut().for_each(|summary| summary.event(&begun.thread));
        }
        self.calls.begin(begun);
        if self.under_way.len() < MAX || self.under_way.contains_key(&tid) {
            self.under_way.insert(tid, (begun, registers));
        }
    }

    fn ended(&mut self, thread: Thread, call: Call, time: u64, result: i64) {
        let takes = self.takes(call);
        if takes {
            self.summary.iter_mut().for_each(|summary| summary.event(&thread));
        }
        let registers = self.under_way.remove(&thread.tid).map(|(_, registers)| registers);
        let Some(ended) = self.calls.end(thread.tid, call.number, time, result) else { return };
        if takes {
            self.summary.iter_mut().for_each(|summary| summary.add(&ended));
            self.lines.iter_mut().for_each(|lines| lines.ended(&ended, registers.as_ref()));
        }
        self.lines.iter_mut().for_each(|lines| lines.apply(&ended, registers.as_ref()));
    }

    fn besides(&mut self, record: &Record<'_>) {
        self.names.apply_record(record);
        let Record::Exit(task) = record else { return };
        let under_way = self.under_way.remove(&task.tid).filter(|(begun, _)| self.takes(begun.call));
        if let Some(lines) = &mut self.lines {
            if let Some((begun, registers)) = under_way {
                lines.unended(&begun, task.time, Some(&registers));
            }
            if task.tid == task.pid {
                lines.forget(task.pid);
            }
        }
        self.calls.forget(task.tid);
        self.summary.iter_mut().for_each(|summary| summary.end(task.tid));
    }

    /// Writes the calls still in flight, and the summary.
    fn end(&mut self, now: u64) -> io::Result<()> {
        let mut under_way: Vec<_> = std::mem::take(&mut self.under_way).into_values().collect();
        under_way.retain(|(begun, _)| self.takes(begun.call));
        if let Some(lines) = &mut self.lines {
            under_way.sort_unstable_by_key(|(begun, _)| (begun.time, begun.thread.tid));
            under_way.iter().for_each(|(begun, registers)| lines.unended(begun, now, Some(registers)));
            lines.finish(now);
            lines.flush(&mut self.output)?;
        }
        let Some(summary) = self.summary.take() else { return Ok(()) };
        self.output.put(&summary.text())
    }
}
