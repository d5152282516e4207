//! Push queues as the transport of exporters of the crate `opentelemetry-otlp`.
//!
//! The exporters write the requests. Their HTTP client puts the body of each request into the push queue of the signal. Over gRPC and HTTP,
//! a request is the same message. So the exporter's own telemetry has the connections, TLS settings, headers, compression, retries,
//! accounting and memory limit of all other pushes, and needs no further threads, connections or HTTP clients.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use hyper::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use prost::Message;

use crate::export::push::{Payload, PayloadSink};

/// Maximum number of records of a signal between their creation and the queue.
pub(super) const MAX_WAITING: usize = 2048;

/// Queue of a signal, as an HTTP client. Clones share one state.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    sink: PayloadSink,
    uri: String,
    records: Arc<Records>,
}

/// Numbers of records.
#[derive(Debug, Default)]
struct Records {
    /// Created, and not in the queue yet.
    waiting: AtomicUsize,
    /// Dropped since the last request, because too many were waiting.
    dropped: AtomicU64,
}

impl Outlet {
    /// Creates the client of a queue. The exporters require the URI, and do not connect to it.
    pub(super) fn new(sink: PayloadSink, uri: String) -> Self {
        Self { sink, uri, records: Arc::default() }
    }

    /// Reports whether another record may be batched. Otherwise, the record is counted as dropped. Takes no lock: any thread may log.
    pub(super) fn admits_record(&self) -> bool {
        let Records { waiting, dropped } = &*self.records;
        let admitted = waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING;
        if !admitted {
            waiting.fetch_sub(1, Ordering::Relaxed);
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Creates an exporter of log records into the queue.
    ///
    /// # Errors
    /// Returns an error if the crate rejects the URI.
    pub(super) fn log_exporter(&self) -> Result<LogExporter, ExporterBuildError> {
        let builder = LogExporter::builder().with_http().with_http_client(self.clone());
        builder.with_protocol(Protocol::HttpBinary).with_endpoint(&*self.uri).build()
    }

    /// Creates an exporter of spans into the queue.
    ///
    /// # Errors
    /// Returns an error if the crate rejects the URI.
    pub(super) fn span_exporter(&self) -> Result<SpanExporter, ExporterBuildError> {
        let builder = SpanExporter::builder().with_http().with_http_client(self.clone());
        builder.with_protocol(Protocol::HttpBinary).with_endpoint(&*self.uri).build()
    }

    fn put(&self, body: Bytes) {
        let items = number_of_records(&body);
        let Records { waiting, dropped } = &*self.records;
        waiting.fetch_sub(usize::try_from(items).unwrap_or(0), Ordering::Relaxed);
        self.sink.drop_items(dropped.swap(0, Ordering::Relaxed));
        self.sink.put_at_once(Payload { bytes: body.into(), items });
    }
}

impl HttpClient for Outlet {
    // The signature of the trait, in which the crate `async-trait` replaces `async`.
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'c: 'f,
        Self: 'f,
    {
        self.put(request.into_body());
        // An empty message: the sender of the queue evaluates the response of the receiver.
        Box::pin(async { Ok(Response::new(Bytes::new())) })
    }
}

/// Returns the number of records in a request.
fn number_of_records(body: &[u8]) -> u64 {
    let request = ExportRequest::decode(body).unwrap_or_default();
    request.resources.iter().flat_map(|of| &of.scopes).map(|of| of.records.len() as u64).sum()
}

/// Message `Export…ServiceRequest`, which has the same field numbers for all signals.
#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<OfResource>,
}

/// Message `ResourceLogs` or `ResourceSpans`.
#[derive(Clone, PartialEq, Message)]
struct OfResource {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<OfScope>,
}

/// Message `ScopeLogs` or `ScopeSpans`.
#[derive(Clone, PartialEq, Message)]
struct OfScope {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    records: Vec<Bytes>,
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

    use super::*;

    #[test]
    fn records_of_both_signals_are_counted() {
        let scope =
            |records| ScopeLogs { log_records: vec![LogRecord::default(); records], ..ScopeLogs::default() };
        let logs = ResourceLogs { scope_logs: vec![scope(2), scope(3)], ..ResourceLogs::default() };
        let request = ExportLogsServiceRequest { resource_logs: vec![logs] };
        assert_eq!(number_of_records(&request.encode_to_vec()), 5);
        let spans = ScopeSpans { spans: vec![Span::default(); 4], ..ScopeSpans::default() };
        let spans = ResourceSpans { scope_spans: vec![spans], ..ResourceSpans::default() };
        let request = ExportTraceServiceRequest { resource_spans: vec![spans] };
        assert_eq!(number_of_records(&request.encode_to_vec()), 4);
        assert_eq!(number_of_records(b"<html>"), 0);
    }
}
