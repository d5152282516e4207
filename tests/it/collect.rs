//! Counting with the fake kernel: opened events, events that could not be opened, and the published series.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::{Counters, PmuSharing};
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::error::Errno;
use perf_exporter::event::{Catalog, parse};
use perf_exporter::health::CpuScope;
use perf_exporter::host::{Facts, Roots};
use perf_exporter::metrics::{Family, Level, Value};
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::Inherit;
use perf_exporter::sys::fake::{Count, FakeKernel, FakePlace, Opened};
use perf_exporter::targets::{
    Attribution, CgroupSelection, Glob, GroupBy, PodSelection, ProcessRule, ProcessSelection, Targets, Watch,
};

const SECOND: u64 = 1_000_000_000;
/// The CPUs of each NUMA node.
const NUMA: Targets = Targets::Cpus(CpuScope::Numa);

/// A host in a directory, a kernel in memory, and a collector that uses both.
pub(crate) struct World {
    dir: tempfile::TempDir,
    kernel: FakeKernel,
    pub(crate) clock: Clock,
    roots: Roots,
    facts: Facts,
    watch: Watch,
    collector: Collector<FakeKernel>,
}

impl World {
    /// Creates a host with two CPUs and a cgroup file system, without processes.
    pub(crate) fn new(descriptors: usize) -> Self {
        Self::with_kernel(descriptors, "6.12.0\n")
    }

