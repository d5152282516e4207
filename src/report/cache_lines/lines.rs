//! Sums of accesses by cache line, and by offset and code within a line.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::counts::{Counts, Outcome};
use super::{Coalesce, LineOptions, Ranking};
use crate::clean::UNKNOWN;
use crate::profile::{Profile, Task};
use crate::recording::perf_data::{Access, Accesses, Region};
use crate::report::cells::Cells;
use crate::report::memory::Memory;

/// A cache line.
#[derive(Debug)]
pub(super) struct Line {
    /// The address of its first byte, where it was accessed first.
    pub(super) address: u64,
    pub(super) counts: Counts,
    pub(super) pages: PhysicalAddresses,
    /// Its accesses by offset, in the order of the offsets.
    pub(super) cells: Vec<Cell>,
}

/// Accesses to one offset of a line, by the code that [`LineOptions::coalesce`] distinguishes.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) offset: u64,
    /// The address of the first instruction.
    pub(super) code: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: Arc<str>,
    pub(super) counts: Counts,
    pub(super) pages: PhysicalAddresses,
    pub(super) cpus: BTreeSet<u16>,
    /// NUMA nodes of these CPUs, as far as the recording describes them.
    pub(super) nodes: BTreeSet<u32>,
    pub(super) remote_hitm: Mean,
    pub(super) local_hitm: Mean,
    /// Other loads.
    pub(super) load: Mean,
    pub(super) symbol: Arc<str>,
    pub(super) object: Arc<str>,
    pub(super) source: Arc<str>,
}

/// The mean of weights.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, weight: u64) {
        self.sum = self.sum.saturating_add(weight);
        self.count += 1;
    }

    /// Returns the mean; 0 of nothing.
    pub(super) fn get(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// How often the physical address changed between accesses. 0 if it was not recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PhysicalAddresses {
    last: u64,
    pub(super) changes: u64,
}

impl PhysicalAddresses {
    fn add(&mut self, physical: u64) {
        if physical != 0 && physical != self.last {
            self.last = physical;
            self.changes += 1;
        }
    }
}

/// The identity of a line: the region, and the address in it.
type LineKey = (Region, u64);
/// The identity of a cell: the line, the offset, then process, thread, code and object, where they are distinguished.
type CellKey = (u32, u64, Option<u32>, Option<u32>, Option<(Option<u32>, u64)>, Option<Option<u32>>);

/// The lines under construction.
struct Sums<'a> {
    accesses: &'a Accesses,
    options: &'a LineOptions,
    lines: FxHashMap<LineKey, u32>,
    cells: FxHashMap<CellKey, usize>,
    all: Vec<(LineKey, Line)>,
}

/// Returns all lines in the order of the ranking.
pub(super) fn lines(accesses: &Accesses, options: &LineOptions) -> Vec<Line> {
    let (lines, cells) = (FxHashMap::default(), FxHashMap::default());
    let mut sums = Sums { accesses, options, lines, cells, all: Vec::new() };
    for event in &accesses.events {
        let cells = Cells::new(&event.profile, Memory::default());
        for (number, access) in event.accesses.iter().enumerate() {
            sums.add(&cells, number, access, &event.profile);
        }
    }
    let Sums { mut all, .. } = sums;
    // As perf: those of the kernel first, where the ranking is equal.
    all.sort_by_cached_key(|((region, address), line)| {
        (Reverse(options.ranking.of(&line.counts)), !region.0, *region, *address)
    });
    let mut lines: Vec<Line> = all.into_iter().map(|(_, line)| line).collect();
    for line in &mut lines {
        line.cells
            .sort_by_key(|cell| (cell.offset, Reverse(order(options.ranking, &cell.counts)), cell.code));
    }
    lines
}

