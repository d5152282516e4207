//! CPU flags and SMT, which determine the number of counters together with the model.

use crate::host::{self, Roots};

/// Facts about the cores that determine the number of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::event) struct CpuFeatures {
    pub(super) perfctr_core: bool,
    pub(super) perfctr_llc: bool,
    pub(super) perfctr_nb: bool,
    pub(super) perfmon_v2: bool,
    /// Whether the cores have no SMT, or the firmware disabled it. Only then does a thread have the counters of the whole core.
    pub(super) without_smt: bool,
}

impl CpuFeatures {
    /// Reads them from `/proc/cpuinfo` and sysfs. Files that cannot be read count as features that are absent.
    pub(in crate::event) fn read(roots: &Roots) -> Self {
        let cpuinfo = host::read_text(&roots.proc.join("cpuinfo")).unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
        let smt = host::read_text(&roots.sys.join("devices/system/cpu/smt/control"));
        Self {
            perfctr_core: has("perfctr_core"),
            perfctr_llc: has("perfctr_llc"),
            perfctr_nb: has("perfctr_nb"),
            perfmon_v2: has("perfmon_v2"),
            without_smt: smt.is_ok_and(|text| text.trim() == "notsupported"),
        }
    }
}
