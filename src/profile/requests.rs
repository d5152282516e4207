//! Requests for profiles, from any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::analysis::{Analysis, Counted};
use super::build::{UnsymbolizedProfile, build, described};
use super::contexts::Contexts;
use super::functions::Functions;
use super::handoff::{Handoff, LogExtent, NoProfile};
use super::memory::MemoryShares;
use super::open::SampleSource;
use super::rings::{Command, Rings};
use super::symbolizer_thread::{SymbolizerThread, SymbolizerWork};
use super::tally::Key;
use super::{HeatMap, LogState, Profile, Selection, TimeRange};
use crate::budget::Account;
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::container::Directory;
use crate::files::Files;
use crate::lock::{IoGuard, IoLock, Lock};
use crate::plan::Sampler;
use crate::ring::{Ksymbol, Losses};
use crate::stack::{Code, Frame};
use crate::symbol::{self, Lines, Symbolizer};
use crate::sys::{Ring, scheduling};
use crate::targets::ContainerMetadata;
use crate::targets::{ProcessContext, ProcessKey};

/// Profiles on request. [`end`](Self::end), [`renew`](Self::renew), [`last`](Self::last), [`range`](Self::range) and [`heat`](Self::heat)
/// read files and symbolize, which may take seconds: do not call them from a latency-sensitive thread. All other calls return at once.
pub trait ProfileRecorder: Send + Sync + fmt::Debug {
    /// Returns the sampled entries, in the order of the configuration.
    fn entries(&self) -> Vec<Arc<str>>;

    /// Begins a recording of an entry. Pass the returned number to [`end`](Self::end) or [`abandon`](Self::abandon). `by_cpu` attributes
    /// samples to CPUs, even if the entry does not ([`Sampler::cpus`]).
    ///
    /// # Errors
    /// There is no such entry, or too many recordings are in progress.
    fn begin(&self, entry: &str, by_cpu: bool) -> Result<RecordingId, NoProfile>;

    /// Ends a recording and returns its profile. Samples outside `selection` are counted but have no stacks, so that their frames need no
    /// symbolization.
    ///
    /// # Errors
    /// The entry was removed in the meantime, or a read of a file of a process does not return.
    fn end(&self, asked: RecordingId, selection: &Selection) -> Result<Profile, NoProfile>;

    /// Ends a recording, returns its profile, and begins the next recording at the same instant: every sample is in exactly one of the
    /// consecutive profiles. Tasks include the context that their processes publish ([`Task::context`](super::Task::context)), if these
    /// still run. `selection` works as for [`end`](Self::end).
    ///
    /// # Errors
    /// [`NoProfile::Gone`]: the entry was removed in the meantime, and no next recording begins. [`NoProfile::Stalled`]: a read of a file
    /// of a process does not return. The recording continues under the same number; renew it later.
    fn renew(&self, asked: RecordingId, selection: &Selection) -> Result<(Profile, RecordingId), NoProfile>;

    /// Discards a recording.
    fn abandon(&self, asked: RecordingId);

    /// Returns the samples of an entry in the last `length`, at most its window. `selection` works as for [`end`](Self::end).
    ///
    /// # Errors
    /// There is no such entry, or a read of a file of a process does not return.
    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile>;

    /// Returns the samples of an entry in a range of the past. `selection` works as for [`end`](Self::end).
    ///
    /// The profile starts and ends with the part of the range for which the log has all samples: if its start is later than the begin of the
    /// range, older samples have left the log. It is empty, and starts where the log begins, if the log has no part of the range. A step of
    /// the wall clock, or a suspension of the machine, moves the times of earlier samples.
    ///
    /// # Errors
    /// There is no such entry, or a read of a file of a process does not return.
    fn range(&self, entry: &str, range: TimeRange, selection: &Selection) -> Result<Profile, NoProfile>;

    /// Returns the number of samples of an entry in a range of the past, by second and by offset within the second. `rows` divide a second.
    /// The bounds of [`HeatMap`] apply.
    ///
    /// # Errors
    /// There is no such entry, or a read of a file of a process does not return.
    fn heat(
        &self,
        entry: &str,
        range: TimeRange,
        rows: u32,
        selection: &Selection,
    ) -> Result<HeatMap, NoProfile>;
}

/// The conversion between the wall clock and the clock of the records, as of one instant.
#[derive(Debug, Clone, Copy)]
struct TimeConversion {
    wall: Timestamp,
    /// Nanoseconds.
    records: u64,
}

