//! One planned group that is counted by the switch stream: where the shares of cgroups and processes go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::busy::Busy;
use super::counts::{self, SeriesTable};
use super::naming::{labels, naming_of, other_labels, selects};
use super::stream::Reading;
use super::subject::{Key, Subject};
use crate::attribute::{Owner, Shares};
use crate::clock::{Monotonic, Timestamp};
use crate::health::{Interval, Scope, Verdict, judge};
use crate::host::{CpuSet, Nodes};
use crate::metrics::Labels;
use crate::plan::{Counter, Group};
use crate::register::{ROOT, TargetIndex, Task};
use crate::series::SeriesId;
use crate::target::{CgroupId, Targets, parent_of};

/// Why a count of the CPUs stands in no series of a group, beside the reasons of the stream itself.
mod rest {
    /// The CPU had nothing to do.
    pub(super) const IDLE: &str = "idle";
    /// The CPU had nothing to do, or did something for the root cgroup: records of cgroups do not tell which.
    pub(super) const IDLE_OR_ROOT: &str = "idle_or_root";
    /// Its owner is not selected, nor any cgroup above it.
    pub(super) const NOT_SELECTED: &str = "not_selected";
    /// Nobody knows what its owner is called.
    pub(super) const UNKNOWN: &str = "unknown";
}

/// What one collection gives to all groups of the stream.
pub(super) struct Collected<'a> {
    pub shares: &'a Shares,
    pub readings: &'a [Reading],
    pub index: &'a TargetIndex,
    pub busy: &'a Busy,
    pub monotonic: Monotonic,
}

/// What stands in no series, of one event of a group, since it began to count.
#[derive(Debug, Clone, PartialEq)]
pub struct Unattributed {
    /// The event.
    pub event: Arc<str>,
    /// Whether it is a clock, so that its counts are CPU time.
    pub is_time: bool,
    /// The parts of all its counts, from 0 to 1, by reason.
    pub parts: Vec<(&'static str, f64)>,
}

/// A target that is selected and there.
#[derive(Debug)]
struct Target {
    subject: Subject,
    series: SeriesId,
}

/// One group of the plan whose source is the stream.
#[derive(Debug)]
pub(super) struct AttributedGroup {
    pub plan: Arc<Group>,
    pub series: SeriesTable,
    /// The labels of the aggregated series.
    other: Arc<Labels>,
    /// How many CPUs of each counter were in each state at the last collection.
    pub states: BTreeMap<(usize, Verdict), usize>,
    /// For each counter of the group, its number in the stream.
    numbers: Vec<usize>,
    /// Which of them are open on any CPU.
    open: Vec<bool>,
    targets: BTreeMap<Key, Target>,
    cgroups_by_path: HashMap<Arc<str>, Key>,
    /// What stands in no series, by reason.
    rest: BTreeMap<&'static str, Vec<u64>>,
    online: CpuSet,
}

impl AttributedGroup {
    /// Nothing is counted yet. `numbers` are those of its counters in the stream.
    pub(super) fn new(plan: Arc<Group>, numbers: Vec<usize>, limit: usize, now: Timestamp) -> Self {
        Self {
            series: counts::table(&plan, limit, now),
            other: other_labels(&plan),
            states: BTreeMap::new(),
            open: vec![false; numbers.len()],
            numbers,
            targets: BTreeMap::new(),
            cgroups_by_path: HashMap::new(),
            rest: BTreeMap::new(),
            online: CpuSet::default(),
            plan,
        }
    }

    /// The stream was opened anew, where its counters may have other numbers. `open` tells which are.
    pub(super) fn renumber(&mut self, numbers: Vec<usize>, open: impl Fn(usize) -> bool) {
        self.open = numbers.iter().map(|&number| open(number)).collect();
        self.numbers = numbers;
    }

    /// Follows the CPUs.
    pub(super) fn set_online(&mut self, online: &CpuSet, nodes: &Nodes, monotonic: Monotonic) {
        let here = self.plan.cpus(online);
        let before = std::mem::replace(&mut self.online, here.clone());
        if self.plan.targets.are_cpus() {
            for cpu in before.iter().filter(|&cpu| !here.contains(cpu)) {
                self.remove(Key::Cpu(cpu), monotonic);
            }
            for cpu in here.iter().filter(|&cpu| !before.contains(cpu)) {
                self.add(Subject::Cpu(nodes.cpu(cpu)), monotonic);
            }
        }
    }

