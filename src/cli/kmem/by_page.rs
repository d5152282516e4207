//! Traces allocations of pages: `perf-exporter kmem --page`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::args::{Key, KmemArgs};
use super::pages::{PageRow, Pages};
use super::{name, print_notes};
use crate::cli::follow::{Functions, Listener, Session, Source, StreamItem, field};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::put;
use crate::event::format::Field;
use crate::ring::Sample;
use crate::stack::Chain;
use crate::sys::{Fields, Kernel, Sideband};

/// The event of an allocation among the sources.
const ALLOCATION: usize = 0;
const EVENTS: [&str; 2] = ["kmem:mm_page_alloc", "kmem:mm_page_free"];

/// Beginnings of the names of functions that only pass an allocation on, without leading underscores. perf has a similar list, with which it
/// does not find the callers of kernels since 6.8.
const ALLOCATORS: [&str; 9] = [
    "alloc_frozen_pages",
    "alloc_page",
    "folio_alloc",
    "get_free_page",
    "get_zeroed_page",
    "traceiter_mm_page_alloc",
    "vma_alloc_folio",
    "trace_mm_page_alloc",
    "vma_alloc_zeroed_movable_folio",
];

/// Maximum number of addresses and of texts of flags that are remembered.
const MAX_KNOWN: usize = 1 << 14;

/// Traces, and prints the table at the end.
pub(super) fn run<K: Kernel>(args: &KmemArgs, sort: &[Key], host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.follow.target())?;
    let sources = Source::find_all(&EVENTS, None, &host.catalog)?;
    let fields = sources.iter().map(|source| {
        field(&source.format, "pfn").and_then(|pfn| Ok([pfn, field(&source.format, "order")?]))
    });
    let fields = fields.collect::<anyhow::Result<Vec<_>>>()?;
    let of_allocation = |name| {
        let source = sources.get(ALLOCATION).ok_or_else(|| anyhow::anyhow!("no tracepoint"))?;
        field(&source.format, name)
    };
    let (migrate_type, flags) = (of_allocation("migratetype")?, of_allocation("gfp_flags")?);
    let session = Session {
        host,
        sources: &sources,
        fields: Fields {
            identifier: true,
            time: true,
            callchain: true,
            kernel_only: true,
            raw: true,
            ..Fields::default()
        },
        sideband: Sideband::default(),
        subject: &subject,
        everybody: false,
        program: args.follow.program(),
        limit: args.follow.limit,
    };
    let followed = session.follow(|_, _| {
        Ok(Memory {
            fields,
            migrate_type,
            flags,
            callers: Callers { functions: Functions::read(host.roots), known: FxHashMap::default() },
            texts: FxHashMap::default(),
            chain: Chain::default(),
            pages: Pages::new(rustix::param::page_size()),
            unreadable: 0,
        })
    })?;
    followed.report_missing()?;
    let Memory { callers, pages, unreadable, .. } = &followed.listener;
    let functions = (!args.raw_ip).then_some(&callers.functions);
    print_notes(functions, pages.untracked(), *unreadable);
    put(pages.text(sort, args.lines(), |address| name(functions, address)))?;
    Ok(followed.ending)
}

/// Finds callers in call chains.
struct Callers {
    functions: Functions,
    /// Whether an address is in a function that only passes an allocation on.
    known: FxHashMap<u64, bool>,
}

impl Callers {
    /// Returns the first address of a chain that is not in a function of the allocator.
    fn caller(&mut self, chain: &[u64]) -> Option<u64> {
        chain.iter().copied().find(|&address| !self.passes_on(address))
    }

    fn passes_on(&mut self, address: u64) -> bool {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let passes_on = is_allocator(&self.functions.name(address));
        if self.known.len() < MAX_KNOWN {
            self.known.insert(address, passes_on);
        }
        passes_on
    }
}

fn is_allocator(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    ALLOCATORS.iter().any(|allocator| name.starts_with(allocator))
}

/// Sums allocations.
struct Memory {
    /// Page number and order, by source.
    fields: Vec<[Field; 2]>,
    migrate_type: Field,
    flags: Field,
    callers: Callers,
    /// Words of the kernel by flags.
    texts: FxHashMap<u64, Arc<str>>,
    chain: Chain,
    pages: Pages,
    unreadable: u64,
}

impl Listener for Memory {
    fn handle(&mut self, item: &StreamItem<'_>) {
        // After lost records, pages with a lost free count as allocated, until they are allocated again.
        if let StreamItem::Hit { source, sample, .. } = item
            && self.hit(*source, sample).is_none()
        {
            self.unreadable += 1;
        }
    }
}

impl Memory {
    fn hit(&mut self, source: usize, sample: &Sample<'_>) -> Option<()> {
        let [page, order] = self.fields.get(source)?;
        let (page, order) = (page.number(sample.raw)?, order.number(sample.raw)?);
        if source != ALLOCATION {
            self.pages.free(page, order);
            return Some(());
        }
        let migrate_type = self.migrate_type.number(sample.raw)?;
        let Self { flags, callers, texts, chain, pages, .. } = self;
        let number = flags.number(sample.raw)?;
        let words = texts.get(&number).cloned().unwrap_or_else(|| {
            let words = flags.value(sample.raw).map_or_else(String::new, |value| flags.render(&value));
            let words: Arc<str> = words.into();
            if texts.len() < MAX_KNOWN {
                texts.insert(number, Arc::clone(&words));
            }
            words
        });
        let row = || {
            chain.take(sample, usize::MAX);
            PageRow { caller: callers.caller(&chain.kernel), order, migrate_type, flags: words }
        };
        pages.allocate(page, row, (order, migrate_type));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_pass_an_allocation_on_are_no_callers() {
        for name in [
            "__alloc_frozen_pages_noprof",
            "alloc_pages_mpol",
            "__alloc_pages",
            "alloc_page_vma",
            "__get_free_pages",
            "get_zeroed_page_noprof",
            "vma_alloc_folio_noprof",
            "folio_alloc_noprof",
            "__folio_alloc",
            "__traceiter_mm_page_alloc",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in
            ["allocate_slab", "pte_alloc_one", "do_anonymous_page", "filemap_alloc_folio", "alloc_slab_page"]
        {
            assert!(!is_allocator(name), "{name}");
        }
    }
}
