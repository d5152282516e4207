//! Any bytes as the list of functions that a process keeps for perf.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_made.rs"]
#[expect(dead_code, reason = "other targets ask for the rest")]
mod any_made;
#[path = "../../tests/support/machine.rs"]
mod machine;

fuzz_target!(|bytes: &[u8]| {
    any_made::list_holds(bytes);
});
