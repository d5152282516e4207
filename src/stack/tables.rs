//! Unwind rules for file offsets, looked up in the tables of the files themselves, within a byte limit.
//!
//! A function is looked up in `.eh_frame_hdr`, which linkers sort, by reading the few pages that the search touches. The table is untrusted
//! input. Its order is checked during the search. The resulting entry must cover the offset and is [checked](super::cfi) before it is
//! evaluated. The resulting rule is cached.
//!
//! Files without such a table are indexed by a dedicated thread. Until then their functions are unwound by frame pointers.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use super::ModuleId;
use super::account::Loss;
use super::cfi::{Cfi, Fault};
use super::elf::{Elf, FrameSection, LOADS_LIMIT, SearchTable, Segment};
use super::index::{Answered, Index, IndexThread, Indexed};
use super::pages::{Allowance, PAGE, PagedFile, Pages};
use super::rule::{Answer, NATIVE, Row, Rule, Rules, Step};
use crate::files::Opened;
use crate::host::ReadAt;

/// The number of samples for which a file must be unused before it may be evicted. Otherwise two files that do not fit together would be
/// read again for each sample.
pub(super) const IDLE: u64 = 4096;
/// The most bytes to read from files for one sample. Further reads are left to later samples.
const SAMPLE_ALLOWANCE: u64 = 1024 * PAGE as u64;

/// A location in a file that a process executes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) module: ModuleId,
    /// The offset in the file.
    pub(super) offset: u64,
    /// The process, and the start and end of its mapping of the file.
    pub(super) seen: (u32, u64, u64),
}

/// The files of modules, for unwinding.
pub(crate) trait ModuleFiles {
    /// Returns the file of a module. `seen` is the process, and the start and the end of its mapping of the file.
    fn file(&mut self, module: ModuleId, seen: (u32, u64, u64)) -> Option<Arc<Opened>>;

    /// Counts missing data.
    fn lose(&mut self, loss: Loss);
}

/// The rules of all files.
pub(super) struct Tables {
    limit: u64,
    /// By [`ModuleId`].
    files: Vec<Option<Known>>,
    /// The bytes of all [`Head`]s.
    kept: u64,
    /// The number of samples so far.
    now: u64,
    /// The number of files read so far.
    numbers: u32,
    pages: RefCell<Pages>,
    rules: Rules,
    cfi: Cfi,
    aside: Option<IndexThread>,
    allowance: Allowance,
    /// Whether data for this sample is not available yet.
    later: bool,
    /// Whether data for this sample does not fit into memory.
    large: bool,
}

/// The state of a file.
struct Known {
    state: State,
    /// The last sample that used it.
    used: u64,
}

enum State {
    Ready(Box<Head>),
    /// The file is being indexed, under this number.
    Requested(u32),
    /// There was no memory for this many bytes. Retried after this sample.
    Waits {
        bytes: u64,
        until: u64,
    },
    /// The file has no tables.
    Nothing,
}

/// The data that is needed to look up functions of a file.
pub(super) struct Head {
    /// A number that no other file has.
    pub(super) number: u32,
    pub(super) loads: Box<[Segment]>,
    pub(super) functions: Functions,
    /// Whether damaged entries were already counted.
    pub(super) broken: bool,
}

pub(super) enum Functions {
    Table(SearchTable),
    Index(Index),
}

/// The result of a search for the entry of a function.
enum Found {
    Entry(FrameSection, u64),
    /// No function begins before the location, or there is no code.
    Nothing,
    /// The table is not sorted.
    Odd,
}

impl Head {
    fn bytes(&self) -> u64 {
        let index = match &self.functions {
            Functions::Table(_) => 0,
            Functions::Index(index) => index.bytes(),
        };
        size_of::<Self>() as u64 + size_of_val(&*self.loads) as u64 + index
    }

    /// Returns the address of an offset, relative to the file according to its own headers.
    fn address(&self, offset: u64) -> Option<u64> {
        self.loads.iter().filter(|load| load.executable).find_map(|load| {
            let into = offset.checked_sub(load.offset).filter(|&into| into < load.size)?;
            load.address.checked_add(into)
        })
    }

    fn find(&self, file: &dyn ReadAt, address: u64) -> Result<Found, Fault> {
        match &self.functions {
            Functions::Index(index) => Ok(match index.find(address) {
                Some((section, at)) => Found::Entry(section, at),
                None => Found::Nothing,
            }),
            Functions::Table(table) => self.search(file, table, address),
        }
    }

