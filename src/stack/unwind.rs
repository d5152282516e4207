//! Unwinding by what compilers write about each function (DWARF call frame information), from the registers and the piece
//! of the stack that a sample carries.
//!
//! What there is about a file is read once and serves all processes that run it: a frame is looked up by its place in the
//! file, not by its address. For that, each file is given to the unwinder as if it were loaded at an address of its own.
//! `.eh_frame_hdr`, an index to look functions up in, is not read: a false one could lead around what was
//! [checked](super::cfi). The unwinder makes an index itself, of about the same size.

use std::fmt;
use std::sync::Arc;

use framehop::{FrameAddress, Unwinder as _};

use super::account::{Accounts, Loss};
use super::elf::{Code, Elf, FrameSection};
use super::library::Library;
use super::map::{Map, What};
use super::{Cut, ModuleId, cfi};
use crate::probe::root::Opened;
use crate::ring::UserStack;
use crate::sys::Registers;

/// How to find out who called whom in programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Unwind {
    /// By frame pointers, as the kernel does it: costs little, and leaves out the callers of what was compiled without.
    FramePointers,
    /// By call frame information, from the copy of the stack: as far as that reaches.
    Dwarf,
    /// By call frame information where a sample has a copy of the stack, and on from there by frame pointers.
    #[default]
    Auto,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnwindLimits {
    /// For all files together, in bytes.
    pub(super) bytes: u64,
    /// For one file, in bytes.
    pub(super) file_bytes: u64,
    /// Frames of a stack.
    pub(super) depth: usize,
}

/// How far above the copy of the stack something is sought that would be there if the copy went on, in bytes. What is
/// farther away was never on this stack.
const BEYOND: u64 = 16 << 20;
/// For how many samples a file must not have been used to make room for another one: else two that do not fit beside
/// each other would be read anew for each sample.
const IDLE: u64 = 4096;
/// The largest `.debug_frame` that is read where there is nothing better, in bytes.
const DEBUG_FRAME_LIMIT: u64 = 16 << 20;
/// What the unwinder keeps to look a function up, in bytes.
const INDEX_ENTRY: u64 = 8;
/// Places whose rules are remembered are spread over so many memories.
const MEMORIES: usize = 32;
/// How many places each of them has.
const MEMORY_PLACES: u64 = 509;

/// So many bits of an address are a place in one file. Files are never as large: the unwinder counts in 32 bits.
const ROOM: u32 = 32;

#[cfg(target_arch = "aarch64")]
type Native = framehop::aarch64::UnwinderAarch64<Arc<[u8]>>;
#[cfg(target_arch = "aarch64")]
type Memory = framehop::aarch64::CacheAarch64;
#[cfg(not(target_arch = "aarch64"))]
type Native = framehop::x86_64::UnwinderX86_64<Arc<[u8]>>;
#[cfg(not(target_arch = "aarch64"))]
type Memory = framehop::x86_64::CacheX86_64;

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> framehop::aarch64::UnwindRegsAarch64 {
    // Return addresses may be signed, in the bits that no address of a program has.
    let mask = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    framehop::aarch64::UnwindRegsAarch64::new_with_ptr_auth_mask(
        mask,
        registers.lr,
        registers.sp,
        registers.fp,
    )
}

/// Other processors have no registers in samples.
#[cfg(not(target_arch = "aarch64"))]
fn native(registers: Registers) -> framehop::x86_64::UnwindRegsX86_64 {
    framehop::x86_64::UnwindRegsX86_64::new(registers.ip, registers.sp, registers.fp)
}

/// What is known about the functions of files.
pub(super) struct Unwinder {
    limits: UnwindLimits,
    /// By [`ModuleId`].
    files: Vec<Option<Table>>,
    /// For what is in no file, or in one that says nothing: frame pointers.
    bare: Native,
    memories: Vec<Memory>,
    bytes: u64,
    /// Counts samples.
    now: u64,
    /// Counts files that were read.
    loaded: u64,
}

/// What there is about one file.
struct Table {
    state: State,
    /// The sample that needed it last.
    used: u64,
}

enum State {
    Loaded(Box<Loaded>),
    /// There was no room for so many bytes.
    Waits(u64),
    /// There is nothing to be had.
    Nothing,
}

struct Loaded {
    unwinder: Native,
    /// Where the unwinder believes it to be.
    base: u64,
    /// The address in the file's own headers that stands there.
    first: u64,
    code: Vec<Code>,
    bytes: u64,
}

impl Loaded {
    /// Where the unwinder believes a place of the file to be.
    fn address(&self, offset: u64) -> Option<u64> {
        let address = self.code.iter().find_map(|code| {
            let into = offset.checked_sub(code.offset).filter(|&into| into < code.size)?;
            code.address.checked_add(into)
        })?;
        let into = address.checked_sub(self.first).filter(|into| into >> ROOM == 0)?;
        Some(self.base + into)
    }
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Whose stack is unwound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) pid: u32,
    pub(super) map: &'a Map,
}

impl Unwinder {
    pub(super) fn new(limits: UnwindLimits) -> Self {
        Self {
            limits,
            files: Vec::new(),
            bare: Native::new(),
            memories: (0..MEMORIES).map(|_| Memory::new()).collect(),
            bytes: 0,
            now: 0,
            loaded: 0,
        }
    }

    /// How many bytes are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets what is known about a file, whose number will be another one's.
    pub(super) fn forget(&mut self, module: ModuleId) {
        if let Some(table) = self.files.get_mut(module.0 as usize).and_then(Option::take)
            && let State::Loaded(loaded) = table.state
        {
            self.bytes -= loaded.bytes;
        }
    }

