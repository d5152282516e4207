//! `perf-exporter kmem`: memory that functions of the kernel allocate from slabs, or as pages, as `perf kmem stat` shows it.
//!
//! ```text
//! follow::Session: allocations and frees ─┬► Slabs: sums by caller ─► a table at the end
//!                                         └► Pages: sums by caller, order, type and flags ─► a table at the end
//! ```

mod args;
mod by_page;
mod pages;
mod slabs;

use super::follow::{Functions, Listener, Session, Source, StreamItem, field};
use super::observe::{Ending, Failure, Host};
use super::{print_note, put};
use crate::event::Catalog;
use crate::event::format::{Field, Format};
use crate::ring::Sample;
use crate::sys::{Fields, Kernel, Sideband};
use args::Key;
pub(super) use args::KmemArgs;
use slabs::{Allocation, Slabs};

/// The tracepoints of the system `kmem` that every kernel has.
const EVENTS: [&str; 4] = ["kmem:kmalloc", "kmem:kmem_cache_alloc", "kmem:kfree", "kmem:kmem_cache_free"];

/// Allocations on a given NUMA node, until Linux 6.0. Later kernels write them with those above.
const ON_NODES: [&str; 2] = ["kmem:kmalloc_node", "kmem:kmem_cache_alloc_node"];

/// Traces, prints the table at the end, and ends like the command.
pub(super) fn kmem<K: Kernel>(args: &KmemArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let sort = args.sort().map_err(Failure::Usage)?;
    if args.page { by_page::run(args, &sort, host) } else { by_slab(args, &sort, host) }
}

/// Traces allocations from slabs.
fn by_slab<K: Kernel>(args: &KmemArgs, sort: &[Key], host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.follow.target())?;
    let names: Vec<&str> =
        EVENTS.into_iter().chain(ON_NODES.into_iter().filter(|name| exists(name, &host.catalog))).collect();
    let sources = Source::find_all(&names, None, &host.catalog)?;
    let decoders =
        sources.iter().map(|source| Decoder::of(&source.format)).collect::<anyhow::Result<Vec<_>>>()?;
    let session = Session {
        host,
        sources: &sources,
        fields: Fields { identifier: true, time: true, raw: true, ..Fields::default() },
        sideband: Sideband::default(),
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let functions = (!args.raw_ip).then(|| Functions::read(host.roots));
    let followed = session.follow(|_, _| Ok(Memory { decoders, slabs: Slabs::default(), unreadable: 0 }))?;
    followed.report_missing()?;
    let Memory { slabs, unreadable, .. } = &followed.listener;
    print_notes(functions.as_ref(), slabs.untracked(), *unreadable);
    put(slabs.text(sort, args.lines(), |address| name(functions.as_ref(), address)))?;
    Ok(followed.ending)
}

/// Returns the function of an address with the distance from its start; the address without functions.
fn name(functions: Option<&Functions>, address: u64) -> String {
    functions.map_or_else(|| format!("{address:#x}"), |functions| functions.shown(address))
}

/// Prints what the table lacks: names, frees of `untracked` allocations, and records that could not be decoded.
fn print_notes(functions: Option<&Functions>, untracked: u64, unreadable: u64) {
    if let Some(problem) = functions.and_then(Functions::problem) {
        print_note(&format!("functions have no names: {problem}"));
    }
    for (count, what) in [
        (untracked, "allocations were not followed until they were freed, because there were too many"),
        (unreadable, "records could not be decoded, which is a bug in perf-exporter"),
    ] {
        if count > 0 {
            print_note(&format!("{count} {what}"));
        }
    }
}

/// Reports whether this kernel has the tracepoint.
fn exists(name: &str, catalog: &Catalog) -> bool {
    name.split_once(':').is_some_and(|(system, event)| catalog.format(system, event).is_ok())
}

/// Fields in the records of one of the events.
#[derive(Debug)]
enum Decoder {
    Allocation { caller: Box<Field>, object: Box<Field>, requested: Box<Field>, allocated: Box<Field> },
    Free { object: Box<Field> },
}

impl Decoder {
    fn of(format: &Format) -> anyhow::Result<Self> {
        let field = |name| field(format, name).map(Box::new);
        let object = field("ptr")?;
        if format.name().ends_with("free") {
            return Ok(Self::Free { object });
        }
        let (requested, allocated) = (field("bytes_req")?, field("bytes_alloc")?);
        Ok(Self::Allocation { caller: field("call_site")?, object, requested, allocated })
    }
}

/// Sums allocations.
struct Memory {
    decoders: Vec<Decoder>,
    slabs: Slabs,
    unreadable: u64,
}

impl Listener for Memory {
    fn handle(&mut self, item: &StreamItem<'_>) {
        // After lost records, an object with a lost free counts as allocated, until its address is used again.
        if let StreamItem::Hit { source, cpu, sample } = item
            && self.hit(*source, *cpu, sample).is_none()
        {
            self.unreadable += 1;
        }
    }
}

impl Memory {
    fn hit(&mut self, source: usize, cpu: u32, sample: &Sample<'_>) -> Option<()> {
        let number = |field: &Field| field.number(sample.raw);
        match self.decoders.get(source)? {
            Decoder::Free { object } => self.slabs.free(number(object)?, cpu),
            Decoder::Allocation { caller, object, requested, allocated } => {
                let (caller, object) = (number(caller)?, number(object)?);
                let (requested, allocated) = (number(requested)?, number(allocated)?);
                self.slabs.allocate(Allocation { caller, object, requested, allocated, cpu });
            }
        }
        Some(())
    }
}