/// Returns by what cells of one offset are sorted.
fn order(ranking: Ranking, counts: &Counts) -> (u64, u64) {
    let (local, remote) = (counts.get(Outcome::LocalHitm), counts.get(Outcome::RemoteHitm));
    match ranking {
        Ranking::Total => (counts.hitm(), 0),
        Ranking::Local => (local, remote),
        Ranking::Remote => (remote, local),
    }
}

impl Sums<'_> {
    fn add(&mut self, cells: &Cells<'_>, number: usize, access: &Access, profile: &Profile) {
        let (Some(sample), Some(place)) =
            (profile.samples.get(number), self.accesses.places.get(access.data as usize))
        else {
            return;
        };
        let counts = Counts::of(access.source, place.address, access.is_mapped);
        let mask = self.options.line - 1;
        let key = (place.region(), place.offset & !mask);
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let line_number = *self.lines.entry(key).or_insert_with(|| {
            let address = place.address & !mask;
            let (counts, pages) = (Counts::default(), PhysicalAddresses::default());
            self.all.push((key, Line { address, counts, pages, cells: Vec::new() }));
            next
        });
        let Some((_, line)) = self.all.get_mut(line_number as usize) else { return };
        line.counts.add(&counts);
        line.pages.add(access.physical);
        let location = profile.locations_of(sample.stack).next();
        let task = profile.tasks.get(sample.task as usize);
        let has = |coalesce| self.options.coalesce.contains(&coalesce);
        let mapping = location.and_then(|location| location.mapping);
        let key = (
            line_number,
            place.offset & mask,
            has(Coalesce::Pid).then(|| task.map_or(0, |task| task.pid)),
            has(Coalesce::Tid).then(|| task.map_or(0, |task| task.tid)),
            // The same code in different processes has different addresses.
            has(Coalesce::Code).then(|| (mapping, location.map_or(access.code, |location| location.address))),
            has(Coalesce::Object).then_some(mapping),
        );
        let cell = *self.cells.entry(key).or_insert_with(|| {
            let stack = profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
            let function = cells.stack(stack).first().map(|&function| cells.function(function));
            let text = |number: Option<u32>| number.map_or(UNKNOWN, |number| cells.text(number));
            line.cells.push(Cell::new(
                place.offset & mask,
                access.code,
                task,
                [
                    text(function.map(|function| function.symbol)),
                    text(function.map(|function| function.dso)),
                    text(function.map(|function| function.srcline)),
                ],
            ));
            line.cells.len() - 1
        });
        if let Some(cell) = line.cells.get_mut(cell) {
            cell.counts.add(&counts);
            cell.pages.add(access.physical);
            if let Some(cpu) = sample.cpu {
                cell.cpus.insert(cpu);
                cell.nodes.extend(self.accesses.about.node(cpu.into()));
            }
            cell.add_weight(&counts, access.weight);
        }
    }
}

impl Cell {
    fn new(offset: u64, code: u64, task: Option<&Task>, [symbol, object, source]: [&str; 3]) -> Self {
        let unknown = Task::default();
        let task = task.unwrap_or(&unknown);
        Self {
            offset,
            code,
            pid: task.pid,
            tid: task.tid,
            comm: Arc::clone(&task.comm),
            counts: Counts::default(),
            pages: PhysicalAddresses::default(),
            cpus: BTreeSet::new(),
            nodes: BTreeSet::new(),
            remote_hitm: Mean::default(),
            local_hitm: Mean::default(),
            load: Mean::default(),
            symbol: symbol.into(),
            object: object.into(),
            source: source.into(),
        }
    }

    /// Adds the weight of an access with these outcomes to one of the means.
    fn add_weight(&mut self, counts: &Counts, weight: u64) {
        let means = [
            (Outcome::RemoteHitm, &mut self.remote_hitm),
            (Outcome::LocalHitm, &mut self.local_hitm),
            (Outcome::Load, &mut self.load),
        ];
        if let Some((_, mean)) = means.into_iter().find(|(outcome, _)| counts.get(*outcome) > 0) {
            mean.add(weight);
        }
    }
}
