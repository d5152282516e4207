//! `/api/v1/history`: the recorded past as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::busiest::busiest;
use super::query::PageQuery;
use crate::anomaly::{Compared, Report};
use crate::clock::Timestamp;
use crate::history::{Figure, Grid, History, List, Observed, Scope, Subject};
use crate::metrics::Labels;

/// Maximum number of steps of a response.
const STEPS: usize = 4000;

/// Maximum number of values of a response.
const VALUES: usize = 400_000;

/// The response. Times are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
struct Response<'h> {
    /// What is recorded; `null` before the second collection.
    recorded: Option<Observed>,
    /// Begin of the first step, in Unix milliseconds.
    from_ms: u64,
    /// Length of a step in seconds.
    step_seconds: f64,
    /// Number of steps.
    steps: usize,
    subjects: Vec<SubjectValues<'h>>,
    /// Number of subjects beyond `limit`.
    more: usize,
}

#[derive(Debug, Serialize)]
struct SubjectValues<'h> {
    scope: &'static str,
    name: &'h str,
    /// Names of the pod and the container.
    labels: BTreeMap<&'h str, &'h str>,
    figures: BTreeMap<&'static str, Values>,
    /// The last comparison of each figure of a cgroup with its past, by the name of the entry. Absent if nothing is compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    anomalies: BTreeMap<&'h str, LastResult>,
    /// Absent if no lists are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    lists: Option<Lists>,
}

/// The last comparison of a figure with its past.
#[derive(Debug, Serialize)]
struct LastResult {
    /// `normal`, `outlier`, or the reason why the figure was not judged.
    result: &'static str,
    /// Whether it was compared.
    judged: bool,
    /// End of the interval of ten seconds.
    at: Timestamp,
    /// `null` if it was not measured.
    value: Option<f32>,
    /// The usual value; `null` if it was not judged, or is compared with a fixed limit.
    usual: Option<f32>,
    /// Values above this are outliers; `null` if it was not judged.
    limit: Option<f32>,
}

impl LastResult {
    fn of(compared: &Compared) -> Self {
        let &Compared { at, value, usual, limit, .. } = compared;
        Self { result: compared.result(), judged: compared.is_judged(), at, value, usual, limit }
    }
}

/// The lists of a subject over the range, which is rounded to ten seconds.
#[derive(Debug, Serialize)]
struct Lists {
    /// Begin, in Unix milliseconds. Later than the range if the lists were dropped because the memory was full.
    from_ms: u64,
    to_ms: u64,
    /// Names and values by list, the largest first, and last the sum of all further names, as `other`.
    values: BTreeMap<&'static str, Vec<(Arc<str>, f64)>>,
}

#[derive(Debug, Serialize)]
struct Values {
    unit: &'static str,
    /// A value for each step; `null` where nothing was measured.
    values: Vec<Option<f64>>,
}

/// Returns the response to a query without results of comparisons, encoded.
///
/// # Errors
/// As [`json_with`].
pub fn json(history: &History, query: &PageQuery, now: Timestamp) -> Result<Vec<u8>, String> {
    json_with(history, &Report::default(), query, now)
}

/// Returns the response to a query, encoded. `report`: the last comparison with the past.
///
/// # Errors
/// A sentence for the client: the subject is unknown, or the response would be too large.
pub fn json_with(
    history: &History,
    report: &Report,
    query: &PageQuery,
    now: Timestamp,
) -> Result<Vec<u8>, String> {
    let grid = history.grid(query.window(now), STEPS);
    let figures = if query.figures.is_empty() { &Figure::ALL[..] } else { &query.figures };
    let (chosen, all) = chosen(history, query, &grid)?;
    let values = chosen.len().saturating_mul(figures.len()).saturating_mul(grid.count);
    if values > VALUES {
        return Err(format!(
            "the response would have {values} values, the maximum is {VALUES}; use fewer figures, a lower limit or a longer step"
        ));
    }
    let range = history.list_range(query.window(now));
    let subjects = chosen.iter().map(|&(name, subject)| SubjectValues {
        scope: query.scope.as_str(),
        name,
        labels: container_labels(subject.labels()).collect(),
        figures: figures
            .iter()
            .filter_map(|&figure| {
                let values = subject.values(figure, query.quantile, &grid)?;
                Some((figure.as_str(), Values { unit: figure.unit(), values }))
            })
            .collect(),
        anomalies: match query.scope {
            Scope::Cgroup => {
                report.of_cgroup(name).map(|(kind, last)| (kind, LastResult::of(last))).collect()
            }
            _ => BTreeMap::new(),
        },
        lists: (!query.lists.is_empty()).then(|| lists(subject, &query.lists, &range)),
    });
    let response = Response {
        recorded: history.observed(),
        from_ms: grid.from.0,
        step_seconds: grid.step as f64 / 1000.0,
        steps: grid.count,
        subjects: subjects.collect(),
        more: all - chosen.len(),
    };
    serde_json::to_vec(&response).map_err(|error| format!("encoding the history failed: {error}"))
}

fn lists(subject: &Subject, wanted: &[List], range: &Grid) -> Lists {
    let to = range.to();
    // Lists that are not recorded now are empty.
    let from = range.from.max(subject.lists_since().unwrap_or(to)).min(to);
    let lists = subject.lists(range).into_iter().filter(|listed| wanted.contains(&listed.list));
    let values = lists.map(|listed| (listed.list.as_str(), listed.lines)).collect();
    Lists { from_ms: from.0, to_ms: to.0, values }
}

/// Subjects with their names.
type Chosen<'h> = Vec<(&'h str, &'h Subject)>;

/// Returns the subjects of a query, and how many there are without its limit.
fn chosen<'h>(history: &'h History, query: &PageQuery, grid: &Grid) -> Result<(Chosen<'h>, usize), String> {
    let name = match (&query.name, query.scope) {
        (_, Scope::Machine) => Some(""),
        (name, _) => name.as_deref(),
    };
    if let Some(name) = name {
        let found = history.subjects(query.scope).find(|(known, _)| *known == name);
        // Before the second collection nothing is known.
        if found.is_none() && query.scope != Scope::Machine {
            return Err(format!("no {} of this name is in the history", query.scope));
        }
        return Ok((found.into_iter().collect(), usize::from(found.is_some())));
    }
    let all = history.subjects(query.scope).count();
    let sorted = busiest(history, query.scope, query.sort, grid, query.limit);
    Ok((sorted.into_iter().map(|(name, subject, _)| (name, subject)).collect(), all))
}

/// Returns the labels that name a pod and a container.
pub(in crate::export) fn container_labels(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.pairs().filter(|(name, _)| ["namespace", "pod", "container"].contains(name))
}
