//! `perf-exporter trace`: the equivalent of `perf trace`. Shows system calls as they end, tracepoints, and summaries of calls.
//!
//! ```text
//! follow::Session: raw_syscalls, filtered by the kernel ─► syscall::Calls ─┬► a line for each call, with paths of descriptors
//!                                                                          └► summary: a table for each thread
//!                  other tracepoints, page faults ─────────────────────────► a line for each hit
//!                  follow::CallChains ─────────────────────────────────────► call chains below each line
//! ```

mod args;
mod arguments;
mod classes;
mod descriptors;
mod events;
mod faults;
mod lines;
mod select;
mod summary;
mod words;

use std::io;

use anyhow::Context;
use rustc_hash::FxHashMap;

use super::follow::{CallChains, Listener, Output, OwnProcesses, Session, Source, StreamItem, field};
use super::observe::{Ending, Failure, Host};
use crate::clock::Clock;
use crate::config::profiled::Unwind;
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
use faults::Faults;
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
    let with_faults = args.faults.is_some();
    let with_calls = !args.no_syscalls && (selection.is_some() || events.is_empty());
    if !with_calls && !with_faults && events.is_empty() {
        let reason = "--no-syscalls: select page faults with -F, or tracepoints with -e";
        return Err(usage(reason.into()));
    }
    let output = Output::open("-o", args.output.as_deref())?;
    let subject = host.find(&args.follow.target())?;
    let unwind = args.unwind().filter(|_| !args.summary);
    let ip = unwind.is_some() || with_faults;
    let fields =
        Fields { identifier: true, ip, tid: true, time: true, raw: true, width: true, ..Fields::default() };
    let (sources, traced) = Wanted {
        with_calls,
        events: &events,
        faults: args.faults.map_or(&[], args::Faults::events),
        selection: selection.as_ref(),
        others_only: subject.is_processes(),
        chains: unwind.map(|unwind| CallChains::fields(unwind, fields)),
        fields,
    }
    .find(&host.catalog)?;
    let mmap = Sideband { mmap: ip, mmap_data: with_faults, ..Sideband::default() };
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, comm: true, ..mmap },
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let followed = session.follow(|_, begun| {
        let lines = || {
            let descriptors = Descriptors::new(host.roots.proc.clone());
            Lines::new(&host.catalog, descriptors, Shape::of(args, begun, with_calls || with_faults))
        };
        let chains =
            || CallChains::new(unwind.unwrap_or(Unwind::Nothing), args.depth(), host.roots, &host.clock);
        Ok(Tracer {
            traced,
            abi,
            selection,
            names: ThreadNames::read(host.roots),
            own: OwnProcesses::new(std::process::id()),
            clock: host.clock.clone(),
            calls: Calls::default(),
            under_way: FxHashMap::default(),
            lines: (!args.summary).then(lines),
            chains: (ip && !args.summary).then(chains),
            faults: with_faults.then(|| Faults::new(crate::cli::files(host.roots))),
            unwinds: unwind.is_some(),
            kernel: args.kernel_syscall_graph,
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

/// What is traced.
struct Wanted<'a> {
    with_calls: bool,
    /// Names and patterns of tracepoints.
    events: &'a [&'a str],
    /// Events that count page faults, and whether each counts major ones.
    faults: &'a [(&'a str, bool)],
    selection: Option<&'a Selection>,
    /// Whether only processes other than this one are traced.
    others_only: bool,
    /// Fields of records, and of those with call chains.
    fields: Fields,
    chains: Option<Fields>,
}

impl Wanted<'_> {
    /// Returns the events to open, and what each is.
    fn find(&self, catalog: &Catalog) -> Result<(Vec<Source>, Vec<Traced>), Failure> {
        let (mut sources, mut traced) = (Vec::new(), Vec::new());
        if self.with_calls {
            let filter = filter(self.selection, self.others_only);
            sources = Source::find_all(&CALLS, filter.as_deref(), catalog)?;
            let [enter, exit] =
                [0, 1].map(|at: usize| sources.get(at).map(|source| CallFields::of(&source.format)));
            traced.extend(enter.transpose()?.map(Traced::Enter));
            traced.extend(exit.transpose()?.map(Traced::Exit));
            // As in perf, a call chain is that of the end of a call.
            sources.last_mut().into_iter().for_each(|exit| exit.fields = self.chains);
        }
        let filter = filter(None, self.others_only);
        for (source, printer) in events::find(self.events, filter.as_deref(), catalog)? {
            traced.push(Traced::Event { name: source.event.name.to_string(), printer });
            sources.push(Source { fields: self.chains, ..source });
        }
        for &(name, major) in self.faults {
            let fields = self.chains.unwrap_or(self.fields);
            let fields = Some(Fields { address: true, raw: false, width: false, ..fields });
            traced.push(Traced::Fault { major });
            sources.push(Source { fields, ..Source::software(name, catalog)? });
        }
        Ok((sources, traced))
    }
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

