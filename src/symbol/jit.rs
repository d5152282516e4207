//! Names of code generated at run time, from the files that language runtimes write for `perf`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::follow::{Followed, FunctionReader, ROUND};
use super::jitdump::{JitDump, name_and_line};
use super::perfmap::PerfMap;
use super::texts::TextId;
use super::{NamedLine, Reason};
use crate::clock::{Allowance, Monotonic};
use crate::error::printable;
use crate::files::{Files, Opened, RootError, is_of_process};
use crate::probe::Root;
use crate::stack::{Code, Process, ProcessId};

/// The most processes whose files are followed. One or two files of each are held open.
const PROCESS_LIMIT: usize = 256;
/// The approximate memory of a process without its functions, in bytes.
const KNOWN: usize = 400;
/// The approximate memory of a cached text, without the text itself, in bytes.
const LOOKED_UP: usize = 64;

/// The bytes to read from the files of one process: at first, and each second from then on. A file that is rewritten continuously is read
/// no faster; frames without a symbol because of that have [`Reason::MapBehind`].
const OF_ONE: (u64, u64) = (32 << 20, 512 << 10);
/// The bytes to read from the files of all processes: at first, and each second.
const OF_ALL: (u64, u64) = (4 << 20, 4 << 20);
const SECOND: Duration = Duration::from_secs(1);
/// The time between two rounds of a file that was not read to its end.
const PAUSE: Duration = Duration::from_millis(100);
/// The time and the rounds in which the files of an exited process are read to their end.
const FINAL: (Duration, u64) = (Duration::from_secs(5), (16 << 20) / ROUND);

/// The processes that generate code at run time.
///
/// A call of [`look`](Self::look) or [`end`](Self::end) reads at most four rounds of [`ROUND`] bytes: later calls read the rest.
#[derive(Debug)]
pub(super) struct Jits {
    known: FxHashMap<ProcessId, Jit>,
    /// Exited processes whose files were not read to their end.
    ending: VecDeque<ProcessId>,
    /// When the files of one of them were last read.
    caught_up: Option<Monotonic>,
    allowance: Allowance,
    /// Memory limits in bytes: for all processes, and for one file of a process.
    limit: usize,
    each: usize,
    /// Incremented with each use.
    now: u64,
}

#[derive(Debug)]
struct Jit {
    process: Process,
    /// Its perf map, or why there is none or it is not trusted.
    map: Result<SymbolFile, Reason>,
    dump: Option<SymbolFile>,
    allowance: Allowance,
    /// When its files were last looked for, and last read.
    looked: Option<Monotonic>,
    polled: Option<Monotonic>,
    ended: Option<Ended>,
    used: u64,
}

/// The state after the exit of the process: its process ID may be reused.
#[derive(Debug, Clone, Copy)]
struct Ended {
    at: Monotonic,
    rounds: u64,
    /// Whether its files were closed before their end was read.
    unread: bool,
}

/// A symbol file of a process.
#[derive(Debug)]
struct SymbolFile {
    /// `None` if it is closed.
    file: Option<Followed>,
    made: Box<dyn FunctionReader>,
    texts: LookedUp,
}

/// Lines that could not be parsed, and functions that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) malformed: u64,
    pub(super) dropped: u64,
}

