//! Requests for the past: `/`, `/cgroup`, `/program` and `/api/v1/history`.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};

use super::Source;
use super::answer::{Answer, TEXT, cannot_encode, values};
use super::nonce::nonce;
use super::rendered::{HTML, JSON, Rendered};
use super::shared::{Shared, run_blocking};
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

pub(super) async fn answer<S: Source>(
    shared: &Arc<Shared<S>>,
    past: Past,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    let (own, query, nonce) = (Arc::clone(shared), query.to_owned(), nonce());
    let gzip = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    let rendered = run_blocking(&shared.pages, shared.traffic.cpu(), move || {
        let rendered = render(&own.source, past, &query, &nonce).compressed(gzip)?;
        Ok::<_, std::io::Error>((rendered, nonce))
    });
    match rendered.await {
        Ok(Ok((rendered, nonce))) => rendered.answer(&nonce),
        Ok(Err(error)) | Err(error) => cannot_encode("the history", &error),
    }
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
            Some(Ok(bytes)) => Rendered::new(JSON, bytes),
        },
        Past::Subject(scope) => match overview::subject(view, scope) {
            Ok(page) => Rendered::new(HTML, page),
            Err(sentence) => refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
        },
        _ => Rendered::new(HTML, overview::machine(view)),
    }
}

const NO_HISTORY: &str = "no history is kept: `history.for` is 0s in the configuration";

fn refused(past: Past, code: StatusCode, sentence: &str, nonce: &str) -> Rendered {
    match past {
        Past::History => Rendered::new(TEXT, format!("{sentence}\n")),
        _ => Rendered::new(HTML, overview::refused(sentence, nonce)),
    }
    .with_code(code)
}
