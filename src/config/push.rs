//! What `export.otlp` comes to. What is `None` here is for the environment to say, and then for the standard.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::decode::At;
use super::file::{self, QUEUE_MAX, QUEUE_MIN};
use super::problem::shown;
use super::report::Report;
use super::value::{Period, Size, Texts};
use crate::net::tls::Tls;

pub use super::file::{Histograms, Protocol, Signal, Temporality};

/// What is pushed where, as far as the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
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
const PROFILE: Duration = Duration::from_secs(60);
/// Memory of a queue unless the file says otherwise.
const QUEUE: u64 = 32 << 20;
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);
const METRICS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const PROFILES: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(3600);

impl Default for Push {
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
            queue: QUEUE,
            signals: None,
            metrics_interval: None,
            temporality: None,
            histograms: None,
            profiles_interval: PROFILE,
            profiles_cpus: true,
        }
    }
}

/// What the section says; `None` where there is none.
pub(super) fn push(written: Option<&At<file::Export>>, report: &mut Report<'_>) -> Option<Push> {
    let At { value: otlp, .. } = written?.otlp.as_ref()?;
    let metrics = otlp.metrics.as_ref();
    let profiles = otlp.profiles.as_ref();
    let seconds = |seconds: u64| Duration::from_secs(seconds);
    Some(Push {
        endpoint: otlp.endpoint.as_ref().and_then(|at| endpoint(at, report)),
        protocol: otlp.protocol.map(|at| at.value),
        headers: headers(otlp.headers.as_ref(), report),
        gzip: otlp.compression.map(|at| at.value == file::Compression::Gzip),
        timeout: period(otlp.timeout.as_ref(), TIMEOUTS, seconds(10), report),
        tls: tls(otlp.tls.as_ref(), report),
        resource: resource(otlp.resource.as_ref(), report),
        queue: queue(otlp.queue.as_ref(), report),
        signals: otlp.signals.as_ref().map(|list| {
            let mut signals: Vec<Signal> = list.iter().map(|at| at.value).collect();
            signals.sort_unstable();
            signals.dedup();
            signals
        }),
        metrics_interval: period(
            metrics.and_then(|metrics| metrics.interval.as_ref()),
            METRICS,
            seconds(15),
            report,
        ),
        temporality: metrics.and_then(|metrics| metrics.temporality).map(|at| at.value),
        histograms: metrics.and_then(|metrics| metrics.histograms).map(|at| at.value),
        profiles_interval: period(
            profiles.and_then(|profiles| profiles.interval.as_ref()),
            PROFILES,
            PROFILE,
            report,
        )
        .unwrap_or(PROFILE),
        profiles_cpus: profiles.and_then(|profiles| profiles.cpus).is_none_or(|at| at.value),
    })
}

/// A URL of `http` or `https` with a host, and neither query nor fragment.
///
/// # Errors
/// What is wrong with it, and what to write.
pub fn url(text: &str) -> Result<hyper::Uri, (String, String)> {
    let example = || "write it like `http://collector:4317`".to_owned();
    // Before anything is shown of it: what stands before the sign may be a password.
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest).split('/').next();
    if authority.is_some_and(|authority| authority.contains('@')) {
        let hint = "give them by `headers`, or better by OTEL_EXPORTER_OTLP_HEADERS".to_owned();
        return Err(("a user and a password in a URL are not sent".to_owned(), hint));
    }
    if text.contains('?') {
        return Err(("a URL with a query is not taken".to_owned(), example()));
    }
    if !text.contains("://") {
        let hint = format!("write `http://{text}`, or `https://{text}` for TLS");
        return Err((format!("{} has no scheme", shown(text)), hint));
    }
    let uri: hyper::Uri =
        text.parse().map_err(|error| (format!("{} is not a URL: {error}", shown(text)), example()))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        (Some("http" | "https"), _) => Err((format!("{} has no host", shown(text)), example())),
        _ => Err((format!("{} is neither of http nor of https", shown(text)), example())),
    }
}

fn endpoint(At { node, value }: &At<String>, report: &mut Report<'_>) -> Option<String> {
    match url(value) {
        Ok(_) => Some(value.clone()),
        Err((message, hint)) => {
            report.error(*node, message, Some(hint));
            None
        }
    }
}

