//! Detection of high losses, for the log.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::status::Loss;

/// Interval between checks of losses. Longer if collections are less frequent.
const EVERY: Duration = Duration::from_secs(60);

/// Losses of one kind per interval that are logged. An overflow of a ring loses thousands of records at once.
const MANY: u64 = 1000;

/// Minimum time between log lines about one kind. Permanent losses are visible in metrics and `/status`.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// Loss counts at the last check.
#[derive(Debug)]
pub(super) struct LossWatch {
    seen: BTreeMap<(&'static str, &'static str), LossState>,
    checked_at: Monotonic,
}

#[derive(Debug, Default)]
struct LossState {
    count: u64,
    logged: Option<Monotonic>,
}

impl LossWatch {
    pub(super) fn since(now: Monotonic) -> Self {
        Self { seen: BTreeMap::new(), checked_at: now }
    }

    /// Returns the kinds with high losses since the last check, with the losses since then. Returns nothing within a minute of the last
    /// check, and no kind that was already returned within the last hour.
    pub(super) fn note(&mut self, losses: &[Loss], now: Monotonic) -> Vec<Loss> {
        if now.since(self.checked_at) < EVERY {
            return Vec::new();
        }
        self.checked_at = now;
        let news = losses.iter().filter_map(|loss| {
            let seen = self.seen.entry((loss.what, loss.reason)).or_default();
            let count = loss.count.saturating_sub(seen.count);
            seen.count = loss.count;
            let silent = seen.logged.is_some_and(|logged| now.since(logged) < LOG_INTERVAL);
            if silent || count < MANY {
                return None;
            }
            seen.logged = Some(now);
            Some(Loss { count, ..*loss })
        });
        news.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_losses_of_a_minute_are_told_once_and_few_are_not() {
        let moment = |seconds| Monotonic(Duration::from_secs(seconds));
        let losses = |full, throttled| {
            [("ring_full", full), ("throttled", throttled)].map(|(reason, count)| Loss {
                what: "records",
                reason,
                count,
            })
        };
        let mut watch = LossWatch::since(moment(0));
        let mut logged = |losses: &[Loss], at| -> Vec<(&str, u64)> {
            watch.note(losses, moment(at)).into_iter().map(|loss| (loss.reason, loss.count)).collect()
        };
        assert_eq!(logged(&losses(5000, 0), 30), [], "too soon");
        assert_eq!(logged(&losses(5000, 999), 60), [("ring_full", 5000)]);
        assert_eq!(logged(&losses(5000, 999), 120), []);
        assert_eq!(logged(&losses(5999, 1999), 180), [("throttled", 1000)]);
        assert_eq!(logged(&losses(9999, 1999), 240), [], "within the hour");
        assert_eq!(logged(&losses(19_999, 1999), 3660), [("ring_full", 10_000)]);
    }
}
