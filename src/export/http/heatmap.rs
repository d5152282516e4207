//! `/heatmap` and `/api/v1/heatmap`: the number of samples by second, and by offset within the second.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use serde::Serialize;

use super::Source;
use super::access::Client;
use super::answer::{Answer, values};
use super::nonce::nonce;
use super::profiles::{self, Refused};
use super::rendered::{JSON, render};
use super::shared::Shared;
use super::turns::Turn;
use crate::clock::Timestamp;
use crate::export::page::profile::{Page, View};
use crate::export::query::{self, Query};
use crate::export::{negotiate, page};
use crate::profile::{HeatMap, TimeRange};

/// Default number of rows: 20 ms each.
const ROWS: u32 = 50;

/// Default length of the range in milliseconds.
const LENGTH: u64 = 120_000;

/// The response.
#[derive(Debug, Serialize)]
struct Encoded<'m> {
    /// Kind of profile.
    r#type: &'m str,
    /// Begin of the first second, in Unix seconds.
    from: u64,
    /// Number of seconds.
    seconds: usize,
    /// Number of rows of each second.
    rows: usize,
    /// Time from which on all samples are included, in Unix seconds.
    complete_from: f64,
    /// For each second the number of samples in each row.
    counts: &'m [Box<[u32]>],
}

/// Form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Page,
    Json,
}

pub(super) async fn answer<S: Source>(
    shared: &Shared<S>,
    form: Form,
    client: &Client,
    query: &str,
    headers: &HeaderMap,
) -> Answer {
    let (kinds, nonce) = (shared.source.profiles(), nonce());
    let (query, outcome) = match Query::parse(query, query::HEATMAP) {
        Ok(query) => {
            let outcome = wait(shared, client, &query, &kinds).await;
            (query, outcome)
        }
        Err(sentence) => (Query::default(), Err(Refused::new(StatusCode::BAD_REQUEST, sentence))),
    };
    let (kind, map, turn) = match outcome {
        Ok(found) => found,
        Err(refused) => {
            let view = View { query: &query, kinds: &kinds, nonce: &nonce };
            return refused.answer((form == Form::Page).then_some(Page::HeatMap), view);
        }
    };
    let compressed = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    render(&shared.encoded, shared.traffic.cpu(), "the heat map", move || {
        let view = View { query: &query, kinds: &kinds, nonce: &nonce };
        let made = match form {
            Form::Page => Answer::page(page::heat::heat_map(view, &kind, &map), &nonce),
            Form::Json => Answer::rendered(JSON, serde_json::to_vec(&encoded(&kind, &map))?),
        };
        let made = made.compressed(compressed);
        drop(turn);
        made
    })
    .await
}

fn encoded<'m>(kind: &'m str, map: &'m HeatMap) -> Encoded<'m> {
    Encoded {
        r#type: kind,
        from: map.from.0 / 1000,
        seconds: map.counts.len(),
        rows: map.counts.first().map_or(0, |second| second.len()),
        complete_from: map.complete_from.seconds(),
        counts: &map.counts,
    }
}

/// Waits for the map.
async fn wait<S: Source>(
    shared: &Shared<S>,
    client: &Client,
    query: &Query,
    kinds: &[Arc<str>],
) -> Result<(Arc<str>, HeatMap, Turn), Refused> {
    let bad = |sentence: String| Refused::new(StatusCode::BAD_REQUEST, sentence);
    if query.seconds.is_some() {
        return Err(bad("a heat map shows the past: use from= and to= instead of seconds=".to_owned()));
    }
    let kind = profiles::chosen(shared, query, kinds)?;
    let now = shared.clock.now();
    let recent = TimeRange { from: Timestamp(now.0.saturating_sub(LENGTH)), to: now };
    let range = whole_seconds(profiles::range(shared, &query.period)?.unwrap_or(recent));
    let (seconds, most) = (range.seconds(), HeatMap::MAX_SECONDS);
    if seconds > most {
        return Err(bad(format!(
            "the range touches {seconds} seconds, the maximum is {most}: use a shorter range"
        )));
    }
    let turn = profiles::turn(shared, client).await?;
    let rows = query.rows.unwrap_or(ROWS);
    let map = shared.source.heat(Arc::clone(&kind), range, rows, query.selection.clone());
    let map = profiles::within(shared.limits.collection, map).await?;
    Ok((kind, map, turn))
}

/// Shortens a range of the maximum length to whole seconds: an hour up to now touches 3601 seconds.
fn whole_seconds(range: TimeRange) -> TimeRange {
    let most = HeatMap::MAX_SECONDS * 1000;
    match range.to.0.saturating_sub(range.from.0) <= most && range.seconds() > HeatMap::MAX_SECONDS {
        true => TimeRange { from: Timestamp(range.from.0.next_multiple_of(1000)), ..range },
        false => range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_compact_json() {
        let counts = vec![vec![0, 3].into_boxed_slice(), vec![1, 0].into_boxed_slice()];
        let map = HeatMap { from: Timestamp(5000), complete_from: Timestamp(5250), counts };
        assert_eq!(
            serde_json::to_string(&encoded("cpu", &map)).unwrap(),
            r#"{"type":"cpu","from":5,"seconds":2,"rows":2,"complete_from":5.25,"counts":[[0,3],[1,0]]}"#
        );
    }
}
