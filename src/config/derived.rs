//! Checks of `derived` and of `metrics` of an entry: names, expressions, units.

use std::sync::Arc;

use super::decode::At;
use super::file;
use super::metric_word::metric_word;
use super::problem::shown;
use super::report::Report;
use super::value::{Entries, List};
use crate::event::metric::{self, Expression};
use crate::event::nearest;

/// Maximum number of user-defined metrics.
const DEFINITIONS: usize = 256;
/// Maximum number of metrics of an entry.
const METRICS: usize = 64;
/// Maximum length of a unit, in bytes.
const UNIT: usize = 40;

/// A user-defined metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// Name in the file.
    pub name: Arc<str>,
    /// The expression.
    pub expression: Expression,
    /// What the value of the expression is multiplied with before it is shown.
    pub factor: f64,
    /// Unit of the shown value; empty for a plain number.
    pub unit: Arc<str>,
}

/// A metric that an entry of `counters` asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricUse {
    /// A built-in metric or a group of them.
    BuiltIn(Arc<str>),
    /// A metric of the file.
    Derived(Arc<Derived>),
}

impl MetricUse {
    /// Returns its name in the file.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::BuiltIn(name) => name,
            Self::Derived(derived) => &derived.name,
        }
    }
}

/// Returns the user-defined metrics.
pub(super) fn derived(
    entries: Option<&At<Entries<file::Derived>>>,
    report: &mut Report<'_>,
) -> Vec<Arc<Derived>> {
    let Some(At { node, value: Entries(entries) }) = entries else { return Vec::new() };
    report.too_many(*node, (entries.len(), "metrics"), DEFINITIONS, "remove some of them");
    entries
        .iter()
        .take(DEFINITIONS)
        .filter_map(|(name, entry)| one(name, entry, report))
        .map(Arc::new)
        .collect()
}

fn one(name: &At<String>, entry: &At<file::Derived>, report: &mut Report<'_>) -> Option<Derived> {
    metric_word(name.node, name, "metrics", report);
    if metric::find(name).is_ok() {
        let message = format!("{} is the name of a built-in metric or of a group of them", shown(name));
        report.error(name.node, message, "choose another name");
        return None;
    }
    let Some(text) = &entry.expression else {
        if !report.blames(entry.node) {
            report.error(
                name.node,
                "the metric has no `expression`",
                "write `expression: instructions / cycles`",
            );
        }
        return None;
    };
    let expression = metric::parse(text).map_err(|error| {
        let column = text.get(..error.at).map_or(error.at, |before| before.chars().count()) + 1;
        report.error(
            text.node,
            format!("column {column} of the expression: {}", error.message),
            &*error.remedy,
        );
    });
    let unit = entry.unit.as_ref().map(|unit| self::unit(unit, report)).unwrap_or_default();
    let expression = expression.ok()?;
    if expression.events().is_empty() {
        report.error(text.node, "the expression contains no event", "name at least one, such as `cycles`");
        return None;
    }
    let (factor, unit) = unit.unwrap_or((1.0, "".into()));
    Some(Derived { name: name.as_str().into(), expression, factor, unit })
}

/// Splits a unit into its factor and its text: `100%`.
fn unit(written: &At<String>, report: &mut Report<'_>) -> Option<(f64, Arc<str>)> {
    if written.len() > UNIT || written.chars().any(char::is_control) {
        let message = format!("{} is not a unit", shown(written));
        report.error(written.node, message, format!("write a text of at most {UNIT} bytes, such as `100%`"));
        return None;
    }
    let digits = written.len() - written.trim_start_matches(|c: char| "0123456789.eE+-".contains(c)).len();
    let factors =
        (1..=digits).rev().filter_map(|length| Some((written.get(..length)?.parse().ok()?, length)));
    let usable = |(factor, _): &(f64, usize)| factor.is_finite() && *factor > 0.0;
    let (factor, length) = factors.into_iter().find(usable).unwrap_or((1.0, 0));
    Some((factor, written.get(length..).unwrap_or_default().trim().into()))
}