impl TimeConversion {
    fn of(clock: &Clock) -> Self {
        Self { wall: clock.now(), records: clock.kernel() }
    }

    /// Returns a time on the clock of the records.
    fn records(self, time: Timestamp) -> u64 {
        match self.wall.0.checked_sub(time.0) {
            Some(ago) => self.records.saturating_sub(ago.saturating_mul(NANOSECONDS)),
            None => self.records.saturating_add((time.0 - self.wall.0).saturating_mul(NANOSECONDS)),
        }
    }

    fn range(self, range: TimeRange) -> Range<u64> {
        self.records(range.from)..self.records(range.to)
    }

    /// Returns a time of the wall clock, rounded up to a millisecond.
    fn wall(self, time: u64) -> Timestamp {
        Timestamp(self.wall.0.saturating_sub(self.records.saturating_sub(time) / NANOSECONDS))
    }
}

/// The number of a recording in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingId(u64);

/// State shared by the reader, the collector and requests for profiles.
///
/// The collector and the HTTP thread take only `rings`, `handoff` and the other [`Lock`]s. Only the reader, the symbolization thread, and
/// threads that answer requests for profiles take an [`IoLock`].
#[derive(Debug)]
pub(super) struct Shared<R> {
    pub(super) rings: Lock<Rings<R>>,
    pub(super) handoff: Lock<Handoff>,
    analysis: IoLock<Analysis>,
    symbols: IoLock<Symbolizer>,
    /// Separate from `symbols`, which more threads wait for.
    lines: IoLock<Lines>,
    /// The maximum bytes of debug information to read from a file.
    pub(super) debug_info: AtomicU64,
    /// The accounts of `lines` after the last request.
    pub(super) line_accounts: Lock<symbol::LineAccounts>,
    /// The accounts of the symbolizer after the last request.
    pub(super) accounts: Lock<symbol::Accounts>,
    /// The symbolizer's use of its memory share after the last request.
    symbol_memory: Lock<Account>,
    /// The use of the same share by `lines`.
    line_memory: Lock<Account>,
    /// By entry, the number of samples with each function as innermost function.
    pub(super) functions: Lock<BTreeMap<Arc<str>, Functions>>,
    /// When functions were last counted, on the clock of the records.
    functions_counted: AtomicU64,
    /// The number of panics during symbolization.
    pub(super) naming_failures: AtomicU64,
    /// The contexts that processes publish.
    contexts: IoLock<Contexts>,
    /// Maps cgroups to containers.
    directory: Arc<Directory>,
    clock: Clock,
}

/// The interval between two counts of functions, in nanoseconds.
const FUNCTIONS_EVERY: u64 = 5_000_000_000;

/// Lines may use one in this many bytes of the share for symbols.
const LINES_PART: u64 = 4;

/// Frames to symbolize before other threads get their turn.
const AT_A_TIME: usize = 64;

/// Frames to look up before other threads get their turn. Most of them are known.
const KEPT_AT_A_TIME: usize = 512;

/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;

/// How long a request waits for one turn of the analysis, which takes about a millisecond unless a read of a file blocks.
const ANALYSIS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request waits while another request symbolizes.
const SYMBOLIZATION_TIMEOUT: Duration = Duration::from_secs(30);

impl<R: Ring> Shared<R> {
    pub(super) fn new(clock: Clock, files: impl Into<Files>, directory: Arc<Directory>) -> Self {
        let (files, for_command) = (files.into(), MemoryShares::for_command().symbols);
        let asked = files.clone();
        let read = move |key: ProcessKey| ProcessContext::read(&asked, key);
        Self {
            rings: Lock::new(Rings::new()),
            handoff: Lock::default(),
            analysis: IoLock::new(
                Analysis::new(&files).with_metadata(Arc::clone(&directory) as Arc<dyn ContainerMetadata>),
            ),
            symbols: IoLock::new(Symbolizer::new(&files, clock.clone(), symbol::Options::default())),
            lines: IoLock::new(Lines::new(&files, 0)),
            debug_info: AtomicU64::new(0),
            line_accounts: Lock::default(),
            accounts: Lock::default(),
            symbol_memory: Lock::new(for_command.account()),
            line_memory: Lock::new(for_command.account()),
            functions: Lock::default(),
            functions_counted: AtomicU64::new(0),
            naming_failures: AtomicU64::new(0),
            contexts: IoLock::new(Contexts::new(read)),
            directory,
            clock,
        }
    }

