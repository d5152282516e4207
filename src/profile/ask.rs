//! Asking for profiles, from whatever thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::build::{Unnamed, build};
use super::contexts::Contexts;
use super::fair::Fair;
use super::functions::Functions;
use super::intake::{Counted, Intake};
use super::memory::MemoryShares;
use super::namer::{Namer, News};
use super::{Profile, Selection, lock};
use crate::budget::{Account, Share};
use crate::clock::{Clock, Timestamp};
use crate::container::Directory;
use crate::host::Roots;
use crate::plan::Sampler;
use crate::ring::Ksymbol;
use crate::stack::{Code, Frame};
use crate::symbol::{self, Lines, Symbolizer};
use crate::sys::Ring;

/// Who can be asked for profiles. Looking up names may take seconds the first time, and reads files: no call is for a
/// thread that others wait for.
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
    /// Its entry has gone meanwhile.
    fn end(&self, asked: Asked, selection: &Selection) -> Result<Profile, NoProfile>;

    /// Ends it, gives what was seen, and begins the next one at the same instant: every sample is in exactly one of those
    /// that follow each other. Tasks have what their processes publish about themselves ([`Task::context`](super::Task::context)), as far as
    /// these still run. With `selection` as for [`end`](Self::end).
    ///
    /// # Errors
    /// Its entry has gone meanwhile, and there is no next one.
    fn renew(&self, asked: Asked, selection: &Selection) -> Result<(Profile, Asked), NoProfile>;

    /// Ends it for nobody.
    fn abandon(&self, asked: Asked);

    /// What was seen of an entry in the last while, as far as its window reaches back. With `selection` as for
    /// [`end`](Self::end).
    ///
    /// # Errors
    /// There is no such entry.
    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile>;
}

/// The number of a profile that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked(u64);

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// The configuration asks for none.
    #[error("nothing is sampled: the configuration has no entry under `profiles`")]
    NothingSampled,
    /// There is no such entry.
    #[error("no profile is called {asked:?}; there is {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<String>,
    },
    /// As many are under way as may be.
    #[error("too many profiles are waited for at the same time: ask again later")]
    Busy,
    /// A reload has dropped its entry.
    #[error("the configuration was reloaded meanwhile, and has no such entry any more")]
    Gone,
}

/// What the reader, the collector and those who ask share.
#[derive(Debug)]
pub(super) struct Shared<R> {
    intake: Fair<Intake<R>>,
    symbols: Fair<Symbolizer>,
    /// Apart from names, which more are waiting for.
    lines: Mutex<Lines>,
    /// How many bytes of debug information may be read of a file.
    pub(super) debug_info: AtomicU64,
    /// Theirs, as of the last time that they were asked.
    pub(super) line_accounts: Mutex<symbol::LineAccounts>,
    /// The symboliser's, as of the last time that it was asked.
    pub(super) accounts: Mutex<symbol::Accounts>,
    /// What the symboliser holds, likewise.
    symbol_memory: Mutex<Account>,
    /// By entry, how often which function was seen innermost.
    pub(super) functions: Mutex<BTreeMap<Arc<str>, Functions>>,
    /// When they were counted last, on the clock of the records.
    functions_counted: Mutex<u64>,
    /// What processes say about themselves.
    contexts: Mutex<Contexts>,
    /// Whose containers cgroups are.
    directory: Arc<Directory>,
    clock: Clock,
}

/// How often functions are counted, in nanoseconds.
const FUNCTIONS_EVERY: u64 = 5_000_000_000;

/// How many names are looked up before others get their turn.
const AT_A_TIME: usize = 64;

/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;

impl<R: Ring> Shared<R> {
    pub(super) fn new(clock: Clock, roots: &Roots, directory: Arc<Directory>, intake: Intake<R>) -> Self {
        Self {
            intake: Fair::new(intake),
            symbols: Fair::new(Symbolizer::new(roots, clock.clone(), symbol::Options::default())),
            lines: Mutex::new(Lines::new(roots, 0)),
            debug_info: AtomicU64::new(0),
            line_accounts: Mutex::default(),
            accounts: Mutex::default(),
            symbol_memory: Mutex::new(MemoryShares::ample().symbols.account()),
            functions: Mutex::default(),
            functions_counted: Mutex::new(0),
            contexts: Mutex::new(Contexts::new(roots)),
            directory,
            clock,
        }
    }

