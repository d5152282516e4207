use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use super::*;
use crate::clock::Timestamp;

/// An API server. The token `good` belongs to `anna`, who may get `/metrics`; the token `wide` to `ben`, who may use every path.
struct ApiServer {
    url: String,
    requests: Arc<Lock<Vec<Value>>>,
}

impl ApiServer {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let requests = Arc::<Lock<Vec<Value>>>::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut length = 0;
                for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty())
                {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                        length = value.parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let answer = Self::answer(&review).to_string();
                seen.lock().push(review);
                let mut stream = reader.into_inner();
                let head = format!(
                    "HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    answer.len()
                );
                stream.write_all((head + &answer).as_bytes()).unwrap();
            }
        });
        Self { url, requests }
    }

    fn answer(review: &Value) -> Value {
        let spec = &review["spec"];
        if review["kind"] == "TokenReview" {
            return match spec["token"].as_str() {
                Some("good") => json!({"status": {"authenticated": true, "user": {
                    "username": "anna", "uid": "u-1", "groups": ["viewers"], "extra": {"scopes": ["a"]}}}}),
                Some("wide") => json!({"status": {"authenticated": true, "user": {"username": "b\u{7}en"}}}),
                Some("odd") => json!([1, 2]),
                _ => json!({"status": {"user": {}, "error": "invalid bearer token"}}),
            };
        }
        let allowed = spec["user"] == "b\u{7}en" || spec["nonResourceAttributes"]["path"] == "/metrics";
        json!({"status": {"allowed": allowed}})
    }

    fn asked(&self) -> usize {
        self.requests.lock().len()
    }
}

struct Asking {
    server: ApiServer,
    reviewer: Reviewer,
    clock: Clock,
}

impl Asking {
    fn new() -> Self {
        let server = ApiServer::start();
        let reviewer = Reviewer::new(KubernetesServer::new(&server.url, None, None));
        Self { server, reviewer, clock: Clock::manual(Timestamp(0)) }
    }

    fn ask(&self, token: &str, path: &str, peer: u32) -> Review {
        let peer = Peer::of(Ipv4Addr::from(0x0a00_0000 + peer).into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.reviewer.review(token, ("get", path), peer, &self.clock))
    }
}

#[test]
fn the_api_server_says_who_a_client_is_and_whether_it_may_use_a_path() {
    let asking = Asking::new();
    assert_eq!(asking.ask("good", "/metrics", 1), Review::Allowed("anna".into()));
    assert_eq!(asking.ask("good", "/flamegraph", 1), Review::Refused("anna".into()));
    assert_eq!(
        asking.ask("wide", "/flamegraph", 1),
        Review::Allowed("b\u{fffd}en".into()),
        "control characters"
    );
    assert_eq!(asking.ask("bad", "/metrics", 1), Review::Invalid);
    let expected = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "anna", "uid": "u-1", "groups": ["viewers"], "extra": {"scopes": ["a"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
    });
    assert_eq!(asking.server.requests.lock()[1], expected);
}

#[test]
fn a_permission_is_remembered_for_a_minute_and_a_refusal_for_ten_seconds() {
    let asking = Asking::new();
    for (path, seconds) in [("/metrics", 60), ("/flamegraph", 10)] {
        let first = asking.ask("good", path, 1);
        let before = asking.server.asked();
        asking.clock.advance(Duration::from_secs(seconds) - Duration::from_millis(1));
        assert_eq!((asking.ask("good", path, 1), asking.server.asked()), (first.clone(), before), "{path}");
        asking.clock.advance(Duration::from_millis(1));
        assert_eq!((asking.ask("good", path, 1), asking.server.asked()), (first, before + 2), "{path}");
    }
}

#[test]
fn a_peer_that_guesses_tokens_is_limited_and_others_at_its_address_are_not() {
    let asking = Asking::new();
    assert_eq!(asking.ask("good", "/metrics", 1), Review::Allowed("anna".into()));
    for n in 0..5 {
        assert_eq!(asking.ask(&format!("guess {n}"), "/metrics", 1), Review::Invalid);
    }
    let before = asking.server.asked();
    assert_eq!(asking.ask("guess 5", "/metrics", 1), Review::Limited(13));
    assert_eq!(asking.server.asked(), before, "the API server has no part in it");
    assert_eq!(asking.ask("guess 6", "/metrics", 2), Review::Invalid, "another peer");
    // The decision about the scraper at this address is too old, and is made again.
    asking.clock.advance(Duration::from_secs(61));
    for n in 0..9 {
        asking.ask(&format!("more {n}"), "/metrics", 1);
    }
    assert_eq!(asking.ask("good", "/metrics", 1), Review::Allowed("anna".into()));
}

#[test]
fn an_api_server_that_does_not_answer_is_a_failure_and_no_guess() {
    let mut asking = Asking::new();
    for _ in 0..20 {
        let Review::Failed(why) = asking.ask("odd", "/metrics", 1) else { panic!() };
        assert!(why.starts_with("the response is not a review: "), "{why}");
    }
    asking.reviewer = Reviewer::new(KubernetesServer::new("http://127.0.0.1:1", None, None));
    for _ in 0..20 {
        assert!(matches!(asking.ask("good", "/metrics", 1), Review::Failed(why) if why.contains("refused")));
    }
}

#[test]
fn remembered_decisions_are_bounded() {
    let asking = Asking::new();
    let digester = Digester::new();
    for n in 0..3 * REMEMBERED {
        let decision = Decision {
            at: Monotonic(Duration::from_millis(n as u64)),
            user: "anna".into(),
            is_allowed: true,
        };
        asking.reviewer.remember(digester.digest([&n.to_le_bytes()]), decision);
        assert!(asking.reviewer.decisions.lock().len() <= REMEMBERED);
    }
}
