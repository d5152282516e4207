//! Lines and inlined functions of frames in files, for those who ask for them.
//!
//! Debug information is read when an address is asked for that nobody asked for before, and let go of at once: the
//! answers stay, within a limit of memory. So a profile that is looked at again costs nothing, and an exporter that
//! nobody asks holds no debug information. Whoever reads rings never waits for this.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::cache::Cache;
use super::debug;
use super::demangle::demangle;
use super::dwarf::{self, Budget, Found, Trouble};
use super::identity::{Identity, Written};
use super::source::Source;
use super::{Named, NamedLine, Reason};
use crate::files::Files;
use crate::probe::binary::{Binary, BinaryError, NoDebugInfo};
use crate::stack::{Code, Frame, Module, ModuleId};
use crate::words::words;

/// Memory for answers and for what is known of files, in bytes, unless [`Lines::set_memory`] says otherwise.
const MEMORY: usize = 4 << 20;
/// How much of it what is known of files may take: one part in so many.
const KNOWN_PART: usize = 4;
/// How many times as much as of one file is read of all files for one profile.
const FILES: u64 = 4;
/// How much work one file may be for one profile, and all of them. A step takes some nanoseconds, going through a unit of
/// 10 MiB some millions of them; units that have none of the addresses are passed over.
const STEPS: u64 = 1 << 26;
const STEPS_OF_ALL: u64 = 1 << 27;
/// How much memory may be taken by what is found in one file, in bytes.
const FOUND: usize = 8 << 20;

words! {
    /// Why a frame has no line.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum LineReason {
        /// The file could not be opened when it was mapped.
        NoFile = "no_file",
        /// The file, or its debug file, could not be read, or is no ELF file that is understood.
        Unreadable = "unreadable",
        /// It was compiled without debug information, or that was taken out and no debug file was found.
        NoDebugInfo = "no_debug_info",
        /// Its functions are in `.dwo` files, or names in a file of `dwz`. The lines are there; what was inlined is not, or has
        /// no name.
        Split = "split",
        /// It is compressed in another way than by zlib.
        Compressed = "compressed",
        /// It is larger than `limits.debug_info`, or so much work that nothing came of it.
        TooLarge = "too_large",
        /// It breaks the format.
        Damaged = "damaged",
        /// Somebody has written into the file since it was looked at first.
        Changed = "changed",
        /// It tells nothing of this address: code that was compiled without, or that a linker or an assembler made.
        NotCovered = "not_covered",
        /// It, or other files, took all that one profile may. When it is asked for again, it goes on from there.
        Postponed = "postponed",
    }
}

/// How many frames in files were asked for, and what became of them. Everything only grows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineAccounts {
    /// Frames with a line.
    pub found: u64,
    /// Frames that lack it, or a part of what was inlined there, in the order of [`LineReason::ALL`].
    missing: [u64; LineReason::ALL.len()],
}

impl LineAccounts {
    /// Frames that lack it for one reason.
    pub fn of(&self, reason: LineReason) -> u64 {
        self.missing.get(reason as usize).copied().unwrap_or(0)
    }

    fn count(&mut self, reason: Option<LineReason>) {
        match reason.and_then(|reason| self.missing.get_mut(reason as usize)) {
            Some(count) => *count += 1,
            None => self.found += 1,
        }
    }
}

/// What is at an address: lines with demangled names, and what is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    /// Innermost first. The last is the function itself, whose name may be empty: the symbol's is better.
    lines: Box<[NamedLine]>,
    reason: Option<LineReason>,
}

/// A file that has debug information.
#[derive(Debug)]
struct Known {
    identity: Identity,
    /// Where it is, unless it is too large, damaged, or not what can be read. The file is open only while it is read.
    source: Result<Source, LineReason>,
}

