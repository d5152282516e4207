//! Making a ring: as large as the kernel allows, and why there is none.

use super::RingBudget;
use crate::error::Errno;
use crate::health::{Cause, Judgement};
use crate::sys::Event;

/// Makes a ring for an event, of `wanted` pages or of the most that the kernel gives. Gives its pages too.
///
/// # Errors
/// The kernel's errno where it gives not even one page, or something else than room is missing.
pub fn make<E: Event>(event: &E, wanted: usize) -> Result<(E::Ring, usize), Errno> {
    let mut pages = wanted;
    loop {
        match event.map(pages) {
            Ok(ring) => return Ok((ring, pages)),
            // Others of the same user may have locked memory, so the limit is not ours alone.
            Err(Errno::EPERM | Errno::ENOMEM) if pages > 1 => pages /= 2,
            Err(errno) => return Err(errno),
        }
    }
}

/// Tells that a ring of these records, which ran over, is as large as may be.
pub fn warn_of_the_largest(records: &str, cpu: u32, pages: usize, budget: RingBudget) {
    let remedy = match budget {
        budget if budget.bound_by_kernel => "give CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb",
        budget if budget.is_ample() => {
            "memory would not help: let the program have more CPU time, or ask for less"
        }
        _ => "raise limits.memory",
    };
    tracing::warn!(
        cpu,
        kilobytes = kilobytes(pages),
        "{records} are lost because their ring is full, and counted as lost; {remedy}"
    );
}

/// The size of a ring, in KiB.
pub fn kilobytes(pages: usize) -> usize {
    pages * rustix::param::page_size() / 1024
}

/// Why there is no ring.
pub fn refused(errno: Errno) -> Judgement {
    let (cause, reason, remedy) = match errno {
        Errno::EPERM => (
            Cause::Exhausted,
            "no more memory may be locked for its ring: kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK are used up"
                .to_owned(),
            Some("give it CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb".to_owned()),
        ),
        Errno::ENOMEM => (
            Cause::Exhausted,
            "there is no memory for its ring".to_owned(),
            Some("free some, or lower limits.memory".to_owned()),
        ),
        errno => (Cause::Broken, format!("the kernel makes no ring for it: {errno}"), None),
    };
    Judgement { cause, reason, remedy }
}
