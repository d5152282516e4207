//! All cgroups and figures under observation.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::baseline::Baseline;
use super::compared::{Compared, Results};
use super::detector::{Detector, Judgement, Method, Unjudged, Verdict};
use super::episode::Change;
use super::given::{Given, Specifications};
use super::robust::Expected;
use super::saved::{self, Saved};
use super::suspects::{Suspicion, Victim, WINDOW, Witness, usage};
use super::{Kind, Measure, Sample, workload};
use crate::clock::Timestamp;
use crate::history::{Additional, History, Scope, Window};

/// Length of an interval, in milliseconds: that of the long steps of the history.
pub const INTERVAL: u64 = 10_000;

/// Time after the first interval, in milliseconds, in which a cgroup that is seen first is not new.
const FOUND: u64 = 60_000;

/// A figure under observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Name in the configuration, and in labels.
    pub name: Arc<str>,
    /// The figure.
    pub kind: Measure,
    /// How outliers are found.
    pub method: Method,
}

/// What is observed, and where what was learned is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// The figures, in the order of the configuration.
    pub entries: Arc<[Entry]>,
    /// What the history must record for them.
    pub additional: Additional,
    /// Directory for what was learned; `None` = it is lost at the end.
    pub directory: Option<Arc<Path>>,
    /// Usual values that were computed elsewhere, which take the place of what is learned.
    pub specifications: Arc<Specifications>,
}

impl Entry {
    /// Returns the name, the figure and the method, by which what was learned is found again.
    fn identity(&self) -> String {
        let method = match self.method {
            Method::Robust(_) => "robust",
            Method::Cpi2(_) => "cpi2",
            Method::Threshold(_) => "threshold",
        };
        format!("{} {} {method}", self.name, self.kind)
    }
}

/// The cgroups with a verdict, for one entry: the last number of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Like their past.
    pub normal: u64,
    /// Outliers.
    pub outlier: u64,
    /// Not judged, by reason.
    pub unjudged: [u64; Unjudged::ALL.len()],
}

/// An anomaly that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Active {
    /// Number of the entry.
    pub entry: usize,
    /// The cgroup.
    pub cgroup: Arc<str>,
    /// Begin of the interval of its first outlier.
    pub since: Timestamp,
    /// The last value that was judged.
    pub value: f64,
    /// The usual value.
    pub usual: f64,
    /// The number of usual deviations between both.
    pub score: f64,
    /// Other cgroups that were active meanwhile, and causes that are none, as of the begin.
    pub suspicion: Suspicion,
}

/// An anomaly that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Number of the entry.
    pub entry: usize,
    /// The cgroup.
    pub cgroup: Arc<str>,
    /// End of the interval of its last outlier.
    pub at: Timestamp,
}

/// The state after an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Names of the entries.
    pub entries: Vec<Arc<str>>,
    /// Anomalies by entry since the begin.
    pub total: Vec<u64>,
    /// Verdicts by entry.
    pub verdicts: Vec<Verdicts>,
    /// Current anomalies, sorted by entry and cgroup.
    pub active: Vec<Active>,
    /// Anomalies that began in this interval.
    pub began: Vec<Active>,
    /// Anomalies that ended in this interval.
    pub ended: Vec<Ended>,
    /// The last results of each cgroup.
    pub results: Results,
}

impl Report {
    /// Returns the name of an entry.
    pub fn name(&self, entry: usize) -> &str {
        self.entries.get(entry).map_or("", |name| name)
    }

    /// Returns the last results of a cgroup with the names of the entries, in their order. Entries that are not measured for it are missing.
    pub fn of_cgroup(&self, cgroup: &str) -> impl Iterator<Item = (&str, &Compared)> {
        self.results.of(cgroup).iter().map(|result| (self.name(result.entry), result))
    }

    /// Logs the anomalies that began and ended. The first suspect is named, if there is one.
    pub fn log(&self) {
        for Active { entry, cgroup, value, usual, suspicion, .. } in &self.began {
            tracing::warn!(
                name: "perf_exporter.anomaly.began",
                kind = self.name(*entry),
                %cgroup,
                value,
                usual,
                cause = suspicion.causes.first().map(tracing::field::display),
                suspect = suspicion.suspects.first().map(|suspect| &*suspect.cgroup),
                "a figure of a cgroup is unusually high"
            );
        }
        for Ended { entry, cgroup, .. } in &self.ended {
            let kind = self.name(*entry);
            tracing::info!(name: "perf_exporter.anomaly.ended", kind, %cgroup, "a figure of a cgroup is usual again");
        }
    }
}

