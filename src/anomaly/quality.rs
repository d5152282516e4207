//! How far the figure of an interval can be trusted.

use std::sync::Arc;

use super::measure::Measure;
use crate::history::{Grid, History, Subject};

/// Share of the time in which events must be on the PMU. Below it more than half of a count is an estimate.
const MIN_RUNNING: f64 = 0.5;

/// Share of the events that must happen on CPUs of one type.
const MIN_ON_TYPE: f64 = 0.9;

/// How far the figure of an interval can be trusted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Whether a series from which the figure is computed began in the interval: the cgroup, its container or the counter is new.
    pub is_reset: bool,
    /// Share of the time in which the events of the figure were on the PMU, of the events for which it is lowest. From 0 to 1.
    pub running: f64,
    /// Share of the events that happened on CPUs of the most frequent type. 1 on machines with one type of CPU.
    pub on_type: f64,
}

impl Default for Quality {
    /// A figure without any reason for doubt.
    fn default() -> Self {
        Self { is_reset: false, running: 1.0, on_type: 1.0 }
    }
}

impl Quality {
    /// Reports whether the events were on the PMU for too short a time.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.running < MIN_RUNNING
    }

    /// Reports whether too many events happened on CPUs of another type.
    pub(super) fn is_mixed(&self) -> bool {
        self.on_type < MIN_ON_TYPE
    }
}

impl Measure {
    /// Returns the quality of the values in the last step of a grid. On machines with several types of CPUs, also returns the type on which most
    /// of the events happened: what is usual depends on it.
    pub(super) fn quality<'h>(
        &self,
        history: &'h History,
        subject: &Subject,
        grid: &Grid,
    ) -> (Quality, Option<&'h Arc<str>>) {
        let is_reset = subject.has_begun(self.sources(history), grid);
        let Some(events) = self.hardware_events() else {
            return (Quality { is_reset, ..Quality::default() }, None);
        };
        let ratios = events.iter().filter_map(|family| history.running_ratio(subject, family, grid));
        let running = ratios.fold(1.0, f64::min);
        let [_, per] = events;
        match history.cpu_type(subject, per, grid) {
            Some((cpu_type, on_type)) => (Quality { is_reset, running, on_type }, Some(cpu_type)),
            None => (Quality { is_reset, running, ..Quality::default() }, None),
        }
    }
}

#[cfg(test)]
mod tests;
