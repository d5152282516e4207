//! The formulas of the built-in metrics: their events, and their values on counts worked by hand.

use std::collections::BTreeSet;

use super::super::*;
use super::machines::{MACHINES, catalog, write};
use crate::event::Missing;

#[test]
fn every_event_of_every_metric_resolves_on_its_models_and_every_formula_is_used() {
    let mut used = BTreeSet::new();
    for machine in MACHINES {
        for threads in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let catalog = write(machine, threads, dir.path());
            for metric in catalog.all_metrics() {
                let place = format!("{} {}", machine.name, metric.definition.name);
                let [formula] = &metric.formulas[..] else { panic!("{place}") };
                assert!(formula.constants().is_empty(), "{place}: {formula}");
                let grouped: Vec<_> = metric.needs.iter().flat_map(|group| &group.events).collect();
                for event in formula.events() {
                    assert!(grouped.contains(&event), "{place}: {event} of {formula} is in no group");
                }
                for event in grouped {
                    let resolved = catalog.resolve(event).unwrap_or_else(|error| panic!("{place}: {error}"));
                    let pmu = metric.pmu.as_ref();
                    assert!(
                        pmu.is_none() || resolved.iter().all(|event| event.pmu.as_ref() == pmu),
                        "{place}: {event}"
                    );
                }
                assert_eq!(formula.to_string().parse_again(), *formula, "{place}");
                let formulas = metric.definition.formulas.iter().enumerate();
                for (index, written) in formulas.filter(|(_, written)| written.is_of(&metric)) {
                    used.insert((metric.definition.name, index, written.cpus));
                }
            }
        }
    }
    let mut unused = Vec::new();
    for definition in definitions() {
        for (index, formula) in definition.formulas.iter().enumerate() {
            // Two formulas of stalled cycles are for measurements without one of both events.
            let is_alternative = definition.name == "stalled_cycles_per_instruction";
            if !is_alternative && !used.contains(&(definition.name, index, formula.cpus)) {
                unused.push(format!("{} {}: {}", definition.name, formula.cpus, formula.expression));
            }
        }
    }
    assert_eq!(unused, [""; 0]);
}

/// Test helpers of texts.
trait ParseAgain {
    fn parse_again(&self) -> Expression;
}

impl ParseAgain for String {
    fn parse_again(&self) -> Expression {
        parse(self).unwrap_or_else(|error| panic!("{self}: {error}"))
    }
}

impl definition::Formula {
    /// Reports whether a metric of a host has this formula.
    fn is_of(&self, metric: &Metric) -> bool {
        let slots = |constant| (constant != Constant::TscFrequency).then_some(1.0);
        let names = |expression: &Expression| {
            [1.0, 0.0].map(|smt| {
                let of = |constant| if constant == Constant::SmtOn { Some(smt) } else { slots(constant) };
                expression.on_host(&of).keys().iter().map(ToString::to_string).collect::<Vec<_>>()
            })
        };
        let own = parse(self.expression).unwrap();
        let theirs: Vec<String> = metric.formulas[0].keys().iter().map(ToString::to_string).collect();
        let lead = metric
            .needs
            .iter()
            .any(|group| group.events.iter().any(|event| &*event_key(&event.name) == "slots"));
        names(&own).contains(&theirs) && lead != self.leader.is_empty()
    }
}

