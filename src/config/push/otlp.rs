//! The section `export.otlp` and its checked form. The environment supplies the values that are `None` in [`Otlp`]; otherwise the defaults
//! of the OTLP specification apply.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    INTERVAL, INTERVALS, QUEUE, QUEUE_MAX, QUEUE_MIN, Section, Signal, TIMEOUTS, WrittenTls, address,
    headers, pairs, period, queue, tls,
};
use crate::config::decode::At;
use crate::config::report::Report;
use crate::config::value::{List, Period, Size, Texts};
use crate::named_enum::named_enum;
use crate::net::tls::Tls;

/// OTLP push destination.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Otlp", deny_unknown_fields)]
pub(in crate::config) struct Written {
    /// URL of the receiver, `https` for TLS. For `http/protobuf` the paths of the signals are appended. The default is
    /// `http://localhost:4317`, or `:4318` for `http/protobuf`.
    #[schemars(extend("examples" = ["http://collector:4317", "https://otlp.example.com"]))]
    pub(in crate::config) endpoint: Option<At<String>>,
    /// `grpc` (the default) or `http/protobuf`.
    pub(in crate::config) protocol: Option<At<Protocol>>,
    /// Headers of each request. They take precedence over the variable `OTEL_EXPORTER_OTLP_HEADERS`, which is preferable for headers with
    /// secrets.
    #[schemars(extend("examples" = [{"x-scope-orgid": "team-a"}]))]
    pub(in crate::config) headers: Option<At<Texts>>,
    /// `gzip` (the default) or `none`.
    pub(in crate::config) compression: Option<At<Compression>>,
    /// Response timeout of the receiver: 100ms to 10m; `10s` by default.
    pub(in crate::config) timeout: Option<At<Period>>,
    /// Certificates, for `https`.
    pub(in crate::config) tls: Option<WrittenTls>,
    /// Resource attributes, in addition to those of this host and of `OTEL_RESOURCE_ATTRIBUTES`, over which they take precedence.
    #[schemars(extend("examples" = [{"deployment.environment.name": "production"}]))]
    pub(in crate::config) resource: Option<At<Texts>>,
    /// Memory for queued requests of each signal: 1MiB to 4GiB; `32MiB` by default. When it is full, the oldest requests are dropped and
    /// counted.
    #[schemars(extend("minimum" = QUEUE_MIN, "maximum" = QUEUE_MAX))]
    pub(in crate::config) queue: Option<At<Size>>,
    /// Signals to push: `metrics`, `profiles`, `logs` (the exporter's own events), `traces` (spans of its collections, scrapes and pushes).
    /// The default is `metrics` and `profiles`.
    pub(in crate::config) signals: Option<At<List<Signal>>>,
    /// Settings of the metrics push.
    pub(in crate::config) metrics: Option<Metrics>,
    /// Settings of the profiles push.
    pub(in crate::config) profiles: Option<Profiles>,
}

/// Settings of the metrics push.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Metrics {
    /// Push interval: 1s to 1h; `15s` by default.
    pub(in crate::config) interval: Option<At<Period>>,
    /// `cumulative` (the default): totals since the start, as in Prometheus; a failed push loses no data. `delta`: changes since the
    /// previous push, for receivers that require it.
    pub(in crate::config) temporality: Option<At<Temporality>>,
    /// `exponential` (the default), or `explicit`: the buckets of the Prometheus text format.
    pub(in crate::config) histograms: Option<At<Histograms>>,
}

/// Settings of the profiles push.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Profiles {
    /// Duration of a profile: 5s to 1h; `60s` by default.
    pub(in crate::config) interval: Option<At<Period>>,
    /// Whether samples have the CPU; `true` by default. Without it, pushes are smaller.
    pub(in crate::config) cpus: Option<At<bool>>,
}

named_enum! {
    /// Transport protocol.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum Protocol {
        /// HTTP/2, port 4317.
        #[serde(rename = "grpc")]
        Grpc = "grpc",
        /// HTTP/1.1, port 4318.
        #[serde(rename = "http/protobuf")]
        Http = "http/protobuf",
    }
}

