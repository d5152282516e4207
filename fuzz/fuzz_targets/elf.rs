//! Arbitrary bytes as a program with probes.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_elf.rs"]
mod any_elf;

fuzz_target!(|bytes: &[u8]| {
    any_elf::holds(bytes);
});
