//! Arbitrary text as the format of a tracepoint, with an arbitrary record and filter.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_format.rs"]
mod any_format;

fuzz_target!(|bytes: &[u8]| any_format::holds(bytes));
