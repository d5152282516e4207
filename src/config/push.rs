//! Checks of `export`: push destinations by format. Each format is a module with the keys of its section and the checked result, plus a
//! line in the list of `Export`. Common parts of sections are below.

pub mod otlp;
pub mod remote_write;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::decode::At;
use super::problem::shown;
use super::report::Report;
use super::value::{Entries, Period, Size, Texts};
use crate::named_enum::named_enum;
use crate::net::tls::Tls;

pub use otlp::{Histograms, Otlp, Protocol, Temporality};
pub use remote_write::RemoteWrite;

/// Section of a format.
pub(super) trait Section: Sized {
    /// Keys of the section.
    type Written: DeserializeOwned + JsonSchema;

    /// Returns the checked section, and reports its problems.
    fn check(written: &At<Self::Written>, report: &mut Report<'_>) -> Self;
}

/// Declares [`Export`] and [`Push`] from the names of sections and the types that implement [`Section`].
macro_rules! sections {
    ($($(#[$doc:meta])+ $name:ident: $section:ident,)+) => {
        /// Push destinations for the measurements, in addition to scraping.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Export {
            $($(#[$doc])+ pub(super) $name: Option<At<$name::Written>>,)+
        }

        /// Push destinations as configured in the file; `None` for sections that it omits.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Push {
            $($(#[$doc])+ pub $name: Option<$section>,)+
        }

        impl Push {
            /// Reports whether the file has any section.
            pub fn is_any(&self) -> bool {
                [$(self.$name.is_some()),+].contains(&true)
            }
        }

        /// Returns the checked sections, and those of `base` for sections that the file omits.
        pub(super) fn push(written: &Option<At<Export>>, base: &Push, report: &mut Report<'_>) -> Push {
            Push {
                $($name: written.as_ref()
                    .and_then(|export| export.$name.as_ref())
                    .map(|written| $section::check(written, report))
                    .or_else(|| base.$name.clone()),)+
            }
        }
    };
}

// All formats.
sections! {
    /// Push to an OpenTelemetry Collector or another OTLP receiver. The section enables the push; `{}` is enough. The standard variables
    /// `OTEL_EXPORTER_OTLP_…` apply to keys that it omits. They also enable the push if the section is missing.
    otlp: Otlp,
    /// Push metrics to Prometheus or another receiver of Prometheus remote write (Mimir, Thanos, VictoriaMetrics, ...).
    remote_write: RemoteWrite,
}

named_enum! {
    /// Signal to push.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Signal {
        /// The metrics that `/metrics` serves.
        Metrics = "metrics",
        /// The profiles of `profiles`.
        Profiles = "profiles",
        /// The exporter's own log, from level `info`.
        Logs = "logs",
        /// Spans of the exporter's collections, scrapes and pushes.
        Traces = "traces",
    }
}

/// Files in PEM format. They are read for each connection, so changes apply without a reload.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Tls", deny_unknown_fields)]
pub(super) struct WrittenTls {
    /// File with the certificate authorities for the receiver, instead of those of the system.
    pub(super) ca: Option<At<String>>,
    /// File with the client certificate of this exporter; requires `key`.
    pub(super) certificate: Option<At<String>>,
    /// File with the private key of the client certificate.
    pub(super) key: Option<At<String>>,
}

/// Bounds of the memory of a queue.
const QUEUE_MIN: u64 = 1 << 20;
const QUEUE_MAX: u64 = 4 << 30;
/// Default memory of a queue.
const QUEUE: Size = Size(32 << 20);
/// Bounds of the response timeout of a receiver.
const TIMEOUTS: RangeInclusive<Period> = Period::milliseconds(100)..=Period::seconds(600);
/// Default and bounds of the push interval of metrics.
const INTERVAL: Period = Period::seconds(15);
const INTERVALS: RangeInclusive<Period> = Period::seconds(1)..=Period::seconds(3600);

/// Parses a URL with the scheme `http` or `https` and a host, without query and fragment.
///
/// # Errors
/// The problem and the correction.
pub fn url(text: &str) -> Result<hyper::Uri, (String, String)> {
    let example = || "use the form `http://collector:4317`".to_owned();
    // Checked before any part of the URL is shown, because the text before the `@` may be a password.
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest).split('/').next();
    if authority.is_some_and(|authority| authority.contains('@')) {
        let hint = "set them in `headers`, or preferably in OTEL_EXPORTER_OTLP_HEADERS".to_owned();
        return Err(("the user and password of a URL are not sent".to_owned(), hint));
    }
    if text.contains('?') {
        return Err(("a URL with a query is not supported".to_owned(), example()));
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
        _ => Err((format!("the scheme of {} is neither http nor https", shown(text)), example())),
    }
}

/// Returns the URL, if it is valid. `hint` returns the correction, given the usual one.
pub(super) fn address(
    at: &At<String>,
    hint: impl FnOnce(String) -> String,
    report: &mut Report<'_>,
) -> Option<hyper::Uri> {
    url(at).map_err(|(message, usual)| report.error(at.node, message, hint(usual))).ok()
}

fn headers(written: &Option<At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    let pairs = written.as_ref().map_or(&[][..], |at| &at.value.0);
    for (name, value) in pairs {
        if let Err(why) = header(&name.value, &value.value) {
            report.error(value.node, why, None);
        }
    }
    pairs.iter().map(|(name, value)| (name.value.to_ascii_lowercase(), value.value.clone())).collect()
}

/// Checks that a header can be sent with each request.
///
/// # Errors
/// The reason why it cannot be sent.
pub fn header(name: &str, value: &str) -> Result<(), String> {
    let parsed = hyper::header::HeaderName::from_bytes(name.as_bytes());
    let Ok(parsed) = parsed else {
        // Not shown: a user who writes `name: secret=` instead of `name=secret` has the secret in the name.
        return Err("the text is not a valid header name".to_owned());
    };
    let name = parsed.as_str();
    let shown_name = shown(name);
    let ours =
        matches!(name, "content-type" | "content-length" | "content-encoding" | "host" | "te" | "connection")
            || name.starts_with("grpc-")
            || name.ends_with("-bin");
    if ours {
        return Err(format!("the header {shown_name} is reserved for the protocol"));
    }
    // gRPC allows only printable ASCII.
    let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if printable {
        Ok(())
    } else {
        Err(format!("the value of the header {shown_name} is not printable ASCII"))
    }
}

fn tls(written: &Option<WrittenTls>, report: &mut Report<'_>) -> Tls {
    let Some(WrittenTls { ca, certificate, key }) = written else { return Tls::default() };
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| PathBuf::from(&at.value));
    match (certificate, key) {
        (Some(alone), None) => {
            report.error(alone.node, "a certificate needs its key", "set `key` as well");
        }
        (None, Some(alone)) => {
            report.error(alone.node, "a key needs its certificate", "set `certificate` as well");
        }
        _ => {}
    }
    Tls { ca: path(ca), certificate: path(certificate), key: path(key) }
}

fn period(
    written: &Option<At<Period>>,
    bounds: RangeInclusive<Period>,
    usual: Period,
    report: &mut Report<'_>,
) -> Option<Duration> {
    report.bounded(written, bounds, Some(usual)).map(|Period(period)| period)
}

fn queue(written: &Option<At<Size>>, report: &mut Report<'_>) -> u64 {
    report.setting(written, Size(QUEUE_MIN)..=Size(QUEUE_MAX), QUEUE).0
}

/// Returns at most `most` names and texts for requests, each text of at most `bytes` bytes. `what` is their kind, in the plural. `judge`
/// reports invalid names.
fn pairs(
    written: &Option<At<Texts>>,
    (what, most, bytes): (&str, usize, usize),
    report: &mut Report<'_>,
    judge: impl Fn(&At<String>, &At<String>, &mut Report<'_>),
) -> Vec<(String, String)> {
    let Some(At { node, value: Entries(pairs) }) = written else { return Vec::new() };
    report.too_many(*node, (pairs.len(), what), most, None);
    for (name, value) in pairs {
        judge(name, value, report);
        report.too_many(value.node, (value.len(), "bytes"), bytes, None);
    }
    pairs.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect()
}