/// Finds lines and inlined functions.
#[derive(Debug)]
pub struct Lines {
    files: Files,
    /// The most that is read of one file, in bytes, uncompressed.
    limit: u64,
    /// How much may be held, in bytes.
    memory: usize,
    known: FxHashMap<ModuleId, Known>,
    answers: Cache<(ModuleId, u64), Arc<Answer>>,
    accounts: LineAccounts,
}

/// What may still be done for one profile.
struct Left {
    bytes: u64,
    steps: u64,
}

impl Lines {
    /// One that has read nothing yet. Of a file with more than `limit` bytes of debug information none is read.
    pub fn new(files: impl Into<Files>, limit: u64) -> Self {
        Self {
            files: files.into(),
            limit,
            memory: MEMORY,
            known: FxHashMap::default(),
            answers: Cache::new(MEMORY - MEMORY / KNOWN_PART),
            accounts: LineAccounts::default(),
        }
    }

    /// Reads files of another size from now on.
    pub fn set_limit(&mut self, limit: u64) {
        if self.limit != limit {
            (self.limit, self.known) = (limit, FxHashMap::default());
            self.answers.retain(|_, _| false);
        }
    }

    /// Changes how much memory may be held, in bytes. What is over it is forgotten at once. While a file is read, its debug
    /// information is in memory too, and up to 8 MiB of what is found there.
    pub fn set_memory(&mut self, bytes: usize) {
        if bytes == self.memory {
            return;
        }
        self.memory = bytes;
        self.answers.set_limit(bytes - bytes / KNOWN_PART);
        self.make_room();
    }

    /// Forgets what is known of all files where it is too much: it costs a look at their headers.
    fn make_room(&mut self) {
        if self.known_bytes() > self.memory / KNOWN_PART {
            self.known.clear();
            self.answers.retain(|_, _| false);
        }
    }

    fn known_bytes(&self) -> usize {
        let held = |known: &Known| known.source.as_ref().map_or(0, Source::bytes);
        self.known.values().map(|known| size_of::<(ModuleId, Known)>() + held(known)).sum()
    }

    /// How many frames have lines, and why the others have none.
    pub fn accounts(&self) -> &LineAccounts {
        &self.accounts
    }

