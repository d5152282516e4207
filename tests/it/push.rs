//! Pushes to working and to failing receivers: collections continue, memory stays bounded, failures are reported, and cumulative sums are
//! complete as soon as a receiver accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hyper::Uri;
use perf_exporter::budget::{Part, Share};
use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::push::{Histograms, Protocol, Signal, Temporality};
use perf_exporter::export::http::Unavailable;
use perf_exporter::export::otlp::attribute::{Attribute, Resource};
use perf_exporter::export::otlp::logs::Switch;
use perf_exporter::export::otlp::{Settings, Target};
use perf_exporter::export::push::{self, Board, Feed, PushContext, Pusher};
use perf_exporter::metrics::{Family, Kind, Labels, Metadata, Point, Snapshot, Value};
use perf_exporter::net::tls::Tls as Files;
use perf_exporter::profile::{
    HeatMap, NoProfile, Profile, ProfileRecorder, RecordingId, Selection, TimeRange,
};
use perf_exporter::span::Spans;
use perf_exporter::status::PushStatus;
use prometheus::Registry;
use tokio::sync::watch;

use crate::receiver::{Answer, Receiver, Tls, pem, stranger};

const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// Name in OTLP of the metric that the test source provides.
const COUNTED: &str = "perf.test_collections";

/// A metric source whose value is the number of its collections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collections(Arc<AtomicU64>);

impl Feed for Collections {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let metadata = Metadata::new("perf_test_collections", "Collections", "", Kind::Counter).unwrap();
        let point = Point { labels: Labels::none(), value: Value::Integer(count), start: Timestamp(1) };
        Ok(Arc::new(Snapshot::new(Timestamp(1000 + count), [Family::new(metadata, vec![point])])))
    }

    fn profiles(&self) -> Arc<dyn ProfileRecorder> {
        Arc::new(Unsampled)
    }
}

#[derive(Debug)]
pub(crate) struct Unsampled;

impl ProfileRecorder for Unsampled {
    fn entries(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn begin(&self, _: &str, _: bool) -> Result<RecordingId, NoProfile> {
        Err(NoProfile::NothingSampled)
    }

    fn end(&self, _: RecordingId, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::NothingSampled)
    }

    fn renew(&self, _: RecordingId, _: &Selection) -> Result<(Profile, RecordingId), NoProfile> {
        Err(NoProfile::NothingSampled)
    }

    fn abandon(&self, _: RecordingId) {}

    fn last(&self, _: &str, _: Duration, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::NothingSampled)
    }

    fn range(&self, _: &str, _: TimeRange, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::NothingSampled)
    }

    fn heat(&self, _: &str, _: TimeRange, _: u32, _: &Selection) -> Result<HeatMap, NoProfile> {
        Err(NoProfile::NothingSampled)
    }
}

/// A profile source that has samples from the third request on, and no metrics.
#[derive(Debug, Clone, Default)]
struct Late {
    looks: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
}

impl Feed for Late {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        Err(Unavailable("this source has no metrics".into()))
    }

    fn profiles(&self) -> Arc<dyn ProfileRecorder> {
        Arc::new(self.clone())
    }
}

impl ProfileRecorder for Late {
    fn entries(&self) -> Vec<Arc<str>> {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        if looks < 2 { Vec::new() } else { vec!["cpu".into()] }
    }

    fn begin(&self, _: &str, _: bool) -> Result<RecordingId, NoProfile> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Err(NoProfile::Busy)
    }

    fn end(&self, _: RecordingId, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::Busy)
    }

    fn renew(&self, _: RecordingId, _: &Selection) -> Result<(Profile, RecordingId), NoProfile> {
        Err(NoProfile::Busy)
    }

    fn abandon(&self, _: RecordingId) {}

    fn last(&self, _: &str, _: Duration, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::Busy)
    }

    fn range(&self, _: &str, _: TimeRange, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::Busy)
    }

    fn heat(&self, _: &str, _: TimeRange, _: u32, _: &Selection) -> Result<HeatMap, NoProfile> {
        Err(NoProfile::Busy)
    }
}

/// A running push of the test.
struct Pushing {
    collections: Collections,
    settings: watch::Sender<Option<Arc<push::Settings>>>,
    board: Arc<Board>,
    pusher: Option<Pusher>,
}

