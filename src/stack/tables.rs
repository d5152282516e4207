//! What files say about unwinding their functions: read once, kept for all processes that run them, within a limit.
//!
//! Small files are read when they are needed first. What takes longer is read by a thread of its own, so that no ring
//! runs over meanwhile, and until then its functions are unwound by frame pointers.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use framehop::Unwinder as _;

use super::account::{Accounts, Loss};
use super::elf::{Code, Elf, FrameSection};
use super::library::Library;
use super::unwind::Native;
use super::{ModuleId, cfi};
use crate::probe::root::Opened;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableLimits {
    /// For all files together, in bytes.
    pub(super) bytes: u64,
    /// For one file, in bytes.
    pub(super) file_bytes: u64,
    /// Up to how many bytes a file is read when it is needed first.
    pub(super) at_once: u64,
}

/// For how many samples a file must not have been used to make room for another one: else two that do not fit beside
/// each other would be read anew for each sample.
pub(super) const IDLE: u64 = 4096;
/// The largest `.debug_frame` that is read where there is nothing better, in bytes.
const DEBUG_FRAME_LIMIT: u64 = 16 << 20;
/// What the unwinder keeps to look a function up, in bytes.
const INDEX_ENTRY: u64 = 8;

/// So many bits of an address are a place in one file. Files are never as large: the unwinder counts in 32 bits.
const ROOM: u32 = 32;

/// What is known about the functions of files.
pub(super) struct Tables {
    limits: TableLimits,
    /// By [`ModuleId`].
    files: Vec<Option<Table>>,
    bytes: u64,
    /// Counts samples.
    now: u64,
    /// Counts files that were read.
    numbers: u64,
    aside: Option<Aside>,
}

/// What there is about one file.
struct Table {
    state: State,
    /// The sample that needed it last.
    used: u64,
}

enum State {
    Loaded(Box<Loaded>),
    /// It is being read, under this number.
    Reading(u64),
    /// There was no room for so many bytes.
    Waits(u64),
    /// There is nothing to be had.
    Nothing,
}

/// The tables of one file.
pub(super) struct Loaded {
    pub(super) unwinder: Native,
    /// Where the unwinder believes it to be.
    base: u64,
    /// The address in the file's own headers that stands there.
    first: u64,
    code: Vec<Code>,
    bytes: u64,
}