    fn with_kernel(descriptors: usize, release: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        for path in ["proc/sys/kernel", "proc/self", "sys/devices/system/cpu", "cg"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        fs::write(roots.proc.join("sys/kernel/osrelease"), release).unwrap();
        fs::write(roots.sys.join("devices/system/cpu/online"), "0-1\n").unwrap();
        let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
        let budget = Budget { limit: descriptors, used: 0 };
        let facts = Facts::read(&roots);
        let collector =
            Collector::new(kernel.clone(), clock.clone(), &roots, facts.clone(), true, budget).unwrap();
        Self { watch: Watch::new(roots.clone()), dir, kernel, clock, roots, facts, collector }
    }

    /// Counts `events` as one group.
    pub(crate) fn count(&mut self, events: &str, per: Targets) {
        self.count_at_most(events, per, 100);
    }

    fn count_at_most(&mut self, events: &str, per: Targets, series: usize) {
        let groups = parse(events).unwrap();
        let counters = [Counters {
            name: "test".into(),
            groups,
            metrics: Vec::new(),
            per: vec![per],
            level: Level::Full,
            sharing: PmuSharing::default(),
        }];
        let facts = Facts::read(&self.roots);
        let support = StreamSupport::foreseen(&facts);
        let plan = plan(&Entries::counters(&counters), &Catalog::load(&self.roots, &facts), &support);
        self.watch.need(plan.needs());
        self.watch.refresh();
        self.collector.apply(&plan, Bounds { series, ring_memory: 1 << 20 }, &self.watch);
    }

    /// Writes the CPUs of each NUMA node, and reads the facts of the host again.
    fn set_nodes(&mut self, nodes: &[&str]) {
        for (number, cpus) in nodes.iter().enumerate() {
            let node = self.roots.sys.join(format!("devices/system/node/node{number}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("cpulist"), format!("{cpus}\n")).unwrap();
        }
        self.facts.read_again(&self.roots);
        self.collector.set_facts(self.facts.clone(), true);
    }

    fn set_online(&self, cpus: &str) {
        fs::write(self.roots.sys.join("devices/system/cpu/online"), format!("{cpus}\n")).unwrap();
    }

    pub(crate) fn cgroup(&self, path: &str) -> PathBuf {
        let dir = self.dir.path().join("cg").join(path);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn process(&self, pid: u32, comm: &str, threads: &[u32]) {
        let dir = self.roots.proc.join(pid.to_string());
        for tid in threads {
            fs::create_dir_all(dir.join("task").join(tid.to_string())).unwrap();
        }
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5 0 0");
        fs::write(dir.join("stat"), stat).unwrap();
    }

    /// Adds one second and `value` counts to the readings of matching events.
    fn run(&self, value: u64, matching: impl Fn(&Opened) -> bool) {
        self.run_for(value, SECOND, SECOND, matching);
    }

    pub(crate) fn run_for(&self, value: u64, enabled: u64, running: u64, matching: impl Fn(&Opened) -> bool) {
        self.kernel.update(|event| {
            if matching(event) {
                let Count { value: v, enabled: e, running: r } = event.count;
                event.count = Count { value: v + value, enabled: e + enabled, running: r + running };
            }
        });
    }

    /// Refreshes the targets, makes a collection, and returns the published families.
    pub(crate) fn collect(&mut self) -> Vec<Family> {
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        self.collector.collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.collector.board().lines().map(|line| line.refusal.to_string()).collect()
    }
}

/// Returns the value of one series; `None` if it is not published.
fn value(families: &[Family], name: &str, labels: &str) -> Option<u64> {
    let points = families.iter().filter(|family| family.metadata().name() == name).flat_map(Family::points);
    let point = points.into_iter().find(|point| point.labels.text() == labels)?;
    match point.value {
        Value::Integer(value) => Some(value),
        ref other => panic!("{name}{{{labels}}} is {other:?}"),
    }
}

fn state(families: &[Family], event: &str, scope: &str, state: &str) -> u64 {
    let labels = format!("event=\"{event}\",scope=\"{scope}\",state=\"{state}\"");
    value(families, "perf_event_state", &labels).unwrap_or(0)
}

fn on_cpu(cpu: u32) -> impl Fn(&Opened) -> bool {
    move |event| event.place == FakePlace::Cpu(cpu)
}

pub(crate) fn in_cgroup(dir: &PathBuf) -> impl Fn(&Opened) -> bool {
    use std::os::unix::fs::MetadataExt;
    let wanted = fs::metadata(dir).unwrap().ino();
    move |event| matches!(event.place, FakePlace::Cgroup { inode, cpu: 0 } if inode == wanted)
}

pub(crate) fn cgroups(include: &[&str]) -> CgroupSelection {
    let include = include.iter().map(|glob| Glob::new(glob).unwrap()).collect();
    CgroupSelection {
        include,
        exclude: vec![],
        pods: PodSelection::default(),
        depth: None,
        descendants: false,
        attribution: Attribution::Dedicated,
    }
}

fn everybody() -> Targets {
    Targets::Processes(ProcessSelection {
        include: vec![ProcessRule::default()],
        exclude: vec![],
        by: vec![GroupBy::Comm],
        attribution: Attribution::Dedicated,
    })
}

#[test]
fn each_cpu_has_its_series_and_counts_add_up() {
    let mut world = World::new(100);
    world.count("{page-faults,context-switches}", Targets::CPU);
    world.run(7, on_cpu(0));
    world.run(9, on_cpu(1));
    world.collect();
    world.run(1, on_cpu(1));
    let families = world.collect();
    assert_eq!(value(&families, "perf_cpu_page_faults", "cpu=\"0\""), Some(7));
    assert_eq!(value(&families, "perf_cpu_context_switches", "cpu=\"1\""), Some(10));
    assert_eq!(world.collector.budget().used, 4);
}

#[test]
fn a_refused_member_leaves_the_others_counting_and_says_why() {
    let mut world = World::new(100);
    world.kernel.refuse(Errno::ENOENT, |attr, _, _| attr.selector.config[0] == 2);
    world.count("{page-faults,context-switches}", Targets::CPU);
    world.run(7, on_cpu(0));
    let families = world.collect();
    // PERF_COUNT_SW_PAGE_FAULTS is 2: the leader cannot be opened, so the member becomes the leader.
    assert_eq!(value(&families, "perf_cpu_page_faults", "cpu=\"0\""), None);
    assert_eq!(value(&families, "perf_cpu_context_switches", "cpu=\"0\""), Some(7));
    assert_eq!(state(&families, "page-faults", "cpu", "absent"), 2);
    assert_eq!(state(&families, "context-switches", "cpu", "counting"), 1);
    assert_eq!(world.reasons().len(), 1, "{:?}", world.reasons());
}

#[test]
fn a_counter_that_shares_the_pmu_is_scaled_and_never_falls() {
    let mut world = World::new(100);
    world.count("cycles", Targets::CPU);
    let mut before = 0;
    for (running, expected) in
        [(SECOND, 1000), (SECOND / 2, 3000), (SECOND / 4, 7000), (0, 7000), (SECOND, 8000)]
    {
        world.run_for(if running == 0 { 0 } else { 1000 }, SECOND, running, on_cpu(0));
        let families = world.collect();
        let now = value(&families, "perf_cpu_cycles", "cpu=\"0\"").unwrap();
        assert_eq!(now, expected);
        assert!(now >= before);
        before = now;
    }
}

#[test]
fn a_counter_that_never_ran_is_a_state_and_not_zero() {
    let mut world = World::new(100);
    world.count("cycles", Targets::CPU);
    world.run_for(0, SECOND, 0, |_| true);
    let families = world.collect();
    assert_eq!(value(&families, "perf_cpu_cycles", "cpu=\"0\""), None);
    assert_eq!(state(&families, "cycles", "cpu", "never_ran"), 2);
}

#[test]
fn a_group_that_waits_for_the_pmu_is_not_idle_while_its_cgroup_sleeps() {
    let mut world = World::new(100);
    let a = world.cgroup("a");
    world.count("cycles", Targets::Cgroups(cgroups(&["/a"])));
    let states =
        |families: &[Family]| ["idle", "never_ran"].map(|word| state(families, "cycles", "cgroup", word));
    let total = |families: &[Family]| value(families, "perf_cgroup_cycles", "cgroup=\"/a\"");
    let families = world.collect();
    assert_eq!((states(&families), total(&families)), ([2, 0], Some(0)), "the event has not run");
    world.run_for(0, SECOND, 0, in_cgroup(&a));
    for _ in 0..2 {
        let families = world.collect();
        assert_eq!(
            (states(&families), total(&families)),
            ([1, 1], None),
            "the event is multiplexed on one of the CPUs"
        );
    }
    world.run_for(5_000_000_000, SECOND, SECOND, in_cgroup(&a));
    let families = world.collect();
    assert_eq!((states(&families), total(&families)), ([1, 0], Some(5_000_000_000)));
}

#[test]
fn cycles_that_stand_still_in_a_busy_cgroup_are_not_published() {
    let mut world = World::new(100);
    let a = world.cgroup("a");
    world.count("cycles", Targets::Cgroups(cgroups(&["/a"])));
    world.run(5_000_000_000, in_cgroup(&a));
    assert_eq!(value(&world.collect(), "perf_cgroup_cycles", "cgroup=\"/a\""), Some(5_000_000_000));
    world.run(0, in_cgroup(&a));
    let families = world.collect();
    assert_eq!(value(&families, "perf_cgroup_cycles", "cgroup=\"/a\""), None);
    assert_eq!(state(&families, "cycles", "cgroup", "stalled"), 1);
    world.run(395, in_cgroup(&a));
    assert_eq!(state(&world.collect(), "cycles", "cgroup", "implausible"), 1);
}

#[test]
fn a_pinned_group_without_a_place_on_the_pmu_is_full_and_publishes_nothing() {
    let mut world = World::new(100);
    world.count("cycles:D", Targets::CPU);
    world.kernel.set_unplaced(true);
    let families = world.collect();
    assert_eq!(state(&families, "cycles:D", "cpu", "full"), 2);
    assert!(
        families
            .iter()
            .filter(|f| f.metadata().name().starts_with("perf_cpu"))
            .all(|f| f.points().is_empty())
    );
}

#[test]
fn a_pinned_group_without_a_place_on_the_pmu_is_started_again_at_growing_intervals() {
    let mut world = World::new(100);
    world.count("cycles:D", Targets::CPU);
    world.kernel.set_unplaced(true);
    let last_start = |world: &World| world.kernel.opened().iter().map(|event| event.switched).max();
    let mut attempts = Vec::new();
    for collection in 1..=200 {
        let before = last_start(&world);
        world.collect();
        attempts.extend((last_start(&world) != before).then_some(collection));
    }
    assert_eq!(attempts, [1, 3, 6, 11, 20, 37, 70, 135, 200]);
    // Another program has left the PMU.
    world.kernel.set_unplaced(false);
    world.run(5_000_000_000, |_| true);
    let families = world.collect();
    assert_eq!(state(&families, "cycles:D", "cpu", "counting"), 2);
    assert_eq!(state(&families, "cycles:D", "cpu", "full"), 0);
}

#[test]
fn a_cgroup_counts_what_is_its_own_and_the_sum_is_the_whole() {
    let mut world = World::new(100);
    let (a, b) = (world.cgroup("a"), world.cgroup("a/x/b"));
    world.count("page-faults", Targets::Cgroups(cgroups(&["/a", "/a/x/b"])));
    // The kernel counts the parent including its descendants.
    world.run(100, in_cgroup(&a));
    world.run(30, in_cgroup(&b));
    let families = world.collect();
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(70));
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"/a/x/b\""), Some(30));
}

#[test]
fn a_parent_that_is_read_before_its_child_waits_and_catches_up() {
    let mut world = World::new(100);
    let (a, b) = (world.cgroup("a"), world.cgroup("a/b"));
    world.count("page-faults", Targets::Cgroups(cgroups(&["/**"])));
    world.run(100, in_cgroup(&a));
    world.run(100, in_cgroup(&b));
    world.collect();
    world.run(5, in_cgroup(&b));
    assert_eq!(value(&world.collect(), "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(0));
    world.run(15, in_cgroup(&a));
    assert_eq!(value(&world.collect(), "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(10));
}

#[test]
fn with_descendants_a_cgroup_is_published_as_the_kernel_counts_it() {
    let mut world = World::new(100);
    let (a, b) = (world.cgroup("a"), world.cgroup("a/b"));
    let selection = CgroupSelection { descendants: true, ..cgroups(&["/**"]) };
    world.count("page-faults", Targets::Cgroups(selection));
    world.run(100, in_cgroup(&a));
    world.run(30, in_cgroup(&b));
    assert_eq!(value(&world.collect(), "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(100));
}

#[test]
fn what_a_cgroup_counted_last_is_published_for_five_minutes_after_it_went() {
    let mut world = World::new(100);
    let a = world.cgroup("a");
    world.count("page-faults", Targets::Cgroups(cgroups(&["/**"])));
    world.run(5, in_cgroup(&a));
    world.collect();
    world.run(6, in_cgroup(&a));
    fs::remove_dir(&a).unwrap();
    assert_eq!(value(&world.collect(), "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(11));
    assert_eq!(world.kernel.opened().len(), 0);
    world.clock.advance(Duration::from_secs(301));
    let families = world.collect();
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"/a\""), None);
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"other\""), None);
}

#[test]
fn a_parent_that_goes_together_with_its_child_is_not_charged_for_it() {
    let mut world = World::new(100);
    let (a, b) = (world.cgroup("a"), world.cgroup("a/b"));
    world.count("page-faults", Targets::Cgroups(cgroups(&["/**"])));
    world.run(100, in_cgroup(&a));
    world.run(60, in_cgroup(&b));
    fs::remove_dir_all(&a).unwrap();
    let families = world.collect();
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"/a\""), Some(40));
    assert_eq!(value(&families, "perf_cgroup_page_faults", "cgroup=\"/a/b\""), Some(60));
}

#[test]
fn what_does_not_fit_into_the_descriptors_is_told_and_tried_again() {
    let mut world = World::new(5);
    let (a, b) = (world.cgroup("a"), world.cgroup("b"));
    world.count("{page-faults,context-switches}", Targets::Cgroups(cgroups(&["/**"])));
    assert_eq!(world.kernel.opened().len(), 4);
    assert_eq!(world.collector.states()[0].left_out, 1);
    assert!(world.reasons()[0].contains("the budget of 5 descriptors is used up"), "{:?}", world.reasons());
    fs::remove_dir(&a).unwrap();
    world.collect();
    assert!(world.reasons().is_empty(), "{:?}", world.reasons());
    world.run(3, in_cgroup(&b));
    assert_eq!(value(&world.collect(), "perf_cgroup_page_faults", "cgroup=\"/b\""), Some(3));
}

#[test]
fn a_process_is_counted_with_all_its_threads_or_not_at_all() {
    let mut world = World::new(100);
    world.process(10, "many", &[10, 11, 12]);
    world.process(20, "one", &[20]);
    world.kernel.limit_descriptors(2);
    world.count("page-faults", everybody());
    world.run(1, |_| true);
    let families = world.collect();
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"many\""), None);
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"one\""), Some(1));
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (1, 1));
}