#[test]
fn each_family_has_its_metrics() {
    const LEVEL_1: &str = "retiring bad_speculation frontend_bound backend_bound";
    const LEVEL_2: &str = "heavy_operations light_operations branch_mispredicts machine_clears fetch_latency fetch_bandwidth \
         memory_bound core_bound";
    for (cpu, group, expected) in [
        ("haswellx", "topdown-l1", LEVEL_1),
        ("haswellx", "topdown-l2", "branch_mispredicts machine_clears fetch_latency fetch_bandwidth"),
        ("skylakex", "TopdownL2", LEVEL_2),
        ("icelakex", "topdown_l1", LEVEL_1),
        ("sapphirerapids", "topdown-l2", LEVEL_2),
        ("sierraforest", "topdown-l1", LEVEL_1),
        (
            "sierraforest",
            "topdown-l2",
            "branch_mispredicts machine_clears fetch_latency fetch_bandwidth core_bound",
        ),
        ("amdzen2", "topdown-l1", "retiring"),
        ("amdzen4", "topdown-l1", "retiring bad_speculation frontend_bound backend_bound smt_contention"),
        ("amdzen5", "topdown-l2", LEVEL_2),
        ("arm/neoverse-n1", "topdown-l1", "frontend_bound backend_bound"),
        ("arm/neoverse-v1", "topdown-l1", LEVEL_1),
        ("arm/neoverse-v3", "topdown-l2", "memory_bound core_bound"),
        ("icelakex", "memory", "memory_bandwidth_read memory_bandwidth_write memory_bandwidth_total"),
        ("amdzen2", "memory", "memory_bandwidth_total"),
        ("sapphirerapids", "energy", "package_power ram_power"),
    ] {
        let (_dir, catalog) = catalog(cpu, 2);
        let metrics = catalog.metrics(group).unwrap();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.definition.name).collect();
        assert_eq!(names, expected.split_ascii_whitespace().collect::<Vec<_>>(), "{cpu} {group}");
    }
}

#[test]
fn each_type_of_core_of_a_hybrid_machine_has_its_formula() {
    let (_dir, catalog) = catalog("alderlake", 1);
    let text = |word: &str| -> Vec<String> {
        let metrics = catalog.metrics(word).unwrap();
        let groups =
            |metric: &Metric| metric.needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        metrics.iter().map(|metric| format!("{:?} {}", metric.pmu.as_deref(), groups(metric))).collect()
    };
    assert_eq!(text("IPC"), ["None {instructions,cycles}"]);
    let retiring = text("retiring");
    assert_eq!(retiring.len(), 2, "{retiring:?}");
    assert!(retiring[0].starts_with("Some(\"cpu_atom\") {cpu_atom/topdown-retiring/"), "{retiring:?}");
    assert!(
        retiring[1].starts_with("Some(\"cpu_core\") {cpu_core/slots/,cpu_core/topdown-retiring/"),
        "{retiring:?}"
    );
    assert_eq!(text("l1d_mpki").len(), 2);
}

#[test]
fn a_metric_of_other_cpus_leads_to_them_and_to_the_nearest_here() {
    let (_dir, catalog) = catalog("amdzen2", 1);
    let error = catalog.metrics("bad_speculation").unwrap_err();
    assert_eq!(error.cause, Missing::AbsentOnHost);
    let error = error.to_string();
    for words in [
        "bad_speculation: this CPU (amdzen2)",
        "Intel since Ice Lake",
        "AMD Zen 4",
        "nearest metrics of this host: retiring",
    ] {
        assert!(error.contains(words), "{error}");
    }
    let error = catalog.metrics("bad_speculatoin").unwrap_err();
    assert_eq!((error.cause, error.suggestion.as_deref()), (Missing::UnknownName, Some("bad_speculation")));
}

/// Evaluates a metric on a host with these counts.
fn on(cpu: &str, threads: u32, metric: &str, counts: &[(&str, f64)]) -> f64 {
    let (_dir, catalog) = catalog(cpu, threads);
    let metrics = catalog.metrics(metric).unwrap();
    let count = |key: &str| counts.iter().find(|(name, _)| *name == key).map(|(_, count)| *count);
    let value = metrics.iter().find_map(|metric| metric.value(Some(2.0), &count));
    value.unwrap_or_else(|| panic!("{cpu} {metric}: {}", metrics[0].formulas[0]))
}

#[track_caller]
fn is_about(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} {expected}");
}

