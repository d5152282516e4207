//! Arbitrary files that are read as recordings of perf.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_perf_data.rs"]
mod any_perf_data;

fuzz_target!(|bytes: &[u8]| any_perf_data::holds(bytes));
