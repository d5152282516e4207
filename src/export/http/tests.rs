//! Tests of the server over sockets, at byte level.

use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use flate2::read::GzDecoder;
use prometheus::Registry;
use prometheus::proto::MetricFamily;
use tokio::sync::oneshot;

use super::profiles::tests::Profiler;
use super::*;
use crate::budget::{Part, Share};
use crate::clock::{Clock, Timestamp};
use crate::config::Web;
use crate::export::prometheus::{Encoder, Format};
use crate::export::protobuf;
use crate::metrics::{Family, Kind, Labels, Metadata, Point, Value};
use crate::net::listen::{Listen, ListenAddress};
use crate::span::Spans;
use crate::status::tests::example;

mod attacks;
mod certificates;
mod deep;
mod listening;
mod sites;
mod spans;

/// A program whose source returns one snapshot, or an error.
#[derive(Clone)]
pub(super) struct Program {
    /// `None`: the collection never finishes.
    pub(super) snapshot: Option<Result<Arc<Snapshot>, Unavailable>>,
    pub(super) reload: Result<String, String>,
    pub(super) reloads: Arc<Mutex<u32>>,
    pub(super) profiler: Profiler,
    /// Held while rendering of the status must block.
    pub(super) pages: Arc<Mutex<()>>,
    /// Number of renderings of the status that have begun.
    pub(super) begun: Arc<AtomicU64>,
    /// Changes of sets of events.
    pub(super) wanted: Arc<Mutex<Vec<crate::deep::Wanted>>>,
    /// The outcome of each such change; `None` = success.
    pub(super) refusal: Option<crate::deep::Refusal>,
    /// Rules of access.
    pub(super) rules: watch::Receiver<Arc<Rules>>,
}

/// Age of the snapshot of a [`Program`].
const AGE: Duration = Duration::from_millis(1500);

impl Source for Program {
    async fn snapshot(&self, _patience: Duration) -> Result<Collected, Unavailable> {
        match &self.snapshot {
            Some(result) => {
                result.clone().map(|snapshot| Collected { snapshot, metrics: Arc::default(), age: AGE })
            }
            None => pending().await,
        }
    }

    fn status(&self) -> Arc<Status> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        drop(self.pages.lock().unwrap());
        Arc::new(example())
    }

    fn ready(&self) -> Result<(), Unavailable> {
        self.snapshot
            .clone()
            .map_or_else(|| Err(Unavailable("nothing yet".to_owned())), |result| result.map(drop))
    }

    async fn reload(&self) -> Result<String, String> {
        *self.reloads.lock().unwrap() += 1;
        self.reload.clone()
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    fn follow_rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.clone()
    }

    async fn deep(&self, wanted: crate::deep::Wanted) -> crate::deep::Outcome {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let begins = matches!(wanted, crate::deep::Wanted::Begin { .. });
        self.wanted.lock().unwrap().push(wanted);
        Ok(begins.then(|| example().deep.active[0].clone()))
    }

    fn profiles(&self) -> Vec<Arc<str>> {
        self.profiler.kinds.clone()
    }

    async fn profile(&self, wanted: Wanted) -> Result<Arc<Profile>, Unavailable> {
        self.profiler.profile(wanted).await
    }

    async fn heat(
        &self,
        _: Arc<str>,
        range: TimeRange,
        rows: u32,
        _: Selection,
    ) -> Result<HeatMap, Unavailable> {
        self.profiler.heat(range, rows)
    }
}

/// Creates families with `series` series in total, whose labels are `width` bytes long.
pub(super) fn snapshot(series: usize, width: usize) -> Arc<Snapshot> {
    families(1, series, width)
}

fn families(families: usize, series: usize, width: usize) -> Arc<Snapshot> {
    let labels: Vec<_> = (0..series).map(|n| Labels::new([("cgroup", format!("{n:0width$}"))])).collect();
    let families = (0..families).map(|n| {
        let metadata = Metadata::new(&format!("perf_cgroup_event{n}"), "Events", "", Kind::Counter).unwrap();
        let points = labels.iter().map(|labels| Point {
            labels: Arc::clone(labels),
            value: Value::Integer(1),
            start: Timestamp(0),
        });
        Family::new(metadata, points.collect())
    });
    Arc::new(Snapshot::new(Timestamp(0), families))
}

pub(super) fn program(snapshot: Arc<Snapshot>) -> Program {
    Program {
        snapshot: Some(Ok(snapshot)),
        reload: Ok("reloaded".to_owned()),
        reloads: Arc::default(),
        profiler: Profiler::default(),
        pages: Arc::default(),
        begun: Arc::default(),
        wanted: Arc::default(),
        refusal: None,
        rules: fixed(Rules::new(&Web::default(), ["test"], None)),
    }
}

