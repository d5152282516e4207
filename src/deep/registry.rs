//! The sets of events in force, those that wait, and those that have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{DeepReport, DeepState, Moment, Origin, Refusal, RefusalKind, RefusedSet, entry_of, shown_after};
use crate::clock::{Monotonic, Timestamp};
use crate::config::{
    ANNOTATED, Counters, DeepEvents, DeepRequest, DeepSet, PmuSharing, metric_of, metrics_of_cgroups,
};
use crate::event::syntax::Group;
use crate::metrics::Level;
use crate::series::RETENTION;
use crate::targets::{Attribution, Cgroup, CgroupSelection, Glob, Needs, Pod, PodRule, Targets};

/// Maximum number of sets in force that were requested by clients.
pub const MAX_REQUESTED: usize = 4;

/// Maximum number of refused sets that are kept, to show them.
const MAX_REFUSED: usize = 32;

/// Maximum number of pods that are remembered, because their annotation counts once.
const MAX_PODS: usize = 4096;

/// Time after which a pod without cgroups is forgotten. Its cgroups may be missing for a moment between two containers.
const FORGET: Duration = Duration::from_secs(600);

/// A set of events in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Deep {
    /// Identifier in this process.
    pub id: u64,
    /// The set, with the cgroups that it is counted for.
    pub set: DeepSet,
    /// What it began with.
    pub origin: Origin,
    began: Timestamp,
    /// Time at which it ends, by both clocks; `None` = when the file no longer contains it.
    ends: Option<Moment>,
    reason: String,
    requester: String,
    /// UID of the pod with the annotation.
    pod: Option<Arc<str>>,
}

/// Events of sets that have ended. Their series are published as those of removed cgroups.
#[derive(Debug)]
struct Ended {
    entry: Arc<str>,
    events: DeepEvents,
    until: Monotonic,
}

/// The sets of events. Sets of the file and of pods begin with [`review`](Self::review), because their cgroups must be known.
#[derive(Debug, Default)]
pub struct Registry {
    active: Vec<Deep>,
    ended: Vec<Ended>,
    /// The sets of the file.
    file: Vec<DeepSet>,
    /// Names of sets of the file that have not begun, and can begin at the next review.
    pending: Vec<Arc<str>>,
    /// Pods with the annotation, by set and UID, with the time at which their cgroups were last seen.
    pods: BTreeMap<(Arc<str>, Arc<str>), Monotonic>,
    refused: Vec<RefusedSet>,
    last: u64,
}

impl Registry {
    /// Returns a registry in which all sets of a file are in force, for a check of the file.
    pub fn of_file(sets: &[DeepSet]) -> Self {
        let mut registry = Self::default();
        let now = Moment { monotonic: Monotonic::default(), wall: Timestamp::default() };
        for set in sets {
            registry.add(set.clone(), Origin::File, (String::new(), String::new()), None, now);
        }
        registry
    }

    /// Takes over the sets of a file. A set that the file contained before continues, or stays ended.
    pub fn set_file(&mut self, sets: &[DeepSet], now: Moment) {
        let before = std::mem::replace(&mut self.file, sets.to_vec());
        let stays = |name: &str| {
            let old = before.iter().find(|set| *set.name == *name);
            old.is_some() && old == sets.iter().find(|set| *set.name == *name)
        };
        self.pending.retain(|name| stays(name));
        self.refused.retain(|refused| stays(&refused.name));
        self.pods.retain(|(name, _), _| stays(name));
        self.end_where(now, "the file has changed", |deep| {
            deep.origin != Origin::Request && !stays(&deep.set.name)
        });
        for set in sets.iter().filter(|set| !stays(&set.name)) {
            if !set.cgroups.include.is_empty() || !set.cgroups.pods.is_empty() {
                self.pending.push(Arc::clone(&set.name));
            }
        }
    }

