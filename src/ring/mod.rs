//! Ring buffers of perf events. `open` opens the events that write into them, and `RingSet` manages the rings of all CPUs. [`RingBudget`]
//! limits their size, [`Reader`] is the thread that empties them, and [`Record`] is a parsed record.

mod account;
mod id;
pub mod memory;
mod merge;
mod open;
mod reader;
mod record;
mod set;
mod size;
#[cfg(test)]
pub(crate) mod testing;
mod thread_switches;

pub(crate) use account::RingMetrics;
pub use account::{Losses, Records};
pub use id::RingId;
pub use merge::{Merger, is_sample, time_of};
pub(crate) use open::{Context, DUMMY, Refused, Request, RingWriters};
pub use reader::Reader;
pub use record::{
    Cgroup, Comm, Group, Ksymbol, Malformed, MappedFile, Mmap, Record, Sample, Task, UserStack,
};
pub(crate) use set::{Consumer, CreatedRing, RingSet, Usage, Writers};
pub use size::RingBudget;
pub(crate) use thread_switches::{ThreadSwitch, ThreadSwitchReceiver, ThreadSwitchSender};