/// Returns rules that are never replaced.
fn fixed(rules: Rules) -> watch::Receiver<Arc<Rules>> {
    watch::channel(Arc::new(rules)).1
}

/// A server on its own thread, stopped on drop.
pub(super) struct Running {
    address: SocketAddr,
    registry: Registry,
    /// Memory share of 1 MiB for responses that are not sent yet.
    pub(super) memory: Share,
    pub(super) spans: Spans,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn with(program: Program, limits: Limits) -> Self {
        let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let listen = Listen { all: vec![address], admin: Vec::new(), socket_mode: 0o600 };
        Self::on(Listeners::bind(&listen).unwrap(), program, limits)
    }

    pub(super) fn on(listeners: Listeners, program: Program, limits: Limits) -> Self {
        let memory = Share::fixed(Part::Queues, 1 << 20);
        let tcp = |address: &(ListenAddress, bool)| match address {
            (ListenAddress::Tcp(address), _) => Some(*address),
            (ListenAddress::Unix(_), _) => None,
        };
        let address = listeners.addresses().iter().find_map(tcp).unwrap_or(([0; 4], 0).into());
        let spans = Spans::default();
        let server = Server::new(listeners, limits).within(memory.clone()).tracing(&spans);
        let registry = Registry::new();
        let traffic = Traffic::new(&registry).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = async { drop(stopped.await) };
            runtime.block_on(server.run(program, traffic, Clock::system(), stopped)).unwrap();
        });
        Self { address, registry, memory, spans, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn new(program: Program) -> Self {
        Self::with(program, Limits::default())
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Connects from another address of the machine, as another peer.
    pub(super) fn connect_from(&self, host: u8) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, host], 0).into()).unwrap();
            socket.connect(self.address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends a request from another address, on its own connection.
    pub(super) fn ask_from(&self, host: u8, path: &str) -> Answer {
        let mut stream = self.connect_from(host);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        Answer::read(&mut stream)
    }

    /// Asserts that the requests of Prometheus and an orchestrator are answered for a peer.
    pub(super) fn is_alive_for(&self, host: u8) {
        for path in ["/metrics", "/-/healthy", "/-/ready"] {
            assert_eq!(self.ask_from(host, path).code(), 200, "{path}");
        }
    }

    /// Sends a request (without its last empty line) on its own connection and reads the response.
    pub(super) fn ask(&self, request: &str) -> Answer {
        self.ask_with_body(request, "")
    }

    /// The same, with a body. The server may close the connection before it has read the whole body.
    pub(super) fn ask_with_body(&self, request: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        write!(stream, "{request}\r\nHost: test\r\nConnection: close\r\n\r\n{body}").unwrap();
        Answer::read(&mut stream)
    }

    /// Returns the samples of one of the server's own metrics.
    pub(super) fn counted(&self, name: &str) -> Vec<(Vec<String>, f64)> {
        let families = self.registry.gather();
        let metrics =
            families.iter().filter(|family| family.name() == name).flat_map(MetricFamily::get_metric);
        metrics
            .map(|metric| {
                let labels = metric.get_label().iter().map(|label| label.value().to_owned());
                (labels.collect(), metric.get_counter().get_value())
            })
            .collect()
    }

    /// Returns the reason why the first connection was aborted.
    fn aborted(&self) -> Option<String> {
        let counted = self.counted("perf_exporter_http_connections_aborted_total");
        counted.into_iter().find_map(|(mut labels, _)| labels.pop())
    }

    /// Returns the number of connections aborted for a reason.
    fn aborted_by(&self, reason: &str) -> f64 {
        let counted = self.counted("perf_exporter_http_connections_aborted_total");
        counted.into_iter().filter(|(labels, _)| labels[0] == reason).map(|(_, number)| number).sum()
    }

    fn wait_for_abort(&self) -> String {
        loop {
            match self.aborted() {
                Some(reason) => return reason,
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !thread::panicking() {
            self.stop();
        }
    }
}

pub(super) struct Answer {
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Reads until the connection is closed.
    fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Self::parse(&bytes)
    }

    pub(super) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("headers");
        let head = String::from_utf8(bytes[..end + 2].to_vec()).unwrap().to_ascii_lowercase();
        let body = &bytes[end + 4..];
        let chunked = head.contains("transfer-encoding: chunked") && !body.is_empty();
        let body = if chunked { dechunk(body) } else { body.to_vec() };
        Self { head, body }
    }

    pub(super) fn code(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Removes chunked encoding. Panics if the last chunk is missing: an aborted body is incomplete.
fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        body = &body[end + 2..];
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[..size]);
        body = &body[size + 2..];
    }
}

