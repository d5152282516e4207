//! Stacks: who called whom, in the kernel and in programs.
//!
//! ```text
//! Record ─► Spaces: what each process has mapped where ─┐
//! Sample ─► chain (frame pointers), unwind (DWARF) ─────┴► Frame ─► Stacks: each one once, by a number
//! ```
//!
//! Frames are kept as places in files, not as addresses of a process: they mean the same in every process that runs the
//! file, and still do when it has ended.

mod account;
mod analyzer;
mod cfi;
mod chain;
mod code;
mod elf;
mod frame;
mod index;
mod library;
mod map;
mod maps;
mod pages;
mod rule;
mod space;
mod stacks;
mod tables;
mod unwind;
mod vdso;

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use account::{Accounts, Loss};
pub use analyzer::{Analyzer, Limits, Retained, Taken};
pub use code::{BuildId, Code, Module, ModuleId, Process, ProcessId};
pub(crate) use elf::{go_build_id, kernel_build_id};
pub use frame::{Cut, Frame};
pub use stacks::{Remap, StackId, StackLimits, Stacks};
pub use unwind::Unwind;
pub(crate) use vdso::vdso;
