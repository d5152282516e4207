//! Asking for profiles, from whatever thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::analysis::{Analysis, Counted};
use super::build::{Unnamed, build};
use super::contexts::Contexts;
use super::functions::Functions;
use super::handoff::{Handoff, NoProfile};
use super::memory::MemoryShares;
use super::namer::{Namer, News};
use super::open::Tap;
use super::rings::{Command, Rings};
use super::{Profile, Selection};
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
use crate::target::{ProcessContext, ProcessKey};

/// Profiles on request. [`end`](Self::end), [`renew`](Self::renew) and [`last`](Self::last) read files and look up names,
/// which may take seconds: they are not for a thread that others wait for. All other calls return at once.
pub trait Ask: Send + Sync + fmt::Debug {
    /// The entries that are sampled, in the order of the configuration.
    fn entries(&self) -> Vec<Arc<str>>;

    /// Begins a profile of an entry. Gives its number, to be given to [`end`](Self::end) or [`abandon`](Self::abandon).
    ///
    /// # Errors
    /// There is no such entry, or too many profiles are waited for.
    fn begin(&self, entry: &str) -> Result<Asked, NoProfile>;

    /// Ends it, and gives what was seen. What `selection` leaves out is counted, and has no stacks: its names need not be
    /// looked up.
    ///
    /// # Errors
    /// Its entry has gone meanwhile, or the files of a process do not answer.
    fn end(&self, asked: Asked, selection: &Selection) -> Result<Profile, NoProfile>;

    /// Ends it, gives what was seen, and begins the next one at the same instant: every sample is in exactly one of those
    /// that follow each other. Tasks have what their processes publish about themselves ([`Task::context`](super::Task::context)), as far as
    /// these still run. With `selection` as for [`end`](Self::end).
    ///
    /// # Errors
    /// [`NoProfile::Gone`]: its entry has gone meanwhile, and there is no next one. [`NoProfile::Stalled`]: the files of a
    /// process do not answer. The profile goes on under the same number, to be renewed later.
    fn renew(&self, asked: Asked, selection: &Selection) -> Result<(Profile, Asked), NoProfile>;

    /// Discards it.
    fn abandon(&self, asked: Asked);

    /// What was seen of an entry in the last while, as far as its window reaches back. With `selection` as for
    /// [`end`](Self::end).
    ///
    /// # Errors
    /// There is no such entry, or the files of a process do not answer.
    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile>;
}

/// The number of a profile that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u64);

/// What the reader, the collector and requests for profiles share.
///
/// The collector and the HTTP thread take `rings`, `handoff` and the other [`Lock`]s alone. Only the reader, the thread that
/// looks up names, and threads that answer requests for profiles take an [`IoLock`].
#[derive(Debug)]
pub(super) struct Shared<R> {
    pub(super) rings: Lock<Rings<R>>,
    pub(super) handoff: Lock<Handoff>,
    analysis: IoLock<Analysis>,
    symbols: IoLock<Symbolizer>,
    /// Apart from names, which more are waiting for.
    lines: IoLock<Lines>,
    /// How many bytes of debug information may be read of a file.
    pub(super) debug_info: AtomicU64,
    /// Theirs, as of the last time that they were asked.
    pub(super) line_accounts: Lock<symbol::LineAccounts>,
    /// The symbolizer's, as of the last time that it was asked.
    pub(super) accounts: Lock<symbol::Accounts>,
    /// What the symbolizer holds of its share, likewise.
    symbol_memory: Lock<Account>,
    /// Of the same share, what lines take.
    line_memory: Lock<Account>,
    /// By entry, how often which function was seen innermost.
    pub(super) functions: Lock<BTreeMap<Arc<str>, Functions>>,
    /// When they were counted last, on the clock of the records.
    functions_counted: AtomicU64,
    /// How often the look-up of names has panicked.
    pub(super) naming_failures: AtomicU64,
    /// What processes publish about themselves.
    contexts: IoLock<Contexts>,
    /// Whose containers cgroups are.
    directory: Arc<Directory>,
    clock: Clock,
}

/// How often functions are counted, in nanoseconds.
const FUNCTIONS_EVERY: u64 = 5_000_000_000;

/// Lines take one part in so many of the symbols' share.
const LINES_PART: u64 = 4;

/// How many names are looked up before others get their turn.
const AT_A_TIME: usize = 64;

/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;

/// How long a request waits for one turn of the analysis, which takes about a millisecond unless a file does not answer.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// How long a request waits for names that another one has looked up.
const NAMES_PATIENCE: Duration = Duration::from_secs(30);

