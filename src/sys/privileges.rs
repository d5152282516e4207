//! Privileges of this process.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Returns the capabilities that this thread may use.
///
/// # Errors
/// The kernel's error.
pub fn held() -> io::Result<CapabilitySet> {
    Ok(capabilities(None)?.permitted)
}

/// Gives up all capabilities that are not in `keep`. Returns the capabilities that were held and are not any more.
///
/// This holds for the calling thread, and for all threads and processes that it starts later. Executed programs cannot gain privileges: not
/// by a set-user-ID bit or file capabilities (`no_new_privs`), and not by being executed as user 0 (bounding set, if `CAP_SETPCAP` is
/// held). Call this before other threads are started.
///
/// # Errors
/// The kernel's error; a part may have been given up.
pub fn give_up_except(keep: CapabilitySet) -> io::Result<CapabilitySet> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        let others = (0..u64::BITS)
            .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
            .filter(|&one| !keep.contains(one));
        for one in others {
            match remove_capability_from_bounding_set(one) {
                // The kernel does not know this capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let left = CapabilitySets {
        effective: held.effective & keep,
        permitted: held.permitted & keep,
        inheritable: held.inheritable & keep,
    };
    set_capabilities(None, left)?;
    Ok(held.permitted - keep)
}