/// Returns the expected scrape: the age of the snapshot, then the snapshot.
fn encoded(snapshot: &Arc<Snapshot>, format: Format) -> Vec<u8> {
    let name = "perf_exporter_snapshot_age_seconds";
    let mut out = format!(
        "# HELP {name} Age of the collection in this response, since the start of the collection\n# TYPE {name} gauge\n"
    );
    if format != Format::Text {
        out.push_str(&format!("# UNIT {name} seconds\n"));
    }
    out.push_str(&format!("{name} 1.5\n"));
    let (mut encoder, mut out) = (Encoder::new(Arc::clone(snapshot), format), out.into_bytes());
    while encoder.next_chunk(&mut out) {}
    out
}

#[test]
fn a_scrape_gets_the_format_that_it_asks_for() {
    let snapshot = snapshot(5_000, 50);
    let server = Running::new(program(Arc::clone(&snapshot)));
    let plain = server.ask("GET /metrics HTTP/1.1");
    assert_eq!((plain.code(), plain.header("content-encoding")), (200, None));
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(plain.body, encoded(&snapshot, Format::Text));
    let open = server.ask("GET /metrics?x=y HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0");
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert_eq!(open.body, encoded(&snapshot, Format::OpenMetrics100));
    let created = "/metrics?created=true HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0";
    let created = server.ask(&format!("GET {created}"));
    assert_eq!(created.header("content-type"), open.header("content-type"));
    assert_eq!(created.body, encoded(&snapshot, Format::OpenMetricsCreated));
    let neither = server.ask("GET /metrics?created=1 HTTP/1.1");
    assert_eq!(
        (neither.code(), neither.text()),
        (400, "no metrics: the parameter created must be true or false\n")
    );
    let protobuf = server.ask(&format!("GET /metrics HTTP/1.1\r\nAccept: {}", protobuf::CONTENT_TYPE));
    // The reader of this test converts headers to lower case.
    assert_eq!(protobuf.header("content-type"), Some(protobuf::CONTENT_TYPE.to_ascii_lowercase().as_str()));
    let (mut encoder, mut expected) = (protobuf::Encoder::new(snapshot), Vec::new());
    while encoder.next_chunk(&mut expected) {}
    let age = protobuf.body.len() - expected.len();
    let length = usize::from(protobuf.body[0] & 0x7f) | usize::from(protobuf.body[1]) << 7;
    assert_eq!(length, age - 2, "a message before the others");
    assert!(protobuf.body[..age].windows(16).any(|part| part == b"snapshot_age_sec"));
    assert_eq!(protobuf.body[age..], expected);
}

#[test]
fn a_compressed_scrape_is_the_same_text_and_much_smaller() {
    let snapshot = snapshot(5_000, 50);
    let server = Running::new(program(Arc::clone(&snapshot)));
    let answer = server.ask("GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip");
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.header("vary"), Some("accept, accept-encoding"));
    let mut text = Vec::new();
    GzDecoder::new(answer.body.as_slice()).read_to_end(&mut text).unwrap();
    assert_eq!(text, encoded(&snapshot, Format::Text));
    assert!(answer.body.len() * 4 < text.len(), "{} of {}", answer.body.len(), text.len());
}

#[test]
fn head_gets_the_headers_and_no_body() {
    let server = Running::new(program(snapshot(10, 5)));
    for path in ["/metrics", "/status", "/-/healthy"] {
        let answer = server.ask(&format!("HEAD {path} HTTP/1.1"));
        assert_eq!((answer.code(), answer.body.len()), (200, 0), "{path}");
        assert!(answer.header("content-type").is_some());
        assert_ne!(answer.header("content-length"), Some("0"));
    }
}

#[test]
fn one_connection_serves_many_scrapes() {
    let snapshot = snapshot(3, 5);
    let server = Running::new(program(Arc::clone(&snapshot)));
    let mut stream = server.connect();
    for _ in 0..3 {
        write!(stream, "GET /-/healthy HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"healthy\n") {
            let mut part = [0; 512];
            let n = stream.read(&mut part).unwrap();
            assert_ne!(n, 0, "the connection was closed");
            bytes.extend_from_slice(&part[..n]);
        }
    }
}

#[test]
fn a_scrape_without_a_collection_is_told_why() {
    let mut without = program(snapshot(0, 1));
    without.snapshot = Some(Err(Unavailable("the first collection is under way".to_owned())));
    let server = Running::new(without);
    let answer = server.ask("GET /metrics HTTP/1.1");
    assert_eq!((answer.code(), answer.text()), (503, "no metrics: the first collection is under way\n"));
    assert_eq!(server.ask("GET /-/ready HTTP/1.1").code(), 503);
    assert_eq!(server.ask("GET /-/healthy HTTP/1.1").code(), 200);
}

