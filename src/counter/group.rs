//! One planned group, open for every target that it has: the life of targets, and where their counts go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Context;
use super::busy::Busy;
use super::counts::{self, SeriesTable};
use super::naming::{naming_of, other_labels, selects};
use super::slots::{Counted, Outcome, Slots, Work};
use super::subject::{Key, Subject};
use crate::clock::Monotonic;
use crate::health::Verdict;
use crate::host::{CpuSet, KernelVersion};
use crate::metrics::Labels;
use crate::plan::Group;
use crate::series::SeriesId;
use crate::sys::Kernel;
use crate::target::{Targets, parent_of};

/// A target that is being counted.
#[derive(Debug)]
struct Target<E> {
    subject: Subject,
    slots: Slots<E>,
    series: SeriesId,
    /// The nearest cgroup above that is counted as well, and whose counts include this one's.
    parent: Option<Key>,
    tallies: Box<[Tally]>,
}

/// One counter of one target.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Counted since the last settlement.
    fresh: u64,
    /// Counted so far, with what cgroups below this one counted.
    inclusive: u64,
    /// Of that, what has a series of its own in a cgroup below.
    below: u64,
    /// What has been added to this target's series so far.
    charged: u64,
}

/// A target that is selected and not counted.
#[derive(Debug)]
struct Left<E> {
    subject: Subject,
    slots: Slots<E>,
    /// It found no descriptor, and is tried again when there is one.
    again: bool,
}

/// One planned group and everything that is open for it.
#[derive(Debug)]
pub(super) struct GroupCounter<K: Kernel> {
    pub plan: Arc<Group>,
    pub series: SeriesTable,
    /// The labels of the aggregated series.
    other: Arc<Labels>,
    /// How many places of each counter were in each state at the last collection.
    pub states: BTreeMap<(usize, Verdict), usize>,
    targets: BTreeMap<Key, Target<K::Event>>,
    left: BTreeMap<Key, Left<K::Event>>,
    cgroups_by_path: HashMap<Arc<str>, Key>,
    online: CpuSet,
}

impl<K: Kernel> GroupCounter<K> {
    /// Nothing is open yet. At most `limit` series are kept apart.
    pub(super) fn new(plan: Arc<Group>, limit: usize, context: &Context<'_, K>) -> Self {
        Self {
            series: counts::table(&plan, limit, context.now),
            other: other_labels(&plan),
            plan,
            states: BTreeMap::new(),
            targets: BTreeMap::new(),
            left: BTreeMap::new(),
            cgroups_by_path: HashMap::new(),
            online: CpuSet::default(),
        }
    }

    /// Follows the CPUs: opens on those that came, and reads those that went for the last time.
    pub(super) fn set_online(&mut self, online: &CpuSet, context: &mut Context<'_, K>) {
        let now = self.plan.cpus(online);
        let before = std::mem::replace(&mut self.online, now.clone());
        if before == now {
            return;
        }
        match self.plan.targets {
            Targets::Cpus(_) => {
                let gone: Vec<Key> = before.iter().filter(|&cpu| !now.contains(cpu)).map(Key::Cpu).collect();
                self.remove(&gone, context);
                for cpu in now.iter().filter(|&cpu| !before.contains(cpu)) {
                    self.add(Subject::Cpu(context.facts.nodes.cpu(cpu)), context);
                }
            }
            Targets::Cgroups(_) => {
                for target in self.targets.values_mut() {
                    target.take_counts(&self.plan, &mut self.series);
                    target.slots.retain(|cpu| now.contains(cpu), context);
                    target.slots.open(&self.plan, &target.subject, &now, context);
                }
            }
            Targets::Processes(_) => {}
        }
    }

    /// Starts to count a target, if it is one of this group's.
    pub(super) fn add(&mut self, subject: Subject, context: &mut Context<'_, K>) {
        let key = subject.key();
        if self.targets.contains_key(&key) || self.left.contains_key(&key) || !selects(&self.plan, &subject) {
            return;
        }
        let mut slots = Slots::default();
        match slots.open(&self.plan, &subject, &self.online, context) {
            Outcome::Counted => self.count(subject, slots, context),
            Outcome::Gone => slots.close(context),
            outcome => {
                self.left.insert(key, Left { subject, slots, again: outcome == Outcome::NoRoom });
            }
        }
    }

