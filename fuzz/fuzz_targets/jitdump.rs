//! Arbitrary bytes as a jitdump of a process.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_made.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod any_made;
#[path = "../../tests/support/machine.rs"]
mod machine;

fuzz_target!(|bytes: &[u8]| {
    any_made::dump_holds(bytes);
});