    /// Counts for these entries from now on. Entries that stay keep their logs.
    pub(super) fn set_samplers(&self, samplers: &[Arc<Sampler>]) {
        self.handoff.lock().entries = samplers.iter().map(|sampler| Arc::clone(&sampler.entry)).collect();
        self.command(Command::Samplers(samplers.into()));
    }

    /// Adds a ring, and the events that write into it from now on.
    pub(super) fn add(
        &self,
        cpu: u32,
        sample_sources: impl IntoIterator<Item = (u64, SampleSource)>,
        ring: R,
    ) {
        let mut rings = self.rings.lock();
        let now = self.clock.kernel();
        sample_sources
            .into_iter()
            .for_each(|(id, sample_source)| rings.command(now, Command::SampleSource { id, sample_source }));
        rings.add(cpu, ring);
    }

    /// Removes a ring whose events, with these numbers, are closed.
    pub(super) fn remove(&self, cpu: u32, ids: Vec<u64>) {
        let mut rings = self.rings.lock();
        rings.remove(cpu);
        rings.command(self.clock.kernel().saturating_add(1), Command::Forget(ids));
    }

    /// Queues a command that applies to records from now on.
    pub(super) fn command(&self, command: Command) {
        let mut rings = self.rings.lock();
        rings.command(self.clock.kernel(), command);
    }

