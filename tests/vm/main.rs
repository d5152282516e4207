//! Tests of what an ordinary build machine lacks, above all hardware counters, read back from the running service.
//! `tests/vm/run.sh` runs them in the guests; elsewhere each says what it needs and is skipped, unless the machine has
//! it.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod attribution;
mod beside;
mod foreign;
mod hierarchy_v1;
mod hotplug;
mod loops;
mod pmus;
mod probes;
mod profiles;
mod sharing;
mod suspend;
mod threads;
mod users;

use std::sync::{Mutex, MutexGuard, PoisonError};

use support::exposition::Exposition;
use support::{Feature, lacks};

/// Every scrape reads anew, and nothing else does.
const ALWAYS_FRESH: &str = "collection: {interval: 10m, freshness: 0s}\n";

/// The hardware counters, for one test at a time: there are few, and some tests need them all. `None` if this machine
/// lacks `feature`.
fn counters_with(feature: Feature) -> Option<MutexGuard<'static, ()>> {
    (!lacks(feature)).then(alone)
}

/// Runs one test at a time: an emulated machine is slow and has few counters, and a test may take a CPU offline.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A test that failed leaves no event open: its service is killed.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hardware counters for one test at a time, and the stream. `None` if this machine lacks one of them.
fn stream_with(feature: Feature) -> Option<MutexGuard<'static, ()>> {
    if lacks(Feature::Stream) { None } else { counters_with(feature) }
}

/// How far a counter went between two scrapes.
fn advance(before: &Exposition, after: &Exposition, name: &str, labels: &[(&str, &str)]) -> f64 {
    let value = |scrape: &Exposition| scrape.value(name, labels);
    value(after).unwrap_or_else(|| panic!("{name} {labels:?} is not there: {after:?}"))
        - value(before).unwrap_or(0.0)
}

/// Whether two counts are the same to a part of `tolerance`.
fn agree(one: f64, other: f64, tolerance: f64) -> bool {
    (one - other).abs() <= tolerance * one.max(other)
}
