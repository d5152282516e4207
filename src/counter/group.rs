//! A planned group with descriptors for every target: the lifecycle of targets, and the series that receive their counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use super::busy::Busy;
use super::core_times::{CoreTimes, is_of_one_type};
use super::counts::{Base, SeriesTable};
use super::slots::{Change, Counted, Outcome, Slots, Work};
use super::subject::{Key, Subject};
use crate::clock::Monotonic;
use crate::health::Verdict;
use crate::host::{CpuSet, KernelVersion};
use crate::plan::Group;
use crate::series::SeriesId;
use crate::sys::Kernel;
use crate::targets::Targets;

/// A target that is being counted.
#[derive(Debug)]
struct Target<K: Kernel> {
    subject: Subject,
    slots: Slots<K>,
    series: SeriesId,
    /// The nearest cgroup above that is also counted; its counts include those of this one.
    parent: Option<Key>,
    tallies: Box<[Tally]>,
}

/// Counts of one counter of one target.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Whether it waits for the PMU in at least one instance, in this collection.
    waits: bool,
    /// Count since the last settlement.
    fresh: u64,
    /// Count so far, including cgroups below this one.
    inclusive: u64,
    /// The part of `inclusive` that is in the series of a cgroup below.
    below: u64,
    /// The count that has been added to this target's series so far.
    charged: u64,
}

/// A target that is selected but not counted.
#[derive(Debug)]
struct UncountedTarget<K: Kernel> {
    subject: Subject,
    slots: Slots<K>,
    /// Whether to retry it, for example because no descriptor was left.
    again: bool,
}

/// A planned group and all its open events.
#[derive(Debug)]
pub(super) struct GroupCounter<K: Kernel> {
    pub base: Base,
    targets: BTreeMap<Key, Target<K>>,
    left: BTreeMap<Key, UncountedTarget<K>>,
}

impl<K: Kernel> GroupCounter<K> {
    /// Returns a group without open events.
    pub(super) fn new(base: Base) -> Self {
        Self { base, targets: BTreeMap::new(), left: BTreeMap::new() }
    }

    /// Adds the counts so far to the series of the previous plan.
    pub(super) fn settle_all(&mut self) {
        for target in self.targets.values_mut() {
            target.take_counts(&self.base.plan, &mut self.base.series);
        }
        self.settle();
    }

    /// Continues the targets of a group of the previous plan, whose counts were [settled](Self::settle_all). Targets that are no longer
    /// selected are closed, and those that could not be opened are tried again.
    pub(super) fn resume(
        base: Base,
        old: &mut Self,
        continued: &[Option<usize>],
        context: &mut Context<'_, K>,
    ) -> Self {
        let (plan, old_plan) = (Arc::clone(&base.plan), Arc::clone(&old.base.plan));
        let change = Change { old: &old_plan, new: &plan, continued };
        let mut counter = Self::new(base);
        counter.base.online.clone_from(&old.base.online);
        for target in std::mem::take(&mut old.targets).into_values() {
            if counter.base.selects(&target.subject) {
                counter.resume_target(target, change, context);
            } else {
                target.slots.close(context);
            }
        }
        std::mem::take(&mut old.left).into_values().for_each(|left| left.slots.close(context));
        counter
    }

    fn resume_target(&mut self, target: Target<K>, change: Change<'_>, context: &mut Context<'_, K>) {
        let Target { subject, slots, tallies: old, .. } = target;
        let continued = |place: &Option<usize>| place.and_then(|place| old.get(place).copied());
        let mut tallies: Box<[Tally]> =
            change.continued.iter().map(|place| continued(place).unwrap_or_default()).collect();
        let (slots, outcome) = slots.change(
            change,
            (&subject, &self.base.online),
            context,
            |Counted { counter, count, verdict, .. }| {
                let tally = tallies.get_mut(counter).filter(|_| verdict.has_count());
                tally.into_iter().for_each(|tally| tally.fresh = tally.fresh.saturating_add(count));
            },
        );
        self.store(subject, (slots, outcome), tallies, context);
    }

