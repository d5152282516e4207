//! Any text as an argument of a probe, as the arguments of a marker, and as the place of a probe.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_argument.rs"]
mod any_argument;

fuzz_target!(|bytes: &[u8]| any_argument::holds(bytes));