/// A cgroup under observation by one entry.
#[derive(Debug)]
struct Watched {
    detector: Detector,
    /// The last sample that was judged: its value, and what it was compared with.
    last: Option<(f64, Expected)>,
    result: Option<Compared>,
    /// As of the begin of its anomaly.
    suspicion: Suspicion,
    /// The interval in which it was last seen.
    seen: u64,
}

impl Watched {
    /// Starts to watch a cgroup. One that is not new has warm caches.
    fn new(is_new: bool) -> Self {
        let detector = if is_new { Detector::default() } else { Detector::running() };
        Self { detector, last: None, result: None, suspicion: Suspicion::default(), seen: 0 }
    }

    /// Returns the begin of the interval of the first outlier of the current anomaly.
    fn since(&self) -> Option<Timestamp> {
        self.detector.since().map(|end| Timestamp(end.saturating_sub(INTERVAL)))
    }

    /// Returns the current anomaly of this cgroup.
    fn active(&self, entry: usize, cgroup: &str) -> Option<Active> {
        let (since, (value, expected)) = (self.since()?, self.last?);
        let (usual, score) = (expected.center, expected.score(value));
        Some(Active {
            entry,
            cgroup: cgroup.into(),
            since,
            value,
            usual,
            score,
            suspicion: self.suspicion.clone(),
        })
    }
}

/// The baseline of a workload.
#[derive(Debug, Default)]
struct Learned {
    baseline: Baseline,
    used: u64,
}

impl Learned {
    /// Returns the memory in bytes, with its name.
    fn bytes(&self, name: &str) -> usize {
        name.len() + size_of::<(Box<str>, Self)>() + self.baseline.bytes()
    }
}

/// What is known of one entry.
#[derive(Debug, Default)]
struct OfEntry {
    /// By cgroup.
    watched: FxHashMap<Box<str>, Watched>,
    /// By workload.
    learned: FxHashMap<Box<str>, Learned>,
    /// Anomalies since the begin.
    total: u64,
}

impl OfEntry {
    /// Judges the sample of a cgroup. `entry` has its number.
    fn judge(
        &mut self,
        (number, entry): (usize, &Entry),
        (cgroup, workload): (&str, &str),
        (sample, given): (Sample, Option<Given>),
        is_new: bool,
    ) -> (&mut Watched, Judgement) {
        let learned = at(&mut self.learned, workload, Learned::default);
        let watched = at(&mut self.watched, cgroup, || Watched::new(is_new));
        learned.baseline.given = given;
        watched.seen = sample.at;
        if sample.value.is_some() {
            learned.used = sample.at;
        }
        let method = &entry.method;
        let judgement = watched.detector.judge(method, Kind::rule(method), &mut learned.baseline, sample);
        watched.result = Some(Compared::after(watched.result, (number, method), &sample, &judgement));
        if let Some(last) = sample.value.zip(judgement.expected) {
            watched.last = Some(last);
        }
        (watched, judgement)
    }

    /// Removes cgroups that were not seen in the interval `now`. Returns the remaining memory in bytes.
    fn sweep(&mut self, now: u64) -> usize {
        self.watched.retain(|_, watched| watched.seen == now);
        let watched = self.watched.keys().map(|name| name.len() + size_of::<(Box<str>, Watched)>());
        let learned = self.learned.iter().map(|(name, learned)| learned.bytes(name));
        watched.sum::<usize>() + learned.sum::<usize>()
    }
}

/// Returns the value of a name, which is nearly always there: a key is made only where it is not.
fn at<'m, V>(map: &'m mut FxHashMap<Box<str>, V>, name: &str, new: impl FnOnce() -> V) -> &'m mut V {
    if !map.contains_key(name) {
        map.insert(name.into(), new());
    }
    map.get_mut(name).expect("it has just been added if it was missing")
}

