//! Recordings beside perf in the arm64 guest: `tests/vm/run.sh --arch arm64 --test guest`. They take minutes on an emulated machine. The same
//! tests run on x86-64 in the target `live`.

#![cfg(all(test, target_arch = "aarch64"))]

#[path = "../live/script.rs"]
mod script;
#[path = "../support/mod.rs"]
mod support;
