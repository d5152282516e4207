//! Limits and default size of rings.

use crate::host::{Capabilities, Facts};

/// Minimum size of a ring in pages, if there is enough memory: 512 KiB hold five thousand records, which the fastest switching writes in
/// twenty milliseconds. Its reader is woken up when a quarter of that is written.
const MIN: usize = 128;

/// Maximum size of a ring in pages: 4 MiB, which hold forty thousand records. For a reader that is further behind, more memory does not
/// help.
const MAX: usize = 1024;

/// Maximum size of each ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingBudget {
    /// Maximum number of pages for records of one ring, a power of two.
    pub most: usize,
    /// Whether the kernel's limit on locked memory is the reason for the maximum, not the configured limit.
    pub bound_by_kernel: bool,
}

impl RingBudget {
    /// Reports whether more memory would not increase the size of any ring.
    pub fn is_ample(&self) -> bool {
        self.most >= MAX
    }

    /// Divides `memory` bytes among `rings`, within the kernel's limit on locked memory of a user: `perf_event_mlock_kb` for each CPU.
    /// `CAP_IPC_LOCK` and a `perf_event_paranoid` of -1 exempt from this limit.
    pub fn new(facts: &Facts, memory: u64, rings: usize, page_size: usize) -> Self {
        let page_size = page_size.max(1) as u64;
        let exempt = facts.capabilities.has(Capabilities::IPC_LOCK)
            || facts.paranoid.is_some_and(|paranoid| paranoid < 0);
        let configured = memory / rings.max(1) as u64 / page_size;
        let kernel = match facts.mlock_kb {
            // One page of each mapping holds the positions.
            Some(kilobytes) if !exempt => (kilobytes * 1024 / page_size).saturating_sub(1),
            _ => u64::MAX,
        };
        let most = configured.min(kernel).min(MAX as u64) as usize;
        Self { most: floor(most), bound_by_kernel: kernel < configured.min(MAX as u64) }
    }

    /// Returns the size, in pages, for a CPU that writes `rate` records of `record` bytes per second. The ring holds a second at this rate,
    /// or a quarter of a second at four times the rate.
    pub fn pages(&self, rate: f64, record: usize, page_size: usize) -> usize {
        let wanted = (rate * record as f64 / page_size.max(1) as f64) as usize;
        floor(wanted.clamp(MIN, MAX)).min(self.most)
    }
}

/// Returns the largest power of two that is not above `number`.
fn floor(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(mlock_kb: Option<u64>, capabilities: u64, paranoid: i32) -> Facts {
        Facts {
            mlock_kb,
            capabilities: Capabilities(capabilities),
            paranoid: Some(paranoid),
            ..Facts::default()
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_configured_memory_is_shared_by_all_rings() {
        let privileged = facts(Some(516), 1 << Capabilities::IPC_LOCK, 2);
        assert_eq!(RingBudget::new(&privileged, 64 * MIB, 256, 4096).most, 64);
        assert_eq!(RingBudget::new(&privileged, 64 * MIB, 2, 4096).most, MAX);
        assert_eq!(RingBudget::new(&privileged, 3 * MIB, 1, 4096).most, 512);
        assert_eq!(RingBudget::new(&privileged, 1, 1, 4096).most, 1);
        assert_eq!(RingBudget::new(&privileged, MIB, 0, 4096).most, 256, "before there are rings");
        assert_eq!(RingBudget::new(&privileged, 512, 1, 0).most, 512, "a page has at least one byte");
    }

    #[test]
    fn the_kernels_limit_binds_whoever_is_not_exempt() {
        let bound = RingBudget::new(&facts(Some(516), 0, 2), 64 * MIB, 2, 4096);
        assert_eq!(bound, RingBudget { most: 128, bound_by_kernel: true });
        assert_eq!(RingBudget::new(&facts(Some(516), 0, -1), 64 * MIB, 2, 4096).most, MAX);
        assert_eq!(RingBudget::new(&facts(None, 0, 2), 64 * MIB, 2, 4096).most, MAX);
        assert_eq!(RingBudget::new(&facts(Some(0), 0, 2), 64 * MIB, 2, 4096).most, 1);
        assert_eq!(
            RingBudget::new(&facts(Some(2051), 0, 2), 64 * MIB, 2, 4096).most,
            256,
            "512 pages less one"
        );
        let ample = RingBudget::new(&facts(Some(8196), 0, 2), 64 * MIB, 1, 4096);
        assert_eq!(ample, RingBudget { most: MAX, bound_by_kernel: false }, "more than the largest ring");
    }

    #[test]
    fn a_paranoid_level_of_minus_one_exempts_and_zero_does_not() {
        let most = |paranoid| RingBudget::new(&facts(Some(516), 0, paranoid), 64 * MIB, 2, 4096).most;
        assert_eq!([-1, 0, 1].map(most), [MAX, 128, 128]);
    }

    #[test]
    fn the_kernel_binds_only_if_it_allows_less_than_is_configured() {
        // 260 KiB are 65 pages, and one is for the positions.
        for (kilobytes, most, bound_by_kernel) in [(256, 32, true), (260, 64, false), (264, 64, false)] {
            let budget = RingBudget::new(&facts(Some(kilobytes), 0, 2), 64 * MIB, 256, 4096);
            assert_eq!(budget, RingBudget { most, bound_by_kernel }, "{kilobytes} KiB");
        }
    }

    #[test]
    fn memory_is_ample_if_every_ring_has_the_largest_size() {
        let ample = |most| RingBudget { most, bound_by_kernel: false }.is_ample();
        assert_eq!([1, MAX / 2, MAX].map(ample), [false, false, true]);
    }

    #[test]
    fn a_busier_cpu_gets_a_larger_ring() {
        let budget = RingBudget { most: 512, bound_by_kernel: false };
        assert_eq!(budget.pages(0.0, 100, 4096), 128);
        assert_eq!(budget.pages(15_000.0, 100, 4096), 256);
        assert_eq!(budget.pages(1e9, 100, 4096), 512);
        assert_eq!(budget.pages(f64::NAN, 100, 4096), 128);
        assert_eq!(budget.pages(-1e9, 100, 4096), 128);
        assert_eq!(budget.pages(300.0, 1, 0), 256, "a page has at least one byte");
    }
}