/// Compression of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Compression {
    /// gzip: about a tenth of the size, at some milliseconds per megabyte.
    Gzip,
    /// No compression.
    None,
}

/// Aggregation temporality of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Temporality {
    /// Totals since the start.
    #[default]
    Cumulative,
    /// Changes since the previous push.
    Delta,
}

/// Data type of pushed histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Histograms {
    /// Exponential buckets, for histograms that have them.
    #[default]
    Exponential,
    /// The buckets of the text format.
    Explicit,
}

/// OTLP push destination as configured in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// URL of the receiver, with `http` or `https`.
    pub endpoint: Option<String>,
    /// Transport protocol.
    pub protocol: Option<Protocol>,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// Whether requests are compressed.
    pub gzip: Option<bool>,
    /// Response timeout.
    pub timeout: Option<Duration>,
    /// Certificates.
    pub tls: Tls,
    /// Resource attributes.
    pub resource: Vec<(String, String)>,
    /// Maximum memory of queued requests for each signal, in bytes.
    pub queue: u64,
    /// Signals to push, without duplicates; `None` = metrics and profiles, unless the environment sets them.
    pub signals: Option<Vec<Signal>>,
    /// Push interval of metrics.
    pub metrics_interval: Option<Duration>,
    /// Aggregation temporality of sums.
    pub temporality: Option<Temporality>,
    /// Data type of pushed histograms.
    pub histograms: Option<Histograms>,
    /// Duration of a profile.
    pub profiles_interval: Duration,
    /// Whether samples have the CPU.
    pub profiles_cpus: bool,
}

/// Default and bounds of the duration of a profile.
const PROFILE: Period = Period::seconds(60);
const PROFILES: RangeInclusive<Period> = Period::seconds(5)..=Period::seconds(3600);

impl Default for Otlp {
    /// Returns the settings of `otlp: {}`.
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: None,
            headers: Vec::new(),
            gzip: None,
            timeout: None,
            tls: Tls::default(),
            resource: Vec::new(),
            queue: QUEUE.0,
            signals: None,
            metrics_interval: None,
            temporality: None,
            histograms: None,
            profiles_interval: PROFILE.0,
            profiles_cpus: true,
        }
    }
}

impl Section for Otlp {
    type Written = Written;

    fn check(At { value: otlp, .. }: &At<Written>, report: &mut Report<'_>) -> Self {
        let (metrics, profiles) = (otlp.metrics.as_ref(), otlp.profiles.as_ref());
        let metrics_interval = metrics.and_then(|metrics| metrics.interval);
        let profiles_interval = profiles.and_then(|profiles| profiles.interval);
        Self {
            endpoint: otlp
                .endpoint
                .as_ref()
                .and_then(|at| address(at, |hint| hint, report).map(|_| at.value.clone())),
            protocol: otlp.protocol.map(|at| at.value),
            headers: headers(&otlp.headers, report),
            gzip: otlp.compression.map(|at| at.value == Compression::Gzip),
            timeout: period(&otlp.timeout, TIMEOUTS, Period::seconds(10), report),
            tls: tls(&otlp.tls, report),
            resource: resource(&otlp.resource, report),
            queue: queue(&otlp.queue, report),
            signals: otlp.signals.as_ref().map(|list| {
                let mut signals: Vec<Signal> = list.iter().map(|at| at.value).collect();
                signals.sort_unstable();
                signals.dedup();
                signals
            }),
            metrics_interval: period(&metrics_interval, INTERVALS, INTERVAL, report),
            temporality: metrics.and_then(|metrics| metrics.temporality).map(|at| at.value),
            histograms: metrics.and_then(|metrics| metrics.histograms).map(|at| at.value),
            profiles_interval: report.setting(&profiles_interval, PROFILES, PROFILE).0,
            profiles_cpus: profiles.and_then(|profiles| profiles.cpus).is_none_or(|at| at.value),
        }
    }
}

