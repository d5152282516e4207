//! The exporter's own log as OTLP logs.
//!
//! Logging starts before it is known whether the log is pushed. A [`Switch`] buffers early records until it is turned on or off. Records
//! are batched by the OpenTelemetry SDK and use the same queues and connections as measurements. Messages about the push of logs are not
//! pushed, because each would cause another one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::logs::tonic::group_logs_by_resource_and_scope;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter, SdkLogger, SdkLoggerProvider};
use prost::Message as _;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::attribute::{Resource, SCHEMA_URL};
use crate::export::protobuf::wire::Message as _;
use crate::export::push::{self, Payload};

type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Maximum number of buffered records while the target is unknown. Further records are not pushed.
const MAX_BUFFERED: usize = 512;

/// Controls whether log records are pushed. Clones share one state.
#[derive(Clone, Default)]
pub struct Switch(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The converter of events to records; `None` if records are not needed.
    on: RwLock<Option<On>>,
    target: Arc<Mutex<BatchTarget>>,
}

struct On {
    bridge: Bridge,
    provider: SdkLoggerProvider,
}

/// Destination of batches.
#[derive(Debug)]
enum BatchTarget {
    /// Unknown yet: records are buffered.
    Kept(Vec<ResourceLogs>, usize),
    Pushed(ProtoResource, push::PayloadSink),
}

impl Default for BatchTarget {
    fn default() -> Self {
        Self::Kept(Vec::new(), 0)
    }
}

impl Switch {
    /// Creates a switch that buffers records until it is turned on or off.
    pub fn keeping() -> Self {
        let switch = Self::default();
        switch.start();
        switch
    }

    fn start(&self) {
        let mut on = self.0.on.write().unwrap_or_else(PoisonError::into_inner);
        if on.is_none() {
            let exporter = BatchExporter(Arc::clone(&self.0.target));
            let provider = SdkLoggerProvider::builder().with_batch_exporter(exporter).build();
            *on = Some(On { bridge: OpenTelemetryTracingBridge::new(&provider), provider });
        }
    }

    /// Replaces the thread that batches records, because a thread keeps the capabilities with which it was started. Keeps the records so
    /// far. Blocks for a few milliseconds.
    pub fn renew(&self) {
        let on = self.0.on.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(On { provider, .. }) = on else { return };
        if let Err(error) = provider.shutdown() {
            tracing::debug!(%error, "batching the first log records failed");
        }
        self.start();
    }

    /// Pushes the buffered and all further records.
    pub(super) fn turn_on(&self, resource: &Resource, to: push::PayloadSink) {
        let mut target = lock(&self.0.target);
        let next = BatchTarget::Pushed(described(resource), to);
        if let BatchTarget::Kept(kept, items) = std::mem::replace(&mut *target, next)
            && items > 0
        {
            target.put(kept, items);
        }
        drop(target);
        self.start();
    }

    /// Puts the records so far into the queue, and buffers further ones. Blocks for a few milliseconds.
    pub(super) fn pause(&self) {
        let on = self.0.on.read().unwrap_or_else(PoisonError::into_inner);
        let provider = on.as_ref().map(|on| on.provider.clone());
        drop(on);
        if let Some(Err(error)) = provider.map(|provider| provider.force_flush()) {
            tracing::debug!(%error, "pushing the last log records failed");
        }
        *lock(&self.0.target) = BatchTarget::default();
    }

    /// Discards buffered and all further records.
    pub(super) fn turn_off(&self) {
        let on = self.0.on.write().unwrap_or_else(PoisonError::into_inner).take();
        *lock(&self.0.target) = BatchTarget::default();
        // Dropping the provider ends its thread.
        drop(on.map(|on| on.provider.shutdown()));
        *lock(&self.0.target) = BatchTarget::default();
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Switch {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if let Some(on) = &*self.0.on.read().unwrap_or_else(PoisonError::into_inner) {
            on.bridge.on_event(event, context);
        }
    }
}

impl BatchTarget {
    fn put(&mut self, mut logs: Vec<ResourceLogs>, items: usize) {
        match self {
            Self::Kept(kept, number) => {
                if *number + items <= MAX_BUFFERED {
                    *number += items;
                    kept.append(&mut logs);
                }
            }
            Self::Pushed(resource, to) => {
                for logs in &mut logs {
                    logs.resource = Some(resource.clone());
                    SCHEMA_URL.clone_into(&mut logs.schema_url);
                }
                let bytes = ExportLogsServiceRequest { resource_logs: logs }.encode_to_vec();
                to.put_at_once(Payload { bytes, items: items as u64 });
            }
        }
    }
}

/// Receives batches.
#[derive(Debug)]
struct BatchExporter(Arc<Mutex<BatchTarget>>);

impl LogExporter for BatchExporter {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let items = batch.iter().count();
        let mut logs = group_logs_by_resource_and_scope(&batch, &ResourceAttributesWithSchema::default());
        let scopes = logs.iter_mut().flat_map(|logs| &mut logs.scope_logs);
        scopes.flat_map(|scope| &mut scope.log_records).for_each(complete);
        lock(&self.0).put(logs, items);
        Ok(())
    }
}

/// Sets the time of a record, which the bridge leaves empty because it equals the time of observation, and removes the name that the crate
/// `tracing` gives to events without one, `event src/file.rs:12`.
fn complete(record: &mut LogRecord) {
    if record.time_unix_nano == 0 {
        record.time_unix_nano = record.observed_time_unix_nano;
    }
    if record.event_name.starts_with("event ") {
        record.event_name.clear();
    }
}

fn lock(target: &Mutex<BatchTarget>) -> MutexGuard<'_, BatchTarget> {
    target.lock().unwrap_or_else(PoisonError::into_inner)
}

fn described(resource: &Resource) -> ProtoResource {
    let mut bytes = Vec::new();
    resource.write(&mut bytes);
    // The bytes are the encoded form of the same message.
    ProtoResource::decode(&*bytes).unwrap_or_default()
}
