//! Ranks the cgroups that were active while another cgroup, the victim, was slow. They are suspects: the cause may be another one.

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
