//! Call stacks in the kernel and in programs.
//!
//! ```text
//! Record ─► Spaces: the mappings of each process ────────┐
//! Sample ─► chain (frame pointers), unwind (DWARF) ─────┴► Frame ─► Stacks: each one once, by a number
//! ```
//!
//! Frames are stored as file offsets, not as addresses of a process. They are the same in every process that executes the file, and stay
//! valid after it has exited.

mod account;
mod analyzer;
mod cfi;
mod chain;
mod code;
mod elf;
mod frame;
mod index;
mod library;
mod limits;
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
pub use analyzer::{AnalyzedSample, Analyzer, Retained};
pub(crate) use chain::Chain;
pub use code::{BuildId, Code, Module, ModuleId, Process, ProcessId};
pub(crate) use elf::{go_build_id, kernel_build_id};
pub use frame::{Frame, Truncation};
pub(crate) use library::mapped_build_id;
pub use limits::Limits;
pub(crate) use map::{Map, MappedContent, Mapping};
pub(crate) use space::{MappingKinds, mappings};
pub use stacks::{Remap, StackId, StackLimits, Stacks};
pub(crate) use tables::ModuleFiles;
pub use unwind::Unwind;
pub(crate) use unwind::Unwinder;
pub(crate) use vdso::vdso;
