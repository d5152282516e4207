//! Incidents: `/incidents`, `/incidents/ID`, its files, and `/api/v1/incidents`, which lists them and takes triggers.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{self, HeaderMap};
use serde::{Deserialize, Serialize};

use super::Source;
use super::access::Client;
use super::answer::{Answer, cannot_encode, values};
use super::body::Content;
use super::nonce::nonce;
use super::rendered::{JSON, render};
use super::shared::{Shared, read_body};
use crate::clean::clean;
use crate::export::incident::{REPORT, list_json, list_page};
use crate::export::negotiate;
use crate::export::page::profile::NO_NONCE;
use crate::history::{History, Scope};
use crate::incident::{IncidentId, NoIncident, Store, Trigger};
use crate::metrics::Labels;

/// Path of the list, and of everything about one incident.
pub(super) const LIST: &str = "/incidents";
pub(super) const ONE: &str = "/incidents/";

/// Maximum size of a trigger in bytes. Alertmanager sends all alerts of a group at once.
const TRIGGER: usize = 1 << 20;

/// Maximum number of incidents that one request begins.
const TRIGGERS: usize = 8;

/// Maximum length of texts of a trigger, in bytes.
const TEXT: usize = 300;

/// Maximum size of a file of an archive, and of an archive, in bytes.
const FILE: u64 = 1 << 30;

/// A trigger: an alert group in the format of Alertmanager's webhooks, or a reason.
#[derive(Debug, Default, Deserialize)]
struct Posted {
    /// Why the evidence is wanted.
    #[serde(default)]
    reason: String,
    /// A cgroup; the machine if it is absent.
    cgroup: Option<String>,
    /// Alerts of Alertmanager.
    alerts: Option<Vec<Alert>>,
}

/// An alert in the format of Alertmanager's webhooks.
#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The response to a trigger.
#[derive(Debug, Serialize)]
struct Outcome {
    cgroup: Option<String>,
    /// The address of the incident.
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Answers a request for the list as a page, or for a file of an incident.
pub(super) async fn pages<S: Source>(shared: &Arc<Shared<S>>, path: &str, headers: &HeaderMap) -> Answer {
    let (store, path) = (shared.source.incidents(), path.to_owned());
    let gzip = negotiate::gzip(values(headers, header::ACCEPT_ENCODING));
    render(&shared.pages, shared.traffic.cpu(), "the incidents", move || {
        let nonce = nonce();
        let answer = match path.strip_prefix(ONE) {
            None | Some("") => Answer::page(list_page(store.as_ref(), &nonce), &nonce),
            Some(rest) => file(store.as_ref(), rest, &nonce),
        };
        answer.compressed(gzip)
    })
    .await
}

/// Answers a request for the list as JSON.
pub(super) async fn list<S: Source>(shared: &Arc<Shared<S>>) -> Answer {
    let store = shared.source.incidents();
    render(&shared.pages, shared.traffic.cpu(), "the incidents", move || {
        Ok(Answer::rendered(JSON, list_json(store.as_ref())?))
    })
    .await
}

fn no_directory() -> Answer {
    Answer::text(StatusCode::NOT_FOUND, "no directory is configured for incidents; set incidents.directory")
}

/// Returns a file of an incident: `ID` is its report, `ID/archive.tar` the archive.
fn file(store: Option<&Store>, path: &str, nonce: &str) -> Answer {
    let (id, name) = path.split_once('/').unwrap_or((path, REPORT));
    let Some(store) = store else { return no_directory() };
    let Some(id) = IncidentId::parse(id) else {
        return Answer::text(StatusCode::NOT_FOUND, NoIncident::Unknown.to_string());
    };
    let content = match name {
        "archive.tar" => store.archive(&id, FILE).map(Some),
        name => store.member(&id, name, FILE),
    };
    match content {
        Ok(Some(content)) => shown(name, content, nonce),
        Ok(None) => Answer::text(StatusCode::NOT_FOUND, "the archive of this incident has no such file"),
        Err(NoIncident::Unknown) => Answer::text(StatusCode::NOT_FOUND, NoIncident::Unknown.to_string()),
        Err(error) => Answer::text(StatusCode::CONFLICT, error.to_string()),
    }
}

/// Returns the response with a file. The scripts of a page get the nonce of the response: all other text in it is escaped, so it cannot contain
/// the attribute.
fn shown(name: &str, content: Vec<u8>, nonce: &str) -> Answer {
    let extension = name.rsplit('.').next().unwrap_or_default();
    match extension {
        "html" => {
            let page = String::from_utf8_lossy(&content);
            let fresh = page.replace(&format!("nonce=\"{NO_NONCE}\""), &format!("nonce=\"{nonce}\""));
            Answer::page(fresh, nonce)
        }
        "json" => Answer::rendered(JSON, content),
        "folded" => Answer::rendered(super::answer::TEXT, content),
        _ => Answer::new(StatusCode::OK, "application/octet-stream", Content::Whole(content.into())),
    }
}

/// Answers a trigger.
pub(super) async fn trigger<S: Source, B: Body<Error: Into<Box<dyn Error + Send + Sync>>>>(
    shared: &Arc<Shared<S>>,
    client: &Client,
    user: Option<&str>,
    body: B,
) -> Answer {
    let Ok(bytes) = read_body(shared, body, TRIGGER).await else {
        let text = format!("the trigger did not arrive, or has more than {TRIGGER} bytes");
        return Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text);
    };
    let posted = if bytes.is_empty() { Ok(Posted::default()) } else { serde_json::from_slice(&bytes) };
    let posted: Posted = match posted {
        Ok(posted) => posted,
        Err(error) => {
            let text = format!(
                "the trigger is neither {{\"reason\": …, \"cgroup\": …}} nor a webhook of Alertmanager: {error}"
            );
            return Answer::text(StatusCode::BAD_REQUEST, text);
        }
    };
    if shared.source.incidents().is_none() {
        return no_directory();
    }
    tracing::info!(
        name: "perf_exporter.incident.requested",
        peer = %client,
        user,
        "evidence of an incident requested by HTTP"
    );
    let wanted = shared.source.history().read(|history| wanted(&posted, history));
    let mut outcomes = Vec::new();
    for (trigger, cgroup) in wanted.unwrap_or_default() {
        outcomes.push(match shared.source.trigger(trigger, cgroup.clone()).await {
            Ok(id) => Outcome { cgroup, incident: Some(format!("{ONE}{id}")), error: None },
            Err(error) => Outcome { cgroup, incident: None, error: Some(error) },
        });
    }
    let is_accepted = outcomes.iter().any(|outcome| outcome.incident.is_some());
    // Alertmanager sends a notification again after a server error.
    let code = if is_accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
    match serde_json::to_vec_pretty(&outcomes) {
        Ok(json) => Answer { code, ..Answer::rendered(JSON, json) },
        Err(error) => cannot_encode("the response", &error),
    }
}

