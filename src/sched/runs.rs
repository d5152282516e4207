//! The runs of threads on CPUs in the last seconds, kept in memory as evidence.
//!
//! The collection thread writes a [`RunLog`], and hands its [`Chunk`]s over at each collection. [`RecentRuns`] keeps the last of them, within a
//! number of bytes. Readers get whole chunks, so they hold no lock while they read.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::event::PrevState;
use super::timeline::{SchedFact, SwitchOut, Thread};
use crate::budget::{Account, Share};
use crate::clock::Timestamp;
use crate::lock::Lock;

/// Unit of the lengths in a record, in nanoseconds. The longest one is 68 s.
const UNIT: u64 = 16;

/// A chunk has at most one in this number of the bytes of all chunks.
const PARTS: usize = 8;

/// A run of a thread on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'c> {
    /// The thread.
    pub thread: &'c Thread,
    /// The CPU.
    pub cpu: u32,
    /// Begin on the clock of the records, in nanoseconds.
    pub from: u64,
    /// End on the clock of the records, in nanoseconds.
    pub until: u64,
    /// Time before the begin in which the thread was runnable, in nanoseconds; 0 if that was not observed.
    pub delay: u64,
    /// State in which the thread left.
    pub left: PrevState,
}

/// A run as it is stored: 24 bytes.
#[derive(Debug, Clone, Copy)]
struct Record {
    until: u64,
    ran: u32,
    delay: u32,
    thread: u32,
    cpu: u16,
    left: PrevState,
}

/// The runs between two collections, and their threads.
#[derive(Debug, Default)]
pub struct Chunk {
    records: Vec<Record>,
    threads: Vec<Thread>,
    /// Paths by the ID of the cgroup, as far as they are known.
    cgroups: FxHashMap<u64, Arc<str>>,
    /// The same moment on the clock of the records, in nanoseconds, and in wall-clock time.
    moment: (u64, Timestamp),
}

impl Chunk {
    /// Returns the runs, in the order of their ends.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.records.iter().map(|record| {
            let ran = u64::from(record.ran) * UNIT;
            Run {
                // In bounds: a record refers to a thread of its chunk.
                thread: &self.threads[record.thread as usize],
                cpu: record.cpu.into(),
                from: record.until.saturating_sub(ran),
                until: record.until,
                delay: u64::from(record.delay) * UNIT,
                left: record.left,
            }
        })
    }

    /// Returns the path of a cgroup, if it is known.
    pub fn path(&self, cgroup: u64) -> Option<&Arc<str>> {
        self.cgroups.get(&cgroup)
    }

    /// Returns the wall-clock time of a moment on the clock of the records.
    pub fn wall(&self, time: u64) -> Timestamp {
        let (kernel, wall) = self.moment;
        let milliseconds = |nanoseconds: u64| nanoseconds / 1_000_000;
        if time <= kernel {
            Timestamp(wall.0.saturating_sub(milliseconds(kernel - time)))
        } else {
            Timestamp(wall.0 + milliseconds(time - kernel))
        }
    }

    /// Returns the moment on the clock of the records that a wall-clock time is; 0 if that was before the boot.
    pub fn kernel(&self, time: Timestamp) -> u64 {
        let (kernel, wall) = self.moment;
        let nanoseconds = |milliseconds: u64| milliseconds.saturating_mul(1_000_000);
        (kernel + nanoseconds(time.0.saturating_sub(wall.0)))
            .saturating_sub(nanoseconds(wall.0.saturating_sub(time.0)))
    }

    /// Returns the begin and the end, on the clock of the records in nanoseconds; `None` without records.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.runs().next()?.from, self.records.last()?.until))
    }

    /// Returns the bytes of the runs and threads, without unused capacity.
    fn used(&self) -> usize {
        self.records.len() * size_of::<Record>() + self.threads.len() * size_of::<Thread>()
    }

    fn bytes(&self) -> usize {
        let path = |path: &Arc<str>| path.len() + size_of::<(u64, Arc<str>)>();
        self.records.capacity() * size_of::<Record>()
            + self.threads.capacity() * size_of::<Thread>()
            + self.cgroups.values().map(path).sum::<usize>()
    }
}

/// Writes the runs that facts describe. Belongs to the thread that derives them.
#[derive(Debug, Default)]
pub struct RunLog {
    current: Chunk,
    /// Places of threads in the current chunk by thread ID.
    places: FxHashMap<u32, u32>,
    full: Vec<Chunk>,
    /// Maximum size of a chunk in bytes; 0: nothing is written.
    limit: usize,
}

impl RunLog {
    /// Adds the run that a fact ends. A run without an observed begin is left out.
    #[inline]
    pub fn note(&mut self, thread: &Thread, fact: &SchedFact) {
        if let SchedFact::SwitchOut(out) = fact
            && self.limit > 0
            && thread.tid != 0
        {
            self.add(thread, out);
        }
    }

