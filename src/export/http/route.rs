//! Routing of requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use opentelemetry::trace::SpanKind;

use super::access::{Asked, Client};
use super::admission::{Class, ConnectionEntry, Refused};
use super::answer::{Answer, TEXT, values};
use super::body::{Account, Body, Content, Work, Writer};
use super::deep;
use super::guard::Exposure;
use super::heatmap::{self, Form};
use super::incidents::{self, LIST, ONE};
use super::past::{self, Past};
use super::profiles::{self, Output};
use super::rendered::{HTML, JSON, render};
use super::shared::Shared;
use super::{Collected, Source, uploads};
use crate::budget::Share;
use crate::export::{negotiate, page, published};
use crate::history::Scope;
use crate::span::Span;

/// Minimum time that a scrape waits for a new collection before it gets the latest one. On an overloaded machine a collection takes
/// seconds; scrapes must be answered within 200 ms even then.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Header in which Prometheus sends its timeout in seconds.
const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";

/// Fraction of the announced timeout that a scrape waits, so that most of it remains for the response.
const PART_OF_TIMEOUT: f64 = 1.0 / 20.0;

/// Policy that allows only the contents of the page. It also restricts markup that might bypass the escaping.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";

/// Kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Metrics,
    Past(Past),
    Page,
    Status,
    Healthy,
    Ready,
    Reload,
    /// The index of the profiles.
    Profiles,
    Profile(Output),
    /// A kind of profile of Go programs that does not exist for a host.
    AbsentProfile,
    HeatMap(Form),
    /// The list of incidents, and everything about one.
    Incidents,
    IncidentList,
    Trigger,
    /// The sets of events that are counted for a limited time; the begin and the end of one.
    DeepList,
    DeepBegin,
    DeepEnd,
    Baseline,
    Unknown,
}

/// Each path as a label, its route, and the class of its requests.
const ROUTES: [(&str, Route, Class); 24] = [
    ("/metrics", Route::Metrics, Class::Scrape),
    ("/", Route::Past(Past::Overview), Class::Page),
    ("/cgroup", Route::Past(Past::Subject(Scope::Cgroup)), Class::Page),
    ("/program", Route::Past(Past::Subject(Scope::Program)), Class::Page),
    ("/api/v1/history", Route::Past(Past::History), Class::Page),
    ("/status", Route::Page, Class::Page),
    ("/api/v1/status", Route::Status, Class::Page),
    ("/-/healthy", Route::Healthy, Class::Brief),
    ("/-/ready", Route::Ready, Class::Brief),
    ("/-/reload", Route::Reload, Class::Page),
    ("/debug/pprof/", Route::Profiles, Class::Brief),
    ("/debug/pprof/profile", Route::Profile(Output::Pprof), Class::Profile),
    ("/folded", Route::Profile(Output::Folded), Class::Profile),
    ("/flamegraph", Route::Profile(Output::FlameGraph), Class::Profile),
    ("/top", Route::Profile(Output::Top), Class::Profile),
    ("/annotate", Route::Profile(Output::Annotate), Class::Profile),
    ("/api/v1/heatmap", Route::HeatMap(Form::Json), Class::Profile),
    ("/heatmap", Route::HeatMap(Form::Page), Class::Profile),
    (LIST, Route::Incidents, Class::Page),
    (ONE, Route::Incidents, Class::Page),
    ("/api/v1/incidents", Route::IncidentList, Class::Page),
    (deep::LIST, Route::DeepList, Class::Page),
    (deep::ONE, Route::DeepEnd, Class::Page),
    ("/api/v1/baselines", Route::Baseline, Class::Profile),
];

