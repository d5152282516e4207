//! Spans of requests to receivers.

use hyper::Uri;
use opentelemetry::trace::SpanKind;

use super::outcome::Outcome;
use super::route::{Flow, Route};
use crate::config::push::Signal;
use crate::span::{Span, Spans};

/// Creates the spans of the requests of one route.
#[derive(Debug)]
pub(super) struct RequestSpans {
    /// `None` for the push of spans: the span of each request would cause another request.
    spans: Option<Spans>,
    flow: Flow,
    uri: Uri,
    is_grpc: bool,
}

impl RequestSpans {
    pub(super) fn of(route: &Route, flow: Flow, spans: &Spans) -> Self {
        let spans = (route.signal != Signal::Traces).then(|| spans.clone());
        Self { spans, flow, uri: route.uri.clone(), is_grpc: route.protocol == "grpc" }
    }

    /// Begins the span of one attempt to send a request.
    pub(super) fn begin(&self, bytes: u64, items: u64) -> Span {
        let Some(spans) = &self.spans else { return Span::default() };
        let mut span = spans.begin("push", SpanKind::Client);
        if span.is_exported() {
            self.describe(&mut span);
            span.set("perf_exporter.push.bytes", i64::try_from(bytes).unwrap_or(i64::MAX));
            span.set("perf_exporter.push.items", i64::try_from(items).unwrap_or(i64::MAX));
        }
        span
    }

    fn describe(&self, span: &mut Span) {
        span.set("perf_exporter.push.format", self.flow.format);
        span.set("perf_exporter.push.signal", self.flow.signal.as_str());
        let default_port = if self.uri.scheme_str() == Some("https") { 443 } else { 80 };
        span.set("server.address", self.uri.host().unwrap_or_default().to_owned());
        span.set("server.port", i64::from(self.uri.port_u16().unwrap_or(default_port)));
        if self.is_grpc {
            span.set("rpc.system.name", "grpc");
        } else {
            span.set("http.request.method", "POST");
            // The settings reject URLs with passwords or a query.
            span.set("url.full", self.uri.to_string());
        }
    }

    /// Ends a span with the outcome of the attempt.
    pub(super) fn end(&self, mut span: Span, outcome: &Outcome) {
        if !span.is_exported() {
            return;
        }
        let (word, why) = match outcome {
            Outcome::Accepted => ("accepted", None),
            Outcome::Partly { rejected: 0, .. } => ("accepted", None),
            Outcome::Partly { message, .. } => ("partial", Some(message)),
            Outcome::Again { why, .. } => ("retried", Some(why)),
            Outcome::Rejected { why } => ("rejected", Some(why)),
        };
        span.set("perf_exporter.push.outcome", word);
        if let Some(why) = why {
            span.set("error.type", word);
            span.fail(why);
        }
    }
}
