//! Arbitrary stacks of a program with an arbitrary unwind table.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_stack.rs"]
mod any_stack;
#[path = "../../tests/support/machine.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod machine;

fuzz_target!(|bytes: &[u8]| {
    any_stack::holds(bytes);
});
