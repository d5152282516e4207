//! `perf-exporter trace`: the equivalent of `perf trace`. Shows system calls as they end, and summaries of them.
//!
//! ```text
//! follow::Session: raw_syscalls, filtered by the kernel ─► syscall::Calls ─┬► a line for each call
//!                                                                          └► summary: a table for each thread
//! ```

mod args;
mod arguments;
mod lines;
mod select;
mod summary;
mod words;

use std::io;

use anyhow::Context;
use rustc_hash::FxHashMap;

use super::follow::{Listener, Session, Source, StreamItem, field};
use super::observe::{Ending, Failure, Host, Program};
use super::put;
use crate::event::format::{Field, Format, Value};
use crate::register::ThreadNames;
use crate::ring::{Record, Sample};
use crate::sched::{Comm, Thread};
use crate::sys::{Fields, Kernel, Sideband};
use crate::syscall::{Abi, Call, Calls, PendingCall};
pub(super) use args::TraceArgs;
use arguments::REGISTERS;
use lines::Lines;
use select::Selection;
use summary::Summary;

/// Maximum number of calls in flight whose arguments are stored.
const MAX: usize = 1 << 17;

/// Index of the event `sys_enter` among the sources.
const ENTER: usize = 0;
const EVENTS: [&str; 2] = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];

/// Traces, prints, and ends like the command.
pub(super) fn trace<K: Kernel>(args: &TraceArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let abi = Abi::here(true).context("the system call numbers of this architecture are not supported")?;
    let selection =
        args.calls.as_deref().map(|text| Selection::parse(text, &[Some(abi), Abi::here(false)])).transpose();
    let selection = selection.map_err(|error| Failure::Usage(anyhow::anyhow!(error)))?;
    let subject = host.find(&args.target_args.target(&args.command))?;
    let filter = filter(selection.as_ref(), subject.is_processes());
    let sources = Source::find_all(&EVENTS, filter.as_deref(), &host.catalog)?;
    let call_fields =
        sources.iter().map(|source| CallFields::of(&source.format)).collect::<anyhow::Result<_>>()?;
    let fields =
        Fields { identifier: true, tid: true, time: true, raw: true, width: true, ..Fields::default() };
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, comm: true, ..Sideband::default() },
        subject: &subject,
        everybody: false,
        program: Program::new(&args.command),
        limit: args.limit,
    };
    let followed = session.follow(|_, begun| {
        Ok(Tracer {
            call_fields,
            abi,
            selection,
            names: ThreadNames::read(host.roots),
            own: std::process::id(),
            calls: Calls::default(),
            under_way: FxHashMap::default(),
            lines: (!args.summary).then(|| Lines::new(&host.catalog, begun, args.duration, args.failure)),
            summary: (args.summary || args.with_summary).then(Summary::new),
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

/// Pairs entries and exits of calls.
struct Tracer<'a> {
    call_fields: Vec<CallFields>,
    abi: Abi,
    selection: Option<Selection>,
    names: ThreadNames,
    own: u32,
    calls: Calls,
    /// Calls in flight with their arguments, by thread.
    under_way: FxHashMap<u32, (PendingCall, [u64; REGISTERS])>,
    lines: Option<Lines<'a>>,
    summary: Option<Summary>,
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
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.as_mut().map_or(Ok(()), Lines::flush)
    }
}

impl Tracer<'_> {
    fn hit(&mut self, source: usize, cpu: u32, sample: &Sample<'_>) -> Option<()> {
        let fields = self.call_fields.get(source)?;
        // A negative number is not a valid call: a program used -1, or a signal handler returned.
        let number = u32::try_from(fields.number.number(sample.raw)?).unwrap_or(u32::MAX);
        // On some architectures, 32-bit programs use different call numbers.
        let abi = Abi::here(!sample.narrow).unwrap_or(self.abi);
        let call = Call { abi, number };
        if self.selection.as_ref().is_some_and(|selection| !selection.takes(call)) {
            return Some(());
        }
        let comm = self.names.get(sample.tid).map(Comm::new).unwrap_or_default();
        let thread = Thread { tid: sample.tid, pid: sample.pid, comm, ..Thread::default() };
        if source == ENTER {
            let Value::Bytes(bytes) = fields.payload.value(sample.raw)? else { return None };
            let words = bytes.as_chunks::<{ size_of::<u64>() }>().0;
            let mut registers = [0; REGISTERS];
            for (register, word) in registers.iter_mut().zip(words) {
                *register = u64::from_ne_bytes(*word);
            }
            self.begin(PendingCall { thread, call, time: sample.time, cpu }, registers);
        } else {
            let result = fields.payload.number(sample.raw)? as i64;
            self.ended(thread, number, sample.time, result);
        }
        Some(())
    }

    fn begin(&mut self, begun: PendingCall, registers: [u64; REGISTERS]) {
        let tid = begun.thread.tid;
        self.summary.iter_mut().for_each(|summary| summary.event(&begun.thread));
        self.calls.begin(begun);
        if self.under_way.len() < MAX || self.under_way.contains_key(&tid) {
            self.under_way.insert(tid, (begun, registers));
        }
    }

    fn ended(&mut self, thread: Thread, number: u32, time: u64, result: i64) {
        self.summary.iter_mut().for_each(|summary| summary.event(&thread));
        let registers = self.under_way.remove(&thread.tid).map(|(_, registers)| registers);
        let Some(ended) = self.calls.end(thread.tid, number, time, result) else { return };
        self.summary.iter_mut().for_each(|summary| summary.add(&ended));
        self.lines.iter_mut().for_each(|lines| lines.ended(&ended, registers.as_ref()));
    }

    fn besides(&mut self, record: &Record<'_>) {
        self.names.apply_record(record);
        let Record::Exit(task) = record else { return };
        if let (Some((begun, registers)), Some(lines)) = (self.under_way.remove(&task.tid), &mut self.lines) {
            lines.unended(&begun, task.time, Some(&registers));
        }
        self.calls.forget(task.tid);
        self.summary.iter_mut().for_each(|summary| summary.end(task.tid));
    }

    /// Writes the calls still in flight, and the summary.
    fn end(&mut self, now: u64) -> io::Result<()> {
        if let Some(lines) = &mut self.lines {
            let mut under_way: Vec<_> = self.under_way.values().collect();
            under_way.sort_unstable_by_key(|(begun, _)| (begun.time, begun.thread.tid));
            under_way.iter().for_each(|(begun, registers)| lines.unended(begun, now, Some(registers)));
            lines.flush()?;
        }
        let Some(summary) = self.summary.take() else { return Ok(()) };
        put(summary.text())
    }
}
