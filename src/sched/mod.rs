//! Scheduler analysis: time on and off CPUs, run queue latency, and preemption.
//!
//! ```text
//! records, in time order ─► Event ─► Timeline ─► Told: Came, Ran, Went, Migrated ─► Sums
//! ```

mod event;
mod sums;
mod timeline;

pub use event::{Event, Layout, Left, NOT_TO_SLEEP, Party};
pub use sums::{By, Longest, Sum, Sums, Taken};
pub use timeline::{Came, Comm, Timeline, Told, Untracked, Went, Who};