    /// Searches a table of the file, in 32 steps at most.
    fn search(&self, file: &dyn ReadAt, table: &SearchTable, address: u64) -> Result<Found, Fault> {
        let Ok(wanted) = i32::try_from(address.wrapping_sub(table.address).cast_signed()) else {
            return Ok(Found::Nothing);
        };
        let (mut from, mut to, mut found) = (0, table.count, None);
        let mut bounds = i32::MIN..=i32::MAX;
        while from < to {
            let middle = from + (to - from) / 2;
            let mut entry = [0; 8];
            let offset = table.offset.checked_add(u64::from(middle) * 8).ok_or(Fault::Broken)?;
            file.read_exact_at(&mut entry, offset)?;
            let [a, b, c, d, e, f, g, h] = entry;
            let start = i32::from_le_bytes([a, b, c, d]);
            if !bounds.contains(&start) {
                return Ok(Found::Odd);
            }
            if start <= wanted {
                (from, found) = (middle + 1, Some(i32::from_le_bytes([e, f, g, h])));
                bounds = start..=*bounds.end();
            } else {
                to = middle;
                bounds = *bounds.start()..=start;
            }
        }
        let Some(distance) = found else { return Ok(Found::Nothing) };
        let entry = table.address.wrapping_add_signed(distance.into());
        let load = self.loads.iter().find(|load| load.within(entry).is_some());
        let &Segment { address, offset, size, .. } = load.ok_or(Fault::Broken)?;
        Ok(Found::Entry(FrameSection { address, offset, size, debug: false }, entry - address))
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Tables {
    /// Creates tables of at most `limit` bytes in total; about 100 KiB are used in any case.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            files: Vec::new(),
            kept: 0,
            now: 0,
            numbers: 0,
            pages: RefCell::new(Pages::new(limit / 4)),
            rules: Rules::new(limit / 4),
            cfi: Cfi::new(),
            aside: None,
            allowance: Allowance::new(SAMPLE_ALLOWANCE),
            later: false,
            large: false,
        }
    }