    /// What was read.
    pub(super) fn intake(&self) -> MutexGuard<'_, Intake<R>> {
        self.intake.lock()
    }

    /// The same, once what the rings hold by now was looked at; with as much as was possible in `patience`, if there is
    /// more to look at than that. In between others have their turns.
    pub(super) fn caught_up(&self, patience: Option<Duration>) -> MutexGuard<'_, Intake<R>> {
        let begin = self.clock.monotonic();
        // The time is taken before rings are emptied: what is older is in them.
        let now = self.clock.kernel();
        let mut intake = self.intake();
        intake.pull(now);
        while !intake.look() {
            if patience.is_some_and(|patience| self.clock.monotonic().since(begin) > patience) {
                break;
            }
            drop(intake);
            intake = self.intake();
        }
        intake
    }

    /// Reads what the rings hold, and has looked up what cannot wait until somebody asks.
    pub(super) fn drain(&self, namer: Option<&Namer>) {
        let mut intake = self.caught_up(None);
        let Some(namer) = namer.filter(|namer| !namer.is_busy()) else { return };
        let news = intake.take_news(self.is_time_for_functions());
        drop(intake);
        news.into_iter().for_each(|news| namer.tell(news));
    }

    /// Looks up what cannot wait until somebody asks.
    pub(super) fn look_up(&self, news: News) {
        let mut symbols = self.symbols.lock();
        news.makers.into_iter().for_each(|process| symbols.notice(process, &news.code));
        news.ended.into_iter().for_each(|process| symbols.end(process));
        for (address, length, removed, name) in &news.kernel_functions {
            symbols.hear(&Ksymbol { address: *address, length: *length, removed: *removed, name });
        }
        drop(symbols);
        self.count_functions(news.innermost, &news.code);
        self.note(&self.symbols.lock());
    }

    /// Accounts for the symboliser's memory in this share from now on.
    pub(super) fn set_memory(&self, symbols: &Share) {
        *lock(&self.symbol_memory) = symbols.account();
    }

    /// Forgets the functions of all entries but these.
    pub(super) fn keep_functions(&self, entries: &[Arc<str>]) {
        lock(&self.functions).retain(|entry, _| entries.contains(entry));
    }

    fn is_time_for_functions(&self) -> bool {
        let now = self.clock.kernel();
        let mut last = lock(&self.functions_counted);
        let due = now.saturating_sub(*last) >= FUNCTIONS_EVERY;
        if due {
            *last = now;
        }
        due
    }

    /// Adds up by function what was seen innermost. Somebody may want other names in between.
    fn count_functions(&self, innermost: Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)>, code: &Code) {
        let now = self.clock.now();
        for (sampler, frames) in innermost {
            let mut frames: Vec<(Frame, u64)> = frames.into_iter().collect();
            // What is in one file stays together, so that none is read twice.
            frames.sort_unstable();
            let (frames, counts): (Vec<Frame>, Vec<u64>) = frames.into_iter().unzip();
            for (frames, counts) in frames.chunks(AT_A_TIME).zip(counts.chunks(AT_A_TIME)) {
                let names = self.symbols.lock().resolve(frames, code);
                let mut functions = lock(&self.functions);
                let functions = functions.entry(Arc::clone(&sampler.entry)).or_default();
                names.iter().zip(counts).for_each(|(named, &count)| functions.add(named, count, now));
            }
        }
    }

    /// Gives names to what was counted.
    fn named(&self, counted: &Counted, unnamed: Unnamed) -> Profile {
        let elapsed = counted.end.saturating_sub(counted.begin);
        let ago = self.clock.kernel().saturating_sub(counted.begin);
        let start = Timestamp(self.clock.now().0.saturating_sub(ago / NANOSECONDS));
        let mut names = {
            let mut symbols = self.symbols.lock();
            let names = symbols.resolve(&unnamed.frames, &unnamed.code);
            self.note(&symbols);
            names
        };
        if counted.sampler.lines {
            let mut lines = lock(&self.lines);
            lines.set_limit(self.debug_info.load(Ordering::Relaxed));
            lines.refine(&unnamed.frames, &mut names, &unnamed.code);
            lines.accounts().clone_into(&mut lock(&self.line_accounts));
        }
        build(counted, unnamed, &names, start, Duration::from_nanos(elapsed))
    }

    /// Leaves the account where it can be read while names are looked up.
    fn note(&self, symbols: &Symbolizer) {
        symbols.accounts().clone_into(&mut lock(&self.accounts));
        lock(&self.symbol_memory).set(symbols.bytes() as u64);
    }

    fn unknown(intake: &Intake<R>, asked: &str) -> NoProfile {
        let known: Vec<String> = intake.entries().iter().map(|entry| (**entry).to_owned()).collect();
        match known.is_empty() {
            true => NoProfile::NothingSampled,
            false if known.iter().any(|known| known == asked) => NoProfile::Busy,
            false => NoProfile::Unknown { asked: asked.to_owned(), known },
        }
    }
}

impl<R: Ring + Send + fmt::Debug> Ask for Shared<R> {
    fn entries(&self) -> Vec<Arc<str>> {
        self.intake().entries()
    }

    fn begin(&self, entry: &str) -> Result<Asked, NoProfile> {
        let now = self.clock.kernel();
        let mut intake = self.intake();
        intake.begin(entry, now).map(Asked).ok_or_else(|| Self::unknown(&intake, entry))
    }

    fn end(&self, Asked(number): Asked, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let (counted, unnamed) = {
            let mut intake = self.caught_up(None);
            let counted = intake.end(number, now).ok_or(NoProfile::Gone)?;
            let unnamed = Unnamed::of(&counted, selection, &intake.analyzer, &intake.tasks, &self.directory);
            (counted, unnamed)
        };
        Ok(self.named(&counted, unnamed))
    }

    fn renew(&self, asked: Asked, selection: &Selection) -> Result<(Profile, Asked), NoProfile> {
        let (counted, unnamed) = {
            let mut intake = self.caught_up(None);
            let counted = intake.renew(asked.0).ok_or(NoProfile::Gone)?;
            let unnamed = Unnamed::of(&counted, selection, &intake.analyzer, &intake.tasks, &self.directory);
            (counted, unnamed)
        };
        let mut profile = self.named(&counted, unnamed);
        lock(&self.contexts).enter(&mut profile.tasks, self.clock.monotonic());
        Ok((profile, asked))
    }

    fn abandon(&self, Asked(number): Asked) {
        self.intake().abandon(number);
    }

    fn last(&self, entry: &str, length: Duration, selection: &Selection) -> Result<Profile, NoProfile> {
        let now = self.clock.kernel();
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let (counted, unnamed) = {
            let mut intake = self.caught_up(None);
            let counted = intake.last(entry, now, length).ok_or_else(|| Self::unknown(&intake, entry))?;
            let unnamed = Unnamed::of(&counted, selection, &intake.analyzer, &intake.tasks, &self.directory);
            (counted, unnamed)
        };
        Ok(self.named(&counted, unnamed))
    }
}
