//! Cost of adding container labels of 1000 containers to 100 000 series: the first time, at each later collection, and after all containers
//! were renamed. For comparison: the cost of building the snapshot of the same series.
//!
//! `cargo bench --bench containers`

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::containers::{Containers, Socket};
use perf_exporter::container::{self, Directory, Labeller, MetadataContext, Metrics};
use perf_exporter::host::{Environment, Roots};
use perf_exporter::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value};

const CONTAINERS: usize = 1000;
const FAMILIES: usize = 10;
/// Series of each container and family.
const SERIES: usize = 10;

fn id(container: usize) -> String {
    format!("{container:064x}")
}

/// Answers as Docker does with this many containers.
fn docker(path: &std::path::Path) {
    let containers: Vec<String> = (0..CONTAINERS)
        .map(|at| {
            format!(
                r#"{{"Id":"{}","Names":["/app-{at}"],"Image":"registry.example.com/app:1.{at}"}}"#,
                id(at)
            )
        })
        .collect();
    let body = format!("[{}]", containers.join(","));
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            assert_ne!(stream.read(&mut request).unwrap(), 0);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
}

fn families(labels: &[Arc<Labels>]) -> Vec<Family> {
    let family = |family| {
        let metadata =
            Metadata::new(&format!("perf_cgroup_event{family}"), "help", "", Kind::Counter).unwrap();
        let point = |labels: &Arc<Labels>| Point {
            labels: Arc::clone(labels),
            value: Value::Integer(1),
            start: Timestamp(0),
        };
        Family::new(metadata, labels.iter().map(point).collect())
    };
    (0..FAMILIES).map(family).collect()
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = black_box(run());
    (result, begin.elapsed())
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    docker(&socket);
    let clock = Clock::system();
    let directory = Arc::new(Directory::new(clock.clone()));
    let settings = Containers { cri: Socket::Off, docker: Socket::At(socket), ..Containers::default() };
    let (_settings, receiver) = tokio::sync::watch::channel(Arc::new(settings));
    let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
    let (roots, environment) = (Roots::default(), Environment::default());
    let surroundings = MetadataContext { roots, environment, clock: clock.clone(), metrics };
    container::start(Arc::clone(&directory), receiver, surroundings).unwrap();
    while directory.size().0 < CONTAINERS {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut labels: Vec<Arc<Labels>> = (0..CONTAINERS * SERIES)
        .map(|at| {
            let path = format!("/system.slice/docker-{}.scope", id(at / SERIES));
            Labels::new([("cgroup", path), ("state", format!("s{}", at % SERIES))])
        })
        .collect();
    labels.sort();
    let mut labeller = Labeller::new(Arc::clone(&directory), clock.now()).unwrap();
    let (_, first) = timed(|| labeller.name(families(&labels)));
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 30 } else { 1 };
    let (mut steady, mut built) = (Duration::MAX, Duration::MAX);
    for _ in 0..rounds {
        let (series, own) = timed(|| families(&labels));
        let (named, took) = timed(|| labeller.name(series));
        let told =
            named.iter().flat_map(Family::points).filter(|point| point.labels.get("container").is_some());
        assert!(told.count() >= CONTAINERS * SERIES * FAMILIES);
        steady = steady.min(took);
        let (_, snapshot) = timed(|| Snapshot::new(clock.now(), named));
        built = built.min(own + snapshot);
    }
    println!("100 000 series of {CONTAINERS} containers, {} label sets", labels.len());
    println!("labels added the first time: {first:.1?}");
    println!(
        "labels added again:          {steady:.1?}, {:.2} of building the snapshot ({built:.1?})",
        steady.as_secs_f64() / built.as_secs_f64()
    );
}