impl Route {
    /// Returns the entry of a path. The set of labels is bounded for any request.
    fn of(path: &str, method: &Method) -> (&'static str, Self, Class) {
        let path = match path {
            "/debug/pprof" => "/debug/pprof/",
            path if path.starts_with(ONE) => ONE,
            path if path.starts_with(deep::ONE) => deep::ONE,
            path => path,
        };
        if path == "/api/v1/incidents" && method == Method::POST {
            return ("/api/v1/incidents", Self::Trigger, Class::Page);
        }
        if path == deep::LIST && method == Method::POST {
            return (deep::LIST, Self::DeepBegin, Class::Page);
        }
        ROUTES.into_iter().find(|route| route.0 == path).unwrap_or_else(|| {
            match path.starts_with("/debug/pprof/") {
                true => ("/debug/pprof/", Self::AbsentProfile, Class::Brief),
                false => ("other", Self::Unknown, Class::Brief),
            }
        })
    }

    /// Returns the exposure of the resource, which decides the checks of a request.
    const fn exposure(self) -> Exposure {
        match self {
            Self::Healthy | Self::Ready | Self::Unknown => Exposure::Health,
            Self::Metrics => Exposure::Scraper,
            Self::Baseline => Exposure::Upload,
            Self::Reload | Self::Trigger | Self::DeepBegin | Self::DeepEnd => Exposure::Change,
            Self::Past(_)
            | Self::Page
            | Self::Status
            | Self::Profiles
            | Self::Profile(_)
            | Self::AbsentProfile
            | Self::HeatMap(_)
            | Self::Incidents
            | Self::IncidentList
            | Self::DeepList => Exposure::Person,
        }
    }

    /// Returns the verb of the request in rules of Kubernetes.
    const fn verb(self) -> &'static str {
        match self {
            Self::Baseline | Self::Reload | Self::Trigger | Self::DeepBegin => "post",
            Self::DeepEnd => "delete",
            _ => "get",
        }
    }

    /// Returns the allowed methods if the method is not allowed.
    fn wrong_method(self, method: &Method) -> Option<&'static str> {
        self.methods().filter(|methods| !methods.split(", ").any(|known| known == method.as_str()))
    }

    /// Returns the allowed methods; `None` accepts any method, because the resource does not exist.
    const fn methods(self) -> Option<&'static str> {
        match self {
            Self::Baseline => Some("POST"),
            Self::IncidentList | Self::Trigger | Self::DeepList | Self::DeepBegin => Some("GET, HEAD, POST"),
            Self::DeepEnd => Some("DELETE"),
            Self::Reload => Some("POST, PUT"),
            Self::Unknown => None,
            _ => Some("GET, HEAD"),
        }
    }
}

