//! Collection requests of scrapes, in memory independent of their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Monotonic;

/// The newest requested collection. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand(
    /// The requested time in nanoseconds, plus 1; 0 = no request since the last [`take`](Demand::take).
    Arc<AtomicU64>,
);

impl Demand {
    /// Requests a collection that begins at `since` or later. Returns whether the collection thread must be notified. It is already
    /// notified if it has not taken an earlier request.
    pub(super) fn ask(&self, since: Monotonic) -> bool {
        let nanoseconds = u64::try_from(since.0.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        self.0.fetch_max(nanoseconds, Ordering::SeqCst) == 0
    }

    /// Takes the newest request.
    pub(super) fn take(&self) -> Option<Monotonic> {
        let nanoseconds = self.0.swap(0, Ordering::SeqCst).checked_sub(1)?;
        Some(Monotonic(Duration::from_nanos(nanoseconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_scrapes_are_one_demand_for_the_newest() {
        let (demand, moment) = (Demand::default(), |seconds| Monotonic(Duration::from_secs(seconds)));
        assert_eq!(demand.take(), None);
        assert!(demand.ask(moment(0)));
        for seconds in [5, 1000, 7] {
            assert!(!demand.ask(moment(seconds)));
        }
        assert_eq!((demand.take(), demand.take()), (Some(moment(1000)), None));
        assert!(demand.ask(moment(3)), "the thread has taken the request before");
    }
}
