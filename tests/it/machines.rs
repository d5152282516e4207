//! The machines below `tests/data/hosts/machines`: resolution, refusals, `list`, `check` and plans on each.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use perf_exporter::config::{Config, load, load_file};
use perf_exporter::event::{Catalog, Event, parse};
use perf_exporter::host::{Facts, Roots, read_text};
use perf_exporter::plan::{Entries, Plan, StreamSupport, plan};

use crate::described_host::{names, shared_tree};
use crate::hosts::{assert_golden, examples};
use crate::program::{repository, run};

fn catalog(machine: &str) -> Catalog {
    let roots = shared_tree(machine);
    Catalog::load(&roots, &Facts::read(&roots))
}

/// Returns the family of an event's PMU and its configuration words: `uncore_imc/304/`. Events that differ in the instance of the PMU alone
/// are one: `6 x uncore_imc/304/`. Without a PMU of sysfs: the kind of event.
fn encodings(events: &[Event]) -> String {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for event in events {
        let kind = format!("{:?}", event.kind).to_lowercase();
        let pmu = event.pmu.as_deref().map_or(kind.as_str(), family);
        let used = 1 + event.selector.config.iter().rposition(|word| *word != 0).unwrap_or(0);
        let words: Vec<String> =
            event.selector.config[..used].iter().map(|word| format!("{word:x}")).collect();
        let part = format!("{pmu}/{}/", words.join(","));
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, count)) => *count += 1,
            None => parts.push((part, 1)),
        }
    }
    let written =
        |(part, count): (String, usize)| if count == 1 { part } else { format!("{count} x {part}") };
    parts.into_iter().map(written).collect::<Vec<_>>().join(" ")
}

/// Returns the name of a PMU without the number of the instance.
fn family(pmu: &str) -> &str {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    pmu.rsplit_once('_').filter(|(_, number)| is_number(number)).map_or(pmu, |(family, _)| family)
}

/// Returns the encodings of an event, or its refusal.
fn resolved(catalog: &Catalog, name: &str) -> Result<String, String> {
    let events = catalog.resolve(&parse(name).unwrap()[0].events[0]);
    events.map(|events| encodings(&events)).map_err(|no| no.to_string())
}

#[test]
fn every_machine_is_readable_and_has_its_sources_in_the_table() {
    let readme = read_text(&repository("tests/data/hosts/machines/README.md")).unwrap();
    assert!(names().len() >= 12, "{:?}", names());
    for machine in names() {
        assert!(readme.contains(&format!("| `{machine}` |")), "{machine} is not in the table");
        let catalog = catalog(&machine);
        assert_eq!(catalog.problems(), [], "{machine}");
        assert!(catalog.has_core_pmu(), "{machine}");
    }
}

