//! Opening one planned group at one place. A refused member never takes its group down: the others are opened
//! without it, and the refusal says why.

use std::sync::Arc;

use super::reading::{Members, WORDS};
use super::scale::Progress;
use crate::error::Errno;
use crate::health::{Attempt, Refusal, classify, no_descriptors};
use crate::host::Facts;
use crate::plan::{Counter, Group};
use crate::sys::{Attr, Budget, Event, Inherit, Kernel, Place, Start};

/// Events that the kernel schedules as one group.
#[derive(Debug)]
pub(super) struct Bundle<E> {
    leader: E,
    members: Vec<E>,
    /// For the leader and each member, its place among the planned counters.
    pub counters: Vec<usize>,
    pub progress: Progress,
}

impl<E: Event> Bundle<E> {
    /// A group of one, which others may join.
    fn led_by(leader: E, counter: usize) -> Self {
        Self { leader, members: Vec::new(), counters: vec![counter], progress: Progress::new(1) }
    }

    /// Starts the counting of all its members at once.
    pub(super) fn start(&self) -> Result<(), Errno> {
        self.leader.enable()
    }

    /// Stops it.
    pub(super) fn stop(&self) -> Result<(), Errno> {
        self.leader.disable()
    }

    /// Reads the group into `words` and gives the part that was filled.
    pub(super) fn read<'w>(&self, words: &'w mut [u64; WORDS]) -> Result<&'w [u64], Errno> {
        let members = Members { leader: &self.leader, recording: 0, counting: &self.members };
        let length = members.read(words)?.length;
        Ok(words.get(..length).unwrap_or_default())
    }
}

/// What came of opening a group at one place.
#[derive(Debug)]
pub(super) struct Opened<E> {
    /// One bundle, unless members of a weak group had to leave it. Empty if nothing could be opened.
    pub bundles: Vec<Bundle<E>>,
    /// Why members are missing.
    pub refusals: Vec<Refusal>,
    /// Some or all of it did not fit into the descriptors that there are.
    pub no_room: bool,
    /// The target was gone before it could be counted: neither an error nor worth a word.
    pub gone: bool,
}

/// What opening needs besides the group and the place.
#[derive(Debug)]
pub(super) struct Means<'a, K> {
    pub kernel: &'a K,
    pub facts: &'a Facts,
    /// Whether the host has a PMU for its cores.
    pub core_pmu_present: bool,
    pub budget: &'a mut Budget,
}

/// How a group is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Whether what a thread starts is counted with it.
    pub inherit: Inherit,
    /// When the leader, and with it the group, starts.
    pub start: Start,
}

impl<K: Kernel> Means<'_, K> {
    /// Opens `group` at `place`, which refusals call `target`. Nothing counts before it is started.
    pub(super) fn open(
        &mut self,
        group: &Group,
        place: Place<'_>,
        how: How,
        target: &dyn Fn() -> String,
    ) -> Opened<K::Event> {
        let mut opened = Opened { bundles: Vec::new(), refusals: Vec::new(), no_room: false, gone: false };
        if !self.budget.has_room_for(group.counters.len()) {
            opened.refusals.push(no_room(self.budget, group.counters.len(), group, target()));
            opened.no_room = true;
            return opened;
        }
        for (index, counter) in group.counters.iter().enumerate() {
            match self.join(group, index, counter, place, how, &mut opened.bundles) {
                Ok(()) => self.budget.take(1),
                Err((Errno::ESRCH, _)) => {
                    opened.gone = true;
                    break;
                }
                Err((errno, attempt)) => {
                    opened.no_room |= matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM);
                    let judgement = classify(errno, &attempt, self.facts);
                    opened.refusals.push(judgement.refusal(&counter.event.name, target(), Some(errno)));
                }
            }
        }
        for bundle in &mut opened.bundles {
            bundle.progress = Progress::new(bundle.counters.len());
        }
        opened
    }

    /// Opens one counter as a member of the bundle that is there, or as the leader of the first one.
    fn join(
        &self,
        group: &Group,
        index: usize,
        counter: &Counter,
        place: Place<'_>,
        how: How,
        bundles: &mut Vec<Bundle<K::Event>>,
    ) -> Result<(), (Errno, Attempt)> {
        let leading = Attr { inherit: how.inherit, start: how.start, ..Attr::counting(&counter.event) };
        let attempt =
            Attempt { core_pmu_present: self.core_pmu_present, ..counter.event.attempt(group.scope()) };
        let Some(bundle) = bundles.first_mut() else {
            let leader = self.kernel.open(&leading, place, None).map_err(|errno| (errno, attempt))?;
            bundles.push(Bundle::led_by(leader, index));
            return Ok(());
        };
        let mut joining = Attr { start: Start::WithLeader, ..leading.clone() };
        // Only a leader may be pinned or exclusive; its members share its fate.
        joining.modifiers.pinned = false;
        joining.modifiers.exclusive = false;
        let errno = match self.kernel.open(&joining, place, Some(&bundle.leader)) {
            Ok(member) => {
                bundle.members.push(member);
                bundle.counters.push(index);
                return Ok(());
            }
            Err(errno) => errno,
        };
        if errno != Errno::EINVAL {
            return Err((errno, attempt));
        }
        // EINVAL may mean that the group does not fit on the PMU, or that the event is wrong: trying it alone tells.
        match self.kernel.open(&leading, place, None) {
            Ok(leader) if group.weak => {
                bundles.push(Bundle::led_by(leader, index));
                Ok(())
            }
            Ok(_) => Err((errno, Attempt { opens_alone: true, ..attempt })),
            Err(_) => Err((errno, attempt)),
        }
    }
}

/// Why `group` cannot be opened for `target`: `needed` more descriptors do not fit.
pub(super) fn no_room(budget: &Budget, needed: usize, group: &Group, target: impl Into<String>) -> Refusal {
    let mut judgement = no_descriptors(budget.limit);
    if let Some(remedy) = &mut judgement.remedy {
        remedy.push_str("; or select fewer cgroups or processes");
    }
    tracing::debug!(needed, room = budget.limit.saturating_sub(budget.used), "no descriptors left");
    let events: Vec<&str> = group.counters.iter().map(|counter| &*counter.event.name).collect();
    judgement.refusal(&Arc::from(events.join(",")), target, None)
}
