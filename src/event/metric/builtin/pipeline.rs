//! Top-down metrics: the use of the issue slots of the pipeline.
//!
//! Sources: A. Yasin, "A Top-Down Method for Performance Analysis and Counters Architecture" (ISPASS 2014), and Intel's TMA metrics 5.1 for
//! cores before Ice Lake; Intel SDM volume 3, section 21.3.9.3 (`PERF_METRICS`) for Ice Lake and later, and `Documentation/topdown.txt` of the
//! kernel's perf; AMD PPR of family 19h model 11h and family 1Ah model 02h, "Pipeline Utilization"; Arm Neoverse V1, N2, V2, N3 and V3 PMU guides
//! and Arm's "Topdown methodology", AmpereOne PMU metrics.

use super::super::definition::{Definition, Formula, Group, Unit};

/// All slots of cores that count each category.
macro_rules! sum {
    () => {
        "(topdown-fe-bound + topdown-bad-spec + topdown-retiring + topdown-be-bound)"
    };
}
/// The same by the names of Intel's event lists for E-cores.
macro_rules! sum_atom {
    () => {
        "(topdown_fe_bound.all + topdown_bad_speculation.all + topdown_retiring.all + topdown_be_bound.all)"
    };
}
/// All slots of cores with four slots per cycle. The threads of a core share them.
macro_rules! slots_4 {
    () => {
        "(4 * (cpu_clk_unhalted.thread_any / 2 if #smt_on else cpu_clk_unhalted.thread))"
    };
}
/// Slots without uops because the core recovered from a misprediction or a machine clear.
macro_rules! recovery {
    () => {
        "4 * (int_misc.recovery_cycles_any / 2 if #smt_on else int_misc.recovery_cycles)"
    };
}
/// Bad speculation and backend of cores with four slots per cycle, multiplied with all slots.
macro_rules! wasted {
    () => {
        concat!("(uops_issued.any - uops_retired.retire_slots + ", recovery!(), ")")
    };
}
macro_rules! not_delivered {
    () => {
        concat!("(idq_uops_not_delivered.core + uops_issued.any + ", recovery!(), ")")
    };
}
/// Groups of the first level, and further groups. With hyper-threading, a core before Ice Lake has four general counters. Of the alternative
/// events, those that the expression does not need are left out.
macro_rules! groups_4 {
    ($more:literal) => {
        concat!(
            "{idq_uops_not_delivered.core,uops_issued.any,uops_retired.retire_slots,int_misc.recovery_cycles,\
             int_misc.recovery_cycles_any,cpu_clk_unhalted.thread,cpu_clk_unhalted.thread_any}",
            $more
        )
    };
}
/// Groups of the backend's parts.
macro_rules! groups_backend {
    () => {
        groups_4!(
            ",{cycle_activity.stalls_mem_any,exe_activity.bound_on_stores,cycle_activity.stalls_total,\
             exe_activity.1_ports_util},exe_activity.2_ports_util"
        )
    };
}
/// The part of the backend's slots that waited for memory.
macro_rules! memory_part {
    () => {
        concat!(
            "(cycle_activity.stalls_mem_any + exe_activity.bound_on_stores) / (cycle_activity.stalls_total \
             + exe_activity.1_ports_util + uops_retired.retire_slots / ",
            slots_4!(),
            " * exe_activity.2_ports_util + exe_activity.bound_on_stores)"
        )
    };
}
/// Slots of Arm cores.
macro_rules! slots_arm {
    () => {
        "(#slots * cpu_cycles)"
    };
}

const PERF_METRICS: &str = "Intel since Ice Lake";
const PERF_METRICS_2: &str = "Intel since Sapphire Rapids and Alder Lake (P-cores)";
const ATOM: &str = "Intel E-cores since Tremont";
const FOUR_WIDE: &str = "Intel Sandy Bridge to Cascade Lake";
const SKYLAKE: &str = "Intel Skylake to Cascade Lake";
const ZEN_4: &str = "AMD Zen 4";
const ZEN_5: &str = "AMD since Zen 5";
const NEOVERSE_N2: &str = "Arm Neoverse N2 and V2";
const NEOVERSE_V3: &str = "Arm Neoverse N3 and V3";
const AMPERE_ONE: &str = "AmpereOne";
const ARM: &str = "Arm cores with stall_slot";
const ARM_CYCLES: &str = "Arm cores without stall_slot, in cycles";

