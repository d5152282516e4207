//! The figures that readers get: rates, ratios and quantiles of the recorded quantities.

use std::ops::BitOr;

use super::quantity::Quantity;
use crate::named_enum::named_enum;

named_enum! {
    /// A figure of a subject over time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Figure {
        /// CPU time per second: the number of CPUs in use.
        Cpu = "cpu",
        /// Instructions per cycle.
        Ipc = "ipc",
        /// Misses of the last-level cache per 1000 instructions.
        CacheMisses = "cache_misses",
        /// A quantile of the time that threads waited for a CPU, in seconds.
        RunqueueLatency = "runqueue_latency",
        /// Preemptions per second.
        Preemptions = "preemptions",
        /// Context switches per second.
        Switches = "context_switches",
        /// Migrations to another CPU per second.
        Migrations = "migrations",
        /// Page faults per second.
        Faults = "page_faults",
        /// Created processes and threads per second.
        Forks = "forks",
        /// System calls per second.
        Calls = "syscalls",
        /// System calls per second that returned an error.
        Errors = "syscall_errors",
        /// A quantile of the latency of requests to block devices, in seconds.
        BlockLatency = "block_latency",
        /// Records per second that were lost because a ring was full.
        LostRecords = "lost_records",
    }
}

/// A rate of a cgroup that is recorded, and that no page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Page faults per second that read from a disk.
    MajorFaults,
    /// Context switches of runnable threads per second.
    InvoluntarySwitches,
    /// Preemptions per second because the cgroup has exhausted its CPU quota.
    Throttling,
    /// Time in uninterruptible sleep per second: the number of threads that wait for a disk or a lock of the kernel.
    Blocked,
    /// Events per second of one of the [counters](super::Additional::counters).
    Counter(u8),
}

/// What figures, rates and distributions are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sources(pub(super) u64);

impl BitOr for Sources {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<Figure> for Sources {
    fn from(figure: Figure) -> Self {
        match figure.formula() {
            Formula::Rate(quantity, _) => Self(quantity.bit()),
            Formula::Ratio(over, under, _) => Self(over.bit() | under.bit()),
            Formula::Quantile(quantity) => Self(quantity(0).bit()),
        }
    }
}

impl From<Rate> for Sources {
    fn from(rate: Rate) -> Self {
        Self(rate.quantity().0.bit())
    }
}

/// One of the [distributions](super::Additional::latencies) of times, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times(pub(super) u8);

impl From<Times> for Sources {
    fn from(Times(number): Times) -> Self {
        Self(Quantity::Latency(number, 0).bit())
    }
}

impl Rate {
    /// Returns the quantity, and the factor of its amount.
    pub(super) const fn quantity(self) -> (Quantity, f64) {
        match self {
            Self::MajorFaults => (Quantity::MajorFaults, 1.0),
            Self::InvoluntarySwitches => (Quantity::InvoluntarySwitches, 1.0),
            Self::Throttling => (Quantity::Throttled, 1.0),
            Self::Blocked => (Quantity::Blocked, 1e-6),
            Self::Counter(number) => (Quantity::Counter(number), 1.0),
        }
    }
}

/// How a figure is computed from amounts per step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Formula {
    /// The amount per second, times a factor.
    Rate(Quantity, f64),
    /// A ratio of two amounts, times a factor.
    Ratio(Quantity, Quantity, f64),
    /// A quantile of a distribution.
    Quantile(fn(i8) -> Quantity),
}

impl Figure {
    /// Returns the unit of the values.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "CPUs",
            Self::Ipc => "instructions per cycle",
            Self::CacheMisses => "misses per 1000 instructions",
            Self::RunqueueLatency | Self::BlockLatency => "seconds",
            _ => "per second",
        }
    }

    /// Reports whether the values are quantiles.
    pub const fn is_quantile(self) -> bool {
        matches!(self, Self::RunqueueLatency | Self::BlockLatency)
    }

    pub(super) const fn formula(self) -> Formula {
        match self {
            Self::Cpu => Formula::Rate(Quantity::Cpu, 1e-6),
            Self::Ipc => Formula::Ratio(Quantity::Instructions, Quantity::Cycles, 1.0),
            Self::CacheMisses => Formula::Ratio(Quantity::CacheMisses, Quantity::Instructions, 1000.0),
            Self::RunqueueLatency => Formula::Quantile(Quantity::Runqueue),
            Self::Preemptions => Formula::Rate(Quantity::Preemptions, 1.0),
            Self::Switches => Formula::Rate(Quantity::Switches, 1.0),
            Self::Migrations => Formula::Rate(Quantity::Migrations, 1.0),
            Self::Faults => Formula::Rate(Quantity::Faults, 1.0),
            Self::Forks => Formula::Rate(Quantity::Forks, 1.0),
            Self::Calls => Formula::Rate(Quantity::Calls, 1.0),
            Self::Errors => Formula::Rate(Quantity::Errors, 1.0),
            Self::BlockLatency => Formula::Quantile(Quantity::Block),
            Self::LostRecords => Formula::Rate(Quantity::Lost, 1.0),
        }
    }
}

/// Returns the quantile of a distribution with these buckets, each `(n, count)` for values of at most 2ⁿ, ascending. Within a bucket values
/// are taken as evenly distributed, as in Prometheus' `histogram_quantile`; a value above the last bound is that bound. `None` if the
/// distribution is empty.
pub(super) fn quantile_of(buckets: &[(i8, f64)], quantile: f64) -> Option<f64> {
    let total: f64 = buckets.iter().map(|bucket| bucket.1).sum();
    if total <= 0.0 {
        return None;
    }
    let wanted = total * quantile.clamp(0.0, 1.0);
    let mut below = 0.0;
    let mut highest = 0.0;
    for &(exponent, count) in buckets {
        if exponent == i8::MAX {
            break;
        }
        let end = f64::from(exponent).exp2();
        if count > 0.0 && below + count >= wanted {
            return Some(end / 2.0 + end / 2.0 * ((wanted - below) / count).max(0.0));
        }
        below += count;
        highest = end;
    }
    Some(highest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let buckets = [(-10, 90.0), (-3, 9.0), (1, 1.0)];
        assert_eq!(quantile_of(&buckets, 0.9), Some(2_f64.powi(-10)));
        assert_eq!(quantile_of(&buckets, 0.45), Some(2_f64.powi(-10) * 0.75));
        assert_eq!(quantile_of(&buckets, 0.99), Some(0.125));
        assert_eq!(quantile_of(&buckets, 1.0), Some(2.0));
        assert_eq!(quantile_of(&[(-10, 0.0)], 0.5), None);
    }

    #[test]
    fn above_the_last_bound_a_quantile_is_that_bound() {
        assert_eq!(quantile_of(&[(-3, 1.0), (i8::MAX, 9.0)], 0.99), Some(0.125));
    }

    proptest! {
        #[test]
        fn a_higher_quantile_is_not_lower(counts in prop::collection::vec(0.0_f64..1e9, 1..30), one in 0.0_f64..1.0, other in 0.0_f64..1.0) {
            let buckets: Vec<(i8, f64)> = (-20..).zip(counts).collect();
            let [low, high] = [one.min(other), one.max(other)].map(|quantile| quantile_of(&buckets, quantile));
            prop_assert!(low <= high, "{low:?} {high:?}");
        }
    }
}
