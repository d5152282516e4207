//! CPUs that go offline and come back, on a simulated host and kernel. Their counts are kept, and events on other CPUs stay open.

use std::fs;
use std::time::Duration;

use perf_exporter::clock::Timestamp;
use perf_exporter::sys::fake::Opened;

use crate::traced::World;

/// The switch stream, event descriptors of a cgroup, tracepoints with unordered and ordered records, and the scheduler.
const EVERYTHING: &str = "counters:
  stream: {events: [page-faults, minor-faults], per: [cpu, process]}
  own: {events: [\"{context-switches,cpu-migrations}\"], per: cgroup}
processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}
cgroups: {include: [/a], attribution: dedicated}
tracepoints: {work: {event: \"toy:work\", labels: [task], per: [cpu]}}
scheduler: {per: [host]}
";

/// Returns the ids of the open events on a CPU.
fn open_on(world: &World, cpu: u32) -> Vec<u64> {
    world.kernel.opened().iter().filter(|event| event.place.cpu() == Some(cpu)).map(Opened::id).collect()
}

/// Creates a host with a directory for each online CPU, as sysfs has.
fn world() -> World {
    let mut world = World::with_threads();
    for cpu in 0..2 {
        fs::create_dir_all(topology(&world, cpu)).unwrap();
    }
    world.cgroup("a");
    // Without this file, perf events and the switch stream count as unavailable.
    fs::write(world.roots.proc.join("sys/kernel/perf_event_paranoid"), "-1\n").unwrap();
    world.apply(EVERYTHING);
    assert_eq!(world.reasons(), [""; 0]);
    world
}

fn topology(world: &World, cpu: u32) -> std::path::PathBuf {
    world.roots.sys.join(format!("devices/system/cpu/cpu{cpu}/topology"))
}

/// Takes the CPU offline and online again between two scans.
fn restart(world: &World, cpu: u32) {
    world.kernel.take_offline(cpu);
    world.kernel.bring_online(cpu);
    // The new directory is created before the old one is removed, so that it has another inode.
    let new = topology(world, cpu).with_file_name("new");
    fs::create_dir(&new).unwrap();
    fs::remove_dir(topology(world, cpu)).unwrap();
    fs::rename(new, topology(world, cpu)).unwrap();
}

/// Advances every event of a CPU by `count`, in a second.
fn run(world: &World, cpu: u32, count: u64) {
    world.kernel.update(|event| {
        if event.place.cpu() == Some(cpu) {
            event.count.value += count;
            event.count.enabled += 1_000_000_000;
            event.count.running += 1_000_000_000;
        }
    });
}

#[test]
fn the_last_counts_of_a_cpu_that_went_are_in_its_series_and_are_attributed() {
    let mut world = world();
    run(&world, 0, 100);
    run(&world, 1, 5);
    world.collect();
    run(&world, 1, 3);
    world.kernel.take_offline(1);
    world.set_online("0\n");
    let scrape = world.collect();
    for metric in ["page_faults", "minor_faults"] {
        assert_eq!(scrape.value(&format!("perf_cpu_{metric}_total{{cpu=\"1\"}}")), Some(8.0), "{metric}");
        let ended = format!("perf_unattributed_{metric}_total{{reason=\"ended\",scope=\"process\"}}");
        assert_eq!(scrape.value(&ended), Some(8.0), "{metric}");
    }
    for metric in ["context_switches", "cpu_migrations"] {
        let cgroup = format!("perf_cgroup_{metric}_total{{cgroup=\"/a\"}}");
        assert_eq!(scrape.value(&cgroup), Some(108.0), "{metric} of the cgroup on both CPUs");
    }
    assert_eq!(open_on(&world, 1), [0; 0], "no event is left open on the CPU");
    assert_eq!(world.reasons(), [""; 0]);
}

#[test]
fn a_reason_for_unattributed_counts_begins_at_the_collection_before_its_first_count() {
    let mut world = world();
    (0..3).for_each(|_| drop(world.collect()));
    let before = world.clock.now();
    run(&world, 1, 8);
    world.kernel.take_offline(1);
    world.set_online("0\n");
    let families = world.families();
    let family = families.iter().find(|family| family.metadata().name() == "perf_unattributed_page_faults");
    let starts =
        family.unwrap().points().iter().map(|point| (point.labels.get("reason").unwrap(), point.start));
    assert_eq!(starts.collect::<Vec<_>>(), [("ended", before)]);
}

#[test]
fn only_the_events_of_the_cpu_that_went_and_came_are_opened_anew() {
    let mut world = world();
    let before = [0, 1].map(|cpu| open_on(&world, cpu));
    for looks_between in [true, false] {
        run(&world, 1, 5);
        if looks_between {
            world.kernel.take_offline(1);
            world.set_online("0\n");
            world.collect();
            world.kernel.bring_online(1);
            world.set_online("0-1\n");
        } else {
            restart(&world, 1);
        }
        world.collect();
        assert_eq!(open_on(&world, 0), before[0], "events of the other CPU");
        assert_eq!(open_on(&world, 1).len(), before[1].len(), "the number of events differs");
        assert!(open_on(&world, 1).iter().all(|id| !before[1].contains(id)), "some events were not reopened");
        assert!(world.kernel.opened().iter().all(|event| !event.removed));
        run(&world, 1, 2);
    }
    let scrape = world.collect();
    assert_eq!(scrape.value("perf_cpu_page_faults_total{cpu=\"1\"}"), Some(14.0));
    assert_eq!(scrape.value("perf_cgroup_context_switches_total{cgroup=\"/a\"}"), Some(14.0));
    assert_eq!(world.reasons(), [""; 0]);
}

#[test]
fn the_stream_finds_out_by_itself_that_the_kernel_has_removed_its_events() {
    let mut world = world();
    for cpu in 0..2 {
        fs::remove_dir(topology(&world, cpu)).unwrap();
    }
    world.collect();
    let before = [0, 1].map(|cpu| open_on(&world, cpu));
    run(&world, 1, 5);
    world.kernel.take_offline(1);
    world.kernel.bring_online(1);
    // This collection detects the change, and the scan before the next one handles it.
    assert_eq!(world.collect().value("perf_cpu_page_faults_total{cpu=\"1\"}"), Some(5.0));
    world.collect();
    run(&world, 1, 2);
    assert_eq!(world.collect().value("perf_cpu_page_faults_total{cpu=\"1\"}"), Some(7.0));
    assert_eq!(open_on(&world, 0), before[0]);
}

#[test]
fn a_cpu_that_is_about_to_go_is_no_refusal_and_disturbs_no_other() {
    let mut world = world();
    let before = open_on(&world, 0);
    // The kernel has already removed the events, but its list of CPUs still contains the CPU.
    world.kernel.take_offline(1);
    world.collect();
    world.collect();
    assert_eq!((world.reasons(), open_on(&world, 0)), (vec![], before.clone()));
    world.kernel.bring_online(1);
    restart(&world, 1);
    world.collect();
    assert_eq!((world.reasons(), open_on(&world, 0)), (vec![], before));
    run(&world, 1, 4);
    assert_eq!(world.collect().value("perf_cpu_page_faults_total{cpu=\"1\"}"), Some(4.0));
}

/// Returns the sum of all series of each metric of the world's CPUs, processes and cgroups.
fn sums(world: &mut World) -> Vec<f64> {
    let scrape = world.collect();
    let metrics = ["cpu_page_faults", "unattributed_page_faults", "cgroup_context_switches"];
    metrics.iter().map(|metric| scrape.sum(&format!("perf_{metric}_total"))).collect()
}

/// During a suspend, all CPUs except the first go offline and come back, while wall-clock time passes.
#[test]
fn after_a_suspension_counts_go_on_where_they_were() {
    let mut world = world();
    run(&world, 0, 100);
    run(&world, 1, 5);
    let before = sums(&mut world);
    world.clock.suspend(Duration::from_secs(3600));
    restart(&world, 1);
    // Counts of the CPU are attributed when it goes offline.
    assert_eq!(sums(&mut world), [before[0], before[1] + 5.0, before[2]]);
    run(&world, 0, 10);
    run(&world, 1, 1);
    assert_eq!(sums(&mut world), [before[0] + 11.0, before[1] + 5.0, before[2] + 11.0]);
}

#[test]
fn a_step_of_the_clock_on_the_wall_changes_no_count() {
    let mut world = world();
    run(&world, 0, 100);
    let before = sums(&mut world);
    for (turn, wall) in [(1.0, 1_000), (2.0, 1_000_000_000), (3.0, 0)] {
        world.clock.set_wall(Timestamp(wall));
        run(&world, 0, 10);
        assert_eq!(sums(&mut world), [before[0] + turn * 10.0, before[1], before[2] + turn * 10.0]);
    }
}

/// A hypervisor pauses its guest for an hour, in which the counters are enabled but do not run.
#[test]
fn a_guest_that_was_paused_counts_no_more_than_it_did() {
    let mut world = world();
    run(&world, 0, 100);
    let before = sums(&mut world);
    let hour = 3_600_000_000_000;
    world.kernel.update(|event| {
        (event.count.enabled, event.count.running) = (event.count.enabled + hour, event.count.running + hour);
    });
    world.advance(Duration::from_secs(3600));
    assert_eq!(sums(&mut world), before);
    run(&world, 0, 10);
    assert_eq!(sums(&mut world), [before[0] + 10.0, before[1], before[2] + 10.0]);
}
