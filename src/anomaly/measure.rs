//! What an entry compares: a figure that is built in, or a ratio that the user wrote.

use std::fmt;
use std::sync::Arc;

use super::kind::Kind;
use super::robust::Robust;
use crate::history::{Grid, History, Subject};

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
        }
    }

    /// Returns the settings of the robust method. A ratio of events depends on the load, and nothing is known about its size.
    pub const fn robust(&self) -> Robust {
        match self {
            Self::Kind(kind) => kind.robust(),
            Self::Ratio { .. } => Robust { min_value: 0.0, ..Kind::CacheMisses.robust() },
        }
    }
}
