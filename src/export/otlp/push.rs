//! OTLP as a push format: metrics, profiles, and the exporter's own log and spans, over gRPC or HTTP.
//!
//! Specification: <https://opentelemetry.io/docs/specs/otlp/>.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::attribute::{Attribute, Resource};
use super::grpc::Grpc;
use super::logs::Switch;
use super::metrics::{Encoder, Options};
use super::outlet::Outlet;
use super::settings::{Settings, Target};
use super::{http, profiles, traces};
use crate::clock::{Clock, Timestamp};
use crate::config::push::{Protocol, Push, Signal};
use crate::export::push::http::Http;
use crate::export::push::{Feed, Format, Outcome, PushContext, Route, Starter, Transport, seed};
use crate::host::Environment;
use crate::span::Spans;

/// Attributes that the resource of profiles omits. The stacks belong to other services, whose names are set by themselves or by a
/// Collector.
const OF_THE_EXPORTER: [&str; 7] = [
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
];

/// State of the format.
#[derive(Debug)]
pub(in crate::export) struct Otlp {
    log: Switch,
    spans: Spans,
    /// Resource of the exporter.
    resource: Resource,
    /// Start time of the process.
    began: Timestamp,
    /// Encoder of metrics, once some were pushed. With delta temporality it keeps the previous snapshot.
    encoder: Option<Arc<Mutex<Encoder>>>,
}

impl Otlp {
    fn encoder(&mut self, options: Options) -> Arc<Mutex<Encoder>> {
        let encoder = self.encoder.get_or_insert_with(|| Arc::new(Mutex::new(Encoder::new(options))));
        encoder.lock().unwrap_or_else(PoisonError::into_inner).set_options(options);
        Arc::clone(encoder)
    }
}

impl Format for Otlp {
    const NAME: &'static str = "otlp";

    type Settings = Settings;

    fn new(push_context: &PushContext) -> Self {
        let PushContext { log, spans, resource, began, .. } = push_context;
        let (log, spans, resource) = (log.clone(), spans.clone(), resource.clone());
        Self { log, spans, resource, began: *began, encoder: None }
    }

    fn resolve(push: &Push, environment: &Environment, problems: &mut Vec<String>) -> Option<Settings> {
        let (settings, ignored) = Settings::resolve(push.otlp.as_ref(), environment);
        problems.extend(ignored);
        settings
    }

    fn routes(settings: &Settings) -> Vec<Route> {
        settings.targets.iter().map(|target| route(target, settings)).collect()
    }

    fn check_files(settings: &Settings) -> Vec<(Signal, String)> {
        let check = |target: &Target| target.tls.check(&target.uri).err().map(|why| (target.signal, why));
        settings.targets.iter().filter_map(check).collect()
    }

    fn samples_by_cpu(settings: &Settings) -> bool {
        settings.profiles_cpus && settings.target(Signal::Profiles).is_some()
    }

    fn start<F: Feed>(&mut self, settings: &Settings, starter: &mut Starter<'_, F>) {
        let limit = starter.request_limit();
        let (began, given) = (self.began, settings.resource.iter());
        let given = given.map(|(name, value)| Attribute::text(name.clone(), value.as_str()));
        let sampled = self.resource.clone().without(&OF_THE_EXPORTER).with(given.clone());
        let resource = self.resource.clone().with(given);
        for target in &settings.targets {
            let (route, target) = (route(target, settings), target.clone());
            match target.signal {
                Signal::Metrics => {
                    let (temporality, histograms) = (settings.temporality, settings.histograms);
                    let encoder = self.encoder(Options { temporality, histograms, limit, began });
                    let resource = resource.clone();
                    starter.metrics(&route, target, move |snapshot| {
                        encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(snapshot, &resource)
                    });
                }
                Signal::Profiles => {
                    let options = profiles::Options { limit, seed: seed(), ..profiles::Options::default() };
                    let resource: Resource = sampled.clone();
                    starter.profiles(&route, target, move |all| profiles::encode(all, &resource, &options));
                }
                Signal::Logs => {
                    let (log, uri) = (self.log.clone(), target.uri.to_string());
                    let sink = starter.as_it_comes(&route, target, move || log.pause());
                    self.log.turn_on(&resource, Outlet::new(sink, uri));
                }
                Signal::Traces => {
                    let (spans, uri) = (self.spans.clone(), target.uri.to_string());
                    let sink = starter.as_it_comes(&route, target, move || traces::turn_off(&spans));
                    traces::turn_on(&self.spans, &resource, Outlet::new(sink, uri));
                }
            }
        }
        if settings.target(Signal::Logs).is_none() {
            self.log.turn_off();
        }
        if settings.target(Signal::Traces).is_none() {
            traces::turn_off(&self.spans);
        }
    }

    fn idle(&mut self) {
        self.log.turn_off();
        traces::turn_off(&self.spans);
    }
}

fn route(target: &Target, settings: &Settings) -> Route {
    Route {
        signal: target.signal,
        uri: target.uri.clone(),
        protocol: target.protocol.as_str(),
        headers: target.headers.iter().map(|(name, _)| name.clone()).collect(),
        interval: match target.signal {
            Signal::Metrics => Some(settings.metrics_interval),
            Signal::Profiles => Some(settings.profiles_interval),
            Signal::Logs | Signal::Traces => None,
        },
        timeout: target.timeout,
        queue: settings.queue,
    }
}

/// Connections for either protocol.
#[derive(Debug)]
pub(in crate::export) enum Connection {
    Grpc(Grpc),
    Http(Box<Http>),
}

impl Transport for Target {
    type Connection = Connection;

    fn connect(&self) -> Result<Connection, String> {
        Ok(match self.protocol {
            Protocol::Grpc => Connection::Grpc(Grpc::new(self)?),
            Protocol::Http => Connection::Http(Box::new(Http::new(&self.uri, &self.tls)?)),
        })
    }

    async fn send(&self, connection: &Connection, body: &Bytes, clock: &Clock) -> Outcome {
        match connection {
            Connection::Grpc(grpc) => grpc.send(self, body).await,
            Connection::Http(connections) => http::send(connections, self, body, clock).await,
        }
    }
}
