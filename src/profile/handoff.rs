//! What the analysis hands over to collections, scrapes and requests: under a [`Lock`](crate::lock::Lock), so that nobody
//! waits for the analysis.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::model::Mode;
use crate::plan::Sampler;
use crate::ring::Losses;
use crate::stack;

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// The configuration asks for none.
    #[error("nothing is sampled: the configuration has no entry under `profiles`")]
    NothingSampled,
    /// There is no such entry.
    #[error("no profile is called {asked:?}; there is {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<String>,
    },
    /// As many are under way as may be.
    #[error("too many profiles are waited for at the same time: ask again later")]
    Busy,
    /// A reload has dropped its entry.
    #[error("the configuration was reloaded meanwhile, and has no such entry any more")]
    Gone,
    /// The analysis of samples, or the look-up of names, waits for files.
    #[error(
        "the profile reader waits for a file of another process, which does not answer: ask again later \
         (perf_exporter_profile_age_seconds tells since when)"
    )]
    Stalled,
}

/// The most profiles that are recorded at a time, beside one of each entry for a reader that takes them one after the
/// other.
const MOST_RECORDINGS: usize = 16;

/// The most series of one entry between two collections. Samples of others are counted for the task `other`.
const MOST_SERIES: usize = 1 << 16;

/// Whose samples are added up, and what the thread was doing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Series {
    /// The name of the thread.
    pub(super) comm: Arc<str>,
    /// Its cgroup, if that is known.
    pub(super) cgroup: Option<Arc<str>>,
    /// Whether the kernel chose the name.
    pub(super) kernel_thread: bool,
    pub(super) mode: Mode,
    /// The CPU, where metrics tell CPUs apart: a number of [`CpuScope::number_of`](crate::health::CpuScope::number_of).
    pub(super) cpu: Option<u32>,
}

/// The samples of one entry since the last collection.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) sampler: Arc<Sampler>,
    pub(super) sums: FxHashMap<Series, u64>,
}

impl Series {
    /// The series of all for which there is no other.
    fn other(mode: Mode) -> Self {
        Self { comm: "other".into(), cgroup: None, kernel_thread: false, mode, cpu: None }
    }
}

impl Fresh {
    fn add(&mut self, sums: FxHashMap<Series, u64>) {
        for (series, count) in sums {
            let room = self.sums.len() < MOST_SERIES || self.sums.contains_key(&series);
            let series = match room {
                true => series,
                false => Series { cpu: series.cpu, ..Series::other(series.mode) },
            };
            let sum = self.sums.entry(series).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// The state of the analysis after its last turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    /// What was read by the analysis, and what could not be.
    pub(super) losses: Losses,
    pub(super) accounts: stack::Accounts,
    /// All records from before this moment are analyzed. Nanoseconds of the records' clock.
    pub(super) analyzed: u64,
    /// Samples that windows lost before they were too old, because the share of stacks was full.
    pub(super) dropped: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    fresh: Vec<Fresh>,
    /// Of each CPU, since the last collection.
    switches: FxHashMap<u32, u64>,
    /// The state of the analysis.
    pub(super) report: Report,
    /// The entries that are sampled.
    pub(super) entries: Vec<Arc<str>>,
    /// Recordings that have begun and not ended.
    recordings: BTreeSet<u64>,
    recorded: u64,
}

impl Handoff {
    /// Adds what one turn of the analysis came to.
    pub(super) fn put(&mut self, fresh: Vec<Fresh>, switches: &FxHashMap<u32, u64>, report: Report) {
        for fresh in fresh {
            let known = self.fresh.iter_mut().find(|known| Arc::ptr_eq(&known.sampler, &fresh.sampler));
            match known {
                Some(known) => known.add(fresh.sums),
                None => self.fresh.push(fresh),
            }
        }
        for (&cpu, count) in switches {
            *self.switches.entry(cpu).or_default() += count;
        }
        let analyzed = report.analyzed.max(self.report.analyzed);
        self.report = Report { analyzed, ..report };
    }

    /// Takes out what was seen since this was asked last: samples, and switches of each CPU.
    pub(super) fn take(&mut self) -> (Vec<Fresh>, FxHashMap<u32, u64>) {
        (std::mem::take(&mut self.fresh), std::mem::take(&mut self.switches))
    }

    /// Sampling starts at `now`, and there is nothing older to analyze.
    pub(super) fn start(&mut self, now: u64) {
        self.report.analyzed = self.report.analyzed.max(now);
    }

    /// Gives the number of a new recording of an entry.
    ///
    /// # Errors
    /// There is no such entry, or too many are under way.
    pub(super) fn begin(&mut self, entry: &str) -> Result<u64, NoProfile> {
        if !self.entries.iter().any(|known| **known == *entry) {
            return Err(self.unknown(entry));
        }
        if self.recordings.len() >= MOST_RECORDINGS + self.entries.len() {
            return Err(NoProfile::Busy);
        }
        self.recorded += 1;
        self.recordings.insert(self.recorded);
        Ok(self.recorded)
    }

    /// A recording has ended.
    pub(super) fn end(&mut self, number: u64) {
        self.recordings.remove(&number);
    }

    /// Why there is no profile of an entry.
    pub(super) fn unknown(&self, asked: &str) -> NoProfile {
        let known: Vec<String> = self.entries.iter().map(|entry| (**entry).to_owned()).collect();
        match known.is_empty() {
            true => NoProfile::NothingSampled,
            false => NoProfile::Unknown { asked: asked.to_owned(), known },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::specimen::sampler;

    #[test]
    fn every_entry_can_be_followed_while_others_ask() {
        let mut handoff = Handoff::default();
        assert_eq!(handoff.begin("one"), Err(NoProfile::NothingSampled));
        handoff.entries = vec!["one".into(), "other".into()];
        let begun: Vec<u64> = (0..100).filter_map(|_| handoff.begin("one").ok()).collect();
        assert_eq!(begun.len(), MOST_RECORDINGS + 2);
        assert_eq!(handoff.begin("one"), Err(NoProfile::Busy));
        assert!(matches!(handoff.begin("none"), Err(NoProfile::Unknown { .. })));
        handoff.end(begun[0]);
        assert!(handoff.begin("other").is_ok());
    }

    #[test]
    fn samples_that_no_collection_takes_are_bounded_and_all_counted() {
        let (mut handoff, one) = (Handoff::default(), sampler("one"));
        for turn in 0..3 {
            let name = |at: usize| format!("{}", turn * MOST_SERIES / 2 + at).into();
            let sums = (0..MOST_SERIES / 2)
                .map(|at| (Series { comm: name(at), ..Series::other(Mode::User) }, 2))
                .collect();
            let fresh = vec![Fresh { sampler: Arc::clone(&one), sums }];
            handoff.put(
                fresh,
                &FxHashMap::from_iter([(0, 1)]),
                Report { analyzed: turn as u64, ..Report::default() },
            );
        }
        let (fresh, switches) = handoff.take();
        assert_eq!((fresh.len(), fresh[0].sums.len(), switches[&0]), (1, MOST_SERIES + 1, 3));
        assert_eq!(fresh[0].sums.values().sum::<u64>(), 3 * MOST_SERIES as u64);
        assert_eq!(handoff.report.analyzed, 2);
        assert!(handoff.take().0.is_empty());
    }
}
