//! The exporter's own log as OTLP logs.
//!
//! Logging starts before it is known whether the log is pushed. A [`Switch`] buffers early records until it is turned on or off. The
//! OpenTelemetry SDK batches records, and the exporter of the crate `opentelemetry-otlp` writes the requests into the same queues as those of
//! measurements. Messages about the push of logs are not pushed, because each would cause another one.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{LogRecord as _, Severity};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::attribute::Resource;
use super::outlet::{MAX_WAITING, Outlet};

type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Maximum number of buffered records while the target is unknown. Further records are not pushed.
const MAX_BUFFERED: usize = 512;

/// Controls whether log records are pushed. Clones share one state.
#[derive(Clone)]
pub struct Switch {
    /// The converter of events to records.
    bridge: Arc<Bridge>,
    state: Arc<Mutex<State>>,
}

/// Destination of records.
#[derive(Debug, Default)]
enum State {
    /// Records are not needed.
    #[default]
    Off,
    /// The destination is unknown yet.
    Buffered(Vec<(SdkLogRecord, InstrumentationScope)>),
    Pushed(Arc<Batches>),
}

/// Records of a batch, and their queue.
#[derive(Debug)]
struct Batches {
    processor: BatchLogProcessor,
    outlet: Outlet,
}

impl Batches {
    fn put(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if self.outlet.admits_record() {
            self.processor.emit(record, scope);
        }
    }

    /// Puts all records into the queue, and ends the thread that batches them. Blocks for a few milliseconds.
    fn end(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::debug!(%error, "pushing the last log records failed");
        }
    }
}

impl Default for Switch {
    fn default() -> Self {
        Self::new(State::Off)
    }
}

impl Switch {
    /// Creates a switch that buffers records until it is turned on or off. Starts no thread.
    pub fn keeping() -> Self {
        Self::new(State::Buffered(Vec::new()))
    }

    fn new(state: State) -> Self {
        let state = Arc::new(Mutex::new(state));
        let provider = SdkLoggerProvider::builder()
            .with_resource(opentelemetry_sdk::Resource::builder_empty().build())
            .with_log_processor(Router(Arc::clone(&state)))
            .build();
        Self { bridge: Arc::new(OpenTelemetryTracingBridge::new(&provider)), state }
    }

    /// Pushes the buffered and all further records. Starts a thread that batches them.
    pub(super) fn turn_on(&self, resource: &Resource, outlet: Outlet) {
        let exporter = match outlet.log_exporter() {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::error!(%error, "the log cannot be pushed");
                return self.turn_off();
            }
        };
        // The SDK does not report records that its queue drops. The outlet admits no more than the queue holds, and counts the rest.
        let config = BatchConfigBuilder::default().with_max_queue_size(MAX_WAITING).build();
        let mut processor = BatchLogProcessor::builder(exporter).with_batch_config(config).build();
        processor.set_resource(&resource.into());
        let batches = Arc::new(Batches { processor, outlet });
        let mut state = lock(&self.state);
        let previous = mem::take(&mut *state);
        if let State::Buffered(records) = &previous {
            records.iter().for_each(|(record, scope)| batches.put(&mut record.clone(), scope));
        }
        *state = State::Pushed(batches);
        drop(state);
        end(&previous);
    }

    /// Puts the records so far into the queue, and buffers further ones. Blocks for a few milliseconds.
    pub(super) fn pause(&self) {
        self.replace(State::Buffered(Vec::new()));
    }

    /// Discards buffered and all further records.
    pub(super) fn turn_off(&self) {
        self.replace(State::Off);
    }

    fn replace(&self, state: State) {
        let previous = mem::replace(&mut *lock(&self.state), state);
        end(&previous);
    }
}

/// Ends the batches of a former state.
fn end(state: &State) {
    if let State::Pushed(batches) = state {
        batches.end();
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Switch {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.bridge.on_event(event, context);
    }
}

/// Passes records to their current destination.
#[derive(Debug)]
struct Router(Arc<Mutex<State>>);

impl LogProcessor for Router {
    fn event_enabled(&self, _: Severity, _: &str, _: Option<&str>) -> bool {
        !matches!(*lock(&self.0), State::Off)
    }

    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        complete(record);
        let batches = match &mut *lock(&self.0) {
            State::Off => return,
            State::Buffered(records) => {
                if records.len() < MAX_BUFFERED {
                    records.push((record.clone(), scope.clone()));
                }
                return;
            }
            State::Pushed(batches) => Arc::clone(batches),
        };
        batches.put(record, scope);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sets the time of a record, which the bridge leaves empty because it equals the time of observation, and removes the name that the crate
/// `tracing` gives to events without one, `event src/file.rs:12`.
fn complete(record: &mut SdkLogRecord) {
    if let (None, Some(time)) = (record.timestamp(), record.observed_timestamp()) {
        record.set_timestamp(time);
    }
    if record.event_name().is_some_and(|name| name.starts_with("event ")) {
        record.set_event_name("");
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
