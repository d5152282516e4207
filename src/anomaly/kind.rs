//! The figures that are compared with their past.

use super::detector::Method;
use super::episode::Rule;
use super::robust::Robust;
use crate::history::{Figure, Grid, Rate, Sources, Subject};
use crate::named_enum::named_enum;

named_enum! {
    /// A figure of a cgroup. Higher is worse.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Kind {
        /// Cycles per instruction.
        Cpi = "cpi",
        /// Misses of the last-level cache per 1000 instructions.
        CacheMisses = "cache_misses",
        /// The 99th percentile of the time that threads waited for a CPU, in seconds.
        RunqueueLatency = "runqueue_latency",
        /// Share of the system calls that returned an error.
        SyscallErrors = "syscall_errors",
        /// Created processes and threads per second.
        Forks = "forks",
        /// Page faults per second that read from a disk.
        MajorFaults = "major_faults",
        /// Preemptions per second because the cgroup has exhausted its CPU quota.
        Throttling = "throttling",
        /// Share of uninterruptible sleep in the time in which threads ran or slept so: waits for disks and locks of the kernel.
        OffCpu = "off_cpu",
        /// Context switches of runnable threads per second.
        InvoluntarySwitches = "involuntary_switches",
    }
}

/// Number of threads that run or sleep uninterruptibly below which there is no share: a few waits of an idle cgroup would be a large one.
const BUSY: f64 = 0.05;

/// The quantile of latencies.
const QUANTILE: f64 = 0.99;

impl Kind {
    /// Returns the values in each step; `None` where the figure was not measured. Returns `None` if it is not measured for this cgroup.
    pub fn values(self, subject: &Subject, grid: &Grid) -> Option<Vec<Option<f64>>> {
        let values = |figure| subject.values(figure, QUANTILE, grid);
        match self {
            Self::Cpi => {
                let inverse = |ipc: Option<f64>| ipc.filter(|&ipc| ipc > 0.0).map(|ipc| 1.0 / ipc);
                Some(values(Figure::Ipc)?.into_iter().map(inverse).collect())
            }
            Self::CacheMisses => values(Figure::CacheMisses),
            Self::RunqueueLatency => values(Figure::RunqueueLatency),
            Self::SyscallErrors => {
                let (errors, calls) = (values(Figure::Errors)?, values(Figure::Calls)?);
                let share = |(errors, calls): (Option<f64>, Option<f64>)| {
                    Some(errors? / calls.filter(|&calls| calls > 0.0)?)
                };
                Some(errors.into_iter().zip(calls).map(share).collect())
            }
            Self::Forks => values(Figure::Forks),
            Self::MajorFaults => subject.rates(Rate::MajorFaults, grid),
            Self::Throttling => subject.rates(Rate::Throttling, grid),
            Self::OffCpu => {
                let (blocked, running) = (subject.rates(Rate::Blocked, grid)?, values(Figure::Cpu)?);
                let share = |(blocked, running): (Option<f64>, Option<f64>)| {
                    let (blocked, busy) = (blocked?, blocked? + running?);
                    (busy >= BUSY).then(|| blocked / busy)
                };
                Some(blocked.into_iter().zip(running).map(share).collect())
            }
            Self::InvoluntarySwitches => subject.rates(Rate::InvoluntarySwitches, grid),
        }
    }

    /// Returns what the values are read from.
    pub(super) fn sources(self) -> Sources {
        match self {
            Self::Cpi => Figure::Ipc.into(),
            Self::CacheMisses => Figure::CacheMisses.into(),
            Self::RunqueueLatency => Figure::RunqueueLatency.into(),
            Self::SyscallErrors => Figure::Calls.into(),
            Self::Forks => Figure::Forks.into(),
            Self::MajorFaults => Rate::MajorFaults.into(),
            Self::Throttling => Rate::Throttling.into(),
            Self::OffCpu => Sources::from(Rate::Blocked) | Figure::Cpu.into(),
            Self::InvoluntarySwitches => Rate::InvoluntarySwitches.into(),
        }
    }

    /// Returns the settings of the robust method. `min_value` keeps changes of small values from being anomalies: a latency of 1 ms after
    /// one of 0.1 ms harms no program.
    pub const fn robust(self) -> Robust {
        let (min_usage, min_change, min_value) = match self {
            Self::Cpi => (0.25, 0.25, 0.0),
            Self::CacheMisses => (0.25, 1.0, 1.0),
            Self::RunqueueLatency => (0.01, 2.0, 0.01),
            Self::SyscallErrors => (0.01, 1.0, 0.05),
            Self::Forks => (0.01, 2.0, 20.0),
            Self::MajorFaults => (0.01, 2.0, 100.0),
            Self::Throttling => (0.01, 1.0, 5.0),
            // A cgroup whose threads all wait uses no CPU time.
            Self::OffCpu => (0.0, 1.0, 0.3),
            Self::InvoluntarySwitches => (0.01, 2.0, 500.0),
        };
        // Waiting, forks and calls change the utilization themselves.
        let by_usage = matches!(self, Self::Cpi | Self::CacheMisses);
        // A program starts with cold caches, and with code that is not compiled yet.
        let start = if by_usage { 300_000 } else { 0 };
        Robust {
            min_usage,
            by_usage,
            by_hour: false,
            min_samples: 60.0,
            deviations: 4.0,
            min_change,
            min_value,
            start,
        }
    }

    /// Returns when outliers are an anomaly, for a method.
    pub fn rule(method: &Method) -> Rule {
        match method {
            // Most samples of three minutes, so that values that depend on the one before them raise no false alarms.
            // Figures of the hardware have small minimum changes and long memories: 10 of 19 values.
            Method::Robust(Robust { by_usage: true, .. }) => Rule { outliers: 10, within: 180_000 },
            Method::Robust(_) => Rule { outliers: 8, within: 180_000 },
            Method::Cpi2(_) => Rule::default(),
            Method::Threshold(threshold) => threshold.rule(),
        }
    }
}

#[cfg(test)]
mod tests;
