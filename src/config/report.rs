//! The problems of one file, collected while it is read and checked.

use super::problem::{Problem, Severity};
use super::yaml::{Node, NodeId, Source, Value};

/// The most problems that are reported of one file; a place costs one more reading of the text.
pub(super) const PROBLEM_LIMIT: usize = 50;
/// The most that are remembered; of the others it is only known how many they are.
const FINDING_LIMIT: usize = 1000;

/// What to do about a problem; `None` where that is not known.
pub(super) trait Hint {
    /// Its text.
    fn text(self) -> Option<String>;
}

impl Hint for &str {
    fn text(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl Hint for String {
    fn text(self) -> Option<String> {
        Some(self)
    }
}

impl Hint for Option<String> {
    fn text(self) -> Option<String> {
        self
    }
}

/// Collects what is wrong with the nodes of a file.
#[derive(Debug)]
pub(super) struct Report<'s> {
    source: &'s Source<'s>,
    findings: Vec<Finding>,
    forgotten: usize,
}

/// One problem, before its place is known.
#[derive(Debug)]
struct Finding {
    at: NodeId,
    severity: Severity,
    message: String,
    hint: Option<String>,
}

impl<'s> Report<'s> {
    pub(super) fn new(source: &'s Source<'s>) -> Self {
        Self { source, findings: Vec::new(), forgotten: 0 }
    }

    /// Something that keeps the file from being used.
    pub(super) fn error(&mut self, at: NodeId, message: impl Into<String>, hint: impl Hint) {
        self.add(at, Severity::Error, message.into(), hint.text());
    }

    /// Something that has no effect, or hardly the effect that was meant.
    pub(super) fn warning(&mut self, at: NodeId, message: impl Into<String>, hint: impl Hint) {
        self.add(at, Severity::Warning, message.into(), hint.text());
    }

    fn add(&mut self, at: NodeId, severity: Severity, message: String, hint: Option<String>) {
        if self.findings.len() < FINDING_LIMIT {
            self.findings.push(Finding { at, severity, message, hint });
        } else {
            self.forgotten += 1;
        }
    }

    /// Whether the value `at` or anything inside it has a problem already.
    pub(super) fn blames(&self, at: NodeId) -> bool {
        let last = self.source.node(at).map_or(at, Node::last);
        self.findings.iter().any(|finding| (at..=last).contains(&finding.at))
    }

    /// Whether the file gives `key` in the block `at`, be its value usable or not.
    pub(super) fn gives(&self, at: NodeId, key: &str) -> bool {
        match self.source.node(at).map(|node| &node.value) {
            Some(Value::Map(entries)) => entries.iter().any(|(found, _)| found.word() == key),
            _ => false,
        }
    }

    /// The problems in the order of the text. If there are more than [`PROBLEM_LIMIT`], errors come before warnings,
    /// and a last one says how many are left out.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        let left_out = self.forgotten + self.findings.len().saturating_sub(PROBLEM_LIMIT);
        if left_out > 0 {
            self.findings.sort_by_key(|finding| finding.severity);
            self.findings.truncate(PROBLEM_LIMIT);
        }
        self.findings.sort_by_key(|finding| finding.at);
        if left_out > 0 {
            let message = format!("{left_out} more problems are not shown");
            let at = self.source.root().id;
            self.findings.push(Finding { at, severity: Severity::Warning, message, hint: None });
        }
        let problem =
            |Finding { at, severity, message, hint }| self.source.problem(at, message, hint, severity);
        self.findings.into_iter().map(problem).collect()
    }
}
