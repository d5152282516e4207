//! Ready-made entries of `tracepoints`, by the names that `presets` takes. Each set is a file that is read like one of a
//! user's, so that it can be copied into one.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::words::words;

words! {
    /// A set of ready-made entries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schemars(rename = "ReadyMade")]
    pub enum Preset {
        /// Requests to block devices: how long they take, how large they are, and which fail.
        BlockIo = "block-io",
        /// Interrupts of devices: how many, and how long their handlers run.
        Irq = "irq",
        /// Softirqs: how long they wait, and how long they run.
        Softirq = "softirq",
        /// Page faults, of programs and of the kernel, for each cgroup.
        PageFaults = "page-faults",
        /// Forks, executions and exits, for each cgroup.
        Forks = "forks",
        /// Work on the kernel's workers: how long it waits, and how long it runs, by function.
        Kworkers = "kworkers",
    }
}

impl Preset {
    /// The set as a configuration file, with comments.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BlockIo => include_str!("../../config/presets/block-io.yaml"),
            Self::Irq => include_str!("../../config/presets/irq.yaml"),
            Self::Softirq => include_str!("../../config/presets/softirq.yaml"),
            Self::PageFaults => include_str!("../../config/presets/page-faults.yaml"),
            Self::Forks => include_str!("../../config/presets/forks.yaml"),
            Self::Kworkers => include_str!("../../config/presets/kworkers.yaml"),
        }
    }

    /// The question that it answers: the first sentence of its text.
    pub fn question(self) -> &'static str {
        let mut comments = self.text().lines().filter_map(|line| line.strip_prefix("# "));
        comments.find(|line| line.ends_with('?')).unwrap_or_default()
    }
}