impl<R: Ring> Shared<R> {
    pub(super) fn new(clock: Clock, files: impl Into<Files>, directory: Arc<Directory>) -> Self {
        let (files, ample) = (files.into(), MemoryShares::ample().symbols);
        let asked = files.clone();
        let read = move |key: ProcessKey| ProcessContext::read(&asked, key);
        Self {
            rings: Lock::new(Rings::new()),
            handoff: Lock::default(),
            analysis: IoLock::new(Analysis::new(&files)),
            symbols: IoLock::new(Symbolizer::new(&files, clock.clone(), symbol::Options::default())),
            lines: IoLock::new(Lines::new(&files, 0)),
            debug_info: AtomicU64::new(0),
            line_accounts: Lock::default(),
            accounts: Lock::default(),
            symbol_memory: Lock::new(ample.account()),
            line_memory: Lock::new(ample.account()),
            functions: Lock::default(),
            functions_counted: AtomicU64::new(0),
            naming_failures: AtomicU64::new(0),
            contexts: IoLock::new(Contexts::new(read)),
            directory,
            clock,
        }
    }

    /// Counts for these entries from now on. Those that stay keep their windows.
    pub(super) fn set_samplers(&self, samplers: &[Arc<Sampler>]) {
        self.handoff.lock().entries = samplers.iter().map(|sampler| Arc::clone(&sampler.entry)).collect();
        self.command(Command::Samplers(samplers.into()));
    }

    /// Adds a ring, and the events that write into it from now on.
    pub(super) fn add(&self, cpu: u32, taps: impl IntoIterator<Item = (u64, Tap)>, ring: R) {
        let mut rings = self.rings.lock();
        let now = self.clock.kernel();
        taps.into_iter().for_each(|(id, tap)| rings.command(now, Command::Tap { id, tap }));
        rings.add(cpu, ring);
    }

    /// Removes a ring whose events, which bear these numbers, are closed.
    pub(super) fn remove(&self, cpu: u32, ids: Vec<u64>) {
        let mut rings = self.rings.lock();
        rings.remove(cpu);
        rings.command(self.clock.kernel().saturating_add(1), Command::Forget(ids));
    }

    /// Tells the analysis something that holds for records from now on.
    pub(super) fn command(&self, command: Command) {
        let mut rings = self.rings.lock();
        rings.command(self.clock.kernel(), command);
    }

    /// The analysis, once all records that were written by now are analyzed. In between other threads have their turns.
    /// `None` if no turn came within `patience`.
    fn caught_up(&self, patience: Duration) -> Option<IoGuard<'_, Analysis>> {
        // The time is taken before rings are emptied: what is older is in them.
        let now = self.clock.kernel();
        self.rings.lock().pull(now);
        loop {
            let mut analysis = self.analysis.lock_within(patience)?;
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

    /// Reads what the rings hold, and has looked up what cannot wait until somebody asks.
    pub(super) fn drain(&self, namer: Option<&Namer>) {
        let Some(mut analysis) = self.caught_up(Duration::MAX) else { return };
        let Some(namer) = namer.filter(|namer| !namer.is_busy()) else { return };
        let news = analysis.take_news(self.is_time_for_functions());
        drop(analysis);
        news.into_iter().for_each(|news| namer.tell(news));
    }

    /// What was read and lost.
    pub(super) fn losses(&self) -> Losses {
        let before = self.rings.lock().losses;
        self.handoff.lock().report.losses.plus(before)
    }

    /// Time since all recorded samples were analyzed.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(self.clock.kernel().saturating_sub(self.handoff.lock().report.analyzed))
    }

    /// Looks up what cannot wait until somebody asks.
    pub(super) fn look_up(&self, news: News) {
        let mut symbols = self.symbols.lock();
        symbols.set_limit(self.symbol_limit());
        news.gone.iter().for_each(|(id, process)| symbols.forget(*id, process));
        news.makers.into_iter().for_each(|process| symbols.notice(process, &news.code));
        news.ended.into_iter().for_each(|process| symbols.end(process));
        for (address, length, removed, name) in &news.kernel_functions {
            symbols.hear(&Ksymbol { address: *address, length: *length, removed: *removed, name });
        }
        drop(symbols);
        self.count_functions(news.innermost, &news.code);
        self.note(&self.symbols.lock());
    }

    /// Holds no more memory than these shares from now on.
    pub(super) fn keep_within(&self, shares: &MemoryShares) {
        *self.symbol_memory.lock() = shares.symbols.account();
        *self.line_memory.lock() = shares.symbols.account();
        self.rings.lock().keep_within(shares);
        self.command(Command::Memory(shares.clone()));
    }

    /// How many bytes names may take: what lines leave.
    fn symbol_limit(&self) -> usize {
        usize::try_from(self.symbol_memory.lock().room()).unwrap_or(usize::MAX)
    }

