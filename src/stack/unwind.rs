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

use super::account::Accounts;
use super::library::Library;
use super::map::{Map, What};
use super::tables::{TableLimits, Tables};
use super::{Cut, ModuleId};
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

/// How far above the copy of the stack something is sought that would be there if the copy went on, in bytes. What is
/// farther away was never on this stack.
const BEYOND: u64 = 16 << 20;
/// Places whose rules are remembered are spread over so many memories.
const MEMORIES: usize = 32;
/// How many places each of them has.
const MEMORY_PLACES: u64 = 509;

#[cfg(target_arch = "aarch64")]
pub(super) type Native = framehop::aarch64::UnwinderAarch64<Arc<[u8]>>;
#[cfg(target_arch = "aarch64")]
type Memory = framehop::aarch64::CacheAarch64;
#[cfg(not(target_arch = "aarch64"))]
pub(super) type Native = framehop::x86_64::UnwinderX86_64<Arc<[u8]>>;
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

/// Follows stacks.
pub(super) struct Unwinder {
    tables: Tables,
    /// For what is in no file, or in one that says nothing: frame pointers.
    bare: Native,
    memories: Vec<Memory>,
    /// The most frames of a stack.
    depth: usize,
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder").field("tables", &self.tables).finish_non_exhaustive()
    }
}

/// Whose stack is unwound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) pid: u32,
    pub(super) map: &'a Map,
}

impl Unwinder {
    pub(super) fn new(limits: TableLimits, depth: usize) -> Self {
        let memories = (0..MEMORIES).map(|_| Memory::new()).collect();
        Self { tables: Tables::new(limits), bare: Native::new(), memories, depth }
    }

    /// Keeps at most so many bytes from now on.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.tables.set_limit(bytes);
    }

    /// How many bytes are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.bytes()
    }

    /// Forgets what is known about a file, whose number will be another one's.
    pub(super) fn forget(&mut self, module: ModuleId) {
        self.tables.forget(module);
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
        self.tables.tick(accounts);
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
            if frames.len() >= self.depth {
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
                let loaded = self.tables.table(module, seen, library, accounts)?;
                Some((module, loaded.address(offset)?))
            });
            let (unwinder, at) = match table {
                Some((module, at)) => match self.tables.loaded(module) {
                    Some(loaded) => (&loaded.unwinder, at),
                    None => (&self.bare, place),
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
