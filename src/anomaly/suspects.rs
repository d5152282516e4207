//! Ranks the cgroups that were active while another cgroup, the victim, was slow. They are suspects: the cause may be another one.

use std::fmt;
use std::sync::Arc;

use super::Kind;
use super::measure::Measure;
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
    /// Values above this are outliers.
    pub(super) threshold: f64,
    /// Begin of the interval of the first outlier.
    pub(super) since: Timestamp,
}

/// The answer to the question who may be the cause.
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
    let usages: Vec<(&str, Vec<f64>)> =
        others.filter_map(|(name, other)| Some((name, known(usage(other, past)?)))).collect();
    let usages = usages.iter().map(|(name, usage)| (*name, &usage[..]));
    let notable = |suspect: Suspect<'_>| {
        (suspect.score >= NOTABLE && suspect.samples >= COMPARED).then(|| Notable {
            cgroup: suspect.name.into(),
            basis: Basis::Correlation,
            score: suspect.score,
            samples: suspect.samples as u64,
        })
    };
    ranked(&figure, victim.threshold, usages, SUSPECTS).into_iter().filter_map(notable).collect()
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
pub fn ranked<'s>(
    victim: &[f64],
    threshold: f64,
    suspects: impl IntoIterator<Item = (&'s str, &'s [f64])>,
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

    #[test]
    fn suspects_that_run_at_the_same_time_have_the_same_score_and_are_sorted_by_name() {
        let (victim, usage) = ([4.0, 1.0], [1.0, 0.0]);
        let ranked = ranked(&victim, 2.0, [("b", &usage[..]), ("a", &usage[..]), ("c", &usage[..])], 2);
        assert_eq!(ranked.iter().map(|suspect| suspect.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(ranked[0].score, ranked[1].score);
    }
}
