//! Sums over the hits of one entry, from one collection to the next.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::owners::{OwnerId, Owners, RecordIds};
use super::pending::{FirstEvent, Pending};
use super::values::{Fresh, ValueId, Values};
use crate::event::format::{Field, Value};
use crate::metrics::Histogram;
use crate::plan::{Amount, Output, Trace, TraceSource as Source, ValueLocation};
use crate::targets::Targets;

/// Maximum number of label sets in one round. Further hits are aggregated into `other` until the next collection.
const MAX_CELLS: usize = 1 << 16;

/// Sums of one label set.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) hits: u64,
    /// Sum of the field, in the unit of the field.
    pub(super) sum: u64,
    pub(super) histogram: Option<Histogram>,
}

impl Cell {
    /// Multiplies the sums by a factor, to extrapolate from a sample.
    pub(super) fn multiply(&mut self, by: u32) {
        self.hits = self.hits.saturating_mul(by.into());
        self.sum = self.sum.saturating_mul(by.into());
        if let Some(histogram) = &mut self.histogram {
            let one = histogram.clone();
            (1..by).for_each(|_| histogram.merge(&one));
        }
    }
}

/// The owner, the event if there are several, and the value of each label.
pub(super) type Key = (OwnerId, u32, Box<[ValueId]>);

/// The cells of one output, by label set: the owner, the event, and the value of each label.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: Places,
    cells: Vec<(Box<[u32]>, Cell)>,
}

impl Table {
    /// Returns the cell of a label set.
    #[inline]
    fn cell(&mut self, set: &[u32]) -> &mut Cell {
        let place = match self.places.get(set) {
            Some(place) => place,
            None => self.add(set.into()),
        };
        // In range: every place is an index into `cells`.
        &mut self.cells[place].1
    }

    #[cold]
    fn add(&mut self, mut set: Box<[u32]>) -> usize {
        if self.cells.len() >= MAX_CELLS
            && let Some((owner, values)) = set.split_first_mut()
        {
            *owner = OwnerId::UNKNOWN.0;
            values.iter_mut().skip(1).for_each(|value| *value = ValueId::OTHER.0);
            if let Some(place) = self.places.get(&set) {
                return place;
            }
        }
        let place = self.cells.len();
        self.places.insert(&set, place);
        self.cells.push((set, Cell::default()));
        place
    }

    /// Removes and returns all cells.
    fn take(&mut self) -> Vec<(Key, Cell)> {
        self.places.clear();
        let taken = std::mem::take(&mut self.cells).into_iter().filter_map(|(set, cell)| {
            let (&[owner, event], values) = set.split_first_chunk()?;
            Some(((OwnerId(owner), event, values.iter().map(|&value| ValueId(value)).collect()), cell))
        });
        taken.collect()
    }
}

/// Indexes of the cells by label set. All sets of a table have the same length, so one of the two maps is empty.
#[derive(Debug, Default)]
struct Places {
    /// Sets of up to four numbers, packed into one: at most two labels, as most entries have.
    short: FxHashMap<u128, usize>,
    long: FxHashMap<Box<[u32]>, usize>,
}

impl Places {
    #[inline]
    fn get(&self, set: &[u32]) -> Option<usize> {
        let place = match packed(set) {
            Some(set) => self.short.get(&set),
            None => self.long.get(set),
        };
        place.copied()
    }

    fn insert(&mut self, set: &[u32], place: usize) {
        match packed(set) {
            Some(set) => self.short.insert(set, place),
            None => self.long.insert(set.into(), place),
        };
    }

    /// Removes all label sets, and keeps some capacity.
    fn clear(&mut self) {
        self.short.clear();
        self.short.shrink_to(1024);
        self.long.clear();
        self.long.shrink_to(1024);
    }
}

#[inline]
fn packed(set: &[u32]) -> Option<u128> {
    (set.len() <= 4).then(|| set.iter().fold(0, |packed, &number| packed << 32 | u128::from(number)))
}

/// Hits of an entry that could not be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dropped {
    /// Records without the field that is summed.
    pub(super) short: u64,
    /// Negative values, which cannot be added because sums only grow.
    pub(super) negative: u64,
}

/// The sums of one entry.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub(super) trace: Arc<Trace>,
    sums: Sums,
    pending: Option<Pending>,
}

/// Sums over the hits of an entry.
#[derive(Debug)]
struct Sums {
    /// For each label.
    values: Vec<Values>,
    /// For each output.
    tables: Vec<Table>,
    round: u64,
    dropped: Dropped,
    scratch: Scratch,
}