pub(crate) fn target(protocol: Protocol, address: impl std::fmt::Display) -> Target {
    Target {
        signal: Signal::Metrics,
        uri: format!("http://{address}/v1/metrics").parse::<Uri>().unwrap(),
        protocol,
        headers: vec![("x-tenant".into(), "a".into())],
        gzip: true,
        timeout: Duration::from_secs(5),
        tls: Files::default(),
    }
}

pub(crate) fn settings(target: Target) -> Settings {
    Settings {
        targets: vec![target],
        resource: vec![("deployment.environment.name".into(), "test".into())],
        queue: 1 << 20,
        metrics_interval: Duration::from_millis(50),
        temporality: Temporality::Cumulative,
        histograms: Histograms::Exponential,
        profiles_interval: Duration::from_secs(60),
        profiles_cpus: true,
    }
}

/// Returns settings with these OTLP settings and no other format.
pub(crate) fn by_otlp(settings: Settings) -> Option<Arc<push::Settings>> {
    Some(Arc::new(push::Settings { otlp: Some(settings), ..push::Settings::default() }))
}

impl Pushing {
    fn start(settings: Settings) -> Self {
        let clock = Clock::system();
        let board = Arc::new(Board::new(&Registry::new(), clock.clone()).unwrap());
        let (sender, receiver) = watch::channel(by_otlp(settings));
        let surroundings = PushContext {
            resource: Resource::new([Attribute::text("service.name", "perf-exporter")]),
            board: Arc::clone(&board),
            log: Switch::default(),
            spans: Spans::default(),
            began: clock.now(),
            clock,
            memory: Share::fixed(Part::Queues, 64 << 20),
        };
        let collections = Collections::default();
        let pusher = Pusher::start(collections.clone(), receiver, surroundings).unwrap();
        Self { collections, settings: sender, board, pusher: Some(pusher) }
    }

    fn to(target: Target) -> Self {
        Self::start(settings(target))
    }

    fn state(&self) -> PushStatus {
        self.board.states().into_iter().next().unwrap_or_default()
    }

    fn collected(&self) -> u64 {
        self.collections.0.load(Ordering::SeqCst)
    }

    /// Waits until the state satisfies a condition.
    #[track_caller]
    fn becomes(&self, what: &str, is: impl Fn(&PushStatus) -> bool) -> PushStatus {
        eventually(what, || Some(self.state()).filter(&is))
            .unwrap_or_else(|| panic!("{what}: {:?}", self.state()))
    }

    fn stop(&mut self) {
        self.pusher.take().unwrap().stop(Duration::from_secs(10));
    }
}

