//! Any stack of a program that says anything about how to unwind it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_stack.rs"]
mod any_stack;
#[path = "../../tests/support/machine.rs"]
#[expect(dead_code, reason = "other targets ask for the rest")]
mod machine;

fuzz_target!(|bytes: &[u8]| {
    any_stack::holds(bytes);
});
