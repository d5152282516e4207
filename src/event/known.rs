//! Well-known PMUs and events that this host may lack. They distinguish `power/energy-pkg/` in a virtual machine from a typing error.

use super::pattern;

/// Name patterns of PMUs, and a description of each.
const PMUS: &[(&str, &str)] = &[
    ("cpu", "the core PMU"),
    ("cpu_core", "the performance cores of hybrid Intel machines"),
    ("cpu_atom", "the efficient cores of hybrid Intel machines"),
    ("cpu_lowpower", "the low-power efficient cores of hybrid Intel machines"),
    ("uncore_*", "Intel's uncore (kernel module intel_uncore)"),
    ("power", "the energy counters, RAPL (kernel module rapl)"),
    ("power_core", "the energy counters of AMD's cores, RAPL (kernel module rapl)"),
    ("msr", "free-running counters of x86 (kernel module msr)"),
    ("cstate_*", "Intel's sleep states (kernel module intel_cstate)"),
    ("intel_pt", "Intel's processor trace"),
    ("intel_bts", "Intel's branch trace store"),
    ("ibs_*", "AMD's instruction-based sampling"),
    ("amd_*", "AMD's uncore (kernel module amd_uncore)"),
    ("i915", "Intel's graphics (kernel module i915)"),
    ("xe", "Intel's graphics (kernel module xe)"),
    ("armv7_*", "the cores of 32-bit Arm machines"),
    ("armv8_*", "the cores of 64-bit Arm machines"),
    ("apple_*", "the cores of Apple's machines"),
    ("arm_spe*", "Arm's statistical profiling extension (kernel module arm_spe_pmu)"),
    ("arm_cmn*", "Arm's mesh interconnect (kernel module arm_cmn)"),
    ("arm_dsu*", "Arm's shared cache unit (kernel module arm_dsu_pmu)"),
    ("arm_dmc620*", "Arm's memory controller (kernel module arm_dmc620_pmu)"),
    ("arm_cspmu*", "a PMU of Arm's CoreSight architecture (kernel module arm_cspmu_module)"),
    ("nvidia_*", "Nvidia's fabric and links (kernel module nvidia_cspmu)"),
    ("ampere_mcu_pmu*", "AmpereOne's memory controllers (kernel module ampere_cspmu)"),
    ("cxl_pmu_*", "a device on CXL (kernel module cxl_pmu)"),
    ("smmuv3_pmcg*", "Arm's I/O memory management unit (kernel module arm_smmuv3_pmu)"),
    ("cs_etm", "Arm's embedded trace"),
    ("hisi_*", "HiSilicon's uncore"),
    ("hv_24x7", "the hypervisor of POWER machines"),
    ("hv_gpci", "the hypervisor of POWER machines"),
    ("kprobe", "probes in the kernel (CONFIG_KPROBE_EVENTS)"),
    ("uprobe", "probes in programs (CONFIG_UPROBE_EVENTS)"),
];

/// Units of Intel's uncore whose prefix `uncore_` users often omit.
const UNCORE_UNITS: &[&str] =
    &["imc", "cha", "cbox", "arb", "iio", "irp", "upi", "qpi", "m2m", "m3upi", "pcu", "ubox"];

/// Name patterns of events that are written without their PMU, and that PMU.
const EVENTS: &[(&str, &str)] = &[
    ("energy-*", "power"),
    ("mem-loads*", "cpu"),
    ("mem-stores", "cpu"),
    ("topdown-*", "cpu"),
    ("slots", "cpu"),
    ("cycles-t", "cpu"),
    ("cycles-ct", "cpu"),
    ("tx-*", "cpu"),
    ("el-*", "cpu"),
    ("tsc", "msr"),
    ("aperf", "msr"),
    ("mperf", "msr"),
    ("pperf", "msr"),
    ("irperf", "msr"),
    ("smi", "msr"),
    ("cpu_thermal_margin", "msr"),
    ("c[0-9]*-residency", "cstate_core"),
    ("cpu_cycles", "armv8_pmuv3"),
    ("inst_retired", "armv8_pmuv3"),
];

/// Name patterns of PMUs that write samples to a buffer, and count nothing.
const RECORDERS: &[&str] = &["arm_spe_*", "cs_etm*", "intel_bts", "intel_pt", "hisi_ptt*"];

/// Name patterns of vendors' events, in lower case, and the generic event that counts almost the same.
const GENERIC: &[(&str, &str)] = &[
    ("cpu_clk_unhalted.*", "cycles"),
    ("ls_not_halted_cyc", "cycles"),
    ("cpu_cycles", "cycles"),
    ("inst_retired*", "instructions"),
    ("ex_ret_instr", "instructions"),
    ("br_inst_retired.*", "branches"),
    ("ex_ret_brn", "branches"),
    ("br_retired", "branches"),
    ("br_misp_retired.*", "branch-misses"),
    ("ex_ret_brn_misp", "branch-misses"),
    ("br_mis_pred*", "branch-misses"),
    ("mem_load_retired.l1_miss", "L1-dcache-load-misses"),
    ("l1d.replacement", "L1-dcache-load-misses"),
    ("l1d_cache_refill*", "L1-dcache-load-misses"),
    ("mem_load_retired.l3_miss", "LLC-load-misses"),
    ("longest_lat_cache.miss", "cache-misses"),
    ("ll_cache_miss*", "LLC-load-misses"),
    ("dtlb_load_misses.*", "dTLB-load-misses"),
    ("ls_l1_d_tlb_miss.*", "dTLB-load-misses"),
    ("l1d_tlb_refill*", "dTLB-load-misses"),
    ("itlb_misses.*", "iTLB-load-misses"),
    ("l1i_tlb_refill", "iTLB-load-misses"),
];

/// Reports whether a PMU writes samples to a buffer, and counts nothing.
pub(super) fn only_records(pmu: &str) -> bool {
    RECORDERS.iter().any(|name| pattern::matches(name, pmu))
}

/// Returns the generic event that counts almost the same as a vendor's event with this name in lower case.
pub(super) fn generic_of(event: &str) -> Option<&'static str> {
    GENERIC.iter().find(|(name, _)| pattern::matches(name, event)).map(|(_, generic)| *generic)
}

/// Returns the description of a well-known PMU.
pub(super) fn pmu(word: &str) -> Option<&'static str> {
    let word = if UNCORE_UNITS.contains(&word) { "uncore_imc" } else { word };
    PMUS.iter().find(|(name, _)| pattern::matches(name, word)).map(|(_, what)| *what)
}

/// Returns the PMU of a well-known event.
pub(super) fn pmu_of(event: &str) -> Option<&'static str> {
    EVENTS.iter().find(|(name, _)| pattern::matches(name, event)).map(|(_, pmu)| *pmu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_event_belongs_to_a_known_pmu() {
        for (event, of) in EVENTS {
            assert!(pmu(of).is_some(), "{event}");
        }
        assert_eq!(pmu_of("energy-pkg"), Some("power"));
        assert_eq!(pmu("imc"), pmu("uncore_imc_0"));
        assert_eq!((pmu("cpux"), pmu_of("cylces")), (None, None));
        for (event, of) in GENERIC {
            assert!(super::super::generic::find(of).is_some(), "{event}");
        }
    }
}