    /// A target appeared.
    pub(super) fn add(&mut self, subject: Subject, monotonic: Monotonic) {
        let key = subject.key();
        if self.targets.contains_key(&key) || !selects(&self.plan, &subject) {
            return;
        }
        let series = self.series.enter(naming_of(&self.plan, &self.other, &subject), monotonic);
        if let Subject::Cgroup(cgroup) = &subject {
            self.cgroups_by_path.insert(Arc::clone(&cgroup.path), key);
        }
        self.targets.insert(key, Target { subject, series });
    }

    /// A target is gone, and what it counted has been charged.
    pub(super) fn remove(&mut self, key: Key, monotonic: Monotonic) {
        let Some(target) = self.targets.remove(&key) else { return };
        self.series.leave(target.series, monotonic);
        if let Subject::Cgroup(cgroup) = &target.subject
            && self.cgroups_by_path.get(&cgroup.path) == Some(&key)
        {
            self.cgroups_by_path.remove(&cgroup.path);
        }
    }

    /// A target is called differently now.
    pub(super) fn change(&mut self, subject: Subject, monotonic: Monotonic) {
        let new = selects(&self.plan, &subject)
            .then(|| self.series.enter(naming_of(&self.plan, &self.other, &subject), monotonic));
        self.remove(subject.key(), monotonic);
        if let Some(entered) = new {
            self.add(subject, monotonic);
            self.series.leave(entered, monotonic);
        }
    }

    /// Tries the names of processes again that were refused. What was counted meanwhile stays where it is.
    pub(super) fn name_again(&mut self, monotonic: Monotonic) {
        for target in self.targets.values_mut() {
            let naming = || naming_of(&self.plan, &self.other, &target.subject);
            if let Some(named) = self.series.enter_again(target.series, naming, monotonic) {
                self.series.leave(target.series, monotonic);
                target.series = named;
            }
        }
    }

    /// Takes what one collection gives.
    pub(super) fn collect(&mut self, collected: &Collected<'_>) {
        self.series.begin_collection();
        let ratio = self.read(collected);
        if !self.plan.targets.are_cpus() {
            self.charge(collected, ratio);
        }
        for target in self.targets.values() {
            if let Some(series) = self.series.get_mut(target.series) {
                mark(&mut series.total.counted, &self.open);
            }
        }
        counts::note_activity(&mut self.series);
    }

    /// Takes the readings of the CPUs: states, and for a group of CPUs the counts. Gives the part of the time that
    /// the group was on the PMU, over all CPUs.
    fn read(&mut self, collected: &Collected<'_>) -> f64 {
        self.states.clear();
        let mut all = Interval::default();
        for reading in collected.readings {
            for counter in 0..self.numbers.len() {
                let number = self.numbers[counter];
                if number != reading.counter || !self.online.contains(reading.cpu) {
                    continue;
                }
                let verdict = self.verdict(counter, reading, collected.busy);
                *self.states.entry((counter, verdict)).or_default() += 1;
                if counter == 0 {
                    all.enabled += reading.interval.enabled;
                    all.running += reading.interval.running;
                }
                self.count_cpu(counter, reading, verdict);
            }
        }
        all.ratio().unwrap_or(1.0)
    }

    fn verdict(&self, counter: usize, reading: &Reading, busy: &Busy) -> Verdict {
        let moves = self.plan.counters.get(counter).is_some_and(super::slots::must_move);
        let work = busy.time(reading.cpu).filter(|_| moves);
        let work = work.map(|busy| busy.mul_f64(reading.interval.ratio().unwrap_or(0.0)));
        judge(reading.interval, reading.ever_ran, reading.raw, work)
    }