/// Retries for up to a minute.
pub(crate) fn eventually<T>(_what: &str, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..3000 {
        if let Some(found) = attempt() {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn metrics_arrive_compressed_with_their_headers_and_their_resource() {
    for protocol in BOTH {
        let receiver = Receiver::start(protocol, Tls::No);
        let mut pushing = Pushing::to(target(protocol, receiver.address));
        pushing.becomes("accepted", |state| state.accepted >= 2 && state.failing.is_none());
        pushing.stop();
        let taken = receiver.taken();
        let values: Vec<_> = taken.iter().map(|received| received.value(COUNTED)).collect();
        let expected: Vec<_> = (1..=taken.len()).map(|count| i64::try_from(count).ok()).collect();
        assert_eq!(values, expected, "each collection is received once and in order");
        assert_eq!(values.len() as u64, pushing.collected(), "the last collection is received");
        let first = &taken[0];
        assert_eq!(first.headers["x-tenant"], "a");
        let user_agent = &first.headers["user-agent"];
        assert!(user_agent.starts_with("perf-exporter/"), "{user_agent}");
        let (encoding, path) = match protocol {
            Protocol::Grpc => ("grpc-encoding", ""),
            Protocol::Http => ("content-encoding", "/v1/metrics"),
        };
        assert_eq!((&*first.headers[encoding], &*first.path), ("gzip", path));
        let resource = first.body.resource_metrics[0].resource.as_ref().unwrap();
        let keys: Vec<&str> = resource.attributes.iter().map(|attribute| &*attribute.key).collect();
        assert_eq!(keys, ["deployment.environment.name", "service.name"]);
    }
}

/// Returns the codes that are retried, and some codes that are not.
fn codes(protocol: Protocol) -> (&'static [u16], &'static [u16]) {
    match protocol {
        Protocol::Grpc => (&[1, 4, 10, 11, 14, 15], &[2, 3, 5, 6, 7, 8, 9, 12, 13, 16]),
        Protocol::Http => (&[429, 502, 503, 504], &[302, 400, 401, 403, 404, 405, 408, 413, 500, 501]),
    }
}

/// Runs `act` for several codes in parallel, because each one waits.
fn for_each(codes: &[u16], act: impl Fn(u16) + Sync) {
    thread::scope(|scope| {
        for &code in codes {
            let act = &act;
            scope.spawn(move || act(code));
        }
    });
}

#[test]
fn what_a_receiver_cannot_take_now_is_sent_again_and_nothing_is_lost() {
    for protocol in BOTH {
        for_each(codes(protocol).0, |code| {
            let receiver = Receiver::start(protocol, Tls::No);
            receiver.answers([Answer::Code(code, None)]);
            let mut pushing = Pushing::to(target(protocol, receiver.address));
            let failing = pushing.becomes("failing", |state| state.failing.is_some());
            assert!(failing.failing.unwrap().why.starts_with("the server returned"), "{code}");
            pushing.becomes("accepted again", |state| state.failing.is_none() && state.accepted >= 3);
            pushing.stop();
            let taken = receiver.taken();
            let values: Vec<_> = taken.iter().filter_map(|received| received.value(COUNTED)).collect();
            let expected: Vec<i64> = (1..=i64::try_from(pushing.collected()).unwrap()).collect();
            assert_eq!(values, expected, "{code}: collections are missing or repeated");
            let state = pushing.board.states();
            assert!(state.is_empty(), "{state:?}");
        });
    }
}

#[test]
fn what_a_receiver_refuses_is_counted_and_the_next_one_is_sent() {
    for protocol in BOTH {
        for_each(codes(protocol).1, |code| {
            let receiver = Receiver::start(protocol, Tls::No);
            receiver.answers([Answer::Code(code, None)]);
            let mut pushing = Pushing::to(target(protocol, receiver.address));
            let state = pushing.becomes("accepted", |state| state.accepted >= 2 && state.failing.is_none());
            assert_eq!((state.rejected, state.dropped), (1, 0), "{code}: {state:?}");
            pushing.stop();
        });
    }
}

#[test]
fn a_receiver_is_left_alone_for_as_long_as_it_asks() {
    for (protocol, code) in [(Protocol::Grpc, 8), (Protocol::Grpc, 14), (Protocol::Http, 503)] {
        let receiver = Receiver::start(protocol, Tls::No);
        receiver.answers([Answer::Code(code, Some(2))]);
        let mut pushing = Pushing::to(target(protocol, receiver.address));
        pushing.becomes("accepted", |state| state.accepted >= 1);
        pushing.stop();
        let received = receiver.received();
        let pause = received[1].at - received[0].at;
        assert!(pause >= Duration::from_secs(2), "{code}: {pause:?}");
    }
}

#[test]
fn what_a_receiver_does_not_take_of_a_request_is_counted_and_told_in_its_words() {
    for protocol in BOTH {
        let receiver = Receiver::start(protocol, Tls::No);
        // A warning is shown until a push is accepted without a message.
        let warns = std::iter::repeat_n(Answer::Partly(0, "slow\u{1b}down"), 1000);
        receiver.answers(std::iter::once(Answer::Partly(1, "too old")).chain(warns));
        let mut pushing = Pushing::to(target(protocol, receiver.address));
        let state = pushing.becomes("accepted", |state| state.accepted >= 2);
        assert_eq!((state.partly_rejected, state.message.as_deref()), (1, Some("slow\u{fffd}down")));
        assert_eq!(state.failing, None);
        pushing.stop();
        let last = receiver.taken().last().unwrap().value(COUNTED);
        assert_eq!(last, i64::try_from(pushing.collected()).ok(), "a collection was sent twice");
    }
}

#[test]
fn while_nobody_is_there_collecting_goes_on_nothing_grows_and_all_is_there_afterwards() {
    for protocol in BOTH {
        // A port without a listener.
        let address = Receiver::start(protocol, Tls::No).address;
        let free = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        assert_ne!(address, free);
        let mut small = settings(target(protocol, free));
        small.queue = 2_000;
        let mut pushing = Pushing::start(small);
        let state = pushing.becomes("dropping", |state| state.dropped >= 3);
        assert!(state.waiting_bytes <= 2_000 && state.waiting_requests >= 1, "{state:?}");
        let why = state.failing.unwrap().why;
        assert!(why.contains("refused"), "{why}");
        let collected = pushing.collected();
        assert!(eventually("collecting", || (pushing.collected() > collected + 3).then_some(())).is_some());
        let receiver = Receiver::start_at(protocol, Tls::No, free);
        pushing.becomes("accepted", |state| state.failing.is_none() && state.accepted >= 1);
        pushing.stop();
        let taken = receiver.taken();
        let values: Vec<i64> = taken.iter().filter_map(|received| received.value(COUNTED)).collect();
        assert!(values.is_sorted() && values[0] > 1, "the oldest collections were not dropped: {values:?}");
        assert_eq!(
            values.last().copied(),
            i64::try_from(pushing.collected()).ok(),
            "the sum is not complete"
        );
    }
}

#[test]
fn whoever_speaks_another_protocol_or_none_is_told_and_tried_again() {
    for protocol in BOTH {
        let garbage = stranger(|mut stream| {
            drop(std::io::Write::write_all(&mut stream, b"\x00\xffSSH-2.0-what?\r\n\r\n"));
        });
        let closes = stranger(drop);
        for address in [garbage, closes] {
            let mut pushing = Pushing::to(target(protocol, address));
            let state = pushing.becomes("failing", |state| state.failing.is_some());
            assert!(state.accepted == 0 && !state.failing.unwrap().why.is_empty());
            pushing.stop();
        }
    }
}

#[test]
fn an_answer_that_breaks_off_or_is_none_takes_nothing() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 100\r\n\r\nabc"[..],
        b"HTTP/1.1 200 OK\r\ncontent-ty",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<hi/>",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 3\r\n\r\n\xff\xff\xff",
    ] {
        let receiver = Receiver::start(Protocol::Http, Tls::No);
        receiver.answers([Answer::Bytes(bytes)]);
        let mut pushing = Pushing::to(target(Protocol::Http, receiver.address));
        let failure = pushing.becomes("failing", |state| state.failing.is_some()).failing.unwrap();
        assert!(
            failure.why.contains("incomplete")
                || failure.why.contains("OTLP")
                || failure.why.contains("closed"),
            "{failure:?}"
        );
        pushing.becomes("accepted", |state| state.failing.is_none() && state.accepted >= 1);
        pushing.stop();
    }
}

#[test]
fn a_receiver_that_does_not_answer_is_given_up_and_the_next_attempt_has_all() {
    for protocol in BOTH {
        let receiver = Receiver::start(protocol, Tls::No);
        receiver.answers([Answer::Silence(Duration::from_secs(30))]);
        let mut slow = target(protocol, receiver.address);
        slow.timeout = Duration::from_millis(300);
        let mut pushing = Pushing::to(slow);
        let failure = pushing.becomes("failing", |state| state.failing.is_some()).failing.unwrap();
        assert_eq!(failure.why, "no response within 300ms");
        pushing.becomes("accepted", |state| state.failing.is_none() && state.accepted >= 2);
        pushing.stop();
        assert_eq!(receiver.taken()[0].value(COUNTED), Some(1), "the collection was not sent again");
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let files = |ca: &str, own: bool| Files {
        ca: Some(pem(ca)),
        certificate: own.then(|| pem("client.pem")),
        key: own.then(|| pem("client.key")),
    };
    for protocol in BOTH {
        for (tls, files, expected) in [
            (Tls::Server, files("ca.pem", false), None),
            (Tls::Mutual, files("ca.pem", true), None),
            (Tls::Server, files("other-ca.pem", false), Some("certificate")),
            (Tls::Mutual, files("ca.pem", false), Some("")),
            (Tls::Server, files("missing.pem", false), Some("missing.pem")),
            (Tls::Server, files("server.key", false), Some("tls.ca contains no certificate")),
        ] {
            let receiver = Receiver::start(protocol, tls);
            let mut secure = target(protocol, format_args!("localhost:{}", receiver.address.port()));
            secure.uri = secure.uri.to_string().replace("http:", "https:").parse().unwrap();
            secure.tls = files;
            let mut pushing = Pushing::to(secure.clone());
            match expected {
                None => drop(pushing.becomes("accepted", |state| state.accepted >= 1)),
                Some(part) => {
                    let state = pushing.becomes("failing", |state| state.failing.is_some());
                    let why = state.failing.unwrap().why;
                    assert!(
                        why.contains(part) && state.accepted == 0,
                        "{protocol:?} {:?}: {why}",
                        secure.tls
                    );
                }
            }
            pushing.stop();
        }
    }
}

#[test]
fn other_settings_hold_at_once_and_what_waits_goes_where_it_was_meant_to() {
    let (first, second) =
        (Receiver::start(Protocol::Grpc, Tls::No), Receiver::start(Protocol::Http, Tls::No));
    let mut pushing = Pushing::to(target(Protocol::Grpc, first.address));
    pushing.becomes("accepted", |state| state.accepted >= 1);
    pushing.settings.send_replace(by_otlp(settings(target(Protocol::Http, second.address))));
    assert!(eventually("moved", || (second.taken().len() > 1).then_some(())).is_some());
    let moved_at = first.taken().last().unwrap().value(COUNTED).unwrap();
    assert_eq!(second.taken()[0].value(COUNTED), Some(moved_at + 1), "collections are missing in between");
    pushing.settings.send_replace(None);
    assert!(eventually("ended", || pushing.board.states().is_empty().then_some(())).is_some());
    let (collected, taken) = (pushing.collected(), second.taken().len());
    thread::sleep(Duration::from_millis(300));
    assert_eq!(
        (pushing.collected(), second.taken().len()),
        (collected, taken),
        "requests continue after the stop"
    );
    pushing.stop();
}

#[test]
fn differences_are_told_once_although_the_settings_changed_meanwhile() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let mut delta = settings(target(Protocol::Http, receiver.address));
    delta.temporality = Temporality::Delta;
    let mut pushing = Pushing::start(delta.clone());
    pushing.becomes("accepted", |state| state.accepted >= 2);
    delta.metrics_interval = Duration::from_millis(70);
    pushing.settings.send_replace(by_otlp(delta));
    let before = receiver.taken().len();
    assert!(eventually("pushed", || (receiver.taken().len() > before + 2).then_some(())).is_some());
    pushing.stop();
    let sum: i64 = receiver.taken().iter().filter_map(|received| received.value(COUNTED)).sum();
    assert_eq!(u64::try_from(sum).unwrap(), pushing.collected());
}

#[test]
fn the_end_does_not_wait_for_a_receiver_that_never_comes() {
    let silent = stranger(|stream| {
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(120));
            drop(stream);
        });
    });
    for protocol in BOTH {
        let mut pushing = Pushing::to(target(protocol, silent));
        pushing.becomes("waiting", |state| state.waiting_requests >= 2);
        pushing.stop();
        assert!(pushing.board.states().is_empty());
    }
}

