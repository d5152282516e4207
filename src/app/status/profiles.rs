//! What the status tells of profiles.

use std::time::Duration;

use super::traces::refused;
use crate::export::status::{EventStatus, Loss, ProfileStatus, Series};
use crate::health::Board;
use crate::metrics::{Family, Snapshot};
use crate::profile::{FUNCTIONS, Losses, SAMPLES, SamplerState};

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
    let folded = states.iter().map(|state| state.folded).sum();
    let series = |family: &Family| {
        let name = family.metadata().name();
        let folded = if name == SAMPLES { folded } else { 0 };
        Series { metric: format!("{name}_total"), series: family.points().len() as u64, folded }
    };
    let are_of_profiles = |family: &&Family| [SAMPLES, FUNCTIONS].contains(&family.metadata().name());
    let families = snapshot.families().iter().filter(are_of_profiles);
    families.filter(|family| !family.points().is_empty()).map(series).collect()
}

/// Samples that were not read.
pub(super) fn losses(losses: Losses) -> impl Iterator<Item = Loss> {
    let reasons = losses.reasons().into_iter();
    reasons.map(|(reason, count)| Loss { what: "samples".into(), reason: reason.into(), count })
}