/// A traced event.
#[derive(Debug)]
enum Traced {
    /// The entry of a call.
    Enter(CallFields),
    /// The exit of a call.
    Exit(CallFields),
    /// Another one.
    Event { name: String, printer: Printer },
    /// A page fault, which is not a tracepoint.
    Fault { major: bool },
}

/// Pairs entries and exits of calls.
struct Tracer<'a> {
    traced: Vec<Traced>,
    abi: Abi,
    selection: Option<Selection>,
    names: ThreadNames,
    own: OwnProcesses,
    clock: Clock,
    calls: Calls,
    /// Calls in flight with their arguments, by thread.
    under_way: FxHashMap<u32, (PendingCall, [u64; REGISTERS])>,
    lines: Option<Lines<'a>>,
    /// Functions of instructions and call chains, if lines have them.
    chains: Option<CallChains>,
    faults: Option<Faults>,
    /// Whether lines have call chains.
    unwinds: bool,
    /// Whether call chains of calls include functions of the kernel.
    kernel: bool,
    summary: Option<Summary>,
    output: Output,
    unreadable: u64,
}

impl Listener for Tracer<'_> {
    fn handle(&mut self, item: &StreamItem<'_>) {
        match item {
            StreamItem::Hit { sample, .. } if self.own.contains(sample.pid) => {}
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
                self.chains.iter_mut().for_each(CallChains::records_lost);
                self.faults.iter_mut().for_each(Faults::lose);
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
                self.event(thread, sample, None, text);
                return Some(());
            }
            Traced::Fault { major } => {
                let major = *major;
                self.fault(thread, sample, major);
                return Some(());
            }
        };
        // A negative number is not a valid call: a program used -1, or a signal handler returned.
        let number = u32::try_from(fields.number.number(sample.raw)?).unwrap_or(u32::MAX);
        // On some architectures, 32-bit programs use different call numbers. Records with copies of stacks do not have the width.
        let begun = self.under_way.get(&sample.tid).filter(|_| !is_entry && self.unwinds);
        let abi = begun.map(|(begun, _)| begun.call.abi).or_else(|| Abi::here(!sample.narrow));
        let abi = abi.unwrap_or(self.abi);
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
            self.ended(thread, call, sample, result);
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

    /// Returns the lines of the call chain of a record.
    fn chain(&mut self, sample: &Sample<'_>, kernel: bool) -> String {
        let chains = self.chains.as_mut().filter(|_| self.unwinds);
        chains.map_or_else(String::new, |chains| chains.text(sample, kernel))
    }

    fn event(&mut self, thread: Thread, sample: &Sample<'_>, took: Option<u64>, text: String) {
        let chain = self.chain(sample, true);
        let Some(lines) = &mut self.lines else { return };
        lines.event((thread, sample.time), took, (text, chain));
    }

    fn fault(&mut self, thread: Thread, sample: &Sample<'_>, major: bool) {
        self.summary.iter_mut().for_each(|summary| summary.fault(&thread, major));
        let Some((faults, chains)) = self.faults.as_mut().zip(self.chains.as_mut()) else { return };
        let text = faults.text(sample, major, chains);
        self.event(thread, sample, Some(0), text);
    }

    fn ended(&mut self, thread: Thread, call: Call, sample: &Sample<'_>, result: i64) {
        let takes = self.takes(call);
        if takes {
            self.summary.iter_mut().for_each(|summary| summary.event(&thread));
        }
        let registers = self.under_way.remove(&thread.tid).map(|(_, registers)| registers);
        let Some(ended) = self.calls.end(thread.tid, call.number, sample.time, result) else { return };
        if takes {
            self.summary.iter_mut().for_each(|summary| summary.add(&ended));
            if self.lines.as_ref().is_some_and(|lines| lines.shows(&ended)) {
                let chain = self.chain(sample, self.kernel);
                self.lines
                    .iter_mut()
                    .for_each(|lines| lines.ended(&ended, registers.as_ref(), chain.clone()));
            }
        }
        self.lines.iter_mut().for_each(|lines| lines.apply(&ended, registers.as_ref()));
    }

    fn besides(&mut self, record: &Record<'_>) {
        self.names.apply_record(record);
        self.own.apply_record(record);
        self.chains.iter_mut().for_each(|chains| chains.apply_record(record));
        self.faults.iter_mut().for_each(|faults| faults.apply_record(record));
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