impl Losses {
    fn since(self, before: Self) -> Self {
        Self {
            malformed: self.malformed.saturating_sub(before.malformed),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }

    fn and(self, other: Self) -> Self {
        Self { malformed: self.malformed + other.malformed, dropped: self.dropped + other.dropped }
    }
}

impl Jits {
    /// Creates an empty table. All processes take at most `limit` bytes of memory, and each file of a process at most half of that.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            known: FxHashMap::default(),
            ending: VecDeque::new(),
            caught_up: None,
            allowance: Allowance::new(OF_ALL.0, OF_ALL.1, SECOND, Monotonic::default()),
            limit,
            each: limit / 2,
            now: 0,
        }
    }

    /// Sets the memory limit in bytes, and enforces it at once.
    pub(super) fn set_limit(&mut self, limit: usize) {
        (self.limit, self.each) = (limit, limit / 2);
        for symbol_files in self.known.values_mut().flat_map(Jit::symbol_files_mut) {
            symbol_files.made.functions_mut().set_limit(limit / 2);
            symbol_files.texts.clear();
        }
        self.make_space(None);
    }

    /// Reads what a process has written since the last call, unless that was less than `refresh` ago.
    pub(super) fn look(
        &mut self,
        id: ProcessId,
        code: &Code,
        files: &Files,
        now: Monotonic,
        refresh: Duration,
    ) -> Losses {
        let ending = self.catch_up(now);
        let Some(process) = code.processes.get(id.0 as usize) else { return ending };
        self.now += 1;
        if self.known.get(&id).is_some_and(|jit| jit.process != *process) {
            self.known.remove(&id);
        }
        let jit = self.known.entry(id).or_insert_with(|| Jit::new(process.clone(), now));
        jit.used = self.now;
        let is_due = |last: Option<Monotonic>, pause| last.is_none_or(|last| now.since(last) >= pause);
        let is_new_look = is_due(jit.looked, refresh);
        if jit.ended.is_some() || !(is_new_look || jit.is_behind() && is_due(jit.polled, PAUSE)) {
            return ending;
        }
        let before = jit.losses();
        if is_new_look {
            jit.looked = Some(now);
            jit.open(id, code, files, self.each);
        }
        jit.poll(&mut self.allowance, now);
        let losses = jit.losses().since(before);
        self.make_space(Some(id));
        losses.and(ending)
    }

    /// Handles a process that has exited or executes another program: the rest of its files is read, and no others are opened.
    pub(super) fn end(&mut self, id: ProcessId, now: Monotonic) -> Losses {
        let Some(jit) = self.known.get_mut(&id).filter(|jit| jit.ended.is_none()) else {
            return Losses::default();
        };
        jit.ended = Some(Ended { at: now, rounds: 0, unread: false });
        self.finish(id, now)
    }

    /// Reads one round of the files of an exited process.
    fn finish(&mut self, id: ProcessId, now: Monotonic) -> Losses {
        let Some(jit) = self.known.get_mut(&id).filter(|jit| jit.ended.is_some()) else {
            return Losses::default();
        };
        let before = jit.losses();
        if jit.finish(&mut self.allowance, now) {
            self.ending.push_back(id);
        }
        jit.losses().since(before)
    }

    /// Drops a process, unless its number was already reused.
    pub(super) fn forget(&mut self, id: ProcessId, process: &Process) {
        if self.known.get(&id).is_some_and(|jit| jit.process == *process) {
            self.known.remove(&id);
        }
    }

    /// Reads one round of the files of one exited process.
    fn catch_up(&mut self, now: Monotonic) -> Losses {
        if self.caught_up.is_some_and(|last| now.since(last) < PAUSE) {
            return Losses::default();
        }
        let Some(id) = self.ending.pop_front() else { return Losses::default() };
        self.caught_up = Some(now);
        let losses = self.finish(id, now);
        self.make_space(Some(id));
        losses
    }

    /// Returns the function that contains an address of a process.
    pub(super) fn find(&mut self, id: ProcessId, address: u64) -> Result<NamedLine, Reason> {
        self.known.get_mut(&id).map_or(Err(Reason::MapMissing), |jit| jit.find(address))
    }

    /// Drops the least recently used processes, except one.
    fn make_space(&mut self, except: Option<ProcessId>) {
        let mut bytes = self.bytes();
        if bytes <= self.limit && self.known.len() <= PROCESS_LIMIT {
            return;
        }
        let mut others: Vec<(u64, ProcessId)> = self
            .known
            .iter()
            .map(|(&id, jit)| (jit.used, id))
            .filter(|&(_, id)| Some(id) != except)
            .collect();
        others.sort_unstable();
        for (_, id) in others {
            if bytes <= self.limit && self.known.len() <= PROCESS_LIMIT {
                break;
            }
            bytes -= self.known.remove(&id).map_or(0, |jit| jit.bytes());
        }
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.known.values().map(Jit::bytes).sum()
    }
}

