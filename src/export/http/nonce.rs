//! Nonces of scripts.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Returns a nonce that is unpredictable for the author of untrusted names. It is derived from the keys of the standard library's hash
/// tables, which come from the kernel's random number generator.
pub(super) fn nonce() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}
