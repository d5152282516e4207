//! Uploads and comparisons over sockets.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use super::super::Limits;
use super::super::profiles::tests::running;
use super::super::tests::{Answer, Running, program, snapshot};
use super::*;
use crate::export::folded::{self, Folded};
use crate::export::pprof;
use crate::profile::sample_profiles::example;

fn post(server: &Running, file: &[u8]) -> Answer {
    post_with(server, &format!("Content-Length: {}", file.len()), file)
}

fn post_with(server: &Running, headers: &str, body: &[u8]) -> Answer {
    let mut stream = server.connect();
    let head = format!("POST /api/v1/baselines HTTP/1.1\r\nHost: test\r\n{headers}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // The server closes the connection of a refused upload before it has read all of it.
    stream.write_all(body).ok();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    Answer::parse(&bytes)
}

/// Returns the value of the key `base` for an uploaded file.
fn uploaded(server: &Running, file: &[u8]) -> String {
    let answer = post(server, file);
    assert_eq!(answer.code(), 201, "{}", answer.text());
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    json["base"].as_str().unwrap().to_owned()
}

fn get(server: &Running, path: &str) -> Answer {
    server.ask(&format!("GET {path} HTTP/1.1"))
}

fn twice() -> Profile {
    let mut profile = example();
    let samples = profile.samples.len();
    profile.samples.truncate(samples / 2);
    profile.samples.iter_mut().for_each(|sample| sample.value *= 2);
    profile
}

#[test]
fn an_uploaded_pprof_file_and_its_folded_stacks_are_the_same_base() {
    let server = running(example());
    let base = twice();
    let options = folded::Options { annotated: false, ..folded::Options::default() };
    let expected = Folded::difference(&base, &example(), options).text(true);
    let lines = Folded::new(&base, folded::Options::default()).text(true);
    for file in [pprof::encode(&base).unwrap(), lines.into_bytes()] {
        let name = uploaded(&server, &file);
        let folded = get(&server, &format!("/folded?base={name}"));
        assert_eq!((folded.code(), folded.text()), (200, &*expected));
    }
}

#[test]
fn every_view_of_a_comparison_with_a_file_keeps_it() {
    let server = running(example());
    let name = uploaded(&server, &pprof::encode(&twice()).unwrap());
    let page = get(&server, &format!("/flamegraph?base={name}"));
    assert_eq!(page.code(), 200);
    let text = page.text();
    assert!(text.contains("Changes by function") && text.contains("larger share"), "{text}");
    assert!(text.contains(&format!("/top?base={name}")), "{text}");
    assert!(text.contains("end comparison") && text.contains("data-to=\"/flamegraph?base=\""), "{text}");
    assert!(
        text.contains("name=\"base_comm\" placeholder=\"all\"") && !text.contains("name=\"base_from\""),
        "{text}"
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("connect-src 'self'"), "{policy}");
    for path in ["/top?format=text", "/top?format=json", "/flamegraph?format=svg", "/top?focus=PostgresMain"]
    {
        assert_eq!(get(&server, &format!("{path}&base={name}")).code(), 200, "{path}");
    }
    let unchanged = uploaded(&server, &pprof::encode(&example()).unwrap());
    let top = get(&server, &format!("/top?format=json&base={unchanged}"));
    let top: serde_json::Value = serde_json::from_slice(&top.body).unwrap();
    let rows = top["functions"].as_array().unwrap();
    assert!(rows.len() > 5 && rows.iter().all(|row| row["self_points"] == 0.0), "{rows:?}");
}

#[test]
fn what_is_no_profile_is_refused_and_not_kept() {
    let server = running(example());
    let table: [(&[u8], u16, &str); 4] = [
        (b"", 400, "the file has no samples; pprof and folded stacks are read\n"),
        (
            b"a;b\n",
            400,
            "line 1 is not a folded stack: it has no value after a space; pprof and folded stacks are read\n",
        ),
        (b"\x1f\x8bnothing", 400, "the file cannot be decompressed: "),
        (b"\0\0", 400, "the file is not a pprof profile: "),
    ];
    for (file, code, text) in table {
        let answer = post(&server, file);
        assert!(answer.code() == code && answer.text().starts_with(text), "{}", answer.text());
    }
    let large = post(&server, &vec![b' '; UPLOAD + 1]);
    assert_eq!(large.text(), "the file is too large: the maximum is 8388608 bytes\n");
    // The share of the memory is 1 MiB, and the file is not compressible.
    let mut random = 1_u64;
    let line = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("a;{random:x} 1\n")
    };
    let lines: String = (0..90_000).map(line).collect();
    assert_eq!(
        post(&server, lines.as_bytes()).text(),
        "the file is too large: the maximum is 524288 bytes after compression: set limits.memory higher\n"
    );
    assert_eq!(server.memory.used(), 0);
    let unknown = get(&server, "/top?format=text&base=0123456789abcdef");
    assert_eq!(unknown.code(), 404);
    assert!(unknown.text().starts_with("no uploaded profile 0123456789abcdef: "), "{}", unknown.text());
}

#[test]
fn a_site_cannot_upload_and_a_connection_ends_with_its_upload() {
    let server = running(example());
    let foreign = post_with(&server, "Content-Length: 4\r\nOrigin: http://evil.example", b"a 1\n");
    assert_eq!(foreign.code(), 403);
    let smuggled = b"4\r\na 1\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
    let answer = post_with(&server, "Transfer-Encoding: chunked", smuggled);
    assert_eq!((answer.code(), answer.header("connection")), (201, Some("close")));
    assert!(!answer.text().contains("perf_"), "{}", answer.text());
    assert_eq!(get(&server, "/api/v1/baselines").code(), 405);
}

/// Only one upload is in progress at a time.
#[test]
fn an_upload_that_does_not_arrive_ends_and_the_next_one_is_accepted() {
    let limits = Limits { upload: Duration::from_millis(50), ..Limits::default() };
    let server = Running::with(program(snapshot(1, 1)), limits);
    for headers in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
        let slow = post_with(&server, headers, b"");
        assert_eq!((slow.code(), slow.header("connection")), (408, Some("close")), "{headers}");
        assert_eq!(slow.text(), "the upload did not end within 50ms\n");
    }
    uploaded(&server, b"a;b 1\n");
}