/// Codes of the vendors' documents: event and unit mask of Intel's event lists, of AMD's PPR, event numbers of Arm's TRM.
#[test]
fn names_have_the_codes_of_the_vendors_documents() {
    for (machine, expected) in [
        (
            "skylake-sp",
            &[
                ("cycles", "hardware/0/"),
                ("LLC-load-misses", "cache/10002/"),
                ("MEM_LOAD_RETIRED.L3_MISS", "raw/20d1/"),
                ("idq_uops_not_delivered.core", "raw/19c/"),
                ("cycle_activity.stalls_total", "raw/40004a3/"),
                ("frontend_retired.latency_ge_8", "raw/1c6,400806/"),
                ("topdown-slots-issued", "raw/10e/"),
                ("unc_m_cas_count.rd", "6 x uncore_imc/304/"),
                ("unc_upi_txl_flits.all_data", "3 x uncore_upi/f02/"),
                ("uncore_imc/cas_count_write/", "6 x uncore_imc/c04/"),
            ][..],
        ),
        (
            "ice-lake-sp",
            &[
                ("mem_load_retired.l3_miss", "raw/20d1/"),
                ("slots", "raw/400/"),
                ("topdown.slots", "raw/400/"),
                ("topdown-be-bound", "raw/8300/"),
                ("topdown.backend_bound_slots", "raw/2a4/"),
                ("unc_m_cas_count.rd", "12 x uncore_imc/f04/"),
                ("unc_cha_tor_inserts.ia_miss_drd", "40 x uncore_cha/c817fe00000135/"),
            ],
        ),
        (
            "sapphire-rapids",
            &[
                ("mem_load_retired.l3_miss", "raw/20d1/"),
                ("topdown-mem-bound", "raw/8700/"),
                ("exe.amx_busy", "raw/2b7/"),
                ("unc_m_cas_count.rd", "8 x uncore_imc/cf05/"),
                ("unc_cxlcm_rxc_flits.valid", "2 x uncore_cxlcm/14b/"),
                ("cxl_pmu_mem0.0/clock_ticks/", "cxl_pmu_mem0.0/1e98000000000001/"),
            ],
        ),
        (
            "granite-rapids",
            &[
                ("mem_load_retired.l3_miss", "raw/20d1/"),
                ("topdown-heavy-ops", "raw/8400/"),
                ("unc_m_cas_count_sch0.rd", "12 x uncore_imc/cf05/"),
                ("uncore_imc/cas_count_read_sch1/", "12 x uncore_imc/cf06/"),
                ("unc_b2cmi_clockticks", "12 x uncore_b2cmi/1/"),
            ],
        ),
        (
            "sierra-forest",
            &[
                ("topdown_retiring.all", "raw/72/"),
                ("topdown-retiring", "raw/72/"),
                ("mem_load_uops_retired.l2_hit", "raw/2d1/"),
                ("longest_lat_cache.miss", "raw/412e/"),
                ("unc_cha_clockticks", "36 x uncore_cha/1/"),
            ],
        ),
        (
            "meteor-lake",
            &[
                ("cycles", "cpu_atom/800000000/ cpu_core/400000000/"),
                ("arith.div_active", "cpu_atom/10003cd/ cpu_core/10009b0/"),
                ("mem_load_retired.l3_miss", "cpu_core/20d1/"),
                ("mem_load_uops_retired.l2_hit", "cpu_atom/2d1/"),
                ("topdown-retiring", "cpu_atom/c2/ cpu_core/8000/"),
                ("slots", "cpu_core/400/"),
            ],
        ),
        (
            "arrow-lake-h",
            &[
                ("cycles", "cpu_atom/800000000/ cpu_core/400000000/ cpu_lowpower/b00000000/"),
                ("arith.div_active", "cpu_atom/10003cd/ cpu_core/10009b0/ cpu_lowpower/10003cd/"),
                ("mem_load_retired.l3_miss", "cpu_core/20d1/"),
                ("topdown_retiring.all_p", "cpu_atom/2c2/ cpu_lowpower/72/"),
                ("r3c", "cpu_atom/3c/ cpu_core/3c/ cpu_lowpower/3c/"),
            ],
        ),
        (
            "kvm-guest",
            &[
                ("cycles", "hardware/0/"),
                ("mem_load_retired.l3_miss", "raw/20d1/"),
                ("cpu/event=0xd1,umask=0x20/", "raw/20d1/"),
            ],
        ),
        (
            "rome",
            &[
                ("ex_ret_instr", "raw/c0/"),
                ("ls_l1_d_tlb_miss.all", "raw/ff45/"),
                ("l2_cache_accesses_from_dc_misses", "raw/c860/"),
                ("l3_request_g1.caching_l3_cache_accesses", "amd_l3/8001/"),
                ("dram_channel_data_controller_0", "amd_df/3807/"),
            ],
        ),
        (
            "milan",
            &[
                ("ex_ret_instr", "raw/c0/"),
                ("l2_cache_accesses_from_dc_misses", "raw/e860/"),
                ("l3_cache_accesses", "amd_l3/ff04/"),
                (
                    "amd_l3/event=0x4,umask=0x1,enallcores,enallslices,threadmask=3/",
                    "amd_l3/300c00000000104/",
                ),
            ],
        ),
        (
            "genoa",
            &[
                ("ls_dmnd_fills_from_sys.local_l2", "raw/143/"),
                ("de_no_dispatch_per_slot.no_ops_from_frontend", "raw/1000001a0/"),
                ("l3_lookup_state.l3_miss", "amd_l3/104/"),
                ("local_processor_read_data_beats_cs0", "amd_df/700fe1f/"),
                ("umc_cas_cmd.rd", "24 x amd_umc/10a/"),
            ],
        ),
        (
            "turin",
            &[
                ("ex_ret_instr", "raw/c0/"),
                ("de_no_dispatch_per_slot.no_ops_from_frontend", "raw/1000001a0/"),
                ("umc_mem_clk", "24 x amd_umc/0/"),
            ],
        ),
        (
            "altra",
            &[
                ("inst_retired", "raw/8/"),
                ("ll_cache_miss_rd", "raw/37/"),
                ("stall_backend", "raw/24/"),
                ("l1d_cache_rd", "raw/40/"),
                ("arm_cmn/hnf_mc_reqs/", "arm_cmn/d0005/"),
                ("arm_dmc620/clkdiv2_rdwr/", "arm_dmc620_10008c000/0,0,290/ arm_dmc620_10008c400/0,0,290/"),
            ],
        ),
        (
            "graviton3",
            &[
                ("stall_slot_backend", "raw/3d/"),
                ("op_retired", "raw/3a/"),
                ("stall_backend_mem", "raw/4005/"),
                ("sve_inst_spec", "raw/8006/"),
            ],
        ),
        (
            "grace",
            &[
                ("stall_slot", "raw/3f/"),
                ("l1d_cache_lmiss_rd", "raw/39/"),
                ("nvidia_scf_pmu/cmem_rd_data/", "2 x nvidia_scf_pmu/1a5/"),
                ("nvidia_nvlink_c2c0_pmu/total_bytes_loc/", "2 x nvidia_nvlink_c2c0_pmu/4/"),
            ],
        ),
        (
            "ampereone",
            &[
                ("cpu_cycles", "raw/11/"),
                ("l2d_cache_refill", "raw/17/"),
                ("ampere_mcu_pmu/rd_rda_sent,rank=3/", "8 x ampere_mcu_pmu/f,300/"),
            ],
        ),
        (
            "gs101",
            &[
                (
                    "cycles",
                    "armv8_cortex_a55/800000000/ armv8_cortex_a76/900000000/ armv8_cortex_x1/a00000000/",
                ),
                ("cpu_cycles", "armv8_cortex_a55/11/ armv8_cortex_a76/11/ armv8_cortex_x1/11/"),
                ("stall_slot", "armv8_cortex_x1/3f/"),
                ("armv8_cortex_a76/l1d_cache/", "armv8_cortex_a76/4/"),
                ("arm_dsu/l3d_cache/", "arm_dsu/2b/"),
            ],
        ),
    ] {
        let catalog = catalog(machine);
        for (name, encoding) in expected {
            assert_eq!(resolved(&catalog, name).as_deref(), Ok(*encoding), "{machine}: {name}");
        }
    }
}

