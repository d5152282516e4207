//! Lists of patterns and rules: their number, their length, and their syntax.

use super::decode::At;
use super::report::Report;
use super::value::List;
use crate::targets::Glob;

/// Maximum number of patterns or rules in one list. Each new cgroup and process is matched against all of them.
const PATTERN_LIMIT: usize = 256;
/// Maximum length of a pattern, in bytes. Paths in the kernel are limited to 4096 bytes; practical patterns are much shorter.
const PATTERN_LEN: usize = 1024;

/// The lists `include` and `exclude`, if present.
pub(super) type Lists<R> = (Option<Vec<R>>, Option<Vec<R>>);

/// Reads both lists; `include` must not be empty.
pub(super) fn lists<T, R>(
    include: &Option<At<List<T>>>,
    exclude: &Option<At<List<T>>>,
    (so, hint): (&str, &str),
    report: &mut Report<'_>,
    read: impl Fn(&At<T>, &mut Report<'_>) -> Option<R>,
) -> Lists<R> {
    report.not_empty(include.as_ref(), so, hint);
    let hint = "use wider patterns: `*`, `**`, {a,b}";
    let mut list = |list: &At<List<T>>| read_each(list, PATTERN_LIMIT, hint, report, &read);
    (include.as_ref().map(&mut list), exclude.as_ref().map(&mut list))
}

/// Reads a list of at most `limit` patterns or rules, and reports a longer one with `hint`.
pub(super) fn read_each<T, R>(
    list: &At<List<T>>,
    limit: usize,
    hint: &str,
    report: &mut Report<'_>,
    read: impl Fn(&At<T>, &mut Report<'_>) -> Option<R>,
) -> Vec<R> {
    report.too_many(list.node, (list.len(), "patterns"), limit, hint);
    list.iter().take(limit).filter_map(|item| read(item, report)).collect()
}

/// Returns a compiled pattern.
pub(super) fn glob(pattern: &At<String>, report: &mut Report<'_>) -> Option<Glob> {
    if pattern.len() > PATTERN_LEN {
        let message = format!("the pattern has {} bytes, at most {PATTERN_LEN} are allowed", pattern.len());
        report.error(pattern.node, message, "use a shorter one");
        return None;
    }
    Glob::new(pattern)
        .inspect_err(|error| {
            let hint = "close every [ and {; a literal bracket is written [[]";
            report.error(pattern.node, error.to_string(), hint);
        })
        .ok()
}
