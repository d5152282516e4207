//! Requests for sets of events that are counted for a limited time.

use serde_json::Value as Json;

use super::*;
use crate::config::load;
use crate::deep::{Refusal, RefusalKind, Wanted};

const BODY: &str = r#"{"events": ["minor-faults"], "cgroups": ["/a"], "for": "10s", "reason": "slow"}"#;

fn post(server: &Running, head: &str, body: &str) -> Answer {
    let length = body.len();
    server.ask_with_body(&format!("POST /api/v1/deep HTTP/1.1{head}\r\nContent-Length: {length}"), body)
}

fn json(answer: &Answer) -> Json {
    serde_json::from_str(answer.text()).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

#[test]
fn a_set_begins_with_a_location_and_ends_by_its_identifier() {
    let program = program(snapshot(1, 1));
    let server = Running::new(program.clone());
    let answer = post(&server, "", BODY);
    assert_eq!((answer.code(), answer.header("location")), (201, Some("/api/v1/deep/3")));
    let state = json(&answer);
    assert_eq!((&state["id"], &state["origin"]), (&Json::from(3), &Json::from("request")));
    assert!(state["remaining_seconds"].is_u64() && state["ends"].is_string(), "{state}");
    let ended = server.ask("DELETE /api/v1/deep/3 HTTP/1.1");
    assert_eq!((ended.code(), &json(&ended)["ended"]), (200, &Json::from(3)));
    let wanted = program.wanted.lock().unwrap();
    let [Wanted::Begin { request, requester }, Wanted::End(3)] = &wanted[..] else { panic!("{wanted:?}") };
    assert_eq!((request.set.lasts, &*request.reason), (Some(Duration::from_secs(10)), "slow"));
    assert!(requester.contains("127.0.0.1"), "{requester}");
}

#[test]
fn the_list_has_the_sets_in_force_and_those_that_did_not_begin() {
    let server = Running::new(program(snapshot(1, 1)));
    let answer = server.ask("GET /api/v1/deep HTTP/1.1");
    assert_eq!((answer.code(), answer.header("content-type")), (200, Some("application/json")));
    let list = json(&answer);
    assert_eq!(list["active"][0]["remaining_seconds"], 474);
    assert_eq!(list["refused"][0]["requester"], "shop/web-0");
    assert!(list["refused"][0]["remedy"].is_string());
}

#[test]
fn each_refusal_is_json_with_its_reason_and_its_remedy() {
    let program = program(snapshot(1, 1));
    let deep = "[".repeat(10_000);
    let labels = r#"{"events": ["cycles"], "pods": [{"labels": {"a": "b"}}]}"#;
    for (body, reason) in [
        ("", "the request is not JSON"),
        ("events: cycles\ncgroups: /a", "the request is not JSON"),
        (&*deep, "the request is not JSON"),
        (r#"{"events": ["cycles"]}"#, "the set selects no cgroups"),
        (r#"{"events": ["cycles"], "cgroups": ["/a"], "for": "1000h"}"#, "not between 1s and 86400s"),
        (r#"{"name": "\u001b[2J", "events": ["cycles"], "cgroups": ["/a"]}"#, "is not a valid name"),
        (
            r#"{"name": "a b", "events": ["cycles"], "cgroups": ["/../../etc"], "x": 1}"#,
            "unknown setting `x`",
        ),
        (labels, "cannot select pods by labels"),
    ] {
        // A server for each, so that the rate is not limited.
        let answer = post(&Running::new(program.clone()), "", body);
        assert_eq!(answer.code(), 400, "{body}: {}", answer.text());
        let refused = &json(&answer)["refused"];
        let texts = refused.as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap().to_owned());
        let texts: Vec<String> = texts.collect();
        assert!(texts.iter().any(|text| text.contains(reason)), "{body}: {texts:?}");
        assert!(refused[0]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{refused}");
        assert!(!answer.text().contains('\u{1b}'));
    }
    assert!(program.wanted.lock().unwrap().is_empty());
}

#[test]
fn a_refusal_of_the_service_has_a_status_code_by_its_kind() {
    for (kind, code) in [
        (RefusalKind::Wrong, 400),
        (RefusalKind::Unknown, 404),
        (RefusalKind::Conflict, 409),
        (RefusalKind::Busy, 429),
        (RefusalKind::Stopping, 503),
    ] {
        let refusal = Some(Refusal::new(kind, "so", "do this"));
        let server = Running::new(Program { refusal, ..program(snapshot(1, 1)) });
        for answer in [post(&server, "", BODY), server.ask("DELETE /api/v1/deep/3 HTTP/1.1")] {
            let refused = &json(&answer)["refused"][0];
            assert_eq!(
                (answer.code(), &refused["reason"], &refused["remedy"]),
                (code, &"so".into(), &"do this".into())
            );
        }
    }
}

#[test]
fn changes_need_the_rights_of_administrators_and_the_own_site() {
    let yaml = b"web: {access: {metrics: all, profiles: all, admin: authenticated}}";
    let web = load(yaml, "f").unwrap().0.web;
    let program = Program { rules: fixed(Rules::new(&web, ["test"], None)), ..program(snapshot(1, 1)) };
    let server = Running::new(program.clone());
    assert!([401, 403].contains(&post(&server, "", BODY).code()));
    assert!([401, 403].contains(&server.ask("DELETE /api/v1/deep/3 HTTP/1.1").code()));
    assert_eq!(server.ask("GET /api/v1/deep HTTP/1.1").code(), 200);
    let open = Running::new(Program { rules: super::program(snapshot(1, 1)).rules, ..program.clone() });
    for field in ["Sec-Fetch-Site: cross-site", "Origin: http://evil.example", "Origin: null"] {
        assert_eq!(post(&open, &format!("\r\n{field}"), BODY).code(), 403, "{field}");
        assert_eq!(open.ask(&format!("DELETE /api/v1/deep/3 HTTP/1.1\r\n{field}")).code(), 403, "{field}");
    }
    assert!(program.wanted.lock().unwrap().is_empty());
}

#[test]
fn a_large_body_and_a_thousand_requests_change_nothing_more() {
    let program = program(snapshot(1, 1));
    let server = Running::new(program.clone());
    let large = format!(r#"{{"events": ["cycles"], "cgroups": ["/a"], "reason": "{}"}}"#, "x".repeat(20_000));
    let answer = post(&server, "", &large);
    assert_eq!(answer.code(), 413);
    assert!(json(&answer)["refused"][0]["reason"].as_str().unwrap().contains("more than 16384 bytes"));
    let codes: Vec<u16> = (0..1000).map(|_| post(&server, "", BODY).code()).collect();
    let begun = codes.iter().filter(|code| **code == 201).count();
    assert!((9..50).contains(&begun), "{begun}");
    assert!(codes.iter().all(|code| [201, 429].contains(code)), "{codes:?}");
    assert_eq!(program.wanted.lock().unwrap().len(), begun);
    let limited = post(&server, "", BODY);
    assert_eq!(limited.code(), 429);
    assert!(limited.header("retry-after").is_some_and(|wait| wait.parse::<u64>().is_ok()));
    assert_eq!(server.ask("GET /metrics HTTP/1.1").code(), 200);
}

#[test]
fn paths_and_methods_of_other_kinds_are_refused() {
    let server = Running::new(program(snapshot(1, 1)));
    for path in ["/api/v1/deep/", "/api/v1/deep/x", "/api/v1/deep/-1", "/api/v1/deep/3/4", "/api/v1/deep/%33"]
    {
        assert_eq!(server.ask(&format!("DELETE {path} HTTP/1.1")).code(), 404, "{path}");
    }
    for (request, allowed) in [("DELETE /api/v1/deep", "get, head, post"), ("GET /api/v1/deep/3", "delete")] {
        let answer = server.ask(&format!("{request} HTTP/1.1"));
        assert_eq!((answer.code(), answer.header("allow")), (405, Some(allowed)), "{request}");
    }
}
