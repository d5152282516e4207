//! Outliers that come close together are one anomaly.

use std::collections::VecDeque;

/// When outliers are an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Number of outliers.
    pub outliers: usize,
    /// Time in which they occur, in milliseconds: from the first to the last of them. The anomaly ends when no outlier occurred for this
    /// time.
    pub within: u64,
}

impl Default for Rule {
    /// The rule of CPI²: three outliers in five minutes.
    fn default() -> Self {
        Self { outliers: 3, within: 300_000 }
    }
}

/// The begin or the end of an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It begins, with its first outlier at this time.
    Began(u64),
    /// It ends, with its last outlier at this time.
    Ended(u64),
}

/// The recent outliers of a subject.
#[derive(Debug, Clone, Default)]
pub struct Episode {
    /// Times of the last outliers, at most as many as the rule requires.
    recent: VecDeque<u64>,
    /// Time of the first outlier of the anomaly; `None` if there is no anomaly.
    since: Option<u64>,
}

impl Episode {
    /// Returns the time of the first outlier of the current anomaly.
    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// Notes an interval that ended at `at`, and whether it was an outlier. Intervals that are not judged are noted as no outliers: an
    /// anomaly of which nothing is known any more also ends.
    pub fn note(&mut self, rule: Rule, at: u64, is_outlier: bool) -> Option<Change> {
        if is_outlier {
            if self.recent.len() >= rule.outliers.max(1) {
                self.recent.pop_front();
            }
            self.recent.push_back(at);
        }
        let (&first, &last) = self.recent.front().zip(self.recent.back())?;
        if self.since.is_some() {
            let is_over = at.saturating_sub(last) > rule.within;
            return is_over.then(|| {
                *self = Self::default();
                Change::Ended(last)
            });
        }
        let begins =
            is_outlier && self.recent.len() >= rule.outliers && last.saturating_sub(first) <= rule.within;
        begins.then(|| {
            self.since = Some(first);
            Change::Began(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn changes(outliers: &[u64], until: u64) -> Vec<(u64, Change)> {
        let mut episode = Episode::default();
        let times = (0..=until).step_by(1000);
        times
            .filter_map(|at| Some((at, episode.note(Rule::default(), at, outliers.contains(&at))?)))
            .collect()
    }

    #[test]
    fn the_third_outlier_after_exactly_five_minutes_is_an_anomaly_and_a_second_later_it_is_not() {
        assert_eq!(changes(&[0, MINUTE, 5 * MINUTE], 6 * MINUTE), [(5 * MINUTE, Change::Began(0))]);
        assert_eq!(changes(&[0, MINUTE, 5 * MINUTE + 1000], 6 * MINUTE), []);
    }

    #[test]
    fn it_ends_when_more_than_five_minutes_passed_without_an_outlier() {
        let [a, b, c, d] = [0, 10_000, 20_000, 200_000];
        assert_eq!(
            changes(&[a, b, c, d], 9 * MINUTE),
            [(c, Change::Began(a)), (d + 5 * MINUTE + 1000, Change::Ended(d))]
        );
    }

    #[test]
    fn two_outliers_are_none_however_close() {
        assert_eq!(changes(&[1000, 2000], 9 * MINUTE), []);
    }

    #[test]
    fn after_its_end_three_new_outliers_are_needed() {
        let later = 10 * MINUTE;
        let outliers = [0, 1000, 2000, later, later + 1000, later + 2000];
        let began = |changes: &[(u64, Change)]| {
            changes
                .iter()
                .filter(|(_, change)| matches!(change, Change::Began(_)))
                .map(|change| change.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(began(&changes(&outliers, 20 * MINUTE)), [2000, later + 2000]);
    }
}
