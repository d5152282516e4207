//! Arbitrary text as an argument of a probe, as the arguments of a USDT probe, and as a probe location.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_argument.rs"]
mod any_argument;

fuzz_target!(|bytes: &[u8]| any_argument::holds(bytes));