#[test]
fn a_kernel_that_runs_out_of_descriptors_first_is_no_different() {
    let mut world = World::new(100);
    world.cgroup("a");
    world.cgroup("b");
    world.kernel.limit_descriptors(2);
    world.count("page-faults", Targets::Cgroups(cgroups(&["/**"])));
    assert_eq!(world.collector.states()[0].targets, 1);
    assert!(
        world.reasons()[0].contains("the process has reached its limit on file descriptors"),
        "{:?}",
        world.reasons()
    );
}

#[test]
fn the_counts_of_all_cpus_of_a_numa_node_are_added_up() {
    let mut world = World::new(100);
    world.set_online("0-3");
    world.set_nodes(&["0,2", "1,3"]);
    world.count("{page-faults,context-switches}", NUMA);
    for (cpu, count) in [(0, 1), (1, 20), (2, 300), (3, 4000)] {
        world.run(count, on_cpu(cpu));
    }
    let families = world.collect();
    let faults = |node: u32| value(&families, "perf_numa_page_faults", &format!("numa_node=\"{node}\""));
    assert_eq!([faults(0), faults(1), faults(2)], [Some(301), Some(4020), None]);
    assert_eq!(value(&families, "perf_numa_context_switches", "numa_node=\"1\""), Some(4020));
    assert_eq!(state(&families, "page-faults", "numa", "counting"), 4, "the reason is reported for each CPU");
    assert_eq!(world.kernel.opened().len(), 8);
}