    /// Returns the analysis after all records written before this call are analyzed. Other threads get their turns in between. Returns
    /// `None` if no turn came within `timeout`.
    fn caught_up(&self, timeout: Duration) -> Option<IoGuard<'_, Analysis>> {
        // The time is taken before the rings are drained, so that all older records are in them.
        let now = self.clock.kernel();
        self.rings.lock().pull(now);
        loop {
            let mut analysis = self.analysis.lock_within(timeout)?;
            let all = analysis.turn(&self.rings, &self.handoff);
            if analysis.analyzed() > now || (all && analysis.analyzed() >= now) {
                return Some(analysis);
            }
            drop(analysis);
            if all {
                // The queue was full.
                self.rings.lock().pull(now);
            }
        }
    }

    /// Reads the rings, and queues work for the symbolizer that cannot wait for a request.
    pub(super) fn drain(&self, symbolizer: Option<&SymbolizerThread>) {
        let Some(mut analysis) = self.caught_up(Duration::MAX) else { return };
        let Some(symbolizer) = symbolizer.filter(|symbolizer| !symbolizer.is_busy()) else { return };
        let work = analysis.take_work(self.is_time_for_functions());
        drop(analysis);
        work.into_iter().for_each(|work| symbolizer.send(work));
    }

    /// Returns the numbers of records read and lost.
    pub(super) fn losses(&self) -> Losses {
        let before = self.rings.lock().losses;
        self.handoff.lock().report.losses.plus(before)
    }

    /// Returns the time since all recorded samples were analyzed.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(self.clock.kernel().saturating_sub(self.handoff.lock().report.analyzed))
    }

    /// Returns the state of the log of each entry.
    pub(super) fn log_states(&self) -> BTreeMap<Arc<str>, LogState> {
        let logs = self.handoff.lock().report.logs.clone();
        let conversion = TimeConversion::of(&self.clock);
        let state = |log: &LogExtent| LogState {
            begin: log.begin.map(|begin| conversion.wall(begin)),
            samples: log.samples,
            bytes: log.bytes,
        };
        logs.iter().map(|log| (Arc::clone(&log.entry), state(log))).collect()
    }

    /// Symbolizes what cannot wait for a request.
    pub(super) fn look_up(&self, work: SymbolizerWork) {
        let mut symbols = self.symbols.lock();
        symbols.set_limit(self.symbol_limit());
        work.gone.iter().for_each(|(id, process)| symbols.forget(*id, process));
        work.jit_processes.into_iter().for_each(|process| symbols.notice(process, &work.code));
        work.ended.into_iter().for_each(|process| symbols.end(process));
        for (address, length, removed, name) in &work.kernel_functions {
            symbols.apply_ksymbol(&Ksymbol { address: *address, length: *length, removed: *removed, name });
        }
        drop(symbols);
        self.count_functions(work.innermost, &work.code);
        for frames in work.kept.chunks(KEPT_AT_A_TIME) {
            self.symbols.lock().keep(frames, &work.code);
        }
        self.note(&self.symbols.lock());
    }

    /// Limits memory to these shares from now on.
    pub(super) fn keep_within(&self, shares: &MemoryShares) {
        *self.symbol_memory.lock() = shares.symbols.account();
        *self.line_memory.lock() = shares.symbols.account();
        self.rings.lock().keep_within(shares);
        self.command(Command::Memory(shares.clone()));
    }

    /// Returns the bytes that symbols may take: the share minus the use by lines.
    fn symbol_limit(&self) -> usize {
        usize::try_from(self.symbol_memory.lock().room()).unwrap_or(usize::MAX)
    }

    /// Discards the functions of all other entries.
    pub(super) fn keep_functions(&self, entries: &[Arc<str>]) {
        self.functions.lock().retain(|entry, _| entries.contains(entry));
    }

    /// Ends a collection of the functions of all entries.
    pub(super) fn end_collection(&self, samplers: &[Arc<Sampler>], now: Timestamp, monotonic: Monotonic) {
        let mut functions = self.functions.lock();
        for sampler in samplers {
            if let Some(functions) = functions.get_mut(&sampler.entry) {
                functions.end_collection(sampler.functions, now, monotonic);
            }
        }
    }

    fn is_time_for_functions(&self) -> bool {
        let now = self.clock.kernel();
        // Only the reader calls this.
        let due = now.saturating_sub(self.functions_counted.load(Ordering::Relaxed)) >= FUNCTIONS_EVERY;
        if due {
            self.functions_counted.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Adds up samples by innermost function. The lock is released in between, so that requests can symbolize.
    fn count_functions(&self, innermost: Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)>, code: &Code) {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        for (sampler, frames) in innermost {
            let mut frames: Vec<(Frame, u64)> = frames.into_iter().collect();
            // Frames in one file stay together, so that no file is read twice.
            frames.sort_unstable();
            let (frames, counts): (Vec<Frame>, Vec<u64>) = frames.into_iter().unzip();
            for (frames, counts) in frames.chunks(AT_A_TIME).zip(counts.chunks(AT_A_TIME)) {
                let names = self.symbols.lock().resolve(frames, code);
                let mut functions = self.functions.lock();
                let functions = functions
                    .entry(Arc::clone(&sampler.entry))
                    .or_insert_with(|| Functions::new(&sampler.entry, sampler.functions, now));
                names.iter().zip(counts).for_each(|(named, &count)| functions.add(named, count, monotonic));
            }
        }
    }

    /// Symbolizes the counted stacks. Returns `None` if symbolization did not finish in time.
    fn named(&self, counted: &Counted, unnamed: UnsymbolizedProfile) -> Option<Profile> {
        let elapsed = counted.end.saturating_sub(counted.begin);
        let start = TimeConversion::of(&self.clock).wall(counted.begin);
        let mut names = {
            let mut symbols = self.symbols.lock_within(SYMBOLIZATION_TIMEOUT)?;
            symbols.set_limit(self.symbol_limit());
            let names = symbols.resolve(&unnamed.frames, &unnamed.code);
            self.note(&symbols);
            names
        };
        if counted.sampler.lines {
            let mut lines = self.lines.lock_within(SYMBOLIZATION_TIMEOUT)?;
            lines.set_limit(self.debug_info.load(Ordering::Relaxed));
            // The limit that applies between requests.
            let limit = self.line_memory.lock().limit() / LINES_PART;
            lines.set_memory(usize::try_from(limit).unwrap_or(usize::MAX));
            lines.refine(&unnamed.frames, &mut names, &unnamed.code);
            lines.accounts().clone_into(&mut self.line_accounts.lock());
            self.line_memory.lock().set(lines.bytes() as u64);
        }
        Some(build(counted, unnamed, &names, start, Duration::from_nanos(elapsed)))
    }

    /// Publishes the accounts so that they can be read during symbolization.
    fn note(&self, symbols: &Symbolizer) {
        symbols.accounts().clone_into(&mut self.accounts.lock());
        self.symbol_memory.lock().set(symbols.bytes() as u64);
    }

    /// Extracts the counted stacks from the analysis after it has caught up, and symbolizes them.
    fn profile(
        &self,
        selection: &Selection,
        count: impl FnOnce(&mut Analysis) -> Result<Counted, NoProfile>,
    ) -> Result<Profile, NoProfile> {
        let (counted, unnamed) = {
            let mut analysis = self.caught_up(ANALYSIS_TIMEOUT).ok_or(NoProfile::Stalled)?;
            let counted = count(&mut analysis)?;
            let unnamed = UnsymbolizedProfile::of(
                &counted,
                selection,
                &analysis.analyzer,
                &analysis.tasks,
                &self.directory,
            );
            (counted, unnamed)
        };
        // From here on no lock is held that a collection needs.
        scheduling::at_normal_priority(|| self.named(&counted, unnamed)).ok_or(NoProfile::Stalled)
    }
}

