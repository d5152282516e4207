//! The busiest subjects by a figure, and the largest changes of figures.

use crate::history::{Figure, Grid, History, Scope, Subject};

/// The quantile of latencies on the pages.
pub(super) const QUANTILE: f64 = 0.99;

/// Returns up to `limit` subjects with their values over the range, the largest first. Subjects without the figure are last.
pub(super) fn busiest<'h>(
    history: &'h History,
    scope: Scope,
    figure: Figure,
    grid: &Grid,
    limit: usize,
) -> Vec<(&'h str, &'h Subject, f64)> {
    let valued = |(name, subject): (&'h str, &'h Subject)| {
        (name, subject, subject.value(figure, QUANTILE, grid).unwrap_or(-1.0))
    };
    let mut all: Vec<_> = history.subjects(scope).map(valued).collect();
    let order = |one: &(&str, &Subject, f64), other: &(&str, &Subject, f64)| {
        other.2.total_cmp(&one.2).then_with(|| one.0.cmp(other.0))
    };
    if all.len() > limit {
        all.select_nth_unstable_by(limit, order);
        all.truncate(limit);
    }
    all.sort_unstable_by(order);
    all
}

/// A figure that has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change<'h> {
    pub(super) scope: Scope,
    pub(super) name: &'h str,
    pub(super) figure: Figure,
    pub(super) before: f64,
    pub(super) now: f64,
}

/// Figures that are compared, with the least difference that matters: smaller ones are noise.
const COMPARED: [(Figure, f64); 7] = [
    (Figure::Cpu, 0.05),
    (Figure::RunqueueLatency, 0.002),
    (Figure::Switches, 500.0),
    (Figure::Faults, 1000.0),
    (Figure::Forks, 20.0),
    (Figure::Calls, 5000.0),
    (Figure::Errors, 200.0),
];

/// The least factor of a change that is listed.
const FACTOR: f64 = 1.5;

/// Returns up to `limit` figures that differ the most between two ranges, the largest factor first, at most two of each subject.
pub(super) fn changes<'h>(history: &'h History, before: &Grid, now: &Grid, limit: usize) -> Vec<Change<'h>> {
    let mut all: Vec<(f64, Change<'h>)> = Vec::new();
    for scope in Scope::ALL {
        for (name, subject) in history.subjects(scope) {
            let compared = COMPARED.iter().filter_map(|&(figure, least)| {
                // What was not measured before did not happen, unless it is a quantile.
                let now = subject.value(figure, QUANTILE, now)?;
                let before = subject.value(figure, QUANTILE, before);
                let before = if figure.is_quantile() { before? } else { before.unwrap_or(0.0) };
                let (low, high) = (now.min(before), now.max(before));
                let factor = high / low.max(least / 10.0);
                let matters = high - low >= least && factor >= FACTOR;
                matters.then_some((factor, Change { scope, name, figure, before, now }))
            });
            let mut compared: Vec<_> = compared.collect();
            compared.sort_by(|one, other| other.0.total_cmp(&one.0));
            all.extend(compared.into_iter().take(2));
        }
    }
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    all.into_iter().take(limit).map(|(_, change)| change).collect()
}
