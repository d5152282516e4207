//! Checks that every section needs: bounds of values, lists without items, of too many or of the same twice, and texts
//! with a grammar of their own.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::decode::At;
use super::problem::shown;
use super::report::{Hint, Report};
use super::value::List;
use super::yaml::NodeId;
use crate::event::ParseError;

impl Report<'_> {
    /// Returns what is written, if anything is, and reports what is out of bounds, with the default if there is one.
    pub(super) fn bounded<T: Copy + PartialOrd + Display>(
        &mut self,
        written: Option<&At<T>>,
        bounds: RangeInclusive<T>,
        default: Option<T>,
    ) -> Option<T> {
        let At { node, value } = *written?;
        if !bounds.contains(&value) {
            let message = format!("{value} is not between {} and {}", bounds.start(), bounds.end());
            self.error(node, message, default.map(|default| format!("{default} is the default")));
        }
        Some(value)
    }

    /// Returns what is written, as [`bounded`](Self::bounded) does, or else the default.
    pub(super) fn setting<T: Copy + PartialOrd + Display>(
        &mut self,
        written: Option<&At<T>>,
        bounds: RangeInclusive<T>,
        default: T,
    ) -> T {
        self.bounded(written, bounds, Some(default)).unwrap_or(default)
    }

    /// Returns a number from 1 to `max`, if one is written.
    pub(super) fn number<N: TryFrom<u64>>(&mut self, written: Option<&At<u64>>, max: u64) -> Option<N> {
        N::try_from(self.bounded(written, 1..=max, None)?).ok()
    }

    /// Returns whether a number of things exceeds `limit`, and reports that.
    pub(super) fn too_many(
        &mut self,
        at: NodeId,
        (number, what): (usize, &str),
        limit: usize,
        hint: impl Hint,
    ) -> bool {
        if number > limit {
            self.error(at, format!("{number} {what}, and at most {limit} are taken"), hint);
        }
        number > limit
    }

    /// Reports a list without items, unless it has none because they were refused.
    pub(super) fn not_empty<T>(&mut self, list: Option<&At<List<T>>>, so: &str, hint: &str) {
        if let Some(list) = list.filter(|list| list.is_empty() && !self.blames(list.node)) {
            self.error(list.node, format!("an empty list {so}"), hint);
        }
    }

    /// Returns the items without repetitions, which are reported.
    pub(super) fn once<T: Copy + PartialEq>(&mut self, list: &[At<T>]) -> Vec<At<T>> {
        let mut kept: Vec<At<T>> = Vec::new();
        for item in list {
            if kept.iter().any(|other| other.value == item.value) {
                self.twice(item.node);
            } else {
                kept.push(*item);
            }
        }
        kept
    }

    /// Reports an item that its list has already.
    pub(super) fn twice(&mut self, at: NodeId) {
        self.warning(at, "this stands in the list twice", "leave one out");
    }

    /// What a text means, if it can be read as `what` it should be.
    pub(super) fn parsed<T>(
        &mut self,
        text: &At<String>,
        what: &str,
        parsed: Result<T, ParseError>,
    ) -> Option<T> {
        parsed
            .inspect_err(|error| {
                let message = format!("{} is {what}: {}", shown(text), error.message);
                self.error(text.node, message, error.remedy.to_string());
            })
            .ok()
    }
}
