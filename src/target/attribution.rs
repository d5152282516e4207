//! How counts are told apart by cgroup or process.

/// How counts are told apart by cgroup or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Attribution {
    /// Whichever is cheaper: dedicated for a few named targets and where the kernel has no stream (before Linux 5.13
    /// for cgroups), else the stream.
    #[default]
    Auto,
    /// One event group per CPU, whose records at context switches carry the counts and for whom they are. The number
    /// of descriptors does not depend on that of the targets; each record costs about 1 µs. Sees processes that live
    /// and end between two collections.
    #[doc(alias = "PERF_SAMPLE_CGROUP")]
    Stream,
    /// Descriptors for every target: per CPU for a cgroup, per thread for a process. The kernel programs the PMU anew
    /// at each switch from one of them to another.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    Dedicated,
}

/// Up to so many named targets, descriptors of their own are taken to be cheaper than the stream: they cost
/// descriptors on each CPU and a PMU that is programmed anew when one of the few is switched to or from, while the
/// stream costs a record for every switch of everybody.
pub(super) const FEW_TARGETS: usize = 4;
