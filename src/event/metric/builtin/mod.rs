//! The built-in metrics.
//!
//! Formulas are those of the vendors' documents. Each table names them. The counters of a formula are facts of the kernel's event files
//! (`tools/perf/pmu-events`), and a test resolves all of them on all models.

mod core;
mod general;
mod pipeline;
mod uncore;

use super::definition::Definition;

/// Returns all built-in metrics.
pub(super) fn all() -> impl Iterator<Item = &'static Definition> + Clone {
    let tables = [general::METRICS, core::METRICS, pipeline::LEVEL_1, pipeline::LEVEL_2, uncore::METRICS];
    tables.into_iter().flatten()
}