#[test]
fn without_numa_all_cpus_are_of_node_0() {
    let mut world = World::new(100);
    world.count("page-faults", NUMA);
    world.run(5, |_| true);
    assert_eq!(value(&world.collect(), "perf_numa_page_faults", "numa_node=\"0\""), Some(10));
}

#[test]
fn a_numa_node_never_falls_when_its_cpus_go_and_come() {
    let mut world = World::new(100);
    world.set_nodes(&["0-1"]);
    world.count("page-faults", NUMA);
    world.run(5, |_| true);
    let faults = |world: &mut World, node: u32| {
        value(&world.collect(), "perf_numa_page_faults", &format!("numa_node=\"{node}\""))
    };
    assert_eq!(faults(&mut world, 0), Some(10));
    // Counts of a CPU are kept after it goes offline. The kernel lists only online CPUs.
    world.run(2, |_| true);
    world.set_online("0");
    world.set_nodes(&["0"]);
    assert_eq!(faults(&mut world, 0), Some(14));
    world.run(1, |_| true);
    assert_eq!(faults(&mut world, 0), Some(15));
    // The CPU comes back online, together with a CPU of another node that was never online.
    world.set_online("0-2");
    world.set_nodes(&["0-1", "2"]);
    assert_eq!(faults(&mut world, 0), Some(15));
    world.run(1, |_| true);
    assert_eq!((faults(&mut world, 0), faults(&mut world, 1)), (Some(17), Some(1)));
}

