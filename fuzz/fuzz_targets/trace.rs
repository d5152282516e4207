//! Arbitrary tracepoint hits, in any order, with other operations in between: each hit is accounted exactly once.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_trace.rs"]
mod any_trace;
#[path = "../../tests/support/traced.rs"]
#[expect(dead_code, reason = "tests use more")]
mod traced;

fuzz_target!(|bytes: &[u8]| any_trace::holds(bytes));
