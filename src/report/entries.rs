//! Sums of the samples with equal cells.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cells::Cells;
use super::chains::{Branch, Tree};
use super::memory::Memory;
use super::{Chains, Key, Only, Options, percent};
use crate::profile::Profile;
use crate::recording::perf_data::{DataName, EventAccesses};

/// The entries of a table, the largest first.
#[derive(Debug)]
pub struct Entries<'p> {
    pub(super) options: Options,
    pub(super) cells: Cells<'p>,
    pub(super) all: Vec<Entry>,
    /// The functions of each stack of the profile, innermost first.
    stacks: Vec<Box<[u32]>>,
    profile: &'p Profile,
    /// The sum of all values.
    pub(super) total: u64,
}

/// The sum of the samples with equal cells.
#[derive(Debug, Default)]
pub struct Entry {
    pub(crate) cells: Box<[u32]>,
    /// The value of the samples that have the cells in their innermost function.
    pub(super) own: u64,
    /// The value of all samples that have the cells anywhere in their stack, each once.
    pub(super) total: u64,
    /// The number of samples of `own`.
    pub(super) samples: u64,
    parts: Vec<Part>,
    /// Length of the longest call chain.
    depth: usize,
    /// The task of its first sample.
    task: u32,
}

/// A call chain of an entry: functions of the stack of a sample. Large recordings have many millions.
#[derive(Debug)]
struct Part {
    sample: u32,
    /// The first function, and the end. A stack has at most [`super::cells::DEPTH`] functions.
    functions: Range<u16>,
}

impl<'p> Entries<'p> {
    /// Sums the samples of a profile.
    pub fn new(profile: &'p Profile, options: &Options) -> Self {
        Self::with_memory(profile, Memory::default(), options)
    }

    /// Sums the samples of an event of a recording of memory accesses, for which all columns have contents.
    pub fn of_accesses(event: &'p EventAccesses, names: &'p [DataName], options: &Options) -> Self {
        Self::with_memory(&event.profile, Memory { accesses: &event.accesses, names }, options)
    }

    fn with_memory(profile: &'p Profile, memory: Memory<'p>, options: &Options) -> Self {
        let cells = Cells::new(profile, memory);
        let stacks = profile.stacks.iter().map(|stack| cells.stack(stack)).collect();
        let total = profile.total();
        let options = options.clone();
        let mut entries = Self { options, cells, all: Vec::new(), stacks, profile, total };
        let mut places = FxHashMap::default();
        for sample in 0..profile.samples.len() {
            entries.add(sample, &mut places);
        }
        entries.retain();
        entries.sort();
        entries
    }

    /// Adds a sample: its innermost function, and each of its callers once.
    fn add(&mut self, sample: usize, places: &mut FxHashMap<Box<[u32]>, usize>) {
        let of = &self.profile.samples[sample];
        let stack = self.stacks.get(of.stack as usize).map_or(&[][..], |stack| stack);
        let outermost_first = self.options.is_outermost_first();
        let of_sample = self.cells.of_sample(&self.options, sample, stack);
        let own = self.cells.at(&self.options, &of_sample, stack.first());
        let mut seen = FxHashSet::from_iter([own.clone()]);
        let mut rows = vec![(own, 0..stack.len(), true)];
        let mut callers: Vec<usize> =
            if self.options.children { (1..stack.len()).collect() } else { Vec::new() };
        // In a recursion, the first occurrence in the order of the call tree counts.
        if outermost_first {
            callers.reverse();
        }
        for caller in callers {
            let row = self.cells.at(&self.options, &of_sample, stack.get(caller));
            if seen.insert(row.clone()) {
                // With the outermost function first, a chain ends with its entry; else it begins there.
                rows.push((row, if outermost_first { 0..caller + 1 } else { caller..stack.len() }, false));
            }
        }
        for (row, frames, is_own) in rows {
            let place = *places.entry(row).or_insert_with_key(|row| {
                let cells = row.clone();
                self.all.push(Entry { cells, task: of.task, ..Entry::default() });
                self.all.len() - 1
            });
            // In bounds: a place of an entry.
            let entry = &mut self.all[place];
            if is_own {
                entry.own = entry.own.saturating_add(of.value);
                entry.samples = entry.samples.saturating_add(of.count);
            }
            entry.total = entry.total.saturating_add(of.value);
            entry.depth = entry.depth.max(frames.len());
            if self.options.chains != Chains::None {
                let functions = frames.start as u16..frames.end as u16;
                entry.parts.push(Part { sample: sample as u32, functions });
            }
        }
    }

    /// Removes entries with other names than those of the options.
    fn retain(&mut self) {
        let Self { options, cells, all, .. } = self;
        let Only { comms, dsos, symbols } = &options.only;
        let lists = [(Key::Comm, comms), (Key::Dso, dsos), (Key::Symbol, symbols)];
        let is_named = |entry: &Entry| {
            lists.iter().filter(|(_, list)| !list.is_empty()).all(|(key, list)| {
                let place = options.sort.iter().position(|sort| sort == key);
                let cell = place.and_then(|place| entry.cells.get(place));
                // Without the column, nothing is known of the entry.
                cell.is_none_or(|cell| {
                    let name = bare(*key, cells.text(*cell));
                    list.iter().any(|wanted| wanted == name || wanted.rsplit('/').next() == Some(name))
                })
            })
        };
        all.retain(is_named);
    }

