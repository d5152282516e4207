//! The lists of a subject: how much of a quantity belongs to each name (system calls, errors, other cgroups), in steps of ten seconds.
//!
//! A list has a line for each of its most active names. What belongs to further names is added up as `other`, with all its steps, so that
//! the sum of a list is the increment of its metric in every range.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::grid::Grid;
use super::series::{Length, RECENT, Steps};
use crate::clock::Timestamp;
use crate::named_enum::named_enum;

/// The name of the line that adds up all further names, and of series that are aggregated.
pub const OTHER: &str = "other";

/// Names that a list keeps.
const NAMES: usize = 16;

/// Names that a list has at most, until the least active ones are merged into [`OTHER`].
const CANDIDATES: usize = 2 * NAMES;

named_enum! {
    /// A list of a subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum List {
        /// Time of its threads by state: `running`, `preempted`, `sleeping`, `uninterruptible`.
        States = "states",
        /// Its preemptions by other cgroups, by that cgroup.
        PreemptedBy = "preempted_by",
        /// Its preemptions by cause: `own`, `other`, `kernel`, `throttled`.
        Causes = "preemption_causes",
        /// Preemptions of other cgroups by this one, by the other cgroup.
        Preempts = "preempts",
        /// System calls by name.
        Calls = "syscalls",
        /// System calls that returned an error, by the error.
        Errors = "syscall_errors",
        /// Hits of tracepoints, probes and further events, by the entry of the configuration.
        Events = "events",
    }
}

impl List {
    /// Reports whether the values are times in seconds. Otherwise they are counts.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::States)
    }

    /// Number of recorded units of a value of one.
    pub(super) const fn factor(self) -> f64 {
        if self.is_time() { 1e6 } else { 1.0 }
    }
}

/// A list over a range: names with their values, the largest first, and last what belongs to other names, as `other`.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The list.
    pub list: List,
    /// Names and values. Values are above zero.
    pub lines: Vec<(Arc<str>, f64)>,
}

impl Listed {
    /// Creates a list. Adds up equal names, sorts them, and omits zeros. Returns `None` if nothing is left.
    pub(super) fn new(list: List, values: impl Iterator<Item = (Arc<str>, f64)>) -> Option<Self> {
        let mut lines: Vec<(Arc<str>, f64)> = values.collect();
        lines.sort_by(|one, other| one.0.cmp(&other.0));
        lines.dedup_by(|more, line| {
            let is_same = more.0 == line.0;
            line.1 += if is_same { more.1 } else { 0.0 };
            is_same
        });
        lines.retain(|line| line.1 > 0.0);
        let is_other = |line: &(Arc<str>, f64)| *line.0 == *OTHER;
        lines.sort_by(|one, other| is_other(one).cmp(&is_other(other)).then(other.1.total_cmp(&one.1)));
        (!lines.is_empty()).then_some(Self { list, lines })
    }

    /// Returns the sum of all lines.
    pub fn total(&self) -> f64 {
        self.lines.iter().map(|line| line.1).sum()
    }
}

/// Names, each stored once.
#[derive(Debug, Default)]
pub(super) struct Names(FxHashSet<Arc<str>>);

impl Names {
    fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }

    /// Forgets names without a line.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|name| Arc::strong_count(name) > 1);
        self.0.shrink_to_fit();
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        /// Reference counts, and the overhead of the allocator.
        const TEXT: usize = 32;
        let texts: usize = self.0.iter().map(|name| name.len() + TEXT).sum();
        self.0.capacity() * (size_of::<Arc<str>>() + 1) + texts
    }
}

/// All lists of a subject.
#[derive(Debug)]
pub(super) struct Lists {
    /// From when on they are complete; zero if nothing was dropped.
    since: Timestamp,
    /// Sorted by list.
    lists: Vec<(List, Vec<Line>)>,
}

/// One name of a list.
#[derive(Debug)]
struct Line {
    /// `None`: all names without a line.
    name: Option<Arc<str>>,
    /// Amount since the last collection.
    pending: f64,
    /// Begin of the time in which this amount happened, in milliseconds.
    from: u64,
    steps: Steps,
}

