//! `perf-exporter lock`: waits for locks of the kernel, as `perf lock contention` shows them, and for locks of programs.
//!
//! ```text
//! follow::Session: lock:contention_begin, lock:contention_end ─► Waits: sums by caller, lock or thread ─► a table at the end
//!                  calls of futex ─► futex ────────────────────┘
//! ```

mod args;
mod callers;
mod filter;
mod futex;
mod kind;
mod table;
mod waits;

use std::collections::BTreeMap;

use super::follow::{Functions, Listener, Session, Source, Spread, StreamItem, field, shown};
use super::observe::{Ending, Failure, Host};
use super::{print_note, put};
use crate::error::printable;
use crate::event::format::{Field, Format};
use crate::host::Roots;
use crate::probe::kallsyms::{KallsymsError, Variable, variables};
use crate::register::ThreadNames;
use crate::ring::Sample;
use crate::stack::Chain;
use crate::sys::{Fields, Kernel, Sideband};
pub(super) use args::LockArgs;
use args::{ContentionArgs, View};
use callers::LockFunctions;
use filter::Filter;
use kind::LockKind;
use table::Names;
use waits::{Place, Row, WaitSums, Waiter, Waits};

/// Index of the begin of a wait among the sources.
const BEGIN: usize = 0;
const EVENTS: [&str; 2] = ["lock:contention_begin", "lock:contention_end"];

/// Traces locks, and ends like the command.
pub(super) fn lock<K: Kernel>(args: &LockArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    match &args.view {
        View::Contention(args) => contention(args, host),
        View::Futex(args) => futex::futex(args, host),
    }
}

/// Traces, and prints the table at the end.
fn contention<K: Kernel>(args: &ContentionArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let view = view(args);
    let subject = host.find(&args.follow.target())?;
    let sources = Source::find_all(&EVENTS, None, &host.catalog)?;
    let fields_of: Vec<_> =
        sources.iter().map(|source| WaitFields::of(&source.format)).collect::<anyhow::Result<_>>()?;
    let filter = Filter::new(args, host.roots)?;
    let with_stacks = matches!(view, table::View::Callers | table::View::Stacks) || filter.by_functions();
    let fields = Fields {
        identifier: true,
        tid: true,
        time: true,
        callchain: with_stacks,
        kernel_only: with_stacks,
        raw: true,
        ..Fields::default()
    };
    let with_names = view == table::View::Threads;
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: with_names, comm: with_names, ..Sideband::default() },
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let callers = with_stacks.then(|| Callers::read(args, host.roots));
    let followed = session.follow(|_, _| {
        Ok(Contention {
            view,
            filter,
            fields: fields_of,
            callers,
            names: with_names.then(|| ThreadNames::read(host.roots)),
            comms: BTreeMap::new(),
            chain: Chain::default(),
            waits: Waits::default(),
            unreadable: 0,
        })
    })?;
    followed.report_missing()?;
    put(followed.listener.finish(args, host.roots))?;
    Ok(followed.ending)
}

fn view(args: &ContentionArgs) -> table::View {
    if args.threads {
        table::View::Threads
    } else if args.lock_addr {
        table::View::Locks
    } else if args.verbose {
        table::View::Stacks
    } else {
        table::View::Callers
    }
}

/// Fields in the records of one of the two events.
#[derive(Debug)]
struct WaitFields {
    lock: Field,
    /// Only the begin of a wait has flags.
    flags: Option<Field>,
}

impl WaitFields {
    fn of(format: &Format) -> anyhow::Result<Self> {
        let flags = (format.name() == "contention_begin").then(|| field(format, "flags"));
        Ok(Self { lock: field(format, "lock_addr")?, flags: flags.transpose()? })
    }
}

/// Functions that take locks, and their names.
#[derive(Debug)]
struct Callers {
    functions: Functions,
    lock_functions: Result<LockFunctions, KallsymsError>,
    /// Maximum number of addresses of a call chain.
    depth: usize,
    skip: usize,
}

impl Callers {
    fn read(args: &ContentionArgs, roots: &Roots) -> Self {
        let functions = Functions::read(roots);
        let lock_functions = LockFunctions::read(roots, &functions);
        Self { functions, lock_functions, depth: args.max_stack.into(), skip: args.stack_skip.into() }
    }

    fn caller(&self, chain: &[u64]) -> Option<u64> {
        let functions = self.lock_functions.as_ref();
        functions.map_or_else(|_| chain.get(self.skip).copied(), |of| of.caller(chain, self.skip))
    }
}

/// Pairs begins and ends of waits.
struct Contention {
    view: table::View,
    filter: Filter,
    fields: Vec<WaitFields>,
    callers: Option<Callers>,
    /// Names of threads, if rows are threads.
    names: Option<ThreadNames>,
    /// The name of each thread that waited. A thread may have ended before the table is printed.
    comms: BTreeMap<u32, String>,
    chain: Chain,
    waits: Waits<Row, Spread>,
    unreadable: u64,
}

