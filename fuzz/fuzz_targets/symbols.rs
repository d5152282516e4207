//! Arbitrary bytes as a program whose functions are symbolized.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_symbols.rs"]
mod any_symbols;
#[path = "../../tests/support/machine.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod machine;

fuzz_target!(|bytes: &[u8]| {
    any_symbols::holds(bytes);
});
