//! Sums of allocations from slabs by caller, in bounded memory, and their table.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::args::Key;

/// Maximum number of allocated objects that are followed until they are freed.
const MAX_OBJECTS: usize = 1 << 18;

/// Maximum number of callers. Allocations of further callers are aggregated into one row.
const MAX_CALLERS: usize = 1 << 14;

/// An allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocation {
    /// Address of the caller.
    pub(super) caller: u64,
    /// Address of the object.
    pub(super) object: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) cpu: u32,
}

/// The allocations of a caller. Amounts are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Caller {
    allocated: u64,
    requested: u64,
    hits: u64,
    /// Number of objects that another CPU freed.
    ping_pongs: u64,
}

impl Caller {
    fn add(&mut self, allocation: &Allocation) {
        self.allocated = self.allocated.saturating_add(allocation.allocated);
        self.requested = self.requested.saturating_add(allocation.requested);
        self.hits += 1;
    }

    /// Returns the unused part of the allocated bytes, in percent.
    fn fragmentation(&self) -> f64 {
        match self.allocated {
            0 => 0.0,
            allocated => 100.0 - 100.0 * self.requested as f64 / allocated as f64,
        }
    }
}

/// An object that has not been freed.
#[derive(Debug, Clone, Copy)]
struct Object {
    /// The caller; `None` if it is aggregated.
    caller: Option<u64>,
    allocated: u64,
    cpu: u32,
}

/// Sums of all allocations.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    callers: FxHashMap<u64, Caller>,
    /// Allocations of callers above the limit.
    others: Caller,
    objects: FxHashMap<u64, Object>,
    all: Caller,
    freed: u64,
    /// Number of objects that were not followed, because too many were allocated.
    untracked: u64,
}

impl Slabs {
    /// Adds an allocation.
    pub(super) fn allocate(&mut self, allocation: Allocation) {
        self.all.add(&allocation);
        let Allocation { caller, object, allocated, cpu, .. } = allocation;
        let full = self.callers.len() >= MAX_CALLERS && !self.callers.contains_key(&caller);
        let sum = if full { &mut self.others } else { self.callers.entry(caller).or_default() };
        sum.add(&allocation);
        // A failed allocation has no address.
        if object == 0 {
            return;
        }
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&object) {
            self.untracked += 1;
            return;
        }
        self.objects.insert(object, Object { caller: (!full).then_some(caller), allocated, cpu });
    }

    /// Frees an object. Objects that were allocated before the measurement are ignored.
    pub(super) fn free(&mut self, object: u64, cpu: u32) {
        let Some(found) = self.objects.remove(&object) else { return };
        self.freed = self.freed.saturating_add(found.allocated);
        if found.cpu != cpu {
            self.all.ping_pongs += 1;
            let caller = found.caller.and_then(|caller| self.callers.get_mut(&caller));
            caller.unwrap_or(&mut self.others).ping_pongs += 1;
        }
    }

    /// Returns the number of objects that were not followed.
    pub(super) fn untracked(&self) -> u64 {
        self.untracked
    }

    /// Returns the table and the summary of perf. `name` returns the function of an address.
    pub(super) fn text(&self, sort: &[Key], lines: usize, name: impl Fn(u64) -> String) -> String {
        let mut rows: Vec<_> = self.callers.iter().map(|(&address, &sum)| (address, sum)).collect();
        rows.sort_by(|a, b| order(a, b, sort));
        let rule = "-".repeat(105);
        let mut text = format!(
            "{rule}\n {:<34} | Total_alloc/Per | Total_req/Per   | Hit      | Ping-pong | Frag\n{rule}\n",
            "Callsite"
        );
        let left_out = rows.len().saturating_sub(lines);
        for (address, sum) in rows.iter().take(lines) {
            write_row(&mut text, &name(*address), sum);
        }
        if self.others.hits > 0 {
            write_row(&mut text, "(others)", &self.others);
        }
        if left_out > 0 {
            text.push_str(&format!("  ({left_out} more rows; use a higher -l)\n"));
        }
        text.push_str(&format!("{rule}\n"));
        let Caller { allocated, requested, hits, ping_pongs } = self.all;
        text.push_str(&format!(
            "\nSUMMARY (SLAB allocator)\n========================\nTotal bytes requested: {requested}\nTotal bytes allocated: \
             {allocated}\nTotal bytes freed:     {}\nNet total bytes allocated: {}\nTotal bytes wasted on internal fragmentation: \
             {}\nInternal fragmentation: {:.6}%\nAllocations: {hits}\nObjects freed by another CPU: {ping_pongs}\n",
            self.freed,
            allocated.saturating_sub(self.freed),
            allocated.saturating_sub(requested),
            self.all.fragmentation()
        ));
        text
    }
}

