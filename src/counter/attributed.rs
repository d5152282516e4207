//! A planned group that the switch stream counts: adds the shares of cgroups and processes to series.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::busy::Busy;
use super::counts::{Base, Counts};
use super::naming::labels;
use super::stream::Reading;
use super::subject::{Key, Subject};
use crate::attribute::{Owner, Reason, Share, Shares};
use crate::clock::{Monotonic, Timestamp};
use crate::health::{Interval, Scope, Verdict, judge};
use crate::host::{CpuSet, Nodes};
use crate::metrics::Labels;
use crate::plan::{Counter, Group};
use crate::register::{ROOT, TargetIndex, Task};
use crate::series::SeriesId;
use crate::targets::{CgroupId, Targets};

/// Reasons for counts that are in no series of a group, besides the reasons of the stream itself.
mod rest {
    /// The CPU was idle.
    pub(super) const IDLE: &str = "idle";
    /// The CPU was idle, or executed code of the root cgroup: records of cgroups do not distinguish the two.
    pub(super) const IDLE_OR_ROOT: &str = "idle_or_root";
    /// Neither the owner nor any cgroup above it is selected.
    pub(super) const NOT_SELECTED: &str = "not_selected";
    /// The name of the owner is unknown.
    pub(super) const UNKNOWN: &str = "unknown";
}

/// Input of all groups of the stream at one collection.
pub(super) struct Collected<'a> {
    pub shares: &'a Shares,
    pub readings: &'a [Reading],
    pub index: &'a TargetIndex,
    pub busy: &'a Busy,
    pub monotonic: Monotonic,
}

/// Counts of one event of a group that are in no series, since the group was started.
#[derive(Debug, Clone, PartialEq)]
pub struct Unattributed {
    /// The event.
    pub event: Arc<str>,
    /// Whether the event is a clock: its counts are CPU time.
    pub is_time: bool,
    /// Fraction of all counts by reason, each from 0 to 1.
    pub parts: Vec<(&'static str, f64)>,
}

/// A target that is selected and exists.
#[derive(Debug)]
struct Target {
    subject: Subject,
    series: SeriesId,
}

/// Counts that are in no series, for one reason.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    counts: Counts,
    /// Time of the collection before the first count.
    start: Timestamp,
}

/// A planned group whose source is the stream.
#[derive(Debug)]
pub(super) struct AttributedGroup {
    pub base: Base,
    /// For each counter of the group: its number in the stream.
    numbers: Vec<usize>,
    /// For each counter of the group: whether it is open on any CPU.
    open: Vec<bool>,
    targets: BTreeMap<Key, Target>,
    /// Counts that are in no series, by reason.
    rest: RestByReason,
}

/// Counts that are in no series, by reason.
pub(super) type RestByReason = BTreeMap<&'static str, Rest>;

impl Rest {
    /// Continues the counts of other groups that `rest` comes from. `places`: for each counter of `plan`, its place in these counts.
    pub(super) fn continue_all(
        all: &mut RestByReason,
        plan: &Group,
        rest: RestByReason,
        places: &[Option<usize>],
        now: Timestamp,
    ) {
        for (reason, from) in rest {
            match all.entry(reason) {
                Entry::Vacant(free) => {
                    let counts = from.counts.continued(plan, places, now);
                    free.insert(Self { counts, start: from.start });
                }
                Entry::Occupied(mut known) => {
                    let Self { counts, start } = known.get_mut();
                    counts.add_counters(*start, (&from.counts, from.start), places);
                    *start = (*start).min(from.start);
                }
            }
        }
    }
}

impl AttributedGroup {
    /// Returns a group without targets. `numbers`: for each counter, its number in the stream. `rest`: counts that it continues.
    pub(super) fn new(base: Base, numbers: Vec<usize>, rest: RestByReason) -> Self {
        Self { base, open: vec![false; numbers.len()], numbers, targets: BTreeMap::new(), rest }
    }

    /// Returns the counts that are in no series.
    pub(super) fn rest(&self) -> &RestByReason {
        &self.rest
    }

