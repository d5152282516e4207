//! Rings: how large they are ([`RingBudget`]), who empties them ([`Reader`]), and what stands in them ([`Record`]).

mod reader;
mod record;
mod size;
#[cfg(test)]
pub(crate) mod testing;

pub use reader::Reader;
pub use record::{Cgroup, Comm, Group, Malformed, Record, Sample, Task};
pub use size::RingBudget;
