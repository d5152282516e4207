//! Rotation of the planned groups on each PMU: which groups are on the PMU together, and what that costs in accuracy.

mod turns;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Group, Plan, Sampler, Source, Stream};
use crate::event::{Capacity, Catalog, CounterMask, CounterSet, Event, Kind, Topdown};
use crate::health::Scope;
use turns::{Assignment, Candidate, ContextKind, turns};

/// Busy time of a CPU that [`RotatedGroup::standard_error`] is for.
pub const ERROR_TIME: Duration = Duration::from_secs(10);

/// Use of one PMU by a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// The PMU; `None` = the only PMU of the cores.
    pub pmu: Option<Arc<str>>,
    /// Its counters.
    pub capacity: Capacity,
    /// Whether the NMI watchdog occupies a counter.
    pub watchdog: bool,
    /// Duration of a turn.
    pub interval: Duration,
    /// Groups, in the order of opening.
    pub groups: Vec<RotatedGroup>,
    /// Groups that are on the PMU in each turn, by their number; empty if the counters are not known.
    pub turns: Vec<Vec<usize>>,
}

/// A group of events on a PMU.
#[derive(Debug, Clone, PartialEq)]
pub struct RotatedGroup {
    /// Entries of the configuration.
    pub entries: Vec<Arc<str>>,
    /// What opens it.
    pub user: GroupUser,
    /// Events that need a counter.
    pub events: Vec<Arc<str>>,
    /// Whether it never leaves the PMU (`priority: always`, `:D`).
    pub pinned: bool,
    /// Events that the kernel rejects as members, because the group is larger than the PMU. They are not among `events`.
    pub left_out: Vec<Arc<str>>,
    /// Expected running ratio; `None` if the counters are not known.
    pub ratio: Option<f64>,
    /// Expected running ratio if the events, and those that are left out, were in as few groups as necessary; `None` without such events.
    pub ratio_apart: Option<f64>,
}

/// What opens a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupUser {
    /// The switch stream.
    Stream,
    /// Events for each target of a scope.
    Dedicated(Scope),
    /// A sampler of a profile.
    Profile,
}

impl RotatedGroup {
    /// Returns the expected standard error of a count in [`ERROR_TIME`] of a busy CPU, as a fraction of the count. `None` if the group never
    /// counts, or if the counters are not known.
    ///
    /// The group sees a part `r` of the `n` intervals of the rotation. As a simple random sample without replacement, the estimate of the
    /// total has the relative standard error `cv × sqrt((1 − r) ∕ (r × n))`, where `cv` is the coefficient of variation of the count of an
    /// interval (Cochran, Sampling Techniques, 3rd edition, section 2.6). 1 is assumed for `cv`: events in bursts that are as long as an
    /// interval. Steady programs have less.
    pub fn standard_error(&self, interval: Duration) -> Option<f64> {
        let ratio = self.ratio.filter(|&ratio| ratio > 0.0)?;
        let intervals = ERROR_TIME.as_secs_f64() / interval.as_secs_f64().max(1e-3);
        Some(((1.0 - ratio) / (ratio * intervals)).sqrt())
    }

    /// Reports whether the group never counts.
    pub fn is_starved(&self) -> bool {
        self.ratio == Some(0.0)
    }
}

impl Rotation {
    /// Reports whether each group is on the PMU at all times.
    pub fn is_always(&self) -> bool {
        self.groups.iter().all(|group| group.ratio == Some(1.0))
    }
}

