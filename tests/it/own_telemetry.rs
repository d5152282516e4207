//! The exporter's own log and spans, pushed by OTLP.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource as Decoded;
use opentelemetry_proto::tonic::trace::v1::Span;
use perf_exporter::budget::{Part, Share};
use perf_exporter::clock::Clock;
use perf_exporter::config::push::{Protocol, Signal};
use perf_exporter::export::otlp::attribute::{Attribute, Resource};
use perf_exporter::export::otlp::logs::Switch;
use perf_exporter::export::otlp::{Settings, Target};
use perf_exporter::export::push::{self, Board, PushContext, Pusher};
use perf_exporter::span::Spans;
use perf_exporter::status::PushStatus;
use prometheus::Registry;
use prost::Message as _;
use tokio::sync::watch;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::push::{Collections, by_otlp, eventually, settings, target};
use crate::receiver::{Answer, Receiver, Tls};

/// A running push thread.
struct Pushing {
    settings: watch::Sender<Option<Arc<push::Settings>>>,
    board: Arc<Board>,
    log: Switch,
    spans: Spans,
    pusher: Pusher,
}

impl Pushing {
    /// Starts the thread without settings, as the service does.
    fn waiting(log: Switch) -> Self {
        let (clock, spans) = (Clock::system(), Spans::default());
        let board = Arc::new(Board::new(&Registry::new(), clock.clone()).unwrap());
        let (sender, receiver) = watch::channel(None);
        let surroundings = PushContext {
            resource: Resource::new([Attribute::text("service.name", "perf-exporter")]),
            board: Arc::clone(&board),
            log: log.clone(),
            spans: spans.clone(),
            began: clock.now(),
            clock,
            memory: Share::fixed(Part::Queues, 64 << 20),
        };
        let pusher = Pusher::start(Collections::default(), receiver, surroundings).unwrap();
        Self { settings: sender, board, log, spans, pusher }
    }

    fn to(log: Switch, targets: Vec<Target>) -> Self {
        let pushing = Self::waiting(log);
        let first = settings(targets[0].clone());
        pushing.settings.send_replace(by_otlp(Settings { targets, ..first }));
        pushing
    }

    fn state(&self, signal: &str) -> PushStatus {
        self.board.states().into_iter().find(|state| state.signal == signal).unwrap_or_default()
    }

    fn stop(self) {
        self.pusher.stop(Duration::from_secs(10));
    }
}

/// Returns the target of a signal over HTTP.
fn over_http(signal: Signal, path: &str, receiver: &Receiver) -> Target {
    let uri = format!("http://{}{path}", receiver.address).parse().unwrap();
    Target { signal, uri, ..target(Protocol::Http, receiver.address) }
}

fn logs(receiver: &Receiver) -> Vec<ResourceLogs> {
    let taken = receiver.taken().into_iter().filter(|received| received.path == "/v1/logs");
    taken
        .flat_map(|received| ExportLogsServiceRequest::decode(&*received.raw).unwrap().resource_logs)
        .collect()
}

fn spans(receiver: &Receiver) -> Vec<Span> {
    let taken = receiver.taken().into_iter().filter(|received| received.path == "/v1/traces");
    let requests = taken.map(|received| ExportTraceServiceRequest::decode(&*received.raw).unwrap());
    let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|of| of.scope_spans);
    scopes.flat_map(|of| of.spans).collect()
}

/// Returns the text of an attribute.
fn text(span: &Span, key: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key == key)?;
    match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

fn texts(resource: &Option<Decoded>) -> BTreeSet<(String, String)> {
    let attributes = resource.iter().flat_map(|resource| &resource.attributes);
    let pairs = attributes.filter_map(|pair| match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some((pair.key.clone(), text.clone())),
        _ => None,
    });
    pairs.collect()
}

#[test]
fn the_log_is_pushed_where_that_is_wanted() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let pushing = Pushing::to(Switch::default(), vec![over_http(Signal::Logs, "/v1/logs", &receiver)]);
    let subscriber = tracing_subscriber::registry().with(pushing.log.clone());
    tracing::subscriber::with_default(subscriber, || {
        // The receiver is reachable only after the switch is on.
        let taken = eventually("pushed", || {
            tracing::warn!(answer = 42, "something happened");
            tracing::warn!(name: "perf_exporter.push.failed", "it has a name");
            thread::sleep(Duration::from_millis(100));
            (pushing.state("logs").accepted > 0).then_some(())
        });
        assert!(taken.is_some(), "{:?}", pushing.state("logs"));
    });
    pushing.stop();
    let scopes = logs(&receiver).into_iter().flat_map(|logs| logs.scope_logs);
    let records: Vec<_> = scopes.flat_map(|scope| scope.log_records).collect();
    assert!(records.iter().all(|record| record.time_unix_nano > 0), "{records:#?}");
    // A line of source is no name of an event.
    let names: BTreeSet<&str> = records.iter().map(|record| &*record.event_name).collect();
    assert_eq!(names, BTreeSet::from(["", "perf_exporter.push.failed"]));
}

