//! The switch stream as planned: which groups it counts, and how finely it must tell owners apart.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Group, Source};
use crate::event::Event;
use crate::health::{Cause, CpuScope, Refusal, Scope};
use crate::host::{Facts, KernelVersion};
use crate::target::{Attribution, Targets};
use crate::words::words;

words! {
    /// How finely the stream tells owners apart.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Granularity {
        /// A record when a CPU goes from one cgroup to another. The root cgroup's tasks and idle time are one owner.
        #[doc(alias = "cgroup-switches")]
        Cgroup = "cgroup",
        /// A record when a CPU goes from one thread to another.
        #[doc(alias = "context-switches")]
        Process = "process",
    }
}

impl Granularity {
    /// The software event that leads the group, as perf calls it.
    pub const fn leader(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup-switches",
            Self::Process => "context-switches",
        }
    }
}

/// Whether this machine has what the stream takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSupport {
    /// For [`Granularity::Cgroup`], and for cgroups at [`Granularity::Process`].
    pub cgroup: Result<(), Unsupported>,
    /// For [`Granularity::Process`].
    pub process: Result<(), Unsupported>,
}

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsupported {
    /// The class of the answer.
    pub cause: Cause,
    /// Why.
    pub reason: String,
    /// What would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl StreamSupport {
    /// What can be told without asking the kernel.
    pub fn foreseen(facts: &Facts) -> Self {
        let no = |cause, reason: &str, remedy: &str| {
            Err(Unsupported { cause, reason: reason.into(), remedy: Some(remedy.into()) })
        };
        let cpu_wide = match facts.paranoid {
            None => {
                no(Cause::Absent, "the kernel has no perf events", "use one built with CONFIG_PERF_EVENTS")
            }
            Some(paranoid) if paranoid > 0 && !facts.capabilities.perfmon() => no(
                Cause::Forbidden,
                "counting everything on a CPU is not allowed to this process",
                "give it CAP_PERFMON, or set kernel.perf_event_paranoid=0",
            ),
            Some(_) => Ok(()),
        };
        let cgroup = match facts.kernel {
            kernel if kernel < KernelVersion(5, 13) => no(
                Cause::Absent,
                "this kernel writes no records at switches between cgroups",
                "Linux 5.13 and later do; before, attribution: dedicated is the only way",
            ),
            _ => cpu_wide.clone(),
        };
        let process = match facts.own_pid_namespace {
            true => no(
                Cause::Forbidden,
                "this process lives in a pid namespace of its own, where the kernel hides which process it was",
                "run it in the host's (hostPID: true, --pid=host)",
            ),
            false => cpu_wide,
        };
        Self { cgroup, process }
    }

    fn of(&self, scope: Scope) -> &Result<(), Unsupported> {
        if scope == Scope::Process { &self.process } else { &self.cgroup }
    }
}

/// Why a group is counted as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why<'a> {
    /// The file says so.
    Asked(Attribution),
    /// `auto`: it is for all cgroups or processes, or for many.
    Many,
    /// `auto`: it is for a few, each by its name.
    Few,
    /// `auto`: it asks for something that only a group of its own can have.
    Modifiers,
    /// `auto`: this machine has no stream.
    NoStream(&'a Unsupported),
    /// The stream counts the same for others.
    Anyway,
    /// It is for whole CPUs, where there is nothing to be told apart.
    Whole,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked(Attribution::Auto | Attribution::Dedicated) => "attribution: dedicated",
            Self::Asked(Attribution::Stream) => "attribution: stream",
            Self::Many => "auto: all or many",
            Self::Few => "auto: a few named ones",
            Self::Modifiers => "auto: for its modifiers",
            Self::NoStream(Unsupported { cause: Cause::Absent, .. }) => "auto: not in this kernel",
            Self::NoStream(Unsupported { cause: Cause::Forbidden, .. }) => "auto: not allowed here",
            Self::NoStream(_) => "auto: refused here",
            Self::Anyway => "it counts this anyway",
            Self::Whole => "nothing to tell apart",
        })
    }
}