    /// Sorts the entries as perf: the largest first, and equal ones in the order of the columns. With call trees, callers come before the
    /// callees of the same thread.
    fn sort(&mut self) {
        let Self { options, cells, all, .. } = self;
        all.sort_by_cached_key(|entry| {
            let keys = options.sort.iter().zip(&*entry.cells);
            let texts: Vec<Box<str>> = keys.map(|(key, cell)| bare(*key, cells.text(*cell)).into()).collect();
            (Reverse(entry.total), Reverse(entry.own), texts)
        });
        if options.children && options.chains != Chains::None {
            let outermost_first = options.is_outermost_first();
            all.chunk_by_mut(|one, other| one.total == other.total)
                .for_each(|equal| callers_first(equal, outermost_first));
        }
    }

    /// Returns all entries, the largest first.
    pub(crate) fn all(&self) -> &[Entry] {
        &self.all
    }

    /// Returns the text of an entry in a column of [`Options::sort`].
    pub(crate) fn text(&self, entry: &Entry, column: usize) -> &str {
        entry.cells.get(column).map_or("", |cell| self.cells.text(*cell))
    }

    /// Returns the columns with their places. A column that the options limit to one name is left out, as in perf.
    pub(crate) fn columns(&self) -> Vec<(usize, Key)> {
        let only = &self.options.only;
        let is_single = |key: Key| match key {
            Key::Comm => only.comms.len() == 1,
            Key::Dso => only.dsos.len() == 1,
            Key::Symbol => only.symbols.len() == 1,
            _ => false,
        };
        self.options.sort.iter().copied().enumerate().filter(|(_, key)| !is_single(*key)).collect()
    }

    /// Reports whether the share of an entry reaches [`Options::percent_limit`].
    pub(crate) fn is_large(&self, entry: &Entry) -> bool {
        percent(entry.total, self.total) >= self.options.percent_limit
    }

    /// Returns the value of an entry that its call tree divides.
    pub(super) fn value(&self, entry: &Entry) -> u64 {
        if self.options.children { entry.total } else { entry.own }
    }

    /// Reports whether an entry may have a call tree.
    pub(crate) fn has_calls(&self, entry: &Entry) -> bool {
        entry.depth > 0 && self.smallest().is_some_and(|smallest| entry.total >= smallest)
    }

    /// Returns the smallest value of a branch; `None` without call trees.
    fn smallest(&self) -> Option<u64> {
        let (Chains::Caller(limit) | Chains::Callee(limit)) = self.options.chains else { return None };
        Some((self.total as f64 * limit / 100.0) as u64)
    }

    /// Returns the call tree of an entry; empty without call trees, or if no branch is large enough.
    pub(super) fn tree(&self, entry: &Entry) -> Vec<Branch> {
        let Some(smallest) = self.smallest().filter(|smallest| entry.total >= *smallest) else {
            return Vec::new();
        };
        let mut tree = Tree::default();
        for Part { sample, functions } in &entry.parts {
            // In bounds: a sample with this stack.
            let sample = &self.profile.samples[*sample as usize];
            let functions = usize::from(functions.start)..usize::from(functions.end);
            let chain = self.stacks.get(sample.stack as usize).and_then(|stack| stack.get(functions));
            let chain = chain.unwrap_or_default().iter().map(|&function| self.cells.function(function));
            match self.options.is_outermost_first() {
                true => tree.add(chain.rev(), sample.value),
                false => tree.add(chain, sample.value),
            }
        }
        tree.branches(smallest, &|name| self.cells.text(name))
    }
}

/// Sorts the entries of each thread by the length of their call chains. Those of other threads keep their places.
fn callers_first(equal: &mut [Entry], outermost_first: bool) {
    let mut by_task: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    for (place, entry) in equal.iter().enumerate() {
        by_task.entry(entry.task).or_default().push(place);
    }
    for places in by_task.into_values().filter(|places| places.len() > 1) {
        // In bounds: places of these entries.
        let mut entries: Vec<Entry> = places.iter().map(|&place| std::mem::take(&mut equal[place])).collect();
        // Chains of callers are longer if they end with the innermost function, and shorter if they begin with it.
        entries.sort_by_key(|entry| if outermost_first { usize::MAX - entry.depth } else { entry.depth });
        places.into_iter().zip(entries).for_each(|(place, entry)| equal[place] = entry);
    }
}

/// Returns the text of a cell without the kind of code, which is before the name of a function.
pub(crate) fn bare(key: Key, text: &str) -> &str {
    if key == Key::Symbol { text.get(4..).unwrap_or(text) } else { text }
}