    /// Begins a requested set, or replaces the active one with its name. `counters` are the entries of the file, `cgroups` all cgroups.
    ///
    /// # Errors
    /// Why it does not begin.
    pub fn request(
        &mut self,
        request: DeepRequest,
        requester: &str,
        (counters, cgroups, limit): (&[Counters], &[Arc<Cgroup>], usize),
        now: Moment,
    ) -> Result<u64, Refusal> {
        let DeepRequest { set, reason } = request;
        let replaced = self.active.iter().position(|deep| {
            deep.origin == Origin::Request && deep.set.name == set.name && !set.name.is_empty()
        });
        let requested = self.active.iter().filter(|deep| deep.origin == Origin::Request).count();
        if replaced.is_none() && requested >= MAX_REQUESTED {
            let reason = format!("{MAX_REQUESTED} requested sets are in force already");
            let remedy = "wait for the end of one, or end it with DELETE /api/v1/deep/ID";
            return Err(Refusal::new(RefusalKind::Busy, reason, remedy));
        }
        let others = self.active.iter().enumerate().filter(|(at, _)| Some(*at) != replaced);
        self.conflict(&set, others.map(|(_, deep)| deep))?;
        let selected: Vec<&Cgroup> =
            cgroups.iter().map(|cgroup| &**cgroup).filter(|cgroup| set.cgroups.matches(cgroup)).collect();
        if selected.is_empty() {
            let remedy = "compare it with the label `cgroup` of /metrics; names of pods are known a few seconds after their start";
            return Err(Refusal::new(RefusalKind::Unknown, "the set selects no cgroup of this node", remedy));
        }
        if selected.len() > limit {
            return Err(Refusal::too_many(selected.len(), limit));
        }
        counted_for_others(&set, counters, &selected)?;
        let id = replaced.map(|at| self.active.remove(at)).map(|old| {
            self.keep_series(&old, now);
            old.id
        });
        Ok(self.start(set, Origin::Request, (reason, requester.to_owned()), id, now))
    }

    /// Ends a set before its time.
    ///
    /// # Errors
    /// There is no such set.
    pub fn end(&mut self, id: u64, now: Moment) -> Result<(), Refusal> {
        if self.end_where(now, "requested", |deep| deep.id == id) {
            return Ok(());
        }
        let reason = format!("no set of events with the ID {id} is in force");
        Err(Refusal::new(RefusalKind::Unknown, reason, "see GET /api/v1/deep for the sets in force"))
    }

    /// Ends the sets that are over, and forgets the series of those that ended some minutes ago. Reports whether the entries have changed.
    pub fn expire(&mut self, now: Moment) -> bool {
        let is_over = |deep: &Deep| deep.ends.is_some_and(|ends| ends.monotonic <= now.monotonic);
        let ended = self.end_where(now, "its time is over", is_over);
        let before = self.ended.len();
        self.ended.retain(|ended| ended.until > now.monotonic);
        ended || self.ended.len() < before
    }

    /// Returns the time at which [`expire`](Self::expire) is due; `None` = never.
    pub fn due(&self) -> Option<Monotonic> {
        let ends = self.active.iter().filter_map(|deep| Some(deep.ends?.monotonic));
        ends.chain(self.ended.iter().map(|ended| ended.until)).min()
    }