    /// Changes the limit and drops data above it: a quarter for pages, a quarter for rules, half for indexes.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.pages.get_mut().set_limit(limit / 4);
        self.rules.set_limit(limit / 4);
        while self.kept > limit / 2 && self.evict(0) {}
    }

    /// Drops pages and rules. They are read again when needed, which takes some microseconds a rule.
    pub(super) fn clear_caches(&mut self) {
        self.pages.get_mut().clear();
        self.rules.clear();
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        let files = (self.files.capacity() * size_of::<Option<Known>>()) as u64;
        self.kept + files + self.pages.borrow().bytes() + self.rules.bytes()
    }

    /// Begins a sample. Takes the results of the indexing thread.
    pub(super) fn begin(&mut self, files: &mut dyn ModuleFiles) {
        self.now += 1;
        self.allowance = Allowance::new(SAMPLE_ALLOWANCE);
        while let Some(answer) = self.aside.as_ref().and_then(IndexThread::answer) {
            self.take(answer, files);
        }
    }

    /// Ends a sample. Counts missing data. Returns whether data was missing that a later sample may have.
    pub(super) fn end(&mut self, files: &mut dyn ModuleFiles) -> bool {
        let later = std::mem::take(&mut self.later);
        if later {
            files.lose(Loss::UnwindLater);
        }
        if std::mem::take(&mut self.large) {
            files.lose(Loss::UnwindLarge);
        }
        later
    }

    /// Waits for the files that are being indexed.
    pub(super) fn settle(&mut self, files: &mut dyn ModuleFiles) {
        let is_requested = |known: &Option<Known>| {
            known.as_ref().is_some_and(|known| matches!(known.state, State::Requested(_)))
        };
        while self.files.iter().any(is_requested) {
            let Some(answer) = self.aside.as_ref().and_then(IndexThread::wait) else { return };
            self.take(answer, files);
        }
    }

    fn known(&self, module: ModuleId) -> Option<&Known> {
        self.files.get(module.0 as usize)?.as_ref()
    }

    /// Drops the state of a file. Its number will be reused.
    pub(super) fn forget(&mut self, module: ModuleId) {
        let known = self.files.get_mut(module.0 as usize).and_then(Option::take);
        if let Some(Known { state: State::Ready(head), .. }) = known {
            self.kept -= head.bytes();
        }
    }

    /// Finds the caller of a location, and sets the registers to those of the caller: with the tables of the file, otherwise by frame
    /// pointers. See [`Rule::apply`].
    #[inline]
    pub(super) fn step(
        &mut self,
        place: Option<&Place>,
        step: &mut Step<'_>,
        files: &mut dyn ModuleFiles,
    ) -> Answer {
        let Some(place) = place else { return Rule::FRAME_POINTER.apply(step) };
        let rule = self.rule(place, files);
        if rule == Rule::Computed {
            match self.row(place, files, |row| row.compute(step)) {
                Some(Ok(EntrySearch::Row(answer))) => return answer,
                Some(Err(Fault::Later)) => self.later = true,
                _ => {}
            }
        }
        rule.apply(step)
    }

    /// Reports whether the return address of a function is still in its register (arm64). Without a row for the location it is, as for
    /// libdw.
    pub(super) fn returns_in_register(&mut self, place: Option<&Place>, files: &mut dyn ModuleFiles) -> bool {
        let Some(place) = place.filter(|place| self.open(place, files).is_some()) else { return true };
        match self.row(place, files, |row| row.returns_in_register()) {
            Some(Ok(EntrySearch::Row(answer))) => answer,
            Some(Err(Fault::Later)) => {
                self.later = true;
                false
            }
            _ => true,
        }
    }

    #[inline]
    fn rule(&mut self, place: &Place, files: &mut dyn ModuleFiles) -> Rule {
        let Ok(offset) = u32::try_from(place.offset) else { return Rule::FRAME_POINTER };
        if let Some(Some(known)) = self.files.get_mut(place.module.0 as usize) {
            known.used = self.now;
            match &known.state {
                State::Nothing => return Rule::FRAME_POINTER,
                State::Ready(head) => {
                    if let Some(rule) = self.rules.get(head.number, offset) {
                        return rule;
                    }
                }
                State::Requested(_) | State::Waits { .. } => {}
            }
        }
        self.look_up(place, offset, files)
    }

    /// Looks up a rule that is not cached.
    #[cold]
    fn look_up(&mut self, place: &Place, offset: u32, files: &mut dyn ModuleFiles) -> Rule {
        let Some(number) = self.open(place, files) else { return Rule::FRAME_POINTER };
        let rule = match self.row(place, files, |row| row.rule(NATIVE)) {
            Some(Ok(EntrySearch::Row(rule))) => rule,
            Some(Ok(EntrySearch::Uncovered)) => Rule::Uncovered,
            Some(Ok(EntrySearch::Nothing)) => Rule::FRAME_POINTER,
            Some(Ok(EntrySearch::Odd)) => {
                self.ask(place, files);
                return Rule::FRAME_POINTER;
            }
            Some(Err(Fault::Later)) => {
                self.later = true;
                return Rule::FRAME_POINTER;
            }
            Some(Err(Fault::Broken)) => {
                self.count_broken(place.module, files);
                Rule::FRAME_POINTER
            }
            // The reason was counted when opening failed. A later attempt may succeed.
            None => return Rule::FRAME_POINTER,
        };
        self.rules.insert(number, offset, rule);
        rule
    }

    fn count_broken(&mut self, module: ModuleId, files: &mut dyn ModuleFiles) {
        if let Some(Some(Known { state: State::Ready(head), .. })) = self.files.get_mut(module.0 as usize)
            && !std::mem::replace(&mut head.broken, true)
        {
            files.lose(Loss::UnwindBroken);
        }
    }

    /// Searches a file for the row of a location. Returns `None` if the file is not open.
    fn row<T>(
        &mut self,
        place: &Place,
        files: &mut dyn ModuleFiles,
        answer: impl FnOnce(Row<'_>) -> T,
    ) -> Option<Result<EntrySearch<T>, Fault>> {
        let Some(State::Ready(head)) =
            self.files.get(place.module.0 as usize)?.as_ref().map(|known| &known.state)
        else {
            return None;
        };
        let Some(address) = head.address(place.offset) else { return Some(Ok(EntrySearch::Nothing)) };
        let opened = files.file(place.module, place.seen)?;
        let file = PagedFile::new(&opened.file, head.number, &self.pages, &self.allowance);
        let sought = head.find(&file, address).and_then(|found| {
            Ok(match found {
                Found::Entry(section, at) => match self.cfi.row((&file, &section, at), address, answer)? {
                    Some(answer) => EntrySearch::Row(answer),
                    None => EntrySearch::Uncovered,
                },
                Found::Nothing => EntrySearch::Nothing,
                Found::Odd => EntrySearch::Odd,
            })
        });
        Some(sought)
    }

    /// Reads the headers of a file if necessary. Returns its number if functions can be looked up in it.
    fn open(&mut self, place: &Place, files: &mut dyn ModuleFiles) -> Option<u32> {
        let waits = match self.known(place.module).map(|known| &known.state) {
            Some(State::Ready(head)) => return Some(head.number),
            Some(State::Requested(_)) => {
                self.later = true;
                return None;
            }
            Some(State::Nothing) => return None,
            Some(&State::Waits { bytes, until }) => Some((bytes, until)),
            None => None,
        };
        if waits.is_some_and(|(bytes, until)| until > self.now || !self.make_room(bytes)) {
            self.large = true;
            return None;
        }
        // The reason was counted when opening failed. A later attempt may succeed.
        let opened = files.file(place.module, place.seen)?;
        let number = self.next_number();
        let file = PagedFile::new(&opened.file, number, &self.pages, &self.allowance);
        let elf = Elf::read(&file).filter(Elf::is_native);
        let table = elf.as_ref().and_then(Elf::search_table);
        let loads: Option<Box<[Segment]>> = elf.map(|elf| elf.loads().take(LOADS_LIMIT + 1).collect());
        let state = match (loads, table) {
            (_, None) if self.allowance.is_exceeded() => {
                self.later = true;
                return None;
            }
            (None, _) => State::Nothing,
            (Some(loads), _) if loads.len() > LOADS_LIMIT => {
                files.lose(Loss::UnwindBroken);
                State::Nothing
            }
            (Some(loads), Some(table)) => {
                self.keep(Head { number, loads, functions: Functions::Table(table), broken: false })
            }
            (Some(_), None) => {
                self.ask(place, files);
                return None;
            }
        };
        let ready = matches!(state, State::Ready(_)).then_some(number);
        self.set(place.module, state);
        ready
    }

    fn next_number(&mut self) -> u32 {
        // 0 marks a free entry.
        self.numbers = self.numbers.wrapping_add(1).max(1);
        self.numbers
    }

    fn set(&mut self, module: ModuleId, state: State) {
        self.forget(module);
        let place = module.0 as usize;
        if self.files.len() <= place {
            self.files.resize_with(place + 1, || None);
        }
        if let State::Ready(head) = &state {
            self.kept += head.bytes();
        }
        self.files[place] = Some(Known { state, used: self.now });
    }

    /// Returns the state of a file whose functions can be looked up, if it fits into memory.
    fn keep(&mut self, head: Head) -> State {
        match self.make_room(head.bytes()) {
            true => State::Ready(Box::new(head)),
            false => self.wait(head.bytes()),
        }
    }

    fn wait(&mut self, bytes: u64) -> State {
        self.large = true;
        State::Waits { bytes, until: self.now + IDLE }
    }

    /// Queues a file to be indexed.
    fn ask(&mut self, place: &Place, files: &mut dyn ModuleFiles) {
        self.later = true;
        let Some(opened) = files.file(place.module, place.seen) else { return };
        let number = self.next_number();
        let aside = match self.aside.take() {
            Some(aside) => Some(aside),
            None => IndexThread::start(),
        };
        let state = match aside {
            Some(aside) if aside.ask(place.module, number, self.limit / 2, &opened) => {
                self.aside = Some(aside);
                State::Requested(number)
            }
            // The thread cannot be created.
            _ => State::Waits { bytes: 0, until: self.now + IDLE },
        };
        self.set(place.module, state);
    }

    /// Takes the result of indexing a file, if it is still requested.
    fn take(&mut self, (module, number, indexed): Answered, files: &mut dyn ModuleFiles) {
        let asked = |known: &Known| matches!(known.state, State::Requested(asked) if asked == number);
        if !self.known(module).is_some_and(asked) {
            return;
        }
        let state = match indexed {
            Indexed::Done(loads, index) => {
                self.keep(Head { number, loads, functions: Functions::Index(index), broken: false })
            }
            Indexed::Large(bytes) => self.wait(bytes),
            Indexed::Absent => {
                files.lose(Loss::UnwindAbsent);
                State::Nothing
            }
            Indexed::Broken => {
                files.lose(Loss::UnwindBroken);
                State::Nothing
            }
            Indexed::Later => return self.forget(module),
        };
        self.set(module, state);
    }

    /// Frees this many bytes by evicting idle files. Returns whether they are available.
    fn make_room(&mut self, bytes: u64) -> bool {
        let share = self.limit / 2;
        while self.kept.saturating_add(bytes) > share {
            if bytes > share || !self.evict(IDLE) {
                return false;
            }
        }
        true
    }

    /// Evicts the least recently used file, if it was unused for `idle` samples. Returns whether it did.
    fn evict(&mut self, idle: u64) -> bool {
        let ready = |known: &Known| matches!(known.state, State::Ready(_));
        let files = self.files.iter().zip(0..);
        let files = files
            .filter_map(|(known, place)| Some((known.as_ref().filter(|known| ready(known))?.used, place)));
        let Some((used, place)) = files.min() else { return false };
        if self.now - used < idle {
            return false;
        }
        self.forget(ModuleId(place));
        true
    }
}

/// The result of a search in a file.
enum EntrySearch<T> {
    Row(T),
    Uncovered,
    Nothing,
    Odd,
}

#[cfg(test)]
mod tests;
