//! The last result of each figure of each cgroup, for pages: "not judged" is not "normal".

use std::sync::Arc;

use super::Sample;
use super::detector::{Judgement, Method, Unjudged, Verdict};
use crate::clock::Timestamp;

/// The last result of one entry for a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Number of the entry.
    pub entry: usize,
    /// End of the interval.
    pub at: Timestamp,
    /// The result.
    pub verdict: Verdict,
    /// The figure; `None` if it was not measured.
    pub value: Option<f32>,
    /// The usual value; `None` if it was not judged, or is compared with a fixed limit.
    pub usual: Option<f32>,
    /// The value above which it is an outlier; `None` if it was not judged.
    pub limit: Option<f32>,
}

impl Compared {
    /// Returns the result of a sample. An interval that the method does not take is no result, unless there is no other yet.
    pub(super) fn after(
        previous: Option<Self>,
        (entry, method): (usize, &Method),
        sample: &Sample,
        judgement: &Judgement,
    ) -> Self {
        let is_skipped = judgement.verdict == Verdict::NotJudged(Unjudged::NotSampled);
        let is_fixed = matches!(method, Method::Threshold(_));
        let usual = judgement.expected.filter(|_| !is_fixed).map(|expected| expected.center as f32);
        let limit = judgement.expected.map(|expected| expected.threshold as f32);
        let value = sample.value.filter(|value| value.is_finite()).map(|value| value as f32);
        let new = Self { entry, at: Timestamp(sample.at), verdict: judgement.verdict, value, usual, limit };
        previous.filter(|_| is_skipped).map_or(new, |previous| Self { entry, ..previous })
    }

    /// Returns the word for the result: `normal`, `outlier`, or the reason why it was not judged.
    pub fn result(&self) -> &'static str {
        match self.verdict {
            Verdict::Normal => "normal",
            Verdict::Outlier => "outlier",
            Verdict::NotJudged(reason) => reason.as_str(),
        }
    }

    /// Reports whether the figure was compared.
    pub fn is_judged(&self) -> bool {
        !matches!(self.verdict, Verdict::NotJudged(_))
    }
}

/// The last results of all cgroups, sorted by cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results(Vec<(Arc<str>, Box<[Compared]>)>);

impl Results {
    /// Adds the results of a cgroup.
    pub(super) fn add(&mut self, cgroup: &str, results: Vec<Compared>) {
        if !results.is_empty() {
            self.0.push((cgroup.into(), results.into()));
        }
    }

    /// Sorts the cgroups, so that they are found.
    pub(super) fn sort(&mut self) {
        self.0.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    }

    /// Returns the results of a cgroup, in the order of the entries.
    pub(super) fn of(&self, cgroup: &str) -> &[Compared] {
        let found = self.0.binary_search_by(|(name, _)| (**name).cmp(cgroup)).ok();
        found.and_then(|place| self.0.get(place)).map_or(&[], |(_, results)| results)
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of = |(name, results): &(Arc<str>, Box<[Compared]>)| name.len() + size_of_val(&**results);
        self.0.capacity() * size_of::<(Arc<str>, Box<[Compared]>)>() + self.0.iter().map(of).sum::<usize>()
    }
}

#[cfg(test)]
impl<'c> FromIterator<(&'c str, Vec<Compared>)> for Results {
    fn from_iter<I: IntoIterator<Item = (&'c str, Vec<Compared>)>>(all: I) -> Self {
        let mut results = Self::default();
        all.into_iter().for_each(|(cgroup, last)| results.add(cgroup, last));
        results.sort();
        results
    }
}
