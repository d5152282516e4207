//! OTLP over HTTP: protobuf in the body of a POST.

use bytes::Bytes;
use hyper::header;
use prost::Message as _;

use super::response::RpcStatus;
use super::settings::Target;
use crate::clock::Clock;
use crate::export::gzip::gzip;
use crate::export::push::Outcome;
use crate::export::push::http::{Answer, Http};
use crate::net::error_text::sanitized;

const PROTOBUF: &str = "application/x-protobuf";

/// Sends one request and returns its outcome.
pub(super) async fn send(http: &Http, target: &Target, body: &Bytes, clock: &Clock) -> Outcome {
    let mut headers = vec![(header::CONTENT_TYPE.as_str(), PROTOBUF)];
    headers.extend(target.headers.iter().map(|(name, value)| (&**name, &**value)));
    let body = if target.gzip {
        headers.push((header::CONTENT_ENCODING.as_str(), "gzip"));
        match gzip(body) {
            Ok(body) => body.into(),
            Err(error) => return Outcome::Rejected { why: format!("compression failed: {error}") },
        }
    } else {
        body.clone()
    };
    match http.post(&target.uri, headers, body).await {
        Ok(answer) => outcome(&answer, clock),
        Err(outcome) => outcome,
    }
}

/// Converts a response by the table of the specification: <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>.
fn outcome(answer: &Answer, clock: &Clock) -> Outcome {
    let Answer { status, body, .. } = answer;
    let Some(body) = body else { return Outcome::nonsense() };
    let content_type = answer.content_type();
    let protobuf = content_type.starts_with(PROTOBUF) || content_type.starts_with("application/protobuf");
    if status.is_success() {
        // Some receivers always respond in JSON. A partial rejection in such a response is not decoded.
        return match (protobuf || body.is_empty(), content_type.starts_with("application/json")) {
            (true, _) => Outcome::of_response(body),
            (false, true) => Outcome::Accepted,
            (false, false) => Outcome::Rejected {
                why: format!(
                    "the server returned {status} with content type {}: check that the endpoint is an OTLP receiver",
                    sanitized(content_type)
                ),
            },
        };
    }
    let said = match RpcStatus::decode(&**body) {
        Ok(status) if protobuf => status.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let hints = [
        "; see `headers` and OTEL_EXPORTER_OTLP_HEADERS",
        "; check the path, and that the receiver accepts this signal",
    ];
    answer.judge(&said, matches!(status.as_u16(), 429 | 502..=504), hints, clock)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use hyper::header::HeaderMap;

    use super::*;
    use crate::clock::Timestamp;

    fn of(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Outcome {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        // 1994-11-06 08:49:30 UTC.
        let clock = Clock::manual(Timestamp(784_111_770_000));
        let status = StatusCode::from_u16(status).unwrap();
        outcome(&Answer { status, headers: map, body: Some(Bytes::copy_from_slice(body)) }, &clock)
    }

    fn is_refused(outcome: &Outcome, part: &str) -> bool {
        matches!(outcome, Outcome::Rejected { why } if why.contains(part))
    }

    #[test]
    fn only_four_codes_are_worth_another_attempt() {
        for status in 200..600 {
            let again = matches!(of(status, &[], b""), Outcome::Again { .. });
            assert_eq!(again, matches!(status, 429 | 502 | 503 | 504), "{status}");
        }
    }

    #[test]
    fn a_receiver_says_when_to_come_again_in_seconds_or_by_a_date() {
        let after = |value: &str| match of(503, &[("retry-after", value)], b"busy") {
            Outcome::Again { after, why, .. } => {
                assert!(why.ends_with("503 Service Unavailable: busy"), "{why}");
                after
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(after("17"), Some(Duration::from_secs(17)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:07 GMT"), Some(Duration::ZERO), "it has passed");
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn what_answers_like_something_else_has_taken_nothing() {
        let html = ("content-type", "text/html");
        assert!(is_refused(&of(200, &[html], b"<html>"), "check that the endpoint is an OTLP receiver"));
        let protobuf = ("content-type", "application/x-protobuf");
        assert!(is_refused(
            &of(200, &[protobuf], b"\xff\xff"),
            "check that the endpoint is an OTLP receiver"
        ));
        assert_eq!(of(200, &[protobuf], b""), Outcome::Accepted);
        assert_eq!(of(200, &[], b""), Outcome::Accepted);
        assert_eq!(of(200, &[("content-type", "application/json")], b"{}"), Outcome::Accepted);
    }

    #[test]
    fn a_refusal_is_in_the_receivers_words_with_what_may_help() {
        let status = RpcStatus { code: 3, message: "bad index".into(), details: vec![] };
        let body = status.encode_to_vec();
        let refused = of(400, &[("content-type", PROTOBUF)], &body);
        assert!(is_refused(&refused, "400 Bad Request: bad index"), "{refused:?}");
        assert!(is_refused(&of(401, &[], b""), "OTEL_EXPORTER_OTLP_HEADERS"));
        assert!(is_refused(&of(308, &[], b""), "set the endpoint to the redirect target"));
    }
}