/// The observation of all cgroups.
#[derive(Debug, Default)]
pub struct Watch {
    entries: Arc<[Entry]>,
    /// In the order of the entries.
    known: Vec<OfEntry>,
    /// End of the last judged interval.
    last: Timestamp,
    /// End of the first interval since the start, or since the entries or the clock changed.
    begun: Option<Timestamp>,
    /// Memory after the last interval, and its limit, in bytes.
    bytes: usize,
    limit: usize,
    specifications: Arc<Specifications>,
    /// The model of the CPUs, as in /proc/cpuinfo.
    cpu_model: Option<Box<str>>,
}

/// Returns the end of the last complete interval.
fn complete(now: Timestamp) -> Timestamp {
    Timestamp(now.0 / INTERVAL * INTERVAL)
}

impl Watch {
    /// Creates an observation on CPUs of this model, as in /proc/cpuinfo.
    pub fn on(cpu_model: Option<String>) -> Self {
        Self { cpu_model: cpu_model.map(Into::into), ..Self::default() }
    }

    /// Sets the usual values that were computed elsewhere.
    pub fn set_specifications(&mut self, specifications: &Arc<Specifications>) {
        self.specifications = Arc::clone(specifications);
    }

    /// Sets the maximum memory in bytes. Above it, the least recently used baselines are dropped.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the memory after the last interval, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the entries. What was learned of an entry that does not change is kept.
    pub fn set(&mut self, entries: &Arc<[Entry]>) {
        if *entries == self.entries {
            return;
        }
        self.begun = None;
        let old = std::mem::replace(&mut self.entries, Arc::clone(entries));
        let mut known = std::mem::take(&mut self.known);
        let totals: Vec<u64> = known.iter().map(|known| known.total).collect();
        let moved = |new: &Entry| {
            // Totals belong to the name: a counter does not fall because its method changes.
            let before = old.iter().position(|old| old.name == new.name);
            let total = before.and_then(|place| totals.get(place)).copied().unwrap_or(0);
            let same = old.iter().position(|old| old == new).and_then(|place| known.get_mut(place));
            OfEntry { total, ..same.map(std::mem::take).unwrap_or_default() }
        };
        self.known = self.entries.iter().map(moved).collect();
    }

    /// Returns what was learned, as the content of a [`BaselineFile`](super::BaselineFile).
    pub fn saved(&self, now: Timestamp) -> Vec<u8> {
        let baselines = self.entries.iter().zip(&self.known).flat_map(|(entry, known)| {
            let identity = entry.identity();
            known.learned.iter().map(move |(workload, learned)| {
                (identity.clone(), &**workload, learned.used, &learned.baseline)
            })
        });
        saved::encode(baselines.filter(|(.., baseline)| baseline.weight() > 0.0), now.0)
    }

    /// Adds what was learned before the start, of the current entries. Of a workload that has been learned since, the baseline with more
    /// samples is kept. Returns the number of added baselines.
    pub fn restore(&mut self, all: Vec<Saved>) -> usize {
        let identities: Vec<String> = self.entries.iter().map(Entry::identity).collect();
        let mut added = 0;
        for Saved { entry, workload, used, baseline } in all {
            let Some(number) = identities.iter().position(|identity| *identity == entry) else { continue };
            let Some(known) = self.known.get_mut(number) else { continue };
            let learned = known.learned.entry(workload.into()).or_default();
            if learned.baseline.weight() < baseline.weight() {
                *learned = Learned { baseline, used: used.max(learned.used) };
                added += 1;
            }
        }
        added
    }

    /// Reports whether there is an interval to judge, which is complete at this time.
    pub fn is_due(&self, now: Timestamp) -> bool {
        complete(now) != self.last && !self.entries.is_empty()
    }

