//! Arbitrary files that are uploaded as profiles: pprof and folded stacks.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_recording.rs"]
mod any_recording;

fuzz_target!(|bytes: &[u8]| any_recording::holds(bytes));