/// A scope whose groups the stream may count, and does not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoStream {
    /// The scope.
    pub scope: Scope,
    /// Why.
    #[serde(flatten)]
    pub why: Unsupported,
}

impl NoStream {
    /// Each reason once for each scope.
    pub fn all<'a>(groups: impl IntoIterator<Item = &'a Arc<Group>>, support: &StreamSupport) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for group in groups {
            let Why::NoStream(why) = group.why(support) else { continue };
            let scope = group.scope();
            if !all.iter().any(|known| known.scope == scope && known.why == *why) {
                all.push(Self { scope, why: why.clone() });
            }
        }
        all
    }
}

impl fmt::Display for NoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no switch stream per {}: {}", self.scope, self.why.reason)?;
        self.why.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

impl Group {
    /// Why it is counted as it is, on a machine that has this of the stream: the one it was planned for.
    pub fn why<'a>(&self, support: &'a StreamSupport) -> Why<'a> {
        match (self.targets.attribution(), self.source, support.of(self.scope())) {
            (Some(asked @ (Attribution::Stream | Attribution::Dedicated)), ..) => Why::Asked(asked),
            (None, Source::Stream, _) => Why::Anyway,
            (None, ..) => Why::Whole,
            (Some(Attribution::Auto), Source::Stream, _) if self.targets.names_few() => Why::Anyway,
            (Some(Attribution::Auto), Source::Stream, _) => Why::Many,
            (Some(Attribution::Auto), _, Err(unsupported)) => Why::NoStream(unsupported),
            (Some(Attribution::Auto), ..) if self.targets.names_few() => Why::Few,
            (Some(Attribution::Auto), ..) => Why::Modifiers,
        }
    }
}

/// Events that are to be scheduled together on each CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The events.
    pub events: Vec<Event>,
    /// The entries of the configuration that count them.
    pub entries: Vec<Arc<str>>,
}

/// One group of counters for each CPU, with a record at each switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// How finely it tells owners apart.
    pub granularity: Granularity,
    /// Whether records carry the cgroup.
    pub cgroup: bool,
    /// Whether records tell when, on `CLOCK_MONOTONIC`: they are what the scheduler's metrics are made of, besides.
    pub timed: bool,
    /// What it counts. Sets that fit on the PMU together share a group and a record.
    pub sets: Vec<Set>,
}

impl Stream {
    /// Decides how each group is counted, and plans the stream for those that want one. `follows_threads`: there are metrics of the
    /// scheduler. `refused` gets the groups that insist on a stream that this machine does not have.
    pub(super) fn plan(
        groups: &mut [Group],
        support: &StreamSupport,
        follows_threads: bool,
        mut refused: impl FnMut(&Group, &Unsupported),
    ) -> Option<Self> {
        for group in groups.iter_mut() {
            let scope = group.scope();
            group.source = match (group.targets.attribution(), support.of(scope)) {
                (Some(Attribution::Stream), Ok(())) => Source::Stream,
                (Some(Attribution::Auto), Ok(())) if !group.targets.names_few() && is_plain(group) => {
                    Source::Stream
                }
                (Some(Attribution::Stream), Err(unsupported)) => {
                    refused(group, unsupported);
                    Source::Refused
                }
                _ => Source::Dedicated,
            };
        }
        let mut stream =
            Self { granularity: Granularity::Cgroup, cgroup: false, timed: false, sets: Vec::new() };
        for group in groups.iter().filter(|group| group.source == Source::Stream) {
            stream.take_in(group, support);
        }
        if stream.sets.is_empty() {
            return None;
        }
        // One record tells who leaves the CPU, for its counts and for the scheduler's metrics.
        if follows_threads && stream.granularity == Granularity::Process && support.cgroup.is_ok() {
            (stream.timed, stream.cgroup) = (true, true);
        }
        // What the stream counts anyway costs nothing more.
        for group in groups.iter_mut() {
            let fine = match group.scope() {
                Scope::Cpus(cpus) => cpus != CpuScope::Pmu,
                Scope::Cgroup => stream.cgroup,
                Scope::Process => stream.granularity == Granularity::Process && !group.targets.needs_cgroup(),
            };
            let free =
                matches!(group.targets.attribution(), None | Some(Attribution::Auto)) && is_plain(group);
            if fine && free && group.source == Source::Dedicated && stream.counters_of(group).is_some() {
                group.source = Source::Stream;
                stream.mention(group);
            }
        }
        Some(stream)
    }

