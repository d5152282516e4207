//! Activity of threads, as the tables that series tables are made of: one table for each fact, with its labels.

use std::borrow::Cow;
use std::sync::Arc;

use super::aggregate::{Cell, EntryTotals};
use super::owners::OwnerId;
use super::tasks;
use super::values::{ValueId, Values};
use crate::event::format::Value;
use crate::plan::{Fact, Trace};
use crate::sched::{Preemptor, Sum};
use crate::syscall::{self, errno};

/// States in which threads left the CPU, in the order of `waited` in a sum.
const STATES: [&str; 3] = ["preempted", "sleeping", "uninterruptible"];

/// One row: the owner, the texts or numbers of its labels, and the amount to add.
type Row = (OwnerId, Vec<Label>, Cell);

/// The value of a label before it has a number.
#[derive(Debug, Clone)]
enum Label {
    Text(Cow<'static, str>),
    /// A cgroup.
    Cgroup(u64),
}

/// One fact about threads.
#[derive(Debug)]
pub(super) struct ThreadTable {
    pub(super) trace: Arc<Trace>,
    fact: Fact,
    /// Sampling: one in this number of threads is observed.
    one_of: u32,
    /// For each label.
    values: Vec<Values>,
    round: u64,
}

impl ThreadTable {
    pub(super) fn new(trace: Arc<Trace>, fact: Fact, one_of: u32) -> Self {
        let values = trace.labels.iter().map(|_| Values::new(trace.values, [0].into())).collect();
        Self { trace, fact, one_of, values, round: 1 }
    }

    /// Returns the tables of this collection. If there is no space for new values of labels, values that did not occur in the last `kept`
    /// collections are removed.
    pub(super) fn take(&mut self, taken: &tasks::TaskTotals, kept: u64) -> EntryTotals {
        let oldest = self.round.saturating_sub(kept);
        let expired = self.values.iter_mut().map(|values| values.expire(oldest)).collect();
        let outputs = 0..self.trace.outputs.len();
        let tables = outputs.map(|output| {
            let rows = rows(self.fact, taken, output);
            rows.into_iter().map(|row| self.number(row)).collect()
        });
        let tables = tables.collect();
        self.round += 1;
        EntryTotals {
            tables,
            fresh: self.values.iter_mut().map(Values::take_fresh).collect(),
            expired,
            ..EntryTotals::default()
        }
    }

    /// Assigns numbers to the values of a row's labels.
    fn number(&mut self, (owner, labels, mut cell): Row) -> ((OwnerId, u32, Box<[ValueId]>), Cell) {
        let round = self.round;
        let numbers = labels.iter().zip(&mut self.values).map(|(label, values)| match label {
            Label::Text(text) => values.id(Value::Bytes(text.as_bytes()), 0, round),
            Label::Cgroup(id) => values.id(Value::Unsigned(*id), 0, round),
        });
        let numbers = numbers.collect();
        match self.fact {
            _ if self.one_of <= 1 => {}
            Fact::LongestDelay => {}
            Fact::Stuck(_) => cell.hits = cell.hits.saturating_mul(self.one_of.into()),
            _ => cell.multiply(self.one_of),
        }
        ((owner, 0, numbers), cell)
    }
}

/// Returns the rows of a fact for one output.
fn rows(fact: Fact, taken: &tasks::TaskTotals, output: usize) -> Vec<Row> {
    match fact {
        Fact::Calls | Fact::Errors | Fact::Durations => {
            let rows = taken.calls.get(output).into_iter().flatten();
            rows.flat_map(|row| call_rows(fact, row)).collect()
        }
        Fact::Stuck(_) => {
            let stuck = taken.stuck.get(output).into_iter().flatten();
            let row = |&(owner, call, age): &(OwnerId, syscall::Call, u64)| {
                (owner, vec![Label::Text(call.to_string().into())], cell(1, age))
            };
            stuck.map(row).collect()
        }
        Fact::PreemptedBy => {
            let Some(taken) = taken.sched.get(output) else { return Vec::new() };
            let mut pairs = taken.pairs.clone();
            // The most frequent ones get labels of their own first.
            pairs.sort_by_key(|&(_, _, count)| std::cmp::Reverse(count));
            let row = |(owner, by, count)| (owner, vec![Label::Cgroup(by)], cell(count, 0));
            pairs.into_iter().map(row).collect()
        }
        _ => {
            let sums = taken.sched.get(output).into_iter().flat_map(|taken| &taken.sums);
            let owned = sums.map(|(owner, sum)| (owner.unwrap_or(OwnerId::UNKNOWN), sum));
            owned.flat_map(|(owner, sum)| sched_rows(fact, owner, sum)).collect()
        }
    }
}

fn cell(hits: u64, sum: u64) -> Cell {
    Cell { hits, sum, histogram: None }
}

fn sched_rows(fact: Fact, owner: OwnerId, sum: &Sum) -> Vec<Row> {
    let labelled = |label: &'static str, hits, sum| (owner, vec![Label::Text(label.into())], cell(hits, sum));
    match fact {
        Fact::Delay => {
            let histogram = (sum.delays.count() > 0).then(|| sum.delays.clone());
            vec![(owner, Vec::new(), Cell { hits: sum.delays.count(), sum: 0, histogram })]
        }
        Fact::LongestDelay => {
            sum.longest.iter().map(|longest| (owner, Vec::new(), cell(1, longest.delay))).collect()
        }
        Fact::Run => vec![(owner, Vec::new(), cell(1, sum.ran))],
        Fact::Wait => {
            STATES.iter().zip(sum.waited).map(|(state, waited)| labelled(state, 1, waited)).collect()
        }
        Fact::Switches => vec![
            labelled("voluntary", sum.voluntary, 0),
            labelled("involuntary", sum.preempted.iter().sum(), 0),
        ],
        Fact::Preemptions => Preemptor::ALL
            .iter()
            .zip(sum.preempted)
            .map(|(by, count)| labelled(by.as_str(), count, 0))
            .collect(),
        Fact::Migrations => vec![(owner, Vec::new(), cell(sum.migrations, 0))],
        Fact::PreemptedBy | Fact::Calls | Fact::Errors | Fact::Durations | Fact::Stuck(_) => Vec::new(),
    }
}

fn call_rows(fact: Fact, (owner, call, sum): &syscall::Row<OwnerId>) -> Vec<Row> {
    let (owner, name) = (owner.unwrap_or(OwnerId::UNKNOWN), Label::Text(call.to_string().into()));
    let count = sum.durations.count();
    match fact {
        Fact::Calls => vec![(owner, vec![name], cell(count, 0))],
        Fact::Errors => {
            let errors = sum.errors.iter();
            let row = |(&number, &count): (&u16, &u64)| {
                (owner, vec![name.clone(), Label::Text(errno(number))], cell(count, 0))
            };
            errors.map(row).collect()
        }
        Fact::Durations => {
            vec![(owner, vec![name], Cell { hits: count, sum: 0, histogram: Some(sum.durations.clone()) })]
        }
        _ => Vec::new(),
    }
}
