//! Requests for profiles: `/debug/pprof/`, `/folded`, `/flamegraph`, `/top`, `/annotate`.
//!
//! A request awaits its turn ([`Turns`](super::turns::Turns)) and its profile on the server's thread, which needs no CPU time. The profile
//! is encoded on a blocking thread, because an image of many stacks takes longer than a scrape may wait. The turn ends after the encoding.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap};
use tokio::time::timeout;

use super::access::Client;
use super::answer::{Answer, TEXT, values};
use super::baselines;
use super::nonce::nonce;
use super::rendered::{JSON, render};
use super::shared::Shared;
use super::turns::Turn;
use super::{Source, Unavailable, Wanted};
use crate::annotate::{Annotator, NotAnnotated, Target, TextOptions};
use crate::clock::Timestamp;
use crate::export::calls::Calls;
use crate::export::folded::{self, Folded};
use crate::export::page::not_recorded::{NO_KINDS, OFF_CPU, SECTION};
use crate::export::page::profile::{self as page, Page, View};
use crate::export::query::{self, Format, Key, Period, Query};
use crate::export::top::{self, Top};
use crate::export::{flamegraph, negotiate, pprof};
use crate::profile::{Profile, Selection, TimeRange};
use crate::recording;

/// Default duration in seconds of pprof profiles. Scrapers wait this long by default.
const USUAL: u32 = 10;

/// Default number of rows in a table.
const ROWS: usize = 200;

/// Number of rows in the table of changes below a flame graph.
const CHANGES: usize = 50;

/// Output of a profile request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Pprof,
    Folded,
    FlameGraph,
    Top,
    Annotate,
}

impl Output {
    const fn keys(self) -> &'static [Key] {
        match self {
            Self::FlameGraph => query::FLAMEGRAPH,
            Self::Folded => query::FOLDED,
            Self::Top => query::TOP,
            Self::Annotate => query::ANNOTATE,
            Self::Pprof => query::PPROF,
        }
    }

    /// Returns the page, for outputs that browsers display.
    fn page(self, query: &Query) -> Option<Page> {
        match (self, query.format) {
            (Self::FlameGraph, None | Some(Format::Html)) => Some(Page::FlameGraph),
            (Self::Top, None | Some(Format::Html)) => Some(Page::Top),
            (Self::Annotate, None | Some(Format::Html)) => Some(Page::Annotate),
            _ => None,
        }
    }
}

/// Reason why a request has no profile.
pub(super) struct Refused {
    pub(super) code: StatusCode,
    pub(super) sentence: String,
    /// Whether an immediate retry is reasonable.
    again: bool,
    /// Lines of the configuration that help.
    pub(super) remedy: Option<&'static str>,
}

impl Refused {
    pub(super) fn new(code: StatusCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), again: false, remedy: None }
    }

    /// Returns the reason that the configuration has no such entry, with the lines that add it.
    fn not_recorded(sentence: impl Into<String>) -> Self {
        Self { remedy: Some(SECTION), ..Self::new(StatusCode::NOT_FOUND, sentence) }
    }

    /// Returns the response: a page for browsers, or text for programs.
    pub(super) fn answer(self, page: Option<Page>, view: View<'_>) -> Answer {
        let Self { code, sentence, again, remedy } = self;
        let answer = match (page, remedy) {
            (Some(page), _) => {
                Answer { code, ..Answer::page(page::refused(page, view, &sentence, remedy), view.nonce) }
            }
            (None, None) => Answer::text(code, sentence),
            (None, Some(remedy)) => {
                Answer::text(code, format!("{sentence}\n\nAdd this to the configuration:\n\n{remedy}"))
            }
        };
        if again { answer.with(header::RETRY_AFTER, "5") } else { answer }
    }
}

/// Returns the response with the index of the profiles.
pub(super) fn index(kinds: &[Arc<str>]) -> Answer {
    let nonce = nonce();
    Answer::page(page::index(kinds), &nonce)
}

/// Returns the response about a kind of profiles of Go programs that does not exist for a host.
pub(super) fn absent() -> Answer {
    let text = "unknown profile: this profiler samples the host from outside and has no heap, goroutine, block or mutex \
                profiles; see /debug/pprof/ for the list";
    Answer::text(StatusCode::NOT_FOUND, text)
}