/// Yasin, section 4.2: retiring = retired slots / slots, and so on, with four slots per cycle. 1000 cycles are 4000 slots: 1000 not delivered,
/// 2600 issued, 2000 retired, 50 cycles of recovery (200 slots).
#[test]
fn four_slots_per_cycle_are_divided_as_in_the_top_down_method() {
    let counts = [
        ("cpu_clk_unhalted.thread", 1000.0),
        ("idq_uops_not_delivered.core", 1000.0),
        ("uops_issued.any", 2600.0),
        ("uops_retired.retire_slots", 2000.0),
        ("int_misc.recovery_cycles", 50.0),
        ("br_misp_retired.all_branches", 30.0),
        ("machine_clears.count", 10.0),
        ("idq_uops_not_delivered.cycles_0_uops_deliv.core", 150.0),
    ];
    for cpu in ["sandybridge", "haswellx", "skylakex", "cascadelakex"] {
        is_about(on(cpu, 1, "retiring", &counts), 0.5);
        is_about(on(cpu, 1, "frontend_bound", &counts), 0.25);
        is_about(on(cpu, 1, "bad_speculation", &counts), (2600.0 - 2000.0 + 200.0) / 4000.0);
        is_about(on(cpu, 1, "backend_bound", &counts), 0.05);
        is_about(on(cpu, 1, "branch_mispredicts", &counts), 0.15);
        is_about(on(cpu, 1, "machine_clears", &counts), 0.05);
        is_about(on(cpu, 1, "fetch_latency", &counts), 0.15);
        is_about(on(cpu, 1, "fetch_bandwidth", &counts), 0.1);
    }
    // Two threads share the slots of a core: its cycles and recovery cycles are halved.
    let shared = [
        ("cpu_clk_unhalted.thread_any", 2000.0),
        ("idq_uops_not_delivered.core", 1000.0),
        ("uops_issued.any", 2600.0),
        ("uops_retired.retire_slots", 2000.0),
        ("int_misc.recovery_cycles_any", 100.0),
    ];
    is_about(on("skylakex", 2, "backend_bound", &shared), 0.05);
    is_about(on("skylakex", 2, "bad_speculation", &shared), 0.2);
    // TMA 5.1: memory bound = stalls of memory / (all stalls and few ports) × backend bound; (100 + 20) / (200 + 30 + 0.5 × 60 + 20) = 3/7.
    let memory = [
        &counts[..],
        &[
            ("cycle_activity.stalls_mem_any", 100.0),
            ("exe_activity.bound_on_stores", 20.0),
            ("cycle_activity.stalls_total", 200.0),
            ("exe_activity.1_ports_util", 30.0),
            ("exe_activity.2_ports_util", 60.0),
        ],
    ]
    .concat();
    is_about(on("skylakex", 1, "memory_bound", &memory), 0.05 * 3.0 / 7.0);
    is_about(on("skylakex", 1, "core_bound", &memory), 0.05 * 4.0 / 7.0);
}

/// SDM 21.3.9.3: each field of PERF_METRICS is a fraction of the slots; the kernel multiplies it with the slots.
#[test]
fn fixed_metrics_are_shares_of_the_sum_of_all_slots() {
    let counts = [
        ("topdown-retiring", 300.0),
        ("topdown-bad-spec", 100.0),
        ("topdown-fe-bound", 200.0),
        ("topdown-be-bound", 400.0),
        ("topdown-heavy-ops", 50.0),
        ("topdown-mem-bound", 250.0),
    ];
    for cpu in ["icelakex", "sapphirerapids", "sierraforest"] {
        is_about(on(cpu, 2, "retiring", &counts), 0.3);
        is_about(on(cpu, 2, "backend_bound", &counts), 0.4);
    }
    is_about(on("sapphirerapids", 2, "light_operations", &counts), 0.25);
    is_about(on("sapphirerapids", 2, "core_bound", &counts), 0.15);
    let atom = [
        ("topdown_retiring.all", 300.0),
        ("topdown_bad_speculation.all", 100.0),
        ("topdown_fe_bound.all", 200.0),
        ("topdown_be_bound.all", 400.0),
    ];
    is_about(on("snowridgex", 1, "bad_speculation", &atom), 0.1);
}

