//! What may be written under `export`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::decode::At;
use crate::config::value::{List, Period, Size, Texts};

/// Where to push what was measured, beside serving it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Export {
    /// Push to an OpenTelemetry Collector, or to anything else that takes OTLP. Given at all, it pushes; `{}` is enough. What
    /// it leaves out is taken from the standard variables `OTEL_EXPORTER_OTLP_…`, which also turn it on where this is left
    /// out.
    pub(in crate::config) otlp: Option<At<Otlp>>,
}

/// How and what to push by OTLP.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Otlp {
    /// The receiver's URL, `https` for TLS. For `http/protobuf` the paths of the signals are put behind it. By default
    /// `http://localhost:4317`, or `:4318` for `http/protobuf`.
    #[schemars(extend("examples" = ["http://collector:4317", "https://otlp.example.com"]))]
    pub(in crate::config) endpoint: Option<At<String>>,
    /// `grpc` (the default) or `http/protobuf`.
    pub(in crate::config) protocol: Option<At<Protocol>>,
    /// Headers of each request. Those with secrets are better given by the variable `OTEL_EXPORTER_OTLP_HEADERS`; what is
    /// given here is stronger.
    #[schemars(extend("examples" = [{"x-scope-orgid": "team-a"}]))]
    pub(in crate::config) headers: Option<At<Texts>>,
    /// `gzip` (the default) or `none`.
    pub(in crate::config) compression: Option<At<Compression>>,
    /// How long the receiver may take to answer: 100ms to 10m; `10s` by default.
    pub(in crate::config) timeout: Option<At<Period>>,
    /// Certificates, for `https`.
    pub(in crate::config) tls: Option<Tls>,
    /// Attributes of the resource beside those that are found: of this host, and in `OTEL_RESOURCE_ATTRIBUTES`. What is given
    /// here is stronger.
    #[schemars(extend("examples" = [{"deployment.environment.name": "production"}]))]
    pub(in crate::config) resource: Option<At<Texts>>,
    /// Memory for what waits until it can be sent, for each signal: 1MiB to 4GiB; `32MiB` by default. When it is full the
    /// oldest is dropped, and counted.
    #[schemars(extend("minimum" = QUEUE_MIN, "maximum" = QUEUE_MAX))]
    pub(in crate::config) queue: Option<At<Size>>,
    /// What to push: `metrics`, `profiles`, `logs` (the exporter's own events). By default the first two.
    pub(in crate::config) signals: Option<At<List<Signal>>>,
    /// How metrics are pushed.
    pub(in crate::config) metrics: Option<Metrics>,
    /// How profiles are pushed.
    pub(in crate::config) profiles: Option<Profiles>,
}

/// Files in PEM format. They are read whenever a connection is made, so new ones are taken without a reload.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tls {
    /// The authorities that may vouch for the receiver, instead of the system's.
    pub(in crate::config) ca: Option<At<String>>,
    /// The certificate that this exporter shows; with `key`.
    pub(in crate::config) certificate: Option<At<String>>,
    /// Its private key.
    pub(in crate::config) key: Option<At<String>>,
}

/// How metrics are pushed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Metrics {
    /// How often: 1s to 1h; `15s` by default.
    pub(in crate::config) interval: Option<At<Period>>,
    /// `cumulative` (the default): since the beginning, as Prometheus has it; nothing is lost when a push fails. `delta`: since
    /// the push before, for receivers that want it.
    pub(in crate::config) temporality: Option<At<Temporality>>,
    /// `exponential` (the default) or `explicit`: the buckets that Prometheus' text format has.
    pub(in crate::config) histograms: Option<At<Histograms>>,
}

/// How profiles are pushed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Profiles {
    /// The length of a profile: 5s to 1h; `60s` by default.
    pub(in crate::config) interval: Option<At<Period>>,
    /// Whether samples of different CPUs are told apart; `true` by default. Without it pushes are smaller.
    pub(in crate::config) cpus: Option<At<bool>>,
}

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Over HTTP/2, port 4317.
    #[serde(rename = "grpc")]
    Grpc,
    /// Over HTTP/1.1, port 4318.
    #[serde(rename = "http/protobuf")]
    Http,
}

/// How requests are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Compression {
    /// To a tenth, at some milliseconds per megabyte.
    Gzip,
    /// Not at all.
    None,
}

/// What is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// What `/metrics` serves.
    Metrics,
    /// What `profiles` sample.
    Profiles,
    /// The exporter's own log, from level `info` on.
    Logs,
}

/// Since when sums count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Temporality {
    /// Since the beginning.
    #[default]
    Cumulative,
    /// Since the push before.
    Delta,
}

/// What histograms are pushed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Histograms {
    /// With exponential buckets, where they have them.
    #[default]
    Exponential,
    /// With the buckets of the text format.
    Explicit,
}

/// The least and the most memory of a queue.
pub(in crate::config) const QUEUE_MIN: u64 = 1 << 20;
pub(in crate::config) const QUEUE_MAX: u64 = 4 << 30;
