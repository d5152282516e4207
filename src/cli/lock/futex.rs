//! `perf-exporter lock futex`: waits for locks of programs, by the function that waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::args::FutexArgs;
use super::table::{Times, table_of};
use super::waits::{MAX_ROWS, WaitSums, Waiter, Waits};
use crate::cli::follow::{
    CallChains, Listener, OwnProcesses, Session, Source, Spread, StackFrame, StreamItem, field, shown,
};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::config::profiled::Unwind;
use crate::event::Catalog;
use crate::event::format::Field;
use crate::register::ThreadNames;
use crate::ring::{Record, Sample};
use crate::sys::{Fields, Kernel, Sideband};

/// The bits of the operation of `futex` that select what it does (`FUTEX_CMD_MASK`), and the bits of its options.
const COMMAND: u64 = 127;
const OPTIONS: [u64; 4] = [0, 128, 256, 384];

/// Operations that wait: `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_LOCK_PI2`.
const WAITING: [(u64, &str); 5] =
    [(0, "wait"), (6, "lock_pi"), (9, "wait_bitset"), (11, "requeue_pi"), (13, "lock_pi")];

/// Calls that wait, with the type of the row, and whether their first argument is the address of the lock. The others are newer: they
/// exist since Linux 5.16 and 6.7.
const CALLS: [(&str, &str, bool); 3] =
    [("futex", "wait", true), ("futex_waitv", "waitv", false), ("futex_wait", "wait", true)];

const EAGAIN: i64 = -11;
const ETIMEDOUT: i64 = -110;

/// Files of the C library and of the loader, by the start of their name.
const LIBRARIES: [&str; 6] = ["libc.so", "libc-", "libc.musl", "libpthread", "ld-linux", "ld-musl"];

/// Functions of the C library in programs that are linked statically, by the start of their name.
const FUNCTIONS: [&str; 9] = [
    "__lll_",
    "lll_",
    "__futex_",
    "futex_",
    "__pthread_",
    "___pthread_",
    "pthread_",
    "__new_sem_",
    "__syscall",
];

/// Traces calls of futex, and prints the table at the end.
pub(super) fn futex<K: Kernel>(args: &FutexArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.follow.target())?;
    let unwind = Some(args.call_graph).filter(|unwind| *unwind != Unwind::Nothing && !args.lock_addr);
    let fields = Fields { identifier: true, ip: true, tid: true, time: true, raw: true, ..Fields::default() };
    let (sources, traced) = find(&host.catalog, unwind.map(|unwind| CallChains::fields(unwind, fields)))?;
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, comm: true, mmap: unwind.is_some(), ..Sideband::default() },
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let followed = session.follow(|_, _| {
        let chains = |unwind| CallChains::new(unwind, usize::MAX, host.roots, &host.clock);
        Ok(Futexes {
            view: View::of(args),
            traced,
            chains: unwind.map(chains),
            depth: args.max_stack.into(),
            names: ThreadNames::read(host.roots),
            own: OwnProcesses::new(std::process::id()),
            comms: BTreeMap::new(),
            waits: Waits::default(),
            unreadable: 0,
        })
    })?;
    followed.report_missing()?;
    put(followed.listener.finish(args))?;
    Ok(followed.ending)
}

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Callers,
    Stacks,
    Locks,
}

impl View {
    fn of(args: &FutexArgs) -> Self {
        match (args.lock_addr, args.verbose) {
            (true, _) => Self::Locks,
            (false, true) => Self::Stacks,
            (false, false) => Self::Callers,
        }
    }

    /// Returns the titles of the columns after the times.
    fn titles(self) -> &'static str {
        match self {
            Self::Callers | Self::Stacks => "  timeout   failed    again          type   caller",
            Self::Locks => "  timeout   failed    again          type              address   process",
        }
    }
}

/// Fields in the records of one of the events.
#[derive(Debug)]
enum Traced {
    Enter {
        kind: &'static str,
        /// The operation, if it decides whether the call waits.
        operation: Option<Field>,
        address: Option<Field>,
    },
    Exit {
        result: Field,
    },
}

/// Finds the events of the calls that this kernel has. Begins of waits have the fields `chains`.
fn find(catalog: &Catalog, chains: Option<Fields>) -> Result<(Vec<Source>, Vec<Traced>), Failure> {
    let (mut sources, mut traced) = (Vec::new(), Vec::new());
    for (call, kind, has_address) in CALLS {
        let (enter, exit) = (format!("sys_enter_{call}"), format!("sys_exit_{call}"));
        let is_first = call == "futex";
        if !is_first && catalog.format("syscalls", &enter).is_err() {
            continue;
        }
        let filter = is_first.then(filter);
        for (name, is_enter, filter) in [(enter, true, filter.as_deref()), (exit, false, None)] {
            for source in Source::find_all(&[&format!("syscalls:{name}")], filter, catalog)? {
                let format = &source.format;
                traced.push(if is_enter {
                    let operation = is_first.then(|| field(format, "op")).transpose()?;
                    let address = has_address.then(|| field(format, "uaddr")).transpose()?;
                    Traced::Enter { kind, operation, address }
                } else {
                    Traced::Exit { result: field(format, "ret")? }
                });
                sources.push(Source { fields: chains.filter(|_| is_enter), ..source });
            }
        }
    }
    Ok((sources, traced))
}