    /// Updates the numbers of the counters after the stream was opened again. `open` reports whether the counter with a number is open.
    pub(super) fn renumber(&mut self, numbers: Vec<usize>, open: impl Fn(usize) -> bool) {
        self.open = numbers.iter().map(|&number| open(number)).collect();
        self.numbers = numbers;
    }

    /// Updates the online CPUs.
    pub(super) fn set_online(&mut self, online: &CpuSet, nodes: &Nodes, monotonic: Monotonic) {
        let (gone, come) = self.base.set_online(online);
        if self.base.plan.targets.are_cpus() {
            gone.into_iter().for_each(|cpu| self.remove(Key::Cpu(cpu), monotonic));
            come.into_iter().for_each(|cpu| self.add(Subject::Cpu(nodes.cpu(cpu)), monotonic));
        }
    }

    /// Adds a new target.
    pub(super) fn add(&mut self, subject: Subject, monotonic: Monotonic) {
        let key = subject.key();
        if self.targets.contains_key(&key) || !self.base.selects(&subject) {
            return;
        }
        let series = self.base.enter(&subject, monotonic);
        self.base.know_path(&subject);
        self.targets.insert(key, Target { subject, series });
    }

    /// Removes a target that is gone, after its counts were attributed.
    pub(super) fn remove(&mut self, key: Key, monotonic: Monotonic) {
        let Some(target) = self.targets.remove(&key) else { return };
        self.base.series.leave(target.series, monotonic);
        self.base.forget_path(&target.subject);
    }

    /// Updates a target whose name changed.
    pub(super) fn change(&mut self, subject: Subject, monotonic: Monotonic) {
        let new = self.base.selects(&subject).then(|| self.base.enter(&subject, monotonic));
        self.remove(subject.key(), monotonic);
        if let Some(entered) = new {
            self.add(subject, monotonic);
            self.base.series.leave(entered, monotonic);
        }
    }

    /// Retries rejected names of processes. Counts so far stay in their current series.
    pub(super) fn name_again(&mut self, monotonic: Monotonic) {
        for target in self.targets.values_mut() {
            if let Some(named) = self.base.enter_again(target.series, &target.subject, monotonic) {
                self.base.series.leave(target.series, monotonic);
                target.series = named;
            }
        }
    }

    /// Adds the counts of one collection.
    pub(super) fn collect(&mut self, collected: &Collected<'_>) {
        self.base.begin_collection();
        self.read(collected.readings, Some(collected.busy));
        if !self.base.plan.targets.are_cpus() {
            self.attribute(collected);
            self.base.series.iter_mut().for_each(|series| series.total.scale());
            self.rest.values_mut().for_each(|rest| rest.counts.scale());
        }
        for target in self.targets.values() {
            if let Some(series) = self.base.series.get_mut(target.series) {
                mark(&mut series.total, &self.open);
            }
        }
        self.base.note_activity();
    }

    /// Processes the readings of the CPUs: the states and, for a group of CPUs, the counts. `busy`: `None` for the last counts of CPUs that
    /// went offline, which have no state.
    pub(super) fn read(&mut self, readings: &[Reading], busy: Option<&Busy>) {
        for reading in readings {
            for counter in 0..self.numbers.len() {
                let number = self.numbers[counter];
                if number != reading.counter || !self.base.online.contains(reading.cpu) {
                    continue;
                }
                let verdict = self.verdict(counter, reading, busy);
                if busy.is_some() {
                    *self.base.states.entry((counter, verdict)).or_default() += 1;
                }
                self.count_cpu(counter, reading, verdict);
            }
        }
    }

    fn verdict(&self, counter: usize, reading: &Reading, busy: Option<&Busy>) -> Verdict {
        let moves = self.base.plan.counters.get(counter).is_some_and(super::slots::must_move);
        let work = busy.and_then(|busy| busy.time(reading.cpu)).filter(|_| moves);
        let work = work.map(|busy| busy.mul_f64(reading.interval.ratio().unwrap_or(0.0)));
        judge(reading.interval, reading.history, reading.raw, work)
    }

