//! Plan of the switch stream: which groups it counts, and at which granularity.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::{Group, Source};
use crate::event::Event;
use crate::health::{Cause, CpuScope, Refusal, Scope};
use crate::host::{Facts, KernelVersion};
use crate::named_enum::named_enum;
use crate::targets::{Attribution, Targets};

named_enum! {
    /// Granularity of the switch stream.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum Granularity {
        /// One record per switch between cgroups. Tasks of the root cgroup and idle time are not distinguished.
        #[doc(alias = "cgroup-switches")]
        #[default]
        Cgroup = "cgroup",
        /// One record per switch between threads.
        #[doc(alias = "context-switches")]
        Process = "process",
    }
}

impl Granularity {
    /// Returns the software event that leads the group, as named by perf.
    pub const fn leader(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup-switches",
            Self::Process => "context-switches",
        }
    }
}

/// Support for the switch stream on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSupport {
    /// Support for [`Granularity::Cgroup`], and for cgroups at [`Granularity::Process`].
    pub cgroup: Result<(), Unsupported>,
    /// Support for [`Granularity::Process`].
    pub process: Result<(), Unsupported>,
}

/// Reason why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsupported {
    /// Class of the reason.
    pub cause: Cause,
    /// Reason.
    pub reason: String,
    /// Remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl StreamSupport {
    /// Returns the support as far as it is known without a system call.
    pub fn foreseen(facts: &Facts) -> Self {
        let no = |cause, reason: &str, remedy: &str| {
            Err(Unsupported { cause, reason: reason.into(), remedy: Some(remedy.into()) })
        };
        let cpu_wide = match facts.paranoid {
            None => no(
                Cause::Absent,
                "the kernel has no perf events",
                "use a kernel built with CONFIG_PERF_EVENTS",
            ),
            Some(paranoid) if paranoid > 0 && !facts.capabilities.perfmon() => no(
                Cause::Forbidden,
                "this process is not permitted to open CPU-wide events",
                "give it CAP_PERFMON, or set kernel.perf_event_paranoid=0",
            ),
            Some(_) => Ok(()),
        };
        let cgroup = match facts.kernel {
            kernel if kernel < KernelVersion(5, 13) => no(
                Cause::Absent,
                "this kernel does not write records at switches between cgroups",
                "use Linux 5.13 or later, or attribution: dedicated",
            ),
            _ => cpu_wide.clone(),
        };
        let process = match facts.own_pid_namespace {
            true => no(
                Cause::Forbidden,
                "this process is in its own PID namespace, where records do not contain process IDs of the host",
                "run it in the PID namespace of the host (hostPID: true, --pid=host)",
            ),
            false => cpu_wide,
        };
        Self { cgroup, process }
    }

    fn of(&self, scope: Scope) -> &Result<(), Unsupported> {
        if scope == Scope::Process { &self.process } else { &self.cgroup }
    }
}

/// Reason for the source of a group's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceReason<'a> {
    /// Configured in the file.
    Configured(Attribution),
    /// `auto`: the selection covers all or many cgroups or processes.
    Many,
    /// `auto`: the selection names a few targets.
    Few,
    /// `auto`: the group has modifiers that require separate descriptors.
    Modifiers,
    /// `auto`: this machine does not support the stream.
    NoStream(&'a Unsupported),
    /// The stream already counts the events for other groups.
    Anyway,
    /// The targets are whole CPUs, which need no attribution.
    Whole,
}

impl fmt::Display for SourceReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured(Attribution::Auto | Attribution::Dedicated) => "attribution: dedicated",
            Self::Configured(Attribution::Stream) => "attribution: stream",
            Self::Many => "auto: all or many targets",
            Self::Few => "auto: few named targets",
            Self::Modifiers => "auto: event modifiers",
            Self::NoStream(Unsupported { cause: Cause::Absent, .. }) => "auto: not supported by this kernel",
            Self::NoStream(Unsupported { cause: Cause::Forbidden, .. }) => "auto: not permitted",
            Self::NoStream(_) => "auto: rejected by the kernel",
            Self::Anyway => "already counted by the switch stream",
            Self::Whole => "no attribution needed",
        })
    }
}

/// Scope that the stream could count, but not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoStream {
    /// Scope.
    pub scope: Scope,
    /// Reason.
    #[serde(flatten)]
    pub why: Unsupported,
}

