//! Requests for the past: `/`, `/cgroup`, `/program` and `/api/v1/history`.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};

use super::Source;
use super::answer::{Answer, TEXT, values};
use super::nonce::nonce;
use super::rendered::{JSON, render};
use super::shared::Shared;
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
    render(&shared.pages, shared.traffic.cpu(), "the history", move || {
        found(&own.source, past, &query, &nonce).compressed(gzip)
    })
    .await
}

fn found(source: &impl Source, past: Past, query: &str, nonce: &str) -> Answer {
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
    let report = source.anomalies();
    let (status, report, query) = (&status, &report, &query);
    let view = View { status, snapshot: snapshot.as_deref(), history: &history, report, query, nonce };
    match past {
        Past::History => {
            match history.read(|history| overview::json_with(history, report, query, status.now)) {
                None => refused(past, StatusCode::NOT_FOUND, NO_HISTORY, nonce),
                Some(Err(sentence)) => refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
                Some(Ok(bytes)) => Answer::rendered(JSON, bytes),
            }
        }
        Past::Subject(scope) => match overview::subject(view, scope) {
            Ok(page) => Answer::page(page, nonce),
            Err(sentence) => refused(past, StatusCode::BAD_REQUEST, &sentence, nonce),
        },
        _ => Answer::page(overview::machine(view), nonce),
    }
}

const NO_HISTORY: &str = "no history is kept: `history.for` is 0s in the configuration";

fn refused(past: Past, code: StatusCode, sentence: &str, nonce: &str) -> Answer {
    let answer = match past {
        Past::History => Answer::rendered(TEXT, format!("{sentence}\n")),
        _ => Answer::page(overview::refused(sentence, nonce), nonce),
    };
    Answer { code, ..answer }
}
