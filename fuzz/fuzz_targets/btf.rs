//! Arbitrary bytes as the BTF of a kernel.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_btf.rs"]
mod any_btf;

fuzz_target!(|bytes: &[u8]| any_btf::holds(bytes));