    fn count_cpu(&mut self, counter: usize, reading: &Reading, verdict: Verdict) {
        let Some(target) = self.targets.get(&Key::Cpu(reading.cpu)) else { return };
        let Some(series) = self.series.get_mut(target.series) else { return };
        let series = &mut series.total;
        if let (true, Some(total)) = (verdict.has_count(), series.totals.get_mut(counter)) {
            *total = total.saturating_add(reading.scaled);
        } else if verdict != Verdict::NeverRan
            && let Some(doubted) = series.doubted.get_mut(counter)
        {
            *doubted = true;
        }
        if counter == 0 {
            series.interval.enabled += reading.interval.enabled;
            series.interval.running += reading.interval.running;
        }
    }

    /// Charges every share to a series, or to the reason why there is none.
    fn charge(&mut self, collected: &Collected<'_>, ratio: f64) {
        for (owner, counts, time) in collected.shares.iter() {
            if time.is_zero() && counts.iter().all(|&count| count == 0) {
                continue;
            }
            match (owner, self.plan.scope()) {
                (Owner::Idle, _) => self.charge_rest(rest::IDLE, counts),
                (Owner::Nobody(reason), _) => self.charge_rest(reason.as_str(), counts),
                (Owner::Cgroup(ROOT), _) => self.charge_rest(rest::IDLE_OR_ROOT, counts),
                (&Owner::Cgroup(id), _) => self.charge_cgroup(id, counts, time, ratio, collected),
                (Owner::Task(task), Scope::Cgroup) => match task.cgroup {
                    Some(id) => self.charge_cgroup(id, counts, time, ratio, collected),
                    None => self.charge_rest(rest::UNKNOWN, counts),
                },
                (Owner::Task(task), _) => self.charge_process(task, counts, time, ratio, collected),
            }
        }
    }

    fn charge_cgroup(
        &mut self,
        id: CgroupId,
        counts: &[u64],
        time: Duration,
        ratio: f64,
        collected: &Collected<'_>,
    ) {
        let Targets::Cgroups(selection) = &self.plan.targets else { return };
        let target = self.targets.get(&Key::Cgroup(id));
        let descendants = selection.descendants;
        if let (Some(target), false) = (target, descendants) {
            return self.charge_series(target.series, counts, time, ratio);
        }
        let Some(cgroup) = collected.index.cgroup(id) else {
            return self.charge_rest(rest::UNKNOWN, counts);
        };
        let itself = target.map(|target| target.series);
        let above = std::iter::successors(parent_of(&cgroup.path), |path| parent_of(path));
        let above = above.filter_map(|path| self.targets.get(self.cgroups_by_path.get(path)?));
        let above: Vec<SeriesId> = above.map(|target| target.series).collect();
        // It came and went between two looks.
        let passing = (itself.is_none() && selection.matches(&cgroup)).then(|| {
            let subject = Subject::Cgroup(Arc::new(cgroup));
            self.series.enter(naming_of(&self.plan, &self.other, &subject), collected.monotonic)
        });
        let all = itself.or(passing).into_iter().chain(above);
        // Without descendants its counts have one place: the nearest cgroup that is selected.
        let charged: Vec<SeriesId> = all.take(if descendants { usize::MAX } else { 1 }).collect();
        if charged.is_empty() {
            self.charge_rest(rest::NOT_SELECTED, counts);
        }
        charged.into_iter().for_each(|series| self.charge_series(series, counts, time, ratio));
        if let Some(series) = passing {
            self.series.leave(series, collected.monotonic);
        }
    }

    fn charge_process(
        &mut self,
        task: &Task,
        counts: &[u64],
        time: Duration,
        ratio: f64,
        collected: &Collected<'_>,
    ) {
        let Some(process) = collected.index.process(task) else {
            return self.charge_rest(rest::UNKNOWN, counts);
        };
        if let Some(target) = self.targets.get(&Key::Process(process.key))
            && matches!(&target.subject, Subject::Process(known) if known.comm == process.comm)
        {
            return self.charge_series(target.series, counts, time, ratio);
        }
        let subject = Subject::Process(process);
        if selects(&self.plan, &subject) {
            self.charge_passing(subject, counts, time, ratio, collected);
        } else {
            self.charge_rest(rest::NOT_SELECTED, counts);
        }
    }

