//! What the status tells of profiles.

use super::traces::refused;
use crate::export::status::{EventStatus, Loss, ProfileStatus};
use crate::health::Board;
use crate::profile::{Losses, SamplerState};

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
    ProfileStatus {
        entry: sampler.entry.to_string(),
        what,
        events: sampler.events.iter().map(event).collect(),
        samples: state.samples,
    }
}

/// Samples that were not read.
pub(super) fn losses(losses: Losses) -> impl Iterator<Item = Loss> {
    let reasons = losses.reasons().into_iter();
    reasons.map(|(reason, count)| Loss { what: "samples".into(), reason: reason.into(), count })
}
