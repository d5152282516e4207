//! Scheduler analysis: time on and off CPUs, run queue latency, and preemption.
//!
//! ```text
//! records, in time order ─► Event ─► Timeline ─► SchedFact ─┬► Sums
//!                                                          └► RunLog ─► RecentRuns
//! ```

mod event;
mod runs;
mod sums;
mod timeline;
mod waits;

pub use event::{Event, Layout, PrevState, RecordThread, WITHOUT_SLEEPS};
pub use runs::{Chunk, RecentRuns, Run, RunLog};
pub use sums::{Longest, Preemptor, SchedTotals, Sum, Sums};
pub use timeline::{Comm, SchedFact, SwitchIn, SwitchOut, Thread, Timeline, Untracked};
pub use waits::{Examined, Meanwhile, Wait};
