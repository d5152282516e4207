//! Prometheus remote write as a push format: metrics over HTTP.
//!
//! ```text
//! Snapshot ─► encoder ─► Payload ─► push ─► snappy, POST ─► receiver
//! ```
//!
//! The protocol version is 1.0, which every receiver implements. Version 2.0 interns strings and carries metadata and created timestamps.
//! It is still experimental: Prometheus supports it from 3.0 on, and many receivers do not. It would add little here: [`encoder`] sends the
//! initial zero of a series as a separate sample, and classic buckets of histograms are exact. Version 1.0 does not support native
//! histograms.
//!
//! Specification: <https://prometheus.io/docs/specs/prw/remote_write_spec/>.

pub mod encoder;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hyper::header;

use super::otlp::attribute::{Resource, Scalar};
use super::push::http::{Answer, Http};
use super::push::{Feed, Format, Outcome, PushContext, Route, Starter, Transport};
use crate::clock::Clock;
pub use crate::config::push::RemoteWrite as Settings;
use crate::config::push::{Push, Signal};
use crate::host::{self, Environment};
use encoder::{Encoder, Options};

/// Labels that a scrape would add, unless the configuration sets them.
const JOB: (&str, &str) = ("job", env!("CARGO_PKG_NAME"));
const INSTANCE: &str = "instance";
/// Attributes of the exporter's resource that identify the node, in order of preference.
const NODE: [&str; 3] = ["k8s.node.name", "host.name", "service.instance.id"];

/// Maximum size of a token file, in bytes.
const TOKEN: u64 = 16 << 10;

/// State of the format.
#[derive(Debug)]
pub(super) struct RemoteWrite {
    /// Resource of the exporter.
    resource: Resource,
    /// The encoder, once something was pushed. It keeps the previous snapshot for stale markers.
    encoder: Option<Arc<Mutex<Encoder>>>,
}

impl Format for RemoteWrite {
    const NAME: &'static str = "remote_write";

    type Settings = Settings;

    fn new(push_context: &PushContext) -> Self {
        Self { resource: push_context.resource.clone(), encoder: None }
    }

    fn resolve(push: &Push, _: &Environment, _: &mut Vec<String>) -> Option<Settings> {
        push.remote_write.clone()
    }

    fn routes(settings: &Settings) -> Vec<Route> {
        vec![route(settings)]
    }

    fn check_files(settings: &Settings) -> Vec<(Signal, String)> {
        let receiver = Receiver(settings.clone());
        let checked = settings.tls.check(&settings.url).and_then(|()| receiver.authorization());
        checked.err().map(|why| (Signal::Metrics, why)).into_iter().collect()
    }

    fn start<F: Feed>(&mut self, settings: &Settings, starter: &mut Starter<'_, F>) {
        let external = external(&settings.labels, &self.resource);
        let options = Options { external, limit: starter.request_limit() };
        let encoder = self.encoder.get_or_insert_with(|| Arc::new(Mutex::new(Encoder::new(options.clone()))));
        encoder.lock().unwrap_or_else(PoisonError::into_inner).set_options(options);
        let encoder = Arc::clone(encoder);
        starter.metrics(&route(settings), Receiver(settings.clone()), move |snapshot| {
            encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(snapshot)
        });
    }

    fn idle(&mut self) {
        self.encoder = None;
    }
}

fn route(settings: &Settings) -> Route {
    let token = settings.credentials_file.iter().map(|_| header::AUTHORIZATION.as_str().to_owned());
    Route {
        signal: Signal::Metrics,
        uri: settings.url.clone(),
        protocol: "http/protobuf",
        headers: settings.headers.iter().map(|(name, _)| name.clone()).chain(token).collect(),
        interval: Some(settings.interval),
        timeout: settings.timeout,
        queue: settings.queue,
    }
}

/// Returns the external labels: `job` and `instance`, and those of the configuration, which take precedence. Without `instance`, series of
/// different nodes would be identical.
fn external(given: &[(String, String)], resource: &Resource) -> Vec<(String, String)> {
    let node = NODE.iter().find_map(|key| match resource.get(key) {
        Some(Scalar::Text(text)) => Some(text.to_string()),
        _ => None,
    });
    let instance = node.map(|node| (INSTANCE.to_owned(), node));
    let found = [(JOB.0.to_owned(), JOB.1.to_owned())].into_iter().chain(instance);
    let found = found.filter(|(name, _)| given.iter().all(|(given, _)| given != name));
    let mut all: Vec<_> = found.chain(given.iter().cloned()).collect();
    all.retain(|(_, value)| !value.is_empty());
    all
}