impl Jit {
    fn new(process: Process, now: Monotonic) -> Self {
        Self {
            process,
            map: Err(Reason::MapMissing),
            dump: None,
            allowance: Allowance::new(OF_ONE.0, OF_ONE.1, SECOND, now),
            looked: None,
            polled: None,
            ended: None,
            used: 0,
        }
    }

    fn symbol_files(&self) -> impl Iterator<Item = &SymbolFile> {
        self.map.iter().chain(&self.dump)
    }

    fn symbol_files_mut(&mut self) -> impl Iterator<Item = &mut SymbolFile> {
        self.map.iter_mut().chain(&mut self.dump)
    }

    /// Opens the files that the process writes, if they are not open.
    fn open(&mut self, id: ProcessId, code: &Code, files: &Files, limit: usize) {
        match open_map(files, &self.process) {
            Ok(opened) if self.map.as_ref().is_ok_and(|symbol_files| symbol_files.is_of(&opened)) => {}
            Ok(opened) => self.map = Ok(SymbolFile::new(Arc::new(opened), PerfMap::new(limit))),
            // Functions that were read from a removed file stay valid.
            Err(reason) => self.map = std::mem::replace(&mut self.map, Err(reason)).or(Err(reason)),
        }
        if self.dump.is_none() {
            let file = dump_of(id, &self.process, code)
                .filter(|file| is_of_process(files, self.process.pid, file).unwrap_or(false));
            self.dump = file.map(|file| SymbolFile::new(file, JitDump::new(limit)));
        }
    }

    /// Reads one round of what was appended to each open file.
    fn poll(&mut self, all: &mut Allowance, now: Monotonic) {
        self.polled = Some(now);
        if let Ok(symbol_files) = &mut self.map
            && !symbol_files.poll([&mut self.allowance, &mut *all], now)
            && symbol_files.made.functions().is_empty()
        {
            self.map = Err(Reason::MapUnreadable);
        }
        if let Some(symbol_files) = &mut self.dump {
            symbol_files.poll([&mut self.allowance, all], now);
        }
    }

    /// Reads one more round after the exit of the process, and closes the files after the last one. Returns whether further rounds follow.
    fn finish(&mut self, all: &mut Allowance, now: Monotonic) -> bool {
        self.poll(all, now);
        let is_behind = self.is_behind();
        let Some(ended) = &mut self.ended else { return false };
        ended.rounds += 1;
        if is_behind && ended.rounds < FINAL.1 && now.since(ended.at) < FINAL.0 {
            return true;
        }
        ended.unread = is_behind;
        self.symbol_files_mut().for_each(|symbol_files| symbol_files.file = None);
        false
    }

    /// Reports whether a file has unread bytes.
    fn is_behind(&self) -> bool {
        self.symbol_files().filter_map(|symbol_files| symbol_files.file.as_ref()).any(Followed::is_behind)
    }

    fn find(&mut self, address: u64) -> Result<NamedLine, Reason> {
        let mut symbol_files = self.dump.iter_mut().chain(self.map.iter_mut());
        symbol_files.find_map(|symbol_files| symbol_files.find(address)).ok_or_else(|| match self.map {
            Err(reason) if self.dump.is_none() => reason,
            _ => self.missing_reason(),
        })
    }

    /// Returns why an address is in no function although there is a file.
    fn missing_reason(&self) -> Reason {
        if self.is_behind() || self.ended.is_some_and(|ended| ended.unread) {
            Reason::MapBehind
        } else if self.losses().dropped > 0 {
            Reason::MapFull
        } else {
            Reason::NotInMap
        }
    }

