//! The engine with a kernel and a clock that the test keeps.

use super::*;
use crate::app::Service;
use crate::error::Errno;
use crate::export::http::Source;
use crate::export::otlp::logs::Switch;
use crate::metrics::Build;
use crate::sys::fake::FakeKernel;

/// An engine on a host of one CPU, with a kernel and a clock that the test keeps.
fn engine(dir: &tempfile::TempDir) -> (Engine<FakeKernel>, FakeKernel, Clock) {
    let cpus = dir.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0\n").unwrap();
    let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
    let roots = Roots::under(dir.path());
    let options = Options {
        config: None,
        listen: None,
        files: Files::here(&roots),
        roots,
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

/// The scrape comes while events are being opened, and a thing that happens just before it must be in its answer.
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
    // A second CPU comes, so that this collection has something to open.
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
    let service = Service::new(requests, published, engine.profiles(), RequestCpu::default(), clock.clone());
    clock.advance(Duration::from_secs(7));
    let status = service.status();
    assert_eq!(status.now.0 - status.collection.unwrap().at.0, 7_000);
}

/// A client that asks for profiles all the time must not have less measured.
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
    // Other tests run in this process, so a share is not known, but which part of it the request took is.
    clock.advance(Duration::from_secs(1));
    engine.collect(&publisher);
    let (all, measuring) = (engine.spending.part.unwrap(), engine.measuring.part.unwrap());
    assert!(all - measuring >= 0.199, "{all} {measuring}");
}
