//! `/api/v1/deep`: lists the sets of events that are counted for a limited time, begins one with POST, and ends one with DELETE.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Body;
use hyper::header;
use serde::Serialize;
use serde::de::IgnoredAny;

use super::Source;
use super::access::Client;
use super::answer::{Answer, cannot_encode};
use super::rendered::{JSON, render};
use super::shared::{Shared, read_body, run_blocking};
use crate::clean::clean;
use crate::clock::Timestamp;
use crate::config::{DeepRequest, Problem, Problems, load_deep};
use crate::deep::{DeepReport, DeepState, Outcome, RefusalKind, RefusedSet, Wanted};

/// Path of the list, and of one set.
pub(super) const LIST: &str = "/api/v1/deep";
pub(super) const ONE: &str = "/api/v1/deep/";

/// Maximum size of a request in bytes.
const REQUEST: usize = 16 << 10;

/// Maximum length of the name of a client, in bytes.
const CLIENT: usize = 100;

/// Why a request has no effect.
#[derive(Debug, Serialize)]
struct Refused<'r> {
    reason: &'r str,
    remedy: &'r str,
}

/// The response to a request that has no effect.
#[derive(Debug, Serialize)]
struct AllRefused<'r> {
    refused: Vec<Refused<'r>>,
}

/// A set in force, with the remaining time.
#[derive(Debug, Serialize)]
struct Active<'s> {
    #[serde(flatten)]
    state: &'s DeepState,
    /// Whole seconds until its end; `null` = until the file no longer contains it.
    remaining_seconds: Option<u64>,
}

/// The list.
#[derive(Debug, Serialize)]
struct Listed<'s> {
    active: Vec<Active<'s>>,
    refused: &'s [RefusedSet],
}

/// The response to DELETE.
#[derive(Debug, Serialize)]
struct Ended {
    ended: u64,
}

/// Answers a request for the list.
pub(super) async fn list<S: Source>(shared: &Arc<Shared<S>>) -> Answer {
    let own = Arc::clone(shared);
    render(&shared.pages, shared.traffic.cpu(), "the sets of events", move || {
        let status = own.source.status();
        Ok(Answer::rendered(JSON, list_json(&status.deep, status.now)?))
    })
    .await
}

fn list_json(report: &DeepReport, now: Timestamp) -> serde_json::Result<Vec<u8>> {
    let active = report.active.iter().map(|state| Active { state, remaining_seconds: remaining(state, now) });
    serde_json::to_vec_pretty(&Listed { active: active.collect(), refused: &report.refused })
}

fn remaining(state: &DeepState, now: Timestamp) -> Option<u64> {
    state.ends.map(|ends| ends.0.saturating_sub(now.0) / 1000)
}

/// Answers a request to begin a set.
pub(super) async fn begin<S: Source, B: Body<Error: Into<Box<dyn Error + Send + Sync>>>>(
    shared: &Arc<Shared<S>>,
    client: &Client,
    user: Option<&str>,
    body: B,
) -> Answer {
    if let Some(refused) = too_often(shared) {
        return refused;
    }
    let Ok(bytes) = read_body(shared, body, REQUEST).await else {
        let reason = format!("the request did not arrive, or has more than {REQUEST} bytes");
        return refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            &[(&reason, "send a JSON object with `events` and `cgroups`")],
        );
    };
    let parsed = run_blocking(&shared.pages, shared.traffic.cpu(), move || parse(&bytes)).await;
    let request = match parsed {
        Ok(Ok(request)) => request,
        Ok(Err(problems)) => return wrong(&problems),
        Err(error) => return cannot_encode("the response", &error),
    };
    let wanted = Wanted::Begin { request: Box::new(request), requester: name_of(client, user) };
    let (outcome, now) = (shared.source.deep(wanted).await, shared.clock.now());
    match outcome {
        Ok(Some(state)) => {
            let active = Active { state: &state, remaining_seconds: remaining(&state, now) };
            let answer = json(StatusCode::CREATED, &active);
            answer.with_made(header::LOCATION, &format!("{ONE}{}", state.id))
        }
        outcome => of_outcome(outcome),
    }
}