fn headers(written: Option<&At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let pairs = written.map_or(&[][..], |at| &at.value.0);
    for (name, value) in pairs {
        if let Err(why) = header(&name.value, &value.value) {
            report.error(value.node, why, None);
        }
    }
    pairs.iter().map(|(name, value)| (name.value.to_ascii_lowercase(), value.value.clone())).collect()
}

/// Whether a header can be sent with each request.
///
/// # Errors
/// Why not.
pub fn header(name: &str, value: &str) -> Result<(), String> {
    let parsed = hyper::header::HeaderName::from_bytes(name.as_bytes());
    let Ok(parsed) = parsed else {
        // Not shown: whoever writes `name: secret=` where `name=secret` is wanted has it in what is taken for the name.
        return Err("what stands there cannot be the name of a header".to_owned());
    };
    let name = parsed.as_str();
    let shown_name = shown(name);
    let ours =
        matches!(name, "content-type" | "content-length" | "content-encoding" | "host" | "te" | "connection")
            || name.starts_with("grpc-")
            || name.ends_with("-bin");
    if ours {
        return Err(format!("the header {shown_name} belongs to the protocol"));
    }
    // gRPC allows nothing else.
    let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if printable {
        Ok(())
    } else {
        Err(format!("the value of the header {shown_name} is not printable ASCII"))
    }
}

fn tls(written: Option<&file::Tls>, report: &mut Report<'_>) -> Tls {
    let Some(file::Tls { ca, certificate, key }) = written else { return Tls::default() };
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| PathBuf::from(&at.value));
    match (certificate, key) {
        (Some(alone), None) => {
            report.error(alone.node, "a certificate needs its key", Some("give `key` as well".into()));
        }
        (None, Some(alone)) => {
            report.error(
                alone.node,
                "a key needs its certificate",
                Some("give `certificate` as well".into()),
            );
        }
        _ => {}
    }
    Tls { ca: path(ca), certificate: path(certificate), key: path(key) }
}

/// The most attributes and the longest one that a file may give.
const ATTRIBUTES: usize = 128;
const ATTRIBUTE_BYTES: usize = 4096;

fn resource(written: Option<&At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let Some(At { node, value: Texts(pairs) }) = written else { return Vec::new() };
    if pairs.len() > ATTRIBUTES {
        report.error(*node, format!("{} attributes, and at most {ATTRIBUTES} are taken", pairs.len()), None);
    }
    for (name, value) in pairs {
        if name.value.trim().is_empty() {
            report.error(value.node, "an attribute without a name", None);
        }
        if value.value.len() > ATTRIBUTE_BYTES {
            let message = format!("{} bytes, and at most {ATTRIBUTE_BYTES} are taken", value.value.len());
            report.error(value.node, message, None);
        }
    }
    pairs.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect()
}

fn period(
    written: Option<&At<Period>>,
    bounds: RangeInclusive<Duration>,
    usual: Duration,
    report: &mut Report<'_>,
) -> Option<Duration> {
    let At { node, value: Period(period) } = written?;
    if !bounds.contains(period) {
        let message = format!("{period:?} is not between {:?} and {:?}", bounds.start(), bounds.end());
        report.error(*node, message, Some(format!("{usual:?} is the default")));
    }
    Some(*period)
}

fn queue(written: Option<&At<Size>>, report: &mut Report<'_>) -> u64 {
    let Some(At { node, value: size @ Size(bytes) }) = written else { return QUEUE };
    if !(QUEUE_MIN..=QUEUE_MAX).contains(bytes) {
        let message = format!("{size} is not between {} and {}", Size(QUEUE_MIN), Size(QUEUE_MAX));
        report.error(*node, message, Some(format!("{} is the default", Size(QUEUE))));
    }
    *bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn push(text: &str) -> Push {
        good(&format!("export: {{otlp: {text}}}")).push.unwrap()
    }

    #[test]
    fn nothing_is_pushed_unless_the_file_says_so_and_then_the_environment_says_the_rest() {
        assert_eq!(good("{}").push, None);
        assert_eq!(good("export: {}").push, None);
        assert_eq!(push("{}"), Push::default());
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
        let expected = Push {
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