    /// Finds the nearest counted cgroup above each target again, after targets were added and removed in any order.
    pub(super) fn find_parents(&mut self) {
        let parents: Vec<Option<Key>> =
            self.targets.values().map(|target| self.parent_of(&target.subject)).collect();
        self.targets.values_mut().zip(parents).for_each(|(target, parent)| target.parent = parent);
    }

    /// Updates the online CPUs: opens events on CPUs that came online, and reads those of CPUs that went offline a last time.
    pub(super) fn set_online(&mut self, online: &CpuSet, context: &mut Context<'_, K>) {
        let (gone, come) = self.base.set_online(online);
        if gone.is_empty() && come.is_empty() {
            return;
        }
        match self.base.plan.targets {
            Targets::Cpus(_) => {
                let gone: Vec<Key> = gone.into_iter().map(Key::Cpu).collect();
                self.remove(&gone, context);
                for cpu in come {
                    self.add(Subject::Cpu(context.means.facts.nodes.cpu(cpu)), context);
                }
            }
            Targets::Cgroups(_) => {
                for target in self.targets.values_mut() {
                    target.take_counts(&self.base.plan, &mut self.base.series);
                    target.slots.retain(|cpu| self.base.online.contains(cpu), context);
                    target.slots.open(&self.base.plan, &target.subject, &self.base.online, context);
                }
            }
            Targets::Processes(_) => {}
        }
    }

    /// Starts to count a target, if the group selects it.
    pub(super) fn add(&mut self, subject: Subject, context: &mut Context<'_, K>) {
        let key = subject.key();
        if self.targets.contains_key(&key) || self.left.contains_key(&key) || !self.base.selects(&subject) {
            return;
        }
        let mut slots = Slots::default();
        let outcome = slots.open(&self.base.plan, &subject, &self.base.online, context);
        let tallies = vec![Tally::default(); self.base.plan.counters.len()].into();
        self.store(subject, (slots, outcome), tallies, context);
    }

    /// Stores a target by the `outcome` of opening its counters. If they are open, adds it to its series.
    fn store(
        &mut self,
        subject: Subject,
        (slots, outcome): (Slots<K>, Outcome),
        tallies: Box<[Tally]>,
        context: &mut Context<'_, K>,
    ) {
        let key = subject.key();
        match outcome {
            Outcome::Counted => {
                let series = self.base.enter(&subject, context.monotonic);
                let parent = self.parent_of(&subject);
                self.base.know_path(&subject);
                self.targets.insert(key, Target { subject, slots, series, parent, tallies });
            }
            Outcome::Gone => slots.close(context),
            Outcome::Refused | Outcome::NoRoom => {
                let again = outcome == Outcome::NoRoom;
                self.left.insert(key, UncountedTarget { subject, slots, again });
            }
        }
    }

    /// Stops counting targets that are gone, after adding their last counts to their series. Targets that are removed together are settled
    /// together. Otherwise the last counts of a cgroup would also be added to the series of the cgroup above.
    pub(super) fn remove(&mut self, keys: &[Key], context: &mut Context<'_, K>) {
        for key in keys {
            if let Some(left) = self.left.remove(key) {
                left.slots.close(context);
            }
            if let Some(target) = self.targets.get_mut(key) {
                target.take_counts(&self.base.plan, &mut self.base.series);
            }
        }
        self.settle();
        for key in keys {
            let Some(target) = self.targets.remove(key) else { continue };
            self.base.forget_path(&target.subject);
            self.base.series.leave(target.series, context.monotonic);
            target.slots.close(context);
        }
    }

    /// Updates a target whose name changed, for example a process after `execve`. Counts so far stay in their current series.
    pub(super) fn change(&mut self, subject: Subject, context: &mut Context<'_, K>) {
        let key = subject.key();
        if !self.base.selects(&subject) || !self.targets.contains_key(&key) {
            self.remove(&[key], context);
            self.add(subject, context);
            return;
        }
        let to = self.base.enter(&subject, context.monotonic);
        self.move_to(key, to, context.monotonic);
        let Some(target) = self.targets.get_mut(&key) else { return };
        let before = std::mem::replace(&mut target.subject, subject.clone());
        self.base.forget_path(&before);
        self.base.know_path(&subject);
    }

