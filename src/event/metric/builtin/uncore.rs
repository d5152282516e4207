//! Metrics of the machine outside of its cores: memory bandwidth, power, sleep states.
//!
//! Sources: Intel uncore performance monitoring reference manuals (CAS commands transfer 64 bytes); AMD PPR of family 19h and later, "UMC
//! Performance Monitor Counters", and of families 17h and 19h, "Data Fabric" (a beat of a DRAM channel transfers 64 bytes); Intel SDM volume 3,
//! chapter 15 (RAPL, residency counters, which run at the rate of the time stamp counter).

use super::super::definition::{Definition, Formula, Group, Style, Unit};

/// Megabytes per second of an expression in bytes per second.
const BANDWIDTH: Unit = Unit { factor: 1e-6, text: "MB/s", style: Style::Fine };
const WATTS: Unit = Unit::new(Style::Ratio, "W");

const XEON: &str = "Intel Xeon with the PMU uncore_imc";
const NEW_XEON: &str = "Intel Xeon 6";
const CLIENT: &str = "Intel Core with the PMU uncore_imc_free_running";
const UMC: &str = "AMD since Zen 4 with the PMU amd_umc (Linux 6.10)";
const RAPL: &str = "machines with the PMU power (RAPL)";
const CSTATE: &str = "Intel CPUs with the PMUs cstate_core, cstate_pkg and msr";

/// Returns a residency. The residency is counted once for each core or socket, the time stamp counter on every CPU.
const fn residency(name: &'static str, formulas: &'static [Formula], help: &'static str) -> Definition {
    Definition::asked(name, Group::Cstate, Unit::percent("of the time"), formulas, help)
}

pub(super) const METRICS: &[Definition] = &[
    Definition::asked(
        "memory_bandwidth_read",
        Group::Memory,
        BANDWIDTH,
        &[
            Formula::of(XEON, "uncore_imc/cas_count_read/ / duration_time"),
            Formula::of(XEON, "64 * uncore_imc/unc_m_cas_count.rd/ / duration_time"),
            Formula::of(
                NEW_XEON,
                "64 * (uncore_imc/unc_m_cas_count_sch0.rd/ + uncore_imc/unc_m_cas_count_sch1.rd/) / duration_time",
            ),
            Formula::of(CLIENT, "uncore_imc_free_running/data_read/ / duration_time"),
            Formula::of("Intel Core", "uncore_imc/data_reads/ / duration_time"),
            Formula::of(UMC, "64 * amd_umc/umc_cas_cmd.rd/ / duration_time"),
        ],
        "Bytes read from memory",
    ),
    Definition::asked(
        "memory_bandwidth_write",
        Group::Memory,
        BANDWIDTH,
        &[
            Formula::of(XEON, "uncore_imc/cas_count_write/ / duration_time"),
            Formula::of(XEON, "64 * uncore_imc/unc_m_cas_count.wr/ / duration_time"),
            Formula::of(
                NEW_XEON,
                "64 * (uncore_imc/unc_m_cas_count_sch0.wr/ + uncore_imc/unc_m_cas_count_sch1.wr/) / duration_time",
            ),
            Formula::of(CLIENT, "uncore_imc_free_running/data_write/ / duration_time"),
            Formula::of("Intel Core", "uncore_imc/data_writes/ / duration_time"),
            Formula::of(UMC, "64 * amd_umc/umc_cas_cmd.wr/ / duration_time"),
        ],
        "Bytes written to memory",
    ),
    Definition::asked(
        "memory_bandwidth_total",
        Group::Memory,
        BANDWIDTH,
        &[
            Formula::of(XEON, "(uncore_imc/cas_count_read/ + uncore_imc/cas_count_write/) / duration_time"),
            Formula::of(
                XEON,
                "64 * (uncore_imc/unc_m_cas_count.rd/ + uncore_imc/unc_m_cas_count.wr/) / duration_time",
            ),
            Formula::of(
                NEW_XEON,
                "64 * (uncore_imc/unc_m_cas_count_sch0.rd/ + uncore_imc/unc_m_cas_count_sch1.rd/ \
                 + uncore_imc/unc_m_cas_count_sch0.wr/ + uncore_imc/unc_m_cas_count_sch1.wr/) / duration_time",
            ),
            Formula::of(
                CLIENT,
                "(uncore_imc_free_running/data_read/ + uncore_imc_free_running/data_write/) / duration_time",
            ),
            Formula::of("Intel Core", "(uncore_imc/data_reads/ + uncore_imc/data_writes/) / duration_time"),
            Formula::of(UMC, "64 * amd_umc/umc_cas_cmd.all/ / duration_time"),
            // One count for reads and writes.
            Formula::of(
                "AMD Zen to Zen 3 with the PMU amd_df",
                "64 * (amd_df/dram_channel_data_controller_0/ + amd_df/dram_channel_data_controller_1/ \
                 + amd_df/dram_channel_data_controller_2/ + amd_df/dram_channel_data_controller_3/ \
                 + amd_df/dram_channel_data_controller_4/ + amd_df/dram_channel_data_controller_5/ \
                 + amd_df/dram_channel_data_controller_6/ + amd_df/dram_channel_data_controller_7/) / duration_time",
            ),
        ],
        "Bytes read from and written to memory",
    ),
    Definition::asked(
        "package_power",
        Group::Energy,
        WATTS,
        &[Formula::of(RAPL, "power/energy-pkg/ / duration_time")],
        "Power of the sockets",
    ),
    Definition::asked(
        "cores_power",
        Group::Energy,
        WATTS,
        &[Formula::of(RAPL, "power/energy-cores/ / duration_time")],
        "Power of the cores",
    ),
    Definition::asked(
        "ram_power",
        Group::Energy,
        WATTS,
        &[Formula::of(RAPL, "power/energy-ram/ / duration_time")],
        "Power of the memory",
    ),
    Definition::asked(
        "psys_power",
        Group::Energy,
        WATTS,
        &[Formula::of(RAPL, "power/energy-psys/ / duration_time")],
        "Power of the platform",
    ),
    residency(
        "c1_core_residency",
        &[Formula::of(CSTATE, "cstate_core/c1-residency/ * #num_cpus_online / (#num_cores * msr/tsc/)")],
        "Time of the cores in C1",
    ),
    residency(
        "c6_core_residency",
        &[Formula::of(CSTATE, "cstate_core/c6-residency/ * #num_cpus_online / (#num_cores * msr/tsc/)")],
        "Time of the cores in C6",
    ),
    residency(
        "c7_core_residency",
        &[Formula::of(CSTATE, "cstate_core/c7-residency/ * #num_cpus_online / (#num_cores * msr/tsc/)")],
        "Time of the cores in C7",
    ),
    residency(
        "c2_pkg_residency",
        &[Formula::of(CSTATE, "cstate_pkg/c2-residency/ * #num_cpus_online / (#num_packages * msr/tsc/)")],
        "Time of the sockets in C2",
    ),
    residency(
        "c6_pkg_residency",
        &[Formula::of(CSTATE, "cstate_pkg/c6-residency/ * #num_cpus_online / (#num_packages * msr/tsc/)")],
        "Time of the sockets in C6",
    ),
];
