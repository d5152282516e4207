//! Sampled stacks as lists of function names, outermost first, each with its number of samples or its time.

use std::collections::{BTreeMap, BTreeSet};

use super::service::{Service, get_path};

/// Stacks of names, outermost first, each with its weight.
#[derive(Debug, Default)]
pub(crate) struct Folded(BTreeMap<Vec<String>, u64>);

impl Folded {
    /// Fetches the stacks of a service from `/folded`. Each stack begins with the name of its thread.
    pub(crate) fn of(service: &Service, query: &str) -> Self {
        let (_, body) = get_path(&service.address, &format!("/folded?{query}"));
        let line = |line: &str| {
            let (stack, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let value = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
            (stack.split(';').map(str::to_owned).collect(), value)
        };
        body.lines().map(line).collect()
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum::<u64>() as f64
    }

    /// Returns the share of stacks that contain these functions as consecutive frames, outermost first.
    pub(crate) fn share(&self, functions: &[&str]) -> f64 {
        self.share_of(|stack| stack.windows(functions.len()).any(|part| part == functions))
    }

    /// Returns the share of stacks for which `holds` returns true.
    pub(crate) fn share_of(&self, holds: impl Fn(&[String]) -> bool) -> f64 {
        let found: u64 = self.0.iter().filter(|(stack, _)| holds(stack)).map(|(_, value)| value).sum();
        found as f64 / self.total()
    }

    /// Returns the share of stacks in which each function is the innermost frame.
    pub(crate) fn innermost(&self) -> BTreeMap<&str, f64> {
        self.shares(|stack| stack.last().map(String::as_str).into_iter().collect())
    }

    /// Returns the share of stacks that contain each function.
    pub(crate) fn anywhere(&self) -> BTreeMap<&str, f64> {
        self.shares(|stack| stack.iter().map(String::as_str).collect())
    }

    fn shares<'a>(&'a self, of: impl Fn(&'a [String]) -> BTreeSet<&'a str>) -> BTreeMap<&'a str, f64> {
        let total = self.total();
        let mut shares = BTreeMap::new();
        for (stack, value) in &self.0 {
            for name in of(stack) {
                *shares.entry(name).or_default() += *value as f64 / total;
            }
        }
        shares
    }
}

/// Equal stacks are added up.
impl FromIterator<(Vec<String>, u64)> for Folded {
    fn from_iter<I: IntoIterator<Item = (Vec<String>, u64)>>(stacks: I) -> Self {
        let mut folded = Self::default();
        for (stack, value) in stacks {
            *folded.0.entry(stack).or_default() += value;
        }
        folded
    }
}