    /// Retries rejected names of processes. Counts so far stay in their current series.
    pub(super) fn name_again(&mut self, context: &Context<'_, K>) {
        let monotonic = context.monotonic;
        let mut named = Vec::new();
        for (&key, target) in &self.targets {
            let to = self.base.enter_again(target.series, &target.subject, monotonic);
            named.extend(to.map(|to| (key, to)));
        }
        named.into_iter().for_each(|(key, to)| self.move_to(key, to, monotonic));
    }

    /// Moves a target to a series that it was already added to.
    fn move_to(&mut self, key: Key, to: SeriesId, monotonic: Monotonic) {
        if let Some(target) = self.targets.get_mut(&key) {
            target.take_counts(&self.base.plan, &mut self.base.series);
        }
        self.settle();
        let Some(target) = self.targets.get_mut(&key) else { return };
        let from = std::mem::replace(&mut target.series, to);
        self.base.series.leave(from, monotonic);
    }

    /// Marks all targets that could not be opened for retry.
    pub(super) fn retry_refused(&mut self) {
        self.left.values_mut().for_each(|left| left.again = true);
    }

    /// Retries targets for which no descriptor was left, and looks for new threads where the kernel does not inherit events to threads
    /// only.
    pub(super) fn catch_up(&mut self, context: &mut Context<'_, K>) {
        let again: Vec<Key> = self.left.iter().filter(|(_, left)| left.again).map(|(&key, _)| key).collect();
        for key in again {
            if !context.means.budget.has_room_for(self.base.plan.descriptors_per_target(&self.base.online)) {
                break;
            }
            let Some(left) = self.left.remove(&key) else { continue };
            left.slots.close(context);
            self.add(left.subject, context);
        }
        if context.means.facts.kernel < KernelVersion(5, 13) {
            self.follow_threads(context);
        }
    }

    /// Opens new threads and closes threads that ended. Newer kernels do this by inheritance.
    fn follow_threads(&mut self, context: &mut Context<'_, K>) {
        for target in self.targets.values_mut() {
            let Subject::Process(process) = &target.subject else { continue };
            let Ok(threads) = context.targets.threads(process.key) else { continue };
            target.take_counts(&self.base.plan, &mut self.base.series);
            target.slots.retain(|tid| threads.binary_search(&tid).is_ok(), context);
            target.slots.open(&self.base.plan, &target.subject, &self.base.online, context);
        }
    }

    /// Adds the times of the threads since the previous collection, if the group counts them on one type of core.
    pub(super) fn add_times(&self, times: &mut CoreTimes) {
        if matches!(self.base.plan.targets, Targets::Processes(_)) && is_of_one_type(&self.base.plan) {
            self.targets.values().for_each(|target| target.slots.add_times(&self.base.plan, times));
        }
    }

    /// Reads every counter, and adds its count to its series. `times`: times of all threads on each type of core.
    pub(super) fn collect(&mut self, busy: &Busy, times: &CoreTimes) {
        self.base.begin_collection();
        for target in self.targets.values_mut() {
            let Some(series) = self.base.series.get_mut(target.series) else { continue };
            let series = &mut series.total;
            let work = match &target.subject {
                Subject::Cpu(cpu) => Work::Known(busy.time(cpu.number)),
                Subject::Cgroup(_) | Subject::Process(_) => Work::IsRunningTime,
            };
            let tallies = &mut target.tallies;
            // A counter is an index into the plan, and tallies and series have an entry for each: indexing cannot fail.
            target.slots.read(&self.base.plan, work, times, |counted| {
                let (counter, verdict) = (counted.counter, counted.verdict);
                *self.base.states.entry((counter, verdict)).or_default() += 1;
                tallies[counter].waits |= verdict == Verdict::NeverRan;
                if verdict.has_count() {
                    series.counters[counter].counted = true;
                    tallies[counter].fresh = tallies[counter].fresh.saturating_add(counted.count);
                } else if verdict != Verdict::NeverRan {
                    series.counters[counter].doubted = true;
                }
                if let Some(interval) = counted.interval {
                    series.interval += interval;
                }
            });
            for (count, tally) in series.counters.iter_mut().zip(tallies) {
                // Zeros of other instances, and from before it waited, do not indicate how much it missed.
                let waits = std::mem::take(&mut tally.waits);
                count.doubted |= waits && tally.fresh == 0 && tally.inclusive == 0;
            }
        }
        self.settle();
        self.base.note_activity();
    }