pub(super) async fn answer<S: Source>(
    shared: &Shared<S>,
    output: Output,
    client: &Client,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    let (kinds, nonce) = (shared.source.profiles(), nonce());
    let (query, outcome) = match Query::parse(query, output.keys()) {
        Ok(query) => {
            let outcome = wait(shared, output, client, &query, &kinds).await;
            (query, outcome)
        }
        Err(sentence) => (Query::default(), Err(Refused::new(StatusCode::BAD_REQUEST, sentence))),
    };
    let Taken { whole, base, turn } = match outcome {
        Ok(taken) => taken,
        Err(refused) => {
            let view = View { query: &query, kinds: &kinds, nonce: &nonce };
            return refused.answer(output.page(&query), view);
        }
    };
    let annotator = (output == Output::Annotate).then(|| shared.source.annotator(query.syntax));
    let gzip = output != Output::Pprof && negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let permits = if annotator.is_some() { &shared.annotated } else { &shared.encoded };
    render(permits, shared.traffic.cpu(), "the profile", move || {
        let view = View { query: &query, kinds: &kinds, nonce: &nonce };
        let base = base.map(|base| base.profile(&whole)).transpose()?;
        let made = match annotator {
            Some(annotator) => annotate(view, &whole, annotator)?,
            None => make(output, view, &whole, base.as_deref())?,
        };
        let made = made.compressed(gzip);
        drop(turn);
        made
    })
    .await
}

/// Profiles that were taken for a request.
struct Taken {
    whole: Arc<Profile>,
    /// The range or the file to compare with, if one is requested.
    base: Option<Base>,
    /// The turn in which the response is encoded.
    turn: Turn,
}

/// What a profile is compared with.
enum Base {
    Profile(Arc<Profile>),
    /// An uploaded file.
    File(Bytes),
}

impl Base {
    /// Returns the profile. That of a file is aligned with `this`.
    fn profile(self, this: &Profile) -> io::Result<Arc<Profile>> {
        match self {
            Self::Profile(profile) => Ok(profile),
            Self::File(file) => {
                let mut profile = recording::read(&file).map_err(io::Error::other)?;
                recording::align(&mut profile, this);
                Ok(Arc::new(profile))
            }
        }
    }
}

/// Waits for the profiles of a request.
async fn wait<S: Source>(
    shared: &Shared<S>,
    output: Output,
    client: &Client,
    query: &Query,
    kinds: &[Arc<str>],
) -> Result<Taken, Refused> {
    let kind = chosen(shared, query, kinds)?;
    let range = range(shared, &query.period)?;
    let base_range = range_of_base(shared, query)?;
    let file = query.base_file.as_deref().map(|name| {
        shared
            .baselines
            .get(name, &shared.clock)
            .map(Base::File)
            .ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, baselines::missing(name)))
    });
    let file = file.transpose()?;
    let turn = turn(shared, client).await?;
    // Without a range, scrapers of pprof profiles get the next seconds.
    let usual = (output == Output::Pprof && range.is_none()).then_some(USUAL);
    let seconds = query.seconds.or(usual);
    let wanted = Wanted { kind: Arc::clone(&kind), seconds, range, selection: query.needed() };
    if let Some(seconds) = seconds {
        tracing::info!(
            name: "perf_exporter.profile.recording_requested",
            peer = %client,
            profile = %kind,
            seconds,
            "recording of a profile requested by HTTP"
        );
    }
    let limit = shared.limits.collection + Duration::from_secs(seconds.unwrap_or(0).into());
    let whole = taken(shared, limit, wanted).await?;
    let base = match base_range {
        Some(_) => {
            let wanted = Wanted { kind, seconds: None, range: base_range, selection: query.needed_of_base() };
            Some(Base::Profile(taken(shared, shared.limits.collection, wanted).await?))
        }
        None => file,
    };
    Ok(Taken { whole, base, turn })
}

/// Waits for a profile, at most for this time.
async fn taken<S: Source>(
    shared: &Shared<S>,
    limit: Duration,
    wanted: Wanted,
) -> Result<Arc<Profile>, Refused> {
    let (kind, range) = (Arc::clone(&wanted.kind), wanted.range);
    let profile = within(limit, shared.source.profile(wanted)).await?;
    match range {
        Some(range) if profile.start >= range.to => Err(beyond(&kind, range, profile.start)),
        _ => Ok(profile),
    }
}