#[test]
fn a_refused_cpu_of_a_numa_node_is_a_refusal_and_the_others_count() {
    let mut world = World::new(100);
    world.set_online("0-2");
    world.set_nodes(&["0-1", "2"]);
    world.kernel.refuse(Errno::ENODEV, |_, place, _| place == FakePlace::Cpu(1));
    world.count("page-faults", NUMA);
    world.run(5, |_| true);
    let families = world.collect();
    assert_eq!(value(&families, "perf_numa_page_faults", "numa_node=\"0\""), Some(5));
    assert_eq!(value(&families, "perf_numa_page_faults", "numa_node=\"1\""), Some(5));
    assert_eq!(state(&families, "page-faults", "numa", "absent"), 1);
    assert!(world.reasons()[0].starts_with("page-faults on cpu 1: absent"), "{:?}", world.reasons());
    assert_eq!((world.collector.states()[0].targets, world.collector.states()[0].left_out), (2, 1));
}

#[test]
fn a_cpu_that_goes_keeps_its_count_and_goes_on_when_it_comes_back() {
    let mut world = World::new(100);
    world.count("page-faults", Targets::CPU);
    world.run(5, on_cpu(1));
    world.collect();
    let online = world.roots.sys.join("devices/system/cpu/online");
    fs::write(&online, "0\n").unwrap();
    assert_eq!(value(&world.collect(), "perf_cpu_page_faults", "cpu=\"1\""), Some(5));
    assert_eq!(world.kernel.opened().len(), 1);
    fs::write(&online, "0-1\n").unwrap();
    world.collect();
    world.run(2, on_cpu(1));
    assert_eq!(value(&world.collect(), "perf_cpu_page_faults", "cpu=\"1\""), Some(7));
}