#[test]
fn profiles_begin_as_soon_as_something_is_sampled_however_long_they_are() {
    let receiver = Receiver::start(Protocol::Grpc, Tls::No);
    let mut profiles = target(Protocol::Grpc, receiver.address);
    profiles.signal = Signal::Profiles;
    let mut hourly = settings(profiles);
    hourly.profiles_interval = Duration::from_secs(3600);
    let (late, clock) = (Late::default(), Clock::system());
    let (_settings, pushed) = watch::channel(by_otlp(hourly));
    let surroundings = PushContext {
        resource: Resource::default(),
        board: Arc::new(Board::new(&Registry::new(), clock.clone()).unwrap()),
        log: Switch::default(),
        spans: Spans::default(),
        began: clock.now(),
        clock,
        memory: Share::fixed(Part::Queues, 64 << 20),
    };
    let pusher = Pusher::start(late.clone(), pushed, surroundings).unwrap();
    let begun = || late.begun.load(Ordering::SeqCst);
    assert!(eventually("begun", || (begun() > 0).then_some(())).is_some());
    let before = begun();
    thread::sleep(Duration::from_millis(1500));
    assert!((before + 1..=before + 3).contains(&begun()), "not retried, or retried too often: {}", begun());
    pusher.stop(Duration::from_secs(10));
}
