//! Metrics of the cores: cycles and misses per instruction, use of the CPUs.
//!
//! Sources of the events: Intel SDM volume 3, chapter 21 (tables of events by model), Intel Optimization Reference Manual, appendix B; AMD PPR
//! of families 17h, 19h and 1Ah, "Core Performance Monitor Counters"; Arm Neoverse PMU guides, "Miss metrics".

use super::super::definition::{Definition, Formula, Group, Style, Unit};

const ANY: &str = "any CPU";

/// Misses per 1000 instructions.
const PER_THOUSAND: Unit = Unit::new(Style::Fine, "per 1000 insn");

pub(super) const METRICS: &[Definition] = &[
    Definition::asked(
        "cpi",
        Group::Default,
        Unit::new(Style::Ratio, "cycles per insn"),
        &[Formula::of(ANY, "cycles / instructions")],
        "Cycles per instruction",
    ),
    Definition::asked(
        "cpu_utilization",
        Group::Default,
        Unit::percent("of all CPUs"),
        &[Formula::of(ANY, "task-clock / (duration_time * #num_cpus_online)")],
        "CPU time as a part of the time of all online CPUs",
    ),
    Definition::asked(
        "branch_mpki",
        Group::Branch,
        PER_THOUSAND,
        &[Formula::of(ANY, "1000 * branch-misses / instructions")],
        "Mispredicted branches per 1000 instructions",
    ),
    Definition::asked(
        "l1d_mpki",
        Group::Cache,
        PER_THOUSAND,
        &[
            Formula::of("Intel since Skylake", "1000 * mem_load_retired.l1_miss / instructions"),
            Formula::of(
                "Intel since Ivy Bridge, E-cores",
                "1000 * mem_load_uops_retired.l1_miss / instructions",
            ),
            // On AMD and Arm, the kernel counts L1D refills as the generic event.
            Formula::of(ANY, "1000 * L1-dcache-load-misses / instructions"),
        ],
        "Loads that missed the first-level data cache per 1000 instructions",
    ),
    Definition::asked(
        "l2_mpki",
        Group::Cache,
        PER_THOUSAND,
        &[
            Formula::of("Intel since Skylake", "1000 * mem_load_retired.l2_miss / instructions"),
            Formula::of(
                "Intel since Ivy Bridge, E-cores",
                "1000 * mem_load_uops_retired.l2_miss / instructions",
            ),
            Formula::of("Intel Sandy Bridge", "1000 * l2_lines_in.all / instructions"),
            Formula::of("AMD Zen", "1000 * l2_cache_req_stat.ic_dc_miss_in_l2 / instructions"),
            Formula::of("Arm", "1000 * l2d_cache_refill / instructions"),
        ],
        "Accesses that missed the second-level cache per 1000 instructions",
    ),
    Definition::asked(
        "l3_mpki",
        Group::Cache,
        PER_THOUSAND,
        &[
            Formula::of("Intel since Skylake", "1000 * mem_load_retired.l3_miss / instructions"),
            Formula::of("Intel Haswell and Broadwell", "1000 * mem_load_uops_retired.l3_miss / instructions"),
            Formula::of("other Intel CPUs", "1000 * longest_lat_cache.miss / instructions"),
            Formula::of("AMD since Zen 4", "1000 * ls_any_fills_from_sys.dram_io_all / instructions"),
            Formula::of(
                "AMD Zen 3",
                "1000 * (ls_any_fills_from_sys.mem_io_local + ls_any_fills_from_sys.mem_io_remote) / instructions",
            ),
            Formula::of(
                "AMD Zen 2",
                "1000 * (ls_refills_from_sys.ls_mabresp_lcl_dram + ls_refills_from_sys.ls_mabresp_rmt_dram) / instructions",
            ),
            Formula::of("Arm", "1000 * ll_cache_miss_rd / instructions"),
        ],
        "Accesses that missed the last-level cache per 1000 instructions; on AMD, lines that the first-level cache got from memory",
    ),
    Definition::asked(
        "dtlb_walks_pki",
        Group::Tlb,
        PER_THOUSAND,
        &[
            Formula::of(
                "Intel since Sandy Bridge, E-cores",
                "1000 * (dtlb_load_misses.walk_completed + dtlb_store_misses.walk_completed) / instructions",
            ),
            Formula::of("AMD Zen 4 and 5", "1000 * ls_l1_d_tlb_miss.all_l2_miss / instructions"),
            Formula::of("AMD Zen 6", "1000 * ls_l1_d_tlb_miss.l2_miss_all / instructions"),
            Formula::of(
                "AMD Zen 2 and 3",
                "1000 * (ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss + ls_l1_d_tlb_miss.tlb_reload_coalesced_page_miss \
                 + ls_l1_d_tlb_miss.tlb_reload_2m_l2_miss + ls_l1_d_tlb_miss.tlb_reload_1g_l2_miss) / instructions",
            ),
            Formula::of(
                "AMD Zen",
                "1000 * (ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss + ls_l1_d_tlb_miss.tlb_reload_32k_l2_miss \
                 + ls_l1_d_tlb_miss.tlb_reload_2m_l2_miss + ls_l1_d_tlb_miss.tlb_reload_1g_l2_miss) / instructions",
            ),
            Formula::of("Arm", "1000 * dtlb_walk / instructions"),
        ],
        "Page walks for data per 1000 instructions",
    ),
    Definition::asked(
        "itlb_walks_pki",
        Group::Tlb,
        PER_THOUSAND,
        &[
            Formula::of("Intel", "1000 * itlb_misses.walk_completed / instructions"),
            Formula::of("AMD since Zen 4", "1000 * bp_l1_tlb_miss_l2_tlb_miss.all / instructions"),
            Formula::of("AMD Zen 2 and 3", "1000 * bp_l1_tlb_miss_l2_tlb_miss / instructions"),
            Formula::of("AMD Zen", "1000 * bp_l1_tlb_miss_l2_miss / instructions"),
            Formula::of("Arm", "1000 * itlb_walk / instructions"),
        ],
        "Page walks for instructions per 1000 instructions",
    ),
];
