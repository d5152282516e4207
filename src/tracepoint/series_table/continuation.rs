//! Continuation of the series of entries that changed.

use std::sync::Arc;

use super::{Page, SeriesTable};
use crate::clock::Timestamp;
use crate::metrics::Metadata;
use crate::plan::{Feed, Output, Trace};
use crate::tracepoint::aggregate::Dropped;

impl SeriesTable {
    /// Returns the series table of a trace that is not among the `old` ones. Its outputs continue the totals of outputs of `old` that have
    /// the same metrics and labels and count the same events.
    pub(in crate::tracepoint) fn continued(
        trace: &Arc<Trace>,
        old: &mut [Self],
        limit: usize,
        now: Timestamp,
    ) -> Self {
        let mut new = Self::new(Arc::clone(trace), limit, now);
        for (output, page) in trace.outputs.iter().zip(&mut new.pages) {
            let found = old.iter_mut().find_map(|table| Some((table.place_of(output, trace)?, table)));
            let Some((place, table)) = found else { continue };
            let Some(from) = table.pages.get_mut(place) else { continue };
            std::mem::swap(page, from);
            page.series.set_limit(limit);
            page.remove_events(&table.trace, trace);
        }
        let same_entry = |table: &&Self| {
            (table.trace.kind, &table.trace.entry, fact_of(&table.trace))
                == (trace.kind, &trace.entry, fact_of(trace))
        };
        if let Some(table) = old.iter().find(same_entry) {
            (new.start, new.earlier) = (table.start, (table.unpaired.clone(), table.dropped));
            new.note_losses(Vec::new(), Dropped::default());
        }
        new
    }

    /// Returns the place of the output that `output` of `trace` continues.
    fn place_of(&self, output: &Output, trace: &Trace) -> Option<usize> {
        let name = |metric: &Option<Arc<Metadata>>| metric.as_ref().map(|metric| metric.name().to_owned());
        let same = |old: &Output| {
            (name(&old.hits), name(&old.amount)) == (name(&output.hits), name(&output.amount))
                && output.targets.has_series_of(&old.targets)
        };
        let old = &self.trace;
        let same_series = (&old.labels, old.event_label, &old.measure)
            == (&trace.labels, trace.event_label, &trace.measure);
        let place = old.outputs.iter().position(same);
        place.filter(|_| same_series && counts_the_same(old, trace))
    }

    /// Updates the numbers of unpaired events and of dropped hits, as counted since the entry changed.
    pub(super) fn note_losses(&mut self, unpaired: Vec<(&'static str, u64)>, dropped: Dropped) {
        let (earlier, before) = &self.earlier;
        self.unpaired.clone_from(earlier);
        for (reason, count) in unpaired {
            match self.unpaired.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, total)) => *total = total.saturating_add(count),
                None => self.unpaired.push((reason, count)),
            }
        }
        self.dropped = Dropped {
            short: before.short.saturating_add(dropped.short),
            negative: before.negative.saturating_add(dropped.negative),
        };
    }
}

impl Page {
    /// Removes the series of events that only the old trace has.
    fn remove_events(&mut self, old: &Trace, new: &Trace) {
        let gone = |name: &Arc<str>| {
            let is = |trace: &Trace| trace.sources.iter().any(|source| source.event.name == *name);
            is(old) && !is(new)
        };
        if old.event_label {
            self.series.remove_where(|series| {
                series.labels().get("event").is_some_and(|event| gone(&Arc::from(event)))
            });
        }
    }
}

/// Reports whether the events of both traces are equal, or whether those with the same label are.
fn counts_the_same(old: &Trace, new: &Trace) -> bool {
    if fact_of(old) != fact_of(new) {
        return false;
    }
    if new.follows.is_some() && old.follows == new.follows {
        // The calls in the containers that match, whichever exist.
        return old.pair.is_some() == new.pair.is_some();
    }
    match (new.feed, new.event_label) {
        // Facts about threads do not depend on which of them are observed.
        (Feed::Tasks(..), _) => true,
        (Feed::Records, false) => old.sources == new.sources && old.pair.is_some() == new.pair.is_some(),
        (Feed::Records, true) => new.sources.iter().all(|source| {
            let known = old.sources.iter().find(|old| old.event.name == source.event.name);
            known.is_none_or(|old| old == source)
        }),
    }
}

fn fact_of(trace: &Trace) -> Option<crate::plan::Fact> {
    match trace.feed {
        Feed::Records => None,
        Feed::Tasks(fact, _) => Some(fact),
    }
}