    /// Judges the last complete interval of the history; `None` if it was judged before, or nothing is recorded.
    pub fn judge(&mut self, history: &History, witness: &dyn Witness) -> Option<Report> {
        let to = history.observed()?.to;
        if !self.is_due(to) {
            return None;
        }
        let to = complete(to);
        if to < self.last {
            // The clock was set back: outliers have times of the future.
            self.known.iter_mut().for_each(|known| known.watched.clear());
            self.begun = None;
        }
        self.last = to;
        let window =
            |length| Window { from: Timestamp(to.0.saturating_sub(length)), to, step: Some(INTERVAL) };
        let (now, past) = (history.grid(window(INTERVAL), 1), history.grid(window(WINDOW), 60));
        if now.count == 0 {
            return None;
        }
        let begun = *self.begun.get_or_insert(to);
        let is_new = to.0.saturating_sub(begun.0) >= FOUND;
        let mut report = Report {
            entries: self.entries.iter().map(|entry| Arc::clone(&entry.name)).collect(),
            verdicts: vec![Verdicts::default(); self.entries.len()],
            ..Report::default()
        };
        for (cgroup, subject) in history.subjects(Scope::Cgroup) {
            let usage = usage(subject, &now).and_then(|values| values.last().copied().flatten());
            let workload = workload::of(cgroup, subject.labels());
            let mut results = Vec::with_capacity(self.entries.len());
            for (number, (entry, known)) in self.entries.iter().zip(&mut self.known).enumerate() {
                let Entry { name, kind: figure, method } = entry;
                let Some(values) = figure.values(history, subject, &now) else { continue };
                let value = values.last().copied().flatten();
                let usage = figure.usage(history, subject, &now, usage.unwrap_or(0.0));
                let (quality, cpu_type) = figure.quality(history, subject, &now);
                let workload = workload::on(&workload, cpu_type);
                let given = self.specifications.get(name, &workload, self.cpu_model.as_deref());
                let sample = Sample { at: to.0, value, usage, quality };
                let (watched, judgement) =
                    known.judge((number, entry), (cgroup, &workload), (sample, given), is_new);
                results.extend(watched.result);
                if let Some(verdicts) = report.verdicts.get_mut(number) {
                    verdicts.count(judgement.verdict);
                }
                if let (Some(Change::Began(_)), Some(since)) = (judgement.change, watched.since()) {
                    let expected = judgement.expected;
                    let victim = Victim { cgroup, subject, figure, method, expected, since };
                    watched.suspicion = Suspicion::of(victim, history, &past, witness);
                    report.began.extend(watched.active(number, cgroup));
                }
                if let Some(Change::Ended(at)) = judgement.change {
                    report.ended.push(Ended { entry: number, cgroup: cgroup.into(), at: Timestamp(at) });
                }
                report.active.extend(watched.active(number, cgroup));
            }
            report.results.add(cgroup, results);
        }
        report.results.sort();
        report.active.sort_by(|one, other| (one.entry, &one.cgroup).cmp(&(other.entry, &other.cgroup)));
        for began in &report.began {
            // In bounds: a number of an entry.
            self.known[began.entry].total += 1;
        }
        report.total = self.known.iter().map(|known| known.total).collect();
        self.sweep(report.results.bytes());
        Some(report)
    }

    /// Removes cgroups that the history does not contain any more, and the least recently used baselines above the memory limit. `results` is
    /// the memory of the results, in bytes.
    fn sweep(&mut self, results: usize) {
        let now = self.last.0;
        self.bytes = results + self.known.iter_mut().map(|known| known.sweep(now)).sum::<usize>();
        if self.bytes <= self.limit {
            return;
        }
        let mut all: Vec<(u64, usize, usize, Box<str>)> = Vec::new();
        for (number, known) in self.known.iter().enumerate() {
            let learned = known.learned.iter();
            all.extend(
                learned.map(|(name, learned)| (learned.used, learned.bytes(name), number, name.clone())),
            );
        }
        all.sort_unstable();
        // A tenth more than necessary, so that this is rare.
        let mut excess = self.bytes - self.limit + self.limit / 10;
        for (_, bytes, number, workload) in all {
            if excess == 0 {
                break;
            }
            // In bounds: a number of an entry.
            self.known[number].learned.remove(&workload);
            self.bytes -= bytes;
            excess = excess.saturating_sub(bytes);
        }
    }
}

impl Verdicts {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Normal => self.normal += 1,
            Verdict::Outlier => self.outlier += 1,
            Verdict::NotJudged(reason) => self.unjudged[reason as usize] += 1,
        }
    }
}
