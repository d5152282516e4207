//! CPU times since boot, from `/proc/stat`.

use std::path::Path;
use std::time::Duration;

use perf_exporter::host::read_text;

/// Times of one CPU, or of all CPUs together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTimes {
    pub(crate) worked: Duration,
    pub(crate) idle: Duration,
    /// Idle time while a thread of this CPU waits for a disk.
    pub(crate) iowait: Duration,
    /// Time in interrupt handlers and softirqs.
    pub(crate) interrupted: Duration,
    /// Time in which the host of this guest ran other tasks (steal).
    pub(crate) stolen: Duration,
}

impl CpuTimes {
    /// Unit of the file: `USER_HZ`.
    pub(crate) const TICK: Duration = Duration::from_millis(10);

    pub(crate) fn of_all_cpus() -> Self {
        Self::read().swap_remove(0)
    }

    pub(crate) fn of_each_cpu() -> Vec<Self> {
        Self::read().split_off(1)
    }

    pub(crate) fn all(&self) -> Duration {
        self.worked + self.idle + self.iowait + self.interrupted + self.stolen
    }

    /// Returns the sum of all CPUs, then each CPU.
    fn read() -> Vec<Self> {
        let stat = read_text(Path::new("/proc/stat")).unwrap();
        stat.lines().take_while(|line| line.starts_with("cpu")).map(Self::of_line).collect()
    }

    fn of_line(line: &str) -> Self {
        // The later fields (guest times) are part of the first two.
        let fields: Vec<u32> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
            panic!("fewer than eight fields in {line:?}");
        };
        let time = |ticks: u32| ticks * Self::TICK;
        Self {
            worked: time(user + nice + system),
            idle: time(idle),
            iowait: time(iowait),
            interrupted: time(irq + softirq),
            stolen: time(steal),
        }
    }
}
