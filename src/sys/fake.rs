//! A kernel that responds from a table, for tests and benchmarks of everything above this interface: failures, stalled and multiplexed
//! counters, full descriptor tables. It makes no system call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use super::sample::{Unread, in_portions, records};
use super::{Attr, Drained, Event, Kernel, Place, Ring};
use crate::error::Errno;
use crate::event::Topdown;
use crate::lock::unpoisoned;

/// `PERF_TYPE_RAW`, the type of the core PMU.
const RAW: u32 = 4;

/// Place of an event of the fake kernel. A cgroup is identified by the inode number of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FakePlace {
    /// Like [`Place::Cpu`].
    Cpu(u32),
    /// Like [`Place::Cgroup`].
    Cgroup {
        /// The inode number of the directory.
        inode: u64,
        /// The CPU.
        cpu: u32,
    },
    /// Like [`Place::Thread`].
    Thread(u32),
    /// Like [`Place::ThreadOn`].
    ThreadOn {
        /// The thread.
        tid: u32,
        /// The CPU.
        cpu: u32,
    },
}

impl FakePlace {
    /// Returns the CPU, if the kernel removes events there when that CPU goes offline.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Self::Cpu(cpu) | Self::Cgroup { cpu, .. } => Some(cpu),
            Self::Thread(_) | Self::ThreadOn { .. } => None,
        }
    }
}

/// An open event of the fake kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The requested options.
    pub attr: Attr,
    /// The place.
    pub place: FakePlace,
    /// The count that is read.
    pub count: Count,
    /// Whether it was enabled by [`Event::enable`] of itself or of its leader.
    pub enabled: bool,
    /// Number of the call that enabled or disabled it last, to compare with those of other events.
    pub switched: u64,
    /// Whether its CPU went offline: it no longer counts, and its group is dissolved.
    pub removed: bool,
    /// ID of the event that has the ring for its records; `None` = no redirection.
    pub output: Option<u64>,
    leader: u64,
    id: u64,
}

impl Opened {
    /// Returns its ID in records.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Reports whether it was opened as a member of another event's group.
    pub fn is_member(&self) -> bool {
        self.leader != self.id
    }
}

/// Reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// The count.
    pub value: u64,
    /// Nanoseconds since it was enabled.
    pub enabled: u64,
    /// The part of `enabled` in which it counted, in nanoseconds.
    pub running: u64,
}

/// The fake kernel. Clones share their state, so that a test can keep one while the program owns the other.
#[derive(Clone, Default)]
pub struct FakeKernel(Arc<Mutex<State>>);

type Rule = Box<dyn Fn(&Attr, FakePlace, bool) -> bool + Send>;

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Opened>,
    /// Leader → its open members, itself first.
    groups: BTreeMap<u64, Vec<u64>>,
    next: u64,
    refusals: Vec<(Rule, Errno)>,
    unplaced: bool,
    limit: Option<usize>,
    calls: u64,
    /// Number of calls that enabled or disabled an event.
    switches: u64,
    /// Leader of a ring → its unread records.
    rings: BTreeMap<u64, Vec<u8>>,
    most_ring_pages: Option<usize>,
    /// CPUs that are offline.
    offline: BTreeSet<u32>,
}

impl FakeKernel {
    /// Returns a kernel in which all events open and count nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails with `errno` for events for which `when` holds: options, place, and whether it is to join a group.
    pub fn refuse(&self, errno: Errno, when: impl Fn(&Attr, FakePlace, bool) -> bool + Send + 'static) {
        self.state().refusals.push((Box::new(when), errno));
    }

    /// Allows `limit` open events. Opening another one fails with `EMFILE`.
    pub fn limit_descriptors(&self, limit: usize) {
        self.state().limit = Some(limit);
    }

    /// Changes the counts of open events, except those whose CPU went offline.
    pub fn update(&self, change: impl FnMut(&mut Opened)) {
        self.state().open.values_mut().filter(|event| !event.removed).for_each(change);
    }

    /// Takes a CPU offline. Its events no longer count, in groups of one, and no others can be opened there (`ENODEV`).
    pub fn take_offline(&self, cpu: u32) {
        let State { open, groups, offline, .. } = &mut *self.state();
        offline.insert(cpu);
        for event in open.values_mut().filter(|event| event.place.cpu() == Some(cpu)) {
            event.removed = true;
            if event.is_member()
                && let Some(group) = groups.get_mut(&event.leader)
            {
                group.retain(|&id| id != event.id);
            }
        }
    }

