//! Spans of the exporter's own work as OTLP traces.
//!
//! The OpenTelemetry SDK batches spans, and the exporter of the crate `opentelemetry-otlp` writes the requests into a push queue. Pushes of
//! spans have no spans, because each would cause another one.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource as SdkResource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanProcessor,
};

use super::attribute::Resource;
use super::outlet::{MAX_WAITING, Outlet};
use crate::span::Spans;

/// Pushes spans that begin from now on. Starts a thread that batches them.
pub(super) fn turn_on(spans: &Spans, resource: &Resource, outlet: Outlet) {
    let exporter = match outlet.span_exporter() {
        Ok(exporter) => exporter,
        Err(error) => {
            tracing::error!(%error, "spans cannot be pushed");
            return turn_off(spans);
        }
    };
    // The SDK does not report spans that its queue drops. The outlet admits no more than the queue holds, and counts the rest.
    let config = BatchConfigBuilder::default().with_max_queue_size(MAX_WAITING).build();
    let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder()
        .with_resource(resource.into())
        .with_span_processor(Bounded { batches, outlet })
        .build();
    end(spans.replace(Some(provider)));
}

/// Puts ended spans into the queue, and discards further ones. Blocks for a few milliseconds.
pub(super) fn turn_off(spans: &Spans) {
    end(spans.replace(None));
}

fn end(provider: Option<SdkTracerProvider>) {
    if let Some(Err(error)) = provider.map(|provider| provider.shutdown()) {
        tracing::debug!(%error, "pushing the last spans failed");
    }
}

/// Batches the spans that the outlet admits.
#[derive(Debug)]
struct Bounded {
    batches: BatchSpanProcessor,
    outlet: Outlet,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.outlet.admits_record() {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &SdkResource) {
        self.batches.set_resource(resource);
    }
}
