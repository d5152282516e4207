//! The time that `--time` selects.

use std::ops::RangeInclusive;

use super::machine::Observation;
use crate::cli::follow::StreamItem;
use crate::sched::{SchedFact, SwitchIn, SwitchOut};

/// A range of times on the clock of the records, and how far the records have been read.
#[derive(Debug)]
pub(super) struct Window {
    start: u64,
    stop: u64,
    until: u64,
}

impl Window {
    /// Returns the window of the option; without it, all times.
    pub(super) fn of(time: Option<&RangeInclusive<u64>>) -> Self {
        let (start, stop) = time.map_or((0, u64::MAX), |time| (*time.start(), *time.end()));
        Self { start, stop, until: 0 }
    }

    /// Notes that all records before this time have been read.
    pub(super) fn drained(&mut self, until: u64) {
        self.until = until;
    }

    /// Reports whether no further record is in the window.
    pub(super) fn is_over(&self) -> bool {
        self.until > self.stop
    }

    /// Returns the part of a time that is in the window.
    pub(super) fn clip(&self, (begin, end): (u64, u64)) -> (u64, u64) {
        (begin.clamp(self.start, self.stop), end.clamp(self.start, self.stop))
    }

    /// Returns what follows from the item, if it is in the window. As in perf, a run that is partly in the window has the length of that part.
    pub(super) fn include<'w>(
        &self,
        item: &StreamItem<'_>,
        seen: Observation<'w>,
    ) -> Option<Observation<'w>> {
        let time = match item {
            StreamItem::Hit { sample, .. } => sample.time,
            StreamItem::Besides { time, .. } => *time,
            StreamItem::Gap => return Some(seen),
        };
        if let Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) } = seen {
            let switch_out = self.clipped(switch_out)?;
            return Some(Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) });
        }
        (self.start..=self.stop).contains(&time).then_some(seen)
    }

    fn clipped(&self, switch_out: SwitchOut) -> Option<SwitchOut> {
        if switch_out.time < self.start {
            return None;
        }
        let Some(switch_in) = switch_out.switch_in else {
            return (switch_out.time <= self.stop).then_some(switch_out);
        };
        if switch_in.time > self.stop {
            return None;
        }
        let (begin, end) = self.clip((switch_in.time, switch_out.time));
        let switch_in = Some(SwitchIn { time: begin, ..switch_in });
        Some(SwitchOut { time: end, switch_in, ..switch_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::{PrevState, Thread};

    fn run(from: u64, to: u64) -> SwitchOut {
        let switch_in = SwitchIn { time: from, cpu: 0, delay: None, wait: None, migrated: None };
        let (prev_state, next) = (PrevState::Sleeping, Thread::default());
        SwitchOut { time: to, cpu: 0, switch_in: Some(switch_in), prev_state, next }
    }

    #[test]
    fn a_run_has_the_length_of_its_part_in_the_window() {
        let window = Window::of(Some(&(100..=200)));
        let length = |from, to| window.clipped(run(from, to)).map(|run| (run.time, run.run().unwrap()));
        for (from, to, expected) in [
            (10, 90, None),
            (90, 110, Some((110, 10))),
            (120, 150, Some((150, 30))),
            (190, 250, Some((200, 10))),
            (90, 250, Some((200, 100))),
            (210, 250, None),
        ] {
            assert_eq!(length(from, to), expected, "{from} to {to}");
        }
        let unknown = |time| window.clipped(SwitchOut { switch_in: None, ..run(0, time) }).is_some();
        assert_eq!([90, 150, 250].map(unknown), [false, true, false]);
    }

    #[test]
    fn a_window_is_over_when_all_of_its_records_were_read() {
        let mut window = Window::of(Some(&(100..=200)));
        window.drained(200);
        assert!(!window.is_over());
        window.drained(201);
        assert!(window.is_over());
        assert_eq!((window.clip((50, 150)), window.clip((150, 500))), ((100, 150), (150, 200)));
        let mut all = Window::of(None);
        all.drained(u64::MAX);
        assert!(!all.is_over());
    }
}