/// Returns the requested kind of profile.
pub(super) fn chosen<S: Source>(
    shared: &Shared<S>,
    query: &Query,
    kinds: &[Arc<str>],
) -> Result<Arc<str>, Refused> {
    let Some(first) = kinds.first() else {
        // Before the first collection the kinds of profiles are not known.
        let starting = shared.source.ready().err().map(|error| Refused {
            again: true,
            ..Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}"))
        });
        return Err(starting.unwrap_or_else(|| Refused::not_recorded(NO_KINDS)));
    };
    match &query.kind {
        None => Ok(Arc::clone(first)),
        Some(name) => kinds.iter().find(|kind| ***kind == **name).cloned().ok_or_else(|| {
            let available = kinds.join(", ");
            match &**name {
                OFF_CPU => Refused::not_recorded(format!("off_cpu is not recorded; available: {available}")),
                _ => {
                    let sentence = format!("unknown profile type; available: {available}");
                    Refused::new(StatusCode::NOT_FOUND, sentence)
                }
            }
        }),
    }
}

/// Waits for the turn of a request.
pub(super) async fn turn<S: Source>(shared: &Shared<S>, client: &Client) -> Result<Turn, Refused> {
    timeout(shared.limits.collection, shared.turns.next(client.peer)).await.map_err(|_| {
        let sentence =
            format!("no turn within {:?}: too many concurrent profile requests", shared.limits.collection);
        Refused { again: true, ..Refused::new(StatusCode::SERVICE_UNAVAILABLE, sentence) }
    })
}

/// Returns the requested range of the past.
pub(super) fn range<S: Source>(shared: &Shared<S>, period: &Period) -> Result<Option<TimeRange>, Refused> {
    period.range(shared.clock.now()).map_err(|sentence| Refused::new(StatusCode::BAD_REQUEST, sentence))
}

/// Returns the range to compare with.
fn range_of_base<S: Source>(shared: &Shared<S>, query: &Query) -> Result<Option<TimeRange>, Refused> {
    range(shared, &query.base_period)
        .map_err(|refused| Refused { sentence: format!("base_{}", refused.sentence), ..refused })
}

/// Waits for a result, at most for this time.
pub(super) async fn within<T>(
    limit: Duration,
    result: impl Future<Output = Result<T, Unavailable>>,
) -> Result<T, Refused> {
    match timeout(limit, result).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(error)) => Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("no profile: {error}"))),
        Err(_) => {
            let sentence = format!("no profile after {limit:?}; see /status for the state of the exporter");
            Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, sentence))
        }
    }
}

/// Returns the refusal of a range that is older than all samples.
fn beyond(kind: &str, range: TimeRange, begin: Timestamp) -> Refused {
    let sentence = format!(
        "no {kind} samples from {} to {}: the oldest samples in memory are from {begin}; set limits.memory higher to keep more, at most \
         for an hour",
        range.from, range.to
    );
    Refused::new(StatusCode::NOT_FOUND, sentence)
}

/// Returns the part of a profile that a selection selects.
fn part<'p>(whole: &'p Profile, selection: &Selection) -> Cow<'p, Profile> {
    if selection.is_everything() { Cow::Borrowed(whole) } else { Cow::Owned(whole.select(selection)) }
}

/// Encodes the selected part of `whole`, compared with the base: a part of `base_whole`, or of `whole` if there is none.
fn make(output: Output, view: View<'_>, whole: &Profile, base_whole: Option<&Profile>) -> io::Result<Answer> {
    let query = view.query;
    let profile = part(whole, &query.selection);
    let profile = &*profile;
    let part_of_base = query.part_of_base();
    let base = match base_whole {
        Some(other) => Some(part(other, &part_of_base)),
        None => query.base().map(|_| part(whole, &part_of_base)),
    };
    let base = base.as_deref();
    let empty = profile.total() == 0;
    let nothing = flamegraph::nothing(profile, if empty { whole.taken() } else { 0 });
    match output {
        Output::Pprof => {
            let file = format!("attachment; filename=\"{}\"", file_name(profile));
            let answer = Answer::rendered(pprof::CONTENT_TYPE, pprof::encode(profile)?);
            Ok(answer.with_made(header::CONTENT_DISPOSITION, &file))
        }
        Output::Folded => {
            let options =
                folded::Options { root: query.root, annotated: query.base_file.is_none() && !query.plain };
            let folded = Folded::of(profile, base, options);
            Ok(Answer::rendered(TEXT, folded.text(!query.absolute)))
        }
        Output::FlameGraph => Ok(picture(view, profile, base, nothing)),
        Output::Top | Output::Annotate => match &query.focus {
            Some(function) => calls(view, profile, base, function, &nothing),
            None => table(view, profile, base, &nothing),
        },
    }
}