    /// How much memory is held, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        self.answers.bytes() + self.known_bytes()
    }

    /// Adds lines, and the functions that were inlined, to what [`Symbolizer::resolve`](super::Symbolizer::resolve) has
    /// found for these frames. The outermost function keeps the name that it has. While a file is read, its debug
    /// information is in memory.
    pub fn refine(&mut self, frames: &[Frame], named: &mut [Arc<Named>], code: &Code) {
        self.check(code);
        self.make_room();
        let mut by_file: BTreeMap<ModuleId, Vec<usize>> = BTreeMap::new();
        for (place, frame) in frames.iter().enumerate() {
            if let Frame::File { module, .. } = frame {
                by_file.entry(*module).or_default().push(place);
            }
        }
        let mut left = Left { bytes: self.limit.saturating_mul(FILES), steps: STEPS_OF_ALL };
        for (id, places) in by_file {
            let addresses = places.iter().filter_map(|&place| named.get(place)).map(|named| named.address);
            let answers = self.answers(id, addresses.collect(), code, &mut left);
            for place in places {
                let Some(named) = named.get_mut(place) else { continue };
                let answer = answers.get(&named.address);
                self.accounts.count(answer.map_or(Some(LineReason::NotCovered), |answer| answer.reason));
                if let Some(better) = answer.and_then(|answer| answer.applied_to(named)) {
                    *named = Arc::new(better);
                }
            }
        }
    }

    /// Forgets what a number stood for that stands for another file now.
    fn check(&mut self, code: &Code) {
        let before = self.known.len();
        self.known.retain(|id, known| {
            code.modules.get(id.0 as usize).is_some_and(|module| known.identity.is(module))
        });
        if self.known.len() < before {
            let known = &self.known;
            self.answers.retain(|(id, _), _| known.contains_key(id));
        }
    }

    /// What is at each of these addresses of a file.
    fn answers(
        &mut self,
        id: ModuleId,
        mut addresses: Vec<u64>,
        code: &Code,
        left: &mut Left,
    ) -> FxHashMap<u64, Arc<Answer>> {
        addresses.sort_unstable();
        addresses.dedup();
        let mut answers = FxHashMap::default();
        addresses.retain(|&address| match self.answers.get(&(id, address)) {
            Some(answer) => {
                answers.insert(address, answer);
                false
            }
            None => true,
        });
        if addresses.is_empty() {
            return answers;
        }
        let found = self.read(id, &addresses, code, left);
        let failed = |reason| Arc::new(Answer { lines: Box::default(), reason: Some(reason) });
        let mut names = Interned::default();
        for (place, address) in addresses.into_iter().enumerate() {
            let answer = match &found {
                Err(reason) => failed(*reason),
                Ok((found, trouble)) => {
                    let found = found.get(place).filter(|found| !found.levels.is_empty());
                    match found {
                        Some(found) => Arc::new(names.answer(found)),
                        None => failed(trouble.unwrap_or(LineReason::NotCovered)),
                    }
                }
            };
            if answer.reason != Some(LineReason::Postponed) {
                self.answers.insert((id, address), Arc::clone(&answer), answer.bytes());
            }
            answers.insert(address, answer);
        }
        answers
    }

    /// What a file tells of these addresses, and why it does not tell of all.
    fn read(
        &mut self,
        id: ModuleId,
        addresses: &[u64],
        code: &Code,
        left: &mut Left,
    ) -> Result<(Vec<Found>, Option<LineReason>), LineReason> {
        let module = code.modules.get(id.0 as usize).ok_or(LineReason::NoFile)?;
        let files = &self.files;
        let known = self
            .known
            .entry(id)
            .or_insert_with(|| Known { identity: Identity::of(module), source: find(module, code, files) });
        let source = known.source.as_ref().map_err(|reason| *reason)?;
        match left.read(source, module, files, addresses, self.limit) {
            // A file that was closed may be open again the next time.
            Err(reason) if !matches!(reason, LineReason::Postponed | LineReason::NoFile) => {
                known.source = Err(reason);
                Err(reason)
            }
            answer => answer,
        }
    }
}

/// The file of a module, or the one that its debug information was moved to.
fn find(module: &Module, code: &Code, files: &Files) -> Result<Source, LineReason> {
    let file = module.file.as_ref().map_err(|_| LineReason::NoFile)?;
    let binary = file.binary().map_err(|_| LineReason::Unreadable)?;
    if binary.has_debug_info() {
        return Ok(Source::Own(Written::of(file)));
    }
    let pid = code.processes.get(module.process.0 as usize).map(|process| process.pid);
    let found = debug::find(files, pid, &module.path, &binary, debug::Wanted::DebugInfo);
    Ok(Source::Beside(found.map_err(|_| LineReason::NoDebugInfo)?.0))
}

