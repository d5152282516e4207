//! Counting with dedicated descriptors: every planned group is opened for every CPU, cgroup or process that it is
//! for, read at each collection, and added to series whose totals only grow.
//!
//! A [`Collector`] is told what to count ([`Collector::apply`]) and who is there ([`Collector::follow`]);
//! [`Collector::collect`] gives the families to publish. It never fails: what cannot be counted stands on its
//! [board](Collector::board) with the reason and what would help.

mod budget;
mod busy;
mod group;
mod measure;
mod open;
mod publish;
mod scale;
mod series;
mod slots;
mod subject;

pub use budget::Budget;
pub use measure::{Count, Measurement, Whom};

use std::sync::Arc;

use crate::clock::{Clock, Monotonic, Timestamp};
use crate::health::{Board, Scope, Ticket, Verdict};
use crate::host::{Facts, KernelVersion, Roots};
use crate::metrics::{Family, NameError};
use crate::plan::{Group, Plan, Targets};
use crate::sys::{Inherit, Kernel, Place, Start};
use crate::target::{Cgroup, Changes, Process, Watch};
use busy::Busy;
use group::GroupCounter;
use open::{How, Opened, Opener};
use publish::Quality;
use subject::{Key, Subject};

/// What opening and closing need besides the group itself.
struct Context<'a, K> {
    kernel: &'a K,
    facts: &'a Facts,
    core_pmu_present: bool,
    targets: &'a Watch,
    board: &'a mut Board,
    budget: &'a mut Budget,
    now: Timestamp,
    monotonic: Monotonic,
}

impl<K: Kernel> Context<'_, K> {
    /// Opens a group of the service.
    fn open(&mut self, group: &Group, place: Place<'_>, target: &dyn Fn() -> String) -> Opened<K::Event> {
        let inherit = match group.targets {
            // Before 5.13 threads could only be followed together with child processes, and a child would be counted
            // twice: once with its parent and once found by itself. `catch_up` looks for threads there.
            Targets::Processes(_) if self.facts.kernel >= KernelVersion(5, 13) => Inherit::Threads,
            _ => Inherit::Nothing,
        };
        let mut opener = Opener {
            kernel: self.kernel,
            facts: self.facts,
            core_pmu_present: self.core_pmu_present,
            budget: self.budget,
        };
        opener.open(group, place, How { inherit, start: Start::Later }, target)
    }
}

/// Everything that is counted by dedicated descriptors.
#[derive(Debug)]
pub struct Collector<K: Kernel> {
    kernel: K,
    clock: Clock,
    facts: Facts,
    core_pmu_present: bool,
    budget: Budget,
    board: Board,
    /// Refusals of events that could not even be named on this host.
    unresolved: Vec<Ticket>,
    groups: Vec<GroupCounter<K>>,
    busy: Busy,
    quality: Quality,
}

/// What is known of one group, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupState {
    /// What was planned.
    pub plan: Arc<Group>,
    /// For each counter of the group, how many of its places were in which state at the last collection.
    pub states: Vec<Vec<(Verdict, usize)>>,
    /// How many targets are counted.
    pub targets: usize,
    /// How many targets are selected and not counted.
    pub left_out: usize,
    /// The smallest part of the time that one of its series was on the PMU in the last interval.
    pub lowest_ratio: f64,
    /// How many series it has.
    pub series: usize,
    /// How many targets and ended series were folded into `other` so far.
    pub folded: u64,
}

impl<K: Kernel> Collector<K> {
    /// Nothing is counted yet. `core_pmu_present` says whether the host has a PMU for its cores.
    ///
    /// # Errors
    /// When one of the collector's own metrics cannot be called what it is called: a bug.
    pub fn new(
        kernel: K,
        clock: Clock,
        roots: &Roots,
        facts: Facts,
        core_pmu_present: bool,
        budget: Budget,
    ) -> Result<Self, NameError> {
        Ok(Self {
            kernel,
            clock,
            facts,
            core_pmu_present,
            budget,
            board: Board::default(),
            unresolved: Vec::new(),
            groups: Vec::new(),
            busy: Busy::new(roots),
            quality: Quality::new()?,
        })
    }

