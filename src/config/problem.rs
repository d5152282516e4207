//! Problems of a configuration file, with position and correction.

use std::fmt;
use std::sync::Arc;

/// Severity of a [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but a setting has no effect or is probably a mistake.
    Warning,
}

/// Problem of a configuration file: position, message and correction.
///
/// Printed as one line: `perf-exporter.yaml:8:9: counters.core.per[1]: …; did you mean `cgroup`?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File name as given by the caller.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
    /// Path in the tree: `counters.core.events[1]`; empty for the file as a whole.
    pub path: String,
    /// Description of the problem.
    pub message: String,
    /// Suggested correction, if known.
    pub hint: Option<String>,
    /// Severity.
    pub severity: Severity,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, path, message, hint, severity } = self;
        write!(f, "{file}:{line}:{column}: ")?;
        if *severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(message)?;
        hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

/// Problems of a file, ordered by line; at least one is an error. Displayed as one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

/// Maximum number of characters of user text in a message.
const SHOWN: usize = 60;

/// Returns user text between backquotes, escaped and truncated to fit one line of a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(visible).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

fn visible(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// `` `a`, `b` or `c` ``.
pub(super) fn one_of(words: &[&str]) -> String {
    enumerate(words, "or")
}

/// `` `a`, `b` and `c` ``.
pub(super) fn all_of(words: &[&str]) -> String {
    enumerate(words, "and")
}

fn enumerate(words: &[&str], last: &str) -> String {
    let words: Vec<String> = words.iter().map(|word| shown(word)).collect();
    match &words[..] {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., end] => format!("{} {last} {end}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(hint: Option<&str>, severity: Severity) -> Problem {
        Problem {
            file: "perf-exporter.yaml".into(),
            line: 8,
            column: 9,
            path: "counters.core.per[1]".into(),
            message: "`cgruop` is none".into(),
            hint: hint.map(Into::into),
            severity,
        }
    }

    #[test]
    fn a_problem_is_one_line_that_editors_can_jump_to() {
        let error = problem(Some("did you mean `cgroup`?"), Severity::Error);
        assert_eq!(
            error.to_string(),
            "perf-exporter.yaml:8:9: counters.core.per[1]: `cgruop` is none; did you mean `cgroup`?"
        );
        let warning = problem(None, Severity::Warning);
        assert_eq!(
            warning.to_string(),
            "perf-exporter.yaml:8:9: warning: counters.core.per[1]: `cgruop` is none"
        );
        assert_eq!(Problems(vec![error, warning]).to_string().lines().count(), 2);
    }

    #[test]
    fn what_a_user_wrote_cannot_break_a_line_or_fill_a_screen() {
        assert_eq!(shown("a\nb\u{1b}[2J"), "`a\\nb\\u{1b}[2J`");
        assert!(shown(&"é".repeat(1 << 20)).len() < 200);
    }

    #[test]
    fn words_are_listed_as_in_a_sentence() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(all_of(&["a", "b"]), "`a` and `b`");
    }
}