    /// Reports whether a [`review`](Self::review) changes nothing, whatever the cgroups are.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.pending.is_empty() && !self.allows_annotations()
    }

    /// Compares the sets with the cgroups of the host: begins sets of the file and of pods with the annotation, and ends sets that select
    /// too many cgroups or a pod that is gone. Reports whether the entries have changed.
    pub fn review(&mut self, cgroups: &[Arc<Cgroup>], limit: usize, now: Moment) -> bool {
        let number = |selection: &CgroupSelection| cgroups.iter().filter(|at| selection.matches(at)).count();
        let gone = self
            .end_where(now, "its pod has ended", |deep| deep.pod.is_some() && number(&deep.set.cgroups) == 0);
        let wide = self.end_wide(number, limit, now);
        let began = self.begin_pending(number, limit, now);
        self.begin_annotated(cgroups, limit, now) || began || wide || gone
    }

    /// Ends the sets that select too many cgroups. All pods with the same annotation are one set, of which the last ones end.
    fn end_wide(&mut self, number: impl Fn(&CgroupSelection) -> usize, limit: usize, now: Moment) -> bool {
        let mut annotated: BTreeMap<&str, usize> = BTreeMap::new();
        let mut wide = Vec::new();
        for Deep { id, set, origin, requester, .. } in &self.active {
            let own = number(&set.cgroups);
            let all = match origin {
                Origin::Annotation => annotated.entry(&set.name).or_default(),
                Origin::File | Origin::Request => &mut 0,
            };
            if *all + own > limit {
                let refusal = Refusal::too_many(*all + own, limit);
                wide.push((*id, Arc::clone(&set.name), *origin, requester.clone(), refusal));
            } else {
                *all += own;
            }
        }
        let ended = self
            .end_where(now, "it selects too many cgroups", |deep| wide.iter().any(|(id, ..)| *id == deep.id));
        for (_, name, origin, requester, refusal) in wide {
            self.refuse(&name, origin, requester, refusal);
        }
        ended
    }

    fn allows_annotations(&self) -> bool {
        self.file.iter().any(|set| set.annotation)
    }

    fn begin_pending(
        &mut self,
        number: impl Fn(&CgroupSelection) -> usize,
        limit: usize,
        now: Moment,
    ) -> bool {
        let mut began = false;
        for name in std::mem::take(&mut self.pending) {
            let Some(set) = self.file.iter().find(|set| set.name == name).cloned() else { continue };
            let selected = number(&set.cgroups);
            let refused = if selected > limit {
                Err(Refusal::too_many(selected, limit))
            } else {
                self.conflict(&set, self.active.iter())
            };
            match refused {
                Ok(()) => {
                    self.refused.retain(|refused| refused.name != name || refused.origin != Origin::File);
                    self.start(set, Origin::File, (String::new(), String::new()), None, now);
                    began = true;
                }
                Err(refusal) => {
                    self.refuse(&name, Origin::File, String::new(), refusal);
                    self.pending.push(name);
                }
            }
        }
        began
    }

    fn begin_annotated(&mut self, cgroups: &[Arc<Cgroup>], limit: usize, now: Moment) -> bool {
        if !self.allows_annotations() {
            return false;
        }
        let mut began = false;
        for (pod, wanted, selected) in annotated(cgroups) {
            let key = (Arc::clone(&wanted), Arc::clone(&pod.uid));
            if let Some(seen) = self.pods.get_mut(&key) {
                *seen = now.monotonic;
                continue;
            }
            if self.pods.len() >= MAX_PODS {
                break;
            }
            let requester = format!("{}/{}", pod.namespace, pod.name);
            match self.of_pod(&wanted, &pod, selected, (cgroups, limit)) {
                Ok(set) => {
                    let about = (String::new(), requester);
                    self.start(set, Origin::Annotation, about, None, now);
                    if let Some(deep) = self.active.last_mut() {
                        deep.pod = Some(Arc::clone(&pod.uid));
                    }
                    began = true;
                }
                Err(refusal) => self.refuse(&wanted, Origin::Annotation, requester, refusal),
            }
            self.pods.insert(key, now.monotonic);
        }
        self.pods.retain(|_, seen| now.monotonic.since(*seen) < FORGET);
        began
    }

    /// Returns the set of the file that a pod requests, for the cgroups of this pod alone.
    fn of_pod(
        &self,
        name: &str,
        pod: &Pod,
        selected: usize,
        (cgroups, limit): (&[Arc<Cgroup>], usize),
    ) -> Result<DeepSet, Refusal> {
        let set = self.file.iter().find(|set| *set.name == *name && set.annotation).ok_or_else(|| {
            let reason = "the annotation perf-exporter/deep names no set that pods may request";
            let remedy = "add it to `deep` of the configuration, with `annotation: allowed`";
            Refusal::new(RefusalKind::Unknown, reason, remedy)
        })?;
        let of_set = |deep: &&Deep| deep.origin == Origin::Annotation && *deep.set.name == *name;
        let so_far = self
            .active
            .iter()
            .filter(of_set)
            .map(|deep| cgroups.iter().filter(|cgroup| deep.set.cgroups.matches(cgroup)).count());
        let all = selected + so_far.sum::<usize>();
        if all > limit {
            return Err(Refusal::too_many(all, limit));
        }
        let literal = |text: &str| Glob::new(&Glob::literal(text)).ok();
        let rule =
            PodRule { namespace: literal(&pod.namespace), pod: literal(&pod.name), ..PodRule::default() };
        let mut own = DeepSet { lasts: Some(set.lasts.unwrap_or(ANNOTATED)), ..set.clone() };
        own.cgroups.include.clear();
        own.cgroups.pods.include = vec![rule];
        self.conflict(&own, self.active.iter())?;
        Ok(own)
    }

    /// Checks whether a set shares events with one of `others` that counts further events, or not all of them.
    fn conflict<'d>(&self, set: &DeepSet, others: impl Iterator<Item = &'d Deep>) -> Result<(), Refusal> {
        let metrics: Vec<String> = set.metrics().collect();
        for other in others.filter(|other| other.set.events != set.events) {
            if let Some(shared) = other.set.metrics().find(|metric| metrics.contains(metric)) {
                let reason = format!("set {} in force counts {shared} together with other events", other.id);
                let remedy = "request the same events, wait for its end, or give the event another name: {\"event\": …, \"name\": …}";
                return Err(Refusal::new(RefusalKind::Conflict, reason, remedy));
            }
        }
        Ok(())
    }

    /// Begins a set, and logs it.
    fn start(
        &mut self,
        set: DeepSet,
        origin: Origin,
        (reason, requester): (String, String),
        id: Option<u64>,
        now: Moment,
    ) -> u64 {
        let lasts = set.lasts;
        let id = self.add(set, origin, (reason, requester), id, now);
        if let Some(Deep { set, reason, requester, .. }) = self.active.last() {
            tracing::info!(
                name: "perf_exporter.deep.began",
                id,
                set = %set.name,
                origin = origin.as_str(),
                requester,
                reason,
                ?lasts,
                "counting of a set of events began"
            );
        }
        id
    }

    fn add(
        &mut self,
        set: DeepSet,
        origin: Origin,
        (reason, requester): (String, String),
        id: Option<u64>,
        now: Moment,
    ) -> u64 {
        let id = id.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        let name = if set.name.is_empty() { format!("request_{id}").into() } else { Arc::clone(&set.name) };
        let ends = set.lasts.map(|lasts| Moment {
            monotonic: now.monotonic.after(lasts),
            wall: shown_after(now.wall, lasts),
        });
        let set = DeepSet { name, ..set };
        self.active.push(Deep { id, set, origin, began: now.wall, ends, reason, requester, pod: None });
        id
    }

    /// Ends the sets that meet a condition, and reports whether there were any.
    fn end_where(&mut self, now: Moment, why: &str, ends: impl Fn(&Deep) -> bool) -> bool {
        let (over, active): (Vec<Deep>, Vec<Deep>) =
            std::mem::take(&mut self.active).into_iter().partition(ends);
        self.active = active;
        for deep in &over {
            tracing::info!(
                name: "perf_exporter.deep.ended",
                id = deep.id,
                set = %deep.set.name,
                why,
                "counting of a set of events ended"
            );
            self.keep_series(deep, now);
        }
        !over.is_empty()
    }

    /// Keeps the series of a set that has ended, so that its last counts are published as long as those of a removed cgroup.
    fn keep_series(&mut self, deep: &Deep, now: Moment) {
        let (entry, until) = (entry_of(&deep.set), now.monotonic.after(RETENTION));
        self.ended.retain(|ended| ended.events != deep.set.events);
        self.ended.push(Ended { entry, events: deep.set.events.clone(), until });
    }

    fn refuse(&mut self, name: &Arc<str>, origin: Origin, requester: String, refusal: Refusal) {
        let refused = RefusedSet { name: Arc::clone(name), origin, requester, refusal };
        let same = |other: &RefusedSet| {
            (&other.name, other.origin, &other.requester) == (name, origin, &refused.requester)
        };
        if let Some(other) = self.refused.iter_mut().find(|other| same(other)) {
            other.refusal = refused.refusal;
            return;
        }
        tracing::warn!(
            name: "perf_exporter.deep.refused",
            set = %name,
            origin = origin.as_str(),
            requester = refused.requester,
            "a set of events is not counted: {}",
            refused.refusal
        );
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(refused);
    }

    /// Returns the entries of `counters` for the sets: one for all sets with the same events. Events that `counters` counts per cgroup are
    /// left out. An entry of ended sets selects no cgroup.
    pub fn entries(&self, counters: &[Counters]) -> Vec<Counters> {
        let mut counted: BTreeSet<String> = metrics_of_cgroups(counters).into_keys().collect();
        let mut entries: Vec<(&DeepEvents, Counters)> = Vec::new();
        for (events, entry) in self.selected().into_iter().chain(self.kept()) {
            if entries.iter().any(|(other, _)| *other == events) {
                continue;
            }
            let left = |group: &Group| {
                let events = group.events.iter().filter(|event| !counted.contains(&metric_of(event)));
                Group { events: events.cloned().collect() }
            };
            let left: Vec<Group> =
                events.groups.iter().map(left).filter(|group| !group.events.is_empty()).collect();
            counted.extend(left.iter().flat_map(|group| &group.events).map(metric_of));
            entries.push((events, Counters { groups: left, metrics: events.metrics.clone(), ..entry }));
        }
        let counts = |entry: &Counters| !entry.groups.is_empty() || !entry.metrics.is_empty();
        entries.into_iter().map(|(_, entry)| entry).filter(counts).collect()
    }

    /// Returns the events of the sets in force, each with an entry that selects the cgroups of all sets with these events.
    fn selected(&self) -> Vec<(&DeepEvents, Counters)> {
        let mut all: Vec<(&DeepEvents, Arc<str>, CgroupSelection)> = Vec::new();
        for Deep { set, .. } in &self.active {
            let DeepSet { events, cgroups: own, .. } = set;
            match all.iter_mut().find(|(other, ..)| *other == events) {
                Some((.., all)) => {
                    all.include.extend(own.include.iter().cloned());
                    all.pods.include.extend(own.pods.include.iter().cloned());
                }
                None => all.push((events, entry_of(set), own.clone())),
            }
        }
        all.into_iter().map(|(events, name, selection)| (events, entry(name, selection))).collect()
    }

    /// Returns the events of ended sets, each with an entry that selects no cgroup.
    fn kept(&self) -> impl Iterator<Item = (&DeepEvents, Counters)> {
        self.ended.iter().map(|Ended { entry: name, events, .. }| {
            let attribution = Attribution::Dedicated;
            let nothing = CgroupSelection { attribution, ..CgroupSelection::default() };
            (events, entry(Arc::clone(name), nothing))
        })
    }

    /// Adds the kinds of targets that must be known before sets can begin.
    pub fn add_needs(&self, needs: &mut Needs) {
        let pending = self.file.iter().filter(|set| self.pending.contains(&set.name));
        pending.for_each(|set| Targets::Cgroups(set.cgroups.clone()).add_needs(needs));
        if self.allows_annotations() {
            (needs.cgroups, needs.containers) = (true, true);
        }
    }

    /// Returns the number of sets in force.
    pub fn number(&self) -> usize {
        self.active.len()
    }

    /// Returns the state of all sets.
    pub fn report(&self, counters: &[Counters], cgroups: &[Arc<Cgroup>]) -> DeepReport {
        let counted = metrics_of_cgroups(counters);
        let state = |Deep { id, set, origin, began, ends, reason, requester, .. }: &Deep| {
            let patterns = set.cgroups.include.iter().map(|glob| glob.as_str().to_owned());
            let rules = set.cgroups.pods.include.iter().map(ToString::to_string);
            let shared = |metric: String| counted.get(&metric).map(|entry| (metric, Arc::clone(entry)));
            DeepState {
                id: *id,
                name: Arc::clone(&set.name),
                origin: *origin,
                events: set.events.words(),
                selection: patterns.chain(rules).collect(),
                cgroups: cgroups.iter().filter(|cgroup| set.cgroups.matches(cgroup)).count(),
                entry: entry_of(set),
                already_counted: set.metrics().filter_map(shared).collect(),
                began: *began,
                ends: ends.map(|ends| ends.wall),
                reason: reason.clone(),
                requester: requester.clone(),
            }
        };
        DeepReport { active: self.active.iter().map(state).collect(), refused: self.refused.clone() }
    }
}

