//! Comparison of two plans: which counters of a new plan continue counters of the previous one, although their entries changed.

use std::sync::Arc;

use super::stream::Set;
use super::{Counter, Group, Stream};
use crate::event::{Event, Kind};

impl Counter {
    /// Reports whether both count the same event under the same name.
    fn continues(&self, old: &Self) -> bool {
        self.metric.name() == old.metric.name()
            && self.event.scale == old.event.scale
            && self.event.counts_as(&old.event)
    }
}

impl Group {
    /// Returns for each counter the index of the counter of `old` whose totals it continues. `None` if there is none: the event was added, or
    /// the series of `old` have other labels.
    pub fn continued(&self, old: &Self) -> Vec<Option<usize>> {
        let same_labels = self.pmu == old.pmu
            && self.event == old.event
            && self.scope() == old.scope()
            && self.targets.has_series_of(&old.targets);
        let place =
            |counter: &Counter| old.counters.iter().position(|old| same_labels && counter.continues(old));
        self.counters.iter().map(place).collect()
    }

    /// Reports whether an open group of `old` can serve as this one after members are closed or added. `continued` is the result of
    /// [`continued`](Self::continued). Only the leader of a group can be pinned or exclusive, so such a group is opened again.
    pub fn can_reuse(&self, old: &Self, continued: &[Option<usize>]) -> bool {
        let is_plain = |counter: &Counter| {
            let modifiers = counter.event.modifiers;
            !modifiers.pinned && !modifiers.exclusive
        };
        let mut same =
            self.counters.iter().zip(continued).filter_map(|(new, &at)| Some((new, old.counters.get(at?)?)));
        self.entry == old.entry
            && self.weak == old.weak
            && self.counters.iter().chain(&old.counters).all(is_plain)
            && same.all(|(new, old)| new.event.modifiers == old.event.modifiers)
    }
}

impl Stream {
    /// Reports whether this open stream also counts everything of `wanted`, with the same records, and in addition nothing but software
    /// events. These cost next to nothing, whereas opening the stream again would interrupt all its counts.
    pub fn covers(&self, wanted: &Self) -> bool {
        let same_records =
            (self.granularity, self.cgroup, self.timed) == (wanted.granularity, wanted.cgroup, wanted.timed);
        let is_wanted = |set: &Set| wanted.sets.iter().any(|wanted| wanted.counts_as(set));
        same_records
            && wanted.sets.iter().all(|set| self.sets.iter().any(|open| open.contains(set)))
            && self.sets.iter().all(|set| set.is_software() || is_wanted(set))
    }

    /// Replaces the names of the entries that it counts by those of `wanted`, which it covers.
    pub fn set_entries(&mut self, wanted: &Self) {
        for set in &mut self.sets {
            set.entries.clear();
        }
        for wanted in &wanted.sets {
            let Some(set) = self.sets.iter_mut().find(|set| set.contains(wanted)) else { continue };
            let new: Vec<Arc<str>> =
                wanted.entries.iter().filter(|entry| !set.entries.contains(entry)).cloned().collect();
            set.entries.extend(new);
        }
    }
}

impl Set {
    fn contains(&self, other: &Self) -> bool {
        other.events.iter().all(|event| self.events.iter().any(|own| own.counts_as(event)))
    }

    fn counts_as(&self, other: &Self) -> bool {
        self.events.len() == other.events.len() && self.contains(other)
    }

    fn is_software(&self) -> bool {
        self.events.iter().all(|event: &Event| event.kind == Kind::Software)
    }
}
