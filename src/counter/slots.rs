//! Open events of one target, by CPU or thread.

mod change;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::Context;
use super::core_times::CoreTimes;
use super::open::{Bundle, Opened, no_room};
use super::reading::WORDS;
use super::scale::{Delta, scale};
use super::subject::Subject;
use crate::error::FileError;
use crate::event::Kind;
use crate::health::{Cause, History, Interval, Judgement, Ticket, Verdict, judge};
use crate::host::{Cpu, CpuSet};
use crate::plan::{Counter, Group};
use crate::sys::{Event, Kernel, Place};
use crate::targets::{Cgroup, Process, Targets};
pub(super) use change::Change;

/// Result of opening a group for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// At least one event is counted.
    Counted,
    /// No event could be opened, and the reason is on the board.
    Refused,
    /// No event is open because the descriptor limit is reached. To be retried.
    NoRoom,
    /// The target ended before it could be opened.
    Gone,
}

/// The open events of one target.
#[derive(Debug)]
pub(super) struct Slots<K: Kernel> {
    /// Open groups by CPU, or by thread of a process.
    places: BTreeMap<u32, Vec<Bundle<K::Event>>>,
    /// Tickets of its refusals on the board.
    refused: Vec<Ticket>,
    /// Whether opened events are started later, all at once.
    start_later: bool,
}

/// Work of a target in an interval.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// It executed code for this long; `None` if unknown.
    Known(Option<Duration>),
    /// The clocks of its counters run only while it executes code.
    IsRunningTime,
}

/// Count of one counter in one instance since the previous read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    /// Its index in the planned group.
    pub counter: usize,
    /// The scaled count. Valid only if the verdict has a count.
    pub count: u64,
    /// The plausibility of the count.
    pub verdict: Verdict,
    /// The interval of its group, set for one member of each group.
    pub interval: Option<Interval>,
}

impl<K: Kernel> Default for Slots<K> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), refused: Vec::new(), start_later: false }
    }
}

impl<K: Kernel> Slots<K> {
    /// Opens the group in each instance of the target where it is not open yet.
    pub(super) fn open(
        &mut self,
        plan: &Group,
        subject: &Subject,
        online: &CpuSet,
        context: &mut Context<'_, K>,
    ) -> Outcome {
        let new = self.places.is_empty();
        let outcome = match subject {
            Subject::Cpu(Cpu { number, .. }) => {
                let opened = context.open(plan, Place::Cpu(*number), &|| format!("cpu {number}"));
                self.keep(plan, *number, opened, context)
            }
            Subject::Cgroup(cgroup) => self.open_cgroup(plan, cgroup, online, context),
            Subject::Process(process) => self.open_threads(plan, process, context),
        };
        match outcome {
            // A count of some CPUs or threads without the others would be wrong without any indication.
            Outcome::NoRoom if new => self.retain(|_| false, context),
            _ if !self.places.is_empty() => return Outcome::Counted,
            _ => {}
        }
        outcome
    }

    /// Reports whether there are not enough descriptors for `places` more instances, and adds a refusal to the board in this case.
    fn lacks_room(
        &mut self,
        plan: &Group,
        places: usize,
        target: String,
        context: &mut Context<'_, K>,
    ) -> bool {
        let needed = places * plan.counters.len();
        let lacks = !context.means.budget.has_room_for(needed);
        if lacks {
            let refusal = no_room(context.means.budget, needed, plan, target);
            self.refused.push(context.board.add(&plan.entry, plan.scope(), refusal));
        }
        lacks
    }

