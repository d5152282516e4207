//! Sums of page allocations by caller, order, type of mobility and flags, in bounded memory, and their table.

use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::args::Key;

/// Maximum number of allocations that are followed until their pages are freed.
const MAX_LIVE: usize = 1 << 18;

/// Maximum number of rows. Further allocations are aggregated into one row.
const MAX_ROWS: usize = 1 << 14;

/// Number of orders in the table. Linux allocates at most 2^10 pages at once.
const ORDERS: usize = 11;

/// Types of mobility in the order of `enum migratetype`, and their names in rows. perf has the order of Linux before 4.4.
const TYPES: [(&str, &str); 5] = [
    ("Unmovable", "UNMOVABL"),
    ("Movable", "MOVABLE"),
    ("Reclaimable", "RECLAIM"),
    ("HighAtomic", "HIGHATOM"),
    ("CMA/Isolated", "CMA/ISLT"),
];

/// What distinguishes rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PageRow {
    /// Address of the caller; `None` if the call chain does not contain it.
    pub(super) caller: Option<u64>,
    pub(super) order: u64,
    pub(super) migrate_type: u64,
    /// Words of the kernel for the flags.
    pub(super) flags: Arc<str>,
}

/// A number of allocations and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Amount {
    count: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn without(self, other: Self) -> Self {
        Self { count: self.count.saturating_sub(other.count), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// Sums of all page allocations.
#[derive(Debug)]
pub(super) struct Pages {
    page_size: u64,
    rows: FxHashMap<PageRow, Amount>,
    /// Allocations of rows above the limit.
    others: Amount,
    /// Number of the first page of each allocation that has not been freed.
    live: FxHashSet<u64>,
    allocated: Amount,
    freed: Amount,
    /// Frees of pages that were allocated before the measurement.
    unmatched: Amount,
    failed: Amount,
    /// Allocations by order and type.
    orders: [[u64; TYPES.len()]; ORDERS],
    untracked: u64,
}

impl Pages {
    /// `page_size` is in bytes.
    pub(super) fn new(page_size: usize) -> Self {
        Self {
            page_size: page_size as u64,
            rows: FxHashMap::default(),
            others: Amount::default(),
            live: FxHashSet::default(),
            allocated: Amount::default(),
            freed: Amount::default(),
            unmatched: Amount::default(),
            failed: Amount::default(),
            orders: [[0; TYPES.len()]; ORDERS],
            untracked: 0,
        }
    }

    fn bytes(&self, order: u64) -> u64 {
        u32::try_from(order).ok().and_then(|order| self.page_size.checked_shl(order)).unwrap_or_default()
    }

    /// Adds an allocation. `page` is the number of its first page; all ones if the allocation failed.
    pub(super) fn allocate(
        &mut self,
        page: u64,
        row: impl FnOnce() -> PageRow,
        (order, migrate_type): (u64, u64),
    ) {
        let bytes = self.bytes(order);
        self.allocated.add(bytes);
        if page == u64::MAX {
            self.failed.add(bytes);
            return;
        }
        let at = |index: u64, len: usize| usize::try_from(index).unwrap_or(usize::MAX).min(len - 1);
        if let Some(count) = self
            .orders
            .get_mut(at(order, ORDERS))
            .and_then(|types| types.get_mut(at(migrate_type, TYPES.len())))
        {
            *count += 1;
        }
        let row = row();
        let full = self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&row);
        if full { &mut self.others } else { self.rows.entry(row).or_default() }.add(bytes);
        if self.live.len() >= MAX_LIVE && !self.live.contains(&page) {
            self.untracked += 1;
        } else {
            self.live.insert(page);
        }
    }

    /// Frees pages.
    pub(super) fn free(&mut self, page: u64, order: u64) {
        let bytes = self.bytes(order);
        self.freed.add(bytes);
        if !self.live.remove(&page) {
            self.unmatched.add(bytes);
        }
    }

    /// Returns the number of allocations that were not followed.
    pub(super) fn untracked(&self) -> u64 {
        self.untracked
    }

    /// Returns the table and the summary of perf. `name` returns the function of an address.
    pub(super) fn text(&self, sort: &[Key], lines: usize, name: impl Fn(u64) -> String) -> String {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| order(a, b, sort));
        let flags = rows.iter().map(|(row, _)| row.flags.len()).max().unwrap_or_default().max(9);
        let rule = "-".repeat(80 + flags);
        let mut text = format!(
            "{rule}\n Total alloc (KB) | Hits      | Order | Mig.type | {:<flags$} | Callsite\n{rule}\n",
            "GFP flags"
        );
        for (row, sum) in rows.iter().take(lines) {
            let PageRow { caller, order, migrate_type, flags: words } = row;
            let caller = caller.map_or_else(|| "unknown".into(), &name);
            text.push_str(&format!(
                " {:>16} | {:>9} | {order:>5} | {:>8} | {words:<flags$} | {caller}\n",
                sum.bytes / 1024,
                sum.count,
                migration(*migrate_type).1
            ));
        }
        if self.others.count > 0 {
            let Amount { count, bytes } = self.others;
            text.push_str(&format!(
                " {:>16} | {count:>9} |       |          | {:<flags$} | (others)\n",
                bytes / 1024,
                ""
            ));
        }
        let left_out = rows.len().saturating_sub(lines);
        if left_out > 0 {
            text.push_str(&format!("  ({left_out} more rows; use a higher -l)\n"));
        }
        text.push_str(&format!("{rule}\n"));
        self.write_summary(&mut text);
        text
    }

    fn write_summary(&self, text: &mut String) {
        text.push_str("\nSUMMARY (page allocator)\n========================\n");
        let matched = self.freed.without(self.unmatched);
        for (what, amount, is_last) in [
            ("Total allocation requests", self.allocated, false),
            ("Total free requests", self.freed, true),
            ("Total alloc+freed requests", matched, false),
            ("Total alloc-only requests", self.allocated.without(matched), false),
            ("Total free-only requests", self.unmatched, true),
            ("Total allocation failures", self.failed, true),
        ] {
            let Amount { count, bytes } = amount;
            let end = if is_last { "\n\n" } else { "\n" };
            text.push_str(&format!("{what:<30}: {count:>16}   [ {:>16} KB ]{end}", bytes / 1024));
        }
        text.push_str("Order");
        TYPES.iter().for_each(|(title, _)| text.push_str(&format!("  {title:>12}")));
        text.push_str(&format!("\n-----{}\n", format!("  {}", "-".repeat(12)).repeat(TYPES.len())));
        for (order, types) in self.orders.iter().enumerate() {
            text.push_str(&format!("{order:>5}"));
            for count in types {
                let count = if *count == 0 { ".".into() } else { count.to_string() };
                text.push_str(&format!("  {count:>12}"));
            }
            text.push('\n');
        }
    }
}