/// Buffers that are reused for every hit, to avoid allocations.
#[derive(Debug, Default)]
struct Scratch {
    /// A label set: the owner, the event, and the value of each label.
    set: Vec<u32>,
    pair: Vec<u8>,
}

/// Sums of an entry that one collection takes.
#[derive(Debug, Default)]
pub(super) struct EntryTotals {
    /// For each output.
    pub(super) tables: Vec<Vec<(Key, Cell)>>,
    /// For each label: its new values.
    pub(super) fresh: Vec<Vec<Fresh>>,
    /// For each label: values whose numbers will be reused for other values.
    pub(super) expired: Vec<Vec<ValueId>>,
    /// Number of unpaired events by reason, since the start.
    pub(super) unpaired: Vec<(&'static str, u64)>,
    pub(super) waiting: usize,
    pub(super) dropped: Dropped,
}

/// A hit: the source and the contents of its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit<'r> {
    pub(super) source: usize,
    pub(super) ids: RecordIds,
    pub(super) time: u64,
    pub(super) raw: &'r [u8],
}

impl Aggregate {
    pub(super) fn new(trace: Arc<Trace>) -> Self {
        let sums = Sums {
            values: (0..trace.labels.len())
                .map(|label| Values::new(trace.values, meanings(&trace, label)))
                .collect(),
            tables: trace.outputs.iter().map(|_| Table::default()).collect(),
            round: 1,
            dropped: Dropped::default(),
            scratch: Scratch::default(),
        };
        Self { sums, pending: trace.pair.map(Pending::new), trace }
    }

    /// Counts a hit.
    #[inline]
    pub(super) fn hit(&mut self, hit: Hit<'_>, owners: &mut Owners) {
        let Some(source) = self.trace.sources.get(hit.source) else { return };
        let event = if self.pending.is_some() { 0 } else { hit.source };
        self.sums.look_up(source, hit, event);
        match &mut self.pending {
            None => self.sums.single(&self.trace, source, hit, owners),
            Some(pending) => {
                let key = &mut self.sums.scratch.pair;
                key.clear();
                if !source.key.iter().all(|part| append(key, taken(part, hit))) {
                    self.sums.dropped.short += 1;
                } else if hit.source.is_multiple_of(2) {
                    let labels = self.sums.scratch.set.iter().skip(2).map(|&value| ValueId(value)).collect();
                    pending.begin(key, FirstEvent { time: hit.time, ids: hit.ids, labels });
                } else if let Some((begun, elapsed)) = pending.end(key, hit.time) {
                    self.sums.elapsed(&self.trace, &begun, elapsed, owners);
                }
            }
        }
    }

    /// Discards pending first events, because records were lost.
    pub(super) fn mark_gap(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.clear();
        }
    }

    /// Takes the sums since the last call. `now` is a time of the clock of the records. If there is no space for new values, values that
    /// did not occur in the last `kept` rounds are removed.
    pub(super) fn take(&mut self, now: u64, kept: u64) -> EntryTotals {
        if let Some(pending) = &mut self.pending {
            pending.expire(now);
        }
        let sums = &mut self.sums;
        let oldest = sums.round.saturating_sub(kept);
        let expired: Vec<_> = sums.values.iter_mut().map(|values| values.expire(oldest)).collect();
        if let Some(pending) = &mut self.pending {
            expired.iter().enumerate().for_each(|(label, gone)| pending.forget(label, gone));
        }
        let taken = EntryTotals {
            tables: sums.tables.iter_mut().map(Table::take).collect(),
            fresh: sums.values.iter_mut().map(Values::take_fresh).collect(),
            expired,
            unpaired: self.pending.iter().flat_map(Pending::unpaired).collect(),
            waiting: self.pending.as_ref().map_or(0, Pending::waiting),
            dropped: sums.dropped,
        };
        sums.round += 1;
        taken
    }
}

impl Sums {
    /// Determines the labels without those of the cgroup or process. The event of a pair is always the first one.
    #[inline]
    fn look_up(&mut self, source: &Source, hit: Hit<'_>, event: usize) {
        self.scratch.set.clear();
        self.scratch.set.extend([0, event as u32]);
        for (take, values) in source.labels.iter().zip(&mut self.values) {
            let value = take.as_ref().and_then(|take| taken(take, hit));
            let id = value.map_or(ValueId::NONE, |value| values.id(value, hit.source, self.round));
            self.scratch.set.push(id.0);
        }
    }