    fn open_cgroup(
        &mut self,
        plan: &Group,
        cgroup: &Cgroup,
        online: &CpuSet,
        context: &mut Context<'_, K>,
    ) -> Outcome {
        let dir = match context.targets.open_cgroup(cgroup) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Outcome::Gone,
            Err(error) => return self.refuse_all(plan, &cgroup.path, &error, context),
        };
        let mut outcome = Outcome::Refused;
        let missing: Vec<u32> = online.iter().filter(|cpu| !self.places.contains_key(cpu)).collect();
        if self.lacks_room(plan, missing.len(), format!("cgroup {}", cgroup.path), context) {
            return Outcome::NoRoom;
        }
        for cpu in missing {
            let place = Place::Cgroup { dir: dir.as_fd(), cpu };
            let opened = context.open(plan, place, &|| format!("cgroup {} on cpu {cpu}", cgroup.path));
            outcome = self.keep(plan, cpu, opened, context);
            if outcome == Outcome::NoRoom {
                break;
            }
        }
        outcome
    }

    /// Opens the group for every thread that exists now. Threads that these start are counted by inheritance. A thread that is started
    /// meanwhile by a thread that is not open yet is missed. Opening the threads of a second scan would count all others twice.
    fn open_threads(&mut self, plan: &Group, process: &Process, context: &mut Context<'_, K>) -> Outcome {
        let Ok(threads) = context.targets.threads(process.key) else { return Outcome::Gone };
        let mut outcome = Outcome::Gone;
        let missing: Vec<u32> = threads.into_iter().filter(|tid| !self.places.contains_key(tid)).collect();
        let name = || format!("process {} ({})", process.key.pid, process.comm);
        if self.lacks_room(plan, missing.len(), name(), context) {
            return Outcome::NoRoom;
        }
        for tid in missing {
            let opened = context.open(plan, Place::Thread(tid), &name);
            outcome = self.keep(plan, tid, opened, context);
            if matches!(outcome, Outcome::NoRoom | Outcome::Refused) {
                // The other threads of the process would fail alike.
                break;
            }
        }
        outcome
    }

    /// Keeps the events that were opened in one instance, and adds the refusals to the board.
    fn keep(
        &mut self,
        plan: &Group,
        place: u32,
        opened: Opened<K::Event>,
        context: &mut Context<'_, K>,
    ) -> Outcome {
        for refusal in opened.refusals {
            self.refused.push(context.board.add(&plan.entry, plan.scope(), refusal));
        }
        if opened.gone || opened.no_room {
            context.means.budget.give_back(descriptors(&opened.bundles));
            return if opened.gone { Outcome::Gone } else { Outcome::NoRoom };
        }
        if opened.bundles.is_empty() {
            return Outcome::Refused;
        }
        if !self.start_later {
            start(plan, &opened.bundles);
        }
        self.places.insert(place, opened.bundles);
        Outcome::Counted
    }

    /// Adds one refusal for the whole target to the board.
    fn refuse_all(
        &mut self,
        plan: &Group,
        path: &str,
        error: &FileError,
        context: &mut Context<'_, K>,
    ) -> Outcome {
        let judgement = Judgement { cause: Cause::Forbidden, reason: error.to_string(), remedy: None };
        let refusal = judgement.refusal(&Arc::from("all events"), format!("cgroup {path}"), error.errno());
        self.refused.push(context.board.add(&plan.entry, plan.scope(), refusal));
        Outcome::Refused
    }

    /// Closes every instance for which `stay` is false. Read them first: counts that were not read are lost.
    pub(super) fn retain(&mut self, stay: impl Fn(u32) -> bool, context: &mut Context<'_, K>) {
        self.places.retain(|&place, bundles| {
            let stays = stay(place);
            if !stays {
                context.means.budget.give_back(descriptors(bundles));
            }
            stays
        });
    }

    /// Closes everything, and removes its refusals from the board.
    pub(super) fn close(mut self, context: &mut Context<'_, K>) {
        self.retain(|_| false, context);
        self.refused.into_iter().for_each(|ticket| context.board.remove(ticket));
    }

    /// Adds the times of the threads since the previous read.
    pub(super) fn add_times(&self, plan: &Group, times: &mut CoreTimes) {
        for (&tid, bundles) in &self.places {
            for interval in bundles.iter().filter_map(Bundle::peek) {
                times.add(plan, tid, interval);
            }
        }
    }

    /// Reads every instance, and passes the count of each counter to `report`. `times`: times of the threads of a process on each type of
    /// core.
    pub(super) fn read(
        &mut self,
        plan: &Group,
        work: Work,
        times: &CoreTimes,
        mut report: impl FnMut(Counted),
    ) {
        let mut words = [0; WORDS];
        let of_threads = matches!(plan.targets, Targets::Processes(_));
        let places = self.places.iter_mut();
        for (&place, bundle) in
            places.flat_map(|(place, bundles)| bundles.iter_mut().map(move |bundle| (place, bundle)))
        {
            let times = of_threads.then_some((times, place));
            match bundle.read(&mut words) {
                Ok([]) => {
                    if let Err(errno) = bundle.restart_if_due() {
                        tracing::debug!(entry = &*plan.entry, %errno, "cannot restart a pinned group");
                    }
                    for &counter in &bundle.counters {
                        report(Counted { counter, count: 0, verdict: Verdict::Full, interval: None });
                    }
                }
                Ok(words) => {
                    bundle.note_placed();
                    read_bundle(bundle, words, plan, work, times, &mut report);
                }
                // An event can be read even after its CPU went offline or its task ended. Other errors are permanent; the next collection
                // tries again anyway.
                Err(errno) => tracing::debug!(entry = &*plan.entry, %errno, "cannot read a group"),
            }
        }
    }
}

fn start<'e, E: Event + 'e>(plan: &Group, bundles: impl IntoIterator<Item = &'e Bundle<E>>) {
    for bundle in bundles {
        if let Err(errno) = bundle.start() {
            tracing::debug!(entry = &*plan.entry, %errno, "cannot start a group");
        }
    }
}

fn read_bundle<E>(
    bundle: &mut Bundle<E>,
    words: &[u64],
    plan: &Group,
    work: Work,
    times: Option<(&CoreTimes, u32)>,
    report: &mut impl FnMut(Counted),
) {
    let counters = &bundle.counters;
    bundle.progress.advance(words, |Delta { member, raw, mut interval, mut history, .. }| {
        let Some(&counter) = counters.get(member) else { return };
        if let Some((times, tid)) = times {
            interval = times.on_type(plan, tid, interval);
            // A thread that was never on this type of core does not wait for its PMU.
            if interval.enabled == 0 && history == History::Waiting {
                history = History::Unused;
            }
        }
        let count = scale(raw, interval);
        let work = match work {
            Work::IsRunningTime => Some(Duration::from_nanos(interval.running)),
            Work::Known(busy) => busy.map(|busy| busy.mul_f64(interval.ratio().unwrap_or(0.0))),
        };
        let moves = plan.counters.get(counter).is_some_and(must_move);
        let verdict = judge(interval, history, raw, work.filter(|_| moves));
        report(Counted { counter, count, verdict, interval: (member == 0).then_some(interval) });
    });
}

fn descriptors<E>(bundles: &[Bundle<E>]) -> usize {
    bundles.iter().map(|bundle| bundle.counters.len()).sum()
}

/// Reports whether an event must increase while code runs: cycles and instructions of every privilege level.
pub(super) fn must_move(counter: &Counter) -> bool {
    let event = &counter.event;
    let everything =
        !event.modifiers.exclude_user && !event.modifiers.exclude_kernel && !event.modifiers.exclude_host;
    // PERF_COUNT_HW_CPU_CYCLES is 0 and PERF_COUNT_HW_INSTRUCTIONS is 1; the upper half names the PMU.
    event.kind == Kind::Hardware && everything && event.selector.config[0] & 0xffff_ffff <= 1
}
