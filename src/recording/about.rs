//! The description of a recording.

use std::sync::Arc;

use super::perf_data::Attribute;
use crate::clock::Timestamp;
use crate::host::CpuSet;

/// The machine, the command and the events of a recording. Formats other than perf.data have only events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The name of the machine.
    pub hostname: Option<Arc<str>>,
    /// The release of its kernel.
    pub release: Option<Arc<str>>,
    /// Its architecture: `x86_64`.
    pub arch: Option<Arc<str>>,
    /// The version of perf that wrote the file.
    pub version: Option<Arc<str>>,
    /// The model of its CPUs.
    pub cpu: Option<Arc<str>>,
    /// The number of its CPUs: online, available.
    pub cpus: Option<(u32, u32)>,
    /// The CPUs of each of its NUMA nodes.
    pub nodes: Vec<(u32, CpuSet)>,
    /// Its memory in KiB.
    pub memory: Option<u64>,
    /// The words of the command line.
    pub command: Vec<Arc<str>>,
    /// When the file was written last.
    pub written: Option<Timestamp>,
    /// The times of the first and the last sample, on the clock of the records. Nanoseconds.
    pub times: Option<(u64, u64)>,
    /// The events, in the order of the profiles.
    pub events: Vec<Attribute>,
    /// Whether the file has counts instead of samples (`perf stat record`).
    pub has_counts: bool,
    /// Records that the kernel or perf dropped.
    pub lost: Lost,
    /// What is missing and why, as sentences.
    pub notes: Vec<String>,
}

impl About {
    /// Returns the NUMA node of a CPU, if the recording describes it.
    pub fn node(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node)
    }
}

/// Numbers of records that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Records that did not fit into a ring (`PERF_RECORD_LOST`).
    pub records: u64,
    /// Samples that the kernel dropped (`PERF_RECORD_LOST_SAMPLES`).
    pub samples: u64,
    /// How often the kernel throttled an event (`PERF_RECORD_THROTTLE`).
    pub throttled: u64,
    /// Samples with the id of no event in the file.
    pub unknown: u64,
}
