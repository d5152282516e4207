//! Files in the format of perf (`perf.data`), written while events are recorded.
//!
//! ```text
//! records of the rings, merged by time ─┐
//! Existing: what existed before ────────┴► Writer ─► file: header, events, records, features
//!                                            └─► BuildIds: a thread that reads the build ids of mapped files
//! ```
//!
//! A reader can open the file at any time: after each group of records, the writer puts the features behind them and updates the header.
//! So the file of a recording that was killed is complete up to that time.

mod build_ids;
mod compressed;
pub(crate) mod constants;
pub(crate) mod counts;
mod existing;
mod features;
mod format;
mod sections;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use build_ids::BuildIds;
pub(crate) use existing::{Existing, ExistingProcesses, module_names};
pub(crate) use features::{Features, Machine};
pub(crate) use format::{EventSection, FINISHED_ROUND};
pub(crate) use writer::Writer;