    fn add(&mut self, thread: &Thread, out: &SwitchOut) {
        let Some(switch_in) = out.switch_in else { return };
        if self.current.used() >= self.limit {
            self.next_chunk();
        }
        let units = |nanoseconds: u64| u32::try_from(nanoseconds / UNIT).unwrap_or(u32::MAX);
        let record = Record {
            until: out.time,
            ran: units(out.time.saturating_sub(switch_in.time)),
            delay: units(switch_in.delay.unwrap_or(0)),
            thread: self.place(thread),
            cpu: u16::try_from(out.cpu).unwrap_or(u16::MAX),
            left: out.prev_state,
        };
        self.current.records.push(record);
    }

    /// Returns the place of a thread with its current name and cgroup.
    fn place(&mut self, thread: &Thread) -> u32 {
        let threads = &mut self.current.threads;
        if let Some(&place) = self.places.get(&thread.tid)
            && threads.get(place as usize) == Some(thread)
        {
            return place;
        }
        let place = threads.len() as u32;
        threads.push(*thread);
        self.places.insert(thread.tid, place);
        place
    }

    fn next_chunk(&mut self) {
        // If no collection takes them, the oldest runs are dropped.
        if self.full.len() >= PARTS {
            self.full.remove(0);
        }
        self.places.clear();
        self.full.push(std::mem::take(&mut self.current));
    }

    /// Takes the chunks since the last call, and sets the bytes that all chunks together may have from now on. 0 ends the log.
    pub fn take(&mut self, bytes: usize) -> Vec<Chunk> {
        if !self.current.records.is_empty() {
            self.next_chunk();
        }
        self.limit = bytes / PARTS;
        std::mem::take(&mut self.full)
    }
}

/// The last runs. Clones refer to the same ones.
#[derive(Debug, Clone, Default)]
pub struct RecentRuns(Arc<Lock<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    chunks: VecDeque<Arc<Chunk>>,
    bytes: usize,
    limit: usize,
    account: Option<Account>,
}

impl RecentRuns {
    /// Creates an empty list, the bytes of which belong to a share.
    pub fn within(share: &Share) -> Self {
        Self(Arc::new(Lock::new(Kept { account: Some(share.account()), ..Kept::default() })))
    }

    /// Sets the maximum bytes. 0: no runs are kept.
    pub fn set_limit(&self, bytes: usize) {
        self.0.lock().limit = bytes;
    }

    /// Returns the maximum bytes.
    pub fn limit(&self) -> usize {
        self.0.lock().limit
    }

    /// Adds chunks, and drops the oldest ones above the limit. `moment` is the same moment on the clock of the records, in nanoseconds, and
    /// in wall-clock time. `path` returns the path of a cgroup by its ID.
    pub fn keep(&self, chunks: Vec<Chunk>, moment: (u64, Timestamp), path: impl Fn(u64) -> Option<Arc<str>>) {
        let named = |mut chunk: Chunk| {
            let mut ids: Vec<u64> = chunk.threads.iter().map(|thread| thread.cgroup).collect();
            ids.sort_unstable();
            ids.dedup();
            chunk.cgroups = ids.into_iter().filter_map(|id| Some((id, path(id)?))).collect();
            chunk.moment = moment;
            chunk.records.shrink_to_fit();
            chunk.threads.shrink_to_fit();
            Arc::new(chunk)
        };
        let chunks: Vec<Arc<Chunk>> = chunks.into_iter().map(named).collect();
        let mut kept = self.0.lock();
        let kept = &mut *kept;
        kept.bytes += chunks.iter().map(|chunk| chunk.bytes()).sum::<usize>();
        kept.chunks.extend(chunks);
        while kept.bytes > kept.limit
            && let Some(oldest) = kept.chunks.pop_front()
        {
            kept.bytes -= oldest.bytes();
        }
        if let Some(account) = &kept.account {
            account.set(kept.bytes as u64);
        }
    }

