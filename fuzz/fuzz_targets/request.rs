//! Arbitrary headers and queries of requests.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_request.rs"]
mod any_request;

fuzz_target!(|bytes: &[u8]| any_request::holds(bytes));
