//! Which request gets which answer.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{self, AsHeaderName, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::sync::Semaphore;

use super::body::{Account, Body, Content, Encoder, Gzip};
use super::profiles::{self, Output};
use super::{Limits, Source, Traffic};
use crate::clock::Clock;
use crate::export::{negotiate, page};

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Shared<S> {
    pub(super) source: S,
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// One for each profile that may be asked for at a time.
    pub(super) profiles: Arc<Semaphore>,
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Allows what the page consists of and nothing else, not even to what might get through its escaping.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Metrics,
    Page,
    Status,
    Healthy,
    Ready,
    Reload,
    Profile(Output),
    Unknown,
}

impl Route {
    fn of(path: &str) -> Self {
        match path {
            "/metrics" => Self::Metrics,
            "/" | "/status" => Self::Page,
            "/api/v1/status" => Self::Status,
            "/-/healthy" => Self::Healthy,
            "/-/ready" => Self::Ready,
            "/-/reload" => Self::Reload,
            _ => Output::of(path).map_or(Self::Unknown, Self::Profile),
        }
    }

    /// The path as a label: bounded, whatever clients ask for.
    const fn label(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Page => "/status",
            Self::Status => "/api/v1/status",
            Self::Healthy => "/-/healthy",
            Self::Ready => "/-/ready",
            Self::Reload => "/-/reload",
            Self::Profile(output) => output.label(),
            Self::Unknown => "other",
        }
    }

    /// The methods that it takes; `None` = whatever is asked, for there is nothing there.
    const fn methods(self) -> Option<&'static str> {
        match self {
            Self::Reload => Some("POST, PUT"),
            Self::Unknown => None,
            _ => Some("GET, HEAD"),
        }
    }
}

/// An answer without its account.
pub(super) struct Answer {
    code: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    content: Content,
}

impl Answer {
    pub(super) fn new(code: StatusCode, content_type: &'static str, content: Content) -> Self {
        Self { code, headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], content }
    }

    /// Text for people, ended by a newline as terminals like it.
    pub(super) fn text(code: StatusCode, mut text: String) -> Self {
        text.push('\n');
        Self::new(code, TEXT, Content::Whole(text.into()))
    }

    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// The same for a value that was made; one that is no value of a header is left out.
    pub(super) fn with_made(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}

/// Answers one request. Its body, if it has one, is not read; of the answer to a HEAD hyper sends the headers, and the
/// body is never asked for a piece.
pub(super) async fn answer<S: Source, B>(shared: Arc<Shared<S>>, request: Request<B>) -> Response<Body> {
    let began = shared.clock.monotonic();
    let route = Route::of(request.uri().path());
    let Answer { code, headers, content } = match route.methods() {
        Some(methods) if !methods.split(", ").any(|method| method == request.method().as_str()) => {
            let text = format!("{} takes {}", route.label(), methods.replace(", ", " and "));
            Answer::text(StatusCode::METHOD_NOT_ALLOWED, text).with(header::ALLOW, methods)
        }
        _ => match route {
            Route::Metrics => metrics(&shared, request.headers()).await,
            Route::Page => {
                let html = page::render(&shared.source.status());
                Answer::new(StatusCode::OK, "text/html; charset=utf-8", Content::Whole(html.into()))
                    .with(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)
                    .with(header::REFERRER_POLICY, "no-referrer")
            }
            Route::Status => status(&shared.source),
            Route::Healthy => Answer::text(StatusCode::OK, "perf-exporter is healthy".to_owned()),
            Route::Ready => match shared.source.ready() {
                Ok(()) => Answer::text(StatusCode::OK, "perf-exporter is ready".to_owned()),
                Err(error) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}")),
            },
            Route::Reload => reload(&shared.source, request.headers()).await,
            Route::Profile(output) => {
                let query = request.uri().query().unwrap_or_default();
                profiles::answer(&shared, output, query, request.headers()).await
            }
            Route::Unknown => not_found(),
        },
    };
    let account = Account {
        traffic: shared.traffic.clone(),
        clock: shared.clock.clone(),
        path: route.label(),
        code: code.as_u16(),
        began,
        bytes: 0,
    };
    let mut response = Response::new(Body::new(content, account, shared.limits.answer));
    *response.status_mut() = code;
    let always = [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")]
        .map(|(name, value)| (name, HeaderValue::from_static(value)));
    for (name, value) in headers.into_iter().chain(always) {
        response.headers_mut().insert(name, value);
    }
    response
}

async fn metrics<S: Source>(shared: &Shared<S>, headers: &HeaderMap) -> Answer {
    let limit = shared.limits.collection;
    let snapshot = match tokio::time::timeout(limit, shared.source.snapshot()).await {
        Ok(Ok(snapshot)) => snapshot,
        Ok(Err(error)) => {
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("no metrics: {error}"));
        }
        Err(_) => {
            let text = format!(
                "no metrics: the collection takes longer than {limit:?}; /status tells how things are"
            );
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    };
    let format = negotiate::format(values(headers, header::ACCEPT));
    let gzip = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let encoder = Encoder::new(snapshot, format);
    let content = if gzip { Content::Gzip(Box::new(Gzip::new(encoder))) } else { Content::Plain(encoder) };
    let answer = Answer::new(StatusCode::OK, format.content_type(), content);
    let answer = answer.with(header::VARY, "Accept, Accept-Encoding");
    if gzip { answer.with(header::CONTENT_ENCODING, "gzip") } else { answer }
}

fn status(source: &impl Source) -> Answer {
    match serde_json::to_vec_pretty(&*source.status()) {
        Ok(json) => Answer::new(StatusCode::OK, "application/json", Content::Whole(json.into())),
        Err(error) => {
            let text = format!("the status cannot be written as JSON: {error}");
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

async fn reload(source: &impl Source, headers: &HeaderMap) -> Answer {
    // Any page that somebody looks at may make their browser send a POST here. Browsers say when one does.
    let site = values(headers, "sec-fetch-site").next();
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        let text = "another site's page asked for the reload; only this server's own may".to_owned();
        return Answer::text(StatusCode::FORBIDDEN, text);
    }
    match source.reload().await {
        Ok(text) => Answer::text(StatusCode::OK, text),
        Err(problems) => {
            let text = format!("not reloaded, the configuration before stays in force:\n{problems}");
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

fn not_found() -> Answer {
    const TEXT_404: &[u8] =
        b"nothing here; this server has /metrics, /status, /api/v1/status, /flamegraph, /top, /folded, \
                              /debug/pprof/profile, /-/healthy, /-/ready and POST /-/reload\n";
    Answer::new(StatusCode::NOT_FOUND, TEXT, Content::Whole(Bytes::from_static(TEXT_404)))
}

/// The values of a header, those left out that are not ASCII.
pub(super) fn values(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}
