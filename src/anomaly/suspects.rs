//! Ranks the cgroups that were active while another cgroup, the victim, was slow. They are suspects: the cause may be another one.
//!
//! [`Cpi2`](super::Cpi2) uses the correlation of the paper. Its score is at most `1 − T/c`: no suspect reaches 0.35 unless the victim needs
//! 1.54 times as many cycles as the threshold. The robust method corrects that, and three further causes of wrong suspects:
//!
//! - The score is a share of the highest possible one.
//! - The threshold is half as far from the usual value: at the begin of an anomaly, its weaker intervals are below the threshold.
//! - CPU time counts above the suspect's own median: a suspect that was not idle before is found.
//! - CPU time counts as it would be with the suspect's usual cycles per instruction: other victims use more because they are slow.

use std::fmt;
use std::sync::Arc;

use super::Kind;
use super::detector::Method;
use super::measure::Measure;
use super::robust::Expected;
use crate::clock::Timestamp;
use crate::history::{Figure, Grid, History, Rate, Scope, Subject};
use crate::host::is_within;
use crate::named_enum::named_enum;

/// Maximum number of suspects of an anomaly.
const SUSPECTS: usize = 3;

/// Minimum number of intervals that a correlation compares. After a start, or in a new cgroup, a few of them say nothing.
const COMPARED: usize = 10;

/// Minimum share of the waited time of a suspect.
const MEANWHILE: f64 = 0.2;

/// Minimum share of stolen CPU time that is a cause.
const STOLEN: f64 = 0.05;

/// Minimum number of preemptions per second by the CPU quota that is a cause.
const THROTTLED: f64 = 1.0;

named_enum! {
    /// How a suspect was found.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Basis {
        /// By the [correlation] of CPI². The score is at most 1, the number is that of intervals.
        Correlation = "correlation",
        /// Its threads ran on CPUs while threads of the victim waited for them. The score is the share of the waited time, the number is
        /// that of waits.
        RanMeanwhile = "ran_meanwhile",
    }
}

/// A suspect with a notable score.
#[derive(Debug, Clone, PartialEq)]
pub struct Notable {
    /// The cgroup.
    pub cgroup: Arc<str>,
    /// How it was found.
    pub basis: Basis,
    /// The score, at most 1.
    pub score: f64,
    /// Number of observations.
    pub samples: u64,
}

/// A cause that is no other cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// The cgroup has exhausted its CPU quota: threads were preempted by it this number of times per second.
    Throttled(f64),
    /// The hypervisor gave this share of the CPU time to other virtual machines.
    Stolen(f64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled(rate) => {
                write!(f, "the cgroup has exhausted its CPU quota: {rate:.0} preemptions per second")
            }
            Self::Stolen(share) => {
                write!(f, "other virtual machines used {:.0}% of the CPU time (steal)", share * 100.0)
            }
        }
    }
}

/// What ran while threads of a cgroup waited for a CPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Meanwhile {
    /// Number of waits.
    pub waits: u64,
    /// Shares of the waited time in which other cgroups ran, the largest first.
    pub shares: Vec<(Arc<str>, f64)>,
}

/// Observations that the history does not contain.
pub trait Witness {
    /// Returns what ran while threads of a cgroup waited since this time; `None` if it is not recorded, or no thread waited.
    fn meanwhile(&self, cgroup: &str, since: Timestamp) -> Option<Meanwhile>;

    /// Returns the share of the CPU time of the last interval that the hypervisor gave to other virtual machines; `None` if it is unknown.
    fn stolen(&self) -> Option<f64>;
}

/// No observations.
impl Witness for () {
    fn meanwhile(&self, _: &str, _: Timestamp) -> Option<Meanwhile> {
        None
    }

    fn stolen(&self) -> Option<f64> {
        None
    }
}

/// The victim of an anomaly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Victim<'v> {
    pub(super) cgroup: &'v str,
    pub(super) subject: &'v Subject,
    pub(super) figure: &'v Measure,
    pub(super) method: &'v Method,
    /// What the last value was compared with.
    pub(super) expected: Option<Expected>,
    /// Begin of the interval of the first outlier.
    pub(super) since: Timestamp,
}

/// Possible causes of an anomaly.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Suspicion {
    /// Causes that are no other cgroup.
    pub causes: Vec<Cause>,
    /// Other cgroups, the most likely first.
    pub suspects: Vec<Notable>,
}

