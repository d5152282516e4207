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

/// Returns the name of a track: the thread, and the event if the recording has several.
fn name(track: &Track<'_>, timeline: &Timeline) -> String {
    let (comm, tid) = (printable(&track.task.comm), track.task.tid);
    if has_several_events(timeline) {
        format!("{comm} {tid} ({})", track.kind.name)
    } else {
        format!("{comm} {tid}")
    }
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
