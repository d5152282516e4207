//! Creation of rings: the largest size that the kernel allows, or the reason why there is no ring.

use super::RingBudget;
use crate::error::Errno;
use crate::health::{Cause, Judgement};
use crate::sys::Event;

/// Creates a ring for an event, of `wanted` pages or of the maximum that the kernel allows. Returns the ring and its number of pages.
///
/// # Errors
/// The kernel's errno, if not even one page is allowed, or for other errors than a lack of memory.
pub fn make<E: Event>(event: &E, wanted: usize) -> Result<(E::Ring, usize), Errno> {
    let mut pages = wanted;
    loop {
        match event.map(pages) {
            Ok(ring) => return Ok((ring, pages)),
            // Other processes of the same user may have locked memory: the limit applies to all of them together.
            Err(Errno::EPERM | Errno::ENOMEM) if pages > 1 => pages /= 2,
            Err(errno) => return Err(errno),
        }
    }
}

/// Logs a warning that a ring of these records, which lost records, has the maximum size.
pub fn warn_of_the_largest(records: &str, cpu: u32, pages: usize, budget: RingBudget) {
    let remedy = remedy(budget);
    tracing::warn!(
        name: "perf_exporter.ring.full",
        cpu,
        kilobytes = kilobytes(pages),
        "{records} are lost because their ring is full; {remedy}"
    );
}

/// Returns the remedy for a full ring of the maximum size.
fn remedy(budget: RingBudget) -> &'static str {
    match budget {
        budget if budget.bound_by_kernel => "grant CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb",
        budget if budget.is_ample() => {
            "more memory does not help: give the program more CPU time, or record fewer events"
        }
        _ => "raise limits.memory",
    }
}

/// Returns the size of a ring, in KiB.
pub fn kilobytes(pages: usize) -> usize {
    pages * rustix::param::page_size() / 1024
}

/// Returns the reason why a ring could not be created, and the remedy.
pub fn refused(errno: Errno) -> Judgement {
    match errno {
        Errno::EPERM => Judgement::new(
            Cause::Exhausted,
            "no more memory may be locked for its ring: kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK are exhausted",
        )
        .remedy("grant CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb"),
        Errno::ENOMEM => Judgement::new(Cause::Exhausted, "not enough memory for its ring")
            .remedy("free memory, or lower limits.memory"),
        errno => Judgement::new(Cause::Broken, format!("the kernel cannot create its ring: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::FakeKernel;
    use crate::sys::{Attr, Kernel, Place, Ring, Start};

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
    fn a_ring_has_half_of_the_wanted_pages_as_often_as_the_kernel_allows_no_more() {
        let event = |kernel: &FakeKernel| {
            kernel.open(&Attr::software(9, None, Start::Later), Place::Cpu(0), None).unwrap()
        };
        for (wanted, most, pages) in [(8, 8, Ok(8)), (8, 7, Ok(4)), (8, 1, Ok(1)), (8, 0, Err(Errno::EPERM))]
        {
            let kernel = FakeKernel::new();
            kernel.limit_rings(most);
            let made = make(&event(&kernel), wanted);
            assert_eq!(
                made.map(|(ring, pages)| (ring.size(), pages)),
                pages.map(|pages| (pages * 4096, pages))
            );
        }
    }

    #[test]
    fn the_reason_for_a_missing_ring_is_locked_memory_free_memory_or_the_kernel() {
        for (errno, cause, reason, remedy) in [
            (Errno::EPERM, Cause::Exhausted, "perf_event_mlock_kb", Some("CAP_IPC_LOCK")),
            (Errno::ENOMEM, Cause::Exhausted, "not enough memory", Some("limits.memory")),
            (Errno::EINVAL, Cause::Broken, "the kernel cannot create its ring", None),
        ] {
            let judgement = refused(errno);
            assert_eq!(judgement.cause, cause);
            assert!(judgement.reason.contains(reason), "{}", judgement.reason);
            let found = judgement.remedy.as_ref().map(|found| found.contains(remedy.unwrap_or("none")));
            assert_eq!(found, remedy.map(|_| true), "{:?}", judgement.remedy);
        }
    }

    #[test]
    fn a_ring_of_three_pages_has_three_times_the_size_of_a_page() {
        assert_eq!(kilobytes(3) * 1024, 3 * rustix::param::page_size());
        assert_eq!(kilobytes(1024), rustix::param::page_size());
    }
}