#[test]
fn processes_of_one_name_share_a_series_and_new_names_begin_a_new_one() {
    let mut world = World::new(100);
    world.process(10, "sh", &[10, 11]);
    world.process(20, "sh", &[20]);
    world.count("page-faults", everybody());
    world.run(1, |_| true);
    assert_eq!(value(&world.collect(), "perf_process_page_faults", "comm=\"sh\""), Some(3));
    world.run(10, |event| event.place == FakePlace::Thread(20));
    world.process(20, "nginx", &[20]);
    for _ in 0..8 {
        world.collect();
    }
    world.run(100, |event| event.place == FakePlace::Thread(20));
    let families = world.collect();
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"sh\""), Some(13));
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"nginx\""), Some(100));
}

#[test]
fn a_process_whose_name_was_refused_gets_it_once_its_cgroup_has_room() {
    let mut world = World::new(100);
    world.collector.limit_names(1);
    world.process(10, "first", &[10]);
    world.process(20, "second", &[20]);
    world.count("page-faults", everybody());
    let of = |tid| move |event: &Opened| event.place == FakePlace::Thread(tid);
    world.run(2, of(10));
    world.run(3, of(20));
    let families = world.collect();
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"first\""), Some(2));
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"second\""), None);
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"other\""), Some(3));
    fs::remove_dir_all(world.roots.proc.join("10")).unwrap();
    // The name of the process that exited is kept for five minutes, and series in `other` are tried again once a minute.
    for _ in 0..8 {
        world.clock.advance(Duration::from_secs(60));
        world.collect();
    }
    world.run(4, of(20));
    let families = world.collect();
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"second\""), Some(4));
    assert_eq!(
        value(&families, "perf_process_page_faults", "comm=\"other\""),
        Some(3),
        "the counts stay in `other`"
    );
}

