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
pub use record::{
    Cgroup, Comm, Group, Ksymbol, Malformed, MappedFile, Mmap, Record, Sample, Task, UserStack,
};
pub use size::RingBudget;
