//! What CPUs did since boot, as `/proc/stat` has it.

use std::path::Path;
use std::time::Duration;

use perf_exporter::host::read_text;

/// Of one CPU, or of all together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTimes {
    pub(crate) worked: Duration,
    pub(crate) idle: Duration,
    /// Idle while a thread of this CPU waits for a disk.
    pub(crate) iowait: Duration,
    /// In interrupt handlers and softirqs.
    pub(crate) interrupted: Duration,
    /// While the host of this guest ran others.
    pub(crate) stolen: Duration,
}

impl CpuTimes {
    /// The unit of the file: `USER_HZ`.
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

    /// All CPUs together, then each.
    fn read() -> Vec<Self> {
        let stat = read_text(Path::new("/proc/stat")).unwrap();
        stat.lines().take_while(|line| line.starts_with("cpu")).map(Self::of_line).collect()
    }

    fn of_line(line: &str) -> Self {
        // What follows these is part of the first two.
        let fields: Vec<u32> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
            panic!("fewer than eight times in {line:?}");
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
