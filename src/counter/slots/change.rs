//! Continuation of the open events of a target when the members of its group change.

use super::super::Context;
use super::super::core_times::CoreTimes;
use super::super::subject::Subject;
use super::{Counted, Outcome, Slots, Work, start};
use crate::host::CpuSet;
use crate::plan::Group;
use crate::sys::Kernel;
use crate::targets::Targets;

/// A group of the previous plan, and the group that continues it.
#[derive(Debug, Clone, Copy)]
pub(in crate::counter) struct Change<'a> {
    pub old: &'a Group,
    pub new: &'a Group,
    /// For each counter of the new group: its place in the old group; `None` if the event was added.
    pub continued: &'a [Option<usize>],
}

impl Change<'_> {
    /// Returns the place in the new group of a counter of the old group; `None` if the event was removed.
    pub(in crate::counter) fn new_place(&self, old: usize) -> Option<usize> {
        self.continued.iter().position(|&place| place == Some(old))
    }

    /// Returns the places of the counters that were added.
    fn added(&self) -> Vec<usize> {
        (0..self.continued.len()).filter(|&place| self.continued[place].is_none()).collect()
    }
}

impl<K: Kernel> Slots<K> {
    /// Continues with the events of the new group. Members that are in both groups stay open where the kernel allows it. Otherwise the
    /// group is opened again. It then starts right after the old one was stopped, so that no count is added twice. `report` receives the
    /// last counts of the old group, by their places in the new group. Call it after a [`read`](Self::read).
    pub(in crate::counter) fn change(
        mut self,
        change: Change<'_>,
        (subject, online): (&Subject, &CpuSet),
        context: &mut Context<'_, K>,
        report: impl FnMut(Counted),
    ) -> (Self, Outcome) {
        if self.can_stay(change) {
            self.close_removed(change, context);
            self.open_added(change, (subject, online), context);
            (self, Outcome::Counted)
        } else {
            self.open_again(change, (subject, online), context, report)
        }
    }

    /// Reports whether the members that are in both groups can stay open. Events are added as groups of their own, which is the same for
    /// events that never wait for a PMU. A leader cannot be removed from its group, and neither can a member whose threads inherited it.
    fn can_stay(&self, change: Change<'_>) -> bool {
        let Change { old, new, continued } = change;
        let inherits = matches!(new.targets, Targets::Processes(_));
        let keeps_leader = |counters: &[usize]| {
            let mut stay = counters.iter().map(|&counter| change.new_place(counter).is_some());
            let leader = stay.next() == Some(true);
            if inherits || !leader { stay.all(|stays| stays == leader) } else { true }
        };
        new.can_reuse(old, continued)
            && self.refused.is_empty()
            && !self.places.is_empty()
            && (change.added().is_empty() || !new.needs_pmu())
            && self.places.values().flatten().all(|bundle| keeps_leader(&bundle.counters))
    }

    fn close_removed(&mut self, change: Change<'_>, context: &mut Context<'_, K>) {
        let mut closed = 0;
        self.places.retain(|_, bundles| {
            bundles.retain_mut(|bundle| {
                let stays = bundle.counters.first().is_some_and(|&leader| change.new_place(leader).is_some());
                closed += match stays {
                    true => bundle.retain_members(|counter| change.new_place(counter)),
                    false => bundle.counters.len(),
                };
                stays
            });
            !bundles.is_empty()
        });
        context.means.budget.give_back(closed);
    }

    fn open_added(
        &mut self,
        change: Change<'_>,
        (subject, online): (&Subject, &CpuSet),
        context: &mut Context<'_, K>,
    ) {
        let added = change.added();
        if added.is_empty() {
            return;
        }
        let counters = added.iter().filter_map(|&place| change.new.counters.get(place).cloned());
        let group = Group { counters: counters.collect(), ..change.new.clone() };
        let mut slots = Self::default();
        slots.open(&group, subject, online, context);
        for (place, mut bundles) in slots.places {
            for counter in bundles.iter_mut().flat_map(|bundle| &mut bundle.counters) {
                *counter = added.get(*counter).copied().unwrap_or_default();
            }
            self.places.entry(place).or_default().append(&mut bundles);
        }
        self.refused.append(&mut slots.refused);
    }

    fn open_again(
        mut self,
        change: Change<'_>,
        (subject, online): (&Subject, &CpuSet),
        context: &mut Context<'_, K>,
        mut report: impl FnMut(Counted),
    ) -> (Self, Outcome) {
        let mut last = |slots: &mut Self| {
            slots.places.values().flatten().for_each(|bundle| {
                if let Err(errno) = bundle.stop() {
                    tracing::debug!(entry = &*change.old.entry, %errno, "cannot stop a group");
                }
            });
            slots.read(change.old, Work::Known(None), &CoreTimes::default(), |counted| {
                let place = change.new_place(counted.counter);
                place.into_iter().for_each(|counter| report(Counted { counter, ..counted }));
            });
        };
        let room_for_both = context.means.budget.has_room_for(self.places.len() * change.new.counters.len());
        if !room_for_both {
            last(&mut self);
            std::mem::take(&mut self).close(context);
        }
        let mut new = Self { start_later: true, ..Self::default() };
        let outcome = new.open(change.new, subject, online, context);
        last(&mut self);
        start(change.new, new.places.values().flatten());
        new.start_later = false;
        self.close(context);
        (new, outcome)
    }
}