    fn count_cpu(&mut self, counter: usize, reading: &Reading, verdict: Verdict) {
        let Some(target) = self.targets.get(&Key::Cpu(reading.cpu)) else { return };
        let Some(series) = self.base.series.get_mut(target.series) else { return };
        let series = &mut series.total;
        if let Some(count) = series.counters.get_mut(counter) {
            if verdict.has_count() {
                count.total = count.total.saturating_add(reading.scaled);
            } else if verdict != Verdict::NeverRan {
                count.doubted = true;
            }
        }
        if counter == 0 {
            series.interval += reading.interval;
        }
    }

    /// Adds every share to a series, or to the reason why there is none.
    fn attribute(&mut self, collected: &Collected<'_>) {
        for (owner, share) in collected.shares.iter().filter(|(_, share)| !share.is_empty()) {
            match (owner, self.base.plan.scope()) {
                (Owner::Idle, _) => self.attribute_to_rest(rest::IDLE, &share),
                (Owner::Unattributed(reason), _) => self.attribute_to_rest(reason.as_str(), &share),
                (Owner::Cgroup(ROOT), _) => self.attribute_to_rest(rest::IDLE_OR_ROOT, &share),
                (&Owner::Cgroup(id), _) => self.attribute_to_cgroup(id, &share, collected),
                (Owner::Task(task), Scope::Cgroup) => match collected.index.cgroup_of(task) {
                    Some(id) => self.attribute_to_cgroup(id, &share, collected),
                    // Only records of switches without counts contain a task without its cgroup.
                    None => self.attribute_to_rest(Reason::Unrecorded.as_str(), &share),
                },
                (Owner::Task(task), _) => self.attribute_to_process(task, &share, collected),
            }
        }
    }

    fn attribute_to_cgroup(&mut self, id: CgroupId, share: &Share<'_>, collected: &Collected<'_>) {
        let Targets::Cgroups(selection) = &self.base.plan.targets else { return };
        let target = self.targets.get(&Key::Cgroup(id));
        let descendants = selection.descendants;
        if let (Some(target), false) = (target, descendants) {
            return self.attribute_to_series(target.series, share);
        }
        let Some(cgroup) = collected.index.cgroup(id) else {
            return self.attribute_to_rest(rest::UNKNOWN, share);
        };
        let itself = target.map(|target| target.series);
        let above = self.base.above(&cgroup.path).filter_map(|key| self.targets.get(&key));
        let above: Vec<SeriesId> = above.map(|target| target.series).collect();
        // The cgroup was created and removed between two scans.
        let passing = (itself.is_none() && selection.matches(&cgroup))
            .then(|| self.base.enter(&Subject::Cgroup(Arc::new(cgroup)), collected.monotonic));
        let all = itself.or(passing).into_iter().chain(above);
        // Without `descendants`, a count is added to one series only: that of the nearest selected cgroup.
        let charged: Vec<SeriesId> = all.take(if descendants { usize::MAX } else { 1 }).collect();
        if charged.is_empty() {
            self.attribute_to_rest(rest::NOT_SELECTED, share);
        }
        charged.into_iter().for_each(|series| self.attribute_to_series(series, share));
        if let Some(series) = passing {
            self.base.series.leave(series, collected.monotonic);
        }
    }

    fn attribute_to_process(&mut self, task: &Task, share: &Share<'_>, collected: &Collected<'_>) {
        let Some(process) = collected.index.process(task) else {
            return self.attribute_to_rest(rest::UNKNOWN, share);
        };
        if let Some(target) = self.targets.get(&Key::Process(process.key))
            && matches!(&target.subject, Subject::Process(known) if known.comm == process.comm)
        {
            return self.attribute_to_series(target.series, share);
        }
        let subject = Subject::Process(process);
        if !self.base.selects(&subject) {
            return self.attribute_to_rest(rest::NOT_SELECTED, share);
        }
        // The target has ended, or has a different name by now.
        let series = self.base.enter(&subject, collected.monotonic);
        self.attribute_to_series(series, share);
        self.base.series.leave(series, collected.monotonic);
    }