/// Returns the metrics of an entry, each once.
pub(super) fn used(
    written: Option<&At<List<String>>>,
    derived: &[Arc<Derived>],
    report: &mut Report<'_>,
) -> Vec<MetricUse> {
    report.not_empty(written, "contains no metrics", "add a metric, or remove `metrics`");
    let Some(list) = written else { return Vec::new() };
    report.too_many(list.node, (list.len(), "metrics"), METRICS, "split them over several entries");
    let mut used: Vec<MetricUse> = Vec::new();
    for name in list.iter().take(METRICS) {
        let own = derived.iter().find(|metric| *metric.name == **name);
        let metric = match (own, metric::find(name)) {
            (Some(own), _) => MetricUse::Derived(Arc::clone(own)),
            (None, Ok(_)) => MetricUse::BuiltIn(name.as_str().into()),
            (None, Err(unknown)) => {
                let own = nearest(name, derived.iter().map(|metric| &*metric.name)).map(str::to_owned);
                let hint = own.or(unknown.suggestion).map(|near| format!("did you mean `{near}`?"));
                let hint = hint.unwrap_or(unknown.remedy);
                report.error(name.node, format!("there is no metric {}", shown(name)), hint);
                continue;
            }
        };
        if !used.contains(&metric) {
            used.push(metric);
        }
    }
    used
}

/// Reports metrics that no entry uses.
pub(super) fn unused(
    entries: Option<&At<Entries<file::Derived>>>,
    counters: &[super::Counters],
    report: &mut Report<'_>,
) {
    let used = |name: &str| {
        let mut metrics = counters.iter().flat_map(|entry| &entry.metrics);
        metrics.any(|metric| matches!(metric, MetricUse::Derived(derived) if *derived.name == *name))
    };
    for (name, entry) in entries.map(|entries| &entries.value.0[..]).unwrap_or_default() {
        if !used(name) && !report.blames(entry.node) && !report.blames(name.node) {
            let hint = format!("write `metrics: [{}]` in an entry of `counters`", name.as_str());
            report.warning(name.node, "this has no effect: no entry uses the metric", hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MetricUse;
    use crate::config::tests::{good, report};

    #[test]
    fn an_entry_counts_built_in_metrics_and_those_of_the_file() {
        let config = good(
            "derived: {my_mpki: {expression: 1000 * r1a8 / instructions, unit: 1e3per kilo}}\n\
             counters: {a: {metrics: [IPC, topdown-l1, my_mpki, IPC]}, b: {events: faults, metrics: tlb}}",
        );
        let [MetricUse::BuiltIn(ipc), MetricUse::BuiltIn(topdown), MetricUse::Derived(own)] =
            &config.counters[0].metrics[..]
        else {
            panic!("{:?}", config.counters)
        };
        assert_eq!((&**ipc, &**topdown, &*own.name), ("IPC", "topdown-l1", "my_mpki"));
        assert_eq!((own.factor, &*own.unit), (1000.0, "per kilo"));
        assert_eq!(own.expression.to_string(), "1000 * r1a8 / instructions");
        assert_eq!((config.counters[1].groups.len(), config.counters[1].metrics.len()), (1, 1));
    }

    #[test]
    fn a_wrong_metric_is_reported_with_what_is_expected() {
        for (yaml, words) in [
            ("counters: {a: {metrics: [ipcs]}}", "there is no metric `ipcs`; did you mean `IPC`?"),
            ("counters: {a: {metrics: []}}", "contains no metrics"),
            ("counters: {a: {}}", "the entry has no `events`, `preset` or `metrics`"),
            ("derived: {ipc: {expression: cycles}}", "is the name of a built-in metric"),
            (
                "derived: {x: {expression: cycles +}}\ncounters: {a: {metrics: x}}",
                "column 9 of the expression: a value is missing",
            ),
            ("derived: {x: {expression: 1 + 2}}\ncounters: {a: {metrics: x}}", "contains no event"),
            ("derived: {x: {unit: 100%}}\ncounters: {a: {metrics: x}}", "has no `expression`"),
            (
                "derived: {x: {expression: cycles}}\ncounters: {a: {events: faults}}",
                "no entry uses the metric",
            ),
            (
                "derived: {my_ipc: {expression: instructions / cycles}}\ncounters: {a: {metrics: my_ipx}}",
                "did you mean `my_ipc`?",
            ),
            ("derived: {Ab: {expression: cycles}}\ncounters: {a: {metrics: Ab}}", "is not a valid name"),
        ] {
            let report = report(yaml);
            assert!(report.contains(words), "{yaml}: {report}");
        }
    }
}