const MODELS_ZEN_4: &str = "amdzen4";
const MODELS_ZEN_5: &str = "amdzen5 amdzen6";
const MODELS_V1: &str = "arm/neoverse-v1";
/// Up to r0p2, the events of frontend slots also count each cycle.
const MODELS_OLD_N2: &str = "0x*410fd49[012]";
const MODELS_N2: &str = "arm/neoverse-n2-v2";
const MODELS_V3: &str = "arm/neoverse-n3 arm/neoverse-v3";
const MODELS_AMPERE: &str = "ampere/*";
const MODELS_ARM: &str = "arm/* fujitsu/* nvidia/*";

const fn category(
    name: &'static str,
    group: Group,
    unit: &'static str,
    formulas: &'static [Formula],
    help: &'static str,
) -> Definition {
    Definition { name, alias: "", group, help, unit: Unit::tenths(unit), automatic: true, at: "", formulas }
}

/// Returns a category of the second level that has no event of its own.
const fn rest(
    name: &'static str,
    at: &'static str,
    unit: &'static str,
    formulas: &'static [Formula],
    help: &'static str,
) -> Definition {
    Definition { at, ..category(name, Group::TopdownL2, unit, formulas, help) }
}

/// The categories of all slots.
pub(super) const LEVEL_1: &[Definition] = &[
    category(
        "retiring",
        Group::TopdownL1,
        "Retiring",
        &[
            Formula::of(PERF_METRICS, concat!("topdown-retiring / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown-retiring / ", sum!())),
            Formula::of(ATOM, concat!("topdown_retiring.all / ", sum_atom!())),
            Formula::of(FOUR_WIDE, concat!("uops_retired.retire_slots / ", slots_4!())),
            Formula::of(ZEN_4, "ex_ret_ops / (6 * ls_not_halted_cyc)").only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "ex_ret_ops / (8 * ls_not_halted_cyc)").only(MODELS_ZEN_5),
            Formula::of("AMD Zen 3", "ex_ret_ops / (6 * ls_not_halted_cyc)").only("amdzen3"),
            Formula::of("AMD Zen 2", "ex_ret_cops / (6 * ls_not_halted_cyc)").only("amdzen2"),
            Formula::of(
                NEOVERSE_N2,
                concat!("op_retired / op_spec * (1 - (stall_slot - cpu_cycles) / ", slots_arm!(), ")"),
            )
            .only(MODELS_OLD_N2),
            Formula::of(AMPERE_ONE, concat!("op_retired / ", slots_arm!())).only(MODELS_AMPERE),
            Formula::of(ARM, concat!("op_retired / op_spec * (1 - stall_slot / ", slots_arm!(), ")"))
                .only(MODELS_ARM),
        ],
        "Issue slots of instructions that retired",
    ),
    category(
        "bad_speculation",
        Group::TopdownL1,
        "Bad Speculation",
        &[
            Formula::of(PERF_METRICS, concat!("topdown-bad-spec / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown-bad-spec / ", sum!())),
            Formula::of(ATOM, concat!("topdown_bad_speculation.all / ", sum_atom!())),
            Formula::of(FOUR_WIDE, concat!(wasted!(), " / ", slots_4!())).in_groups(groups_4!("")),
            Formula::of(ZEN_4, "(de_src_op_disp.all - ex_ret_ops) / (6 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "(de_src_op_disp.all - ex_ret_ops) / (8 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_5),
            Formula::of(
                "Arm Neoverse V1",
                concat!(
                    "(1 - op_retired / op_spec) * (1 - stall_slot / ",
                    slots_arm!(),
                    ") + 4 * br_mis_pred / cpu_cycles"
                ),
            )
            .only(MODELS_V1),
            Formula::of(
                NEOVERSE_N2,
                concat!(
                    "(1 - op_retired / op_spec) * (1 - (stall_slot - cpu_cycles) / ",
                    slots_arm!(),
                    ") + 4 * br_mis_pred / cpu_cycles"
                ),
            )
            .only(MODELS_OLD_N2),
            Formula::of(
                NEOVERSE_N2,
                concat!(
                    "(1 - op_retired / op_spec) * (1 - stall_slot / ",
                    slots_arm!(),
                    ") + 4 * br_mis_pred / cpu_cycles"
                ),
            )
            .only(MODELS_N2),
            Formula::of(
                NEOVERSE_V3,
                concat!(
                    "(1 - op_retired / op_spec) * (1 - stall_slot / ",
                    slots_arm!(),
                    ") + stall_frontend_flush / cpu_cycles"
                ),
            )
            .only(MODELS_V3),
            Formula::of(AMPERE_ONE, concat!("(op_spec - op_retired) / ", slots_arm!())).only(MODELS_AMPERE),
            Formula::of(ARM, concat!("(1 - op_retired / op_spec) * (1 - stall_slot / ", slots_arm!(), ")"))
                .only(MODELS_ARM),
        ],
        "Issue slots lost to mispredictions and machine clears",
    ),
    category(
        "frontend_bound",
        Group::TopdownL1,
        "Frontend Bound",
        &[
            Formula::of(PERF_METRICS, concat!("topdown-fe-bound / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown-fe-bound / ", sum!())),
            Formula::of(ATOM, concat!("topdown_fe_bound.all / ", sum_atom!())),
            Formula::of(FOUR_WIDE, concat!("idq_uops_not_delivered.core / ", slots_4!())),
            Formula::of(ZEN_4, "de_no_dispatch_per_slot.no_ops_from_frontend / (6 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "de_no_dispatch_per_slot.no_ops_from_frontend / (8 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_5),
            Formula::of(
                "Arm Neoverse V1",
                concat!("stall_slot_frontend / ", slots_arm!(), " - 4 * br_mis_pred / cpu_cycles"),
            )
            .only(MODELS_V1),
            Formula::of(
                NEOVERSE_N2,
                concat!("(stall_slot_frontend - cpu_cycles) / ", slots_arm!(), " - br_mis_pred / cpu_cycles"),
            )
            .only(MODELS_OLD_N2),
            Formula::of(
                NEOVERSE_N2,
                concat!("stall_slot_frontend / ", slots_arm!(), " - br_mis_pred / cpu_cycles"),
            )
            .only(MODELS_N2),
            Formula::of(
                NEOVERSE_V3,
                concat!("stall_slot_frontend / ", slots_arm!(), " - stall_frontend_flush / cpu_cycles"),
            )
            .only(MODELS_V3),
            Formula::of(AMPERE_ONE, concat!("1 - (op_spec + stall_slot_backend) / ", slots_arm!()))
                .only(MODELS_AMPERE),
            Formula::of(ARM, concat!("stall_slot_frontend / ", slots_arm!())).only(MODELS_ARM),
            Formula::of(ARM_CYCLES, "stall_frontend / cpu_cycles").only(MODELS_ARM),
        ],
        "Issue slots without instructions from the frontend",
    ),
    category(
        "backend_bound",
        Group::TopdownL1,
        "Backend Bound",
        &[
            Formula::of(PERF_METRICS, concat!("topdown-be-bound / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown-be-bound / ", sum!())),
            Formula::of(ATOM, concat!("topdown_be_bound.all / ", sum_atom!())),
            Formula::of(FOUR_WIDE, concat!("1 - ", not_delivered!(), " / ", slots_4!()))
                .in_groups(groups_4!("")),
            Formula::of(ZEN_4, "de_no_dispatch_per_slot.backend_stalls / (6 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "de_no_dispatch_per_slot.backend_stalls / (8 * ls_not_halted_cyc)")
                .only(MODELS_ZEN_5),
            Formula::of(
                NEOVERSE_N2,
                concat!("stall_slot_backend / ", slots_arm!(), " - 3 * br_mis_pred / cpu_cycles"),
            )
            .only(MODELS_N2),
            Formula::of("Arm cores with stall_slot", concat!("stall_slot_backend / ", slots_arm!()))
                .only("arm/* fujitsu/* nvidia/* ampere/*"),
            Formula::of(ARM_CYCLES, "stall_backend / cpu_cycles").only(MODELS_ARM),
        ],
        "Issue slots in which the backend accepted no instructions",
    ),
    Definition {
        automatic: false,
        ..category(
            "smt_contention",
            Group::TopdownL1,
            "SMT Contention",
            &[
                Formula::of(ZEN_4, "de_no_dispatch_per_slot.smt_contention / (6 * ls_not_halted_cyc)")
                    .only(MODELS_ZEN_4),
                Formula::of(ZEN_5, "de_no_dispatch_per_slot.smt_contention / (8 * ls_not_halted_cyc)")
                    .only(MODELS_ZEN_5),
            ],
            "Issue slots that the other thread of the core used",
        )
    },
];

/// The parts of the categories.
pub(super) const LEVEL_2: &[Definition] = &[
    category(
        "heavy_operations",
        Group::TopdownL2,
        "Heavy Operations",
        &[
            Formula::of(PERF_METRICS_2, concat!("topdown-heavy-ops / ", sum!())).led_by("slots"),
            Formula::of(
                SKYLAKE,
                concat!("(uops_retired.retire_slots + uops_retired.macro_fused - instructions) / ", slots_4!()),
            )
            .only("skylake skylakex cascadelakex"),
            Formula::of(ZEN_4, "ex_ret_ucode_ops / (6 * ls_not_halted_cyc)").only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "ex_ret_ucode_ops / (8 * ls_not_halted_cyc)").only(MODELS_ZEN_5),
        ],
        "Retiring: instructions of several operations; on AMD, operations of microcode",
    ),
    rest(
        "light_operations",
        "topdown-heavy-ops",
        "Light Operations",
        &[
            Formula::of(PERF_METRICS_2, concat!("max(0, topdown-retiring - topdown-heavy-ops) / ", sum!())).led_by("slots"),
            Formula::of(SKYLAKE, concat!("(instructions - uops_retired.macro_fused) / ", slots_4!()))
                .only("skylake skylakex cascadelakex"),
            Formula::of(ZEN_4, "(ex_ret_ops - ex_ret_ucode_ops) / (6 * ls_not_halted_cyc)").only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "(ex_ret_ops - ex_ret_ucode_ops) / (8 * ls_not_halted_cyc)").only(MODELS_ZEN_5),
        ],
        "Retiring: other instructions",
    ),
    category(
        "branch_mispredicts",
        Group::TopdownL2,
        "Branch Mispredict",
        &[
            Formula::of(PERF_METRICS_2, concat!("topdown-br-mispredict / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown_bad_speculation.mispredict / ", sum_atom!())),
            Formula::of(
                FOUR_WIDE,
                concat!(
                    "br_misp_retired.all_branches / (br_misp_retired.all_branches + machine_clears.count) * ",
                    wasted!(),
                    " / ",
                    slots_4!()
                ),
            )
            .in_groups(groups_4!(",{br_misp_retired.all_branches,machine_clears.count}")),
            Formula::of(
                ZEN_4,
                "(de_src_op_disp.all - ex_ret_ops) / (6 * ls_not_halted_cyc) * ex_ret_brn_misp \
                 / (ex_ret_brn_misp + resyncs_or_nc_redirects)",
            )
            .only(MODELS_ZEN_4),
            Formula::of(
                "AMD Zen 5",
                "(de_src_op_disp.all - ex_ret_ops) / (8 * ls_not_halted_cyc) * ex_ret_brn_misp \
                 / (ex_ret_brn_misp + bp_redirects.resync)",
            )
            .only("amdzen5"),
        ],
        "Bad speculation: mispredicted branches",
    ),
    rest(
        "machine_clears",
        "topdown-br-mispredict",
        "Machine Clears",
        &[
            Formula::of(PERF_METRICS_2, concat!("max(0, topdown-bad-spec - topdown-br-mispredict) / ", sum!()))
                .led_by("slots"),
            Formula::of(ATOM, concat!("topdown_bad_speculation.machine_clears / ", sum_atom!())),
            Formula::of(
                FOUR_WIDE,
                concat!(
                    "machine_clears.count / (br_misp_retired.all_branches + machine_clears.count) * ",
                    wasted!(),
                    " / ",
                    slots_4!()
                ),
            )
            .in_groups(groups_4!(",{br_misp_retired.all_branches,machine_clears.count}")),
            Formula::of(
                ZEN_4,
                "(de_src_op_disp.all - ex_ret_ops) / (6 * ls_not_halted_cyc) * resyncs_or_nc_redirects \
                 / (ex_ret_brn_misp + resyncs_or_nc_redirects)",
            )
            .only(MODELS_ZEN_4),
            Formula::of(
                "AMD Zen 5",
                "(de_src_op_disp.all - ex_ret_ops) / (8 * ls_not_halted_cyc) * bp_redirects.resync \
                 / (ex_ret_brn_misp + bp_redirects.resync)",
            )
            .only("amdzen5"),
        ],
        "Bad speculation: pipeline flushes for other reasons",
    ),
    category(
        "fetch_latency",
        Group::TopdownL2,
        "Fetch Latency",
        &[
            Formula::of(PERF_METRICS_2, concat!("topdown-fetch-lat / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown_fe_bound.frontend_latency / ", sum_atom!())),
            Formula::of(FOUR_WIDE, concat!("4 * idq_uops_not_delivered.cycles_0_uops_deliv.core / ", slots_4!())).only(
                "sandybridge jaketown ivybridge ivytown haswell haswellx broadwell broadwellde broadwellx skylake skylakex \
                 cascadelakex",
            ),
            Formula::of(ZEN_4, "cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=6/ / ls_not_halted_cyc")
                .only(MODELS_ZEN_4),
            Formula::of(ZEN_5, "cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=8/ / ls_not_halted_cyc")
                .only(MODELS_ZEN_5),
        ],
        "Frontend bound: cycles without any instruction",
    ),
    rest(
        "fetch_bandwidth",
        "topdown-fetch-lat",
        "Fetch Bandwidth",
        &[
            Formula::of(PERF_METRICS_2, concat!("max(0, topdown-fe-bound - topdown-fetch-lat) / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown_fe_bound.frontend_bandwidth / ", sum_atom!())),
            Formula::of(
                FOUR_WIDE,
                concat!(
                    "(idq_uops_not_delivered.core - 4 * idq_uops_not_delivered.cycles_0_uops_deliv.core) / ",
                    slots_4!()
                ),
            )
            .only(
                "sandybridge jaketown ivybridge ivytown haswell haswellx broadwell broadwellde broadwellx skylake skylakex \
                 cascadelakex",
            ),
            Formula::of(
                ZEN_4,
                "(de_no_dispatch_per_slot.no_ops_from_frontend \
                 - 6 * cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=6/) / (6 * ls_not_halted_cyc)",
            )
            .only(MODELS_ZEN_4),
            Formula::of(
                ZEN_5,
                "(de_no_dispatch_per_slot.no_ops_from_frontend \
                 - 8 * cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=8/) / (8 * ls_not_halted_cyc)",
            )
            .only(MODELS_ZEN_5),
        ],
        "Frontend bound: cycles with fewer instructions than slots",
    ),
    category(
        "memory_bound",
        Group::TopdownL2,
        "Memory Bound",
        &[
            Formula::of(PERF_METRICS_2, concat!("topdown-mem-bound / ", sum!())).led_by("slots"),
            Formula::of(
                SKYLAKE,
                concat!(memory_part!(), " * (1 - ", not_delivered!(), " / ", slots_4!(), ")"),
            )
            .only("skylake skylakex cascadelakex")
            .in_groups(groups_backend!()),
            Formula::of(
                ZEN_4,
                "de_no_dispatch_per_slot.backend_stalls / (6 * ls_not_halted_cyc) * ex_no_retire.load_not_complete \
                 / ex_no_retire.not_complete",
            )
            .only(MODELS_ZEN_4),
            Formula::of(
                ZEN_5,
                "de_no_dispatch_per_slot.backend_stalls / (8 * ls_not_halted_cyc) * ex_no_retire.load_not_complete \
                 / ex_no_retire.not_complete",
            )
            .only(MODELS_ZEN_5),
            Formula::of(NEOVERSE_V3, "stall_backend_membound / cpu_cycles").only(MODELS_V3),
        ],
        "Backend bound: waits for memory",
    ),
    rest(
        "core_bound",
        "topdown-mem-bound",
        "Core Bound",
        &[
            Formula::of(PERF_METRICS_2, concat!("max(0, topdown-be-bound - topdown-mem-bound) / ", sum!())).led_by("slots"),
            Formula::of(ATOM, concat!("topdown_be_bound.alloc_restrictions / ", sum_atom!())),
            Formula::of(
                SKYLAKE,
                concat!("(1 - ", memory_part!(), ") * (1 - ", not_delivered!(), " / ", slots_4!(), ")"),
            )
            .only("skylake skylakex cascadelakex")
            .in_groups(groups_backend!()),
            Formula::of(
                ZEN_4,
                "de_no_dispatch_per_slot.backend_stalls / (6 * ls_not_halted_cyc) \
                 * (1 - ex_no_retire.load_not_complete / ex_no_retire.not_complete)",
            )
            .only(MODELS_ZEN_4),
            Formula::of(
                ZEN_5,
                "de_no_dispatch_per_slot.backend_stalls / (8 * ls_not_halted_cyc) \
                 * (1 - ex_no_retire.load_not_complete / ex_no_retire.not_complete)",
            )
            .only(MODELS_ZEN_5),
            Formula::of(NEOVERSE_V3, "stall_backend_cpubound / cpu_cycles").only(MODELS_V3),
        ],
        "Backend bound: waits for execution units",
    ),
];
