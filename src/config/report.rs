//! Collection of the problems of one file while it is decoded and checked.

use std::path::PathBuf;

use super::problem::{Problem, Severity};
use super::yaml::{Node, NodeId, Source, Value};

/// Maximum number of reported problems of one file. Each position costs another parse of the text.
pub(super) const PROBLEM_LIMIT: usize = 50;
/// Maximum number of stored problems; further ones are only counted.
const FINDING_LIMIT: usize = 1000;

/// Correction of a problem; `None` if unknown.
pub(super) trait Hint {
    /// Returns the text.
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

/// Collects the problems of the nodes of a file.
#[derive(Debug)]
pub(super) struct Report<'s> {
    source: &'s Source<'s>,
    findings: Vec<Finding>,
    forgotten: usize,
}

/// Problem whose position has not been determined yet.
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

    /// Returns the directory of the file. Relative paths in the file start there.
    pub(super) fn directory(&self) -> PathBuf {
        self.source.directory()
    }

    /// Adds a problem that makes the file unusable.
    pub(super) fn error(&mut self, at: NodeId, message: impl Into<String>, hint: impl Hint) {
        self.add(at, Severity::Error, message.into(), hint.text());
    }

    /// Adds a problem with a setting that has no effect or is probably a mistake.
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

    /// Reports whether the value `at` or any node inside it has a problem.
    pub(super) fn blames(&self, at: NodeId) -> bool {
        let last = self.source.node(at).map_or(at, Node::last);
        self.findings.iter().any(|finding| (at..=last).contains(&finding.at))
    }

    /// Reports whether the block `at` contains `key`, whether or not its value is valid.
    pub(super) fn gives(&self, at: NodeId, key: &str) -> bool {
        match self.source.node(at).map(|node| &node.value) {
            Some(Value::Map(entries)) => entries.iter().any(|(found, _)| found.word() == key),
            _ => false,
        }
    }

    /// Returns the problems in the order of the text. If there are more than [`PROBLEM_LIMIT`], errors take precedence over warnings, and a
    /// last problem contains the number of omitted ones.
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
