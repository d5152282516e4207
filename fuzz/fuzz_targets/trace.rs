//! Any hits of tracepoints, in any order, with anything that happens in between: every hit has one place.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_trace.rs"]
mod any_trace;
#[path = "../../tests/support/traced.rs"]
#[expect(dead_code, reason = "tests ask for more")]
mod traced;

fuzz_target!(|bytes: &[u8]| any_trace::holds(bytes));