#[test]
fn what_a_machine_cannot_count_has_a_reason() {
    for (machine, name, reason) in [
        ("altra", "arm_spe_0/load_filter=1/", "arm_spe_0 writes samples to a buffer and does not count"),
        (
            "meteor-lake",
            "cpu_atom/mem_load_retired.l3_miss/",
            "cpu_atom has no event mem_load_retired.l3_miss; cpu_core of this host has it; write cpu_core/mem_load_retired.l3_miss/",
        ),
        (
            "arrow-lake-h",
            "cpu_lowpower/slots/",
            "cpu_lowpower has no event slots; cpu_core of this host has it",
        ),
        (
            "skylake-sp",
            "cpu_lowpower/cycles/",
            "this host has no PMU cpu_lowpower: the low-power efficient cores",
        ),
        ("grace", "topdown-retiring", "the PMU armv8_pmuv3 of this host has no such event"),
        ("sierra-forest", "mem_load_uops_retired.l2_hitt", "did you mean mem_load_uops_retired.l2_hit?"),
        ("genoa", "ls_l1_d_tlb_mis.all", "did you mean ls_l1_d_tlb_miss.all?"),
        ("grace", "stall_slot_backen", "did you mean stall_slot_backend?"),
        ("rome", "mem_load_retired.l3_miss", "the closest event of this host is LLC-load-misses"),
        ("altra", "arm_cmn/watchpoint_up/", "event watchpoint_up of arm_cmn_0 needs a value for wp_dev_sel"),
    ] {
        let refused = resolved(&catalog(machine), name).unwrap_err();
        assert!(refused.contains(reason), "{machine}: {refused}");
    }
}

