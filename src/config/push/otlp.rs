//! `export.otlp`: what may be written there, and what it comes to. What is `None` in [`Otlp`] is for the environment to say, and
//! then for the standard.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Bounds, INTERVAL, INTERVALS, QUEUE, QUEUE_MAX, QUEUE_MIN, Section, Signal, TIMEOUTS, WrittenTls, address,
    headers, pairs, period, queue, tls,
};
use crate::config::decode::At;
use crate::config::report::Report;
use crate::config::value::{List, Period, Size, Texts};
use crate::net::tls::Tls;
use crate::words::words;

/// How and what to push by OTLP.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Otlp", deny_unknown_fields)]
pub(in crate::config) struct Written {
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
    pub(in crate::config) tls: Option<WrittenTls>,
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

words! {
    /// How requests travel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
    pub enum Protocol {
        /// Over HTTP/2, port 4317.
        #[serde(rename = "grpc")]
        Grpc = "grpc",
        /// Over HTTP/1.1, port 4318.
        #[serde(rename = "http/protobuf")]
        Http = "http/protobuf",
    }
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

/// What is pushed where by OTLP, as far as the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// The receiver's URL, with `http` or `https`.
    pub endpoint: Option<String>,
    /// How requests travel.
    pub protocol: Option<Protocol>,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// Whether requests are compressed.
    pub gzip: Option<bool>,
    /// How long an answer may take.
    pub timeout: Option<Duration>,
    /// Certificates.
    pub tls: Tls,
    /// Attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// Bytes that may wait to be sent, for each signal.
    pub queue: u64,
    /// What is pushed, each at most once; `None` = metrics and profiles, unless the environment says otherwise.
    pub signals: Option<Vec<Signal>>,
    /// How often metrics are pushed.
    pub metrics_interval: Option<Duration>,
    /// Since when sums count.
    pub temporality: Option<Temporality>,
    /// What histograms are pushed as.
    pub histograms: Option<Histograms>,
    /// The length of a profile.
    pub profiles_interval: Duration,
    /// Whether samples of different CPUs are told apart.
    pub profiles_cpus: bool,
}

/// The length of a profile unless the file says otherwise.
const PROFILE: Period = Period::seconds(60);
const PROFILES: RangeInclusive<Period> = Period::seconds(5)..=Period::seconds(3600);

impl Default for Otlp {
    /// What `otlp: {}` says.
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
        let metrics_interval = metrics.and_then(|metrics| metrics.interval.as_ref());
        let profiles_interval = profiles.and_then(|profiles| profiles.interval.as_ref());
        Self {
            endpoint: otlp
                .endpoint
                .as_ref()
                .and_then(|at| address(at, |hint| hint, report).map(|_| at.value.clone())),
            protocol: otlp.protocol.map(|at| at.value),
            headers: headers(otlp.headers.as_ref(), report),
            gzip: otlp.compression.map(|at| at.value == Compression::Gzip),
            timeout: period(otlp.timeout.as_ref(), TIMEOUTS, Period::seconds(10), report),
            tls: tls(otlp.tls.as_ref(), report),
            resource: resource(otlp.resource.as_ref(), report),
            queue: queue(otlp.queue.as_ref(), report),
            signals: otlp.signals.as_ref().map(|list| {
                let mut signals: Vec<Signal> = list.iter().map(|at| at.value).collect();
                signals.sort_unstable();
                signals.dedup();
                signals
            }),
            metrics_interval: period(metrics_interval, INTERVALS, INTERVAL, report),
            temporality: metrics.and_then(|metrics| metrics.temporality).map(|at| at.value),
            histograms: metrics.and_then(|metrics| metrics.histograms).map(|at| at.value),
            profiles_interval: report.setting(profiles_interval, PROFILES, PROFILE).0,
            profiles_cpus: profiles.and_then(|profiles| profiles.cpus).is_none_or(|at| at.value),
        }
    }
}

fn resource(written: Option<&At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let bounds = Bounds { of: "attributes", most: 128, bytes: 4096, are: "taken" };
    pairs(written, &bounds, report, |name, value, report| {
        if name.trim().is_empty() {
            report.error(value.node, "an attribute without a name", None);
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
        assert!(
            said("ftp://a")
                .ends_with("is neither of http nor of https; write it like `http://collector:4317`")
        );
        assert!(said("http://").contains("is not a URL"));
        assert!(said("http://a/?b=c").contains("a URL with a query is not taken"));
        assert!(said("http://a b").contains("is not a URL"));
        for secret in ["http://me:secret@a", "http://me:se^cret@a", "me:secret@a", "https://a/b?key=secret"] {
            let (message, hint) = url(secret).unwrap_err();
            assert!(!message.contains("cret") && !hint.contains("cret"), "{message} {hint}");
        }
    }

    #[test]
    fn headers_of_the_protocol_and_those_that_cannot_be_sent_are_refused() {
        let said = |text: &str| report(&format!("export: {{otlp: {{headers: {{{text}}}}}}}"));
        assert!(said("'a b': c").contains("cannot be the name of a header"));
        assert!(!header("authorization: basic dxnl", "=").unwrap_err().contains("dxnl"));
        assert!(said("Content-Type: c").contains("belongs to the protocol"));
        assert!(said("grpc-timeout: c").contains("belongs to the protocol"));
        assert!(said("a: 'é'").contains("is not printable ASCII"));
    }

    #[test]
    fn times_and_memory_have_bounds_and_a_certificate_has_a_key() {
        for (text, part) in [
            ("timeout: 1ms", "1ms is not between 100ms and 600s; 10s is the default"),
            ("metrics: {interval: 100ms}", "100ms is not between 1s and 3600s; 15s is the default"),
            ("profiles: {interval: 1s}", "1s is not between 5s and 3600s; 60s is the default"),
            ("queue: 1KiB", "1KiB is not between 1MiB and 4GiB; 32MiB is the default"),
            ("tls: {certificate: /a}", "a certificate needs its key; give `key` as well"),
            ("tls: {key: /a}", "a key needs its certificate; give `certificate` as well"),
        ] {
            let said = report(&format!("export: {{otlp: {{{text}}}}}"));
            assert!(said.ends_with(part), "{said}");
        }
    }
}