    /// Charges somebody who is gone already, or has another name by now.
    fn charge_passing(
        &mut self,
        subject: Subject,
        counts: &[u64],
        time: Duration,
        ratio: f64,
        collected: &Collected<'_>,
    ) {
        let series = self.series.enter(naming_of(&self.plan, &self.other, &subject), collected.monotonic);
        self.charge_series(series, counts, time, ratio);
        self.series.leave(series, collected.monotonic);
    }

    fn charge_series(&mut self, id: SeriesId, counts: &[u64], time: Duration, ratio: f64) {
        let Some(series) = self.series.get_mut(id) else { return };
        let series = &mut series.total;
        add(&mut series.totals, &self.numbers, counts);
        mark(&mut series.counted, &self.open);
        if !self.open.contains(&true) {
            // What is not there was not running all the time either.
            return;
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        series.interval.enabled = series.interval.enabled.saturating_add(nanoseconds);
        series.interval.running =
            series.interval.running.saturating_add(time.mul_f64(ratio).as_nanos() as u64);
    }

    fn charge_rest(&mut self, reason: &'static str, counts: &[u64]) {
        let rest = self.rest.entry(reason).or_insert_with(|| vec![0; self.numbers.len()]);
        add(rest, &self.numbers, counts);
    }

    /// Whether one of its counters has this number in the stream.
    pub(super) fn counts(&self, number: usize) -> bool {
        self.numbers.contains(&number)
    }

    /// How many targets are counted: all, unless none of its counters is open anywhere.
    pub(super) fn counted(&self) -> usize {
        if self.open.contains(&true) { self.targets.len() } else { 0 }
    }

    /// How many targets there are that nothing is counted for.
    pub(super) fn left_out(&self) -> usize {
        self.targets.len() - self.counted()
    }

    /// Which part of everything that one of its counters counted, a clock if it has one, stands in no series. `None`
    /// where series count one another's counts.
    pub(super) fn unattributed_parts(&self) -> Option<Unattributed> {
        let descendants = matches!(&self.plan.targets, Targets::Cgroups(selection) if selection.descendants);
        if self.plan.targets.are_cpus() || descendants {
            return None;
        }
        let clock = |counter: &Counter| matches!(&*counter.event.name, "task-clock" | "cpu-clock");
        let open = || (0..self.plan.counters.len()).filter(|&place| self.open[place]);
        let place = open().find(|&place| clock(&self.plan.counters[place])).or_else(|| open().next())?;
        let total = |totals: &[u64]| totals[place] as f64;
        let attributed: f64 = self.series.accounts().map(|counts| total(&counts.totals)).sum();
        let all = attributed + self.rest.values().map(|totals| total(totals)).sum::<f64>();
        if all == 0.0 {
            return None;
        }
        let part = |(&reason, totals): (&&'static str, &Vec<u64>)| (reason, total(totals) / all);
        let counter = &self.plan.counters[place];
        Some(Unattributed {
            event: Arc::clone(&counter.event.name),
            is_time: clock(counter),
            parts: self.rest.iter().map(part).collect(),
        })
    }

    /// What stands in no series: the counter, the labels that say why, and the total.
    pub(super) fn unattributed(&self) -> impl Iterator<Item = (&Counter, Arc<Labels>, u64)> {
        let open = self.plan.counters.iter().enumerate().zip(&self.open).filter(|&(_, &open)| open);
        open.flat_map(move |((place, counter), _)| {
            self.rest.iter().filter_map(move |(&reason, totals)| {
                let own = [("scope", self.plan.scope().as_str().into()), ("reason", reason.into())];
                Some((counter, labels(&self.plan, own), *totals.get(place)?))
            })
        })
    }
}

/// Adds to the totals of a group the counts of the stream that have its numbers.
fn add(totals: &mut [u64], numbers: &[usize], counts: &[u64]) {
    for (total, &number) in totals.iter_mut().zip(numbers) {
        *total = total.saturating_add(counts.get(number).copied().unwrap_or(0));
    }
}

fn mark(counted: &mut [bool], open: &[bool]) {
    for (counted, open) in counted.iter_mut().zip(open) {
        *counted |= open;
    }
}
