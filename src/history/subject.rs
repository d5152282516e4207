//! One cgroup, one program or the machine, with its recorded quantities.

use std::sync::Arc;

use super::figure::{Figure, Formula, Rate, Sources, Times, quantile_of};
use super::grid::Grid;
use super::lists::{Listed, Lists};
use super::quantity::Quantity;
use super::series::{LENGTHS, LONG, Length, Series, Sum};
use crate::clock::Timestamp;
use crate::metrics::Labels;

/// Something with a past.
#[derive(Debug)]
pub struct Subject {
    /// Labels of one of its series, with the names of its pod and container.
    pub(super) labels: Arc<Labels>,
    /// Sorted by quantity.
    pub(super) series: Vec<(Quantity, Series)>,
    /// `None` if they were dropped because of the limit.
    pub(super) lists: Option<Lists>,
    /// The sources of which a series was in an earlier collection, in the last one, and in this one, as bits.
    pub(super) known: u64,
    pub(super) present: u64,
    pub(super) seen: u64,
    /// The sources of which a series begins in this collection, as bits.
    pub(super) beginning: u64,
    /// The last begins.
    begins: Vec<Begin>,
}

/// Series that began between two collections.
#[derive(Debug)]
struct Begin {
    /// Their sources, as bits.
    sources: u64,
    /// The times of the collections, in milliseconds.
    from: u64,
    to: u64,
}

impl Subject {
    pub(super) fn new(labels: &Arc<Labels>) -> Self {
        let lists = Some(Lists::new(Timestamp::default()));
        let labels = Arc::clone(labels);
        Self {
            labels,
            series: Vec::new(),
            lists,
            known: 0,
            present: 0,
            seen: 0,
            beginning: 0,
            begins: Vec::new(),
        }
    }

    /// Ends a collection: spreads what is pending. `measured` are the sources that were measured, as bits.
    pub(super) fn record(&mut self, now: u64, last: u64, measured: u64, lengths: &[Length; LENGTHS]) {
        for (quantity, series) in &mut self.series {
            let is_measured = measured & quantity.bit() != 0;
            series.record(now, last, is_measured, lengths);
        }
        if let Some(lists) = &mut self.lists {
            lists.record(now, last, lengths[LENGTHS - 1]);
        }
        self.begins.retain(|begin| now.saturating_sub(begin.to) < 2 * LONG);
        if self.beginning != 0 {
            self.begins.push(Begin { sources: std::mem::take(&mut self.beginning), from: last, to: now });
        }
        self.present = std::mem::take(&mut self.seen);
        self.known |= self.present;
    }

    /// Reports whether a series of these sources began in the last step of a grid, or began anew because its total began at zero again. Begins
    /// are known for twenty seconds.
    pub fn has_begun(&self, sources: Sources, grid: &Grid) -> bool {
        let end = grid.to().0;
        let overlaps = |begin: &Begin| begin.to > end.saturating_sub(grid.step) && begin.from < end;
        self.begins.iter().any(|begin| begin.sources & sources.0 != 0 && overlaps(begin))
    }