/// Distributes counters over consecutive groups that fit on their PMU beside the NMI watchdog. One group if the counters of the PMU are not
/// known.
pub(super) fn fitting(counters: &[Counter], capacity: &Capacity, watchdog: bool) -> Vec<Vec<Counter>> {
    let Capacity::Limited(set) = capacity else { return vec![counters.to_vec()] };
    let empty = || {
        let mut assignment = Assignment::default();
        assignment.add_all(&held(set, watchdog));
        assignment
    };
    let (mut groups, mut assignment) = (vec![Vec::new()], empty());
    for counter in counters {
        let needed = set.needed_by(&counter.event);
        if !assignment.add_all(&needed) {
            let mut alone = empty();
            // The kernel rejects an event that never fits, in any group.
            if alone.add_all(&needed) {
                assignment = alone;
                groups.push(Vec::new());
            }
        }
        if let Some(group) = groups.last_mut() {
            group.push(counter.clone());
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Reports whether counters may need more than one group. Every PMU can count two generic events, and every event alone.
pub(super) fn may_need_groups(counters: &[Counter]) -> bool {
    let on_pmu = || counters.iter().filter(|counter| counter.event.kind.needs_pmu());
    let is_generic = |counter: &Counter| counter.event.kind == Kind::Hardware;
    match on_pmu().count() {
        0 | 1 => false,
        2 => !on_pmu().all(is_generic),
        _ => true,
    }
}

/// Returns the counters that other users of the PMU occupy at all times.
fn held(set: &CounterSet, watchdog: bool) -> Vec<CounterMask> {
    if watchdog { vec![set.watchdog()] } else { Vec::new() }
}

/// A group before its turns are known.
struct Planned {
    entries: Vec<Arc<str>>,
    user: GroupUser,
    /// Events that need a counter, with the counters.
    events: Vec<(Arc<str>, Vec<CounterMask>)>,
    pinned: bool,
    weak: bool,
    /// Whether slots lead it, without which the kernel counts no topdown metrics.
    slots_lead: bool,
}

impl Plan {
    /// Returns the expected rotation on each PMU that it uses. `capacity` returns the counters of a PMU, as documented or measured.
    pub fn rotations(&self, catalog: &Catalog, capacity: impl Fn(Option<&str>) -> Capacity) -> Vec<Rotation> {
        let sampled = self.samplers.iter().flat_map(|sampler| &sampler.events);
        let streamed = self.stream.iter().flat_map(|stream| &stream.sets).flat_map(|set| &set.events);
        let counted = self.groups.iter().flat_map(|group| &group.counters).map(|counter| &counter.event);
        let events = counted.chain(streamed).chain(sampled).filter(|event| event.kind.needs_pmu());
        let pmus: BTreeSet<Option<Arc<str>>> = events.map(|event| event.pmu.clone()).collect();
        pmus.into_iter()
            .map(|pmu| {
                let capacity = capacity(pmu.as_deref());
                let is_core = catalog.is_core(pmu.as_deref());
                let watchdog = catalog.facts().nmi_watchdog && is_core;
                let interval = catalog.rotation_interval(pmu.as_deref());
                self.rotation(pmu, capacity, watchdog, interval)
            })
            .filter(|rotation| !rotation.groups.is_empty())
            .collect()
    }

    fn rotation(
        &self,
        pmu: Option<Arc<str>>,
        capacity: Capacity,
        watchdog: bool,
        interval: Duration,
    ) -> Rotation {
        let set = match &capacity {
            Capacity::Limited(set) => Some(set),
            Capacity::Unlimited | Capacity::Unknown(_) => None,
        };
        let held = set.map(|set| held(set, watchdog)).unwrap_or_default();
        let mine = |event: &Event| event.kind.needs_pmu() && event.pmu == pmu;
        let needs = |event: &Event| {
            let masks = set.map(|set| set.needed_by(event)).unwrap_or_default();
            (Arc::clone(&event.name), masks)
        };
        // The order of opening. The stream is opened beside the dedicated groups.
        let dedicated = self.groups.iter().filter(|group| group.source == Source::Dedicated);
        let mut planned: Vec<Planned> =
            dedicated.map(|group| Planned::of_group(group, &mine, &needs)).collect();
        if let Some(stream) = &self.stream {
            let always = set.map(|_| always(&held, &planned));
            planned.extend(streamed(stream, always.as_ref(), &mine, &needs));
        }
        planned.extend(self.samplers.iter().flat_map(|sampler| Planned::of_sampler(sampler, &mine, &needs)));
        planned.retain(|group| !group.events.is_empty());
        let mut rotation =
            Rotation { pmu, watchdog, interval, groups: Vec::new(), turns: Vec::new(), capacity };
        match &rotation.capacity {
            Capacity::Unknown(_) => {
                rotation.groups = planned.iter().map(|group| group.placed(None)).collect();
            }
            Capacity::Unlimited => {
                rotation.groups = planned.iter().map(|group| group.placed(Some(1.0))).collect();
                rotation.turns = vec![(0..planned.len()).collect()];
            }
            Capacity::Limited(_) => (rotation.groups, rotation.turns) = schedule(&held, &planned),
        }
        rotation
    }
}

/// Returns the assignment of the counters that are occupied at all times: by other users and by pinned groups of CPUs.
fn always(held: &[CounterMask], planned: &[Planned]) -> Assignment {
    let mut assignment = Assignment::default();
    assignment.add_all(held);
    let parts = planned.iter().flat_map(Planned::accepted).map(|part| part.candidate());
    for pinned in parts.filter(|part| part.pinned && part.context == ContextKind::Cpu) {
        assignment.add_all(&pinned.events);
    }
    assignment
}

/// Schedules groups on a PMU with known counters.
fn schedule(held: &[CounterMask], planned: &[Planned]) -> (Vec<RotatedGroup>, Vec<Vec<usize>>) {
    let parts: Vec<Vec<Planned>> = planned.iter().map(Planned::accepted).collect();
    let all: Vec<&Planned> = parts.iter().flatten().collect();
    let candidates: Vec<Candidate> = all.iter().map(|group| group.candidate()).collect();
    let scheduled = turns(held, &candidates);
    let mut groups: Vec<RotatedGroup> =
        all.iter().zip(&scheduled.ratios).map(|(group, &ratio)| group.placed(Some(ratio))).collect();
    let always = always(held, planned);
    // The first part of a group has the events that were left out, and what splitting it would give.
    let mut number = 0;
    for (whole, part) in planned.iter().zip(&parts) {
        let first = number;
        number += part.len();
        let taken: usize = part.iter().map(|part| part.events.len()).sum();
        let Some(group) = groups.get_mut(first).filter(|_| taken < whole.events.len()) else { continue };
        let kept: Vec<&Arc<str>> = part.iter().flat_map(|part| &part.events).map(|(name, _)| name).collect();
        let left_out = whole.events.iter().map(|(name, _)| name).filter(|name| !kept.contains(name));
        group.left_out = left_out.cloned().collect();
        let split = if whole.pinned { whole.split(&Assignment::default()) } else { whole.split(&always) };
        let range = first..number;
        let mut apart = candidates.clone();
        apart.splice(range, split.iter().map(Planned::candidate));
        let ratios = turns(held, &apart).ratios;
        let of_split = ratios.iter().skip(first).take(split.len());
        group.ratio_apart = of_split.copied().reduce(f64::min);
    }
    (groups, scheduled.turns)
}

impl Planned {
    fn of_group(
        group: &Group,
        mine: &impl Fn(&Event) -> bool,
        needs: &impl Fn(&Event) -> (Arc<str>, Vec<CounterMask>),
    ) -> Self {
        let events = group.counters.iter().map(|counter| &counter.event);
        let first = group.counters.first().map(|counter| &counter.event);
        Self {
            entries: vec![Arc::clone(&group.entry)],
            user: GroupUser::Dedicated(group.scope()),
            events: events.filter(|event| mine(event)).map(needs).collect(),
            pinned: first.is_some_and(|event| event.modifiers.pinned),
            weak: group.weak,
            slots_lead: first.is_some_and(leads),
        }
    }

    /// Returns a group for each event of a sampler, which is opened alone.
    fn of_sampler<'a>(
        sampler: &'a Sampler,
        mine: &'a impl Fn(&Event) -> bool,
        needs: &'a impl Fn(&Event) -> (Arc<str>, Vec<CounterMask>),
    ) -> impl Iterator<Item = Self> + 'a {
        sampler.events.iter().filter(|event| mine(event)).map(|event| Self {
            entries: vec![Arc::clone(&sampler.entry)],
            user: GroupUser::Profile,
            events: vec![needs(event)],
            pinned: event.modifiers.pinned,
            weak: false,
            slots_lead: false,
        })
    }

    fn masks(&self) -> Vec<CounterMask> {
        self.events.iter().flat_map(|(_, masks)| masks).copied().collect()
    }

    fn with(&self, events: Vec<(Arc<str>, Vec<CounterMask>)>) -> Self {
        let (entries, user, pinned) = (self.entries.clone(), self.user, self.pinned);
        Self { entries, user, events, pinned, weak: self.weak, slots_lead: self.slots_lead }
    }

    /// Returns the groups that the kernel accepts: one with the events that fit in their order, and if it is weak, one for each other event.
    fn accepted(&self) -> Vec<Self> {
        let mut assignment = Assignment::default();
        let fits = |(_, masks): &(Arc<str>, Vec<CounterMask>)| {
            let is_led = self.slots_lead || !masks.iter().any(|mask| mask.is_topdown_metric());
            is_led && assignment.add_all(masks)
        };
        let (first, rest): (Vec<_>, Vec<_>) = self.events.iter().cloned().partition(fits);
        let alone = rest.into_iter().filter(|_| self.weak).map(|event| self.with(vec![event]));
        std::iter::once(self.with(first)).filter(|first| !first.events.is_empty()).chain(alone).collect()
    }

    /// Returns groups of consecutive events that fit on the PMU beside what is `always` on it.
    fn split(&self, always: &Assignment) -> Vec<Self> {
        let (mut groups, mut assignment) = (vec![self.with(Vec::new())], always.clone());
        for event in &self.events {
            if !assignment.add_all(&event.1) {
                assignment = always.clone();
                if !assignment.add_all(&event.1) {
                    continue;
                }
                groups.push(self.with(Vec::new()));
            }
            if let Some(group) = groups.last_mut() {
                group.events.push(event.clone());
            }
        }
        groups.retain(|group| !group.events.is_empty());
        groups
    }

    fn candidate(&self) -> Candidate {
        let context = match self.user {
            GroupUser::Dedicated(Scope::Process) => ContextKind::Task,
            GroupUser::Dedicated(_) | GroupUser::Stream | GroupUser::Profile => ContextKind::Cpu,
        };
        Candidate { events: self.masks(), context, pinned: self.pinned }
    }

    fn placed(&self, ratio: Option<f64>) -> RotatedGroup {
        let mut entries = self.entries.clone();
        entries.dedup();
        RotatedGroup {
            entries,
            user: self.user,
            events: self.events.iter().map(|(name, _)| Arc::clone(name)).collect(),
            pinned: self.pinned,
            left_out: Vec::new(),
            // Sums of fractions differ from 1 by rounding.
            ratio: ratio.map(|ratio| if ratio > 1.0 - 1e-9 { 1.0 } else { ratio }),
            ratio_apart: None,
        }
    }
}

/// Reports whether an event leads its group, whatever the order of the events.
fn leads(event: &Event) -> bool {
    event.topdown == Some(Topdown::Slots)
}

/// Returns the groups of hardware events of the switch stream, distributed as the stream distributes them when it is opened: all in one
/// group; otherwise each set in the last group if it fits; and each set in a group of its own if such a group never gets on the PMU. `always`:
/// the counters that are occupied at all times; `None` = the counters are not known.
fn streamed(
    stream: &Stream,
    always: Option<&Assignment>,
    mine: &impl Fn(&Event) -> bool,
    needs: &impl Fn(&Event) -> (Arc<str>, Vec<CounterMask>),
) -> Vec<Planned> {
    let group = |entries: &[Arc<str>]| Planned {
        entries: entries.to_vec(),
        user: GroupUser::Stream,
        events: Vec::new(),
        pinned: false,
        weak: false,
        slots_lead: false,
    };
    let slots_lead = |set: &super::Set| set.events.iter().any(|event| mine(event) && leads(event));
    let join = |group: &Planned, set: &super::Set, counted: &mut Vec<Event>| {
        let mut joined = group.with(group.events.clone());
        joined.slots_lead |= group.events.is_empty() && slots_lead(set);
        joined.entries.extend(set.entries.iter().filter(|entry| !group.entries.contains(entry)).cloned());
        for event in set.events.iter().filter(|event| mine(event)) {
            // Members with equal options are opened once.
            if !counted.iter().any(|known| known.counts_as(event)) {
                counted.push(event.clone());
                joined.events.push(needs(event));
            }
        }
        joined
    };
    let mut sets: Vec<_> = stream.sets.iter().filter(|set| set.events.iter().any(mine)).collect();
    // The stream opens them in this order.
    sets.sort_by_key(|set| !slots_lead(set));
    let mut groups: Vec<(Planned, Vec<Event>)> = Vec::new();
    for set in &sets {
        if let Some((last, counted)) = groups.last_mut() {
            let mut together = counted.clone();
            let joined = join(last, set, &mut together);
            if always.is_none() || Assignment::default().add_all(&joined.masks()) {
                (*last, *counted) = (joined, together);
                continue;
            }
        }
        let mut counted = Vec::new();
        let alone = join(&group(&[]), set, &mut counted);
        groups.push((alone, counted));
    }
    let starves = |(group, _): &(Planned, Vec<Event>)| {
        let masks = group.accepted().first().map(Planned::masks).unwrap_or_default();
        always.is_some_and(|always| !always.clone().add_all(&masks))
    };
    if groups.len() < sets.len() && groups.iter().any(starves) {
        return sets.into_iter().map(|set| join(&group(&[]), set, &mut Vec::new())).collect();
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ratio: f64) -> RotatedGroup {
        RotatedGroup {
            entries: Vec::new(),
            user: GroupUser::Stream,
            events: Vec::new(),
            pinned: false,
            left_out: Vec::new(),
            ratio: Some(ratio),
            ratio_apart: None,
        }
    }

    /// 10 s have 2500 turns of 4 ms.
    #[test]
    fn the_error_falls_with_the_running_ratio_and_with_shorter_turns() {
        let error = |ratio: f64, ms| group(ratio).standard_error(Duration::from_millis(ms));
        for (ratio, ms, expected) in [
            (1.0, 4, Some(0.0)),
            (0.5, 4, Some(0.02)),
            (0.5, 1, Some(0.01)),
            (0.2, 4, Some(0.04)),
            (0.0, 4, None),
        ] {
            assert_eq!(error(ratio, ms), expected, "{ratio} {ms} ms");
        }
    }
}