    /// Counts what `plan` says from now on. Groups that it shares with the plan before go on undisturbed; the others
    /// are closed, and their series end. At most `series_limit` series of each metric are kept apart.
    pub fn apply(&mut self, plan: &Plan, series_limit: usize, targets: &Watch) {
        let groups = std::mem::take(&mut self.groups);
        let unresolved = std::mem::take(&mut self.unresolved);
        unresolved.into_iter().for_each(|ticket| self.board.remove(ticket));
        let refused = plan.refusals.iter().cloned();
        self.unresolved =
            refused.map(|refused| self.board.add(&refused.entry, refused.scope, refused.refusal)).collect();

        let (mut kept, closed): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|counter| plan.groups.iter().any(|group| **group == *counter.plan));
        self.each(targets, closed, GroupCounter::close);
        for group in &plan.groups {
            let old = kept.iter().position(|counter| *counter.plan == **group);
            let counter = match old {
                Some(at) => {
                    let mut counter = kept.swap_remove(at);
                    counter.series.set_limit(series_limit);
                    counter
                }
                None => {
                    let context = &mut self.context(targets);
                    let mut counter = GroupCounter::new(Arc::clone(group), series_limit, context);
                    open_all(&mut counter, targets, context);
                    counter
                }
            };
            self.groups.push(counter);
        }
        self.board.log_news();
    }

    /// Follows what changed on the host since the last look.
    pub fn follow(&mut self, changes: &Changes, targets: &Watch) {
        let groups = std::mem::take(&mut self.groups);
        self.groups = self.each(targets, groups, |mut counter, context| {
            counter.set_online(targets.online(), context);
            let cgroups = changes.cgroups.removed.iter().map(|&id| Key::Cgroup(id));
            let processes = changes.processes.removed.iter().map(|&key| Key::Process(key));
            counter.remove(&cgroups.chain(processes).collect::<Vec<_>>(), context);
            let of = |cgroups: &[Arc<Cgroup>], processes: &[Arc<Process>]| -> Vec<Subject> {
                cgroups.iter().map(Subject::from).chain(processes.iter().map(Subject::from)).collect()
            };
            for subject in of(&changes.cgroups.changed, &changes.processes.changed) {
                counter.change(subject, context);
            }
            for subject in of(&changes.cgroups.added, &changes.processes.added) {
                counter.add(subject, context);
            }
            counter.catch_up(context);
            counter
        });
        self.board.log_news();
    }

    /// Reads every counter, and gives the families of all series.
    pub fn collect(&mut self) -> Vec<Family> {
        self.busy.refresh();
        let now = self.clock.monotonic();
        for counter in &mut self.groups {
            counter.collect(&self.busy);
            counter.series.expire(now);
        }
        self.quality.publish(&self.groups, &self.board)
    }

    /// What is refused.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Descriptors in use and allowed.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What is known of each group.
    pub fn states(&self) -> Vec<GroupState> {
        let state = |counter: &GroupCounter<K>| {
            let of = |wanted: usize| {
                let states = counter.states.iter().filter(move |&(&(index, _), _)| index == wanted);
                states.map(|(&(_, verdict), &places)| (verdict, places)).collect()
            };
            GroupState {
                plan: Arc::clone(&counter.plan),
                states: (0..counter.plan.counters.len()).map(of).collect(),
                targets: counter.counted(),
                left_out: counter.left_out(),
                lowest_ratio: counter
                    .series
                    .iter()
                    .filter_map(|series| series.interval.ratio())
                    .fold(1.0, f64::min),
                series: counter.series.iter().count(),
                folded: counter.series.folded(),
            }
        };
        self.groups.iter().map(state).collect()
    }

    fn context<'a>(&'a mut self, targets: &'a Watch) -> Context<'a, K> {
        Context {
            kernel: &self.kernel,
            facts: &self.facts,
            core_pmu_present: self.core_pmu_present,
            targets,
            board: &mut self.board,
            budget: &mut self.budget,
            now: self.clock.now(),
            monotonic: self.clock.monotonic(),
        }
    }

    /// Gives each group to `act` together with what opening and closing need.
    fn each<T>(
        &mut self,
        targets: &Watch,
        groups: Vec<GroupCounter<K>>,
        mut act: impl FnMut(GroupCounter<K>, &mut Context<'_, K>) -> T,
    ) -> Vec<T> {
        let mut context = self.context(targets);
        groups.into_iter().map(|counter| act(counter, &mut context)).collect()
    }
}

/// Opens a new group for everybody who is there already.
fn open_all<K: Kernel>(counter: &mut GroupCounter<K>, targets: &Watch, context: &mut Context<'_, K>) {
    counter.set_online(targets.online(), context);
    match counter.plan.scope() {
        Scope::Cpu | Scope::Pmu => {}
        Scope::Cgroup => {
            targets.cgroups().into_iter().for_each(|cgroup| counter.add(Subject::Cgroup(cgroup), context));
        }
        Scope::Process => targets
            .processes()
            .into_iter()
            .for_each(|process| counter.add(Subject::Process(process), context)),
    }
}
