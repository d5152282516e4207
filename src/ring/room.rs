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
    let remedy = remedy(budget);
    tracing::warn!(
        cpu,
        kilobytes = kilobytes(pages),
        "{records} are lost because their ring is full, and counted as lost; {remedy}"
    );
}

/// Returns what helps against a full ring of the largest size.
fn remedy(budget: RingBudget) -> &'static str {
    match budget {
        budget if budget.bound_by_kernel => "give CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb",
        budget if budget.is_ample() => {
            "memory would not help: let the program have more CPU time, or ask for less"
        }
        _ => "raise limits.memory",
    }
}

/// The size of a ring, in KiB.
pub fn kilobytes(pages: usize) -> usize {
    pages * rustix::param::page_size() / 1024
}

/// Why there is no ring.
pub fn refused(errno: Errno) -> Judgement {
    match errno {
        Errno::EPERM => Judgement::new(
            Cause::Exhausted,
            "no more memory may be locked for its ring: kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK are used up",
        )
        .remedy("give it CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb"),
        Errno::ENOMEM => Judgement::new(Cause::Exhausted, "there is no memory for its ring")
            .remedy("free some, or lower limits.memory"),
        errno => Judgement::new(Cause::Broken, format!("the kernel makes no ring for it: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_a_full_ring_names_the_limit_that_binds() {
        for (most, bound_by_kernel, expected) in [
            (64, true, "mlock_kb"),
            (1 << 20, true, "mlock_kb"),
            (64, false, "limits.memory"),
            (1 << 20, false, "CPU time"),
        ] {
            let remedy = remedy(RingBudget { most, bound_by_kernel });
            assert!(remedy.contains(expected), "{remedy}");
        }
    }

    #[test]
    fn a_ring_of_three_pages_has_three_times_the_size_of_a_page() {
        assert_eq!(kilobytes(3) * 1024, 3 * rustix::param::page_size());
    }
}
