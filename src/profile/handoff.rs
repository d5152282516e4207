//! Results that the analysis hands over to collections, scrapes and requests. They are under a [`Lock`](crate::lock::Lock), so that these
//! never wait for the analysis.

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
    /// The configuration has no entry under `profiles`.
    #[error("sampling is off: the configuration has no entry under `profiles`")]
    NothingSampled,
    /// There is no such entry.
    #[error("unknown profile {asked:?}; available: {}", known.join(", "))]
    Unknown {
        /// The requested name.
        asked: String,
        /// The available names.
        known: Vec<String>,
    },
    /// The maximum number of recordings is in progress.
    #[error("too many profiles are being recorded at the same time: try again later")]
    Busy,
    /// A reload has removed the entry.
    #[error("a reload of the configuration removed this profile")]
    Gone,
    /// The analysis of samples, or symbolization, is blocked on a file.
    #[error(
        "the profile reader is blocked on a file of another process: try again later (perf_exporter_profile_age_seconds reports for how \
         long)"
    )]
    Stalled,
}

/// The most recordings at the same time, in addition to one of each entry for consecutive profiles.
const MAX_RECORDINGS: usize = 16;

/// The most series of one entry between two collections. Samples of further series are attributed to the task `other`.
const MAX_SERIES: usize = 1 << 16;

/// The task and mode to which samples are attributed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Series {
    /// The name of the thread.
    pub(super) comm: Arc<str>,
    /// Its cgroup, if known.
    pub(super) cgroup: Option<Arc<str>>,
    /// Whether the thread is a kernel thread, whose name the kernel chose.
    pub(super) kernel_thread: bool,
    pub(super) mode: Mode,
    /// The CPU, where metrics are attributed to CPUs: a number of [`CpuScope::number_of`](crate::health::CpuScope::number_of).
    pub(super) cpu: Option<u32>,
}

/// The samples of one entry since the last collection.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) sampler: Arc<Sampler>,
    pub(super) sums: FxHashMap<Series, u64>,
}

impl Series {
    /// Returns the overflow series of a mode.
    fn other(mode: Mode) -> Self {
        Self { comm: "other".into(), cgroup: None, kernel_thread: false, mode, cpu: None }
    }
}

impl Fresh {
    fn add(&mut self, sums: FxHashMap<Series, u64>) {
        for (series, count) in sums {
            let room = self.sums.len() < MAX_SERIES || self.sums.contains_key(&series);
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
    /// Records read by the analysis, and records that could not be read.
    pub(super) losses: Losses,
    pub(super) accounts: stack::Accounts,
    /// All records before this time are analyzed. Nanoseconds on the clock of the records.
    pub(super) analyzed: u64,
    /// Samples dropped from logs before they expired, because the share of stacks was full.
    pub(super) dropped: u64,
    /// What the log of each entry contains.
    pub(super) logs: Vec<LogExtent>,
}

/// What the sample log of an entry contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogExtent {
    pub(super) entry: Arc<str>,
    /// The time from which on the log has all samples, on the clock of the records.
    pub(super) begin: Option<u64>,
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

/// Results of the analysis. See the module.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    fresh: Vec<Fresh>,
    /// By CPU, since the last collection.
    switches: FxHashMap<u32, u64>,
    /// The state of the analysis.
    pub(super) report: Report,
    /// The sampled entries.
    pub(super) entries: Vec<Arc<str>>,
    /// Recordings in progress.
    recordings: BTreeSet<u64>,
    recorded: u64,
}

impl Handoff {
    /// Adds the results of one turn of the analysis.
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

    /// Takes the results since the last call: samples, and switches of each CPU.
    pub(super) fn take(&mut self) -> (Vec<Fresh>, FxHashMap<u32, u64>) {
        (std::mem::take(&mut self.fresh), std::mem::take(&mut self.switches))
    }

    /// Registers the start of sampling at `now`: there are no older records to analyze.
    pub(super) fn start(&mut self, now: u64) {
        self.report.analyzed = self.report.analyzed.max(now);
    }

    /// Returns the number of a new recording of an entry.
    ///
    /// # Errors
    /// There is no such entry, or too many recordings are in progress.
    pub(super) fn begin(&mut self, entry: &str) -> Result<u64, NoProfile> {
        if !self.entries.iter().any(|known| **known == *entry) {
            return Err(self.unknown(entry));
        }
        if self.recordings.len() >= MAX_RECORDINGS + self.entries.len() {
            return Err(NoProfile::Busy);
        }
        self.recorded += 1;
        self.recordings.insert(self.recorded);
        Ok(self.recorded)
    }

    /// Ends a recording.
    pub(super) fn end(&mut self, number: u64) {
        self.recordings.remove(&number);
    }

    /// Returns why there is no profile of an entry.
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
    use crate::profile::sample_profiles::sampler;

    #[test]
    fn every_entry_can_be_followed_while_others_ask() {
        let mut handoff = Handoff::default();
        assert_eq!(handoff.begin("one"), Err(NoProfile::NothingSampled));
        handoff.entries = vec!["one".into(), "other".into()];
        let begun: Vec<u64> = (0..100).filter_map(|_| handoff.begin("one").ok()).collect();
        assert_eq!(begun.len(), MAX_RECORDINGS + 2);
        assert_eq!(handoff.begin("one"), Err(NoProfile::Busy));
        assert!(matches!(handoff.begin("none"), Err(NoProfile::Unknown { .. })));
        handoff.end(begun[0]);
        assert!(handoff.begin("other").is_ok());
    }

    #[test]
    fn samples_that_no_collection_takes_are_bounded_and_all_counted() {
        let (mut handoff, one) = (Handoff::default(), sampler("one"));
        for turn in 0..3 {
            let name = |at: usize| format!("{}", turn * MAX_SERIES / 2 + at).into();
            let sums = (0..MAX_SERIES / 2)
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
        assert_eq!((fresh.len(), fresh[0].sums.len(), switches[&0]), (1, MAX_SERIES + 1, 3));
        assert_eq!(fresh[0].sums.values().sum::<u64>(), 3 * MAX_SERIES as u64);
        assert_eq!(handoff.report.analyzed, 2);
        assert!(handoff.take().0.is_empty());
    }
}
