//! Requests for the past: `/`, `/cgroup`, `/program` and `/api/v1/history`.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};

use super::Source;
use super::answer::{Answer, cannot_encode, values};
use super::body::Content;
use super::nonce::nonce;
use super::profiles::HTML;
use super::shared::{Shared, run_blocking};
use crate::export::gzip::gzip;
use crate::export::negotiate;
use crate::export::overview::{self, HISTORY, PAGE, PageQuery, SUBJECT, View};
use crate::history::Scope;

/// A resource about the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    Overview,
    /// The page of a cgroup or of a program.
    Subject(Scope),
    History,
}

/// A page or JSON, before it is sent.
struct Rendered {
    code: StatusCode,
    content_type: &'static str,
    bytes: Vec<u8>,
}

pub(super) async fn answer<S: Source>(
    shared: &Arc<Shared<S>>,
    past: Past,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    let (own, query, nonce) = (Arc::clone(shared), query.to_owned(), nonce());
    let policy = policy(&nonce);
    let compress = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let rendered = run_blocking(&shared.pages, shared.traffic.cpu(), move || {
        let mut rendered = render(&own.source, past, &query, &nonce);
        if compress {
            rendered.bytes = gzip(&rendered.bytes)?;
        }
        Ok::<_, std::io::Error>(rendered)
    });
    let Rendered { code, content_type, bytes } = match rendered.await {
        Ok(Ok(rendered)) => rendered,
        Ok(Err(error)) | Err(error) => return cannot_encode("the history", &error),
    };
    let answer =
        Answer::new(code, content_type, Content::Whole(bytes.into())).with(header::VARY, "Accept-Encoding");
    let answer = if content_type == HTML {
        answer.with_made(header::CONTENT_SECURITY_POLICY, &policy)
    } else {
        answer
    };
    if compress { answer.with(header::CONTENT_ENCODING, "gzip") } else { answer }
}

/// Returns the policy of the pages: their own script may load their own page again, nothing else.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

fn render(source: &impl Source, past: Past, query: &str, nonce: &str) -> Rendered {
    let status = source.status();
    let keys = match past {
        Past::History => HISTORY,
        Past::Subject(_) => SUBJECT,
        _ => PAGE,
    };
    let query = match PageQuery::parse(query, keys, status.now) {
        Ok(query) => query,
        Err(sentence) => return refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
    };
    let (history, snapshot) = (source.history(), source.latest());
    let view =
        View { status: &status, snapshot: snapshot.as_deref(), history: &history, query: &query, nonce };
    match past {
        Past::History => match history.read(|history| overview::json(history, &query, status.now)) {
            None => refused(past, StatusCode::NOT_FOUND, NO_HISTORY, nonce),
            Some(Err(sentence)) => refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
            Some(Ok(bytes)) => Rendered { code: StatusCode::OK, content_type: "application/json", bytes },
        },
        Past::Subject(scope) => match overview::subject(view, scope) {
            Ok(page) => Rendered { code: StatusCode::OK, content_type: HTML, bytes: page.into() },
            Err(sentence) => refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
        },
        _ => Rendered { code: StatusCode::OK, content_type: HTML, bytes: overview::machine(view).into() },
    }
}

const NO_HISTORY: &str = "no history is kept: `history.for` is 0s in the configuration";

fn refused(past: Past, code: StatusCode, sentence: &str, nonce: &str) -> Rendered {
    match past {
        Past::History => {
            Rendered { code, content_type: super::answer::TEXT, bytes: format!("{sentence}\n").into() }
        }
        _ => Rendered { code, content_type: HTML, bytes: overview::refused(sentence, nonce).into() },
    }
}