    /// Enters a target whose counters are open.
    fn count(&mut self, subject: Subject, slots: Slots<K::Event>, context: &Context<'_, K>) {
        let key = subject.key();
        let series = self.series.enter(naming_of(&self.plan, &self.other, &subject), context.monotonic);
        let parent = self.parent_of(&subject);
        self.know_path(&subject);
        let tallies = vec![Tally::default(); self.plan.counters.len()].into();
        self.targets.insert(key, Target { subject, slots, series, parent, tallies });
    }

    /// Stops counting targets that are gone: takes their last counts, and leaves them in their series. Those that go
    /// together are settled together, or what a cgroup counted last would be charged to the one above it as well.
    pub(super) fn remove(&mut self, keys: &[Key], context: &mut Context<'_, K>) {
        for key in keys {
            if let Some(left) = self.left.remove(key) {
                left.slots.close(context);
            }
            if let Some(target) = self.targets.get_mut(key) {
                target.take_counts(&self.plan, &mut self.series);
            }
        }
        self.settle();
        for key in keys {
            let Some(target) = self.targets.remove(key) else { continue };
            self.forget_path(&target.subject);
            self.series.leave(target.series, context.monotonic);
            target.slots.close(context);
        }
    }

    /// Follows a target that is called differently now, as a process after `execve`: what it counted so far stays in
    /// the series where it is.
    pub(super) fn change(&mut self, subject: Subject, context: &mut Context<'_, K>) {
        let key = subject.key();
        if !selects(&self.plan, &subject) || !self.targets.contains_key(&key) {
            self.remove(&[key], context);
            self.add(subject, context);
            return;
        }
        let to = self.series.enter(naming_of(&self.plan, &self.other, &subject), context.monotonic);
        self.move_to(key, to, context.monotonic);
        let Some(target) = self.targets.get_mut(&key) else { return };
        let before = std::mem::replace(&mut target.subject, subject.clone());
        self.forget_path(&before);
        self.know_path(&subject);
    }

    /// Tries the names of processes again that were refused. What was counted meanwhile stays where it is.
    pub(super) fn name_again(&mut self, context: &Context<'_, K>) {
        let monotonic = context.monotonic;
        let mut named = Vec::new();
        for (&key, target) in &self.targets {
            let naming = || naming_of(&self.plan, &self.other, &target.subject);
            let to = self.series.enter_again(target.series, naming, monotonic);
            named.extend(to.map(|to| (key, to)));
        }
        named.into_iter().for_each(|(key, to)| self.move_to(key, to, monotonic));
    }

    /// Has a target count for a series that it has entered already.
    fn move_to(&mut self, key: Key, to: SeriesId, monotonic: Monotonic) {
        if let Some(target) = self.targets.get_mut(&key) {
            target.take_counts(&self.plan, &mut self.series);
        }
        self.settle();
        let Some(target) = self.targets.get_mut(&key) else { return };
        let from = std::mem::replace(&mut target.series, to);
        self.series.leave(from, monotonic);
    }

    fn know_path(&mut self, subject: &Subject) {
        if let Subject::Cgroup(cgroup) = subject {
            self.cgroups_by_path.insert(Arc::clone(&cgroup.path), subject.key());
        }
    }

    /// Forgets where a cgroup was, unless another has taken its place.
    fn forget_path(&mut self, subject: &Subject) {
        if let Subject::Cgroup(cgroup) = subject
            && self.cgroups_by_path.get(&cgroup.path) == Some(&subject.key())
        {
            self.cgroups_by_path.remove(&cgroup.path);
        }
    }

    /// Has everybody tried again who was refused.
    pub(super) fn forgive(&mut self) {
        self.left.values_mut().for_each(|left| left.again = true);
    }

    /// Tries again what found no descriptor, and looks for new threads where the kernel does not follow them.
    pub(super) fn catch_up(&mut self, context: &mut Context<'_, K>) {
        let again: Vec<Key> = self.left.iter().filter(|(_, left)| left.again).map(|(&key, _)| key).collect();
        for key in again {
            if !context.budget.has_room_for(self.plan.descriptors_per_target(&self.online)) {
                break;
            }
            let Some(left) = self.left.remove(&key) else { continue };
            left.slots.close(context);
            self.add(left.subject, context);
        }
        if context.facts.kernel < KernelVersion(5, 13) {
            self.follow_threads(context);
        }
    }