impl Listener for Contention {
    fn handle(&mut self, item: &StreamItem<'_>) {
        match item {
            StreamItem::Hit { source, cpu, sample } => {
                if self.hit(*source, *cpu, sample).is_none() {
                    self.unreadable += 1;
                }
            }
            StreamItem::Besides { record, .. } => {
                self.names.iter_mut().for_each(|names| names.apply_record(record));
            }
            StreamItem::Gap => self.waits.mark_gap(),
        }
    }
}

impl Contention {
    fn hit(&mut self, source: usize, cpu: u32, sample: &Sample<'_>) -> Option<()> {
        let fields = self.fields.get(source)?;
        let lock = fields.lock.number(sample.raw)?;
        let waiter = Waiter::new(sample.tid, cpu);
        if source != BEGIN {
            self.waits.end(waiter, lock, sample.time, Spread::add);
            return Some(());
        }
        let kind = LockKind::of(fields.flags.as_ref()?.number(sample.raw)?);
        if !self.filter.has_lock(kind, lock) {
            return Some(());
        }
        let Self { view, filter, callers, names, comms, chain, waits, .. } = self;
        if let Some(callers) = callers {
            chain.take(sample, usize::MAX);
            if !filter.has_chain(&chain.kernel, &callers.functions) {
                return Some(());
            }
            chain.kernel.truncate(callers.depth);
        }
        waits.begin(waiter, lock, sample.time, || match (*view, callers) {
            (table::View::Threads, _) => {
                let comm = names.as_ref().and_then(|names| names.get(sample.tid));
                if comms.len() < waits::MAX_ROWS
                    && let Some(comm) = comm
                {
                    comms.insert(sample.tid, shown(comm));
                }
                Row { place: Place::Thread(sample.tid), kind: None }
            }
            (table::View::Callers | table::View::Stacks, Some(callers)) => {
                let place = match view {
                    table::View::Stacks => Place::Stack(chain.kernel.as_slice().into()),
                    _ => Place::Caller(callers.caller(&chain.kernel)),
                };
                Row { place, kind: Some(kind) }
            }
            _ => Row { place: Place::Lock(lock), kind: Some(kind) },
        });
        Some(())
    }

    /// Returns the table. Prints what is missing in it to standard error.
    fn finish(self, args: &ContentionArgs, roots: &Roots) -> String {
        let Self { view, callers, comms, waits, unreadable, .. } = self;
        let sums = waits.finish();
        sums.note_missing(unreadable);
        let WaitSums { rows, others, .. } = sums;
        let mut texts = Texts { callers: callers.as_ref(), comms: &comms, locks: BTreeMap::new() };
        if let Some(callers) = &callers
            && let Some(problem) = callers.functions.problem().or(callers.lock_functions.as_ref().err())
        {
            print_note(&format!(
                "functions have no names, and a lock function is shown as the caller: {problem}"
            ));
        }
        if view == table::View::Locks
            && let Err(problem) = texts.name_locks(&rows, roots)
        {
            print_note(&format!("locks have no names: {problem}"));
        }
        let (others, order) = (others.as_ref(), args.rows.order());
        match &args.field_separator {
            Some(separator) => table::columns(view, rows, others, order, &texts, separator),
            None => table::table(view, rows, others, order, &texts),
        }
    }
}

/// Texts of the rows.
struct Texts<'a> {
    callers: Option<&'a Callers>,
    comms: &'a BTreeMap<u32, String>,
    locks: BTreeMap<u64, String>,
}

impl Texts<'_> {
    /// Finds the names of locks that are variables of the kernel.
    fn name_locks(&mut self, rows: &[(Row, Spread)], roots: &Roots) -> Result<(), KallsymsError> {
        let address = |row: &Row| if let Place::Lock(address) = row.place { Some(address) } else { None };
        let locks: Vec<u64> = rows.iter().filter_map(|(row, _)| address(row)).collect();
        for (address, found) in locks.iter().zip(variables(roots, &locks)?) {
            let Some(Variable { name, distance }) = found else { continue };
            let name = printable(&name);
            let name = if distance == 0 { name } else { format!("{name}+{distance:#x}") };
            self.locks.insert(*address, name);
        }
        Ok(())
    }
}

impl Names for Texts<'_> {
    fn function(&self, address: u64) -> String {
        self.callers.map_or_else(String::new, |callers| callers.functions.shown(address))
    }

    fn caller(&self, chain: &[u64]) -> Option<u64> {
        self.callers.and_then(|callers| callers.caller(chain))
    }

    fn lock(&self, address: u64) -> Option<String> {
        self.locks.get(&address).cloned()
    }

    fn thread(&self, tid: u32) -> String {
        match self.comms.get(&tid) {
            Some(comm) => comm.clone(),
            None if tid == 0 => "<idle>".into(),
            None => "?".into(),
        }
    }
}