/// Draws a flame graph. `nothing` is the reason if there are no samples.
fn picture(view: View<'_>, profile: &Profile, base: Option<&Profile>, nothing: String) -> Answer {
    let query = view.query;
    let options = flamegraph::Options {
        shape: query.shape,
        root: query.root,
        title: None,
        view: query.view(),
        base,
        absolute: query.absolute,
        plain: query.base_file.is_some(),
        search: query.search.as_deref(),
    };
    if query.format == Some(Format::Svg) {
        let svg = flamegraph::standalone(profile, options, &nothing);
        return Answer::picture(svg);
    }
    let picture = flamegraph::embedded(profile, options, view.nonce);
    let absent = flamegraph::absent(options.view).filter(|_| profile.total() > 0);
    let sentence = absent.unwrap_or(nothing);
    let changes = base.map(|_| Top::with(profile, table_options(query, base, CHANGES)));
    let shown = picture.as_ref().ok_or(&*sentence);
    Answer::page(page::flamegraph(view, profile, shown, changes.as_ref()), view.nonce)
}

/// Makes a table. `nothing` is the reason if there are no samples.
fn table(view: View<'_>, profile: &Profile, base: Option<&Profile>, nothing: &str) -> io::Result<Answer> {
    let limit = view.query.limit.unwrap_or(ROWS);
    let top = Top::with(profile, table_options(view.query, base, limit));
    Ok(match view.query.format {
        Some(Format::Text) => Answer::rendered(TEXT, top.text(profile, nothing, "`limit=`")),
        Some(Format::Json) => Answer::rendered(JSON, serde_json::to_vec_pretty(&top)?),
        _ => {
            let shown = if top.rows.is_empty() { Err(nothing) } else { Ok(&top) };
            Answer::page(page::top(view, profile, shown), view.nonce)
        }
    })
}

/// Makes the table of the callers and callees of a function.
fn calls(
    view: View<'_>,
    profile: &Profile,
    base: Option<&Profile>,
    function: &str,
    nothing: &str,
) -> io::Result<Answer> {
    let folded = Folded::of(
        profile,
        base,
        folded::Options { annotated: view.query.base_file.is_none(), ..folded::Options::default() },
    );
    let calls = Calls::new(&folded, function, !view.query.absolute);
    let absent = flamegraph::absent(view.query.view()).filter(|_| profile.total() > 0);
    let nothing = absent.as_deref().unwrap_or(nothing);
    Ok(match (view.query.format, calls) {
        (Some(Format::Text), Some(calls)) => Answer::rendered(TEXT, calls.text(profile)),
        (Some(Format::Text), None) => Answer::rendered(TEXT, format!("# {nothing}\n")),
        (Some(Format::Json), calls) => Answer::rendered(JSON, serde_json::to_vec_pretty(&calls)?),
        (_, calls) => Answer::page(page::calls(view, profile, calls.as_ref().ok_or(nothing)), view.nonce),
    })
}

/// Annotates a function. Its files are opened and read on this thread.
fn annotate(view: View<'_>, whole: &Profile, mut annotator: Annotator) -> io::Result<Answer> {
    let query = view.query;
    let profile = part(whole, &query.selection);
    let target = Target { symbol: query.symbol.clone(), module: query.module.clone() };
    Ok(match (query.format, annotator.annotate(&profile, &target)) {
        (None | Some(Format::Html), Err(nothing @ NotAnnotated::NoSamples)) => {
            Answer::page(page::annotate(view, &profile, Err(&nothing.to_string())), view.nonce)
        }
        (_, Err(reason)) => {
            let refused = Refused::new(StatusCode::NOT_FOUND, reason.to_string());
            refused.answer(Output::Annotate.page(query), view)
        }
        (Some(Format::Text), Ok(annotated)) => {
            let notes: String = annotated.notes.iter().map(|note| format!("# {note}\n")).collect();
            Answer::rendered(TEXT, format!("{notes}{}", annotated.text(TextOptions::default())))
        }
        (Some(Format::Json), Ok(annotated)) => Answer::rendered(JSON, serde_json::to_vec_pretty(&annotated)?),
        (_, Ok(annotated)) => Answer::page(page::annotate(view, &profile, Ok(&annotated)), view.nonce),
    })
}

fn table_options<'p>(query: &Query, base: Option<&'p Profile>, limit: usize) -> top::Options<'p> {
    top::Options { by: query.grouping, base, normalized: !query.absolute, limit }
}

/// Returns the file name of a profile: `perf-cpu-20251121T085206Z.pb.gz`.
fn file_name(profile: &Profile) -> String {
    let safe = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let kind: String = profile.kind.name.chars().filter(safe).take(40).collect();
    let time: String = profile.start.to_string().chars().filter(safe).filter(|c| *c != '-').collect();
    format!("perf-{kind}-{time}.pb.gz")
}

#[cfg(test)]
pub(super) mod tests;
