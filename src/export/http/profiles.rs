//! Requests for profiles: `/debug/pprof/`, `/folded`, `/flamegraph`, `/top`.
//!
//! A request awaits its turn ([`Turns`](super::turns::Turns)) and its profile on the server's thread, which needs no CPU time. The profile
//! is encoded on a blocking thread, because an image of many stacks takes longer than a scrape may wait. The turn ends after the encoding.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use tokio::time::timeout;

use super::access::Client;
use super::answer::{Answer, TEXT, values};
use super::body::Content;
use super::shared::{Shared, run_blocking};
use super::turns::Turn;
use super::{Source, Wanted};
use crate::export::folded::{self, Folded};
use crate::export::gzip::gzip;
use crate::export::page::profile::{self as page, NO_KINDS, Page, View};
use crate::export::query::{self, Format, Key, Query};
use crate::export::top::Top;
use crate::export::{flamegraph, negotiate, pprof};
use crate::profile::Profile;

/// Default duration in seconds of pprof profiles. Scrapers wait this long by default.
const USUAL: u32 = 10;

/// Default number of functions in a table.
const FUNCTIONS: usize = 200;

/// Minimum size of a response that is compressed, in bytes.
const WORTH_COMPRESSING: usize = 1 << 10;

const HTML: &str = "text/html; charset=utf-8";

/// Policy of standalone images: allows inline scripts and forbids loading resources.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                              base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Output of a profile request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// The index of the profiles.
    Index,
    Pprof,
    /// A profile kind of Go programs that does not exist for a host.
    Absent,
    Folded,
    FlameGraph,
    Top,
}

impl Output {
    const fn keys(self) -> &'static [Key] {
        match self {
            Self::FlameGraph => query::FLAMEGRAPH,
            Self::Folded => query::FOLDED,
            Self::Top => query::TOP,
            Self::Index | Self::Pprof | Self::Absent => query::PPROF,
        }
    }

    /// Returns the page, for outputs that browsers display.
    fn page(self, query: &Query) -> Option<Page> {
        match (self, query.format) {
            (Self::FlameGraph, None | Some(Format::Html)) => Some(Page::FlameGraph),
            (Self::Top, None | Some(Format::Html)) => Some(Page::Top),
            _ => None,
        }
    }
}

/// Reason why a request has no profile.
struct Refused {
    code: StatusCode,
    sentence: String,
    /// Whether an immediate retry is reasonable.
    again: bool,
}

impl Refused {
    fn new(code: StatusCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), again: false }
    }
}

pub(super) async fn answer<S: Source>(
    shared: &Shared<S>,
    output: Output,
    client: &Client,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    let kinds = shared.source.profiles();
    let nonce = nonce();
    match output {
        Output::Index => return html(StatusCode::OK, page::index(&kinds), &nonce),
        Output::Absent => {
            let text = "unknown profile: this profiler samples the host from outside and has no heap, goroutine, block or mutex \
                        profiles; see /debug/pprof/ for the list";
            return Answer::text(StatusCode::NOT_FOUND, text.to_owned());
        }
        Output::Pprof | Output::Folded | Output::FlameGraph | Output::Top => {}
    }
    let (query, outcome) = match Query::parse(query, output.keys()) {
        Ok(query) => {
            let outcome = wait(shared, output, client, &query, &kinds).await;
            (query, outcome)
        }
        Err(sentence) => (Query::default(), Err(Refused::new(StatusCode::BAD_REQUEST, sentence))),
    };
    let (profile, turn) = match outcome {
        Ok(outcome) => outcome,
        Err(refused) => return refuse(&refused, output, &query, &kinds, &nonce),
    };
    let gzip = output != Output::Pprof && negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let encoded = run_blocking(&shared.encoded, shared.traffic.cpu(), move || {
        let view = View { query: &query, kinds: &kinds, nonce: &nonce };
        let made =
            make(output, view, &profile).and_then(|made| if gzip { made.compressed() } else { Ok(made) });
        drop(turn);
        (made, nonce)
    });
    match encoded.await {
        Ok((Ok(made), nonce)) => made.answer(StatusCode::OK, &nonce),
        Ok((Err(error), _)) => failed(&error),
        Err(error) => failed(&error),
    }
}

/// Waits for a profile. Returns it with the turn in which it is encoded.
async fn wait<S: Source>(
    shared: &Shared<S>,
    output: Output,
    client: &Client,
    query: &Query,
    kinds: &[Arc<str>],
) -> Result<(Arc<Profile>, Turn), Refused> {
    let Some(first) = kinds.first() else {
        // Before the first collection the kinds of profiles are not known.
        let starting = shared.source.ready().err().map(|error| Refused {
            again: true,
            ..Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}"))
        });
        return Err(starting.unwrap_or_else(|| Refused::new(StatusCode::NOT_FOUND, NO_KINDS)));
    };
    let kind = match &query.kind {
        None => first,
        Some(name) => kinds.iter().find(|kind| ***kind == **name).ok_or_else(|| {
            let sentence = format!("unknown profile type; available: {}", kinds.join(", "));
            Refused::new(StatusCode::NOT_FOUND, sentence)
        })?,
    };
    let turn = timeout(shared.limits.collection, shared.turns.next(client.peer)).await.map_err(|_| {
        let sentence =
            format!("no turn within {:?}: too many concurrent profile requests", shared.limits.collection);
        Refused { again: true, ..Refused::new(StatusCode::SERVICE_UNAVAILABLE, sentence) }
    })?;
    let seconds = query.seconds.or((output == Output::Pprof).then_some(USUAL));
    let wanted = Wanted { kind: Arc::clone(kind), seconds, selection: query.selection.clone() };
    if let Some(seconds) = seconds {
        tracing::info!(peer = %client, profile = %kind, seconds, "recording of a profile requested by HTTP");
    }
    let limit = shared.limits.collection + Duration::from_secs(seconds.unwrap_or(0).into());
    match timeout(limit, shared.source.profile(wanted)).await {
        Ok(Ok(profile)) => Ok((profile, turn)),
        Ok(Err(error)) => Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("no profile: {error}"))),
        Err(_) => {
            let sentence = format!("no profile after {limit:?}; see /status for the state of the exporter");
            Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, sentence))
        }
    }
}

