//! Tests of the engine with a fake kernel and a manual clock.

mod deep;

use super::*;
use crate::app::Service;
use crate::app::incidents::Incidents;
use crate::error::Errno;
use crate::export::http::Source;
use crate::export::otlp::logs::Switch;
use crate::history::SharedHistory;
use crate::metrics::Build;
use crate::span::tests::Kept;
use crate::sys::fake::{FakeKernel, FakePlace, Opened};

/// Returns an engine on a host with one CPU, with a fake kernel and a manual clock.
fn engine(dir: &tempfile::TempDir) -> (Engine<FakeKernel>, FakeKernel, Clock) {
    let cpus = dir.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0\n").unwrap();
    let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
    let roots = Roots::under(dir.path());
    let options = Options {
        config: None,
        web_config: None,
        listen: Vec::new(),
        files: Files::here(&roots),
        roots,
        sandbox: false,
        clock: clock.clone(),
        environment: Environment::default(),
        log: Switch::default(),
    };
    let metrics = SelfMetrics::new(&Build { version: "1".into(), revision: String::new() }, clock.now());
    let metrics = Arc::new(metrics.unwrap());
    let board = Arc::new(Board::new(metrics.registry(), clock.clone()).unwrap());
    let pushes = Pushes { settings: watch::channel(None).0, board };
    let directory = Arc::new(Directory::new(clock.clone()));
    let naming = Naming { settings: watch::channel(Arc::default()).0, directory };
    let files = files::Metrics::new(metrics.registry()).unwrap();
    let engine = Engine::new(kernel.clone(), &options, Config::default(), metrics, files, pushes, naming);
    (engine.unwrap(), kernel, clock)
}

/// A scrape may arrive while events are being opened. Its response must include everything that happened before it.
#[test]
fn a_collection_is_as_old_as_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let (mut engine, kernel, clock) = engine(&dir);
    let (publisher, published) = watch::channel(Arc::new(engine.unpublished()));
    engine.apply();
    let slow = clock.clone();
    kernel.refuse(Errno::EINVAL, move |_, _, _| {
        slow.advance(Duration::from_secs(3));
        false
    });
    // A second CPU comes online, so that this collection has events to open.
    std::fs::write(dir.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
    let before = clock.monotonic();
    assert_eq!(engine.collect(&publisher), before);
    assert!(clock.monotonic() > before, "nothing was opened");
    assert_eq!(published.borrow().at, before);
}

#[test]
fn the_status_tells_how_old_the_collection_is_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut engine, _kernel, clock) = engine(&dir);
    let (publisher, published) = watch::channel(Arc::new(engine.unpublished()));
    engine.collect(&publisher);
    let (requests, _received) = std::sync::mpsc::channel();
    let rules = watch::channel(Arc::default()).1;
    let service = Service::new(
        requests,
        published,
        (engine.profiles(), SharedHistory::default(), engine.anomalies(), Incidents::absent()),
        rules,
        Files::here(&Roots::default()),
        RequestCpu::default(),
        clock.clone(),
    );
    clock.advance(Duration::from_secs(7));
    let status = service.status();
    assert_eq!(status.now.0 - status.collection.unwrap().at.0, 7_000);
}

/// Clients that request many profiles must not reduce the detail of metrics.
#[test]
fn limits_cpu_does_not_bound_what_requests_take() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _kernel, clock) = engine(&dir);
    let requests = RequestCpu::default();
    let mut engine = engine.serving(&requests);
    let (publisher, _published) = watch::channel(Arc::new(engine.unpublished()));
    clock.advance(Duration::from_secs(1));
    engine.collect(&publisher);
    requests.count(|| {
        let before = usage::thread_cpu_time();
        while usage::thread_cpu_time() - before < Duration::from_millis(200) {}
    });
    // Other tests run in this process. Therefore only the difference that the request makes is checked.
    clock.advance(Duration::from_secs(1));
    engine.collect(&publisher);
    let (all, measuring) = (engine.cpu_share.part.unwrap(), engine.measuring.part.unwrap());
    assert!(all - measuring >= 0.199, "{all} {measuring}");
}

/// With the built-in configuration, counters, samplers and their rings are open on each CPU.
#[test]
fn between_two_collections_a_cpu_that_comes_is_followed_and_nothing_is_opened_anew_on_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (mut engine, kernel, clock) = engine(&dir);
    let (publisher, _published) = watch::channel(Arc::new(engine.unpublished()));
    let set_online =
        |cpus: &str| std::fs::write(dir.path().join("sys/devices/system/cpu/online"), cpus).unwrap();
    let open_on = |cpu: u32| -> Vec<u64> {
        let on = |event: &&Opened| event.place == FakePlace::Cpu(cpu);
        kernel.opened().iter().filter(on).map(Opened::id).collect()
    };
    set_online("0-1\n");
    engine.collect(&publisher);
    let before = [0, 1].map(open_on);
    let samples = |event: &Opened| event.attr.sampling.is_some();
    assert!(kernel.opened().iter().any(samples) && before[1].len() > 2, "{before:?}");
    for _ in 0..3 {
        clock.advance(Duration::from_millis(100));
        kernel.take_offline(1);
        set_online("0\n");
        let changes = engine.watch.refresh_cpus();
        engine.follow_cpus(&changes.restarted);
        assert_eq!((open_on(0), open_on(1)), (before[0].clone(), vec![]));
        kernel.bring_online(1);
        set_online("0-1\n");
        let changes = engine.watch.refresh_cpus();
        engine.follow_cpus(&changes.restarted);
        assert_eq!((open_on(0), open_on(1).len()), (before[0].clone(), before[1].len()));
    }
    engine.collect(&publisher);
    assert_eq!(open_on(0), before[0]);
}

#[test]
fn a_suspension_is_noted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut engine, _kernel, clock) = engine(&dir);
    clock.suspend(Duration::from_secs(60));
    let (publisher, published) = watch::channel(Arc::new(engine.unpublished()));
    engine.collect(&publisher);
    assert_eq!(engine.suspended, Duration::from_secs(60));
    clock.advance(Duration::from_secs(1));
    let begin = clock.monotonic();
    engine.collect(&publisher);
    assert_eq!((engine.suspended, published.borrow().at), (Duration::from_secs(60), begin));
}

#[test]
fn each_collection_has_a_span() {
    let dir = tempfile::tempdir().unwrap();
    let spans = Spans::default();
    let mut engine = engine(&dir).0.tracing(&spans);
    let kept = Kept::of(&spans);
    let (publisher, _published) = watch::channel(Arc::new(engine.unpublished()));
    engine.collect(&publisher);
    engine.collect(&publisher);
    let names: Vec<String> = kept.told().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["collect", "collect"]);
}