/// Returns an entry without events.
fn entry(name: Arc<str>, selection: CgroupSelection) -> Counters {
    let per = vec![Targets::Cgroups(selection)];
    let (level, sharing) = (Level::default(), PmuSharing::default());
    Counters { name, groups: Vec::new(), metrics: Vec::new(), per, level, sharing }
}

/// Checks that `counters` counts the events that it shares with a set for all cgroups of the set: the set does not count them again.
fn counted_for_others(set: &DeepSet, counters: &[Counters], selected: &[&Cgroup]) -> Result<(), Refusal> {
    let counted = metrics_of_cgroups(counters);
    for metric in set.metrics() {
        let Some(entry) = counted.get(&metric) else { continue };
        let selects = |cgroup: &Cgroup| {
            let of_entry = counters.iter().filter(|counters| counters.name == *entry);
            of_entry.flat_map(|counters| &counters.per).any(|targets| match targets {
                Targets::Cgroups(selection) => selection.matches(cgroup),
                Targets::Cpus(_) | Targets::Processes(_) => false,
            })
        };
        if let Some(cgroup) = selected.iter().find(|cgroup| !selects(cgroup)) {
            let reason = format!(
                "entry {entry} of `counters` counts {metric} under the same name, but not for {}",
                cgroup.path
            );
            let remedy = "give the event another name: {\"event\": …, \"name\": …}";
            return Err(Refusal::new(RefusalKind::Conflict, reason, remedy));
        }
    }
    Ok(())
}

/// Returns the pods with the annotation: the pod, the wanted set, and the number of their cgroups.
fn annotated(cgroups: &[Arc<Cgroup>]) -> Vec<(Pod, Arc<str>, usize)> {
    let mut pods: Vec<(Pod, Arc<str>, usize)> = Vec::new();
    let identities = cgroups.iter().filter_map(|cgroup| cgroup.container.as_ref());
    for (pod, wanted) in
        identities.filter_map(|identity| Some((identity.pod.as_ref()?, identity.deep.as_ref()?)))
    {
        match pods.iter_mut().find(|(other, ..)| other.uid == pod.uid) {
            Some((.., number)) => *number += 1,
            None => pods.push((pod.clone(), Arc::clone(wanted), 1)),
        }
    }
    pods
}