impl Suspicion {
    /// Examines the time of a grid, which ends with the interval that was judged.
    pub(super) fn of(victim: Victim<'_>, history: &History, past: &Grid, witness: &dyn Witness) -> Self {
        let throttled =
            victim.subject.rates(Rate::Throttling, past).and_then(|rates| rates.last().copied()?);
        let throttled = throttled.filter(|&rate| rate >= THROTTLED).map(Cause::Throttled);
        let stolen = witness.stolen().filter(|&share| share >= STOLEN).map(Cause::Stolen);
        let correlated = || correlated(victim, history, past);
        let suspects = match victim.figure {
            Measure::Kind(Kind::RunqueueLatency | Kind::InvoluntarySwitches) => {
                let meanwhile = witness.meanwhile(victim.cgroup, victim.since);
                meanwhile.as_ref().map_or_else(correlated, ran_meanwhile)
            }
            // The cgroup itself causes them.
            Measure::Kind(Kind::Forks | Kind::SyscallErrors | Kind::Throttling) => Vec::new(),
            Measure::Kind(Kind::Cpi | Kind::CacheMisses | Kind::MajorFaults | Kind::OffCpu)
            | Measure::Ratio { .. }
            | Measure::Latency { .. } => correlated(),
        };
        Self { causes: throttled.into_iter().chain(stolen).collect(), suspects }
    }
}

fn ran_meanwhile(meanwhile: &Meanwhile) -> Vec<Notable> {
    let notable = meanwhile.shares.iter().filter(|(_, share)| *share >= MEANWHILE).take(SUSPECTS);
    let notable = notable.map(|(cgroup, share)| Notable {
        cgroup: Arc::clone(cgroup),
        basis: Basis::RanMeanwhile,
        score: *share,
        samples: meanwhile.waits,
    });
    notable.collect()
}

/// Returns the other cgroups that used CPU time while the figure was high.
fn correlated(victim: Victim<'_>, history: &History, past: &Grid) -> Vec<Notable> {
    let known = |values: Vec<Option<f64>>| -> Vec<f64> {
        values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect()
    };
    let figure = victim.figure.values(history, victim.subject, past).map(known).unwrap_or_default();
    let others = history.subjects(Scope::Cgroup).filter(|(name, _)| !is_related(name, victim.cgroup));
    let activity = |(name, other): (_, &Subject)| {
        let cpi = Kind::Cpi.values(other, past).map(known).unwrap_or_default();
        Some(Activity { name, usage: known(usage(other, past)?), cpi })
    };
    let others: Vec<Activity<'_>> = others.filter_map(activity).collect();
    let Some(expected) = &victim.expected else { return Vec::new() };
    let mut found = notable(victim.method, &figure, expected, &others);
    found.retain(|suspect| suspect.samples >= COMPARED);
    let suspected = |suspect: Suspect<'_>| Notable {
        cgroup: suspect.name.into(),
        basis: Basis::Correlation,
        score: suspect.score,
        samples: suspect.samples as u64,
    };
    found.into_iter().map(suspected).collect()
}

/// Returns the CPU time per second of a cgroup in each step.
pub(super) fn usage(subject: &Subject, grid: &Grid) -> Option<Vec<Option<f64>>> {
    subject.values(Figure::Cpu, 0.5, grid)
}

/// Reports whether one of two cgroups contains the other.
fn is_related(one: &str, other: &str) -> bool {
    is_within(one, other) || is_within(other, one)
}

/// The score from which CPI² takes action.
pub const NOTABLE: f64 = 0.35;

/// Time over which suspects are compared, in milliseconds, as in CPI².
pub const WINDOW: u64 = 600_000;

/// Number of CPUs above its median that a suspect must use while the victim is slow, for the robust method.
const LEAST: f64 = 0.1;

/// What another cgroup did, by interval. Unknown values are not a number.
#[derive(Debug, Clone, Default)]
pub struct Activity<'s> {
    /// Its name.
    pub name: &'s str,
    /// CPU time per second.
    pub usage: Vec<f64>,
    /// Cycles per instruction; empty if they are not measured.
    pub cpi: Vec<f64>,
}

impl Activity<'_> {
    /// Returns the CPU time above its median, at the usual cycles per instruction.
    fn excess(&self) -> Vec<f64> {
        let usual = median(&self.cpi);
        // A cgroup did nothing before it existed.
        let begin = self.usage.iter().position(|used| used.is_finite()).unwrap_or(0);
        let work = |(place, &used): (usize, &f64)| {
            let cpi = self.cpi.get(place).copied().filter(|cpi| cpi.is_finite());
            let slower = usual.zip(cpi).map_or(1.0, |(usual, cpi)| (usual / cpi).min(1.0));
            if place < begin { 0.0 } else { used * slower }
        };
        let work: Vec<f64> = self.usage.iter().enumerate().map(work).collect();
        let usual = median(&work).unwrap_or(0.0);
        work.into_iter().map(|used| if used.is_nan() { used } else { (used - usual).max(0.0) }).collect()
    }
}

