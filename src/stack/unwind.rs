//! Unwinding by what compilers write about each function (DWARF call frame information), from the registers and the piece
//! of the stack that a sample carries.
//!
//! What is found out about a file serves all processes that run it: a frame is looked up by its place in the file, not by
//! its address.

use std::fmt;

use super::account::Accounts;
use super::library::Library;
use super::map::{Map, What};
use super::tables::{Place, Tables};
use super::{Cut, ModuleId};
use crate::ring::UserStack;

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
/// Follows stacks.
pub(super) struct Unwinder {
    tables: Tables,
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
    /// One that keeps at most `bytes` of what files say about unwinding; some 100 KiB in any case.
    pub(super) fn new(bytes: u64, depth: usize) -> Self {
        Self { tables: Tables::new(bytes), depth }
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.bytes()
    }

    /// Changes how many bytes are kept, and forgets what is above the limit.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.tables.set_limit(bytes);
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
        self.tables.begin(accounts);
        let cut = self.follow(user, subject, library, accounts, frames);
        self.tables.end(accounts);
        cut
    }

    fn follow(
        &mut self,
        user: &UserStack<'_>,
        subject: Subject<'_>,
        library: &mut Library,
        accounts: &mut Accounts,
        frames: &mut Vec<u64>,
    ) -> Option<Cut> {
        let copy = Copy { at: user.registers.sp, bytes: user.bytes, full: user.full };
        let mut registers = user.registers;
        frames.push(registers.ip);
        loop {
            let &address = frames.last()?;
            let first = frames.len() == 1;
            // Of a call the last byte of the instruction.
            let at = if first { address } else { address.saturating_sub(1) };
            let mapping = subject.map.find(at);
            if mapping.is_none() && !first {
                // What was taken for a return address is none.
                frames.pop();
                return Some(Cut::Unwound);
            }
            if frames.len() >= self.depth {
                return Some(Cut::Deep);
            }
            let place = mapping.and_then(|mapping| match mapping.what {
                What::File { module, offset } => Some(Place {
                    module,
                    offset: offset.wrapping_add(at - mapping.start),
                    seen: (subject.pid, mapping.start, mapping.end),
                }),
                What::Memory => None,
            });
            let mut missed = None;
            let mut read = |address| {
                copy.read(address).or_else(|| {
                    missed = Some(address);
                    None
                })
            };
            let about = (&mut *library, &mut *accounts);
            let answer = self.tables.step(place.as_ref(), first, &mut registers, &mut read, about);
            let missed = missed.filter(|&address| address >= copy.at || answer.is_err());
            match (answer, missed) {
                // What could not be read was guessed.
                (_, Some(address)) => return Some(copy.cut(address)),
                (Ok(None | Some(0)), None) => return None,
                (Ok(Some(caller)), None) => frames.push(caller),
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