fn order(a: &(u64, Caller), b: &(u64, Caller), sort: &[Key]) -> Ordering {
    let by = |key: &Key| match key {
        Key::Frag => b.1.fragmentation().total_cmp(&a.1.fragmentation()),
        Key::Hit => b.1.hits.cmp(&a.1.hits),
        Key::Bytes => b.1.allocated.cmp(&a.1.allocated),
        Key::Pingpong => b.1.ping_pongs.cmp(&a.1.ping_pongs),
        Key::Callsite => a.0.cmp(&b.0),
        Key::Order | Key::Migtype | Key::Gfp => Ordering::Equal,
    };
    let sorted = sort.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    // Makes the order deterministic.
    sorted.then_with(|| a.0.cmp(&b.0))
}

fn write_row(text: &mut String, name: &str, sum: &Caller) {
    let per = |bytes: u64| bytes.checked_div(sum.hits).unwrap_or_default();
    text.push_str(&format!(
        " {name:<34} | {:>9}/{:<5} | {:>9}/{:<5} | {:>8} | {:>9} | {:>6.3}%\n",
        sum.allocated,
        per(sum.allocated),
        sum.requested,
        per(sum.requested),
        sum.hits,
        sum.ping_pongs,
        sum.fragmentation()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(caller: u64, object: u64, requested: u64, cpu: u32) -> Allocation {
        Allocation { caller, object, requested, allocated: requested.next_power_of_two(), cpu }
    }

    fn name(address: u64) -> String {
        format!("function_{address}+0x10")
    }

    #[test]
    fn the_table_is_as_recorded() {
        let mut slabs = Slabs::default();
        slabs.allocate(allocation(1, 0x100, 96, 0));
        slabs.allocate(allocation(1, 0x200, 64, 0));
        slabs.allocate(allocation(2, 0x300, 4096, 1));
        slabs.allocate(allocation(3, 0, 5000, 1));
        slabs.free(0x100, 1);
        slabs.free(0x300, 1);
        slabs.free(0x300, 0);
        slabs.free(0x999, 0);
        let texts = [
            slabs.text(&[Key::Frag, Key::Hit, Key::Bytes], usize::MAX, name),
            slabs.text(&[Key::Bytes], 1, |address| format!("{address:#x}")),
        ];
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn the_address_of_a_freed_object_is_used_again() {
        let mut slabs = Slabs::default();
        for _ in 0..3 {
            slabs.allocate(allocation(1, 0x100, 64, 0));
            slabs.free(0x100, 0);
        }
        assert_eq!((slabs.freed, slabs.all.hits, slabs.all.ping_pongs), (192, 3, 0));
        assert!(slabs.objects.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_sums_remain_complete() {
        let mut slabs = Slabs::default();
        let all = MAX_OBJECTS as u64 + 7;
        for at in 1..=all {
            slabs.allocate(allocation(at, at, 8, 0));
        }
        slabs.free(1, 1);
        slabs.free(MAX_OBJECTS as u64, 1);
        assert_eq!((slabs.callers.len(), slabs.objects.len()), (MAX_CALLERS, MAX_OBJECTS - 2));
        assert_eq!((slabs.all.hits, slabs.untracked()), (all, 7));
        assert_eq!(slabs.others.hits, all - MAX_CALLERS as u64);
        assert_eq!((slabs.others.ping_pongs, slabs.freed), (1, 16));
    }
}