/// Returns the median of the known values.
fn median(values: &[f64]) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    known.sort_unstable_by(f64::total_cmp);
    known.get(known.len() / 2).copied()
}

/// Returns the suspects of an anomaly with a score of 0.35 and more, at most three, the highest first.
pub fn notable<'s>(
    method: &Method,
    victim: &[f64],
    expected: &Expected,
    others: &[Activity<'s>],
) -> Vec<Suspect<'s>> {
    let mut found = match method {
        Method::Robust(_) => by_excess(victim, (expected.center + expected.threshold) / 2.0, others),
        Method::Cpi2(_) | Method::Threshold(_) => {
            let usages = others.iter().map(|other| (other.name, &other.usage[..]));
            ranked(victim, expected.threshold, usages, SUSPECTS)
        }
    };
    found.retain(|suspect| suspect.score >= NOTABLE);
    found
}

/// Ranks suspects for the robust method.
fn by_excess<'s>(victim: &[f64], threshold: f64, others: &[Activity<'s>]) -> Vec<Suspect<'s>> {
    let is_slow = |figure: f64| figure.is_finite() && figure > threshold;
    let slow: Vec<f64> = victim.iter().copied().filter(|&figure| is_slow(figure)).collect();
    let highest = slow.iter().map(|figure| 1.0 - threshold / figure).sum::<f64>() / slow.len() as f64;
    let meanwhile = |excess: &[f64]| {
        let used = victim.iter().zip(excess).filter(|(figure, used)| is_slow(**figure) && used.is_finite());
        used.map(|(_, used)| used).sum::<f64>() / slow.len() as f64
    };
    let excesses = others.iter().map(|other| (other.name, other.excess()));
    let excesses: Vec<_> = excesses.filter(|(_, excess)| meanwhile(excess) >= LEAST).collect();
    let mut found =
        ranked(victim, threshold, excesses.iter().map(|(name, excess)| (*name, &excess[..])), SUSPECTS);
    // The mean is the highest score of a suspect that used the same in all slow intervals.
    found.iter_mut().for_each(|suspect| suspect.score = (suspect.score / highest).min(1.0));
    found
}

/// A suspect.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect<'s> {
    /// Its name.
    pub name: &'s str,
    /// From −1 to 1: above zero if it was active while the victim was slow.
    pub score: f64,
    /// Number of intervals in which both are known.
    pub samples: usize,
}

/// Returns the correlation of CPI² of a suspect's CPU time with the figure of a victim: with the suspect's usage `u` so that its sum is 1,
/// the victim's figure `c` and the threshold `T`, it is the sum of `u (1 − T/c)` over intervals with `c > T`, and of `u (c/T − 1)` over those
/// with `c < T`. Intervals in which one of both is not a number are left out. `None` if nothing is left, or the suspect used no CPU time.
pub fn correlation(victim: &[f64], threshold: f64, usage: &[f64]) -> Option<(f64, usize)> {
    let known = || {
        let pairs = victim.iter().copied().zip(usage.iter().copied());
        pairs.filter(|&(figure, used)| figure.is_finite() && used.is_finite() && figure >= 0.0 && used >= 0.0)
    };
    let total: f64 = known().map(|(_, used)| used).sum();
    if total <= 0.0 || !threshold.is_finite() || threshold <= 0.0 {
        return None;
    }
    let term =
        |figure: f64| if figure > threshold { 1.0 - threshold / figure } else { figure / threshold - 1.0 };
    let score = known().map(|(figure, used)| used / total * term(figure)).sum();
    Some((score, known().count()))
}

