//! Counting on machines with several types of cores: what is opened where, labels, sums, and events that one type lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::{Config, load};
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::Catalog;
use perf_exporter::host::{CpuSet, Facts, Roots};
use perf_exporter::metrics::{Family, Value};
use perf_exporter::plan::{Entries, Plan, StreamSupport, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::fake::{FakeKernel, FakePlace};
use perf_exporter::targets::Watch;

use crate::described_host::tree;

/// A type of core: PMU, number of the PMU type, CPUs.
type CoreType = (&'static str, u32, &'static str);

/// The types of cores of each machine.
const MACHINES: [(&str, &[CoreType]); 3] = [
    ("meteor-lake", &[("cpu_atom", 8, "12-21"), ("cpu_core", 4, "0-11")]),
    ("arrow-lake-h", &[("cpu_atom", 8, "6-13"), ("cpu_core", 4, "0-5"), ("cpu_lowpower", 11, "14-15")]),
    (
        "gs101",
        &[("armv8_cortex_a55", 8, "0-3"), ("armv8_cortex_a76", 9, "4-5"), ("armv8_cortex_x1", 10, "6-7")],
    ),
];

/// A described machine with the cgroup `/a` and the process 7 in it, with the threads 7 and 8.
struct Counting {
    _dir: tempfile::TempDir,
    kernel: FakeKernel,
    collector: Collector<FakeKernel>,
    plan: Plan,
}

impl Counting {
    fn start(machine: &str, yaml: &str) -> Self {
        let (dir, roots) = tree(machine);
        add_process(&roots);
        let (config, warnings): (Config, _) = load(yaml.as_bytes(), "test.yaml").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let facts = Facts::read(&roots);
        let support = StreamSupport::foreseen(&facts);
        let plan = plan(&Entries::counters(&config.counters), &Catalog::load(&roots, &facts), &support);
        let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
        let budget = Budget { limit: 100_000, used: 0 };
        let mut watch = Watch::new(roots.clone());
        let mut collector = Collector::new(kernel.clone(), clock, &roots, facts, true, budget).unwrap();
        watch.need(plan.needs());
        watch.refresh();
        let shares = config.shares(watch.online().len(), plan.ring_kinds());
        collector.apply(&plan, Bounds::new(&config.limits, &shares), &watch);
        Self { _dir: dir, kernel, collector, plan }
    }

    /// Returns the totals of a metric by the label `pmu`.
    fn totals(&mut self, metric: &str) -> BTreeMap<String, u64> {
        let families = self.collector.collect();
        let points = families.iter().filter(|family| family.metadata().name() == metric);
        let mut totals = BTreeMap::new();
        for point in points.flat_map(Family::points) {
            let pmu = point.labels.pairs().find(|(name, _)| *name == "pmu");
            let Value::Integer(value) = point.value else { panic!("{point:?}") };
            *totals.entry(pmu.map_or("", |(_, pmu)| pmu).to_owned()).or_default() += value;
        }
        totals
    }
}

fn add_process(roots: &Roots) {
    let process = roots.proc.join("7");
    for tid in ["7", "8"] {
        fs::create_dir_all(process.join("task").join(tid)).unwrap();
    }
    fs::write(process.join("stat"), "7 (worker) S 1 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 2 0 5 0 0").unwrap();
    fs::write(process.join("cgroup"), "0::/a\n").unwrap();
    fs::create_dir_all(roots.sys.join("fs/cgroup/a")).unwrap();
}

/// Returns the CPUs and threads where hardware events are opened, by the type of PMU in the event.
fn opened(kernel: &FakeKernel) -> BTreeMap<u64, (CpuSet, BTreeSet<u32>)> {
    let mut places: BTreeMap<u64, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
    for event in kernel.opened().into_iter().filter(|event| matches!(event.attr.selector.kind, 0 | 3)) {
        let (cpus, threads) = places.entry(event.attr.selector.config[0] >> 32).or_default();
        match event.place {
            FakePlace::Cpu(cpu) | FakePlace::Cgroup { cpu, .. } => cpus.insert(cpu),
            FakePlace::Thread(tid) | FakePlace::ThreadOn { tid, .. } => threads.insert(tid),
        };
    }
    places.into_iter().map(|(pmu, (cpus, threads))| (pmu, (cpus.into_iter().collect(), threads))).collect()
}

#[test]
fn every_scope_counts_each_type_of_core_on_its_cpus_and_names_it() {
    for (machine, types) in MACHINES {
        for (scope, selection) in [
            ("cpu", ""),
            ("cgroup", "cgroups: {attribution: dedicated}"),
            ("cgroup", "cgroups: {attribution: stream}"),
            ("process", "processes: {attribution: dedicated}"),
            ("process", "processes: {attribution: stream}"),
        ] {
            let yaml = format!(
                "counters: {{a: {{events: [cycles, instructions, L1-dcache-loads], per: {scope}}}}}\n{selection}"
            );
            let counting = Counting::start(machine, &yaml);
            let by_thread = selection == "processes: {attribution: dedicated}";
            let threads = if by_thread { BTreeSet::from([7, 8]) } else { BTreeSet::new() };
            let expected: BTreeMap<u64, (CpuSet, BTreeSet<u32>)> = types
                .iter()
                .map(|(_, kind, cpus)| {
                    let cpus = if by_thread { CpuSet::default() } else { cpus.parse().unwrap() };
                    (u64::from(*kind), (cpus, threads.clone()))
                })
                .collect();
            assert_eq!(opened(&counting.kernel), expected, "{machine}: {scope}, {selection}");
            let labels: Vec<_> = counting.plan.groups.iter().map(|group| group.pmu.as_deref()).collect();
            let pmus: Vec<_> = types.iter().map(|(pmu, ..)| Some(*pmu)).collect();
            assert_eq!(labels, pmus, "{machine}: {scope}, {selection}");
        }
    }
}

/// The kernel counts the whole time of a thread as enabled time of the events of each type.
#[test]
fn counts_of_a_process_on_all_types_add_up_to_what_it_did() {
    let yaml = "counters: {a: {events: [cycles], per: process}}\nprocesses: {attribution: dedicated}";
    for (machine, types) in MACHINES {
        let mut counting = Counting::start(machine, yaml);
        for turn in 1..=2 {
            // Each thread spends 30 of 100 ns on the first type of core and the rest on the second, at 10 cycles per ns.
            counting.kernel.update(|event| {
                let pmu = (event.attr.selector.config[0] >> 32) as u32;
                let running = match types.iter().position(|(_, kind, _)| *kind == pmu) {
                    Some(0) => 30,
                    Some(1) => 70,
                    _ => 0,
                };
                event.count.value += 10 * running;
                event.count.enabled += 100;
                event.count.running += running;
            });
            let totals = counting.totals("perf_process_cycles");
            let of = |at: usize| totals.get(types[at].0).copied();
            assert_eq!((of(0), of(1)), (Some(turn * 600), Some(turn * 1400)), "{machine}: {totals:?}");
            assert_eq!(totals.values().sum::<u64>(), turn * 2000, "{machine}: {totals:?}");
        }
    }
}

#[test]
fn an_event_that_one_type_lacks_is_counted_on_the_others_and_the_type_is_named() {
    let yaml = "counters: {a: {events: [cycles, mem_load_retired.l3_miss, mem_load_uops_retired.l2_hit], per: cgroup}}";
    for (machine, expected) in [
        (
            "meteor-lake",
            &[
                "mem_load_retired.l3_miss on the cores of cpu_atom",
                "mem_load_uops_retired.l2_hit on the cores of cpu_core",
            ][..],
        ),
        (
            "arrow-lake-h",
            &[
                "mem_load_retired.l3_miss on the cores of cpu_atom",
                "mem_load_retired.l3_miss on the cores of cpu_lowpower",
                "mem_load_uops_retired.l2_hit on the cores of cpu_core",
            ],
        ),
    ] {
        let plan = Counting::start(machine, yaml).plan;
        let refusals: Vec<String> = plan.refusals.iter().map(|refused| refused.refusal.to_string()).collect();
        for (refusal, expected) in refusals.iter().zip(expected) {
            assert!(refusal.starts_with(&format!("{expected}: absent: ")), "{refusal}");
        }
        assert_eq!(refusals.len(), expected.len(), "{refusals:?}");
        assert!(plan.refusals.iter().all(|refused| !refused.mistake));
        let core = plan.groups.iter().find(|group| group.pmu.as_deref() == Some("cpu_core")).unwrap();
        let names: Vec<&str> = core.counters.iter().map(|counter| &*counter.event.name).collect();
        assert_eq!(names, ["cpu_core/cycles/", "cpu_core/mem_load_retired.l3_miss/"]);
    }
}
