//! `export`: what is pushed, by format. Each format is a module here, with what may be written in its section and what it comes
//! to, and a line in the list of `Export`; what sections have in common is below.

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
use crate::net::tls::Tls;
use crate::words::words;

pub use otlp::{Histograms, Otlp, Protocol, Temporality};
pub use remote_write::RemoteWrite;

/// The section of a format.
pub(super) trait Section: Sized {
    /// What may be written.
    type Written: DeserializeOwned + JsonSchema;

    /// Returns what the section says, and reports what is wrong with it.
    fn check(written: &At<Self::Written>, report: &mut Report<'_>) -> Self;
}

/// Makes [`Export`] and [`Push`] of the names of sections and of the types that implement [`Section`].
macro_rules! sections {
    ($($(#[$doc:meta])+ $name:ident: $section:ident,)+) => {
        /// Where to push what was measured, beside serving it.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Export {
            $($(#[$doc])+ pub(super) $name: Option<At<$name::Written>>,)+
        }

        /// What is pushed where, as far as the file says; `None` where it has no section.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Push {
            $($(#[$doc])+ pub $name: Option<$section>,)+
        }

        impl Push {
            /// Whether the file has any section.
            pub fn is_any(&self) -> bool {
                [$(self.$name.is_some()),+].contains(&true)
            }
        }

        /// Returns what the sections say, and `base` for those that the file does not have.
        pub(super) fn push(written: Option<&At<Export>>, base: &Push, report: &mut Report<'_>) -> Push {
            Push {
                $($name: written
                    .and_then(|export| export.$name.as_ref())
                    .map(|written| $section::check(written, report))
                    .or_else(|| base.$name.clone()),)+
            }
        }
    };
}

// All formats.
sections! {
    /// Push to an OpenTelemetry Collector, or to anything else that takes OTLP. Given at all, it pushes; `{}` is enough. What
    /// it leaves out is taken from the standard variables `OTEL_EXPORTER_OTLP_…`, which also turn it on where this is left
    /// out.
    otlp: Otlp,
    /// Push metrics to Prometheus, or to another receiver of Prometheus remote write (Mimir, Thanos, VictoriaMetrics, ...).
    remote_write: RemoteWrite,
}

words! {
    /// What is pushed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Signal {
        /// What `/metrics` serves.
        Metrics = "metrics",
        /// What `profiles` sample.
        Profiles = "profiles",
        /// The exporter's own log, from level `info` on.
        Logs = "logs",
    }
}

/// Files in PEM format. They are read whenever a connection is made, so new ones are taken without a reload.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Tls", deny_unknown_fields)]
pub(super) struct WrittenTls {
    /// The authorities that may vouch for the receiver, instead of the system's.
    pub(super) ca: Option<At<String>>,
    /// The certificate that this exporter shows; with `key`.
    pub(super) certificate: Option<At<String>>,
    /// Its private key.
    pub(super) key: Option<At<String>>,
}

/// The least and the most memory of a queue.
const QUEUE_MIN: u64 = 1 << 20;
const QUEUE_MAX: u64 = 4 << 30;
/// Memory of a queue unless the file says otherwise.
const QUEUE: Size = Size(32 << 20);
/// How long a receiver may take to answer.
const TIMEOUTS: RangeInclusive<Period> = Period::milliseconds(100)..=Period::seconds(600);
/// How often metrics are pushed unless the file says otherwise, and the bounds of that.
const INTERVAL: Period = Period::seconds(15);
const INTERVALS: RangeInclusive<Period> = Period::seconds(1)..=Period::seconds(3600);

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

/// The URL that is written, if it is one. `hint` says what to write instead, given what usually helps.
pub(super) fn address(
    at: &At<String>,
    hint: impl FnOnce(String) -> String,
    report: &mut Report<'_>,
) -> Option<hyper::Uri> {
    url(at).map_err(|(message, usual)| report.error(at.node, message, hint(usual))).ok()
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

fn tls(written: Option<&WrittenTls>, report: &mut Report<'_>) -> Tls {
    let Some(WrittenTls { ca, certificate, key }) = written else { return Tls::default() };
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| PathBuf::from(&at.value));
    match (certificate, key) {
        (Some(alone), None) => {
            report.error(alone.node, "a certificate needs its key", "give `key` as well");
        }
        (None, Some(alone)) => {
            report.error(alone.node, "a key needs its certificate", "give `certificate` as well");
        }
        _ => {}
    }
    Tls { ca: path(ca), certificate: path(certificate), key: path(key) }
}

fn period(
    written: Option<&At<Period>>,
    bounds: RangeInclusive<Period>,
    usual: Period,
    report: &mut Report<'_>,
) -> Option<Duration> {
    report.bounded(written, bounds, Some(usual)).map(|Period(period)| period)
}

fn queue(written: Option<&At<Size>>, report: &mut Report<'_>) -> u64 {
    report.setting(written, Size(QUEUE_MIN)..=Size(QUEUE_MAX), QUEUE).0
}

/// Bounds of names and texts that are sent along.
struct Bounds {
    /// What they are, in the plural.
    of: &'static str,
    /// How many there may be.
    most: usize,
    /// The longest text, in bytes.
    bytes: usize,
    /// What they are within the bounds.
    are: &'static str,
}

/// Names and texts that are sent along. `judge` reports names that cannot be.
fn pairs(
    written: Option<&At<Texts>>,
    Bounds { of, most, bytes, are }: &Bounds,
    report: &mut Report<'_>,
    judge: impl Fn(&At<String>, &At<String>, &mut Report<'_>),
) -> Vec<(String, String)> {
    let Some(At { node, value: Entries(pairs) }) = written else { return Vec::new() };
    if pairs.len() > *most {
        report.error(*node, format!("{} {of}, and at most {most} are {are}", pairs.len()), None);
    }
    for (name, value) in pairs {
        judge(name, value, report);
        if value.len() > *bytes {
            report.error(value.node, format!("{} bytes, and at most {bytes} are {are}", value.len()), None);
        }
    }
    pairs.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect()
}