#[test]
fn threads_are_inherited_where_the_kernel_can_and_looked_for_where_it_cannot() {
    for (release, inherit, opened) in [("5.13.0", Inherit::Threads, 1), ("5.10.0", Inherit::Nothing, 2)] {
        let mut world = World::with_kernel(100, release);
        world.process(10, "sh", &[10]);
        world.count("page-faults", everybody());
        assert_eq!(world.kernel.opened()[0].attr.inherit, inherit);
        world.process(10, "sh", &[10, 11]);
        world.collect();
        assert_eq!(world.kernel.opened().len(), opened, "{release}");
        world.run(1, |_| true);
        fs::remove_dir(world.roots.proc.join("10/task/10")).unwrap();
        let expected = opened as u64;
        assert_eq!(value(&world.collect(), "perf_process_page_faults", "comm=\"sh\""), Some(expected));
        assert_eq!(world.kernel.opened().len(), 1, "{release}");
    }
}

#[test]
fn a_process_that_ends_while_it_is_opened_is_not_worth_a_word() {
    let mut world = World::new(100);
    world.process(10, "sh", &[10]);
    world.kernel.refuse(Errno::ESRCH, |_, place, _| matches!(place, FakePlace::Thread(_)));
    world.count("page-faults", everybody());
    world.collect();
    assert!(world.reasons().is_empty());
    assert_eq!(world.collector.budget().used, 0);
}

#[test]
fn series_over_the_limit_are_counted_together() {
    let mut world = World::new(100);
    for pid in 1..=5 {
        world.process(pid, &format!("p{pid}"), &[pid]);
    }
    world.count_at_most("page-faults", everybody(), 2);
    world.run(1, |_| true);
    let families = world.collect();
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"other\""), Some(3));
    assert_eq!(value(&families, "perf_process_page_faults", "comm=\"p1\""), Some(1));
    assert_eq!(world.collector.states()[0].in_other, 3);
}

#[test]
fn the_busiest_are_kept_by_name_and_nothing_that_was_counted_is_lost() {
    let mut world = World::new(100);
    for pid in 1..=5 {
        world.process(pid, &format!("p{pid}"), &[pid]);
    }
    world.count_at_most("page-faults", everybody(), 2);
    let of = |wanted: u32| move |event: &Opened| event.place == FakePlace::Thread(wanted);
    let total = |families: &[Family], comm: &str| {
        value(families, "perf_process_page_faults", &format!("comm=\"{comm}\""))
    };
    world.run(1, |_| true);
    world.clock.advance(Duration::from_secs(15));
    world.collect();
    let mut last: BTreeMap<&str, u64> = [("other", 3), ("p1", 1), ("p2", 1)].into();
    // p2 loses its labels, and its last value is published for a minute.
    for _ in 0..6 {
        world.clock.advance(Duration::from_secs(15));
        world.run_for(10, 3 * SECOND, 3 * SECOND, of(4));
        world.run_for(1, SECOND, SECOND, of(1));
        let families = world.collect();
        let now = ["other", "p1", "p2", "p3", "p4", "p5"].map(|comm| Some((comm, total(&families, comm)?)));
        let of_last = |comm| last.get(comm).copied().unwrap_or(0);
        let increase: u64 = now.iter().flatten().map(|&(comm, total)| total - of_last(comm)).sum();
        assert_eq!(increase, 11, "{now:?} after {last:?}");
        last.extend(now.into_iter().flatten());
    }
    let families = world.collect();
    assert_eq!(total(&families, "p1"), Some(7));
    assert_eq!(total(&families, "p2"), None);
    assert!(total(&families, "p4") > Some(0));
    let group = "counters=\"test\",leader=\"page-faults\",scope=\"process\"";
    assert_eq!(value(&families, "perf_series_in_other", group), Some(3));
    assert_eq!(value(&families, "perf_series_aggregated", group), Some(4));
}

