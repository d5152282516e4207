//! CPU time of the machine, from `/proc/stat`.

use super::{Roots, read_text};

/// CPU time of all CPUs since the boot, in ticks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// All of it, idle time included.
    total: u64,
    /// Time in which the hypervisor ran other virtual machines.
    stolen: u64,
}

impl CpuTime {
    /// Reads the current values; `None` if they cannot be read.
    pub fn read(roots: &Roots) -> Option<Self> {
        Self::parse(&read_text(&roots.proc.join("stat")).ok()?)
    }

    /// Parses the first line: user, nice, system, idle, iowait, irq, softirq, steal. The times of guests after them are part of user and nice.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_ascii_whitespace();
        if words.next() != Some("cpu") {
            return None;
        }
        let times: Vec<u64> = words.take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self { total: times.iter().sum(), stolen: *times.get(7)? })
    }

    /// Returns the stolen share of the time since an earlier read; `None` if no time has passed.
    pub fn stolen_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|&total| total > 0)?;
        Some(self.stolen.saturating_sub(earlier.stolen) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stolen_share_is_that_of_the_time_between_two_reads() {
        let before = CpuTime::parse("cpu  100 0 50 800 0 0 0 50 10 0\ncpu0 1 1 1 1 1 1 1 1\n").unwrap();
        let after = CpuTime::parse("cpu  150 0 80 880 0 10 0 80 10 0\n").unwrap();
        // By hand: 30 of 50 + 30 + 80 + 10 + 30.
        assert_eq!(after.stolen_since(before), Some(0.15));
        assert_eq!(before.stolen_since(before), None);
        assert_eq!(before.stolen_since(after), None);
    }

    #[test]
    fn a_file_without_the_line_has_no_times() {
        for text in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 3 4 5 6 7 x"] {
            assert_eq!(CpuTime::parse(text), None, "{text:?}");
        }
    }
}
