//! Arbitrary bytes as a record of an event with arbitrary fields.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_record.rs"]
mod any_record;

fuzz_target!(|bytes: &[u8]| any_record::holds(bytes));