impl Loaded {
    /// Where the unwinder believes a place of the file to be.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let address = self.code.iter().find_map(|code| {
            let into = offset.checked_sub(code.offset).filter(|&into| into < code.size)?;
            code.address.checked_add(into)
        })?;
        let into = address.checked_sub(self.first).filter(|into| into >> ROOM == 0)?;
        Some(self.base + into)
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Tables {
    pub(super) fn new(limits: TableLimits) -> Self {
        Self { limits, files: Vec::new(), bytes: 0, now: 0, numbers: 0, aside: None }
    }

    /// Keeps at most so many bytes from now on.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        if bytes != self.limits.bytes {
            self.limits.bytes = bytes;
            self.make_room(0);
        }
    }

    /// How many bytes are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Another sample: takes in what was read aside.
    pub(super) fn tick(&mut self, accounts: &mut Accounts) {
        self.now += 1;
        while let Some((module, number, answer)) = self.aside.as_ref().and_then(Aside::answer) {
            let place = module.0 as usize;
            let wanted = |table: &Table| matches!(table.state, State::Reading(wanted) if wanted == number);
            // The file may have been forgotten meanwhile, and its number given to another one.
            if self.files.get(place).and_then(Option::as_ref).is_some_and(wanted) {
                let state = self.keep(answer, accounts);
                self.files[place] = Some(Table { state, used: self.now });
            }
        }
    }

    /// Forgets what is known about a file, whose number will be another one's.
    pub(super) fn forget(&mut self, module: ModuleId) {
        if let Some(table) = self.files.get_mut(module.0 as usize).and_then(Option::take)
            && let State::Loaded(loaded) = table.state
        {
            self.bytes -= loaded.bytes;
        }
    }

    /// What is known about a file if it was asked for before.
    pub(super) fn loaded(&self, module: ModuleId) -> Option<&Loaded> {
        match &self.files.get(module.0 as usize)?.as_ref()?.state {
            State::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    /// What is known about a file, which is read if need be.
    pub(super) fn table(
        &mut self,
        module: ModuleId,
        seen: impl FnOnce() -> (u32, u64, u64),
        library: &mut Library,
        accounts: &mut Accounts,
    ) -> Option<&Loaded> {
        let place = module.0 as usize;
        if self.files.len() <= place {
            self.files.resize_with(place + 1, || None);
        }
        let waits = match &self.files[place] {
            None => Some(0),
            Some(Table { state: State::Waits(bytes), .. }) => Some(*bytes),
            Some(_) => None,
        };
        if let Some(bytes) = waits
            && self.make_room(bytes)
        {
            // Why it is not there was counted where it was opened. It may be there another time.
            let file = library.file(module, seen)?;
            let state = self.load(module, file, accounts);
            self.files[place] = Some(Table { state, used: 0 });
        }
        let table = self.files[place].as_mut()?;
        table.used = self.now;
        match &table.state {
            State::Loaded(loaded) => Some(loaded),
            _ => None,
        }
    }

    /// Makes room for so many bytes, by forgetting what was not used lately. Whether there is.
    fn make_room(&mut self, bytes: u64) -> bool {
        while self.bytes + bytes > self.limits.bytes {
            let loaded = |table: &Table| matches!(table.state, State::Loaded(_));
            let tables = self.files.iter().enumerate();
            let tables = tables
                .filter_map(|(place, table)| table.as_ref().filter(|&table| loaded(table)).zip(Some(place)));
            let Some((oldest, place)) = tables.min_by_key(|(table, _)| table.used) else { return false };
            if self.now - oldest.used < IDLE {
                return false;
            }
            self.forget(ModuleId(place as u32));
        }
        true
    }

    fn load(&mut self, module: ModuleId, file: Arc<Opened>, accounts: &mut Accounts) -> State {
        let (elf, frames) = match find(&file.file, self.limits) {
            Ok(found) => found,
            Err(loss) => {
                loss.into_iter().for_each(|loss| accounts.lose(loss));
                return State::Nothing;
            }
        };
        if !self.make_room(frames.size) {
            accounts.lose(Loss::UnwindLarge);
            return State::Waits(frames.size);
        }
        self.numbers += 1;
        let number = self.numbers;
        if frames.size > self.limits.at_once {
            let aside = match self.aside.take() {
                Some(aside) => Some(aside),
                None => Aside::start(self.limits.file_bytes),
            };
            if let Some(aside) = aside
                && aside.ask(module, number, &file)
            {
                self.aside = Some(aside);
                accounts.lose(Loss::UnwindLater);
                return State::Reading(number);
            }
        }
        self.keep(read(&elf, frames, number, self.limits.file_bytes), accounts)
    }

    fn keep(&mut self, read: Option<Loaded>, accounts: &mut Accounts) -> State {
        let Some(loaded) = read else {
            accounts.lose(Loss::UnwindBroken);
            return State::Nothing;
        };
        if !self.make_room(loaded.bytes) {
            accounts.lose(Loss::UnwindLarge);
            return State::Waits(loaded.bytes);
        }
        self.bytes += loaded.bytes;
        State::Loaded(Box::new(loaded))
    }
}

/// Where a file has its tables. Nothing but the headers is read.
fn find(file: &File, limits: TableLimits) -> Result<(Elf<'_>, FrameSection), Option<Loss>> {
    let elf = Elf::read(file).filter(Elf::is_native).ok_or(None)?;
    let frames = elf.frames().ok_or(Some(Loss::UnwindAbsent))?;
    let limit = if frames.debug { DEBUG_FRAME_LIMIT } else { u64::MAX };
    if frames.size > limits.file_bytes.min(limits.bytes).min(limit) {
        return Err(Some(Loss::UnwindLarge));
    }
    Ok((elf, frames))
}

/// Reads them, under a number that no other file has. `None` if they are damaged.
fn read(elf: &Elf<'_>, frames: FrameSection, number: u64, limit: u64) -> Option<Loaded> {
    let bytes = elf.bytes(frames.offset, frames.size, limit)?;
    let functions = cfi::check(&bytes, frames.address, frames.debug).ok()?;
    let code: Vec<Code> = elf.code().collect();
    let end = code.iter().map(|code| code.address.saturating_add(code.size)).max()?;
    // As most files are linked, addresses are small enough.
    let first = if end >> ROOM == 0 { 0 } else { code.iter().map(|code| code.address).min()? };
    if (end - first) >> ROOM != 0 {
        return None;
    }
    let base = number << ROOM;
    let size = frames.size + functions as u64 * INDEX_ENTRY;
    let mut sections = framehop::ExplicitModuleSectionInfo { base_svma: first, ..Default::default() };
    let bytes: Arc<[u8]> = bytes.into();
    if frames.debug {
        sections.debug_frame = Some(bytes);
    } else {
        sections.eh_frame = Some(bytes);
        sections.eh_frame_svma = Some(frames.address..frames.address.checked_add(frames.size)?);
    }
    let mut unwinder = Native::new();
    unwinder.add_module(framehop::Module::new(String::new(), base..base + (1 << ROOM), base, sections));
    Some(Loaded { unwinder, base, first, code, bytes: size })
}

type Asked = (ModuleId, u64, Arc<Opened>);
type Answer = (ModuleId, u64, Option<Loaded>);

/// The thread that reads what takes long. It ends when nobody asks any more.
struct Aside {
    asked: Sender<Asked>,
    answers: Receiver<Answer>,
}

impl Aside {
    /// `None` if there are no threads left.
    fn start(limit: u64) -> Option<Self> {
        let (asked, questions) = channel::<Asked>();
        let (given, answers) = channel();
        let answer = move || {
            for (module, number, file) in questions {
                // The headers were in order when it was asked for, and it may have been written to since.
                let limits = TableLimits { bytes: u64::MAX, file_bytes: limit, at_once: 0 };
                let found = find(&file.file, limits).ok();
                let loaded = found.and_then(|(elf, frames)| read(&elf, frames, number, limit));
                if given.send((module, number, loaded)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("unwind-tables".into()).spawn(answer).ok()?;
        Some(Self { asked, answers })
    }

    fn ask(&self, module: ModuleId, number: u64, file: &Arc<Opened>) -> bool {
        self.asked.send((module, number, Arc::clone(file))).is_ok()
    }

    fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}
