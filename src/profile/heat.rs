//! Heat maps: the number of samples by second, and by offset within the second.

use super::TimeRange;
use crate::clock::Timestamp;

/// The number of samples by second and by offset within the second. A burst that recurs in each second is a row, a pause is an empty area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatMap {
    /// When the first second begins: a whole second.
    pub from: Timestamp,
    /// The time from which on all samples are included. Samples before it have left the log.
    pub complete_from: Timestamp,
    /// For each second the number of samples in each row. The rows divide a second evenly.
    pub counts: Vec<Box<[u32]>>,
}

impl HeatMap {
    /// The maximum number of seconds.
    pub const MAX_SECONDS: u64 = 3600;
    /// The maximum number of rows.
    pub const MAX_ROWS: u32 = 100;

    /// Creates an empty map of a range, which is extended to whole seconds and shortened to [`MAX_SECONDS`](Self::MAX_SECONDS). It has at
    /// least one row and at most [`MAX_ROWS`](Self::MAX_ROWS).
    pub(super) fn new(range: TimeRange, rows: u32) -> Self {
        let rows = rows.clamp(1, Self::MAX_ROWS) as usize;
        let seconds = range.seconds().min(Self::MAX_SECONDS) as usize;
        let from = Timestamp(range.from.0 / 1000 * 1000);
        Self { from, complete_from: from, counts: vec![vec![0; rows].into_boxed_slice(); seconds] }
    }

    /// Returns the time after its last second.
    pub fn to(&self) -> Timestamp {
        Timestamp(self.from.0.saturating_add(self.counts.len() as u64 * 1000))
    }

    /// Adds samples at an offset from the begin, in nanoseconds.
    pub(super) fn add(&mut self, offset: u64, count: u64) {
        const SECOND: u64 = 1_000_000_000;
        let Some(second) = self.counts.get_mut((offset / SECOND) as usize) else { return };
        let row = offset % SECOND * second.len() as u64 / SECOND;
        if let Some(cell) = second.get_mut(row as usize) {
            *cell = cell.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_second_and_offset() {
        let range = TimeRange { from: Timestamp(5_700), to: Timestamp(8_001) };
        let mut map = HeatMap::new(range, 50);
        assert_eq!((map.from, map.to(), map.counts.len()), (Timestamp(5_000), Timestamp(9_000), 4));
        for offset in [0, 19_999_999, 20_000_000, 999_999_999, 1_500_000_000, 4_000_000_000] {
            map.add(offset, 2);
        }
        let cells = map.counts.iter().map(|second| {
            let cells = second.iter().enumerate().filter(|(_, count)| **count > 0);
            cells.map(|(row, &count)| (row, count)).collect::<Vec<_>>()
        });
        assert_eq!(cells.collect::<Vec<_>>(), [vec![(0, 4), (1, 2), (49, 2)], vec![(25, 2)], vec![], vec![]]);
    }

    #[test]
    fn its_size_is_bounded() {
        let map = HeatMap::new(TimeRange { from: Timestamp(0), to: Timestamp(u64::MAX) }, u32::MAX);
        assert_eq!((map.counts.len(), map.counts[0].len()), (3600, 100));
        let mut none = HeatMap::new(TimeRange { from: Timestamp(9), to: Timestamp(3) }, 0);
        none.add(0, u64::MAX);
        assert!(none.counts.is_empty());
    }
}
