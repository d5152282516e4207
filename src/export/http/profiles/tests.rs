//! Tests of profile requests over sockets.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;

use super::super::tests::{Answer, Program, Running, program, snapshot};
use super::super::{Limits, Unavailable};
use super::*;
use crate::profile::sample_profiles::{example, hostile};

/// A source of profiles.
#[derive(Clone, Default)]
pub(in super::super) struct Profiler {
    pub(in super::super) kinds: Vec<Arc<str>>,
    profile: Option<Result<Arc<Profile>, Unavailable>>,
    /// Number of waiting requests: current, and total.
    waiting: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

/// Counts a waiting request until it is dropped.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Profiler {
    fn of(profile: Profile) -> Self {
        let kinds = ["cpu", "off_cpu"].map(Arc::from).to_vec();
        Self { kinds, profile: Some(Ok(Arc::new(profile))), ..Self::default() }
    }

    /// Creates a source whose profiles never become available.
    fn stuck() -> Self {
        Self { profile: None, ..Self::of(Profile::default()) }
    }

    pub(in super::super) async fn profile(&self, wanted: Wanted) -> Result<Arc<Profile>, Unavailable> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.asked.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(Arc::clone(&self.waiting));
        let mut profile = match &self.profile {
            Some(profile) => profile.clone()?,
            None => std::future::pending().await,
        };
        // A real source waits for this duration; here the profile reports the requested duration.
        if let Some(seconds) = wanted.seconds {
            Arc::make_mut(&mut profile).duration = Duration::from_secs(seconds.into());
        }
        Arc::make_mut(&mut profile).kind.name = wanted.kind;
        Ok(profile)
    }

    /// Waits until a number of requests are waiting.
    fn wait_for(&self, waiting: usize) {
        while self.waiting.load(Ordering::SeqCst) != waiting {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn with(profiler: Profiler) -> Program {
    Program { profiler, ..program(snapshot(1, 1)) }
}

fn running(profile: Profile) -> Running {
    Running::new(with(Profiler::of(profile)))
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

fn get(server: &Running, path: &str) -> Answer {
    server.ask(&format!("GET {path} HTTP/1.1"))
}

#[test]
fn a_scraper_gets_a_profile_of_the_seconds_that_it_wants() {
    let server = running(example());
    for (query, seconds) in [("", 10), ("?seconds=14", 14)] {
        let answer = get(&server, &format!("/debug/pprof/profile{query}"));
        assert_eq!((answer.code(), answer.header("content-type")), (200, Some("application/octet-stream")));
        assert_eq!(answer.header("content-encoding"), None);
        let file = "attachment; filename=\"perf-cpu-20251121t085206z.pb.gz\"";
        assert_eq!(answer.header("content-disposition"), Some(file));
        let mut expected = example();
        expected.duration = Duration::from_secs(seconds);
        assert_eq!(answer.body, pprof::encode(&expected).unwrap());
    }
}

#[test]
fn every_output_shows_the_selection_alone() {
    let server = running(example());
    for path in
        ["/folded", "/flamegraph", "/flamegraph?format=svg", "/top", "/top?format=text", "/top?format=json"]
    {
        let all = get(&server, path);
        let joint = if path.contains('?') { '&' } else { '?' };
        let part = get(&server, &format!("{path}{joint}comm=nginx*&mode=kernel"));
        assert_eq!((all.code(), part.code()), (200, 200), "{path}");
        assert!(all.text().contains("CollectGarbage") && all.text().contains("tcp_sendmsg"), "{path}");
        assert!(!part.text().contains("CollectGarbage") && part.text().contains("tcp_sendmsg"), "{path}");
    }
    let profile = gunzip(&get(&server, "/debug/pprof/profile?comm=nginx").body);
    let holds = |text: &str| profile.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("tcp_sendmsg") && !holds("CollectGarbage"));
}

#[test]
fn pages_allow_their_own_script_and_nothing_else() {
    let server = running(hostile());
    let mut nonces = Vec::new();
    for path in ["/flamegraph", "/top", "/debug/pprof/"] {
        let answer = get(&server, path);
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-"),
            "{policy}"
        );
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        let page = answer.text();
        assert_eq!(
            page.matches("<script").count(),
            page.matches(&format!("nonce=\"{nonce}\">")).count(),
            "{path}"
        );
        assert!(!page.contains("onload=") && !page.contains("javascript:"), "{path}");
        for reference in ["src=", "@import", "url(http"] {
            assert!(!page.contains(reference), "{path}: {reference}");
        }
        nonces.push(nonce);
    }
    nonces.dedup();
    assert_eq!(nonces.len(), 3);
}

#[test]
fn a_picture_alone_is_one() {
    let server = running(example());
    let answer = get(&server, "/flamegraph?format=svg");
    assert_eq!(answer.header("content-type"), Some("image/svg+xml"));
    assert!(answer.text().starts_with("<?xml") && answer.text().ends_with("</svg>"));
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let server = running(example());
    let refused = |path: &str| {
        let answer = get(&server, path);
        (answer.code(), answer.text().to_owned())
    };
    let (code, text) = refused("/debug/pprof/profile?node=x");
    assert_eq!(
        (code, &*text),
        (
            400,
            "unknown key \"node\"; available: type, seconds, comm, pid, cgroup, namespace, pod, container, mode\n"
        )
    );
    let (code, text) = refused("/folded?type=heap");
    assert_eq!((code, &*text), (404, "unknown profile type; available: cpu, off_cpu\n"));
    let (code, text) = refused("/flamegraph?seconds=1000");
    assert!(
        code == 400 && text.contains("is not a number from 1 to 300") && text.contains("<form"),
        "{text}"
    );
    for path in ["heap", "allocs", "goroutine", "block", "mutex"] {
        let (code, text) = refused(&format!("/debug/pprof/{path}"));
        assert!(code == 404 && text.contains("see /debug/pprof/ for the list"), "{text}");
    }
}

#[test]
fn without_profiles_every_path_says_so() {
    let server = Running::new(with(Profiler::default()));
    for path in ["/debug/pprof/profile", "/folded", "/flamegraph", "/top"] {
        let answer = get(&server, path);
        assert!(answer.code() == 404 && answer.text().contains(NO_KINDS), "{path}: {}", answer.text());
    }
    assert!(get(&server, "/debug/pprof/").text().contains(NO_KINDS));
}

#[test]
fn a_source_that_has_no_profile_now_says_why() {
    let unavailable = Unavailable("the first samples are under way".to_owned());
    let server = Running::new(with(Profiler { profile: Some(Err(unavailable)), ..Profiler::stuck() }));
    let answer = get(&server, "/folded");
    assert_eq!((answer.code(), answer.text()), (503, "no profile: the first samples are under way\n"));
}

#[test]
fn an_empty_profile_is_a_page_that_says_why() {
    let server = running(example());
    for path in ["/flamegraph?comm=apache*", "/top?comm=apache*", "/top?comm=apache*&format=text"] {
        let answer = get(&server, path);
        assert_eq!(answer.code(), 200);
        assert!(
            answer.text().contains("matches the selection; without it there are 349"),
            "{}",
            answer.text()
        );
    }
    let empty = get(&server, "/flamegraph?comm=apache*&format=svg");
    assert!(
        empty.code() == 200 && empty.text().starts_with("<svg ") && empty.text().contains("no sample in")
    );
    assert_eq!(get(&server, "/folded?comm=apache*").body, b"");
}

#[test]
fn pages_are_compressed_where_that_is_wanted_and_profiles_are_not_twice() {
    let server = running(example());
    let ask = |path: &str| server.ask(&format!("GET {path} HTTP/1.1\r\nAccept-Encoding: gzip"));
    let page = ask("/flamegraph?format=svg");
    assert_eq!(page.header("content-encoding"), Some("gzip"));
    assert_eq!(gunzip(&page.body), get(&server, "/flamegraph?format=svg").body);
    let profile = ask("/debug/pprof/profile");
    assert_eq!(profile.header("content-encoding"), None);
    assert!(gunzip(&profile.body).len() > profile.body.len());
}

/// Requests a profile on a connection that stays open, from a separate address.
fn ask_for_profile(server: &Running, host: u8) -> std::net::TcpStream {
    let mut stream = server.connect_from(host);
    write!(stream, "GET /debug/pprof/profile?seconds=300 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    stream
}

#[test]
fn who_goes_away_gives_its_turn_to_the_next() {
    let profiler = Profiler::stuck();
    // One concurrent turn per peer.
    let limits = Limits { profiles: 2, ..Limits::default() };
    let server = Running::with(with(profiler.clone()), limits);
    let first = ask_for_profile(&server, 1);
    profiler.wait_for(1);
    let _second = ask_for_profile(&server, 1);
    let _other_peer = ask_for_profile(&server, 2);
    profiler.wait_for(2);
    assert_eq!(profiler.asked.load(Ordering::SeqCst), 2);
    drop(first);
    while profiler.asked.load(Ordering::SeqCst) != 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    profiler.wait_for(2);
}

#[test]
fn a_turn_that_does_not_come_is_given_up() {
    let profiler = Profiler::stuck();
    let limits = Limits { profiles: 1, collection: Duration::from_millis(50), ..Limits::default() };
    let server = Running::with(with(profiler.clone()), limits);
    let _first = ask_for_profile(&server, 1);
    profiler.wait_for(1);
    let second = server.ask_from(2, "/folded");
    assert_eq!((second.code(), second.header("retry-after")), (503, Some("5")));
    assert!(second.text().starts_with("no turn within 50ms"), "{}", second.text());
}

#[test]
fn profiles_that_never_come_keep_nobody_else_out() {
    let server = Running::with(with(Profiler::stuck()), Limits { connections: 32, ..Limits::default() });
    // 24 slots, of which one loopback peer may have 16.
    let _asking: Vec<_> = (0..20).map(|_| ask_for_profile(&server, 1)).collect();
    let refused = || {
        let requests = server.counted("perf_exporter_http_requests_total");
        requests.into_iter().filter(|(labels, _)| labels[0] == "429").map(|(_, number)| number).sum::<f64>()
    };
    while refused() < 4.0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _of_others: Vec<_> = (0..8).map(|_| ask_for_profile(&server, 2)).collect();
    for host in [1, 2, 3] {
        for _ in 0..10 {
            server.is_alive_for(host);
        }
        assert_eq!(server.ask_from(host, "/status").code(), 200);
    }
    assert_eq!(refused(), 4.0);
}

#[test]
fn a_profile_that_does_not_come_is_given_up() {
    let limits = Limits { collection: Duration::from_millis(50), ..Limits::default() };
    let server = Running::with(with(Profiler::stuck()), limits);
    let answer = get(&server, "/folded");
    assert!(answer.code() == 503 && answer.text().contains("no profile after 50ms"), "{}", answer.text());
}

#[test]
fn profiles_are_refused_while_answers_that_are_not_sent_fill_their_share_of_the_memory() {
    let server = running(example());
    let others = server.memory.account();
    others.set(1 << 20);
    let refused = get(&server, "/folded");
    assert_eq!((refused.code(), refused.header("retry-after")), (503, Some("5")));
    assert!(refused.text().contains("set limits.memory higher"), "{}", refused.text());
    server.is_alive_for(1);
    others.set(0);
    assert_eq!(get(&server, "/folded").code(), 200);
}
