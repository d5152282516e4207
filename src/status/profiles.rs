//! Status of profiles.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{EventStatus, Series};
use crate::clock::Timestamp;
use crate::health::Board;
use crate::metrics::{Family, Snapshot};
use crate::profile::{FUNCTIONS, SAMPLES, SamplerState};

/// Delay of the sample analysis from which the status reports it.
const BEHIND: Duration = Duration::from_secs(10);

/// An entry of `profiles`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileStatus {
    /// Name of the entry.
    pub entry: Arc<str>,
    /// Short description of the sampling.
    pub what: String,
    /// Events that write the samples.
    pub events: Vec<EventStatus>,
    /// Number of samples so far.
    pub samples: u64,
    /// Time from which on any range can be requested: older samples have left the log. `None` if sampling has not begun.
    pub log_begin: Option<Timestamp>,
    /// Number of samples in the log.
    pub log_samples: u64,
    /// Size of the log in bytes, without stacks and tasks, which all entries share.
    pub log_bytes: u64,
}

/// Returns the status of one entry.
pub(crate) fn profile(state: &SamplerState, board: &Board) -> ProfileStatus {
    let sampler = &*state.plan;
    let event = |event: &crate::event::Event| EventStatus {
        event: event.name.to_string(),
        counting: state.open as u64,
        refused: board.places(|line| line.is_of_event(&sampler.entry, &event.name)),
        ..EventStatus::default()
    };
    let what = match &sampler.waits {
        None => format!("{}, unwound by {}", sampler.rate, sampler.unwind.as_str()),
        Some(waits) => format!(
            "waits of at least {:?}, at most {}, unwound by {}",
            waits.threshold,
            sampler.rate,
            sampler.unwind.as_str()
        ),
    };
    let lines = if sampler.lines { ", with lines" } else { "" };
    let behind = match state.age >= BEHIND {
        true => format!("; analysis delayed by {} s", state.age.as_secs()),
        false => String::new(),
    };
    ProfileStatus {
        entry: Arc::clone(&sampler.entry),
        what: what + lines + &behind,
        events: sampler.events.iter().map(event).collect(),
        samples: state.samples,
        log_begin: state.log.begin,
        log_samples: state.log.samples,
        log_bytes: state.log.bytes,
    }
}

/// Returns the number of series of each metric.
pub(crate) fn series(states: &[SamplerState], snapshot: &Snapshot) -> Vec<Series> {
    let samples_in_other: usize = states.iter().map(|state| state.in_other).sum();
    let series = |family: &Family| {
        let name = family.metadata().name();
        let in_other = if name == SAMPLES { samples_in_other as u64 } else { 0 };
        Series { metric: format!("{name}_total"), series: family.points().len() as u64, in_other }
    };
    let are_of_profiles = |family: &&Family| [SAMPLES, FUNCTIONS].contains(&family.metadata().name());
    let families = snapshot.families().iter().filter(are_of_profiles);
    families.filter(|family| !family.points().is_empty()).map(series).collect()
}
