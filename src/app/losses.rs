//! Losses in the log: what was measured and lost, if it is much.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::export::status::Loss;

/// How often losses are looked at.
const EVERY: Duration = Duration::from_secs(60);

/// How many of one kind in that time are worth a line. A ring that runs over loses thousands at once.
const MANY: u64 = 1000;

/// What was lost until it was looked at last.
#[derive(Debug)]
pub(super) struct LossWatch {
    seen: BTreeMap<(String, String), u64>,
    looked: Monotonic,
}

impl LossWatch {
    pub(super) fn since(now: Monotonic) -> Self {
        Self { seen: BTreeMap::new(), looked: now }
    }

    /// Those of which many came in the last minute, with how many those are; nothing before a minute has passed.
    pub(super) fn note(&mut self, losses: &[Loss], now: Monotonic) -> Vec<Loss> {
        if now.since(self.looked) < EVERY {
            return Vec::new();
        }
        self.looked = now;
        let news = losses.iter().filter_map(|loss| {
            let key = (loss.what.clone(), loss.reason.clone());
            let before = self.seen.insert(key, loss.count).unwrap_or(0);
            let count = loss.count.saturating_sub(before);
            (count >= MANY).then(|| Loss { count, ..loss.clone() })
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
                what: "records".into(),
                reason: reason.into(),
                count,
            })
        };
        let mut watch = LossWatch::since(moment(0));
        let mut told = |losses: &[Loss], at| -> Vec<(String, u64)> {
            watch.note(losses, moment(at)).into_iter().map(|loss| (loss.reason, loss.count)).collect()
        };
        assert_eq!(told(&losses(5000, 0), 30), [], "too soon");
        assert_eq!(told(&losses(5000, 999), 60), [("ring_full".into(), 5000)]);
        assert_eq!(told(&losses(5000, 999), 120), []);
        assert_eq!(told(&losses(5999, 1999), 180), [("throttled".into(), 1000)]);
    }
}