    /// Returns the number of targets that are counted.
    pub(super) fn counted(&self) -> usize {
        self.targets.len()
    }

    /// Returns the number of targets that are selected but not counted.
    pub(super) fn left_out(&self) -> usize {
        self.left.len()
    }

    /// Closes all events, and releases their descriptors and tickets.
    pub(super) fn close_targets(&mut self, context: &mut Context<'_, K>) {
        std::mem::take(&mut self.targets).into_values().for_each(|target| target.slots.close(context));
        std::mem::take(&mut self.left).into_values().for_each(|left| left.slots.close(context));
    }

    /// Adds the counts since the previous call to the series, each count once. Counts of a cgroup with a series of its own are not added
    /// to that of its parent.
    ///
    /// Parent and child are not read at the same instant, so a child may be ahead of its parent for one collection. The parent's own count
    /// then stays constant until its total has caught up: it never falls, and no count is lost.
    fn settle(&mut self) {
        let mut shares: Vec<(Key, Vec<u64>)> = Vec::new();
        for target in self.targets.values_mut() {
            if let Some(parent) = target.parent
                && target.tallies.iter().any(|tally| tally.fresh > 0)
            {
                shares.push((parent, target.tallies.iter().map(|tally| tally.fresh).collect()));
            }
            for tally in &mut target.tallies {
                tally.inclusive = tally.inclusive.saturating_add(std::mem::take(&mut tally.fresh));
            }
        }
        for (parent, share) in shares {
            let Some(parent) = self.targets.get_mut(&parent) else { continue };
            for (tally, below) in parent.tallies.iter_mut().zip(share) {
                tally.below = tally.below.saturating_add(below);
            }
        }
        for target in self.targets.values_mut() {
            let Some(series) = self.base.series.get_mut(target.series) else { continue };
            for (total, tally) in series.total.totals_mut().zip(&mut target.tallies) {
                let own = tally.inclusive.saturating_sub(tally.below);
                *total = total.saturating_add(own.saturating_sub(tally.charged));
                tally.charged = tally.charged.max(own);
            }
        }
    }

    /// Returns the nearest cgroup above that this group also counts; `None` if counts are to include descendants.
    fn parent_of(&self, subject: &Subject) -> Option<Key> {
        match (&self.base.plan.targets, subject) {
            (Targets::Cgroups(selection), Subject::Cgroup(cgroup)) if !selection.descendants => {
                self.base.above(&cgroup.path).next()
            }
            _ => None,
        }
    }
}

impl<K: Kernel> Target<K> {
    /// Adds the counts to the tallies, and marks the counters as counted in their series. Passes no work to judge the counts by: this is
    /// for reads between two collections, of targets that change or end.
    fn take_counts(&mut self, plan: &Group, series: &mut SeriesTable) {
        let (tallies, mut series) = (&mut self.tallies, series.get_mut(self.series));
        self.slots.read(
            plan,
            Work::Known(None),
            &CoreTimes::default(),
            |Counted { counter, count, verdict, .. }| {
                if !verdict.has_count() {
                    return;
                }
                // As in `collect`, indexing cannot fail.
                tallies[counter].fresh = tallies[counter].fresh.saturating_add(count);
                if let Some(series) = &mut series {
                    series.total.counters[counter].counted = true;
                }
            },
        );
    }
}
