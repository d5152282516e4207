//! Tests of features that ordinary build machines lack, above all hardware counters, by scrapes of the running service. `tests/vm/run.sh`
//! runs them in guests. On other machines, a test that needs a missing feature is skipped with a message.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod attribution;
mod beside;
mod foreign;
mod hierarchy_v1;
mod hotplug;
mod kernel_commands;
mod levels;
mod loops;
mod pmus;
mod probes;
mod profiles;
mod quiet;
mod sharing;
mod suspend;
mod threads;
mod users;
mod vendor_events;

use std::sync::{Mutex, MutexGuard, PoisonError};

use support::exposition::Exposition;
use support::{Feature, lacks};

/// Settings under which every scrape makes a collection, and no other collections happen.
const ALWAYS_FRESH: &str = "collection: {interval: 10m, freshness: 0s}\nhistory: {for: 0s}\n";

/// Locks the hardware counters for one test at a time: they are few, and some tests need all of them. Returns `None` if this machine lacks
/// `feature`.
fn counters_with(feature: Feature) -> Option<MutexGuard<'static, ()>> {
    (!lacks(feature)).then(alone)
}

/// Runs one test at a time: an emulated machine is slow and has few counters, and a test may take a CPU offline.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A failed test leaves no event open, because its service is killed.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the hardware counters for one test at a time, for tests of the stream. Returns `None` if this machine lacks `feature` or the
/// stream.
fn stream_with(feature: Feature) -> Option<MutexGuard<'static, ()>> {
    if lacks(Feature::Stream) { None } else { counters_with(feature) }
}

/// Returns the increase of a counter between two scrapes.
fn advance(before: &Exposition, after: &Exposition, name: &str, labels: &[(&str, &str)]) -> f64 {
    let value = |scrape: &Exposition| scrape.value(name, labels);
    value(after).unwrap_or_else(|| panic!("{name} {labels:?} is missing: {after:?}"))
        - value(before).unwrap_or(0.0)
}

/// Reports whether two counts differ by at most `tolerance`, a relative difference.
fn agree(one: f64, other: f64, tolerance: f64) -> bool {
    (one - other).abs() <= tolerance * one.max(other)
}
