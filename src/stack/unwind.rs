//! Unwinding with call frame information that compilers write (DWARF CFI), from the registers and the copied stack memory of a sample.
//!
//! Results for a file serve all processes that execute it: a frame is looked up by its file offset, not by its address.

use super::ModuleFiles;
use super::Truncation;
use super::map::{Map, MappedContent, Mapping};
use super::rule::{NATIVE, Step};
use super::tables::{Place, Tables};
use crate::ring::UserStack;

/// The method to unwind user stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Unwind {
    /// By frame pointers, in the kernel: low overhead, but omits callers of functions compiled without frame pointers.
    FramePointers,
    /// By call frame information, up to the end of the copied stack memory.
    Dwarf,
    /// By call frame information if a sample has a copy of the stack, continued by frame pointers.
    #[default]
    Auto,
}

/// The distance above the copy within which a missing word is attributed to the limited copy, in bytes. A more distant address was never on
/// this stack.
const BEYOND: u64 = 16 << 20;

/// A stack to unwind.
pub(super) struct Subject<'a> {
    /// The process and its mappings.
    pub(super) pid: u32,
    pub(super) map: &'a Map,
    pub(super) user: &'a UserStack<'a>,
    /// The most frames.
    pub(super) depth: usize,
}

impl Subject<'_> {
    /// Appends the addresses of a stack to `frames`, innermost first: the address of an instruction, then return addresses. Returns why the
    /// stack is truncated, if it is.
    pub(super) fn walk(
        &self,
        tables: &mut Tables,
        files: &mut dyn ModuleFiles,
        frames: &mut Vec<u64>,
    ) -> Option<Truncation> {
        tables.begin(files);
        let cut = self.follow(tables, files, frames);
        tables.end(files);
        cut
    }

    fn follow(
        &self,
        tables: &mut Tables,
        files: &mut dyn ModuleFiles,
        frames: &mut Vec<u64>,
    ) -> Option<Truncation> {
        let mut registers = self.user.registers;
        frames.push(registers.ip);
        loop {
            let &address = frames.last()?;
            let first = frames.len() == 1;
            // For a call, the last byte of the call instruction.
            let at = if first { address } else { address.saturating_sub(1) };
            let mapping = self.map.find(at);
            if mapping.is_none() && !first {
                // The supposed return address is not one.
                frames.pop();
                return Some(Truncation::Unwound);
            }
            if frames.len() >= self.depth {
                return Some(Truncation::Deep);
            }
            let place = mapping.and_then(|mapping| place(self.pid, mapping, at));
            let mut missed = None;
            let mut read = |address| {
                self.read(address).or_else(|| {
                    missed = Some(address);
                    None
                })
            };
            let mut step = Step { machine: NATIVE, first, registers: &mut registers, read: &mut read };
            let answer = tables.step(place.as_ref(), &mut step, files);
            let missed = missed.filter(|&address| address >= self.user.registers.sp || answer.is_err());
            match (answer, missed) {
                // After a failed read, the result is a guess.
                (_, Some(address)) => return Some(self.cut(address)),
                (Ok(None | Some(0)), None) => return None,
                (Ok(Some(caller)), None) => frames.push(caller),
                (Err(_), None) => return Some(Truncation::Unwound),
            }
        }
    }

    /// Reads a word of the copied stack memory.
    fn read(&self, address: u64) -> Option<u64> {
        let from = usize::try_from(address.checked_sub(self.user.registers.sp)?).ok()?;
        let word = self.user.bytes.get(from..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    /// Returns why a word cannot be read: because the copy ends before it, or because the address was never on the stack.
    fn cut(&self, address: u64) -> Truncation {
        let above = address.wrapping_sub(self.user.registers.sp);
        match above.checked_sub(self.user.bytes.len() as u64 & !7) {
            Some(beyond) if self.user.full && beyond < BEYOND => Truncation::Copy,
            _ => Truncation::Unwound,
        }
    }
}

/// Returns the location of an address of a mapping; `None` in memory without a file.
fn place(pid: u32, mapping: Mapping, address: u64) -> Option<Place> {
    match mapping.content {
        MappedContent::File { module, offset } => Some(Place {
            module,
            offset: offset.wrapping_add(address - mapping.start),
            seen: (pid, mapping.start, mapping.end),
        }),
        MappedContent::Memory => None,
    }
}

/// Unwinds stacks after the fact. Unlike the [`Analyzer`](super::Analyzer), it waits for files that are being indexed.
#[derive(Debug)]
pub(crate) struct Unwinder(Tables);

impl Unwinder {
    /// Number of attempts to unwind a stack. An attempt may end early, because it has read enough from files, or a file is being indexed.
    const ATTEMPTS: usize = 4;

    /// Creates an unwinder with tables of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self(Tables::new(limit))
    }

    /// Returns the addresses of a stack of a process with these mappings, innermost first: at most `depth`.
    pub(crate) fn walk(
        &mut self,
        (pid, map): (u32, &Map),
        user: &UserStack<'_>,
        depth: usize,
        files: &mut dyn ModuleFiles,
    ) -> Vec<u64> {
        let subject = Subject { pid, map, user, depth };
        self.with_tables(files, |tables, files| {
            let mut frames = Vec::new();
            subject.follow(tables, files, &mut frames);
            frames
        })
    }

    /// Reports whether the return address of the function at `address` is still in its register (arm64). Without unwind information it is.
    pub(crate) fn returns_in_register(
        &mut self,
        (pid, map): (u32, &Map),
        address: u64,
        files: &mut dyn ModuleFiles,
    ) -> bool {
        let place = map.find(address).and_then(|mapping| place(pid, mapping, address));
        self.with_tables(files, |tables, files| tables.returns_in_register(place.as_ref(), files))
    }

    /// Repeats an attempt until all data was available.
    fn with_tables<T>(
        &mut self,
        files: &mut dyn ModuleFiles,
        attempt: impl Fn(&mut Tables, &mut dyn ModuleFiles) -> T,
    ) -> T {
        let tables = &mut self.0;
        let mut attempts = 1;
        loop {
            tables.begin(files);
            let result = attempt(tables, files);
            if !tables.end(files) || attempts >= Self::ATTEMPTS {
                return result;
            }
            tables.settle(files);
            attempts += 1;
        }
    }
}

#[cfg(test)]
mod tests;
