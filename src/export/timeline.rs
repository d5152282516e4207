//! Samples in the order of time, in the formats of viewers that show them on a time axis.
//!
//! ```text
//! recording::perf_data::Timeline ─┬► firefox: Firefox Profiler
//!                                 ├► speedscope
//!                                 └► chrome: Perfetto, chrome://tracing
//! ```

mod chrome;
mod firefox;
mod speedscope;
#[cfg(test)]
mod tests;

pub use chrome::write as write_chrome;
pub use firefox::write as write_firefox;
pub use speedscope::write as write_speedscope;

use std::sync::Arc;

use crate::error::printable;
use crate::recording::perf_data::{Timeline, Track};

/// Returns the tracks with their names: the thread, and the event if several have samples.
fn tracks(timeline: &Timeline) -> Vec<(String, Track<'_>)> {
    let tracks = timeline.tracks();
    let with_event = has_several_events(timeline);
    let name = |track: &Track<'_>| {
        let (comm, tid) = (printable(&track.task.comm), track.task.tid);
        if with_event { format!("{comm} {tid} ({})", track.kind.name) } else { format!("{comm} {tid}") }
    };
    tracks.into_iter().map(|track| (name(&track), track)).collect()
}

/// Reports whether several events have samples.
fn has_several_events(timeline: &Timeline) -> bool {
    let mut events = timeline.samples.iter().map(|sample| sample.event);
    let first = events.next();
    events.any(|event| Some(event) != first)
}

/// Returns the name of the recording: its command, or the name of the machine.
fn title(timeline: &Timeline) -> String {
    let about = &timeline.about;
    match (about.command.as_slice(), &about.hostname) {
        ([], Some(host)) => printable(host),
        ([], None) => "recording".into(),
        (words, _) => printable(&words.iter().map(Arc::as_ref).collect::<Vec<_>>().join(" ")),
    }
}