impl<R: Ring + Send + fmt::Debug> ProfileRecorder for Shared<R> {
    fn entries(&self) -> Vec<Arc<str>> {
        self.handoff.lock().entries.clone()
    }

    fn begin(&self, entry: &str, by_cpu: bool) -> Result<RecordingId, NoProfile> {
        let number = self.handoff.lock().begin(entry)?;
        let mut rings = self.rings.lock();
        let at = self.clock.kernel();
        rings.command(at, Command::Begin { number, entry: entry.into(), at, by_cpu });
        Ok(RecordingId(number))
    }

    fn end(&self, asked: RecordingId, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let ended = self.profile(selection, |analysis| analysis.end(asked.0, now).ok_or(NoProfile::Gone));
        match ended {
            Err(NoProfile::Stalled) => self.abandon(asked),
            _ => self.handoff.lock().end(asked.0),
        }
        ended
    }

    fn renew(&self, asked: RecordingId, selection: &Selection) -> Result<(Profile, RecordingId), NoProfile> {
        let renewed = self.profile(selection, |analysis| analysis.renew(asked.0).ok_or(NoProfile::Gone));
        if renewed == Err(NoProfile::Gone) {
            self.handoff.lock().end(asked.0);
        }
        let mut profile = renewed?;
        self.contexts.lock().enter(&mut profile.tasks, &self.clock);
        Ok((profile, asked))
    }

    fn abandon(&self, RecordingId(number): RecordingId) {
        self.handoff.lock().end(number);
        self.rings.lock().abandon(self.clock.kernel(), number);
    }

    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.profile(selection, |analysis| {
            analysis
                .last(entry, now, length, selection.by_cpu)
                .ok_or_else(|| self.handoff.lock().unknown(entry))
        })
    }

    fn range(&self, entry: &str, range: TimeRange, selection: &Selection) -> Result<Profile, NoProfile> {
        let conversion = TimeConversion::of(&self.clock);
        let asked = conversion.range(range);
        let mut is_complete = false;
        let mut profile = self.profile(selection, |analysis| {
            let counted = analysis.range(entry, asked.clone(), conversion.records, selection.by_cpu);
            let counted = counted.ok_or_else(|| self.handoff.lock().unknown(entry))?;
            is_complete = counted.begin == asked.start;
            Ok(counted)
        })?;
        if is_complete {
            // Not rounded.
            profile.start = range.from;
        }
        Ok(profile)
    }

    fn heat(
        &self,
        entry: &str,
        range: TimeRange,
        rows: u32,
        selection: &Selection,
    ) -> Result<HeatMap, NoProfile> {
        let conversion = TimeConversion::of(&self.clock);
        let mut map = HeatMap::new(range, rows);
        let asked = conversion.range(TimeRange { from: map.from, to: map.to() });
        let analysis = self.caught_up(ANALYSIS_TIMEOUT).ok_or(NoProfile::Stalled)?;
        let mut tasks = FxHashMap::default();
        let wanted = |key: Key| {
            let task = tasks
                .entry(key.task)
                .or_insert_with(|| Some(described(analysis.tasks.get(key.task)?, &self.directory)));
            task.as_ref().is_some_and(|task| selection.takes(task, key.mode))
        };
        let add = |time: u64, count| map.add(time.saturating_sub(asked.start), count);
        let begin = analysis.times(entry, &asked, wanted, add);
        let begin = begin.ok_or_else(|| self.handoff.lock().unknown(entry))?;
        map.complete_from = conversion.wall(begin).max(range.from);
        Ok(map)
    }
}

#[cfg(test)]
mod hour;
#[cfg(test)]
mod tests;