/// The counter is one of many that are aggregated into `other`.
#[test]
fn a_counter_that_is_not_believed_takes_nothing_away_from_the_others_without_a_name() {
    let mut world = World::new(100);
    for pid in 1..=3 {
        world.process(pid, &format!("p{pid}"), &[pid]);
    }
    world.count_at_most("cycles", everybody(), 1);
    world.run(5_000_000_000, |_| true);
    let other = |families: &[Family]| value(families, "perf_process_cycles", "comm=\"other\"");
    assert_eq!(other(&world.collect()), Some(10_000_000_000));
    // The first one stays busy, so that it keeps its individual series.
    let of = |wanted: u32| move |event: &Opened| event.place == FakePlace::Thread(wanted);
    world.run(5_000_000_000, of(1));
    world.run(0, of(3));
    let families = world.collect();
    assert_eq!(state(&families, "cycles", "process", "stalled"), 1);
    assert_eq!(other(&families), Some(10_000_000_000));
    world.run(5_000_000_000, of(1));
    world.run(0, |event| !of(1)(event));
    assert_eq!(other(&world.collect()), None);
}

#[test]
fn a_member_that_does_not_fit_is_told_from_one_that_is_wrong() {
    let mut world = World::new(100);
    world.kernel.refuse(Errno::EINVAL, |attr, _, member| member && attr.selector.config[0] == 1);
    world.count("{cycles,instructions}", Targets::CPU);
    assert!(world.reasons()[0].contains("does not fit on the PMU together"), "{:?}", world.reasons());
    assert_eq!(world.kernel.opened().len(), 2);
}

#[test]
fn a_weak_group_is_broken_up_instead() {
    let mut world = World::new(100);
    world.kernel.refuse(Errno::EINVAL, |attr, _, member| member && attr.selector.config[0] == 1);
    world.count("{cycles,instructions}:W", Targets::CPU);
    assert!(world.reasons().is_empty(), "{:?}", world.reasons());
    let opened = world.kernel.opened();
    assert_eq!((opened.len(), opened.iter().filter(|event| event.is_member()).count()), (4, 0));
    world.run(5_000_000, on_cpu(0));
    assert_eq!(value(&world.collect(), "perf_cpu_instructions", "cpu=\"0\""), Some(5_000_000));
}

#[test]
fn a_new_plan_keeps_what_it_shares_with_the_old_one() {
    let mut world = World::new(100);
    world.count("page-faults", Targets::CPU);
    world.run(5, on_cpu(0));
    world.collect();
    let opened: Vec<FakePlace> = world.kernel.opened().iter().map(|event| event.place).collect();
    let calls = world.kernel.open_calls();
    world.count("page-faults,context-switches", Targets::CPU);
    assert_eq!(world.kernel.open_calls() - calls, 2);
    assert_eq!(opened, world.kernel.opened()[..2].iter().map(|event| event.place).collect::<Vec<_>>());
    assert_eq!(value(&world.collect(), "perf_cpu_page_faults", "cpu=\"0\""), Some(5));
    world.count("context-switches", Targets::CPU);
    assert_eq!((world.kernel.opened().len(), world.collector.budget().used), (2, 2));
}

#[test]
fn only_groups_that_can_be_rotated_have_a_ratio_and_labels_tell_them_apart() {
    let mut world = World::new(100);
    world.count("{cycles},{instructions},page-faults", Targets::CPU);
    world.run_for(1_000_000, SECOND, SECOND / 4, |_| true);
    let families = world.collect();
    let ratio =
        families.iter().find(|family| family.metadata().name() == "perf_event_running_ratio").unwrap();
    let points: Vec<_> =
        ratio.points().iter().map(|point| (point.labels.text(), point.value.clone())).collect();
    assert_eq!(points.len(), 4);
    let labels = "counters=\"test\",cpu=\"0\",leader=\"cycles\",scope=\"cpu\"";
    assert_eq!(points[0], (labels, Value::Float(0.25)));
}
