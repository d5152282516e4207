//! Tests of profile requests over sockets.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;

use super::super::tests::{Answer, Program, Running, program, snapshot};
use super::super::{Limits, Unavailable};
use super::*;
use crate::profile::sample_profiles::{Builder, example, hostile, kernel, native, task};
use crate::profile::{HeatMap, Mode};

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
        // Likewise for a range of the past: the source has samples from its profile's start on.
        if let Some(range) = wanted.range {
            let profile = Arc::make_mut(&mut profile);
            profile.start = profile.start.max(range.from);
            profile.duration = Duration::from_millis(range.to.0.saturating_sub(profile.start.0));
        }
        Arc::make_mut(&mut profile).kind.name = wanted.kind;
        Ok(profile)
    }

    pub(in super::super) fn heat(&self, range: TimeRange, rows: u32) -> Result<HeatMap, Unavailable> {
        let counts = vec![vec![1; rows as usize].into_boxed_slice(); range.seconds() as usize];
        Ok(HeatMap { from: Timestamp(range.from.0 / 1000 * 1000), complete_from: range.from, counts })
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

pub(in super::super) fn running(profile: Profile) -> Running {
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
fn every_output_has_a_range_of_the_past() {
    let mut profile = example();
    profile.start = Timestamp(0);
    let server = running(profile);
    for (query, start, duration) in [
        ("from=5000&to=5600", 5000, 600_000),
        ("from=1970-01-01T01:00:00Z&to=3630.5", 3600, 30_500),
        ("at=60&for=5s", 60, 5_000),
    ] {
        let answer = get(&server, &format!("/debug/pprof/profile?{query}"));
        assert_eq!(answer.code(), 200, "{query}");
        let mut expected = example();
        expected.start = Timestamp(start * 1000);
        expected.duration = Duration::from_millis(duration);
        assert_eq!(answer.body, pprof::encode(&expected).unwrap(), "{query}");
        for path in ["/folded", "/flamegraph", "/top"] {
            assert_eq!(get(&server, &format!("{path}?{query}")).code(), 200, "{path}?{query}");
        }
    }
    assert_eq!(get(&server, "/folded?from=-10m").code(), 200);
    for query in ["from=-5m&seconds=3", "from=x", "to=-1", "from=9000&to=8000", "from=99999999999"] {
        assert_eq!(get(&server, &format!("/folded?{query}")).code(), 400, "{query}");
    }
}

#[test]
fn a_range_that_is_older_than_all_samples_is_refused_with_how_far_they_reach() {
    let mut profile = example();
    profile.start = Timestamp(999_990_000);
    let server = running(profile);
    let answer = get(&server, "/folded?from=999940&to=999970");
    assert_eq!(
        (answer.code(), answer.text()),
        (
            404,
            "no cpu samples from 1970-01-12T13:45:40Z to 1970-01-12T13:46:10Z: the oldest samples in memory are from \
             1970-01-12T13:46:30Z; set limits.memory higher to keep more, at most for an hour\n"
        )
    );
    // The page that a browser shows has the same sentence.
    let page = get(&server, "/flamegraph?from=999940&to=999970");
    assert_eq!(page.code(), 404);
    assert!(page.text().contains("the oldest samples in memory are from 1970-01-12T13:46:30Z"));
    assert_eq!(get(&server, "/folded?from=999940&to=999991").code(), 200, "a part of the range is there");
}

#[test]
fn a_heat_map_has_a_column_for_each_second_and_is_bounded() {
    let server = running(example());
    let answer = get(&server, "/api/v1/heatmap?at=999990.5&for=9.5&rows=4&comm=nginx*");
    assert_eq!((answer.code(), answer.header("content-type")), (200, Some("application/json")));
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&json["type"], &json["from"], &json["seconds"]),
        (&"cpu".into(), &999_990.into(), &10.into())
    );
    assert_eq!((&json["rows"], &json["counts"][9]), (&4.into(), &serde_json::json!([1, 1, 1, 1])));
    let usual: serde_json::Value = serde_json::from_slice(&get(&server, "/api/v1/heatmap").body).unwrap();
    let seconds = usual["seconds"].as_u64().unwrap();
    assert!(usual["rows"] == 50 && (120..=121).contains(&seconds), "{seconds}");
    let refused = |query: &str| {
        let answer = get(&server, &format!("/api/v1/heatmap?{query}"));
        (answer.code(), answer.text().to_owned())
    };
    assert_eq!(refused("from=400&to=4001").0, 400);
    assert_eq!(refused("from=400&to=4000").0, 200);
    // An hour that does not begin with a second.
    assert!(refused("from=400.5&to=4000.5").1.starts_with(r#"{"type":"cpu","from":401,"seconds":3600,"#));
    assert_eq!(refused("from=400.5&to=4000.6").0, 400);
    for query in ["rows=0", "rows=101", "seconds=5", "from=9000&to=8000", "shape=icicle"] {
        assert_eq!(refused(query).0, 400, "{query}");
    }
    assert_eq!(
        refused("from=1000&to=8140").1,
        "the range touches 7140 seconds, the maximum is 3600: use a shorter range\n"
    );
    assert_eq!(refused("type=none").0, 404);
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
            "unknown key \"node\"; available: type, seconds, from, to, at, for, comm, program, pid, cgroup, namespace, pod, container, mode\n"
        )
    );
    let (code, text) = refused("/folded?type=heap");
    assert_eq!((code, &*text), (404, "unknown profile type; available: cpu, off_cpu\n"));
    let (code, text) = refused("/folded?base_node=x");
    assert!(code == 400 && text.contains("base_comm, base_program, base_pid"), "{text}");
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
fn a_kind_that_is_not_recorded_is_refused_with_the_lines_that_record_it() {
    let profiler = Profiler { kinds: vec!["cpu".into()], ..Profiler::of(example()) };
    let server = Running::new(with(profiler));
    for path in ["/flamegraph", "/top", "/folded", "/debug/pprof/profile"] {
        let answer = get(&server, &format!("{path}?type=off_cpu"));
        let text = answer.text();
        assert!(
            answer.code() == 404 && text.contains("off_cpu is not recorded; available: cpu"),
            "{path}: {text}"
        );
        assert!(text.contains("off_cpu: {threshold: 1ms}"), "{path}: {text}");
    }
}

#[test]
fn two_selections_of_one_profile_are_compared() {
    let server = running(example());
    let page = get(&server, "/flamegraph?comm=nginx&base_comm=node");
    assert_eq!(page.code(), 200);
    assert!(page.text().contains("100.00% \u{2192} 100.00% (0.00 points)"));
    assert!(page.text().contains("CollectGarbage"), "functions that vanished are listed");
    let folded = get(&server, "/folded?comm=nginx&base_comm=node&normalize=false");
    assert!(
        folded.text().lines().all(|line| line.contains(" 0 ") || line.ends_with(" 0")),
        "{}",
        folded.text()
    );
    let table = get(&server, "/top?comm=nginx&base_comm=node&by=comm&format=text");
    assert!(table.text().contains("+100.00") && table.text().contains("\u{2212}100.00"), "{}", table.text());
}

#[test]
fn a_function_is_shown_with_its_callers_and_callees() {
    let server = running(example());
    let page = get(&server, "/flamegraph?focus=do_syscall_64");
    assert!(page.text().contains("<title>writev\n") && page.text().contains("<title>tcp_sendmsg\n"));
    assert!(!page.text().contains("<title>hash_search\n"));
    let table = get(&server, "/top?focus=do_syscall_64&format=text");
    assert!(table.text().contains("entry_SYSCALL_64_after_hwframe"), "{}", table.text());
    let missing = get(&server, "/top?focus=missing&format=json");
    assert_eq!((missing.code(), missing.text()), (200, "null"));
    let missing = get(&server, "/flamegraph?focus=missing");
    assert!(missing.code() == 200 && missing.text().contains("contains the function"), "{}", missing.text());
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

#[test]
fn a_function_that_cannot_be_annotated_is_answered_with_the_reason() {
    let mut builder = Builder::default();
    let absent = task(1, "sh", "/");
    builder.add(&absent, Mode::User, 1, &[native("/absent/program", "f")]);
    builder.add(&absent, Mode::Kernel, 1, &[kernel("tcp_sendmsg")]);
    let server = running(builder.0);
    for (query, reason) in [
        ("symbol=absent", "no sample contains the function absent"),
        ("symbol=tcp_sendmsg", "tcp_sendmsg is a function of the kernel"),
        ("symbol=f", "/absent/program is not on this machine or cannot be read"),
        ("", "/absent/program is not on this machine"),
    ] {
        let answer = get(&server, &format!("/annotate?{query}&format=json"));
        let text = String::from_utf8(answer.body.clone()).unwrap();
        assert_eq!(answer.code(), 404, "{query}: {text}");
        assert!(text.contains(reason), "{query}: {text}");
    }
    let idle = get(&running(Profile::default()), "/annotate");
    assert_eq!(idle.code(), 200);
    assert!(
        String::from_utf8(idle.body)
            .unwrap()
            .contains("<b>No data:</b> no sample is in a function of a file")
    );
    let page = get(&server, "/annotate?symbol=absent");
    assert_eq!((page.code(), page.header("content-type")), (404, Some("text/html; charset=utf-8")));
}