impl Left {
    fn read(
        &mut self,
        source: &Source,
        module: &Module,
        files: &Files,
        addresses: &[u64],
        limit: u64,
    ) -> Result<(Vec<Found>, Option<LineReason>), LineReason> {
        let reader = source.open(module, files).map_err(|reason| match reason {
            Reason::Changed => LineReason::Changed,
            _ => LineReason::NoFile,
        })?;
        let binary = Binary::read(&*reader, Path::new("")).map_err(|_| LineReason::Unreadable)?;
        let info = binary.debug_info(limit.min(self.bytes)).map_err(|error| match error {
            NoDebugInfo::Absent => LineReason::NoDebugInfo,
            NoDebugInfo::TooLarge { size } if size <= limit => LineReason::Postponed,
            NoDebugInfo::TooLarge { .. } => LineReason::TooLarge,
            NoDebugInfo::Compressed => LineReason::Compressed,
            NoDebugInfo::Unreadable(BinaryError::Damaged { .. }) => LineReason::Damaged,
            NoDebugInfo::Unreadable(BinaryError::TooMany { .. }) => LineReason::TooLarge,
            NoDebugInfo::Unreadable(_) => LineReason::Unreadable,
        })?;
        self.bytes = self.bytes.saturating_sub(info.size());
        let steps = STEPS.min(self.steps);
        let mut budget = Budget { steps, memory: FOUND };
        let (found, trouble) = dwarf::look_up(&info, addresses, &mut budget);
        self.steps = self.steps.saturating_sub(steps - budget.steps);
        let has_some = found.iter().any(|found| !found.levels.is_empty());
        let reason = trouble.map(|trouble| match trouble {
            Trouble::Damaged => LineReason::Damaged,
            // What was found is kept, so that the next time there is less to do.
            Trouble::Exhausted if steps < STEPS || has_some => LineReason::Postponed,
            Trouble::Exhausted => LineReason::TooLarge,
        });
        Ok((found, reason))
    }
}

/// Names, each once.
#[derive(Default)]
struct Interned(FxHashMap<Arc<str>, Arc<str>>);

impl Interned {
    fn answer(&mut self, found: &Found) -> Answer {
        let lines = found.levels.iter().map(|level| {
            // What was inlined and has no name is a function all the same.
            let linkage = level.function.clone().unwrap_or_else(|| "".into());
            let name = self.0.entry(Arc::clone(&linkage)).or_insert_with_key(|linkage| {
                let name = if linkage.is_empty() { String::new() } else { demangle(linkage) };
                if *name == **linkage { Arc::clone(linkage) } else { name.into() }
            });
            NamedLine { name: Arc::clone(name), linkage, file: level.file.clone(), line: level.line }
        });
        let reason = if found.elsewhere {
            Some(LineReason::Split)
        } else if found.levels.first().is_none_or(|level| level.line == 0) {
            Some(LineReason::NotCovered)
        } else {
            None
        };
        Answer { lines: lines.collect(), reason }
    }
}

impl Answer {
    /// Roughly, as if no name were shared.
    fn bytes(&self) -> usize {
        let text = |line: &NamedLine| {
            let linkage = if Arc::ptr_eq(&line.name, &line.linkage) { 0 } else { line.linkage.len() };
            line.name.len() + linkage + line.file.as_ref().map_or(0, |file| file.len())
        };
        let texts: usize = self.lines.iter().map(text).sum();
        size_of::<Self>() + self.lines.len() * size_of::<NamedLine>() + texts
    }

    /// What is known with this; `None` if that is no more than before.
    fn applied_to(&self, named: &Named) -> Option<Named> {
        const UNNAMED: &str = "[inlined]";
        let (own, inlined) = self.lines.split_last()?;
        let own = match named.lines.last() {
            Some(symbol) => {
                let (name, linkage) = (Arc::clone(&symbol.name), Arc::clone(&symbol.linkage));
                NamedLine { name, linkage, ..own.clone() }
            }
            None if own.name.is_empty() => return None,
            None => own.clone(),
        };
        let inlined = inlined.iter().map(|line| match &*line.name {
            "" => NamedLine { name: UNNAMED.into(), linkage: UNNAMED.into(), ..line.clone() },
            _ => line.clone(),
        });
        let lines = inlined.chain([own]).collect();
        Some(Named { lines, unknown: None, reason: None, ..named.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_an_account_and_a_word_of_its_own() {
        let mut accounts = LineAccounts::default();
        for (place, reason) in LineReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            accounts.count(Some(reason));
            assert_eq!(accounts.of(reason), 1);
        }
        let words: std::collections::BTreeSet<_> =
            LineReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), LineReason::ALL.len());
        accounts.count(None);
        assert_eq!(accounts.found, 1);
    }
}
