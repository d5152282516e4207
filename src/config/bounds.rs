//! Checks that every section needs: bounds of values, and lists without items, of too many or of the same twice.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::decode::At;
use super::report::{Hint, Report};
use super::value::List;
use super::yaml::NodeId;

/// Returns what is written, if anything is, and reports what is out of bounds, with the default if there is one.
pub(super) fn bounded<T: Copy + PartialOrd + Display>(
    written: Option<&At<T>>,
    bounds: RangeInclusive<T>,
    default: Option<T>,
    report: &mut Report<'_>,
) -> Option<T> {
    let At { node, value } = *written?;
    if !bounds.contains(&value) {
        let message = format!("{value} is not between {} and {}", bounds.start(), bounds.end());
        report.error(node, message, default.map(|default| format!("{default} is the default")));
    }
    Some(value)
}

/// Returns what is written, as [`bounded`] does, or else the default.
pub(super) fn setting<T: Copy + PartialOrd + Display>(
    written: Option<&At<T>>,
    bounds: RangeInclusive<T>,
    default: T,
    report: &mut Report<'_>,
) -> T {
    bounded(written, bounds, Some(default), report).unwrap_or(default)
}

/// Returns a number from 1 to `max`, if one is written.
pub(super) fn number<N: TryFrom<u64>>(
    written: Option<&At<u64>>,
    max: u64,
    report: &mut Report<'_>,
) -> Option<N> {
    N::try_from(bounded(written, 1..=max, None, report)?).ok()
}

/// Returns whether a number of things exceeds `limit`, and reports that.
pub(super) fn too_many(
    at: NodeId,
    (number, what): (usize, &str),
    limit: usize,
    hint: impl Hint,
    report: &mut Report<'_>,
) -> bool {
    if number > limit {
        report.error(at, format!("{number} {what}, and at most {limit} are taken"), hint);
    }
    number > limit
}

/// Reports a list without items, unless it has none because they were refused.
pub(super) fn not_empty<T>(list: Option<&At<List<T>>>, so: &str, hint: &str, report: &mut Report<'_>) {
    if let Some(list) = list.filter(|list| list.is_empty() && !report.blames(list.node)) {
        report.error(list.node, format!("an empty list {so}"), hint);
    }
}

/// Returns the items without repetitions, which are reported.
pub(super) fn once<T: Copy + PartialEq>(list: &[At<T>], report: &mut Report<'_>) -> Vec<At<T>> {
    let mut kept: Vec<At<T>> = Vec::new();
    for item in list {
        if kept.iter().any(|other| other.value == item.value) {
            twice(item.node, report);
        } else {
            kept.push(*item);
        }
    }
    kept
}

/// Reports an item that its list has already.
pub(super) fn twice(at: NodeId, report: &mut Report<'_>) {
    report.warning(at, "this stands in the list twice", "leave one out");
}