/// Names that few families have.
const FOREIGN: [&str; 5] = [
    "mem_load_retired.l3_miss",
    "ex_ret_instr",
    "topdown-retiring",
    "uncore_imc/cas_count_read/",
    "arm_cmn/hnf_mc_reqs/",
];

#[test]
fn names_of_other_families_are_refused_with_the_models_that_have_them() {
    let mut page = String::new();
    for machine in names() {
        let catalog = catalog(&machine);
        writeln!(page, "{machine}").unwrap();
        for name in FOREIGN {
            if let Err(no) = resolved(&catalog, name) {
                writeln!(page, "  {no}").unwrap();
            }
        }
    }
    assert_golden("machines-refusals".into(), &page);
}

#[test]
fn list_has_the_events_of_each_pmu_and_finds_them_by_pattern() {
    let mut page = String::new();
    for machine in names() {
        let roots = shared_tree(&machine);
        let catalog = Catalog::load(&roots, &Facts::read(&roots));
        let mut sources: BTreeMap<String, usize> = BTreeMap::new();
        for listed in catalog.events() {
            *sources.entry(listed.source.as_deref().unwrap_or("generic").to_owned()).or_default() += 1;
        }
        let counts: Vec<String> = sources.iter().map(|(source, count)| format!("{source} {count}")).collect();
        writeln!(page, "{machine}: {}", counts.join(", ")).unwrap();
        for pattern in ["*l3*miss*", "*cas*"] {
            let root = roots.prefix.to_str().unwrap();
            let found = run(["list", pattern, "--output", "json", "--no-open", "--host-root", root]);
            assert!(found.stderr.is_empty() || found.stderr.contains("no event matches"), "{}", found.stderr);
            writeln!(page, "  {pattern}: {}", found.stdout.lines().count()).unwrap();
        }
    }
    assert_golden("machines-list".into(), &page);
}

/// A name from every part of the list of each machine.
#[test]
fn whatever_is_listed_can_be_resolved() {
    for machine in names() {
        let catalog = catalog(&machine);
        let listed: Vec<_> = catalog.events().collect();
        // A parameter that the user supplies is written as `?`.
        let complete = listed.iter().filter(|event| !event.name.contains("=?"));
        for event in complete.step_by(listed.len().div_ceil(100)) {
            if let Err(no) = resolved(&catalog, &event.name) {
                panic!("{machine}: {no}");
            }
        }
    }
}

fn planned(roots: &Roots, config: &Config) -> Plan {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    plan(&Entries::counters(&config.counters), &catalog, &StreamSupport::foreseen(&facts))
}

