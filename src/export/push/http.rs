//! OTLP over HTTP: protobuf in the body of a POST.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;

use super::outcome::{Outcome, RpcStatus};
use super::settings::Target;
use crate::clock::Clock;
use crate::net::USER_AGENT;
use crate::net::tls::{Pem, nobody};
use crate::net::words::{causes, told};

/// The largest answer that is read, in bytes.
pub(super) const ANSWER: usize = 1 << 20;

const PROTOBUF: &str = "application/x-protobuf";

/// Connections to a receiver.
#[derive(Debug)]
pub(super) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Http {
    /// Connects when the first request is sent.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        let builder = hyper_rustls::HttpsConnectorBuilder::new();
        let connector = match target.uri.scheme_str() {
            Some("https") => {
                builder.with_tls_config(Pem::read(&target.tls)?.client()?).https_only().enable_http1().build()
            }
            _ => builder.with_tls_config(nobody()?).https_or_http().enable_http1().build(),
        };
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends one request, and tells what came of it.
    pub(super) async fn send(&self, target: &Target, body: &Bytes, clock: &Clock) -> Outcome {
        let request = match request(target, body) {
            Ok(request) => request,
            Err(why) => return Outcome::Refused { why },
        };
        let response = match self.0.request(request).await {
            Ok(response) => response,
            Err(error) => return Outcome::unreachable(causes(&error)),
        };
        let (head, body) = response.into_parts();
        let read = Limited::new(body, ANSWER).collect().await;
        let body = match read {
            Ok(body) => body.to_bytes(),
            // It may have taken the request or not: sent again, cumulative sums say the same, and the rest comes twice.
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return Outcome::nonsense(),
            Err(error) => return Outcome::unreachable(format!("the answer broke off: {}", causes(&*error))),
        };
        outcome(head.status, &head.headers, &body, clock)
    }
}

fn request(target: &Target, body: &Bytes) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(target.uri.clone())
        .header(header::CONTENT_TYPE, PROTOBUF)
        .header(header::USER_AGENT, USER_AGENT);
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    let body = if target.gzip {
        request = request.header(header::CONTENT_ENCODING, "gzip");
        gzip(body).map_err(|error| format!("cannot be compressed: {error}"))?
    } else {
        body.clone()
    };
    request.body(Full::new(body)).map_err(|error| error.to_string())
}

fn gzip(body: &Bytes) -> std::io::Result<Bytes> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    gzip.write_all(body)?;
    gzip.finish().map(Bytes::from)
}

/// By the table of the specification: <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>.
fn outcome(status: StatusCode, headers: &HeaderMap, body: &[u8], clock: &Clock) -> Outcome {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let protobuf = content_type.starts_with(PROTOBUF) || content_type.starts_with("application/protobuf");
    if status.is_success() {
        // Some answer in JSON whatever they were sent in. What they say there of a part that they rejected is not read.
        return match (protobuf || body.is_empty(), content_type.starts_with("application/json")) {
            (true, _) => Outcome::of_response(body),
            (false, true) => Outcome::Taken,
            (false, false) => Outcome::Refused {
                why: format!("it answered {status} with {}: is this a receiver of OTLP?", told(content_type)),
            },
        };
    }
    let said = match RpcStatus::decode(body) {
        Ok(status) if protobuf => status.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    let mut why = format!("it answered {status}");
    if !said.trim().is_empty() {
        why = format!("{why}: {}", told(&said));
    }
    if status.is_redirection() {
        return Outcome::Refused { why: format!("{why}; write the URL that it leads to") };
    }
    match status.as_u16() {
        429 | 502..=504 => Outcome::Again { after: retry_after(headers, clock), why, reconnect: false },
        401 | 403 => Outcome::Refused { why: format!("{why}; see `headers` and OTEL_EXPORTER_OTLP_HEADERS") },
        404 => Outcome::Refused { why: format!("{why}; is the path right, and does it take this signal?") },
        _ => Outcome::Refused { why },
    }
}

/// `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, clock: &Clock) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(at.saturating_sub(Duration::from_millis(clock.now().0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn of(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Outcome {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        // 1994-11-06 08:49:30 UTC.
        let clock = Clock::manual(Timestamp(784_111_770_000));
        outcome(StatusCode::from_u16(status).unwrap(), &map, body, &clock)
    }

    fn is_refused(outcome: &Outcome, part: &str) -> bool {
        matches!(outcome, Outcome::Refused { why } if why.contains(part))
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
        assert!(is_refused(&of(200, &[html], b"<html>"), "is this a receiver of OTLP?"));
        let protobuf = ("content-type", "application/x-protobuf");
        assert!(is_refused(&of(200, &[protobuf], b"\xff\xff"), "is this a receiver of OTLP?"));
        assert_eq!(of(200, &[protobuf], b""), Outcome::Taken);
        assert_eq!(of(200, &[], b""), Outcome::Taken);
        assert_eq!(of(200, &[("content-type", "application/json")], b"{}"), Outcome::Taken);
    }

    #[test]
    fn a_refusal_is_in_the_receivers_words_with_what_may_help() {
        let status = RpcStatus { code: 3, message: "bad index".into(), details: vec![] };
        let body = status.encode_to_vec();
        let refused = of(400, &[("content-type", PROTOBUF)], &body);
        assert!(is_refused(&refused, "400 Bad Request: bad index"), "{refused:?}");
        assert!(is_refused(&of(401, &[], b""), "OTEL_EXPORTER_OTLP_HEADERS"));
        assert!(is_refused(&of(308, &[], b""), "write the URL that it leads to"));
    }
}