fn refuse(refused: &Refused, output: Output, query: &Query, kinds: &[Arc<str>], nonce: &str) -> Answer {
    let answer = match output.page(query) {
        Some(page) => {
            let text = page::refused(page, View { query, kinds, nonce }, &refused.sentence);
            html(refused.code, text, nonce)
        }
        None => Answer::text(refused.code, refused.sentence.clone()),
    };
    if refused.again { answer.with(header::RETRY_AFTER, "5") } else { answer }
}

fn failed(error: &dyn std::error::Error) -> Answer {
    tracing::error!(%error, "encoding a profile failed");
    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("encoding the profile failed: {error}"))
}

fn html(code: StatusCode, text: String, nonce: &str) -> Answer {
    EncodedProfile::new(HTML, text).answer(code, nonce)
}

/// An encoded profile.
struct EncodedProfile {
    content_type: &'static str,
    bytes: Vec<u8>,
    compressed: bool,
    /// File name for downloads.
    file: Option<String>,
}

impl EncodedProfile {
    fn new(content_type: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { content_type, bytes: bytes.into(), compressed: false, file: None }
    }

    fn compressed(self) -> io::Result<Self> {
        if self.bytes.len() < WORTH_COMPRESSING {
            return Ok(self);
        }
        Ok(Self { bytes: gzip(&self.bytes)?, compressed: true, ..self })
    }

    fn answer(self, code: StatusCode, nonce: &str) -> Answer {
        let mut answer = Answer::new(code, self.content_type, Content::Whole(self.bytes.into()));
        match self.content_type {
            HTML => {
                let policy = format!(
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; img-src data:; \
                     base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
                );
                answer = answer.with_made(header::CONTENT_SECURITY_POLICY, &policy);
            }
            flamegraph::CONTENT_TYPE => {
                answer = answer.with(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY);
            }
            _ => {}
        }
        if let Some(file) = self.file {
            let value = format!("attachment; filename=\"{file}\"");
            answer = answer.with_made(header::CONTENT_DISPOSITION, &value);
        }
        if self.compressed {
            answer = answer.with(header::CONTENT_ENCODING, "gzip");
        }
        answer.with(header::VARY, "Accept-Encoding")
    }
}

/// Encodes the selected part of `whole`.
fn make(output: Output, view: View<'_>, whole: &Profile) -> io::Result<EncodedProfile> {
    let Query { selection, root, plain, shape, format, limit, .. } = view.query;
    let selected;
    let profile = if selection.is_everything() {
        whole
    } else {
        selected = whole.select(selection);
        &selected
    };
    let empty = profile.total() == 0;
    let nothing = || flamegraph::nothing(profile, if empty { whole.taken() } else { 0 });
    match output {
        Output::Index | Output::Absent | Output::Pprof => Ok(EncodedProfile {
            file: Some(file_name(profile)),
            ..EncodedProfile::new(pprof::CONTENT_TYPE, pprof::encode(profile)?)
        }),
        Output::Folded => {
            let options = folded::Options { root: *root, annotated: !plain };
            Ok(EncodedProfile::new(TEXT, Folded::new(profile, options).text()))
        }
        Output::FlameGraph => {
            let options = flamegraph::Options { shape: *shape, root: *root, title: None };
            if *format == Some(Format::Svg) {
                let svg = flamegraph::standalone(profile, options, &nothing())?;
                return Ok(EncodedProfile::new(flamegraph::CONTENT_TYPE, svg));
            }
            let picture = flamegraph::embedded(profile, options, view.nonce)?;
            let sentence = nothing();
            Ok(EncodedProfile::new(HTML, page::flamegraph(view, profile, picture.as_ref().ok_or(&sentence))))
        }
        Output::Top => {
            let top = Top::new(profile, limit.unwrap_or(FUNCTIONS));
            match format {
                Some(Format::Text) => {
                    Ok(EncodedProfile::new(TEXT, top.text(profile, &nothing(), "`limit=`")))
                }
                Some(Format::Json) => {
                    Ok(EncodedProfile::new("application/json", serde_json::to_vec_pretty(&top)?))
                }
                _ => {
                    let sentence = nothing();
                    let shown = if empty { Err(sentence.as_str()) } else { Ok(&top) };
                    Ok(EncodedProfile::new(HTML, page::top(view, profile, shown)))
                }
            }
        }
    }
}

/// Returns the file name of a profile: `perf-cpu-20251121T085206Z.pb.gz`.
fn file_name(profile: &Profile) -> String {
    let safe = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let kind: String = profile.kind.name.chars().filter(safe).take(40).collect();
    let time: String = profile.start.to_string().chars().filter(safe).filter(|c| *c != '-').collect();
    format!("perf-{kind}-{time}.pb.gz")
}

/// Returns a nonce that is unpredictable for the author of untrusted names. It is derived from the keys of the standard library's hash
/// tables, which come from the kernel's random number generator.
fn nonce() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

#[cfg(test)]
pub(super) mod tests;
