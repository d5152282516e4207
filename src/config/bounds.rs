//! Checks that all sections share: bounds of values, empty lists, lists that are too long or have duplicates, and texts with their own
//! grammar.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::decode::At;
use super::problem::shown;
use super::report::{Hint, Report};
use super::value::List;
use super::yaml::NodeId;
use crate::event::ParseError;

impl Report<'_> {
    /// Returns the written value, if there is one. Reports a value out of bounds, with the default if there is one.
    pub(super) fn bounded<T: Copy + PartialOrd + Display>(
        &mut self,
        written: &Option<At<T>>,
        bounds: RangeInclusive<T>,
        default: Option<T>,
    ) -> Option<T> {
        let At { node, value } = (*written)?;
        if !bounds.contains(&value) {
            let message = format!("{value} is not between {} and {}", bounds.start(), bounds.end());
            self.error(node, message, default.map(|default| format!("the default is {default}")));
        }
        Some(value)
    }

    /// Returns the written value, checked by [`bounded`](Self::bounded), or the default.
    pub(super) fn setting<T: Copy + PartialOrd + Display>(
        &mut self,
        written: &Option<At<T>>,
        bounds: RangeInclusive<T>,
        default: T,
    ) -> T {
        self.bounded(written, bounds, Some(default)).unwrap_or(default)
    }

    /// Returns the written number, from 1 to `max`, if there is one.
    pub(super) fn number<N: TryFrom<u64>>(&mut self, written: &Option<At<u64>>, max: u64) -> Option<N> {
        N::try_from(self.bounded(written, 1..=max, None)?).ok()
    }

    /// Reports an error if `number` exceeds `limit`, and returns whether it does.
    pub(super) fn too_many(
        &mut self,
        at: NodeId,
        (number, what): (usize, &str),
        limit: usize,
        hint: impl Hint,
    ) -> bool {
        if number > limit {
            self.error(at, format!("{number} {what}, at most {limit} are allowed"), hint);
        }
        number > limit
    }

    /// Reports an empty list, unless all of its items were rejected.
    pub(super) fn not_empty<T>(&mut self, list: Option<&At<List<T>>>, so: &str, hint: &str) {
        if let Some(list) = list.filter(|list| list.is_empty() && !self.blames(list.node)) {
            self.error(list.node, format!("an empty list {so}"), hint);
        }
    }

    /// Returns the items without duplicates, and reports the duplicates.
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

    /// Reports a duplicate list item.
    pub(super) fn twice(&mut self, at: NodeId) {
        self.warning(at, "duplicate item in this list", "remove one of them");
    }

    /// Returns the parsed value of a text, or reports why it is invalid; `what` describes the violated expectation.
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
