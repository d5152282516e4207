//! Transition to another plan: each counter of the new plan continues the totals and the events of the previous plan that count the same.

use std::sync::Arc;

use super::attributed::{AttributedGroup, Rest, RestByReason};
use super::counting::Counting;
use super::counts::{Base, Counts, SeriesTable, empty_table};
use super::group::GroupCounter;
use super::stream::{self, Refused, Stream};
use super::{Collector, subjects_of};
use crate::plan::{Group, Plan, Source};
use crate::sys::Kernel;
use crate::targets::Watch;

/// A group of the previous plan that is not in the new one.
struct Previous<K: Kernel> {
    counting: Counting<K>,
    /// Number of groups of the new plan that continue its totals and are not made yet.
    successors: usize,
}

/// The part of a new group that continues a previous group.
struct Origin {
    /// Index of the previous group.
    previous: usize,
    /// For each counter of the new group: its place in the previous group.
    places: Vec<Option<usize>>,
}

/// Returns the previous groups that a new group continues, first the one with the most counters.
fn origins<K: Kernel>(group: &Group, all: &[Previous<K>]) -> Vec<Origin> {
    let places = all.iter().map(|previous| group.continued(&previous.counting.base().plan));
    let mut origins: Vec<Origin> = places
        .enumerate()
        .map(|(previous, places)| Origin { previous, places })
        .filter(|origin| origin.places.iter().any(Option::is_some))
        .collect();
    origins.sort_by_key(|origin| origin.places.iter().filter(|place| place.is_none()).count());
    origins
}

impl<K: Kernel> Previous<K> {
    /// Returns its series and its counts outside of series, for one of its successors.
    fn give(&mut self, empty: SeriesTable) -> (SeriesTable, RestByReason) {
        self.successors = self.successors.saturating_sub(1);
        let rest = self.counting.attributed().map(|group| group.rest().clone()).unwrap_or_default();
        let series = &mut self.counting.base_mut().series;
        let given = if self.successors == 0 { std::mem::replace(series, empty) } else { series.clone() };
        (given, rest)
    }
}

impl<K: Kernel> Collector<K> {
    /// Replaces the groups by those of `plan`.
    pub(super) fn replace_groups(&mut self, plan: &Plan, limit: usize, targets: &Watch) {
        let stays = |counting: &Counting<K>| plan.groups.iter().any(|group| **group == *counting.base().plan);
        let (mut kept, changed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.groups).into_iter().partition(stays);
        let mut previous: Vec<Previous<K>> =
            changed.into_iter().map(|counting| Previous { counting, successors: 0 }).collect();
        let mut new = Vec::new();
        for group in &plan.groups {
            let same = kept.iter().position(|counting| *counting.base().plan == **group);
            let same = same.map(|at| kept.swap_remove(at));
            let origins = if same.is_some() { Vec::new() } else { origins(group, &previous) };
            origins.iter().for_each(|origin| previous[origin.previous].successors += 1);
            new.push((group, same, origins));
        }
        self.settle(&mut previous, targets);
        for (group, same, origins) in new {
            let counting = match same {
                Some(mut counting) => {
                    counting.base_mut().series.set_limit(limit);
                    counting
                }
                None => self.begin(group, plan, (&origins, &mut previous), limit, targets),
            };
            self.groups.push(counting);
        }
        let context = &mut self.context(targets);
        previous.into_iter().for_each(|previous| previous.counting.close(context));
    }

    /// Adds the last counts to the groups that are continued, and closes the events of the others, whose descriptors are free then.
    fn settle(&mut self, previous: &mut [Previous<K>], targets: &Watch) {
        let context = &mut self.context(targets);
        for Previous { counting, successors } in previous {
            if let Counting::Dedicated(counter) = counting {
                match successors {
                    0 => counter.close_targets(context),
                    _ => counter.settle_all(),
                }
            }
        }
    }

    /// Starts to count a group, which continues its origins among the previous groups.
    fn begin(
        &mut self,
        group: &Arc<Group>,
        plan: &Plan,
        (origins, previous): (&[Origin], &mut [Previous<K>]),
        limit: usize,
        targets: &Watch,
    ) -> Counting<K> {
        let (series, rest) = self.continued(group, (origins, previous), limit);
        let base = Base::new(Arc::clone(group), series);
        let monotonic = self.clock.monotonic();
        let stream = self.stream.as_ref().map(|stream| &stream.plan).or(plan.stream.as_ref());
        let numbers = stream.and_then(|stream| stream.counters_of(group));
        let subjects = subjects_of(group, targets).into_iter();
        if let (Source::Stream, Some(numbers)) = (group.source, numbers) {
            let mut attributed = AttributedGroup::new(base, numbers, rest);
            attributed.set_online(targets.online(), &self.facts.nodes, monotonic);
            subjects.for_each(|subject| attributed.add(subject, monotonic));
            return Counting::Attributed(attributed);
        }
        let context = &mut self.context(targets);
        let first =
            origins.first().and_then(|origin| Some((previous.get_mut(origin.previous)?, &origin.places)));
        let mut counter = match first {
            Some((Previous { counting: Counting::Dedicated(old), .. }, places)) => {
                GroupCounter::resume(base, old, places, context)
            }
            _ => GroupCounter::new(base),
        };
        counter.set_online(targets.online(), context);
        subjects.for_each(|subject| counter.add(subject, context));
        counter.find_parents();
        Counting::Dedicated(counter)
    }

    /// Returns the series of a group, and its counts outside of series, with the totals of its origins.
    fn continued(
        &self,
        group: &Group,
        (origins, previous): (&[Origin], &mut [Previous<K>]),
        limit: usize,
    ) -> (SeriesTable, RestByReason) {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut series: Option<SeriesTable> = None;
        let mut rest = RestByReason::new();
        for Origin { previous: at, places } in origins {
            let Some(previous) = previous.get_mut(*at) else { continue };
            let (mut table, of_previous) = previous.give(empty_table(group, limit, now));
            Rest::continue_all(&mut rest, group, of_previous, places, now);
            table.remove_targets(monotonic);
            if let Some(series) = &mut series {
                series.merge(table, monotonic, |(to, start), from| to.add_counters(start, from, places));
            } else {
                table.convert(Counts::new(group), |counts| counts.continued(group, places, now));
                series = Some(table);
            }
        }
        let mut series = series.unwrap_or_else(|| empty_table(group, limit, now));
        series.set_limit(limit);
        series.set_names(self.names);
        (series, rest)
    }

    /// Replaces the open stream by that of `plan`, unless it already counts the same events. Its counts so far are added to the groups so
    /// far. Returns the events that could not be opened. A stream where there was none is opened later.
    pub(super) fn replace_stream(&mut self, plan: &Plan, ring_memory: u64, targets: &Watch) -> Vec<Refused> {
        let Some(wanted) = &plan.stream else {
            self.close_stream();
            return Vec::new();
        };
        self.collect_stream();
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let retries = !self.stream_refused.is_empty();
        if stream.plan == *wanted || stream.plan.covers(wanted) && !retries {
            stream.plan.set_entries(wanted);
            stream.set_ring_memory(ring_memory);
            return Vec::new();
        }
        let rate = stream::switch_rate(&self.roots, targets.online().len());
        let new = Stream::new(wanted.clone(), rate, ring_memory);
        let old = self.stream.replace(new);
        self.describe_to_stream(targets);
        let (Some(mut old), (Some(new), mut means)) = (old, self.streaming()) else { return Vec::new() };
        let (refused, readings) = new.take_over(&mut old, targets.online(), &mut means);
        self.end_stream(old, readings);
        refused
    }
}