/// Returns the wanted incidents. Alerts about pods of other nodes, and alerts that are resolved, want none.
fn wanted(posted: &Posted, history: &History) -> Vec<(Trigger, Option<String>)> {
    let bounded = |text: &str| clean(text, TEXT).into_owned();
    let Some(alerts) = &posted.alerts else {
        let trigger = Trigger::Request { reason: bounded(&posted.reason) };
        let cgroup = posted.cgroup.as_deref().filter(|cgroup| !cgroup.is_empty());
        return vec![(trigger, cgroup.map(str::to_owned))];
    };
    let mut wanted: Vec<(Trigger, Option<String>)> = Vec::new();
    for alert in alerts.iter().filter(|alert| alert.status != "resolved") {
        let Some(cgroup) = alert.cgroup(history) else { continue };
        if wanted.len() < TRIGGERS && !wanted.iter().any(|(_, other)| *other == cgroup) {
            let text = |of: &BTreeMap<String, String>, key| {
                of.get(key).map(|text| bounded(text)).unwrap_or_default()
            };
            let (name, summary) = (text(&alert.labels, "alertname"), text(&alert.annotations, "summary"));
            wanted.push((Trigger::Alert { name, summary }, cgroup));
        }
    }
    wanted
}

impl Alert {
    /// Returns the cgroup that the alert is about; `Some(None)` is the machine. `None`: the labels name a cgroup that is not on this node.
    fn cgroup(&self, history: &History) -> Option<Option<String>> {
        if let Some(cgroup) = self.labels.get("cgroup") {
            return history.subject(Scope::Cgroup, cgroup).map(|_| Some(cgroup.clone()));
        }
        if !self.labels.contains_key("pod") {
            return Some(None);
        }
        let mut subjects = history.subjects(Scope::Cgroup);
        let is_named = |labels: &Labels| {
            ["namespace", "pod", "container"].iter().all(|name| {
                self.labels.get(*name).is_none_or(|wanted| labels.get(name) == Some(wanted.as_str()))
            })
        };
        subjects.find(|(_, subject)| is_named(subject.labels())).map(|(name, _)| Some(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
