//! Prometheus remote write to working and to failing receivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perf_exporter::budget::{Part, Share};
use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::push::{Protocol, RemoteWrite};
use perf_exporter::export::http::Unavailable;
use perf_exporter::export::otlp::attribute::{Attribute, Resource};
use perf_exporter::export::otlp::logs::Switch;
use perf_exporter::export::push::{Board, Feed, PushContext, Pusher, Settings};
use perf_exporter::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value};
use perf_exporter::net::tls::Tls as Files;
use perf_exporter::profile::ProfileRecorder;
use perf_exporter::span::Spans;
use perf_exporter::status::PushStatus;
use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily};
use tokio::sync::watch;

use crate::push::{Unsampled, eventually};
use crate::receiver::{Answer, Receiver, Tls};
use crate::remote_write_read::{Sample, WriteRequest, read, stored};

const LONG: &str = r#"perf_test_collections_total{cluster="c",instance="n1",job="perf-exporter",of="all"}"#;
const SHORT: &str =
    r#"perf_test_collections_total{cluster="c",instance="n1",job="perf-exporter",of="first"}"#;

/// A source of collections with their number. The first two collections contain an additional series.
#[derive(Debug, Clone, Default)]
struct Collections(Arc<AtomicU64>);

impl Feed for Collections {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let metadata = Metadata::new("perf_test_collections", "Collections", "", Kind::Counter).unwrap();
        let point = |of: &str| Point {
            labels: Labels::new([("of", of)]),
            value: Value::Integer(count),
            start: Timestamp(1),
        };
        let mut points = vec![point("all")];
        points.extend((count <= 2).then(|| point("first")));
        Ok(Arc::new(Snapshot::new(Timestamp(1000 + count), [Family::new(metadata, points)])))
    }

    fn profiles(&self) -> Arc<dyn ProfileRecorder> {
        Arc::new(Unsampled)
    }
}

struct Pushing {
    collections: Collections,
    settings: watch::Sender<Option<Arc<Settings>>>,
    board: Arc<Board>,
    registry: Registry,
    pusher: Option<Pusher>,
}

fn settings(receiver: &Receiver) -> RemoteWrite {
    RemoteWrite {
        url: format!("http://{}/api/v1/write", receiver.address).parse().unwrap(),
        headers: vec![("x-scope-orgid".into(), "a".into())],
        credentials_file: None,
        // Long, because a loaded machine may be slow and repeated pushes are not tested here.
        timeout: Duration::from_secs(60),
        tls: Files::default(),
        queue: 1 << 20,
        interval: Duration::from_millis(50),
        labels: vec![("cluster".into(), "c".into())],
    }
}

fn wanted(settings: RemoteWrite) -> Option<Arc<Settings>> {
    Some(Arc::new(Settings { remote_write: Some(settings), ..Settings::default() }))
}

impl Pushing {
    fn start(settings: RemoteWrite) -> Self {
        let (clock, registry) = (Clock::system(), Registry::new());
        let board = Arc::new(Board::new(&registry, clock.clone()).unwrap());
        let (sender, receiver) = watch::channel(wanted(settings));
        let surroundings = PushContext {
            resource: Resource::new([Attribute::text("host.name", "n1")]),
            board: Arc::clone(&board),
            log: Switch::default(),
            spans: Spans::default(),
            began: clock.now(),
            clock,
            memory: Share::fixed(Part::Queues, 64 << 20),
        };
        let collections = Collections::default();
        let pusher = Pusher::start(collections.clone(), receiver, surroundings).unwrap();
        Self { collections, settings: sender, board, registry, pusher: Some(pusher) }
    }

    fn state(&self) -> PushStatus {
        self.board.states().into_iter().next().unwrap_or_default()
    }

    #[track_caller]
    fn becomes(&self, what: &str, is: impl Fn(&PushStatus) -> bool) -> PushStatus {
        eventually(what, || Some(self.state()).filter(&is))
            .unwrap_or_else(|| panic!("{what}: {:?}", self.state()))
    }

    /// Stops, and returns the number of collections.
    fn stop(&mut self) -> u64 {
        self.pusher.take().unwrap().stop(Duration::from_secs(10));
        self.collections.0.load(Ordering::SeqCst)
    }
}

fn taken(receiver: &Receiver) -> Vec<WriteRequest> {
    let taken = receiver.taken();
    taken.iter().map(|one| read(&snap::raw::Decoder::new().decompress_vec(&one.raw).unwrap())).collect()
}

/// Returns times and values; `None` is a staleness marker.
fn shown(samples: &[Sample]) -> Vec<(i64, Option<f64>)> {
    samples.iter().map(|one| (one.timestamp, (!one.is_stale()).then_some(one.value))).collect()
}

