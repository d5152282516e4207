//! Helpers for several tests of this module.

use std::thread;

use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

/// Runs `body` on a thread without any effective capability, like an unprivileged service.
pub(super) fn unprivileged<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let now = capabilities(None).unwrap();
            let none = CapabilitySets { effective: now.effective & !now.effective, ..now };
            set_capabilities(None, none).unwrap();
            body()
        });
        thread.join().unwrap()
    })
}
