//! Arbitrary records in the rings of two CPUs: nothing panics, and every count is attributed once.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_stream.rs"]
mod any_stream;

fuzz_target!(|bytes: &[u8]| any_stream::holds(bytes));