    /// Returns the chunks, the oldest first.
    pub fn chunks(&self) -> Vec<Arc<Chunk>> {
        self.0.lock().chunks.iter().cloned().collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::budget::Part;
    use crate::sched::{Comm, SwitchIn};

    /// Returns the end of a run.
    pub(crate) fn run(cpu: u32, (from, until): (u64, u64), delay: u64) -> SchedFact {
        let switch_in = SwitchIn { time: from, cpu, delay: Some(delay), wait: None, migrated: None };
        SchedFact::SwitchOut(SwitchOut {
            time: until,
            cpu,
            switch_in: Some(switch_in),
            prev_state: PrevState::Preempted,
            next: Thread::default(),
        })
    }

    pub(crate) fn thread(tid: u32, cgroup: u64) -> Thread {
        let comm = Comm::new(format!("thread-{tid}").as_bytes());
        Thread { tid, pid: tid, cgroup, comm, kernel: false }
    }

    /// Returns what is kept of these runs.
    pub(crate) fn kept(limit: usize, runs: &[(Thread, SchedFact)]) -> RecentRuns {
        let (mut log, recent) = (RunLog::default(), RecentRuns::default());
        recent.set_limit(limit);
        log.take(limit);
        runs.iter().for_each(|(thread, fact)| log.note(thread, fact));
        recent.keep(log.take(limit), (1_000_000_000, Timestamp(5000)), |id| {
            (id < 100).then(|| format!("/{id}").into())
        });
        recent
    }

    #[test]
    fn runs_are_kept_with_their_threads_cgroups_and_times() {
        let (web, renamed) = (thread(7, 3), Thread { comm: Comm::new(b"renamed"), ..thread(7, 3) });
        let lost = thread(8, 100);
        let recent = kept(
            1 << 20,
            &[
                (web, run(1, (160, 1600), 32)),
                (lost, run(0, (1600, 3200), 0)),
                (renamed, run(1, (3200, 4800), 16)),
                (Thread::default(), run(1, (4800, 6400), 0)),
            ],
        );
        let chunks = recent.chunks();
        let [chunk] = &chunks[..] else { panic!("{chunks:?}") };
        let runs: Vec<Run<'_>> = chunk.runs().collect();
        let first =
            Run { thread: &web, cpu: 1, from: 160, until: 1600, delay: 32, left: PrevState::Preempted };
        assert_eq!(runs[0], first);
        assert_eq!([runs[1].thread, runs[2].thread], [&lost, &renamed]);
        assert_eq!(runs.len(), 3, "idle tasks are left out");
        assert_eq!((chunk.path(3).map(|path| &**path), chunk.path(100)), (Some("/3"), None));
        assert_eq!(chunk.span(), Some((160, 4800)));
    }

    #[test]
    fn times_are_converted_in_both_directions() {
        let recent = kept(1 << 20, &[(thread(7, 3), run(1, (160, 1600), 0))]);
        let chunks = recent.chunks();
        assert_eq!(chunks[0].wall(400_000_000), Timestamp(4400));
        assert_eq!(chunks[0].wall(2_000_000_000), Timestamp(6000));
        assert_eq!(chunks[0].kernel(Timestamp(4400)), 400_000_000);
        assert_eq!(chunks[0].kernel(Timestamp(6000)), 2_000_000_000);
        assert_eq!(chunks[0].kernel(Timestamp(0)), 0);
    }

    #[test]
    fn the_oldest_runs_are_dropped_above_the_limit() {
        let limit = 1 << 16;
        let share = Share::fixed(Part::Evidence, limit as u64);
        let (mut log, recent) = (RunLog::default(), RecentRuns::within(&share));
        recent.set_limit(limit);
        log.take(limit);
        for round in 0..100_u64 {
            for each in 0..100 {
                let time = (round * 100 + each) * 1600;
                log.note(&thread(each as u32 + 1, 3), &run(0, (time, time + 1600), 0));
            }
            recent.keep(log.take(limit), (0, Timestamp(0)), |_| None);
            assert!(share.used() <= limit as u64, "{}", share.used());
        }
        let last = recent.chunks().last().and_then(|chunk| chunk.span());
        assert_eq!(last.map(|(_, until)| until), Some(10_000 * 1600));
        assert!(recent.chunks().len() > 4);
        recent.set_limit(0);
        recent.keep(Vec::new(), (0, Timestamp(0)), |_| None);
        assert!(recent.chunks().is_empty() && share.used() == 0);
    }

    #[test]
    fn a_log_that_no_collection_takes_stays_within_its_bytes() {
        let mut log = RunLog::default();
        let limit = 1 << 16;
        log.take(limit);
        for each in 0..100_000_u64 {
            log.note(&thread(each as u32 + 1, 3), &run(0, (each * 16, each * 16 + 16), 0));
        }
        let taken = log.take(limit);
        let bytes: usize = taken.iter().map(Chunk::bytes).sum();
        // Vectors double, so that they have up to twice the capacity.
        assert!(bytes <= 2 * limit + limit / 4, "{bytes}");
        assert_eq!(taken.last().and_then(Chunk::span).map(|(_, until)| until), Some(1_600_000));
    }

    #[test]
    fn without_a_limit_nothing_is_written() {
        let mut log = RunLog::default();
        log.note(&thread(7, 3), &run(1, (0, 16), 0));
        assert!(log.take(0).is_empty());
    }
}