#[test]
fn a_collection_that_does_not_end_does_not_hold_a_scrape() {
    let mut stuck = program(snapshot(0, 1));
    stuck.snapshot = None;
    let server = Running::with(stuck, Limits { collection: Duration::from_millis(50), ..Limits::default() });
    let answer = server.ask("GET /metrics HTTP/1.1");
    assert_eq!(answer.code(), 503);
    assert!(answer.text().contains("takes longer than 50ms"), "{}", answer.text());
}

#[test]
fn people_get_a_page_and_programs_the_same_as_json() {
    let server = Running::new(program(snapshot(1, 1)));
    for (path, code, words) in [
        ("/status", 200, "<h1>perf-exporter</h1>"),
        ("/", 200, "<title>Overview - perf-exporter</title>"),
        ("/cgroup?name=/a", 200, "No history is kept"),
        ("/program", 400, "the key name is missing: the program to show"),
        ("/?last=x", 400, "last: &quot;x&quot; is not a duration such as 10s or 5m"),
    ] {
        let page = server.ask(&format!("GET {path} HTTP/1.1"));
        assert_eq!((page.code(), page.header("content-type")), (code, Some("text/html; charset=utf-8")));
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert!(page.text().contains(words), "{path}: {}", page.text());
    }
    let json = server.ask("GET /api/v1/status HTTP/1.1");
    let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    assert_eq!(json["refusals"][0]["cause"], "forbidden");
    let history = server.ask("GET /api/v1/history HTTP/1.1");
    assert_eq!((history.code(), history.text().contains("no history is kept")), (404, true));
}

#[test]
fn an_unknown_path_lists_the_known_ones() {
    let server = Running::new(program(snapshot(1, 1)));
    for path in ["/metric", "/metrics/", "//", "/%2e%2e/etc/passwd", "/status/%3Cscript%3E"] {
        let answer = server.ask(&format!("GET {path} HTTP/1.1"));
        assert_eq!(answer.code(), 404, "{path}");
        assert!(answer.text().contains("/api/v1/status") && !answer.text().contains("script"));
    }
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let server = Running::new(program(snapshot(1, 1)));
    let answer = server.ask("DELETE /metrics HTTP/1.1");
    assert_eq!((answer.code(), answer.header("allow")), (405, Some("get, head")));
    assert_eq!(answer.text(), "/metrics accepts GET and HEAD\n");
    let answer = server.ask("GET /-/reload HTTP/1.1");
    assert_eq!((answer.code(), answer.header("allow")), (405, Some("post, put")));
}

#[test]
fn a_reload_answers_with_what_came_of_it() {
    let mut program = program(snapshot(1, 1));
    let server = Running::new(program.clone());
    assert_eq!(server.ask("POST /-/reload HTTP/1.1").text(), "reloaded\n");
    program.reload = Err("line 3: listen: not an address".to_owned());
    let server = Running::new(program);
    let answer = server.ask("POST /-/reload HTTP/1.1");
    assert_eq!(answer.code(), 500);
    assert!(answer.text().ends_with(":\nline 3: listen: not an address\n"), "{}", answer.text());
}

#[test]
fn a_megabyte_of_headers_is_refused_with_431() {
    let server = Running::new(program(snapshot(1, 1)));
    let mut stream = server.connect();
    let header = format!("X-Filler: {}\r\n", "x".repeat(1000));
    let request = format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{}\r\n", header.repeat(1024));
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut stream).code(), 431);
    assert_eq!(server.ask("GET /-/healthy HTTP/1.1").code(), 200);
}

#[test]
fn what_is_not_http_is_refused() {
    let server = Running::new(program(snapshot(1, 1)));
    let mut stream = server.connect();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut stream).code(), 400);
    drop(server.connect());
    assert_eq!(server.ask("GET /-/healthy HTTP/1.1").code(), 200);
}

#[test]
fn a_request_with_a_large_body_is_answered_without_reading_it() {
    let server = Running::new(program(snapshot(1, 1)));
    let mut stream = server.connect();
    write!(stream, "POST /-/reload HTTP/1.1\r\nHost: test\r\nContent-Length: 1099511627776\r\n\r\n").unwrap();
    stream.write_all(&[b'x'; 100_000]).unwrap();
    assert_eq!(Answer::read(&mut stream).text(), "reloaded\n");
}

