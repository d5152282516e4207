//! How busy each CPU was: what a counter of cycles is held against.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{Roots, read_text};

/// `USER_HZ`: the unit of `/proc/stat` on every architecture that Linux still has.
const TICKS_PER_SECOND: u64 = 100;

/// Reads `/proc/stat` and tells the busy time of each CPU between two readings.
#[derive(Debug)]
pub(super) struct Busy {
    stat: PathBuf,
    last: BTreeMap<u32, u64>,
    /// Busy ticks since the reading before the last one.
    interval: BTreeMap<u32, u64>,
}

impl Busy {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { stat: roots.proc.join("stat"), last: BTreeMap::new(), interval: BTreeMap::new() }
    }

    /// Takes a reading. Where the file cannot be read, nothing is known, and no counter is doubted.
    pub(super) fn refresh(&mut self) {
        self.interval.clear();
        let Ok(text) = read_text(&self.stat) else { return };
        for (cpu, ticks) in text.lines().filter_map(busy_ticks) {
            if let Some(last) = self.last.insert(cpu, ticks) {
                self.interval.insert(cpu, ticks.saturating_sub(last));
            }
        }
    }

    /// How long `cpu` executed code between the last two readings.
    pub(super) fn time(&self, cpu: u32) -> Option<Duration> {
        let ticks = *self.interval.get(&cpu)?;
        Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)))
    }
}

/// A line `cpuN user nice system idle iowait irq softirq …` of `proc_stat(5)`, as (N, ticks of work). Time stolen by
/// the hypervisor is not work, and guest time is part of `user`.
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