/// PPR 19h model 11h: 6 dispatch slots per cycle, PPR 1Ah model 02h: 8. 1000 cycles.
#[test]
fn amd_divides_by_its_dispatch_width() {
    let counts = [
        ("ls_not_halted_cyc", 1000.0),
        ("ex_ret_ops", 2400.0),
        ("de_src_op_disp.all", 3000.0),
        ("de_no_dispatch_per_slot.no_ops_from_frontend", 1200.0),
        ("de_no_dispatch_per_slot.backend_stalls", 1500.0),
        ("de_no_dispatch_per_slot.smt_contention", 300.0),
        ("ex_no_retire.load_not_complete", 30.0),
        ("ex_no_retire.not_complete", 40.0),
        ("cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=0x6", 150.0),
        ("cpu/de_no_dispatch_per_slot.no_ops_from_frontend,cmask=0x8", 100.0),
    ];
    for (cpu, width) in [("amdzen4", 6000.0), ("amdzen5", 8000.0), ("amdzen6", 8000.0)] {
        is_about(on(cpu, 2, "retiring", &counts), 2400.0 / width);
        is_about(on(cpu, 2, "bad_speculation", &counts), 600.0 / width);
        is_about(on(cpu, 2, "frontend_bound", &counts), 1200.0 / width);
        is_about(on(cpu, 2, "backend_bound", &counts), 1500.0 / width);
        is_about(on(cpu, 2, "smt_contention", &counts), 300.0 / width);
        is_about(on(cpu, 2, "memory_bound", &counts), 1500.0 / width * 0.75);
    }
    is_about(on("amdzen4", 2, "fetch_latency", &counts), 0.15);
    is_about(on("amdzen4", 2, "fetch_bandwidth", &counts), (1200.0 - 900.0) / 6000.0);
    is_about(on("amdzen5", 2, "fetch_latency", &counts), 0.1);
    is_about(on("amdzen3", 2, "retiring", &counts), 0.4);
    is_about(on("amdzen2", 2, "retiring", &[("ls_not_halted_cyc", 1000.0), ("ex_ret_cops", 3000.0)]), 0.5);
}

/// Arm's topdown methodology: 1000 cycles of 8 slots; 2000 stalled slots of the frontend, 2400 of the backend; three quarters of the speculated
/// operations retired.
#[test]
fn arm_divides_by_the_slots_of_the_core() {
    let counts = [
        ("cpu_cycles", 1000.0),
        ("stall_slot", 4400.0),
        ("stall_slot_frontend", 2000.0),
        ("stall_slot_backend", 2400.0),
        ("op_retired", 3000.0),
        ("op_spec", 4000.0),
        ("br_mis_pred", 10.0),
        ("stall_frontend_flush", 20.0),
        ("stall_frontend", 300.0),
        ("stall_backend", 400.0),
    ];
    is_about(on("arm/cortex-a78", 1, "frontend_bound", &counts), 0.25);
    is_about(on("arm/cortex-a78", 1, "backend_bound", &counts), 0.3);
    is_about(on("arm/cortex-a78", 1, "retiring", &counts), 0.75 * 0.45);
    is_about(on("arm/cortex-a78", 1, "bad_speculation", &counts), 0.25 * 0.45);
    is_about(on("arm/neoverse-v1", 1, "frontend_bound", &counts), 0.25 - 0.04);
    is_about(on("arm/neoverse-v1", 1, "bad_speculation", &counts), 0.25 * 0.45 + 0.04);
    // Neoverse N2 up to r0p2 counts each cycle as stalled slots, too.
    is_about(on("0x00000000410fd490", 1, "frontend_bound", &counts), 0.125 - 0.01);
    is_about(on("0x00000000410fd493", 1, "frontend_bound", &counts), 0.25 - 0.01);
    is_about(on("0x00000000410fd493", 1, "backend_bound", &counts), 0.3 - 0.03);
    is_about(on("arm/neoverse-v3", 1, "frontend_bound", &counts), 0.25 - 0.02);
    is_about(on("ampere/ampereone", 1, "retiring", &counts), 3000.0 / 8000.0);
    is_about(on("ampere/ampereone", 1, "bad_speculation", &counts), 1000.0 / 8000.0);
    is_about(on("ampere/ampereone", 1, "frontend_bound", &counts), 0.2);
    is_about(on("arm/neoverse-n1", 1, "frontend_bound", &counts), 0.3);
    is_about(on("arm/neoverse-n1", 1, "backend_bound", &counts), 0.4);
}