/// Returns the filter for operations that wait. The filters of the kernel have no masks.
fn filter() -> String {
    let operations = WAITING.iter().flat_map(|(command, _)| OPTIONS.map(|options| command | options));
    operations.map(|operation| format!("op == {operation}")).collect::<Vec<_>>().join(" || ")
}

/// Key of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Row {
    place: Place,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// The function that waits, with its file; `None` if the call chain does not contain it.
    Caller(Option<Arc<str>>),
    /// The same with the functions of the call chain, innermost first.
    Stack(Option<Arc<str>>, Arc<[String]>),
    /// A lock in the address space of a process; `None` for a call with several locks.
    Lock { pid: u32, address: Option<u64> },
}

/// Sums of a row.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct FutexSum {
    /// Durations of the calls that slept.
    times: Spread,
    timeouts: u64,
    failed: u64,
    /// Number of calls that did not sleep.
    again: u64,
}

impl FutexSum {
    fn add(&mut self, time: u64, result: i64) {
        if result == EAGAIN {
            self.again += 1;
            return;
        }
        self.times.add(time);
        self.timeouts += u64::from(result == ETIMEDOUT);
        self.failed += u64::from(result < 0 && result != ETIMEDOUT);
    }
}

impl Times for FutexSum {
    fn times(&self) -> &Spread {
        &self.times
    }
}

/// Pairs begins and ends of calls.
struct Futexes {
    view: View,
    traced: Vec<Traced>,
    chains: Option<CallChains>,
    /// Maximum number of functions of a call chain that are shown.
    depth: usize,
    names: ThreadNames,
    own: OwnProcesses,
    /// Names of processes that waited. A process may have ended before the table is printed.
    comms: BTreeMap<u32, String>,
    waits: Waits<Row, FutexSum>,
    unreadable: u64,
}

impl Listener for Futexes {
    fn handle(&mut self, item: &StreamItem<'_>) {
        match item {
            StreamItem::Hit { sample, .. } if self.own.contains(sample.pid) => {}
            StreamItem::Hit { source, cpu, sample } => {
                if self.hit(*source, *cpu, sample).is_none() {
                    self.unreadable += 1;
                }
            }
            StreamItem::Besides { record, cpu, .. } => {
                self.names.apply_record(record);
                self.own.apply_record(record);
                self.chains.iter_mut().for_each(|chains| chains.apply_record(record));
                if let Record::Exit(task) = record {
                    self.waits.forget(Waiter::new(task.tid, *cpu), 0);
                }
            }
            StreamItem::Gap => {
                self.waits.mark_gap();
                self.chains.iter_mut().for_each(CallChains::records_lost);
            }
        }
    }
}

impl Futexes {
    fn hit(&mut self, source: usize, cpu: u32, sample: &Sample<'_>) -> Option<()> {
        // A thread is in one call at a time.
        let waiter = Waiter::new(sample.tid, cpu);
        let Self { view, traced, chains, depth, names, comms, waits, .. } = self;
        let (kind, operation, address) = match traced.get(source)? {
            Traced::Exit { result } => {
                let result = result.number(sample.raw)?.cast_signed();
                waits.end(waiter, 0, sample.time, |sum, time| sum.add(time, result));
                return Some(());
            }
            Traced::Enter { kind, operation, address } => (*kind, operation.as_ref(), address.as_ref()),
        };
        let kind = match operation {
            Some(operation) => {
                let command = operation.number(sample.raw)? & COMMAND;
                WAITING.iter().find(|(waiting, _)| *waiting == command)?.1
            }
            None => kind,
        };
        let address = address.map(|address| address.number(sample.raw));
        waits.begin(waiter, 0, sample.time, || {
            let frames = chains.as_mut().map(|chains| chains.frames(sample, false)).unwrap_or_default();
            let place = match view {
                View::Callers => Place::Caller(caller(&frames)),
                View::Stacks => {
                    let shown = frames.iter().take(*depth);
                    Place::Stack(caller(&frames), shown.map(callsite).collect())
                }
                View::Locks => {
                    if comms.len() < MAX_ROWS
                        && let Some(comm) = names.get(sample.pid)
                    {
                        comms.insert(sample.pid, shown(comm));
                    }
                    Place::Lock { pid: sample.pid, address: address.flatten() }
                }
            };
            Row { place, kind }
        });
        Some(())
    }