    fn attribute_to_series(&mut self, id: SeriesId, share: &Share<'_>) {
        let presence = self.presence(share);
        let Some(series) = self.base.series.get_mut(id) else { return };
        let series = &mut series.total;
        series.attribute(&self.numbers, share);
        mark(series, &self.open);
        if !self.open.contains(&true) {
            // An event that is not open was not running all the time either.
            return;
        }
        let nanoseconds = u64::try_from(share.time.as_nanos()).unwrap_or(u64::MAX);
        series.interval += presence.unwrap_or(Interval { enabled: nanoseconds, running: nanoseconds });
    }

    /// Returns how long the first hardware event of the group was on the PMU for an owner; `None` without hardware events.
    fn presence(&self, share: &Share<'_>) -> Option<Interval> {
        let hardware = self.base.plan.counters.iter().position(|counter| counter.event.kind.needs_pmu());
        Some(share.presence(*self.numbers.get(hardware?)?))
    }

    fn attribute_to_rest(&mut self, reason: &'static str, share: &Share<'_>) {
        let Base { plan, series, .. } = &self.base;
        let new = || Rest { counts: Counts::new(plan), start: series.previous() };
        self.rest.entry(reason).or_insert_with(new).counts.attribute(&self.numbers, share);
    }

    /// Reports whether one of its counters has this number in the stream.
    pub(super) fn counts(&self, number: usize) -> bool {
        self.numbers.contains(&number)
    }

    /// Returns the number of targets that are counted: all of them, or none if none of its counters is open on any CPU.
    pub(super) fn counted(&self) -> usize {
        if self.open.contains(&true) { self.targets.len() } else { 0 }
    }

    /// Returns the number of targets that are not counted.
    pub(super) fn left_out(&self) -> usize {
        self.targets.len() - self.counted()
    }

    /// Returns the fraction of the counts of one counter, preferably a clock, that is in no series. `None` where the counts of series
    /// overlap.
    pub(super) fn unattributed_parts(&self) -> Option<Unattributed> {
        let descendants =
            matches!(&self.base.plan.targets, Targets::Cgroups(selection) if selection.descendants);
        if self.base.plan.targets.are_cpus() || descendants {
            return None;
        }
        let clock = |counter: &Counter| matches!(&*counter.event.name, "task-clock" | "cpu-clock");
        let open = || (0..self.base.plan.counters.len()).filter(|&place| self.open[place]);
        let place = open().find(|&place| clock(&self.base.plan.counters[place])).or_else(|| open().next())?;
        let attributed: f64 =
            self.base.series.accounts().map(|counts| counts.counters[place].total as f64).sum();
        let all =
            attributed + self.rest.values().map(|rest| rest.counts.counters[place].total as f64).sum::<f64>();
        if all == 0.0 {
            return None;
        }
        let part = |(&reason, rest): (&&'static str, &Rest)| {
            (reason, rest.counts.counters[place].total as f64 / all)
        };
        let counter = &self.base.plan.counters[place];
        Some(Unattributed {
            event: Arc::clone(&counter.event.name),
            is_time: clock(counter),
            parts: self.rest.iter().map(part).collect(),
        })
    }

    /// Returns the counts that are in no series: the counter, the labels with the reason, the total, and its start time.
    pub(super) fn unattributed(&self) -> impl Iterator<Item = (&Counter, Arc<Labels>, u64, Timestamp)> {
        let open = self.base.plan.counters.iter().enumerate().zip(&self.open).filter(|&(_, &open)| open);
        open.flat_map(move |((place, counter), _)| {
            self.rest.iter().filter_map(move |(&reason, rest)| {
                let own = [("scope", self.base.plan.scope().as_str().into()), ("reason", reason.into())];
                let total = rest.counts.counters.get(place)?.total;
                Some((counter, labels(&self.base.plan, own), total, rest.counts.start(place, rest.start)))
            })
        })
    }
}

fn mark(counts: &mut Counts, open: &[bool]) {
    counts.counters.iter_mut().zip(open).for_each(|(count, open)| count.counted |= open);
}
