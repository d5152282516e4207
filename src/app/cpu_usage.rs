//! CPU time of this process and of the child that opens files.

use std::time::Duration;

use crate::clock::Monotonic;
use crate::sys::usage;

/// CPU time of the current and previous children that open files.
#[derive(Debug, Default)]
pub(super) struct HelperCost {
    child: Option<u32>,
    /// CPU time of previous children.
    before: Duration,
    /// CPU time of the current child.
    own: Duration,
}

impl HelperCost {
    /// Returns the CPU time of all children.
    pub(super) fn cpu(&mut self, child: Option<u32>) -> Duration {
        if child != self.child {
            self.before += std::mem::take(&mut self.own);
            self.child = child;
        }
        self.own = self.own.max(child.and_then(usage::cpu_time_of).unwrap_or_default());
        self.before + self.own
    }
}

/// CPU usage of this process. Intervals below one second are not evaluated, because they would only reflect the startup or a single scrape.
#[derive(Debug)]
pub(super) struct CpuUsage {
    cpu: Duration,
    at: Monotonic,
    /// Fraction of the last interval; `None` in the first second. Can exceed 1.
    pub(super) part: Option<f64>,
}

impl CpuUsage {
    const SHORTEST: Duration = Duration::from_secs(1);

    pub(super) fn since(at: Monotonic) -> Self {
        Self { cpu: Duration::ZERO, at, part: None }
    }

    /// Records the total CPU time at `now`. Returns the new fraction, if an interval has ended.
    pub(super) fn note(&mut self, cpu: Duration, now: Monotonic) -> Option<f64> {
        let elapsed = now.since(self.at);
        if elapsed < Self::SHORTEST {
            return None;
        }
        let spent = cpu.saturating_sub(self.cpu);
        *self = Self { cpu, at: now, part: Some(spent.as_secs_f64() / elapsed.as_secs_f64()) };
        self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_start_or_a_single_scrape_took_is_no_share_of_a_cpu() {
        let moment = |milliseconds| Monotonic(Duration::from_millis(milliseconds));
        let mut cpu_share = CpuUsage::since(moment(0));
        let part = |cpu_share: &mut CpuUsage, cpu, at| {
            cpu_share.note(Duration::from_millis(cpu), moment(at));
            cpu_share.part
        };
        assert_eq!(part(&mut cpu_share, 40, 15), None);
        assert_eq!(part(&mut cpu_share, 100, 1000), Some(0.1));
        assert_eq!(part(&mut cpu_share, 140, 1010), Some(0.1), "within the interval");
        assert_eq!(part(&mut cpu_share, 600, 2000), Some(0.5));
    }

    #[test]
    fn the_time_of_children_that_have_ended_stays() {
        let mut cost =
            HelperCost { child: Some(7), before: Duration::from_secs(1), own: Duration::from_secs(2) };
        assert_eq!(cost.cpu(None), Duration::from_secs(3));
        assert_eq!(cost.cpu(None), Duration::from_secs(3));
    }
}