    /// Brings a CPU online again. Earlier events remain removed.
    pub fn bring_online(&self, cpu: u32) {
        self.state().offline.remove(&cpu);
    }

    /// Sets whether reads of leaders find their pinned group in error state.
    pub fn set_unplaced(&self, unplaced: bool) {
        self.state().unplaced = unplaced;
    }

    /// Allows rings of at most `pages` pages. Creating a larger one fails with `EPERM`.
    pub fn limit_rings(&self, pages: usize) {
        self.state().most_ring_pages = Some(pages);
    }

    /// Writes whole records into the ring of the event for which `of` holds. Does nothing if there is none.
    pub fn write(&self, of: impl Fn(&Opened) -> bool, bytes: &[u8]) {
        let state = &mut *self.state();
        let event = state.open.values().find(|&event| state.rings.contains_key(&event.id) && of(event));
        if let Some(ring) = event.and_then(|event| state.rings.get_mut(&event.id)) {
            ring.extend_from_slice(bytes);
        }
    }

    /// Returns the open events, in the order of opening.
    pub fn opened(&self) -> Vec<Opened> {
        self.state().open.values().cloned().collect()
    }

    /// Returns the number of attempts to open an event so far.
    pub fn open_calls(&self) -> u64 {
        self.state().calls
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.0.lock())
    }
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeKernel({} open)", self.state().open.len())
    }
}

/// An event of the fake kernel.
#[derive(Debug)]
pub struct FakeEvent {
    kernel: FakeKernel,
    id: u64,
}

impl Kernel for FakeKernel {
    type Event = FakeEvent;

    fn open(&self, attr: &Attr, place: Place<'_>, leader: Option<&FakeEvent>) -> Result<FakeEvent, Errno> {
        let place = match place {
            Place::Cpu(cpu) => FakePlace::Cpu(cpu),
            Place::Thread(tid) => FakePlace::Thread(tid),
            Place::ThreadOn { tid, cpu } => FakePlace::ThreadOn { tid, cpu },
            Place::Cgroup { dir, cpu } => {
                FakePlace::Cgroup { inode: rustix::fs::fstat(dir.as_fd())?.st_ino, cpu }
            }
        };
        let mut state = self.state();
        state.calls += 1;
        let refusal = state.refusals.iter().find(|(when, _)| when(attr, place, leader.is_some()));
        if let Some(&(_, errno)) = refusal {
            return Err(errno);
        }
        if place.cpu().is_some_and(|cpu| state.offline.contains(&cpu)) {
            return Err(Errno::ENODEV);
        }
        if state.limit.is_some_and(|limit| state.open.len() >= limit) {
            return Err(Errno::EMFILE);
        }
        if breaks_topdown_rules(attr, leader.and_then(|leader| state.open.get(&leader.id))) {
            return Err(Errno::EINVAL);
        }
        let id = state.next;
        state.next += 1;
        let leader = leader.map_or(id, |leader| leader.id);
        state.groups.entry(leader).or_default().push(id);
        let (attr, count) = (attr.clone(), Count::default());
        let (enabled, switched, removed, output) = (false, 0, false, None);
        let opened = Opened { attr, place, count, enabled, switched, removed, output, leader, id };
        state.open.insert(id, opened);
        Ok(FakeEvent { kernel: self.clone(), id })
    }
}

/// Reports whether the kernel rejects an event of top-down metrics ([`Topdown`]): a category outside a group that `slots` leads, or one of
/// them that writes records.
fn breaks_topdown_rules(attr: &Attr, leader: Option<&Opened>) -> bool {
    let place = |attr: &Attr| match attr.selector.kind {
        RAW => Topdown::of_code(attr.selector.config[0]),
        _ => None,
    };
    let leads =
        |leader: &Opened| place(&leader.attr) == Some(Topdown::Slots) && leader.attr.sampling.is_none();
    place(attr) == Some(Topdown::Category) && (attr.sampling.is_some() || !leader.is_some_and(leads))
}