impl Lists {
    /// Creates empty lists that are complete from this time on.
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, lists: Vec::new() }
    }

    /// Returns the time from which on the lists are complete; zero if nothing was dropped.
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Adds an amount that happened since `from` to the line of a name.
    pub(super) fn add(
        &mut self,
        names: &mut Names,
        (list, name): (List, &str),
        amount: f64,
        (from, length): (u64, Length),
    ) {
        if amount <= 0.0 {
            return;
        }
        let place = match self.lists.binary_search_by_key(&list, |(of, _)| *of) {
            Ok(place) => place,
            Err(place) => {
                self.lists.insert(place, (list, Vec::new()));
                place
            }
        };
        let Some((_, lines)) = self.lists.get_mut(place) else { return };
        let name = Some(name).filter(|name| *name != OTHER);
        let known = place_of(lines, name);
        let is_full = known.is_none() && lines.len() >= CANDIDATES;
        if is_full {
            make_room(lines, amount);
        }
        let name = name.filter(|_| !is_full || lines.len() < CANDIDATES);
        let line = match place_of(lines, name) {
            Some(place) => lines.get_mut(place),
            None => {
                let name = name.map(|name| names.get(name));
                lines.push(Line { name, pending: 0.0, from, steps: Steps::new(from, length) });
                lines.last_mut()
            }
        };
        if let Some(line) = line {
            line.pending += amount;
        }
    }

    /// Ends a collection: spreads what is pending.
    pub(super) fn record(&mut self, now: u64, last: u64, length: Length) {
        for line in self.lists.iter_mut().flat_map(|(_, lines)| lines) {
            // The first amount of a new line may have begun earlier.
            let from = std::mem::replace(&mut line.from, now).min(last);
            line.steps.record(std::mem::take(&mut line.pending), from, now, length.step);
        }
    }

    /// Removes names without activity, and merges the least active ones of long lists. Must follow [`record`](Self::record).
    pub(super) fn sweep(&mut self, length: Length) {
        for (_, lines) in &mut self.lists {
            lines.retain(|line| !line.steps.is_zero());
            let is_named = |line: &Line| line.name.is_some();
            if lines.iter().filter(|line| is_named(line)).count() <= NAMES {
                continue;
            }
            let mut named: Vec<(f64, Line)> = lines
                .extract_if(.., |line| is_named(line))
                .map(|line| (line.activity(length), line))
                .collect();
            named.sort_by(|one, other| other.0.total_cmp(&one.0));
            named.split_off(NAMES).into_iter().for_each(|(_, line)| merge_into_other(lines, line));
            lines.extend(named.into_iter().map(|(_, line)| line));
            lines.shrink_to_fit();
        }
        self.lists.retain(|(_, lines)| !lines.is_empty());
    }

    /// Returns all lists over a range, which a grid of long steps describes.
    pub(super) fn over(&self, range: &Grid, step: u64) -> Vec<Listed> {
        let steps = range.from.0 / step..range.to().0 / step;
        let of = |(list, lines): &(List, Vec<Line>)| {
            let value = |line: &Line| {
                let name = line.name.clone().unwrap_or_else(|| OTHER.into());
                (name, line.steps.sum(steps.clone()) / list.factor())
            };
            Listed::new(*list, lines.iter().map(value))
        };
        self.lists.iter().filter_map(of).collect()
    }

    /// Reports whether nothing happened in the recorded time.
    pub(super) fn is_idle(&self) -> bool {
        self.lists.iter().flat_map(|(_, lines)| lines).all(|line| line.steps.is_zero())
    }

    /// Returns the memory in bytes, without names.
    pub(super) fn bytes(&self) -> usize {
        let of = |(_, lines): &(List, Vec<Line>)| {
            lines.capacity() * size_of::<Line>() + lines.iter().map(|line| line.steps.bytes()).sum::<usize>()
        };
        self.lists.capacity() * size_of::<(List, Vec<Line>)>() + self.lists.iter().map(of).sum::<usize>()
    }
}

/// Returns the place of a name, or of the line of all names without a line.
fn place_of(lines: &[Line], name: Option<&str>) -> Option<usize> {
    lines.iter().position(|line| line.name.as_deref() == name)
}

/// Merges the least active name of a full list, if a new name has more in one collection than this one in a step.
fn make_room(lines: &mut Vec<Line>, amount: f64) {
    let named = lines.iter().enumerate().filter(|(_, line)| line.name.is_some());
    let activities = named.map(|(place, line)| (line.in_a_step(), place));
    if let Some((least, place)) = activities.min_by(|one, other| one.0.total_cmp(&other.0))
        && least < amount
    {
        let line = lines.swap_remove(place);
        merge_into_other(lines, line);
    }
}

/// Adds a line to that of all names without a line.
fn merge_into_other(lines: &mut Vec<Line>, line: Line) {
    match place_of(lines, None).and_then(|place| lines.get_mut(place)) {
        Some(other) => {
            other.pending += line.pending;
            other.from = other.from.min(line.from);
            other.steps.merge(&line.steps);
        }
        None => lines.push(Line { name: None, ..line }),
    }
}

impl Line {
    /// Returns the activity in a step: in this one, in the last one, or on average of five minutes, whichever is more.
    fn in_a_step(&self) -> f64 {
        let (now, last) = (self.pending + self.steps.open(), self.steps.sum_of_last(1));
        now.max(last).max(self.steps.recent() / RECENT as f64)
    }

    /// Returns the activity by which names are merged: the amount in the last five minutes, or the average of such a time if it is more.
    /// A name that has just become busy is kept, and one that was busy before.
    fn activity(&self, length: Length) -> f64 {
        let all = self.steps.sum_of_last(length.steps);
        let average = all * RECENT as f64 / length.steps.max(RECENT) as f64;
        self.steps.recent().max(average)
    }
}