#[test]
fn records_from_before_the_settings_are_pushed_in_order_with_the_resource() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let pushing = Pushing::waiting(Switch::keeping());
    let subscriber = tracing_subscriber::registry().with(pushing.log.clone());
    tracing::subscriber::with_default(subscriber, || {
        for number in 0..3 {
            tracing::info!("early {number}");
        }
        let target = over_http(Signal::Logs, "/v1/logs", &receiver);
        pushing.settings.send_replace(by_otlp(settings(target)));
        assert!(eventually("pushed", || (pushing.state("logs").accepted >= 3).then_some(())).is_some());
    });
    pushing.stop();
    let logs = logs(&receiver);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let expected = [pair("deployment.environment.name", "test"), pair("service.name", "perf-exporter")];
    assert!(logs.iter().all(|logs| texts(&logs.resource) == BTreeSet::from(expected.clone())), "{logs:?}");
    assert!(logs.iter().all(|logs| logs.schema_url.starts_with("https://opentelemetry.io/schemas/")));
    let records = logs.iter().flat_map(|logs| &logs.scope_logs).flat_map(|scope| &scope.log_records);
    let bodies: Vec<_> = records.map(|record| record.body.clone().unwrap().value.unwrap()).collect();
    let early = |number| Value::StringValue(format!("early {number}"));
    assert_eq!(bodies, [early(0), early(1), early(2)]);
}

#[test]
fn pushes_have_spans_and_the_push_of_spans_has_none() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    // The first request of metrics is rejected, unless the first of spans arrives before it.
    receiver.answers([Answer::Code(400, None)]);
    let metrics = over_http(Signal::Metrics, "/v1/metrics", &receiver);
    let traces = over_http(Signal::Traces, "/v1/traces", &receiver);
    let pushing = Pushing::to(Switch::default(), vec![traces, metrics]);
    assert!(
        eventually("two are pushed", || (pushing.state("metrics").accepted >= 2).then_some(())).is_some()
    );
    let own = pushing.spans.begin("collect", opentelemetry::trace::SpanKind::Internal);
    assert!(own.is_exported());
    drop(own);
    pushing.stop();
    let spans = spans(&receiver);
    let pushed: Vec<&Span> = spans.iter().filter(|span| span.name == "push").collect();
    assert_eq!(spans.iter().filter(|span| span.name == "collect").count(), 1);
    assert!(pushed.len() >= 3, "{spans:#?}");
    let signals: BTreeSet<_> =
        pushed.iter().map(|span| text(span, "perf_exporter.push.signal").unwrap()).collect();
    assert_eq!(signals, BTreeSet::from(["metrics".to_owned()]));
    let outcomes: BTreeSet<_> =
        pushed.iter().map(|span| text(span, "perf_exporter.push.outcome").unwrap()).collect();
    assert_eq!(outcomes, BTreeSet::from(["accepted".to_owned(), "rejected".to_owned()]));
    for span in pushed {
        assert_eq!(text(span, "http.request.method").as_deref(), Some("POST"));
        assert_eq!(text(span, "server.port"), Some(receiver.address.port().to_string()));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.trace_id.len() == 16);
        let failed = span.status.as_ref().is_some_and(|status| status.code == 2);
        let rejected = text(span, "perf_exporter.push.outcome").as_deref() == Some("rejected");
        assert_eq!(failed, rejected, "{span:?}");
    }
}

#[test]
fn spans_above_the_bound_are_dropped_and_counted() {
    let receiver = Receiver::start(Protocol::Http, Tls::No);
    let pushing = Pushing::to(Switch::default(), vec![over_http(Signal::Traces, "/v1/traces", &receiver)]);
    let ready = || pushing.spans.begin("collect", opentelemetry::trace::SpanKind::Internal).is_exported();
    assert!(eventually("spans are exported", || ready().then_some(())).is_some());
    // Created faster than any batch is exported.
    for _ in 0..200_000 {
        drop(pushing.spans.begin("collect", opentelemetry::trace::SpanKind::Internal));
    }
    let state = eventually("some are dropped", || {
        // The number is reported with the next request.
        drop(pushing.spans.begin("collect", opentelemetry::trace::SpanKind::Internal));
        Some(pushing.state("traces")).filter(|state| state.dropped > 0)
    });
    assert!(state.is_some(), "{:?}", pushing.state("traces"));
    pushing.stop();
}
