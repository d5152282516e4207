//! The scheduler's decisions: who ran and for how long, who waited for a CPU, and for whom.
//!
//! ```text
//! records, in the order of their times ─► Event ─► Timeline ─► Told: Came, Ran, Went, Migrated ─► Sums
//! ```

mod event;
mod sums;
mod timeline;

pub use event::{Event, Layout, Left, NOT_TO_SLEEP, Party};
pub use sums::{By, Longest, Sum, Sums, Taken};
pub use timeline::{Came, Comm, Timeline, Told, Untold, Went, Who};
