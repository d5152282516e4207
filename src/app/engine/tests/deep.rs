//! Sets of events for a few cgroups, on a host with two CPUs and the cgroups `/a`, `/b` and `/c`.

use super::*;
use crate::deep::{Refusal, RefusalKind};
use crate::metrics::Value;

/// Events per CPU and for all cgroups, by descriptors of their own.
const COUNTERS: &str = "counters: {os: {events: [context-switches], per: [cpu, cgroup], cgroups: {include: ['/*'], attribution: dedicated}}}\n\
                        profiles: {}\npresets: []\nscheduler: {per: []}\nhistory: {for: 0s}\nanomalies: {}\ncollection: {interval: 60s}\n";

struct World {
    dir: tempfile::TempDir,
    engine: Engine<FakeKernel>,
    kernel: FakeKernel,
    clock: Clock,
    publisher: watch::Sender<Arc<Published>>,
}

impl World {
    /// Starts an engine with a file that counts [`COUNTERS`], and makes the first collection.
    fn new(yaml: &str) -> Self {
        Self::of(&format!("{COUNTERS}{yaml}"))
    }

    fn of(yaml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |path: &str| dir.path().join(path);
        for created in ["proc/sys/kernel", "proc/self", "cg/a", "cg/b", "cg/c"] {
            std::fs::create_dir_all(path(created)).unwrap();
        }
        std::fs::write(path("proc/self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        std::fs::write(path("proc/cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        std::fs::write(path("proc/sys/kernel/osrelease"), "6.12.0\n").unwrap();
        std::fs::write(path("proc/sys/kernel/perf_event_paranoid"), "-1\n").unwrap();
        let (mut engine, kernel, clock) = engine(&dir);
        std::fs::write(path("sys/devices/system/cpu/online"), "0-1\n").unwrap();
        engine.config = load(yaml);
        engine.look_at_host();
        let (publisher, _) = watch::channel(Arc::new(engine.unpublished()));
        engine.apply_file();
        engine.collect(&publisher);
        Self { dir, engine, kernel, clock, publisher }
    }

    fn request(&mut self, json: &str) -> Result<u64, Refusal> {
        let request = Box::new(config::load_deep(json.as_bytes()).unwrap());
        let wanted = Wanted::Begin { request, requester: "tester".to_owned() };
        self.engine.handle_deep(wanted).map(|state| state.unwrap().id)
    }

    /// Advances every enabled event by `count`, in a second, and the clock by the same time.
    fn run(&self, count: u64) {
        self.clock.advance(Duration::from_secs(1));
        self.kernel.update(|event| {
            if event.enabled {
                event.count.value += count;
                event.count.enabled += 1_000_000_000;
                event.count.running += 1_000_000_000;
            }
        });
    }

    /// Returns the total of a metric and a cgroup after a collection; `None` without such a series.
    fn total(&mut self, metric: &str, cgroup: &str) -> Option<u64> {
        self.engine.collect(&self.publisher);
        let snapshot = self.publisher.borrow().snapshot.clone().unwrap();
        assert!(snapshot.conflicts().is_empty(), "{:?}", snapshot.conflicts());
        let family = snapshot.families().iter().find(|family| family.metadata().sample_name() == metric)?;
        let point = family.points().iter().find(|point| point.labels.get("cgroup") == Some(cgroup))?;
        let Value::Integer(total) = point.value else { panic!("{:?}", point.value) };
        Some(total)
    }

    fn descriptors(&self) -> usize {
        let used = self.engine.collector.budget().used;
        assert_eq!(used, self.kernel.opened().len());
        used
    }
}

fn load(yaml: &str) -> Config {
    config::load(yaml.as_bytes(), "f").unwrap_or_else(|problems| panic!("{problems}")).0
}

/// Returns the configuration of a file that counts [`COUNTERS`].
fn file(yaml: &str) -> Config {
    load(&format!("{COUNTERS}{yaml}"))
}

const FAULTS: &str = "perf_cgroup_minor_faults_total";
const SWITCHES: &str = "perf_cgroup_context_switches_total";

#[test]
fn a_set_ends_on_time_its_descriptors_are_free_and_other_events_lose_nothing() {
    let mut world = World::new("");
    let before = world.descriptors();
    world.run(5);
    assert_eq!((world.total(SWITCHES, "/a"), world.total(FAULTS, "/a")), (Some(10), None));
    let open: Vec<u64> = world.kernel.opened().iter().map(Opened::id).collect();
    world.request(r#"{"events": ["minor-faults"], "cgroups": ["/a"], "for": "2s"}"#).unwrap();
    assert_eq!(world.descriptors(), before + 2, "one event on each CPU");
    assert_eq!(world.engine.due(), Duration::from_secs(2));
    world.run(3);
    assert_eq!((world.total(SWITCHES, "/a"), world.total(FAULTS, "/a")), (Some(16), Some(6)));
    assert_eq!(world.total(FAULTS, "/b"), None);
    assert!(!world.engine.expire_deep());
    world.run(4);
    assert!(world.engine.expire_deep());
    assert_eq!(world.descriptors(), before);
    assert_eq!(
        (world.total(SWITCHES, "/a"), world.total(FAULTS, "/a")),
        (Some(24), Some(14)),
        "the last counts"
    );
    world.run(1);
    assert_eq!(
        (world.total(SWITCHES, "/a"), world.total(FAULTS, "/a")),
        (Some(26), Some(14)),
        "it has ended"
    );
    let still: Vec<u64> = world.kernel.opened().iter().map(Opened::id).collect();
    assert_eq!(open, still, "no other event was opened again");
    world.clock.advance(Duration::from_secs(300));
    assert!(world.engine.expire_deep());
    assert_eq!((world.total(SWITCHES, "/a"), world.total(FAULTS, "/a")), (Some(26), None));
}

#[test]
fn totals_continue_if_a_set_begins_again_soon_and_when_one_of_two_sets_ends() {
    let mut world = World::new("");
    let of = |cgroup: &str, lasts: &str| {
        format!(r#"{{"events": ["minor-faults"], "cgroups": ["{cgroup}"], "for": "{lasts}"}}"#)
    };
    world.request(&of("/a", "2s")).unwrap();
    world.request(&of("/b", "10s")).unwrap();
    world.run(1);
    assert_eq!((world.total(FAULTS, "/a"), world.total(FAULTS, "/b")), (Some(2), Some(2)));
    world.run(1);
    assert!(world.engine.expire_deep());
    world.run(1);
    assert_eq!((world.total(FAULTS, "/a"), world.total(FAULTS, "/b")), (Some(4), Some(6)));
    world.request(&of("/a", "10s")).unwrap();
    world.run(1);
    assert_eq!((world.total(FAULTS, "/a"), world.total(FAULTS, "/b")), (Some(6), Some(8)));
}

#[test]
fn a_set_does_not_interrupt_the_switch_stream() {
    let stream = COUNTERS.replace("attribution: dedicated", "attribution: stream");
    let mut world = World::of(&stream);
    let open = |world: &World| world.kernel.opened().iter().map(Opened::id).collect::<Vec<u64>>();
    assert!(world.engine.plan.stream.is_some());
    let before = open(&world);
    world.request(r#"{"events": ["minor-faults"], "cgroups": ["/a"], "for": "2s"}"#).unwrap();
    let during = open(&world);
    assert_eq!(during.len(), before.len() + 2);
    assert!(before.iter().all(|id| during.contains(id)));
    world.run(1);
    world.run(1);
    assert!(world.engine.expire_deep());
    assert_eq!(open(&world), before);
}

#[test]
fn a_reload_keeps_requested_sets_and_their_totals() {
    let mut world = World::new("");
    world.request(r#"{"events": ["minor-faults"], "cgroups": ["/a"], "for": "100s"}"#).unwrap();
    world.run(1);
    assert_eq!(world.total(FAULTS, "/a"), Some(2));
    let open = world.descriptors();
    world.engine.reload(Ok((file("limits: {series: 99}"), Vec::new()))).unwrap();
    assert_eq!(world.descriptors(), open);
    world.run(1);
    assert_eq!(world.total(FAULTS, "/a"), Some(4));
    assert_eq!(world.publisher.borrow().status.deep.active.len(), 1);
}

#[test]
fn a_set_of_the_file_begins_with_the_first_collection_and_follows_new_cgroups() {
    let mut world = World::new("deep: {faults: {events: minor-faults, cgroups: ['/a', '/new*'], for: 10s}}");
    world.run(1);
    assert_eq!(world.total(FAULTS, "/a"), Some(2));
    std::fs::create_dir(world.dir.path().join("cg/new1")).unwrap();
    world.engine.collect(&world.publisher);
    world.run(1);
    assert_eq!((world.total(FAULTS, "/new1"), world.total(FAULTS, "/a")), (Some(2), Some(4)));
    world.engine.reload(Ok((file(""), Vec::new()))).unwrap();
    world.run(1);
    assert_eq!(world.total(FAULTS, "/a"), Some(4), "the file no longer contains it");
}

#[test]
fn a_set_that_grows_beyond_the_limit_ends() {
    let mut world =
        World::new("deep: {faults: {events: minor-faults, cgroups: '/*'}}\nlimits: {deep_cgroups: 3}");
    assert_eq!(world.publisher.borrow().status.deep.active.len(), 1);
    std::fs::create_dir(world.dir.path().join("cg/d")).unwrap();
    world.engine.collect(&world.publisher);
    assert_eq!(world.publisher.borrow().status.deep.active.len(), 0);
    assert!(world.kernel.opened().len() == 2 + 4 * 2, "context-switches alone");
}

#[test]
fn requests_for_events_or_descriptors_that_the_host_does_not_have_open_nothing() {
    let mut world = World::new("limits: {deep_cgroups: 1}");
    let before = world.kernel.open_calls();
    for (request, kind, reason) in [
        (r#"{"events": ["nonsense"], "cgroups": ["/a"]}"#, RefusalKind::Wrong, "nonsense"),
        (r#"{"events": ["minor-faults"], "cgroups": ["/*"]}"#, RefusalKind::Wrong, "selects 3 cgroups"),
        (r#"{"events": ["minor-faults"], "cgroups": ["/none"]}"#, RefusalKind::Unknown, "no cgroup"),
        (r#"{"events": ["minor-faults"], "pods": {"pod": "web-0"}}"#, RefusalKind::Unknown, "no cgroup"),
    ] {
        let refusal = world.request(request).unwrap_err();
        assert!(refusal.kind == kind && refusal.reason.contains(reason), "{request}: {refusal}");
    }
    assert_eq!(world.kernel.open_calls(), before);
    assert_eq!(world.engine.handle_deep(Wanted::End(7)).unwrap_err().kind, RefusalKind::Unknown);
}