/// Headers of every response. Other sites can neither show it in a frame nor load it.
const ALWAYS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Answers one request. A request body is not read, except that of an upload, a trigger or a set of events. For HEAD, hyper sends only the headers and does not poll the body.
pub(super) async fn answer<S: Source, B: hyper::body::Body<Error: Into<Box<dyn Error + Send + Sync>>>>(
    shared: Arc<Shared<S>>,
    held: &Arc<ConnectionEntry>,
    client: &Client,
    request: Request<B>,
) -> Response<Body> {
    let (request, body) = request.into_parts();
    let began = shared.clock.monotonic();
    let (label, route, class) = Route::of(request.uri.path(), &request.method);
    let span = if matches!(route, Route::Metrics) {
        scrape_span(&shared, client, &request)
    } else {
        Span::default()
    };
    let wrong = route.wrong_method(&request.method);
    let rules = shared.source.rules();
    let (query, headers) = (request.uri.query().unwrap_or_default(), &request.headers);
    let asked =
        Asked { exposure: route.exposure(), path: label, verb: route.verb(), uri: &request.uri, headers };
    let checked = rules.check(asked, client, &shared.clock, shared.traffic.cpu()).await;
    let is_brief = wrong.is_some() || checked.is_err();
    let (place, refused) = held.admit(if is_brief { Class::Brief } else { class });
    let Answer { code, headers: own, content } = match (checked, wrong, refused) {
        (Err(answer), ..) => answer,
        (_, Some(methods), _) => {
            let text = format!("{label} accepts {}", methods.replace(", ", " and "));
            Answer::text(StatusCode::METHOD_NOT_ALLOWED, text).with(header::ALLOW, methods)
        }
        (_, None, Some(refused)) => refuse(label, refused),
        (_, None, None) if class == Class::Profile && shared.memory.is_full() => full(label, &shared.memory),
        (Ok(user), None, None) => match route {
            Route::Metrics => metrics(&shared, query, headers).await,
            Route::Past(page) => past::answer(&shared, page, query, headers).await,
            Route::Page => status_page(&shared).await,
            Route::Status => status(&shared).await,
            Route::Healthy => Answer::text(StatusCode::OK, "perf-exporter is healthy"),
            Route::Ready => match shared.source.ready() {
                Ok(()) => Answer::text(StatusCode::OK, "perf-exporter is ready"),
                Err(error) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}")),
            },
            Route::Reload => reload(&shared.source, client, user.as_deref()).await,
            Route::Profiles => profiles::index(&shared.source.profiles()),
            Route::Profile(output) => profiles::answer(&shared, output, client, query, headers).await,
            Route::AbsentProfile => profiles::absent(),
            Route::HeatMap(form) => heatmap::answer(&shared, form, client, query, headers).await,
            Route::Incidents => incidents::pages(&shared, request.uri.path(), headers).await,
            Route::IncidentList => incidents::list(&shared).await,
            Route::Trigger => incidents::trigger(&shared, client, user.as_deref(), body).await,
            Route::DeepList => deep::list(&shared).await,
            Route::DeepBegin => deep::begin(&shared, client, user.as_deref(), body).await,
            Route::DeepEnd => deep::end(&shared, client, user.as_deref(), request.uri.path()).await,
            Route::Baseline => uploads::upload(&shared, client, user.as_deref(), body).await,
            Route::Unknown => not_found(),
        },
    };
    let account = Account {
        traffic: shared.traffic.clone(),
        clock: shared.clock.clone(),
        path: label,
        code: code.as_u16(),
        began,
        bytes: 0,
        span,
        _place: place,
    };
    // What follows a body is not read as a request: a proxy may see its end elsewhere (request smuggling).
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || values(headers, header::CONTENT_LENGTH).any(|length| length != "0");
    let mut response = Response::new(Body::new(content, account, &shared.memory, shared.limits.answer));
    *response.status_mut() = code;
    let always = ALWAYS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    for (name, value) in own.into_iter().chain(always).chain(rules.headers.iter().cloned()) {
        response.headers_mut().insert(name, value);
    }
    if has_body {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Begins the span of a scrape.
fn scrape_span<S: Source>(shared: &Shared<S>, client: &Client, request: &Parts) -> Span {
    let mut span = shared.spans.begin("scrape", SpanKind::Server);
    if span.is_exported() {
        // Any other method is an input of the client.
        let known = [Method::GET, Method::HEAD].contains(&request.method);
        span.set(
            "http.request.method",
            if known { request.method.as_str().to_owned() } else { "_OTHER".into() },
        );
        span.set("url.path", "/metrics");
        span.set("url.scheme", if client.requirements.is_some() { "https" } else { "http" });
    }
    span
}

/// Returns the response to a request without a slot.
fn refuse(label: &str, refused: Refused) -> Answer {
    let (code, text) = match refused {
        Refused::Peer(share) => {
            let text =
                format!("no {label} now: {share} such requests of your address are already in progress");
            (StatusCode::TOO_MANY_REQUESTS, text)
        }
        Refused::All(limit) => {
            let text = format!(
                "no {label} now: {limit} such requests are already in progress; set limits.connections higher"
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    };
    Answer::text(code, text).with(header::RETRY_AFTER, "5")
}

/// Returns the response to a profile request while queued responses exceed their share of the memory.
fn full(label: &str, memory: &Share) -> Answer {
    let used = memory.used() >> 10;
    let text = format!(
        "no {label} now: {used} KiB of queued responses fill their share of limits.memory; set limits.memory higher"
    );
    Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).with(header::RETRY_AFTER, "5")
}

async fn metrics<S: Source>(shared: &Shared<S>, query: &str, headers: &HeaderMap) -> Answer {
    let format = match metrics_format(query, headers) {
        Ok(format) => format,
        Err(text) => return Answer::text(StatusCode::BAD_REQUEST, text),
    };
    let limit = shared.limits.collection;
    let collected = shared.source.snapshot(max_wait(headers).min(limit));
    let Collected { snapshot, metrics, age } = match tokio::time::timeout(limit, collected).await {
        Ok(Ok(collected)) => collected,
        Ok(Err(error)) => {
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("no metrics: {error}"));
        }
        Err(_) => {
            let text = format!(
                "no metrics: the first collection takes longer than {limit:?}; see /status for the state of the exporter"
            );
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    };
    let gzip = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let of_answer = published(&metrics, &Arc::new(shared.traffic.of_answer(age)));
    let content =
        Content::Encoded(Work::new(Writer::new(of_answer, snapshot, format, gzip), shared.traffic.cpu()));
    let answer = Answer::new(StatusCode::OK, format.content_type(), content);
    let answer = answer.with(header::VARY, "Accept, Accept-Encoding");
    if gzip { answer.with(header::CONTENT_ENCODING, "gzip") } else { answer }
}

/// Returns the format that the headers prefer, with created timestamps if the query requests them. Other query keys are ignored, because
/// scrapers add keys of their own.
fn metrics_format(query: &str, headers: &HeaderMap) -> Result<negotiate::Format, String> {
    let format = negotiate::format(values(headers, header::ACCEPT));
    let created = query.split('&').find_map(|pair| pair.strip_prefix("created="));
    match (created, format) {
        (None | Some("" | "false"), _) => Ok(format),
        (Some("true"), negotiate::Format::Text(text)) => Ok(negotiate::Format::Text(text.with_created())),
        (Some("true"), negotiate::Format::Protobuf) => Ok(format),
        (Some(_), _) => Err("no metrics: the parameter created must be true or false".to_owned()),
    }
}

/// Returns how long a scrape waits for a new collection.
fn max_wait(headers: &HeaderMap) -> Duration {
    let announced = values(headers, SCRAPE_TIMEOUT).next().and_then(|value| value.parse::<f64>().ok());
    let part = announced.and_then(|seconds| Duration::try_from_secs_f64(seconds * PART_OF_TIMEOUT).ok());
    part.map_or(MIN_WAIT, |part| part.max(MIN_WAIT))
}

async fn status_page<S: Source>(shared: &Arc<Shared<S>>) -> Answer {
    let own = Arc::clone(shared);
    let make = move || {
        let html = page::render(&own.source.status());
        let answer = Answer::new(StatusCode::OK, HTML, Content::Whole(html.into()));
        Ok(answer.with(header::CONTENT_SECURITY_POLICY, PAGE_POLICY))
    };
    render(&shared.pages, shared.traffic.cpu(), "the status", make).await
}

async fn status<S: Source>(shared: &Arc<Shared<S>>) -> Answer {
    let own = Arc::clone(shared);
    let make = move || {
        let json = serde_json::to_vec_pretty(&*own.source.status())?;
        Ok(Answer::new(StatusCode::OK, JSON, Content::Whole(json.into())))
    };
    render(&shared.pages, shared.traffic.cpu(), "the status", make).await
}

async fn reload(source: &impl Source, client: &Client, user: Option<&str>) -> Answer {
    tracing::info!(
        name: "perf_exporter.config.reload_requested",
        peer = %client,
        user,
        "reload of the configuration requested by HTTP"
    );
    match source.reload().await {
        Ok(text) => Answer::text(StatusCode::OK, text),
        Err(problems) => {
            let text = format!("reload failed, the previous configuration stays in force:\n{problems}");
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

fn not_found() -> Answer {
    const TEXT_404: &[u8] =
        b"not found; available paths: /, /metrics, /status, /api/v1/status, /api/v1/history, /api/v1/heatmap, /cgroup, /program, /flamegraph, /heatmap, /incidents, /api/v1/incidents, /api/v1/deep, \
                              /top, /folded, /debug/pprof/profile, /-/healthy, /-/ready, POST /api/v1/baselines and POST /-/reload\n";
    Answer::new(StatusCode::NOT_FOUND, TEXT, Content::Whole(Bytes::from_static(TEXT_404)))
}