    /// Opens threads that are new, and closes those that ended, which newer kernels do by inheritance.
    fn follow_threads(&mut self, context: &mut Context<'_, K>) {
        for target in self.targets.values_mut() {
            let Subject::Process(process) = &target.subject else { continue };
            let Ok(threads) = context.targets.threads(process.key) else { continue };
            target.take_counts(&self.plan, &mut self.series);
            target.slots.retain(|tid| threads.binary_search(&tid).is_ok(), context);
            target.slots.open(&self.plan, &target.subject, &self.online, context);
        }
    }

    /// Reads every counter, and adds what it counted to its series.
    pub(super) fn collect(&mut self, busy: &Busy) {
        self.states.clear();
        self.series.begin_collection();
        for target in self.targets.values_mut() {
            let Some(series) = self.series.get_mut(target.series) else { continue };
            let series = &mut series.total;
            let work = match &target.subject {
                Subject::Cpu(cpu) => Work::Known(busy.time(cpu.number)),
                Subject::Cgroup(_) | Subject::Process(_) => Work::IsRunningTime,
            };
            let tallies = &mut target.tallies;
            // A counter is a place in the plan, and tallies and series have an entry for each: no index can fail.
            target.slots.read(&self.plan, work, |counted| {
                let (counter, verdict) = (counted.counter, counted.verdict);
                *self.states.entry((counter, verdict)).or_default() += 1;
                if verdict.has_count() {
                    series.counted[counter] = true;
                    tallies[counter].fresh = tallies[counter].fresh.saturating_add(counted.count);
                } else if verdict != Verdict::NeverRan {
                    series.doubted[counter] = true;
                }
                if let Some(interval) = counted.interval {
                    series.interval.enabled += interval.enabled;
                    series.interval.running += interval.running;
                }
            });
        }
        self.settle();
        counts::note_activity(&mut self.series);
    }

    /// How many targets are counted.
    pub(super) fn counted(&self) -> usize {
        self.targets.len()
    }

    /// How many targets are selected and not counted.
    pub(super) fn left_out(&self) -> usize {
        self.left.len()
    }

    /// Gives back everything that it holds.
    pub(super) fn close(mut self, context: &mut Context<'_, K>) {
        std::mem::take(&mut self.targets).into_values().for_each(|target| target.slots.close(context));
        std::mem::take(&mut self.left).into_values().for_each(|left| left.slots.close(context));
    }

    /// Adds what was counted since the last time to the series, each count once: what a cgroup counted for one below
    /// it that has a series of its own is that one's.
    ///
    /// Parent and child are not read at the same instant, so a child may be ahead of its parent for one collection.
    /// The parent's own share then rests until its total has caught up: it never falls, and nothing is lost.
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
            let Some(series) = self.series.get_mut(target.series) else { continue };
            for (total, tally) in series.total.totals.iter_mut().zip(&mut target.tallies) {
                let own = tally.inclusive.saturating_sub(tally.below);
                *total = total.saturating_add(own.saturating_sub(tally.charged));
                tally.charged = tally.charged.max(own);
            }
        }
    }

    /// The nearest cgroup above that this group counts too, unless counts are to include what is below.
    fn parent_of(&self, subject: &Subject) -> Option<Key> {
        match (&self.plan.targets, subject) {
            (Targets::Cgroups(selection), Subject::Cgroup(cgroup)) if !selection.descendants => {
                let above = std::iter::successors(parent_of(&cgroup.path), |path| parent_of(path));
                above.into_iter().find_map(|path| self.cgroups_by_path.get(path).copied())
            }
            _ => None,
        }
    }
}

impl<E: crate::sys::Event> Target<E> {
    /// Takes the counts into the tallies and marks them as counted in their series. There is no work to hold them
    /// against: this is for targets on their way out, between two collections.
    fn take_counts(&mut self, plan: &Group, series: &mut SeriesTable) {
        let (tallies, mut series) = (&mut self.tallies, series.get_mut(self.series));
        self.slots.read(plan, Work::Known(None), |Counted { counter, count, verdict, .. }| {
            if !verdict.has_count() {
                return;
            }
            // As in `collect`, no index can fail.
            tallies[counter].fresh = tallies[counter].fresh.saturating_add(count);
            if let Some(series) = &mut series {
                series.total.counted[counter] = true;
            }
        });
    }
}
