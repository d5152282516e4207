//! What an entry compares: a figure that is built in, or one that the user composed.

use std::fmt;
use std::sync::Arc;

use super::kind::Kind;
use super::robust::Robust;
use crate::history::{Grid, History, Latency, Sources, Subject};

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// A figure with settings of its own.
    Kind(Kind),
    /// The ratio of two counters of cgroups, by the names of their families.
    Ratio {
        /// The counter above the line.
        of: Arc<str>,
        /// The counter below it.
        per: Arc<str>,
    },
    /// A quantile of a distribution of times, in seconds.
    Latency {
        /// The distribution.
        times: Latency,
        /// The quantile in thousandths: 1 to 999.
        quantile: u16,
    },
}

impl From<Kind> for Measure {
    fn from(kind: Kind) -> Self {
        Self::Kind(kind)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Ratio { of, per } => write!(f, "{of}/{per}"),
            Self::Latency { times: Latency { family, call }, quantile } => {
                write!(f, "{family}:{}:{quantile}", call.as_deref().unwrap_or_default())
            }
        }
    }
}

impl Measure {
    /// Returns the values in each step; `None` where it was not measured. Returns `None` if it is not measured for this cgroup.
    pub fn values(&self, history: &History, subject: &Subject, grid: &Grid) -> Option<Vec<Option<f64>>> {
        match self {
            Self::Kind(kind) => kind.values(subject, grid),
            Self::Ratio { of, per } => {
                let rates = |family| subject.rates(history.counter(family)?, grid);
                let ratio = |(of, per): (Option<f64>, Option<f64>)| {
                    per.filter(|&per| per > 0.0).and_then(|per| Some(of? / per))
                };
                Some(rates(of)?.into_iter().zip(rates(per)?).map(ratio).collect())
            }
            Self::Latency { times, quantile } => {
                subject.quantiles(history.times(times)?, f64::from(*quantile) / 1000.0, grid)
            }
        }
    }

    /// Returns the utilization in the last step of a grid: `cpus`, the used CPU time per second; for a latency the number of times per second,
    /// because a thread that waits uses no CPU time.
    pub(super) fn usage(&self, history: &History, subject: &Subject, grid: &Grid, cpus: f64) -> f64 {
        match self {
            Self::Kind(_) | Self::Ratio { .. } => cpus,
            Self::Latency { times, .. } => {
                history.times(times).map_or(0.0, |times| subject.times_per_second(times, grid))
            }
        }
    }

    /// Returns what the values are read from.
    pub(super) fn sources(&self, history: &History) -> Sources {
        let counter = |family| history.counter(family).map(Sources::from).unwrap_or_default();
        match self {
            Self::Kind(kind) => kind.sources(),
            Self::Ratio { of, per } => counter(of) | counter(per),
            Self::Latency { times, .. } => history.times(times).map(Sources::from).unwrap_or_default(),
        }
    }

    /// Returns the families of the events that a PMU may count, the one below the line last. `None` for figures that need no PMU.
    pub fn hardware_events(&self) -> Option<[&str; 2]> {
        match self {
            Self::Kind(Kind::Cpi) => Some(["perf_cgroup_cycles", "perf_cgroup_instructions"]),
            Self::Kind(Kind::CacheMisses) => Some(["perf_cgroup_cache_misses", "perf_cgroup_instructions"]),
            Self::Ratio { of, per } => Some([of, per]),
            Self::Kind(_) | Self::Latency { .. } => None,
        }
    }

    /// Returns the settings of the robust method. A ratio of events depends on the load, and nothing is known about its size.
    pub const fn robust(&self) -> Robust {
        match self {
            Self::Kind(kind) => kind.robust(),
            Self::Ratio { .. } => Robust { min_value: 0.0, ..Kind::CacheMisses.robust() },
            // At least ten times in an interval: the highest of a few is no quantile.
            Self::Latency { .. } => {
                Robust { min_usage: 1.0, min_value: 0.001, ..Kind::RunqueueLatency.robust() }
            }
        }
    }
}