    /// Puts the addresses of a stack into `frames`, innermost first: that of an instruction, then return addresses. Why
    /// it ended before the stack did, if so.
    pub(super) fn walk(
        &mut self,
        user: &UserStack<'_>,
        subject: Subject<'_>,
        library: &mut Library,
        accounts: &mut Accounts,
        frames: &mut Vec<u64>,
    ) -> Option<Cut> {
        self.now += 1;
        let copy = Copy { at: user.registers.sp, bytes: user.bytes, full: user.full };
        let mut registers = native(user.registers);
        frames.push(user.registers.ip);
        loop {
            let &address = frames.last()?;
            let first = frames.len() == 1;
            // Of a call the last byte of the instruction.
            let place = if first { address } else { address.saturating_sub(1) };
            let mapping = subject.map.find(place);
            if mapping.is_none() && !first {
                // What was taken for a return address is none.
                frames.pop();
                return Some(Cut::Unwound);
            }
            if frames.len() >= self.limits.depth {
                return Some(Cut::Deep);
            }
            let within = mapping.and_then(|mapping| match mapping.what {
                What::File { module, offset } => {
                    Some((module, offset.wrapping_add(place - mapping.start), mapping))
                }
                What::Memory => None,
            });
            let table = within.and_then(|(module, offset, mapping)| {
                let seen = || (subject.pid, mapping.start, mapping.end);
                let loaded = self.table(module, seen, library, accounts)?;
                Some((module, loaded.address(offset)?))
            });
            let (unwinder, at) = match table {
                Some((module, at)) => match &self.files[module.0 as usize] {
                    Some(Table { state: State::Loaded(loaded), .. }) => (&loaded.unwinder, at),
                    _ => (&self.bare, place),
                },
                None => (&self.bare, place),
            };
            let memory = &mut self.memories[(at / MEMORY_PLACES) as usize % MEMORIES];
            let at = if first {
                FrameAddress::from_instruction_pointer(at)
            } else {
                FrameAddress::from_return_address(at.saturating_add(1))?
            };
            let mut missed = None;
            let mut read = |address| copy.read(address).ok_or_else(|| missed = Some(address));
            let answer = unwinder.unwind_frame(at, &mut registers, memory, &mut read);
            let missed = missed.filter(|&address| address >= copy.at || answer.is_err());
            match (answer, missed) {
                (Ok(_), Some(address)) => {
                    // It was guessed what could not be read, and the guess would be remembered.
                    *memory = Memory::new();
                    return Some(copy.cut(address));
                }
                (Ok(None | Some(0)), None) => return None,
                (Ok(Some(caller)), None) => frames.push(caller),
                (Err(_), Some(address)) => return Some(copy.cut(address)),
                (Err(_), None) => return Some(Cut::Unwound),
            }
        }
    }

    /// What is known about a file, which is read if need be.
    fn table(
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
            let state = self.load(&file, accounts);
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

    fn load(&mut self, file: &Opened, accounts: &mut Accounts) -> State {
        let Some(elf) = Elf::read(&file.file).filter(Elf::is_native) else { return State::Nothing };
        let Some(frames) = elf.frames() else {
            accounts.lose(Loss::UnwindAbsent);
            return State::Nothing;
        };
        let limit = if frames.debug { DEBUG_FRAME_LIMIT } else { u64::MAX };
        if frames.size > self.limits.file_bytes.min(self.limits.bytes).min(limit) {
            accounts.lose(Loss::UnwindLarge);
            return State::Nothing;
        }
        if !self.make_room(frames.size) {
            accounts.lose(Loss::UnwindLarge);
            return State::Waits(frames.size);
        }
        match self.read(&elf, frames) {
            Some(loaded) => {
                self.bytes += loaded.bytes;
                State::Loaded(Box::new(loaded))
            }
            None => {
                accounts.lose(Loss::UnwindBroken);
                State::Nothing
            }
        }
    }

    fn read(&mut self, elf: &Elf<'_>, frames: FrameSection) -> Option<Loaded> {
        let bytes = elf.bytes(frames.offset, frames.size, self.limits.file_bytes)?;
        let functions = cfi::check(&bytes, frames.address, frames.debug).ok()?;
        let code: Vec<Code> = elf.code().collect();
        let end = code.iter().map(|code| code.address.saturating_add(code.size)).max()?;
        // As most files are linked, addresses are small enough.
        let first = if end >> ROOM == 0 { 0 } else { code.iter().map(|code| code.address).min()? };
        if (end - first) >> ROOM != 0 {
            return None;
        }
        self.loaded += 1;
        let base = self.loaded << ROOM;
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
}

/// The piece of the stack that a sample carries.
struct Copy<'a> {
    at: u64,
    bytes: &'a [u8],
    full: bool,
}

impl Copy<'_> {
    fn read(&self, address: u64) -> Option<u64> {
        let from = usize::try_from(address.checked_sub(self.at)?).ok()?;
        let word = self.bytes.get(from..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    /// Why nothing can be read there: because the copy ends before, or because the stack was never there.
    fn cut(&self, address: u64) -> Cut {
        let beyond = address.wrapping_sub(self.at).checked_sub(self.bytes.len() as u64 & !7);
        match beyond {
            Some(beyond) if self.full && beyond < BEYOND => Cut::Copy,
            _ => Cut::Unwound,
        }
    }
}

#[cfg(test)]
mod tests;