/// Asserts that a series has the values of all collections from `first` up to some collection. Collections that are queued when the push
/// stops are sent only within its time limit.
#[track_caller]
fn has_all_from(first: usize, series: &[Sample], collections: u64) {
    let (shown, collections) = (shown(series), usize::try_from(collections).unwrap());
    let expected = (first..=collections).map(|count| (1000 + count as i64, Some(count as f64)));
    assert!(shown.len() >= 3 && expected.take(shown.len()).eq(shown.iter().copied()), "{shown:?}");
}

#[test]
fn each_sample_arrives_once_with_external_labels_and_what_ended_has_a_stale_marker() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let mut pushing = Pushing::start(settings(&receiver));
    let state = pushing.becomes("accepted", |state| state.accepted >= 6 && state.failing.is_none());
    let url = format!("http://{}/api/v1/write", receiver.address);
    assert_eq!((state.format, state.signal, &*state.endpoint), ("remote_write", "metrics", &*url));
    let collections = pushing.stop();
    let requests = taken(&receiver);
    let stored = stored(&requests);
    assert_eq!(stored.keys().collect::<Vec<_>>(), [LONG, SHORT]);
    has_all_from(1, &stored[LONG], collections);
    assert_eq!(shown(&stored[SHORT]), [(1001, Some(1.0)), (1002, Some(2.0)), (1003, None)]);
    let first = &receiver.taken()[0];
    for (header, value) in [
        ("content-encoding", "snappy"),
        ("content-type", "application/x-protobuf"),
        ("x-prometheus-remote-write-version", "0.1.0"),
        ("x-scope-orgid", "a"),
    ] {
        assert_eq!(first.headers[header], value);
    }
    assert_eq!((&*first.path, first.headers.get("authorization")), ("/api/v1/write", None));
    let families = pushing.registry.gather();
    let metrics = families.iter().flat_map(MetricFamily::get_metric);
    let labels = metrics.flat_map(Metric::get_label);
    assert!(labels.filter(|label| label.name() == "format").all(|label| label.value() == "remote_write"));
}

#[test]
fn server_errors_are_retried_with_the_pause_that_the_receiver_asks_for_and_nothing_is_lost() {
    std::thread::scope(|scope| {
        for (code, pause) in [(429, None), (500, Some(2)), (502, None), (503, Some(2)), (504, None)] {
            scope.spawn(move || {
                let receiver = Receiver::start(Protocol::Http, Tls::No);
                receiver.answers([Answer::Code(code, pause)]);
                let mut pushing = Pushing::start(settings(&receiver));
                pushing.becomes("failing", |state| state.failing.is_some());
                pushing.becomes("accepted", |state| state.failing.is_none() && state.accepted >= 6);
                let collections = pushing.stop();
                let stored = stored(&taken(&receiver));
                has_all_from(1, &stored[LONG], collections);
                let received = receiver.received();
                let waited = received[1].at - received[0].at;
                assert!(waited >= Duration::from_secs(pause.unwrap_or(0)), "{code}: {waited:?}");
            });
        }
    });
}

#[test]
fn what_a_receiver_refuses_is_dropped_and_counted_and_the_next_request_is_sent() {
    std::thread::scope(|scope| {
        for code in [302, 400, 401, 403, 404, 408, 413] {
            scope.spawn(move || {
                let receiver = Receiver::start(Protocol::Http, Tls::No);
                receiver.answers([Answer::Code(code, None)]);
                let mut pushing = Pushing::start(settings(&receiver));
                let state =
                    pushing.becomes("accepted", |state| state.accepted >= 6 && state.failing.is_none());
                assert_eq!((state.rejected, state.dropped), (2, 0), "{code}: {state:?}");
                let collections = pushing.stop();
                let stored = stored(&taken(&receiver));
                has_all_from(2, &stored[LONG], collections);
            });
        }
    });
}

#[test]
fn other_settings_continue_the_series_and_a_token_is_read_for_each_request() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let first = settings(&receiver);
    let mut second = RemoteWrite { credentials_file: Some(token.clone()), ..first.clone() };
    let mut pushing = Pushing::start(RemoteWrite { interval: Duration::from_secs(3600), ..first });
    pushing.becomes("accepted", |state| state.accepted >= 1);
    pushing.settings.send_replace(wanted(second.clone()));
    let failure = pushing.becomes("failing", |state| state.failing.is_some()).failing.unwrap();
    assert!(failure.why.contains("token"), "{failure:?}");
    std::fs::write(&token, "secret\n").unwrap();
    pushing.becomes("accepted", |state| state.accepted >= 6 && state.failing.is_none());
    second.queue += 1;
    pushing.settings.send_replace(wanted(second));
    let collections = pushing.stop();
    assert_eq!(receiver.taken().last().unwrap().headers["authorization"], "Bearer secret");
    let stored = stored(&taken(&receiver));
    has_all_from(1, &stored[LONG], collections);
    assert_eq!(
        shown(&stored[SHORT]).last(),
        Some(&(1003, None)),
        "staleness markers are sent after a reload"
    );
}
