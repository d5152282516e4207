//! Opening of one planned group in one instance. A member that cannot be opened does not prevent the others from being opened. The refusal
//! has the reason.

use std::sync::Arc;

use super::reading::{Members, WORDS};
use super::scale::Progress;
use crate::error::Errno;
use crate::health::{Attempt, Interval, Refusal, classify, no_descriptors};
use crate::host::Facts;
use crate::plan::{Counter, Group};
use crate::sys::{Attr, Budget, Event, Inherit, Kernel, Place, Start};

/// Events that the kernel schedules as one group.
#[derive(Debug)]
pub(super) struct Bundle<E> {
    leader: E,
    members: Vec<E>,
    /// For the leader and each member: its index among the planned counters.
    pub counters: Vec<usize>,
    pub progress: Progress,
    /// Attempts to put a pinned group on the PMU again.
    retry: Retry,
}

/// Reads between two attempts to start a pinned group that the kernel put into the error state because it found no counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    /// Reads until the next attempt.
    left: u32,
    /// Reads between the next two attempts.
    pause: u32,
}

impl Retry {
    /// Maximum number of reads between two attempts.
    const MOST: u32 = 64;
    /// The first attempt is at the next read.
    const NEW: Self = Self { left: 0, pause: 1 };

    /// Counts a read. Returns whether the group is to be started now.
    fn is_due(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        (self.left, self.pause) = (self.pause, (2 * self.pause).min(Self::MOST));
        true
    }
}

impl<E: Event> Bundle<E> {
    /// Returns a group that consists of its leader.
    fn led_by(leader: E, counter: usize) -> Self {
        let (counters, progress) = (vec![counter], Progress::new(1));
        Self { leader, members: Vec::new(), counters, progress, retry: Retry::NEW }
    }

    /// Notes that the group is not in the error state.
    pub(super) fn note_placed(&mut self) {
        self.retry = Retry::NEW;
    }

    /// Starts a pinned group that is in the error state again, if an attempt is due. The kernel leaves it there until it is enabled, also when
    /// counters become free.
    ///
    /// # Errors
    /// The kernel's errno.
    pub(super) fn restart_if_due(&mut self) -> Result<(), Errno> {
        if self.retry.is_due() { self.start() } else { Ok(()) }
    }

    /// Starts all members at once.
    pub(super) fn start(&self) -> Result<(), Errno> {
        self.leader.enable()
    }

    /// Closes the members whose counters have no new place, and gives the others their new places. The leader stays open. Returns the
    /// number of closed members.
    pub(super) fn retain_members(&mut self, new_place: impl Fn(usize) -> Option<usize>) -> usize {
        let places: Vec<Option<usize>> = self.counters.iter().map(|&counter| new_place(counter)).collect();
        let stays = |member: usize| member == 0 || places.get(member).is_some_and(Option::is_some);
        let mut member = 0;
        self.members.retain(|_| {
            member += 1;
            stays(member)
        });
        let before = self.counters.len();
        self.progress.retain(stays);
        self.counters = places.into_iter().flatten().collect();
        before - self.counters.len()
    }

    /// Stops all members at once.
    pub(super) fn stop(&self) -> Result<(), Errno> {
        self.leader.disable()
    }

    /// Reads the group into `words` and returns the part that was filled.
    pub(super) fn read<'w>(&self, words: &'w mut [u64; WORDS]) -> Result<&'w [u64], Errno> {
        let members = Members { leader: &self.leader, recording: 0, counting: &self.members };
        let length = members.read(words)?.length;
        Ok(words.get(..length).unwrap_or_default())
    }

    /// Reads the interval since the previous reading. The next reading has the same start. `None` if it cannot be read.
    pub(super) fn peek(&self) -> Option<Interval> {
        self.progress.interval_to(self.read(&mut [0; WORDS]).ok()?)
    }
}

/// Result of opening a group in one instance.
#[derive(Debug)]
pub(super) struct Opened<E> {
    /// One bundle, or several if members of a weak group did not fit. Empty if no event could be opened.
    pub bundles: Vec<Bundle<E>>,
    /// Reasons for missing members.
    pub refusals: Vec<Refusal>,
    /// Whether descriptors or memory did not suffice for all events.
    pub no_room: bool,
    /// Whether the target ended before it could be opened. Not an error, and not reported.
    pub gone: bool,
}

/// Resources needed to open events, besides the group and the place.
#[derive(Debug)]
pub(super) struct OpenContext<'a, K> {
    pub kernel: &'a K,
    pub facts: &'a Facts,
    /// Whether the host has a PMU for its cores.
    pub core_pmu_present: bool,
    pub budget: &'a mut Budget,
}

/// Options for opening a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenOptions {
    /// Whether threads or processes that a thread starts are counted with it.
    pub inherit: Inherit,
    /// When the leader, and with it the group, starts.
    pub start: Start,
}

impl<K: Kernel> OpenContext<'_, K> {
    /// Opens `group` at `place`; refusals report the place as `target`. The events do not count before they are started.
    pub(super) fn open(
        &mut self,
        group: &Group,
        place: Place<'_>,
        how: OpenOptions,
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

    /// Opens one counter as a member of the first bundle, or as its leader.
    fn join(
        &self,
        group: &Group,
        index: usize,
        counter: &Counter,
        place: Place<'_>,
        how: OpenOptions,
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
        // Only a leader may be pinned or exclusive. Its members are scheduled with it.
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
        // EINVAL means that the group does not fit on the PMU, or that the event is invalid: opening it alone distinguishes the two.
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

/// Returns the refusal of `group` for `target` because `needed` more descriptors are not available.
pub(super) fn no_room(budget: &Budget, needed: usize, group: &Group, target: impl Into<String>) -> Refusal {
    let mut judgement = no_descriptors(budget.limit);
    if let Some(remedy) = &mut judgement.remedy {
        remedy.push_str("; or select fewer cgroups or processes");
    }
    tracing::debug!(needed, room = budget.limit.saturating_sub(budget.used), "no descriptors left");
    let events: Vec<&str> = group.counters.iter().map(|counter| &*counter.event.name).collect();
    judgement.refusal(&Arc::from(events.join(",")), target, None)
}