#[test]
fn the_counters_of_every_example_are_planned_on_every_machine() {
    let configs = examples().into_iter().map(|example| {
        let config = load_file(Some(&repository(&example))).unwrap().0;
        (example.rsplit_once('/').unwrap().1.to_owned(), config)
    });
    // Most examples add something else to the counters of the built-in configuration.
    let own = |config: &Config| config.counters != Config::default().counters;
    let configs: Vec<(String, Config)> =
        configs.filter(|(name, config)| name == "default.yaml" || own(config)).collect();
    let mut page = String::new();
    for machine in names() {
        let roots = shared_tree(&machine);
        writeln!(page, "{machine}").unwrap();
        for (example, config) in &configs {
            let plan = planned(&roots, config);
            let counters: usize = plan.groups.iter().map(|group| group.counters.len()).sum();
            write!(page, "  {example}: {} groups, {counters} counters", plan.groups.len()).unwrap();
            // The trees have few tracepoints.
            let refused = plan.refusals.iter().map(|refused| &*refused.refusal.event);
            let refused: Vec<&str> = refused.filter(|event| !event.contains(':')).collect();
            if !refused.is_empty() {
                write!(page, "; refused: {}", refused.join(", ")).unwrap();
            }
            page.push('\n');
        }
    }
    assert_golden("machines-examples".into(), &page);
}

#[test]
fn check_predicts_the_hardware_groups_of_the_built_in_configuration() {
    let mut page = String::new();
    for machine in names() {
        let roots = shared_tree(&machine);
        let outcome = run(["check", "--no-open", "--host-root", roots.prefix.to_str().unwrap()]);
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{machine}");
        writeln!(page, "{machine}").unwrap();
        let core = outcome.stdout.lines().filter(|line| line.starts_with("  core per "));
        core.for_each(|line| writeln!(page, "{line}").unwrap());
    }
    assert_golden("machines-check".into(), &page);
}

/// One group for each type of core, software events apart from them; one group for each instance beside the cores, on one CPU of its socket.
#[test]
fn plans_have_a_group_for_each_type_of_core_and_for_each_instance_beside_the_cores() {
    let mut page = String::new();
    for machine in names() {
        let roots = shared_tree(&machine);
        let beside = match &*machine {
            "skylake-sp" | "ice-lake-sp" | "sapphire-rapids" => {
                "\"uncore_imc/cas_count_read/\", \"uncore_imc/cas_count_write/\""
            }
            "granite-rapids" | "sierra-forest" => "unc_m_cas_count_sch0.rd, unc_m_cas_count_sch0.wr",
            "meteor-lake" => "\"uncore_imc_free_running/data_read/\", \"power/energy-pkg/\"",
            "arrow-lake-h" => "\"power/energy-pkg/\"",
            "rome" | "milan" => "dram_channel_data_controller_0, l3_request_g1.caching_l3_cache_accesses",
            "genoa" | "turin" => "umc_cas_cmd.rd, umc_cas_cmd.wr, l3_lookup_state.l3_miss",
            "altra" => "\"arm_cmn/hnf_mc_reqs/\", \"arm_dmc620/clkdiv2_rdwr/\"",
            "grace" => "\"nvidia_scf_pmu/cmem_rd_data/\"",
            "ampereone" => "\"ampere_mcu_pmu/rd_sent/\"",
            "gs101" => "\"arm_dsu/l3d_cache/\"",
            _ => "page-faults",
        };
        let yaml = format!(
            "counters: {{core: {{events: [cycles, instructions, task-clock], per: [cpu, cgroup]}}, beside: {{events: [{beside}]}}}}"
        );
        let (config, warnings): (Config, _) = load(yaml.as_bytes(), "test.yaml").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let plan = planned(&roots, &config);
        assert!(plan.refusals.is_empty(), "{machine}: {:?}", plan.refusals);
        writeln!(page, "{machine}").unwrap();
        let mut lines: Vec<(String, usize)> = Vec::new();
        for group in &plan.groups {
            let pmu = group.pmu.as_deref().map_or("", family);
            let cpus = group.cpus.as_ref().map_or_else(|| "all CPUs".to_owned(), ToString::to_string);
            let metrics: Vec<&str> = group.counters.iter().map(|counter| counter.metric.name()).collect();
            let line = format!("{} {pmu} on {cpus}: {}", group.scope(), metrics.join(", "));
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, count)) => *count += 1,
                None => lines.push((line, 1)),
            }
        }
        lines.iter().for_each(|(line, count)| writeln!(page, "  {count} x {line}").unwrap());
    }
    assert_golden("machines-plan".into(), &page);
}