    /// Whether hardware events are among what it counts.
    pub fn needs_pmu(&self) -> bool {
        self.sets.iter().flat_map(|set| &set.events).any(|event| event.kind.needs_pmu())
    }

    /// Adds what a group wants.
    fn take_in(&mut self, group: &Group, support: &StreamSupport) {
        match &group.targets {
            Targets::Cpus(_) => {}
            Targets::Cgroups(selection) => {
                self.cgroup = true;
                // Idle time can be told from what the root cgroup does only by thread.
                if selection.names_root() && support.process.is_ok() {
                    self.granularity = Granularity::Process;
                }
            }
            Targets::Processes(selection) => {
                self.granularity = Granularity::Process;
                self.cgroup |= selection.need().cgroup && support.cgroup.is_ok();
            }
        }
        if self.counters_of(group).is_none() {
            let events = group.counters.iter().map(|counter| counter.event.clone()).collect();
            self.sets.push(Set { events, entries: Vec::new() });
        }
        self.mention(group);
    }

    fn mention(&mut self, group: &Group) {
        let Some((set, _)) = self.place_of(group) else { return };
        if let Some(set) = self.sets.get_mut(set)
            && !set.entries.contains(&group.entry)
        {
            set.entries.push(Arc::clone(&group.entry));
        }
    }

    /// The set that has all events of a group, and where in it they are.
    fn place_of(&self, group: &Group) -> Option<(usize, Vec<usize>)> {
        self.sets.iter().enumerate().find_map(|(index, set)| {
            let place = |event: &Event| set.events.iter().position(|other| other.counts_as(event));
            let places: Option<Vec<usize>> =
                group.counters.iter().map(|counter| place(&counter.event)).collect();
            Some((index, places?))
        })
    }

    /// The numbers that the counters of a group have among all that the stream counts, if it counts them all.
    pub fn counters_of(&self, group: &Group) -> Option<Vec<usize>> {
        let (set, places) = self.place_of(group)?;
        let first = self.first_of(set);
        Some(places.into_iter().map(|place| first + place).collect())
    }

    /// The number of the first counter of a set.
    pub fn first_of(&self, set: usize) -> usize {
        self.sets.iter().take(set).map(|set| set.events.len()).sum()
    }

    /// How many counters there are in all sets.
    pub fn width(&self) -> usize {
        self.first_of(self.sets.len())
    }
}

/// Whether a group asks for nothing that only a group of its own can have: to be pinned, alone on the PMU, or broken up.
fn is_plain(group: &Group) -> bool {
    group
        .counters
        .iter()
        .map(|counter| counter.event.modifiers)
        .all(|modifiers| !modifiers.pinned && !modifiers.exclusive && !modifiers.weak)
}

impl Unsupported {
    /// As a refusal of the events of a group.
    pub(super) fn refusal(&self, group: &Group) -> Refusal {
        let events: Vec<&str> = group.counters.iter().map(|counter| &*counter.event.name).collect();
        Refusal {
            event: events.join(",").into(),
            target: format!("each {}", group.scope().words().target),
            cause: self.cause,
            errno: None,
            reason: format!("attribution: stream cannot be had: {}", self.reason),
            remedy: self.remedy.clone(),
        }
    }
}