    /// Returns the labels of one of its series, with the names of its pod and container.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    fn get(&self, quantity: Quantity) -> Option<&Series> {
        let place = self.series.binary_search_by(|(of, _)| of.cmp(&quantity)).ok()?;
        self.series.get(place).map(|(_, series)| series)
    }

    fn buckets(&self, quantity: impl Fn(i8) -> Quantity) -> impl Iterator<Item = (i8, &Series)> {
        let (first, last) = (quantity(i8::MIN), quantity(i8::MAX));
        let begin = self.series.partition_point(|(of, _)| *of < first);
        // In bounds: a place of these series, which are sorted.
        let all = self.series[begin..].iter().take_while(move |(of, _)| *of <= last);
        all.filter_map(|(of, series)| match *of {
            Quantity::Runqueue(exponent) | Quantity::Block(exponent) | Quantity::Latency(_, exponent) => {
                Some((exponent, series))
            }
            _ => None,
        })
    }

    /// Returns the amount of a quantity in the last step of a grid; 0 if it is not recorded.
    pub(super) fn amount(&self, quantity: Quantity, grid: &Grid) -> f64 {
        let begin = grid.to().0.saturating_sub(grid.step);
        self.get(quantity).map_or(0.0, |series| series.sum(begin, grid).amount)
    }

    /// Adds the time in which an entry waited for the PMU, and the time in which this is known. Of several groups, the one that waits longest
    /// counts. Nothing is recorded before the first wait, so a PMU with enough counters costs no memory.
    pub(super) fn wait(
        &mut self,
        entry: u8,
        (waiting, known): (f64, f64),
        from: u64,
        lengths: &[Length; LENGTHS],
    ) {
        if waiting <= 0.0 && self.get(Quantity::Known(entry)).is_none() {
            return;
        }
        for (quantity, amount) in [(Quantity::Known(entry), known), (Quantity::Waiting(entry), waiting)] {
            self.add(quantity, 0.0, from, lengths);
            if let Some(series) = self.get_mut(quantity) {
                series.pending = series.pending.max(amount);
            }
        }
    }

    fn get_mut(&mut self, quantity: Quantity) -> Option<&mut Series> {
        let place = self.series.binary_search_by(|(of, _)| of.cmp(&quantity)).ok()?;
        self.series.get_mut(place).map(|(_, series)| series)
    }

    /// Adds an amount that happened since `from`.
    pub(super) fn add(&mut self, quantity: Quantity, amount: f64, from: u64, lengths: &[Length; LENGTHS]) {
        let place = match self.series.binary_search_by(|(of, _)| of.cmp(&quantity)) {
            Ok(place) => place,
            Err(place) => {
                self.series.insert(place, (quantity, Series::new(from, lengths)));
                place
            }
        };
        if let Some((_, series)) = self.series.get_mut(place) {
            series.pending += amount;
        }
    }

    /// Returns the values of a figure in each step; `None` where it was not measured. Returns `None` if it is not measured for this
    /// subject. `quantile` is from 0 to 1, for figures that are quantiles.
    pub fn values(&self, figure: Figure, quantile: f64, grid: &Grid) -> Option<Vec<Option<f64>>> {
        match figure.formula() {
            Formula::Rate(quantity, factor) => self.rate_of(quantity, factor, grid),
            Formula::Ratio(over, under, factor) => {
                let (over, under) = (self.get(over)?, self.get(under)?);
                let ratio = |begin| {
                    let under = under.sum(begin, grid).amount;
                    (under > 0.0).then(|| over.sum(begin, grid).amount / under * factor)
                };
                Some(grid.begins().map(ratio).collect())
            }
            Formula::Quantile(quantity) => self.quantiles_of(quantity, quantile, grid),
        }
    }

    /// Returns a quantile of a distribution in each step, in seconds; `None` where it had no values. Returns `None` if it is not measured for this
    /// subject. `quantile` is from 0 to 1.
    pub fn quantiles(&self, Times(number): Times, quantile: f64, grid: &Grid) -> Option<Vec<Option<f64>>> {
        self.quantiles_of(|exponent| Quantity::Latency(number, exponent), quantile, grid)
    }

    /// Returns the number of values of a distribution per second, in the last step of a grid.
    pub fn times_per_second(&self, Times(number): Times, grid: &Grid) -> f64 {
        let begin = grid.to().0.saturating_sub(grid.step);
        let of = |(_, series): (i8, &Series)| series.sum(begin, grid).amount;
        let all: f64 = self.buckets(|exponent| Quantity::Latency(number, exponent)).map(of).sum();
        all * 1000.0 / grid.step as f64
    }

    fn quantiles_of(
        &self,
        quantity: impl Fn(i8) -> Quantity,
        quantile: f64,
        grid: &Grid,
    ) -> Option<Vec<Option<f64>>> {
        let all: Vec<(i8, &Series)> = self.buckets(quantity).collect();
        if all.is_empty() {
            return None;
        }
        let of_step = |begin| {
            let counts = all.iter().map(|(exponent, series)| (*exponent, series.sum(begin, grid).amount));
            quantile_of(&counts.collect::<Vec<_>>(), quantile)
        };
        Some(grid.begins().map(of_step).collect())
    }

    /// Returns a rate in each step; `None` where it was not measured. Returns `None` if it is not measured for this subject.
    pub fn rates(&self, rate: Rate, grid: &Grid) -> Option<Vec<Option<f64>>> {
        let (quantity, factor) = rate.quantity();
        self.rate_of(quantity, factor, grid)
    }

    fn rate_of(&self, quantity: Quantity, factor: f64, grid: &Grid) -> Option<Vec<Option<f64>>> {
        let series = self.get(quantity)?;
        let rate = |begin| {
            let Sum { amount, time } = series.sum(begin, grid);
            (time > 0).then(|| amount * factor * 1000.0 / time as f64)
        };
        Some(grid.begins().map(rate).collect())
    }

    /// Reports whether a figure is measured for this subject.
    pub fn measures(&self, figure: Figure) -> bool {
        match figure.formula() {
            Formula::Rate(quantity, _) => self.get(quantity).is_some(),
            Formula::Ratio(over, under, _) => self.get(over).is_some() && self.get(under).is_some(),
            Formula::Quantile(quantity) => self.buckets(quantity).next().is_some(),
        }
    }

    /// Returns the value of a figure over the whole range.
    pub fn value(&self, figure: Figure, quantile: f64, grid: &Grid) -> Option<f64> {
        self.values(figure, quantile, &grid.whole())?.pop().flatten()
    }

    /// Returns its lists over a range of [`History::list_range`](super::History::list_range).
    pub fn lists(&self, range: &Grid) -> Vec<Listed> {
        self.lists.as_ref().map_or_else(Vec::new, |lists| lists.over(range, LONG))
    }

    /// Returns the time from which on its lists are complete: zero if nothing was dropped. `None` if they are not recorded, because the memory is
    /// used up.
    pub fn lists_since(&self) -> Option<Timestamp> {
        self.lists.as_ref().map(Lists::since)
    }

    /// Returns the activity by which subjects are forgotten: CPU time and switches in the last five minutes.
    pub(super) fn activity(&self) -> f64 {
        let of = |quantity| self.get(quantity).map_or(0.0, Series::recent);
        // A switch counts as a microsecond.
        of(Quantity::Cpu) + of(Quantity::Switches)
    }

    /// Reports whether nothing happened in the recorded time.
    pub(super) fn is_idle(&self) -> bool {
        self.series.iter().all(|(_, series)| series.is_zero())
            && self.lists.as_ref().is_none_or(Lists::is_idle)
    }

    pub(super) fn bytes(&self) -> usize {
        let series = self.series.iter().map(|(_, series)| series.bytes()).sum::<usize>();
        let lists = self.lists.as_ref().map_or(0, Lists::bytes);
        let begins = self.begins.capacity() * size_of::<Begin>();
        size_of::<Self>() + begins + self.series.capacity() * size_of::<(Quantity, Series)>() + series + lists
    }
}
