//! Scheduler analysis: time on and off CPUs, run queue latency, and preemption.
//!
//! ```text
//! records, in time order ─► Event ─► Timeline ─► Told: Came, Ran, Went, Migrated ─► Sums
//! ```

mod event;
mod sums;
mod timeline;

pub use event::{Event, Layout, PrevState, RecordThread, WITHOUT_SLEEPS};
pub use sums::{Longest, Preemptor, SchedTotals, Sum, Sums};
pub use timeline::{Comm, SchedFact, SwitchIn, SwitchOut, Thread, Timeline, Untracked};