    /// Returns the table. Prints what is missing in it to standard error.
    fn finish(self, args: &FutexArgs) -> String {
        let Self { view, comms, waits, unreadable, .. } = self;
        let sums = waits.finish();
        sums.note_missing(unreadable);
        let WaitSums { rows, others, .. } = sums;
        table_of(view.titles(), rows, others.as_ref(), args.rows.order(), |text, row, sum| {
            let FutexSum { timeouts, failed, again, .. } = sum;
            text.push_str(&format!(" {timeouts:>8} {failed:>8} {again:>8}"));
            match row {
                Some(row) => write_row(text, row, &comms),
                None => text.push_str("   (others)\n"),
            }
        })
    }
}

/// Returns the first function outside of the C library, with its file.
fn caller(frames: &[StackFrame]) -> Option<Arc<str>> {
    let is_caller = |frame: &&StackFrame| {
        let file = frame.file.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let name = frame.name.as_deref().unwrap_or_default();
        !LIBRARIES.iter().any(|library| file.starts_with(library))
            && !FUNCTIONS.iter().any(|function| name.starts_with(function))
    };
    frames.iter().find(is_caller).map(|frame| callsite(frame).into())
}

/// Returns a function with the distance of the instruction, and the name of its file.
fn callsite(frame: &StackFrame) -> String {
    let file = frame.file.as_deref().unwrap_or("[unknown]");
    format!("{} ({})", frame.location(), file.rsplit('/').next().unwrap_or(file))
}

fn write_row(text: &mut String, Row { place, kind }: &Row, comms: &BTreeMap<u32, String>) {
    let named =
        |caller: &Option<Arc<str>>| format!("  {kind:>12}   {}\n", caller.as_deref().unwrap_or("unknown"));
    match place {
        Place::Caller(caller) => text.push_str(&named(caller)),
        Place::Stack(caller, functions) => {
            text.push_str(&named(caller));
            for function in functions.iter() {
                text.push_str(&format!("\t\t\t{function}\n"));
            }
        }
        Place::Lock { pid, address } => {
            let address = address.map_or_else(|| "-".into(), |address| format!("{address:#018x}"));
            let comm = comms.get(pid).map_or("?", String::as_str);
            text.push_str(&format!("  {kind:>12}   {address:>18}   {comm}/{pid}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lock::args::Key;

    fn frame(name: &str, file: &str) -> StackFrame {
        let name = Some(name).filter(|name| !name.is_empty()).map(Into::into);
        StackFrame { name, address: 0x1010, offset: Some(0x10), file: Some(file.into()), kernel: false }
    }

    #[test]
    fn the_caller_is_the_first_function_outside_of_the_c_library() {
        let (libc, program) = ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/web");
        let dynamic = [frame("__lll_lock_wait", libc), frame("", libc), frame("serve", program)];
        assert_eq!(caller(&dynamic).as_deref(), Some("serve+0x10 (web)"));
        let linked =
            [frame("__lll_lock_wait", program), frame("pthread_mutex_lock", program), frame("", program)];
        assert_eq!(caller(&linked).as_deref(), Some("0x1010 (web)"));
        assert_eq!(caller(&[frame("pthread_cond_wait", libc)]), None);
    }

    #[test]
    fn each_operation_that_waits_passes_the_filter() {
        let filter = filter();
        assert_eq!(filter.matches("op == ").count(), 20);
        // FUTEX_WAIT_PRIVATE, and FUTEX_WAIT_BITSET_PRIVATE with FUTEX_CLOCK_REALTIME.
        assert!(filter.contains("op == 128 ||") && filter.contains("op == 393 ||"), "{filter}");
        assert!(!filter.contains("op == 1 "), "a wake-up waits for nothing");
    }

    #[test]
    fn the_tables_are_as_recorded() {
        let mut slow = FutexSum::default();
        for (time, result) in [(2_000_000, 0), (50_000, ETIMEDOUT), (10_000, -512), (400, EAGAIN)] {
            slow.add(time, result);
        }
        let mut quick = FutexSum::default();
        quick.add(300, EAGAIN);
        let table = |view: View, [one, two]: [Place; 2]| {
            let rows =
                vec![(Row { place: one, kind: "wait" }, slow), (Row { place: two, kind: "lock_pi" }, quick)];
            let comms = [(7, "web".to_owned())].into();
            table_of(view.titles(), rows, None, (Key::WaitTotal, 9), |text, row, sum| {
                let FutexSum { timeouts, failed, again, .. } = sum;
                text.push_str(&format!(" {timeouts:>8} {failed:>8} {again:>8}"));
                row.into_iter().for_each(|row| write_row(text, row, &comms));
            })
        };
        let stack: Arc<[String]> =
            ["__lll_lock_wait+0x1f (libc.so.6)".into(), "serve+0x10 (web)".into()].into();
        let texts = [
            table(View::Callers, [Place::Caller(Some("serve+0x10 (web)".into())), Place::Caller(None)]),
            table(
                View::Stacks,
                [Place::Stack(Some("serve+0x10 (web)".into()), stack), Place::Stack(None, [].into())],
            ),
            table(
                View::Locks,
                [Place::Lock { pid: 7, address: Some(0x7f00_1234) }, Place::Lock { pid: 8, address: None }],
            ),
        ];
        insta::assert_snapshot!(texts.join("\n"));
    }
}