    /// Forgets the functions of all entries but these.
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
        // Only the reader asks.
        let due = now.saturating_sub(self.functions_counted.load(Ordering::Relaxed)) >= FUNCTIONS_EVERY;
        if due {
            self.functions_counted.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Adds up by function what was seen innermost. Somebody may want other names in between.
    fn count_functions(&self, innermost: Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)>, code: &Code) {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        for (sampler, frames) in innermost {
            let mut frames: Vec<(Frame, u64)> = frames.into_iter().collect();
            // What is in one file stays together, so that none is read twice.
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

    /// Gives names to what was counted. `None` if names could not be looked up in time.
    fn named(&self, counted: &Counted, unnamed: Unnamed) -> Option<Profile> {
        let elapsed = counted.end.saturating_sub(counted.begin);
        let ago = self.clock.kernel().saturating_sub(counted.begin);
        let start = Timestamp(self.clock.now().0.saturating_sub(ago / NANOSECONDS));
        let mut names = {
            let mut symbols = self.symbols.lock_within(NAMES_PATIENCE)?;
            symbols.set_limit(self.symbol_limit());
            let names = symbols.resolve(&unnamed.frames, &unnamed.code);
            self.note(&symbols);
            names
        };
        if counted.sampler.lines {
            let mut lines = self.lines.lock_within(NAMES_PATIENCE)?;
            lines.set_limit(self.debug_info.load(Ordering::Relaxed));
            // Between requests.
            let limit = self.line_memory.lock().limit() / LINES_PART;
            lines.set_memory(usize::try_from(limit).unwrap_or(usize::MAX));
            lines.refine(&unnamed.frames, &mut names, &unnamed.code);
            lines.accounts().clone_into(&mut self.line_accounts.lock());
            self.line_memory.lock().set(lines.bytes() as u64);
        }
        Some(build(counted, unnamed, &names, start, Duration::from_nanos(elapsed)))
    }

    /// Leaves the account where it can be read while names are looked up.
    fn note(&self, symbols: &Symbolizer) {
        symbols.accounts().clone_into(&mut self.accounts.lock());
        self.symbol_memory.lock().set(symbols.bytes() as u64);
    }

    /// Takes what is counted out of the analysis, once that has caught up, and gives names to it.
    fn profile(
        &self,
        selection: &Selection,
        count: impl FnOnce(&mut Analysis) -> Result<Counted, NoProfile>,
    ) -> Result<Profile, NoProfile> {
        let (counted, unnamed) = {
            let mut analysis = self.caught_up(TURN_PATIENCE).ok_or(NoProfile::Stalled)?;
            let counted = count(&mut analysis)?;
            let unnamed =
                Unnamed::of(&counted, selection, &analysis.analyzer, &analysis.tasks, &self.directory);
            (counted, unnamed)
        };
        // No lock that a collection needs is held from here on.
        scheduling::at_normal_priority(|| self.named(&counted, unnamed)).ok_or(NoProfile::Stalled)
    }
}

impl<R: Ring + Send + fmt::Debug> Ask for Shared<R> {
    fn entries(&self) -> Vec<Arc<str>> {
        self.handoff.lock().entries.clone()
    }

    fn begin(&self, entry: &str) -> Result<Asked, NoProfile> {
        let number = self.handoff.lock().begin(entry)?;
        let mut rings = self.rings.lock();
        let at = self.clock.kernel();
        rings.command(at, Command::Begin { number, entry: entry.into(), at });
        Ok(Asked(number))
    }

    fn end(&self, asked: Asked, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let ended = self.profile(selection, |analysis| analysis.end(asked.0, now).ok_or(NoProfile::Gone));
        match ended {
            Err(NoProfile::Stalled) => self.abandon(asked),
            _ => self.handoff.lock().end(asked.0),
        }
        ended
    }

    fn renew(&self, asked: Asked, selection: &Selection) -> Result<(Profile, Asked), NoProfile> {
        let renewed = self.profile(selection, |analysis| analysis.renew(asked.0).ok_or(NoProfile::Gone));
        if renewed == Err(NoProfile::Gone) {
            self.handoff.lock().end(asked.0);
        }
        let mut profile = renewed?;
        self.contexts.lock().enter(&mut profile.tasks, &self.clock);
        Ok((profile, asked))
    }

    fn abandon(&self, Asked(number): Asked) {
        self.handoff.lock().end(number);
        self.rings.lock().abandon(self.clock.kernel(), number);
    }

    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.profile(selection, |analysis| {
            analysis.last(entry, now, length).ok_or_else(|| self.handoff.lock().unknown(entry))
        })
    }
}