    fn losses(&self) -> Losses {
        self.symbol_files().fold(Losses::default(), |losses, symbol_files| {
            let (malformed, dropped) = (symbol_files.made.malformed(), symbol_files.made.functions().dropped);
            losses.and(Losses { malformed, dropped })
        })
    }

    fn bytes(&self) -> usize {
        KNOWN
            + self
                .symbol_files()
                .map(|symbol_files| symbol_files.made.bytes() + symbol_files.texts.bytes)
                .sum::<usize>()
    }
}

impl SymbolFile {
    fn new(file: Arc<Opened>, made: impl FunctionReader + 'static) -> Self {
        Self { file: Some(Followed::new(file)), made: Box::new(made), texts: LookedUp::default() }
    }

    /// Reports whether this is the same file, and open.
    fn is_of(&self, opened: &Opened) -> bool {
        self.file.as_ref().is_some_and(|file| file.is(opened))
    }

    /// Reads one round of what was appended, if the file is open. Returns whether it could be read.
    fn poll(&mut self, allowances: [&mut Allowance; 2], now: Monotonic) -> bool {
        let Some(file) = &mut self.file else { return true };
        let polled = file.poll(&mut *self.made, allowances, now);
        if !matches!(polled, Ok(false)) {
            // The numbers of names may have changed.
            self.texts.clear();
        }
        polled.is_ok()
    }

    fn find(&mut self, address: u64) -> Option<NamedLine> {
        let functions = self.made.functions_mut();
        let found = functions.find(address)?;
        functions.touch(found.start);
        let (name, line) = name_and_line(functions, &found);
        let file = line.filter(|line| !line.file.is_empty());
        // Place 0 is for the name.
        let file = file.map(|line| self.texts.text(found.name, line.place.saturating_add(1), line.file));
        let name = self.texts.text(found.name, 0, name);
        Some(NamedLine { linkage: Arc::clone(&name), name, file, line: line.map_or(0, |line| line.number) })
    }
}

/// Cached texts in their printable form, by their entry and the place in it.
#[derive(Debug, Default)]
struct LookedUp {
    texts: FxHashMap<(TextId, u32), Arc<str>>,
    bytes: usize,
}

impl LookedUp {
    fn text(&mut self, entry: TextId, place: u32, text: &[u8]) -> Arc<str> {
        let bytes = &mut self.bytes;
        let text = self.texts.entry((entry, place)).or_insert_with(|| {
            let shown = Arc::from(printable(&String::from_utf8_lossy(text)));
            *bytes += str::len(&shown) + LOOKED_UP;
            shown
        });
        Arc::clone(text)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Opens the perf map of a process, in its own root, with the process ID in its own namespace. Any user can write to `/tmp`, so the map must
/// not be a link, and must [belong to the process](is_of_process).
fn open_map(files: &Files, process: &Process) -> Result<Opened, Reason> {
    let path = format!("/tmp/perf-{}.map", process.own_pid);
    let opened = files.open_public(&Root::Process(process.pid), &path).map_err(|error| match error {
        RootError::NoProcess(_) | RootError::Absent { .. } => Reason::MapMissing,
        RootError::ProcessForbidden { .. } | RootError::FileForbidden { .. } => Reason::MapForbidden,
        _ => Reason::MapUnreadable,
    })?;
    match is_of_process(files, process.pid, &opened) {
        Ok(true) => Ok(opened),
        Ok(false) => Err(Reason::MapForbidden),
        Err(_) => Err(Reason::MapUnreadable),
    }
}

/// Returns the jitdump file of a process, which it has mapped so that `perf` finds it.
fn dump_of(id: ProcessId, process: &Process, code: &Code) -> Option<Arc<Opened>> {
    let name = format!("jit-{}.dump", process.own_pid);
    let mut modules = code.modules.iter().filter(|module| module.process == id);
    modules.find_map(|module| {
        let path = module.path.strip_suffix(" (deleted)").unwrap_or(&module.path);
        let is_dump = path.rsplit('/').next() == Some(&*name);
        module.file.as_ref().ok().filter(|_| is_dump).cloned()
    })
}