impl FakeEvent {
    fn set_enabled(&self, enabled: bool) {
        let State { open, groups, switches, .. } = &mut *self.kernel.state();
        *switches += 1;
        for id in groups.get(&self.id).into_iter().flatten() {
            open.entry(*id).and_modify(|event| (event.enabled, event.switched) = (enabled, *switches));
        }
    }
}

impl Event for FakeEvent {
    type Ring = FakeRing;

    fn read(&self, words: &mut [u64]) -> Result<usize, Errno> {
        let state = self.kernel.state();
        if state.unplaced {
            return Ok(0);
        }
        let event = state.open.get(&self.id).ok_or(Errno::EBADF)?;
        if event.attr.reads_alone() {
            *words.first_mut().ok_or(Errno::ENOSPC)? = event.count.value;
            return Ok(1);
        }
        let leader = state.open.get(&event.leader).ok_or(Errno::EBADF)?;
        let group = state.groups.get(&leader.id).into_iter().flatten();
        let values = group.filter_map(|id| state.open.get(id)).map(|event| event.count.value);
        let untimed =
            leader.attr.sampling.and_then(|sampling| sampling.fields.read).is_some_and(|read| read.untimed);
        let times: &[u64] = if untimed { &[] } else { &[leader.count.enabled, leader.count.running] };
        let mut length = 1;
        for value in times.iter().copied().chain(values) {
            *words.get_mut(length).ok_or(Errno::ENOSPC)? = value;
            length += 1;
        }
        *words.first_mut().ok_or(Errno::ENOSPC)? = (length - 1 - times.len()) as u64;
        Ok(length)
    }

    fn enable(&self) -> Result<(), Errno> {
        self.set_enabled(true);
        Ok(())
    }

    fn disable(&self) -> Result<(), Errno> {
        self.set_enabled(false);
        Ok(())
    }

    fn id(&self) -> Result<u64, Errno> {
        Ok(self.id)
    }

    fn map(&self, pages: usize) -> Result<FakeRing, Errno> {
        let mut state = self.kernel.state();
        if state.most_ring_pages.is_some_and(|most| pages > most) {
            return Err(Errno::EPERM);
        }
        state.rings.insert(self.id, Vec::new());
        let size = pages * 4096;
        Ok(FakeRing { kernel: self.kernel.clone(), id: self.id, size })
    }

    fn write_to(&self, to: &Self) -> Result<(), Errno> {
        let mut state = self.kernel.state();
        if !state.rings.contains_key(&to.id) {
            return Err(Errno::EINVAL);
        }
        state.open.entry(self.id).and_modify(|event| event.output = Some(to.id));
        Ok(())
    }

    fn set_period(&self, _period: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A ring of the fake kernel, filled by [`FakeKernel::write`].
#[derive(Debug)]
pub struct FakeRing {
    kernel: FakeKernel,
    id: u64,
    size: usize,
}

impl Ring for FakeRing {
    fn drain(&mut self, each: impl FnMut(&[u8])) -> Drained {
        let mut bytes = self.kernel.state().rings.get_mut(&self.id).map(std::mem::take).unwrap_or_default();
        let mut each = each;
        let portion =
            |unread: Unread, enough| records(&bytes[unread.start..], &[], enough, &mut Vec::new(), &mut each);
        let size = bytes.len().next_power_of_two();
        let drained = in_portions((0, bytes.len() as u64), size, portion, |_| {});
        bytes.clear();
        // Keeps the memory, like a real ring: benchmarks are not to measure its allocation.
        if let Some(ring) = self.kernel.state().rings.get_mut(&self.id).filter(|ring| ring.is_empty()) {
            *ring = bytes;
        }
        drained
    }

    fn size(&self) -> usize {
        self.size
    }
}

impl Drop for FakeRing {
    fn drop(&mut self) {
        let State { open, rings, .. } = &mut *self.kernel.state();
        rings.remove(&self.id);
        let writers = open.values_mut().filter(|event| event.output == Some(self.id));
        writers.for_each(|event| event.output = None);
    }
}

impl Drop for FakeEvent {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        let Some(event) = state.open.remove(&self.id) else { return };
        if let Some(group) = state.groups.get_mut(&event.leader) {
            group.retain(|&id| id != self.id);
            if group.is_empty() {
                state.groups.remove(&event.leader);
            }
        }
    }
}
