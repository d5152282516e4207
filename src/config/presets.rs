//! Presets: sets of `tracepoints` entries that `presets` enables by name. Each set is a configuration file, so that users can copy it into
//! their own.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::named_enum::named_enum;

named_enum! {
    /// A preset: a set of `tracepoints` entries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(rename = "Preset")]
    pub enum Preset {
        /// Requests to block devices: latency, size and errors.
        BlockIo = "block-io",
        /// Device interrupts: number, and duration of their handlers.
        Irq = "irq",
        /// Softirqs: delay until they run, and duration.
        Softirq = "softirq",
        /// Page faults of user space and of the kernel, for each cgroup.
        PageFaults = "page-faults",
        /// Forks, executions and exits, for each cgroup.
        Forks = "forks",
        /// Kernel workqueues: queueing delay and duration of work items, by function.
        Kworkers = "kworkers",
        /// Locks of the kernel: duration of waits, by type.
        Locks = "locks",
        /// Memory of the kernel: allocations by function, pages by order.
        Kmem = "kmem",
        /// TCP: retransmits, resets, and transitions between states.
        Tcp = "tcp",
        /// ext4: duration of fsync and of commits of the journal.
        Ext4 = "ext4",
        /// XFS: waits for log space and for buffers, forces of the log.
        Xfs = "xfs",
        /// Processes that the kernel killed because memory was exhausted, for each cgroup.
        Oom = "oom",
        /// Reclaim and compaction of memory: duration, for each cgroup.
        Reclaim = "reclaim",
        /// Virtual machines: time from exits to the next entry, by reason.
        KvmExits = "kvm-exits",
    }
}

impl Preset {
    /// Returns the preset as a configuration file with comments.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BlockIo => include_str!("../../config/presets/block-io.yaml"),
            Self::Irq => include_str!("../../config/presets/irq.yaml"),
            Self::Softirq => include_str!("../../config/presets/softirq.yaml"),
            Self::PageFaults => include_str!("../../config/presets/page-faults.yaml"),
            Self::Forks => include_str!("../../config/presets/forks.yaml"),
            Self::Kworkers => include_str!("../../config/presets/kworkers.yaml"),
            Self::Locks => include_str!("../../config/presets/locks.yaml"),
            Self::Kmem => include_str!("../../config/presets/kmem.yaml"),
            Self::Tcp => include_str!("../../config/presets/tcp.yaml"),
            Self::Ext4 => include_str!("../../config/presets/ext4.yaml"),
            Self::Xfs => include_str!("../../config/presets/xfs.yaml"),
            Self::Oom => include_str!("../../config/presets/oom.yaml"),
            Self::Reclaim => include_str!("../../config/presets/reclaim.yaml"),
            Self::KvmExits => include_str!("../../config/presets/kvm-exits.yaml"),
        }
    }

    /// Returns the question that the preset answers: the first sentence of its text.
    pub fn question(self) -> &'static str {
        let mut comments = self.text().lines().filter_map(|line| line.strip_prefix("# "));
        comments.find(|line| line.ends_with('?')).unwrap_or_default()
    }
}
