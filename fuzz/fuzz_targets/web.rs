//! Arbitrary text as a configuration file and as a web configuration file.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_web.rs"]
mod any_web;

fuzz_target!(|bytes: &[u8]| any_web::holds(bytes));