/// Reads until the server closes or resets the connection, and returns the number of bytes.
fn read_until_cut(stream: &mut TcpStream) -> usize {
    let (mut total, mut buffer) = (0, [0; 64 << 10]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(n) => total += n,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("the connection is still open: {error}"),
        }
    }
}

#[test]
fn a_client_that_sends_its_headers_too_slowly_is_cut_off() {
    let server = Running::with(
        program(snapshot(1, 1)),
        Limits { headers: Duration::from_millis(100), ..Limits::default() },
    );
    let mut slow = server.connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow").unwrap();
    assert_eq!(read_until_cut(&mut slow), 0);
    assert_eq!(server.wait_for_abort(), "timeout");
}

/// Creates about 60 MB, more than all buffers between two sockets can hold.
fn huge() -> Arc<Snapshot> {
    families(600, 10, 10_000)
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_holds_nobody_up() {
    let limits = Limits { stall: Duration::from_millis(200), ..Limits::default() };
    let server = Running::with(program(huge()), limits);
    let mut hanging = server.connect();
    hanging.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    assert_eq!(server.ask("GET /-/healthy HTTP/1.1").code(), 200);
    assert_eq!(server.wait_for_abort(), "timeout");
    assert!(read_until_cut(&mut hanging) < 60_000_000);
}

#[test]
fn a_client_that_reads_byte_by_byte_is_cut_off_too() {
    let limits = Limits { stall: Duration::from_millis(300), ..Limits::default() };
    let server = Running::with(program(huge()), limits);
    let mut trickling = server.connect();
    trickling.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    while server.aborted().is_none() {
        let mut byte = [0];
        assert_eq!(trickling.read(&mut byte).unwrap(), 1);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(read_until_cut(&mut trickling) < 60_000_000);
}

#[test]
fn an_answer_that_takes_too_long_to_read_is_broken_off() {
    let server = Running::with(program(huge()), Limits { answer: Duration::ZERO, ..Limits::default() });
    let mut stream = server.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    assert!(read_until_cut(&mut stream) < 60_000_000);
}

#[test]
fn two_scrapers_at_a_time_get_the_same() {
    let snapshot = snapshot(20_000, 100);
    let server = Running::new(program(Arc::clone(&snapshot)));
    let expected = encoded(&snapshot, Format::Text);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!(server.ask("GET /metrics HTTP/1.1").body == expected));
        }
    });
}

#[test]
fn stopping_lets_an_answer_under_way_finish_and_hangs_up_on_the_idle() {
    let snapshot = families(200, 10, 10_000);
    let limits = Limits { shutdown: Duration::from_secs(60), ..Limits::default() };
    let mut server = Running::with(program(Arc::clone(&snapshot)), limits);
    let mut idle = server.connect();
    let mut scraping = server.connect();
    scraping.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut first = [0; 1];
    scraping.read_exact(&mut first).unwrap();
    let rest = thread::spawn(move || {
        let mut bytes = first.to_vec();
        scraping.read_to_end(&mut bytes).unwrap();
        bytes
    });
    server.stop();
    assert_eq!(read_until_cut(&mut idle), 0);
    assert!(Answer::parse(&rest.join().unwrap()).body == encoded(&snapshot, Format::Text));
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn stopping_does_not_wait_for_a_client_that_does_not_read() {
    let limits = Limits { shutdown: Duration::from_millis(50), ..Limits::default() };
    let mut server = Running::with(program(huge()), limits);
    let mut hanging = server.connect();
    hanging.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    hanging.read_exact(&mut [0; 1]).unwrap();
    server.stop();
    assert!(read_until_cut(&mut hanging) < 60_000_000);
}

#[test]
fn requests_are_counted_by_what_is_served_not_by_what_is_asked() {
    let mut server = Running::new(program(snapshot(1, 1)));
    server.ask("GET /metrics HTTP/1.1");
    server.ask("GET /metrics?a HTTP/1.1");
    server.ask("GET / HTTP/1.1");
    server.ask("GET /a HTTP/1.1");
    server.ask("GET /b HTTP/1.1");
    server.stop();
    let requests = server.counted("perf_exporter_http_requests_total");
    let expected = [("200", "/", 1.0), ("200", "/metrics", 2.0), ("404", "other", 2.0)];
    let expected = expected.map(|(code, path, number)| (vec![code.to_owned(), path.to_owned()], number));
    assert_eq!(requests, expected);
    let bytes = server.counted("perf_exporter_http_response_bytes_total");
    let text = encoded(&snapshot(1, 1), Format::Text);
    assert_eq!(bytes[1], (vec!["/metrics".to_owned()], 2.0 * text.len() as f64));
}

mod crowded;