impl NoStream {
    /// Returns each reason once per scope.
    pub fn all<'a>(groups: impl IntoIterator<Item = &'a Arc<Group>>, support: &StreamSupport) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for group in groups {
            let SourceReason::NoStream(why) = group.why(support) else { continue };
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
        write!(f, "switch stream not available per {}: {}", self.scope, self.why.reason)?;
        self.why.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

impl Group {
    /// Returns the reason for the source of the counts. `support` must be that for which the group was planned.
    pub fn why<'a>(&self, support: &'a StreamSupport) -> SourceReason<'a> {
        match (self.targets.attribution(), self.source, support.of(self.scope())) {
            (Some(asked @ (Attribution::Stream | Attribution::Dedicated)), ..) => {
                SourceReason::Configured(asked)
            }
            (None, Source::Stream, _) => SourceReason::Anyway,
            (None, ..) => SourceReason::Whole,
            (Some(Attribution::Auto), Source::Stream, _) if self.targets.names_few() => SourceReason::Anyway,
            (Some(Attribution::Auto), Source::Stream, _) => SourceReason::Many,
            (Some(Attribution::Auto), _, Err(unsupported)) => SourceReason::NoStream(unsupported),
            (Some(Attribution::Auto), ..) if self.targets.names_few() => SourceReason::Few,
            (Some(Attribution::Auto), ..) => SourceReason::Modifiers,
        }
    }
}

/// Events that are scheduled together on each CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Events.
    pub events: Vec<Event>,
    /// Entries of the configuration that count them.
    pub entries: Vec<Arc<str>>,
}

/// Counter group of each CPU that writes a record at each switch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stream {
    /// Granularity.
    pub granularity: Granularity,
    /// Whether records contain the cgroup.
    pub cgroup: bool,
    /// Whether records contain `CLOCK_MONOTONIC` timestamps, because they are also the input of the scheduler metrics.
    pub timed: bool,
    /// Counted events. Sets that fit on the PMU together share a group and a record.
    pub sets: Vec<Set>,
}

impl Stream {
    /// Decides the source of each group, and plans the stream for the groups that use it. `follows_threads` states whether there are
    /// scheduler metrics. `refused` receives groups that require a stream that this machine does not support.
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
        let mut stream = Self::default();
        for group in groups.iter().filter(|group| group.source == Source::Stream) {
            stream.take_in(group, support);
        }
        if stream.sets.is_empty() {
            return None;
        }
        // The same record attributes counts to the outgoing task and is the input of the scheduler metrics.
        if follows_threads && stream.granularity == Granularity::Process && support.cgroup.is_ok() {
            (stream.timed, stream.cgroup) = (true, true);
        }
        // Groups whose events the stream already counts have no additional cost.
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

    /// Reports whether the stream counts hardware events.
    pub fn needs_pmu(&self) -> bool {
        self.sets.iter().flat_map(|set| &set.events).any(|event| event.kind.needs_pmu())
    }

    /// Adds the events of a group.
    fn take_in(&mut self, group: &Group, support: &StreamSupport) {
        match &group.targets {
            Targets::Cpus(_) => {}
            Targets::Cgroups(selection) => {
                self.cgroup = true;
                // Idle time and tasks of the root cgroup can only be distinguished by thread.
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

    /// Returns the set that contains all events of a group, and their indexes in it.
    fn place_of(&self, group: &Group) -> Option<(usize, Vec<usize>)> {
        self.sets.iter().enumerate().find_map(|(index, set)| {
            let place = |event: &Event| set.events.iter().position(|other| other.counts_as(event));
            let places: Option<Vec<usize>> =
                group.counters.iter().map(|counter| place(&counter.event)).collect();
            Some((index, places?))
        })
    }

    /// Returns the indexes of a group's counters among all counters of the stream; `None` if one is missing.
    pub fn counters_of(&self, group: &Group) -> Option<Vec<usize>> {
        let (set, places) = self.place_of(group)?;
        let first = self.first_of(set);
        Some(places.into_iter().map(|place| first + place).collect())
    }

    /// Returns the index of the first counter of a set.
    pub fn first_of(&self, set: usize) -> usize {
        self.sets.iter().take(set).map(|set| set.events.len()).sum()
    }

    /// Returns the number of counters in all sets.
    pub fn width(&self) -> usize {
        self.first_of(self.sets.len())
    }
}

/// Reports whether a group has no modifiers that require separate descriptors: pinned, exclusive or weak.
fn is_plain(group: &Group) -> bool {
    group
        .counters
        .iter()
        .map(|counter| counter.event.modifiers)
        .all(|modifiers| !modifiers.pinned && !modifiers.exclusive && !modifiers.weak)
}

impl Unsupported {
    /// Converts the reason to a refusal of the events of a group.
    pub(super) fn refusal(&self, group: &Group) -> Refusal {
        let events: Vec<&str> = group.counters.iter().map(|counter| &*counter.event.name).collect();
        Refusal {
            event: events.join(",").into(),
            target: format!("each {}", group.scope().words().target),
            cause: self.cause,
            errno: None,
            reason: format!("attribution: stream is not available: {}", self.reason),
            remedy: self.remedy.clone(),
            unknown: false,
        }
    }
}
