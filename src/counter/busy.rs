//! Busy time of each CPU, to judge whether a counter of cycles is plausible.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{Roots, read_text};

/// `USER_HZ`: ticks per second in `/proc/stat`, the same on every architecture that Linux supports.
const TICKS_PER_SECOND: u64 = 100;

/// Busy time of each CPU between two readings of `/proc/stat`.
#[derive(Debug)]
pub struct Busy {
    stat: PathBuf,
    last: BTreeMap<u32, u64>,
    /// Busy ticks between the last two readings.
    interval: BTreeMap<u32, u64>,
}

impl Busy {
    /// Creates the reader without a first reading.
    pub fn new(roots: &Roots) -> Self {
        Self { stat: roots.proc.join("stat"), last: BTreeMap::new(), interval: BTreeMap::new() }
    }

    /// Reads the file. If it cannot be read, busy times are unknown, and no counter is considered implausible.
    pub fn refresh(&mut self) {
        self.interval.clear();
        let Ok(text) = read_text(&self.stat) else { return };
        for (cpu, ticks) in text.lines().filter_map(busy_ticks) {
            if let Some(last) = self.last.insert(cpu, ticks) {
                self.interval.insert(cpu, ticks.saturating_sub(last));
            }
        }
    }

    /// Returns how long `cpu` executed code between the last two readings.
    pub fn time(&self, cpu: u32) -> Option<Duration> {
        let ticks = *self.interval.get(&cpu)?;
        Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)))
    }
}

/// Parses a line `cpuN user nice system idle iowait irq softirq …` of `proc_stat(5)` as (N, busy ticks). Time stolen by the hypervisor does
/// not count as busy; guest time is part of `user`.
fn busy_ticks(line: &str) -> Option<(u32, u64)> {
    let (name, fields) = line.split_once(' ')?;
    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = [0u64; 7];
    let mut fields = fields.split_ascii_whitespace();
    for tick in &mut ticks {
        *tick = fields.next()?.parse().ok()?;
    }
    let [user, nice, system, _idle, _iowait, irq, softirq] = ticks;
    let sum = [user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add);
    Some((cpu, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_spent_executing_counts_as_busy() {
        assert_eq!(busy_ticks("cpu3 10 20 30 4000 5000 1 2 900 0 0"), Some((3, 63)));
        assert_eq!(busy_ticks("cpu  10 20 30 40 50 1 2 0 0 0"), None);
        assert_eq!(busy_ticks("intr 5 4 3"), None);
        assert_eq!(busy_ticks("cpu0 1 2"), None);
    }

    #[test]
    fn two_readings_give_an_interval_and_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        std::fs::create_dir(&roots.proc).unwrap();
        let mut busy = Busy::new(&roots);
        busy.refresh();
        std::fs::write(roots.proc.join("stat"), "cpu0 100 0 0 0 0 0 0 0 0 0\n").unwrap();
        busy.refresh();
        assert_eq!(busy.time(0), None);
        std::fs::write(roots.proc.join("stat"), "cpu0 150 0 0 0 0 0 0 0 0 0\n").unwrap();
        busy.refresh();
        assert_eq!(busy.time(0), Some(Duration::from_millis(500)));
        assert_eq!(busy.time(1), None);
    }
}