/// Ranks all suspects with a score above zero, the highest first, and of equal ones by name. Returns at most `most`.
pub fn ranked<'s, 'u>(
    victim: &[f64],
    threshold: f64,
    suspects: impl IntoIterator<Item = (&'s str, &'u [f64])>,
    most: usize,
) -> Vec<Suspect<'s>> {
    let scored = suspects.into_iter().filter_map(|(name, usage)| {
        let (score, samples) = correlation(victim, threshold, usage)?;
        (score > 0.0).then_some(Suspect { name, score, samples })
    });
    let mut ranked: Vec<_> = scored.collect();
    ranked.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.name.cmp(other.name)));
    ranked.truncate(most);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_correlation_has_the_values_worked_by_hand() {
        let victim = [2.0, 0.5];
        for (usage, expected) in [([1.0, 0.0], 0.5), ([0.0, 1.0], -0.5), ([0.5, 0.5], 0.0)] {
            assert_eq!(correlation(&victim, 1.0, &usage), Some((expected, 2)));
        }
    }

    #[test]
    fn it_does_not_depend_on_how_much_a_suspect_used_but_on_when() {
        let victim = [3.0, 1.0, 2.0, 0.5];
        let usage = [0.1, 0.4, 0.2, 0.3];
        let larger = usage.map(|used| used * 64.0);
        let [(one, _), (other, _)] = [usage, larger].map(|usage| correlation(&victim, 1.2, &usage).unwrap());
        assert!((one - other).abs() < 1e-12);
    }

    #[test]
    fn an_idle_suspect_an_unknown_figure_and_no_threshold_give_no_score() {
        assert_eq!(correlation(&[2.0], 1.0, &[0.0]), None);
        assert_eq!(correlation(&[f64::NAN], 1.0, &[1.0]), None);
        assert_eq!(correlation(&[2.0], f64::NAN, &[1.0]), None);
        assert_eq!(correlation(&[], 1.0, &[]), None);
    }

    #[test]
    fn a_constant_suspect_scores_below_one_that_runs_only_while_the_victim_is_slow() {
        let victim = [1.0, 1.0, 3.0, 3.0, 1.0, 1.0];
        let (constant, bursts) = ([1.0; 6], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        let suspects = [("a/constant", &constant[..]), ("b/bursts", &bursts[..])];
        let ranked = ranked(&victim, 1.5, suspects, 5);
        // By hand: bursts 1 − 1.5/3; the constant one has 2/6 of that, less 4/6 of 1 − 1/1.5.
        assert_eq!(ranked.len(), 1, "{ranked:?}");
        assert_eq!(ranked[0], Suspect { name: "b/bursts", score: 0.5, samples: 6 });
    }

    /// Returns the suspects of a victim that is slower by a half in the last 10 of 60 intervals.
    fn robust<'s>(others: &[Activity<'s>]) -> Vec<Suspect<'s>> {
        let victim: Vec<f64> = (0..60).map(|step| if step < 50 { 1.0 } else { 1.5 }).collect();
        let expected = Expected { center: 1.0, spread: 0.05, threshold: 1.25 };
        notable(&Method::Robust(Kind::Cpi.robust()), &victim, &expected, others)
    }

    fn steps(before: f64, meanwhile: f64) -> Vec<f64> {
        (0..60).map(|step| if step < 50 { before } else { meanwhile }).collect()
    }

    #[test]
    fn the_robust_score_is_one_for_a_suspect_that_runs_only_then_however_small_the_rise_is() {
        let other = |usage| Activity { name: "a", usage, cpi: Vec::new() };
        let found = robust(&[other(steps(0.0, 2.0))]);
        assert_eq!(found.len(), 1);
        assert!((found[0].score - 1.0).abs() < 1e-12, "{found:?}");
        // By hand: the correlation of the paper is 1 − 1.25/1.5 = 1/6 here.
        let (paper, _) = correlation(&steps(1.0, 1.5), 1.25, &steps(0.0, 2.0)).unwrap();
        assert!((paper - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(robust(&[other(steps(0.5, 2.0))])[0].score, found[0].score, "it was not idle before");
        assert_eq!(
            robust(&[other(steps(f64::NAN, 2.0))])[0].score,
            found[0].score,
            "it did not exist before"
        );
        assert!(robust(&[other(steps(1.0, 1.0))]).is_empty());
        assert!(robust(&[other(steps(0.0, 0.09))]).is_empty(), "too little to matter");
        assert!(robust(&[]).is_empty());
    }

    #[test]
    fn another_victim_uses_more_because_it_is_slow_and_is_no_suspect() {
        let cpi = steps(2.0, 6.0);
        let victim = Activity { name: "a", usage: steps(0.5, 1.5), cpi };
        assert!(robust(std::slice::from_ref(&victim)).is_empty());
        assert_eq!(robust(&[Activity { cpi: Vec::new(), ..victim }]).len(), 1, "unless that is not measured");
    }

    #[test]
    fn suspects_that_run_at_the_same_time_have_the_same_score_and_are_sorted_by_name() {
        let (victim, usage) = ([4.0, 1.0], [1.0, 0.0]);
        let ranked = ranked(&victim, 2.0, [("b", &usage[..]), ("a", &usage[..]), ("c", &usage[..])], 2);
        assert_eq!(ranked.iter().map(|suspect| suspect.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(ranked[0].score, ranked[1].score);
    }
}