    #[inline]
    fn single(&mut self, trace: &Trace, source: &Source, hit: Hit<'_>, owners: &mut Owners) {
        let number = match &source.value {
            None => 0,
            Some(field) => match self.number(field, hit) {
                Some(number) => number,
                None => return,
            },
        };
        for (output, table) in trace.outputs.iter().zip(&mut self.tables) {
            let cell = cell(table, output, &mut self.scratch.set, hit.ids, owners);
            cell.hits += 1;
            match &trace.measure {
                Amount::Sum(_) => cell.sum = cell.sum.saturating_add(number),
                Amount::Histogram(factor, buckets) => {
                    let histogram = cell.histogram.get_or_insert_with(|| Histogram::of(buckets));
                    histogram.observe(number as f64 * factor);
                }
                Amount::Hits | Amount::Elapsed(_) | Amount::Most(..) => {}
            }
        }
    }

    /// Returns the number to add, if the record has a valid one.
    #[inline]
    fn number(&mut self, field: &Field, hit: Hit<'_>) -> Option<u64> {
        match field.value(hit.raw) {
            Some(Value::Unsigned(number)) => Some(number),
            Some(Value::Signed(number)) if number >= 0 => Some(number as u64),
            Some(Value::Signed(_)) => {
                self.dropped.negative += 1;
                None
            }
            Some(Value::Bytes(_)) | None => {
                self.dropped.short += 1;
                None
            }
        }
    }

    fn elapsed(&mut self, trace: &Trace, begun: &FirstEvent, elapsed: u64, owners: &mut Owners) {
        // Each label comes from one of the two events.
        for (label, first) in self.scratch.set.iter_mut().skip(2).zip(&begun.labels) {
            if *label == ValueId::NONE.0 {
                *label = first.0;
            }
        }
        let Amount::Elapsed(buckets) = &trace.measure else { return };
        let seconds = elapsed as f64 / 1e9;
        for (output, table) in trace.outputs.iter().zip(&mut self.tables) {
            let cell = cell(table, output, &mut self.scratch.set, begun.ids, owners);
            cell.hits += 1;
            cell.histogram.get_or_insert_with(|| Histogram::of(buckets)).observe(seconds);
        }
    }
}

/// Returns the cell of a hit in the table of an output.
#[inline]
fn cell<'t>(
    table: &'t mut Table,
    output: &Output,
    set: &mut [u32],
    ids: RecordIds,
    owners: &mut Owners,
) -> &'t mut Cell {
    let owner = match &output.targets {
        Targets::Cpus(cpus) => OwnerId(cpus.number_of(ids.cpu)),
        Targets::Cgroups(_) => owners.cgroup(ids),
        Targets::Processes(_) => owners.process(ids),
    };
    if let Some(first) = set.first_mut() {
        *first = owner.0;
    }
    table.cell(set)
}

/// Returns a value of a hit.
#[inline]
fn taken<'r>(take: &ValueLocation, hit: Hit<'r>) -> Option<Value<'r>> {
    match take {
        ValueLocation::Field(field) => field.value(hit.raw),
        ValueLocation::Cpu => Some(Value::Unsigned(hit.ids.cpu.into())),
        ValueLocation::Pid => Some(Value::Unsigned(hit.ids.pid.into())),
        ValueLocation::Tid => Some(Value::Unsigned(hit.ids.tid.into())),
    }
}

/// Returns, for each source, the first source in which values of this label have the same text. For example, 3 can be the softirq `NET_RX`
/// in one tracepoint, and just 3 in another.
fn meanings(trace: &Trace, label: usize) -> Box<[usize]> {
    let field = |source: &Source| match source.labels.get(label) {
        Some(Some(ValueLocation::Field(field))) => Some((field.kind, field.show.clone())),
        _ => None,
    };
    let mut seen = Vec::new();
    let first = trace.sources.iter().map(field).enumerate().map(|(place, field)| {
        let same = seen.iter().find(|(_, other)| *other == field).map(|&(first, _)| first);
        same.unwrap_or_else(|| {
            seen.push((place, field));
            place
        })
    });
    first.collect()
}

/// Appends a part of a key, such that different keys have different bytes. Returns `false` if the record does not contain the part.
fn append(key: &mut Vec<u8>, value: Option<Value<'_>>) -> bool {
    match value {
        Some(Value::Unsigned(number)) => key.extend(number.to_ne_bytes()),
        Some(Value::Signed(number)) => key.extend(number.to_ne_bytes()),
        Some(Value::Bytes(bytes)) => {
            key.extend((bytes.len() as u64).to_ne_bytes());
            key.extend(bytes);
        }
        None => return false,
    }
    true
}
