//! Dynamic probes: the user's [`Definition`], its location in a file or the kernel, and its definition in the kernel's syntax.
//!
//! ```text
//! location, arguments ──parse──► Definition ──resolve──► a line of kprobe_events or uprobe_events ──► a tracepoint
//!                                     │
//!                                     └─ no arguments ──► the kprobe or uprobe PMU
//! ```

pub mod argument;
pub mod binary;
pub mod btf;
pub mod debug_file;
pub mod definition;
pub mod install;
pub mod kallsyms;
mod packed;
pub mod tracefs;
pub mod usdt;

pub use crate::files::Root;
pub use definition::{At, Definition, Location, LocationError, ProbeKind, Request, Within};