fn resource(written: &Option<At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    pairs(written, ("attributes", 128, 4096), report, |name, value, report| {
        if name.trim().is_empty() {
            report.error(value.node, "the attribute name is empty", None);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::push::{Push, header, url};
    use crate::config::tests::{good, report};

    fn push(text: &str) -> Otlp {
        good(&format!("export: {{otlp: {text}}}")).push.otlp.unwrap()
    }

    #[test]
    fn nothing_is_pushed_unless_the_file_says_so_and_then_the_environment_says_the_rest() {
        assert_eq!(good("{}").push, Push::default());
        assert_eq!(good("export: {}").push, Push::default());
        assert_eq!(push("{}"), Otlp::default());
    }

    #[test]
    fn everything_can_be_said() {
        let all = push(
            "{endpoint: 'https://c:1', protocol: http/protobuf, headers: {X-A: b}, compression: none, timeout: 3s, \
             tls: {ca: /a, certificate: /b, key: /c}, resource: {x.y: z}, queue: 1MiB, \
             signals: [logs, metrics, logs], metrics: {interval: 1s, temporality: delta, histograms: explicit}, \
             profiles: {interval: 5s, cpus: false}}",
        );
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let expected = Otlp {
            endpoint: Some("https://c:1".into()),
            protocol: Some(Protocol::Http),
            headers: vec![pair("x-a", "b")],
            gzip: Some(false),
            timeout: Some(Duration::from_secs(3)),
            tls: Tls { ca: Some("/a".into()), certificate: Some("/b".into()), key: Some("/c".into()) },
            resource: vec![pair("x.y", "z")],
            queue: 1 << 20,
            signals: Some(vec![Signal::Metrics, Signal::Logs]),
            metrics_interval: Some(Duration::from_secs(1)),
            temporality: Some(Temporality::Delta),
            histograms: Some(Histograms::Explicit),
            profiles_interval: Duration::from_secs(5),
            profiles_cpus: false,
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn an_endpoint_that_is_none_is_answered_with_one() {
        let said = |text: &str| report(&format!("export: {{otlp: {{endpoint: '{text}'}}}}"));
        assert!(
            said("collector:4317").ends_with(
                "has no scheme; write `http://collector:4317`, or `https://collector:4317` for TLS"
            )
        );
        assert!(said("ftp://a").ends_with("is neither http nor https; use the form `http://collector:4317`"));
        assert!(said("http://").contains("is not a URL"));
        assert!(said("http://a/?b=c").contains("a URL with a query is not supported"));
        assert!(said("http://a b").contains("is not a URL"));
        for secret in ["http://me:secret@a", "http://me:se^cret@a", "me:secret@a", "https://a/b?key=secret"] {
            let (message, hint) = url(secret).unwrap_err();
            assert!(!message.contains("cret") && !hint.contains("cret"), "{message} {hint}");
        }
    }

    #[test]
    fn headers_of_the_protocol_and_those_that_cannot_be_sent_are_refused() {
        let said = |text: &str| report(&format!("export: {{otlp: {{headers: {{{text}}}}}}}"));
        assert!(said("'a b': c").contains("is not a valid header name"));
        assert!(!header("authorization: basic dxnl", "=").unwrap_err().contains("dxnl"));
        assert!(said("Content-Type: c").contains("is reserved for the protocol"));
        assert!(said("grpc-timeout: c").contains("is reserved for the protocol"));
        assert!(said("a: 'é'").contains("is not printable ASCII"));
    }

    #[test]
    fn times_and_memory_have_bounds_and_a_certificate_has_a_key() {
        for (text, part) in [
            ("timeout: 1ms", "1ms is not between 100ms and 600s; the default is 10s"),
            ("metrics: {interval: 100ms}", "100ms is not between 1s and 3600s; the default is 15s"),
            ("profiles: {interval: 1s}", "1s is not between 5s and 3600s; the default is 60s"),
            ("queue: 1KiB", "1KiB is not between 1MiB and 4GiB; the default is 32MiB"),
            ("tls: {certificate: /a}", "a certificate needs its key; set `key` as well"),
            ("tls: {key: /a}", "a key needs its certificate; set `certificate` as well"),
        ] {
            let said = report(&format!("export: {{otlp: {{{text}}}}}"));
            assert!(said.ends_with(part), "{said}");
        }
    }
}