fn migration(migrate_type: u64) -> (&'static str, &'static str) {
    let index = usize::try_from(migrate_type).unwrap_or(usize::MAX).min(TYPES.len() - 1);
    TYPES.get(index).copied().unwrap_or_default()
}

fn order(a: &(&PageRow, &Amount), b: &(&PageRow, &Amount), sort: &[Key]) -> Ordering {
    let by = |key: &Key| match key {
        Key::Bytes => b.1.bytes.cmp(&a.1.bytes),
        Key::Hit => b.1.count.cmp(&a.1.count),
        Key::Callsite => a.0.caller.cmp(&b.0.caller),
        Key::Order => b.0.order.cmp(&a.0.order),
        Key::Migtype => a.0.migrate_type.cmp(&b.0.migrate_type),
        Key::Gfp => a.0.flags.cmp(&b.0.flags),
        Key::Frag | Key::Pingpong => Ordering::Equal,
    };
    let sorted = sort.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    // Makes the order deterministic.
    sorted.then_with(|| a.0.cmp(b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(pages: &mut Pages, page: u64, caller: u64, order: u64, migrate_type: u64) {
        let row =
            || PageRow { caller: Some(caller), order, migrate_type, flags: "GFP_KERNEL|__GFP_COMP".into() };
        pages.allocate(page, row, (order, migrate_type));
    }

    #[test]
    fn the_table_is_as_recorded() {
        let mut pages = Pages::new(4096);
        allocate(&mut pages, 100, 1, 0, 1);
        allocate(&mut pages, 101, 1, 0, 1);
        allocate(&mut pages, 200, 2, 3, 0);
        allocate(&mut pages, u64::MAX, 2, 9, 0);
        pages.free(100, 0);
        pages.free(200, 3);
        // Was allocated before the measurement.
        pages.free(300, 1);
        insta::assert_snapshot!(
            pages.text(&[Key::Bytes, Key::Hit], 9, |address| format!("function_{address}+0x10"))
        );
    }

    #[test]
    fn pages_are_sorted_by_the_keys() {
        let mut pages = Pages::new(4096);
        allocate(&mut pages, 100, 7, 0, 2);
        allocate(&mut pages, 101, 7, 0, 2);
        allocate(&mut pages, 200, 8, 4, 0);
        allocate(&mut pages, 300, 9, 1, 1);
        let callers = |sort: &[Key]| {
            let text = pages.text(sort, 9, |address| format!("f{address}"));
            text.lines()
                .filter_map(|line| line.rsplit_once("| f"))
                .map(|(_, name)| name.to_owned())
                .collect::<String>()
        };
        for (key, expected) in [
            (Key::Bytes, "879"),
            (Key::Hit, "789"),
            (Key::Order, "897"),
            (Key::Migtype, "897"),
            (Key::Callsite, "789"),
        ] {
            assert_eq!(callers(&[key, Key::Bytes]), expected, "{key:?}");
        }
        assert!(pages.text(&[Key::Bytes], 1, |_| String::new()).contains("(2 more rows; use a higher -l)"));
    }

    #[test]
    fn memory_is_bounded_and_the_sums_remain_complete() {
        let mut pages = Pages::new(4096);
        for number in 0..MAX_LIVE as u64 + 3 {
            allocate(&mut pages, number, number % (MAX_ROWS as u64 + 2), 0, 0);
        }
        assert_eq!((pages.rows.len(), pages.live.len(), pages.untracked()), (MAX_ROWS, MAX_LIVE, 3));
        let summed: u64 = pages.rows.values().map(|sum| sum.count).sum::<u64>() + pages.others.count;
        assert_eq!(summed, pages.allocated.count);
    }
}
