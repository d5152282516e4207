//! The past: what the machine, its cgroups and its programs did in the last hour.
//!
//! [`History`] observes each collection. The increments since the collection before it are spread over the steps between them: steps of one
//! second for five minutes, of ten seconds for the configured time. A value takes two bytes, and a run of 30 steps in which nothing
//! happened takes none. So a series that changes all the time takes 1.4 KiB for an hour, and one that never changes 0.3 KiB.
//!
//! The same increments are recorded by name for [`List`]s: by system call, by error, by the other cgroup. A list has only steps of ten
//! seconds, and only its most active names: the others are added up.
//!
//! Memory is bounded: first the lists of the least active cgroups and programs are dropped, then these themselves.

mod additional;
mod amounts;
mod figure;
mod grid;
mod hardware;
mod lists;
mod number;
mod quantity;
mod series;
mod store;
mod subject;
mod totals;
mod track;

use std::sync::Arc;

use crate::lock::Lock;

pub use additional::{Additional, COUNTERS_MAX, LATENCIES_MAX, Latency};
pub use figure::{Figure, Rate, Sources, Times};
pub use grid::{Grid, Window};
pub use lists::{List, Listed, OTHER};
pub use quantity::Scope;
pub use store::{History, Observed};
pub use subject::Subject;
pub use totals::totals;

/// A history that one thread records and others read; without one, if none is kept. Clones refer to the same history.
#[derive(Debug, Clone, Default)]
pub struct SharedHistory(Arc<Lock<Option<History>>>);

impl SharedHistory {
    /// Begins a new history, or none.
    pub fn replace(&self, history: Option<History>) {
        *self.0.lock() = history;
    }

    /// Calls `change` with the history, if one is kept.
    pub fn change<T>(&self, change: impl FnOnce(&mut History) -> T) -> Option<T> {
        self.0.lock().as_mut().map(change)
    }

    /// Calls `read` with the history, if one is kept.
    pub fn read<T>(&self, read: impl FnOnce(&History) -> T) -> Option<T> {
        self.0.lock().as_ref().map(read)
    }
}
