//! Arbitrary bytes as the certificate of a client.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_certificate.rs"]
mod any_certificate;

fuzz_target!(|bytes: &[u8]| any_certificate::holds(bytes));
