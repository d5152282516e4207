//! Arbitrary responses of container runtimes, kubelets and API servers.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/support/any_metadata.rs"]
mod any_metadata;

fuzz_target!(|bytes: &[u8]| any_metadata::holds(bytes));
