//! Rings: how large they are ([`RingBudget`]), who empties them ([`Reader`]), and what stands in them ([`Record`]).

mod merge;
mod reader;
mod record;
pub mod room;
mod size;
#[cfg(test)]
pub(crate) mod testing;

pub use merge::{Merger, time_of};
pub use reader::Reader;
pub use record::{Cgroup, Comm, Group, Malformed, Record, Sample, Task};
pub use size::RingBudget;
