//! The past: ranges of the sample logs, and the names that they need.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Analysis, Counted, Key, Source};
use crate::profile::handoff::LogExtent;
use crate::stack::Frame;

/// The interval at which the names of all frames are looked up again, so that no cache drops them: nanoseconds on the clock of the records.
/// A file is held open for longer than this after the last sample of its code, and a name is kept for longer than this without use.
const KEEP_EVERY: u64 = 60_000_000_000;

/// The most frames to look up at a time.
const FRAMES: usize = 1 << 14;

/// The progress of a round in which the names of all frames are looked up. Frames that are new since the last round are next.
#[derive(Debug, Default)]
pub(super) struct KeptNames {
    /// The number of frames that were looked up in this round.
    done: usize,
    /// When the round began.
    begin: u64,
}

impl KeptNames {
    /// Begins the round again: frames have other numbers.
    pub(super) fn restart(&mut self) {
        self.done = 0;
    }
}

impl Source {
    /// Returns what its log contains.
    pub(super) fn extent(&self) -> LogExtent {
        LogExtent {
            entry: Arc::clone(&self.sampler.entry),
            begin: self.log.begin(),
            samples: self.log.samples() as u64,
            bytes: self.log.bytes() as u64,
        }
    }
}

impl Analysis {
    /// Keeps samples for this time from now on, memory permitting.
    pub(super) fn keep_for(&mut self, history: Duration) {
        self.history = history;
        for source in &mut self.sources {
            source.log.keep_for(history.max(source.sampler.window));
        }
    }

    /// Returns the sums of an entry over the last `length` nanoseconds, at most its window. `by_cpu` distinguishes CPUs.
    pub(in crate::profile) fn last(
        &self,
        entry: &str,
        now: u64,
        length: u64,
        by_cpu: bool,
    ) -> Option<Counted> {
        let window = u64::try_from(self.source(entry)?.sampler.window.as_nanos()).unwrap_or(u64::MAX);
        self.range(entry, now.saturating_sub(length.min(window))..now, now, by_cpu)
    }

    /// Returns the sums of an entry over a range, in nanoseconds on the clock of the records. The result begins where the log begins, and
    /// ends `now`, if the range exceeds them. `by_cpu` distinguishes CPUs.
    pub(in crate::profile) fn range(
        &self,
        entry: &str,
        range: Range<u64>,
        now: u64,
        by_cpu: bool,
    ) -> Option<Counted> {
        let source = self.source(entry)?;
        let begin = range.start.max(source.log.begin().unwrap_or(now));
        // A record that arrived late may be younger than `now`.
        let end = if range.end >= now { u64::MAX } else { range.end };
        let tally = source.log.tally(&(begin..end), by_cpu);
        let (sampler, losses) = (Arc::clone(&source.sampler), self.losses());
        Some(Counted { sampler, tally, begin, end: end.min(now).max(begin), losses })
    }

    /// Calls `each` with the time and the count of each sample of an entry in a range, if its key is `wanted`. Returns the time from which
    /// on the log has all samples. Times are in nanoseconds on the clock of the records.
    pub(in crate::profile) fn times(
        &self,
        entry: &str,
        range: &Range<u64>,
        wanted: impl FnMut(Key) -> bool,
        each: impl FnMut(u64, u64),
    ) -> Option<u64> {
        let source = self.source(entry)?;
        source.log.times(range, wanted, each);
        Some(source.log.begin().unwrap_or(self.analyzed))
    }

    /// Returns frames whose names must be looked up: those that are new, or all in turn once in [`KEEP_EVERY`]. Names of samples outside the
    /// windows must be found while their files are open.
    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        let (frames, kept) = (self.analyzer.stacks().all_frames(), &mut self.kept_names);
        if self.history.is_zero() {
            return Vec::new();
        }
        if kept.done >= frames.len() && self.analyzed.saturating_sub(kept.begin) >= KEEP_EVERY {
            (kept.done, kept.begin) = (0, self.analyzed);
        }
        let rest = frames.get(kept.done..).unwrap_or_default();
        let next = &rest[..rest.len().min(FRAMES)];
        kept.done += next.len();
        next.to_vec()
    }
}