/// Sends requests to a receiver.
#[derive(Debug)]
struct Receiver(Settings);

impl Transport for Receiver {
    type Connection = Http;

    fn connect(&self) -> Result<Http, String> {
        Http::new(&self.0.url, &self.0.tls)
    }

    async fn send(&self, http: &Http, body: &Bytes, clock: &Clock) -> Outcome {
        let compressed = match snap::raw::Encoder::new().compress_vec(body) {
            Ok(compressed) => compressed,
            Err(error) => return Outcome::Rejected { why: format!("compression failed: {error}") },
        };
        let authorization = match self.authorization() {
            Ok(authorization) => authorization,
            Err(why) => return Outcome::unreachable(why),
        };
        let mut headers = vec![
            (header::CONTENT_TYPE.as_str(), "application/x-protobuf"),
            (header::CONTENT_ENCODING.as_str(), "snappy"),
            ("x-prometheus-remote-write-version", "0.1.0"),
        ];
        headers.extend(self.0.headers.iter().map(|(name, value)| (&**name, &**value)));
        headers.extend(authorization.iter().map(|value| (header::AUTHORIZATION.as_str(), &**value)));
        match http.post(&self.0.url, headers, compressed.into()).await {
            Ok(answer) => judge(&answer, clock),
            Err(outcome) => outcome,
        }
    }
}

impl Receiver {
    /// Reads the token. It may have been replaced since the previous request.
    fn authorization(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.0.credentials_file else { return Ok(None) };
        let token = host::read_at_most(path, TOKEN).map_err(|error| error.to_string())?;
        let token = String::from_utf8_lossy(&token);
        Ok(Some(format!("Bearer {}", token.trim())))
    }
}

/// Evaluates a response. Server errors and 429 are retried, other errors are not:
/// <https://prometheus.io/docs/specs/prw/remote_write_spec/#retries-backoff>.
fn judge(answer: &Answer, clock: &Clock) -> Outcome {
    let status = answer.status;
    if status.is_success() {
        return Outcome::Accepted;
    }
    let said = String::from_utf8_lossy(answer.body.as_deref().unwrap_or_default());
    let hints = [
        "; see `headers` and `credentials_file`",
        "; check the path: Prometheus accepts remote write at /api/v1/write with --web.enable-remote-write-receiver",
    ];
    answer.judge(&said, matches!(status.as_u16(), 429 | 500..), hints, clock)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use hyper::header::HeaderMap;

    use super::*;
    use crate::clock::Timestamp;
    use crate::export::otlp::attribute::Attribute;

    fn of(status: u16, retry_after: Option<&str>) -> Outcome {
        let headers: HeaderMap =
            retry_after.map(|value| (header::RETRY_AFTER, value.parse().unwrap())).into_iter().collect();
        let body = Some(Bytes::from_static(b"out of order sample\n"));
        let status = StatusCode::from_u16(status).unwrap();
        judge(&Answer { status, headers, body }, &Clock::manual(Timestamp(0)))
    }

    #[test]
    fn server_errors_and_429_are_retried_and_nothing_else() {
        for status in 200..600 {
            let outcome = of(status, None);
            assert_eq!(matches!(outcome, Outcome::Again { .. }), status == 429 || status >= 500, "{status}");
            assert_eq!(outcome == Outcome::Accepted, status < 300, "{status}");
        }
        let Outcome::Again { after, why, .. } = of(503, Some("7")) else { panic!() };
        assert_eq!(after, Some(Duration::from_secs(7)));
        assert_eq!(why, "the server returned 503 Service Unavailable: out of order sample");
    }

    #[test]
    fn a_refusal_says_what_may_help() {
        for (status, part) in
            [(401, "credentials_file"), (404, "/api/v1/write"), (308, "the redirect target")]
        {
            let Outcome::Rejected { why } = of(status, None) else { panic!("{status}") };
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn series_of_two_nodes_differ_unless_the_configuration_says_otherwise() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let node =
            Resource::new([Attribute::text("host.name", "n1"), Attribute::text("service.instance.id", "x")]);
        assert_eq!(external(&[], &node), [pair("job", "perf-exporter"), pair("instance", "n1")]);
        let given = [pair("instance", ""), pair("job", "perf"), pair("cluster", "c")];
        assert_eq!(external(&given, &node), [pair("job", "perf"), pair("cluster", "c")]);
    }
}
