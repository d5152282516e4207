//! The exporter's own log as OTLP logs.
//!
//! The log is started before anybody knows whether it is pushed, so a [`Switch`] stands in it that is turned on later. What
//! passes is batched by the OpenTelemetry SDK and put into the same queue, and through the same connections, as what is
//! measured.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::logs::tonic::group_logs_by_resource_and_scope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter, SdkLogger, SdkLoggerProvider};
use prost::Message as _;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::queue::Queue;
use super::state::Board;
use crate::config::push::Signal;
use crate::export::otlp::Payload;
use crate::export::otlp::attribute::{Resource, SCHEMA_URL, Scalar};

type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Lets the log pass to where it is pushed from, once that is there. Copies are one switch.
#[derive(Clone, Default)]
pub struct Switch(Arc<RwLock<Option<Bridge>>>);

impl Switch {
    pub(super) fn turn(&self, on: Option<&Logs>) {
        let bridge = on.map(|logs| OpenTelemetryTracingBridge::new(&logs.provider));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = bridge;
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Switch {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if let Some(bridge) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            bridge.on_event(event, context);
        }
    }
}

/// What makes log records of events, and requests of records.
#[derive(Debug)]
pub(super) struct Logs {
    provider: SdkLoggerProvider,
}

impl Logs {
    pub(super) fn new(resource: &Resource, queue: Arc<Queue>, board: Arc<Board>) -> Self {
        let intake = Intake { resource: described(resource), queue, board };
        // The intake writes the resource itself; the SDK's own would be another.
        Self { provider: SdkLoggerProvider::builder().with_batch_exporter(intake).build() }
    }

    /// Puts what was logged so far into the queue. Blocks for a few milliseconds.
    pub(super) fn finish(self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::debug!(%error, "the last log records were not pushed");
        }
    }
}

/// Puts batches into the queue.
#[derive(Debug)]
struct Intake {
    resource: ProtoResource,
    queue: Arc<Queue>,
    board: Arc<Board>,
}

impl LogExporter for Intake {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let items = batch.iter().count() as u64;
        let mut resource_logs =
            group_logs_by_resource_and_scope(&batch, &ResourceAttributesWithSchema::default());
        for logs in &mut resource_logs {
            logs.resource = Some(self.resource.clone());
            SCHEMA_URL.clone_into(&mut logs.schema_url);
        }
        let bytes = ExportLogsServiceRequest { resource_logs }.encode_to_vec();
        self.board.crowded_out(Signal::Logs, self.queue.push(Payload { bytes, items }));
        self.board.queued(Signal::Logs, &self.queue);
        Ok(())
    }
}

fn described(resource: &Resource) -> ProtoResource {
    let attributes = resource.attributes().iter().map(|attribute| {
        let value = match &attribute.value {
            Scalar::Text(text) => Value::StringValue((**text).to_owned()),
            Scalar::Integer(number) => Value::IntValue(*number),
            Scalar::Bool(value) => Value::BoolValue(*value),
        };
        let value = Some(AnyValue { value: Some(value) });
        KeyValue { key: attribute.key.clone().into_owned(), value, ..KeyValue::default() }
    });
    ProtoResource { attributes: attributes.collect(), ..ProtoResource::default() }
}
