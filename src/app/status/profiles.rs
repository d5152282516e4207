//! What the status tells of profiles.

use std::time::Duration;

use super::traces::refused;
use crate::export::status::{EventStatus, ProfileStatus, Series};
use crate::health::Board;
use crate::metrics::{Family, Snapshot};
use crate::profile::{FUNCTIONS, SAMPLES, SamplerState};

/// From this age on the status says that the analysis of samples is behind.
const BEHIND: Duration = Duration::from_secs(10);

/// One entry.
pub(super) fn profile(state: &SamplerState, board: &Board) -> ProfileStatus {
    let sampler = &*state.plan;
    let event = |event: &crate::event::Event| EventStatus {
        event: event.name.to_string(),
        counting: state.open as u64,
        shared: None,
        stalled: 0,
        refused: refused(board, &sampler.entry, &event.name),
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
        true => format!("; the analysis is {} s behind", state.age.as_secs()),
        false => String::new(),
    };
    ProfileStatus {
        entry: sampler.entry.to_string(),
        what: what + lines + &behind,
        events: sampler.events.iter().map(event).collect(),
        samples: state.samples,
    }
}

/// Their metrics.
pub(super) fn series(states: &[SamplerState], snapshot: &Snapshot) -> Vec<Series> {
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
