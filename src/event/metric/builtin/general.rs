//! Metrics of perf's generic events, which perf shows by itself.
//!
//! Formulas and units: `tools/perf/util/stat-shadow.c` and `pmu-events/arch/common/common/metrics.json` of the kernel.

use super::super::definition::{Definition, Formula, Group, Style, Unit};

const ANY: &str = "any CPU";
const TSX: &str = "Intel CPUs with TSX (Haswell to Cascade Lake, Xeon since then)";

const fn shown(
    name: &'static str,
    alias: &'static str,
    group: Group,
    unit: Unit,
    formulas: &'static [Formula],
    help: &'static str,
) -> Definition {
    Definition { name, alias, group, help, unit, automatic: true, at: "", formulas }
}

/// Returns a rate per second of CPU time.
const fn rate(name: &'static str, formulas: &'static [Formula], help: &'static str) -> Definition {
    shown(name, "", Group::Default, Unit::new(Style::Rate, "/sec"), formulas, help)
}

const fn misses(
    name: &'static str,
    group: Group,
    unit: &'static str,
    formulas: &'static [Formula],
    help: &'static str,
) -> Definition {
    shown(name, "", group, Unit::percent(unit), formulas, help)
}

/// The metrics, in the order in which those of one event are shown.
pub(super) const METRICS: &[Definition] = &[
    shown(
        "CPUs_utilized",
        "",
        Group::Default,
        Unit::new(Style::Fine, "CPUs utilized"),
        &[Formula::of(ANY, "task-clock / duration_time")],
        "CPU time per second",
    ),
    rate(
        "cs_per_second",
        &[Formula::of(ANY, "context-switches / task-clock")],
        "Context switches per second of CPU time",
    ),
    rate(
        "migrations_per_second",
        &[Formula::of(ANY, "cpu-migrations / task-clock")],
        "Migrations to another CPU per second of CPU time",
    ),
    rate(
        "page_faults_per_second",
        &[Formula::of(ANY, "page-faults / task-clock")],
        "Page faults per second of CPU time",
    ),
    shown(
        "cycles_frequency",
        "GHz",
        Group::Default,
        Unit::new(Style::Fine, "GHz"),
        &[Formula::of(ANY, "cycles / task-clock / 1e9")],
        "Frequency of the cores while they ran",
    ),
    shown(
        "insn_per_cycle",
        "IPC",
        Group::Default,
        Unit::new(Style::Ratio, "insn per cycle"),
        &[Formula::of(ANY, "instructions / cycles")],
        "Instructions per cycle",
    ),
    Definition {
        at: "instructions",
        ..shown(
            "stalled_cycles_per_instruction",
            "",
            Group::Default,
            Unit::new(Style::Ratio, "stalled cycles per insn"),
            &[
                Formula::of(ANY, "max(stalled-cycles-frontend, stalled-cycles-backend) / instructions"),
                Formula::of(ANY, "stalled-cycles-frontend / instructions"),
                Formula::of(ANY, "stalled-cycles-backend / instructions"),
            ],
            "Stalled cycles per instruction, of the frontend or the backend, whichever has more",
        )
    },
    misses(
        "frontend_cycles_idle",
        Group::Default,
        "frontend cycles idle",
        &[Formula::of(ANY, "stalled-cycles-frontend / cycles")],
        "Cycles in which the frontend delivered nothing",
    ),
    misses(
        "backend_cycles_idle",
        Group::Default,
        "backend cycles idle",
        &[Formula::of(ANY, "stalled-cycles-backend / cycles")],
        "Cycles in which the backend executed nothing",
    ),
    rate("branch_frequency", &[Formula::of(ANY, "branches / task-clock")], "Branches per second of CPU time"),
    misses(
        "branch_miss_rate",
        Group::Default,
        "of all branches",
        &[Formula::of(ANY, "branch-misses / branches")],
        "Mispredicted branches per branch",
    ),
    misses(
        "cache_miss_rate",
        Group::Cache,
        "of all cache refs",
        &[Formula::of(ANY, "cache-misses / cache-references")],
        "Misses per access to the last-level cache",
    ),
    misses(
        "l1d_miss_rate",
        Group::Cache,
        "of all L1-dcache accesses",
        &[Formula::of(ANY, "L1-dcache-load-misses / L1-dcache-loads")],
        "Misses per load from the first-level data cache",
    ),
    misses(
        "llc_miss_rate",
        Group::Cache,
        "of all LL-cache accesses",
        &[Formula::of(ANY, "LLC-load-misses / LLC-loads")],
        "Misses per load from the last-level cache",
    ),
    misses(
        "l1i_miss_rate",
        Group::Cache,
        "of all L1-icache accesses",
        &[Formula::of(ANY, "L1-icache-load-misses / L1-icache-loads")],
        "Misses per load from the first-level instruction cache",
    ),
    misses(
        "dtlb_miss_rate",
        Group::Tlb,
        "of all dTLB cache accesses",
        &[Formula::of(ANY, "dTLB-load-misses / dTLB-loads")],
        "Misses per load through the data TLB",
    ),
    misses(
        "itlb_miss_rate",
        Group::Tlb,
        "of all iTLB cache accesses",
        &[Formula::of(ANY, "iTLB-load-misses / iTLB-loads")],
        "Misses per load through the instruction TLB",
    ),
    misses(
        "transactional_cycles",
        Group::Transaction,
        "transactional cycles",
        &[Formula::of(TSX, "cycles-t / cycles")],
        "Cycles in hardware transactions",
    ),
    Definition {
        // The counts are not read at the same instant.
        at: "cycles-ct",
        ..misses(
            "aborted_cycles",
            Group::Transaction,
            "aborted cycles",
            &[Formula::of(TSX, "max(0, cycles-t - cycles-ct) / cycles")],
            "Cycles in hardware transactions that were aborted",
        )
    },
    Definition {
        at: "tx-start",
        ..shown(
            "cycles_per_transaction",
            "",
            Group::Transaction,
            Unit::new(Style::Whole, "cycles / transaction"),
            &[Formula::of(TSX, "cycles-t / tx-start")],
            "Cycles per hardware transaction",
        )
    },
    Definition {
        at: "el-start",
        ..shown(
            "cycles_per_elision",
            "",
            Group::Transaction,
            Unit::new(Style::Whole, "cycles / elision"),
            &[Formula::of(TSX, "cycles-t / el-start")],
            "Cycles per elided lock",
        )
    },
];