/// A CAS command transfers 64 bytes; the measurement takes two seconds.
#[test]
fn bandwidth_power_and_residency_are_per_second() {
    is_about(on("skylakex", 2, "memory_bandwidth_read", &[("uncore_imc/cas_count_read", 6.4e9)]), 3.2e9);
    let both = [("amd_umc/umc_cas_cmd.rd", 1e8), ("amd_umc/umc_cas_cmd.all", 1.5e8)];
    is_about(on("amdzen4", 2, "memory_bandwidth_read", &both), 3.2e9);
    is_about(on("amdzen4", 2, "memory_bandwidth_total", &both), 4.8e9);
    is_about(on("skylakex", 2, "package_power", &[("power/energy-pkg", 300.0)]), 150.0);
    // Two cores with two threads: the counter of each core ran half of the time of four time stamp counters.
    let residency = [("cstate_core/c6-residency", 2e9), ("msr/tsc", 8e9), ("cstate_pkg/c6-residency", 1e9)];
    is_about(on("skylakex", 2, "c6_core_residency", &residency), 0.5);
    is_about(on("skylakex", 2, "c6_pkg_residency", &residency), 0.5);
}

#[test]
fn misses_are_per_thousand_instructions() {
    let per = |cpu: &str, metric: &str, events: &[&str]| {
        let counts: Vec<(&str, f64)> =
            events.iter().map(|event| (*event, 500.0)).chain([("instructions", 1e5)]).collect();
        on(cpu, 2, metric, &counts)
    };
    is_about(per("skylakex", "l1d_mpki", &["mem_load_retired.l1_miss"]), 5.0);
    is_about(per("haswellx", "l3_mpki", &["mem_load_uops_retired.l3_miss"]), 5.0);
    is_about(per("amdzen4", "l2_mpki", &["l2_cache_req_stat.ic_dc_miss_in_l2"]), 5.0);
    is_about(
        per(
            "amdzen3",
            "l3_mpki",
            &["ls_any_fills_from_sys.mem_io_local", "ls_any_fills_from_sys.mem_io_remote"],
        ),
        10.0,
    );
    is_about(per("arm/neoverse-n1", "l3_mpki", &["ll_cache_miss_rd"]), 5.0);
    is_about(per("arm/neoverse-v1", "dtlb_walks_pki", &["dtlb_walk"]), 5.0);
    let walks = ["dtlb_load_misses.walk_completed", "dtlb_store_misses.walk_completed"];
    is_about(per("icelakex", "dtlb_walks_pki", &walks), 10.0);
    is_about(per("amdzen1", "branch_mpki", &["branch-misses"]), 5.0);
}

#[test]
fn groups_of_the_first_level_fit_the_counters_of_a_thread() {
    // Before Ice Lake, four general counters with hyper-threading; since Zen 4, six; the fixed counter of cycles takes none.
    for (cpu, general, free) in [
        (
            "skylakex",
            4,
            &["cpu_clk_unhalted.thread_any", "cpu_clk_unhalted.thread", "instructions", "cycles"][..],
        ),
        ("amdzen4", 6, &[]),
        ("arm/neoverse-v1", 6, &["cpu_cycles"]),
    ] {
        let (_dir, catalog) = catalog(cpu, 2);
        for metric in
            catalog.metrics("topdown-l1").unwrap().into_iter().chain(catalog.metrics("cache").unwrap())
        {
            for group in &metric.needs {
                let taken =
                    group.events.iter().filter(|event| !free.contains(&&*event_key(&event.name))).count();
                assert!(taken <= general, "{cpu} {}: {group}", metric.definition.name);
            }
        }
    }
}

#[test]
fn the_documentation_has_each_metric() {
    let text = include_str!("../../../../docs/derived-metrics.md");
    for definition in definitions() {
        assert!(text.contains(&format!("`{}`", definition.name)), "{}", definition.name);
    }
}
