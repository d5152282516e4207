//! Unwinding by what compilers write about each function (DWARF call frame information), from the registers and the piece
//! of the stack that a sample carries.
//!
//! What is found out about a file serves all processes that run it: a frame is looked up by its place in the file, not by
//! its address.

use super::Cut;
use super::library::Library;
use super::map::{Map, What};
use super::rule::{NATIVE, Step};
use super::tables::{Place, Tables};
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

/// A stack to unwind.
pub(super) struct Subject<'a> {
    /// Whose it is, and what that process has mapped.
    pub(super) pid: u32,
    pub(super) map: &'a Map,
    pub(super) user: &'a UserStack<'a>,
    /// The most frames.
    pub(super) depth: usize,
}

impl Subject<'_> {
    /// Puts the addresses of a stack into `frames`, innermost first: that of an instruction, then return addresses. Why
    /// it ended before the stack did, if so.
    pub(super) fn walk(
        &self,
        tables: &mut Tables,
        library: &mut Library,
        frames: &mut Vec<u64>,
    ) -> Option<Cut> {
        tables.begin(library);
        let cut = self.follow(tables, library, frames);
        tables.end(library);
        cut
    }

    fn follow(&self, tables: &mut Tables, library: &mut Library, frames: &mut Vec<u64>) -> Option<Cut> {
        let mut registers = self.user.registers;
        frames.push(registers.ip);
        loop {
            let &address = frames.last()?;
            let first = frames.len() == 1;
            // Of a call the last byte of the instruction.
            let at = if first { address } else { address.saturating_sub(1) };
            let mapping = self.map.find(at);
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
                    seen: (self.pid, mapping.start, mapping.end),
                }),
                What::Memory => None,
            });
            let mut missed = None;
            let mut read = |address| {
                self.read(address).or_else(|| {
                    missed = Some(address);
                    None
                })
            };
            let mut step = Step { machine: NATIVE, first, registers: &mut registers, read: &mut read };
            let answer = tables.step(place.as_ref(), &mut step, library);
            let missed = missed.filter(|&address| address >= self.user.registers.sp || answer.is_err());
            match (answer, missed) {
                // What could not be read was guessed.
                (_, Some(address)) => return Some(self.cut(address)),
                (Ok(None | Some(0)), None) => return None,
                (Ok(Some(caller)), None) => frames.push(caller),
                (Err(_), None) => return Some(Cut::Unwound),
            }
        }
    }

    /// A word of the piece of the stack that the sample carries.
    fn read(&self, address: u64) -> Option<u64> {
        let from = usize::try_from(address.checked_sub(self.user.registers.sp)?).ok()?;
        let word = self.user.bytes.get(from..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    /// Why nothing can be read there: because the copy ends before, or because the stack was never there.
    fn cut(&self, address: u64) -> Cut {
        let above = address.wrapping_sub(self.user.registers.sp);
        match above.checked_sub(self.user.bytes.len() as u64 & !7) {
            Some(beyond) if self.user.full && beyond < BEYOND => Cut::Copy,
            _ => Cut::Unwound,
        }
    }
}

#[cfg(test)]
mod tests;
