//! Checks of `anomalies`: the figures that are compared with their past.

use std::sync::Arc;

use super::counters::metric_word;
use super::decode::At;
use super::file::{Anomaly, MethodName};
use super::report::Report;
use super::value::Entries;
use crate::anomaly::{Cpi2, Entry, Kind, Method};

/// Maximum number of entries. Each of them compares a figure of each cgroup.
const MOST: usize = 32;

fn method(name: MethodName, kind: Kind) -> Method {
    match name {
        MethodName::Robust => Method::Robust(kind.robust()),
        MethodName::Cpi2 => Method::Cpi2(Cpi2::default()),
    }
}

/// Returns the checked entries, in the order of the file; `base` if the section is omitted. `has_history`: whether a history is kept.
pub(super) fn anomalies(
    written: &Option<At<Entries<Anomaly>>>,
    base: &Arc<[Entry]>,
    has_history: bool,
    report: &mut Report<'_>,
) -> Arc<[Entry]> {
    let Some(At { node, value: Entries(entries) }) = written else { return Arc::clone(base) };
    if !has_history && !entries.is_empty() {
        let message = "this has no effect: without a history there is no past to compare with";
        report.warning(*node, message, "set `history.for`, or remove this");
    }
    if entries.len() > MOST {
        report.error(*node, format!("more than {MOST} entries"), "remove some entries");
    }
    let entry = |(name, entry): &(At<String>, At<Anomaly>)| {
        metric_word(name.node, &name.value, "entries", report);
        let kind = entry.value.of.value;
        let named = entry.value.method.as_ref().map_or(MethodName::default(), |at| at.value);
        Entry { name: name.value.as_str().into(), kind, method: method(named, kind) }
    };
    entries.iter().take(MOST).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn entries(yaml: &str) -> Vec<(String, Kind, bool)> {
        let of =
            |entry: &Entry| (entry.name.to_string(), entry.kind, matches!(entry.method, Method::Cpi2(_)));
        good(yaml).anomalies.iter().map(of).collect()
    }

    #[test]
    fn the_section_replaces_the_built_in_set() {
        assert_eq!(entries("{}").len(), Kind::ALL.len());
        assert!(entries("anomalies: {}").is_empty());
        let yaml = "anomalies: {paper: {of: cpi, method: cpi2}, waits: {of: runqueue_latency}}";
        let expected =
            [("paper".to_owned(), Kind::Cpi, true), ("waits".to_owned(), Kind::RunqueueLatency, false)];
        assert_eq!(entries(yaml), expected);
    }

    #[test]
    fn an_unknown_figure_a_missing_one_and_too_many_entries_are_reported() {
        assert!(report("anomalies: {a: {of: ipc}}").contains("runqueue_latency"));
        assert!(report("anomalies: {a: {}}").contains("of"));
        assert!(report("{history: {for: 0s}, anomalies: {a: {of: cpi}}}").contains("set `history.for`"));
        assert!(report("anomalies: {A: {of: cpi}}").contains("write `a`"));
        let many: Vec<String> = (0..=MOST).map(|n| format!("a{n}: {{of: cpi}}")).collect();
        assert!(report(&format!("anomalies: {{{}}}", many.join(", "))).contains("more than 32 entries"));
    }
}
