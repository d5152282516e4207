//! Processes, threads and cgroups by ID, with their names.
//!
//! ```text
//! ring::Record: fork, comm, exit ─┬► Processes: the tasks that counts are attributed to ─ each collection ─┐
//!                                 └► ThreadNames                                                           ▼
//! ring::Record: cgroup ────────────► CgroupPaths ─ each collection ─► TargetIndex ◄─ Watch (/proc)       labels
//! ```
//!
//! [`TargetIndex`] is the state of the host as of the last scans of `/proc` and the cgroup file system. There is one index, which all
//! publishers of series read. Each reader of records has its own [`Processes`] or [`ThreadNames`], because its records are read at other
//! times and in another [`Order`]: a sample gets the name as of the sample.
//!
//! All tables are bounded, because untrusted programs can create any number of processes, cgroups and names.

mod cgroups;
mod changes;
mod processes;
mod target_index;
mod threads;

#[cfg(test)]
mod tests;

pub use cgroups::CgroupPaths;
pub use processes::{KTHREADD, Order, Processes, Task};
pub use target_index::{ROOT, TargetIndex};
pub use threads::{ThreadNames, threads};