/// Parses the body of a request: JSON, with the keys of an entry of `deep`. YAML that is not JSON is refused, because it would not be
/// accepted by other programs.
fn parse(bytes: &[u8]) -> Result<DeepRequest, Vec<(String, String)>> {
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        let reason = format!("the request is not JSON: {error}");
        return Err(vec![(
            reason,
            r#"write {"events": ["EVENT"], "cgroups": ["/PATH"], "for": "10m"}"#.to_owned(),
        )]);
    }
    load_deep(bytes).map_err(|Problems(problems)| problems.into_iter().map(explained).collect())
}

fn explained(Problem { path, message, hint, .. }: Problem) -> (String, String) {
    let reason = if path.is_empty() { message } else { format!("{path}: {message}") };
    (reason, hint.unwrap_or_else(|| "see docs/deep.md".to_owned()))
}

fn wrong(problems: &[(String, String)]) -> Answer {
    let all: Vec<(&str, &str)> = problems.iter().map(|(reason, remedy)| (&**reason, &**remedy)).collect();
    refused(StatusCode::BAD_REQUEST, &all)
}

/// Answers a request to end a set.
pub(super) async fn end<S: Source>(
    shared: &Arc<Shared<S>>,
    client: &Client,
    user: Option<&str>,
    path: &str,
) -> Answer {
    if let Some(refused) = too_often(shared) {
        return refused;
    }
    let Some(id) = path.strip_prefix(ONE).and_then(|id| id.parse::<u64>().ok()) else {
        let remedy = "see GET /api/v1/deep for the sets in force";
        return refused(StatusCode::NOT_FOUND, &[("the path does not end with the ID of a set", remedy)]);
    };
    tracing::info!(
        name: "perf_exporter.deep.end_requested",
        client = name_of(client, user),
        id,
        "end of a set of events requested by HTTP"
    );
    match shared.source.deep(Wanted::End(id)).await {
        Ok(_) => json(StatusCode::OK, &Ended { ended: id }),
        refused => of_outcome(refused),
    }
}

/// Takes a token for a change. Each change plans all counters again.
fn too_often<S>(shared: &Shared<S>) -> Option<Answer> {
    let (mut bucket, now) = (shared.deep.lock(), shared.clock.monotonic());
    if bucket.take(now) {
        return None;
    }
    let wait = bucket.wait(now).as_secs() + 1;
    let remedy = format!("try again in {wait} s");
    let answer =
        refused(StatusCode::TOO_MANY_REQUESTS, &[("sets of events were changed too often", &remedy)]);
    Some(answer.with_made(header::RETRY_AFTER, &Duration::from_secs(wait).as_secs().to_string()))
}

/// Returns the response to a change that had no effect.
fn of_outcome(outcome: Outcome) -> Answer {
    let (code, reason, remedy) = match outcome {
        Ok(_) => {
            (StatusCode::NOT_FOUND, "the set has ended at once".to_owned(), "request more time".to_owned())
        }
        Err(refusal) => {
            let code = match refusal.kind {
                RefusalKind::Wrong => StatusCode::BAD_REQUEST,
                RefusalKind::Unknown => StatusCode::NOT_FOUND,
                RefusalKind::Conflict => StatusCode::CONFLICT,
                RefusalKind::Busy => StatusCode::TOO_MANY_REQUESTS,
                RefusalKind::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, refusal.reason, refusal.remedy)
        }
    };
    refused(code, &[(&reason, &remedy)])
}

fn refused(code: StatusCode, all: &[(&str, &str)]) -> Answer {
    let refused = all.iter().map(|(reason, remedy)| Refused { reason, remedy }).collect();
    json(code, &AllRefused { refused })
}

fn json(code: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec_pretty(value) {
        Ok(json) => Answer { code, ..Answer::rendered(JSON, json) },
        Err(error) => cannot_encode("the response", &error),
    }
}

/// Returns the name of a client for the log and the list.
fn name_of(client: &Client, user: Option<&str>) -> String {
    let name = match user {
        Some(user) => format!("{user} at {client}"),
        None => client.to_string(),
    };
    clean(&name, CLIENT).into_owned()
}
