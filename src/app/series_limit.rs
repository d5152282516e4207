//! The number of series that fit into their share of `limits.memory`.
//!
//! `limits.series` bounds each table of series by number. When all tables together exceed the share of [`Part::Series`], the largest tables
//! are reduced to a common length. Series above this length are aggregated into `other`. When memory is available again, the tables at that
//! length may grow.
//!
//! [`Part::Series`]: crate::budget::Part::Series

/// Lower bound of the length of every table. It prevents a single process from suppressing the series of others.
const MIN: usize = 64;

/// Divisor of the share that stays free. Series differ in size, and their number varies slightly between collections.
const FREE: u64 = 16;

/// The length is raised by at least this fraction of it, because each change adds or removes series.
const RAISED_BY: usize = 8;

/// What the tables of series hold at the end of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableUsage {
    /// The number of series in each table.
    pub(super) tables: Vec<usize>,
    /// Bytes of all tables, and of the snapshots made of them.
    pub(super) bytes: u64,
    /// The share in bytes.
    pub(super) share: u64,
}

/// The length that every table of series is limited to.
#[derive(Debug, Default)]
pub(super) struct SeriesLimit {
    /// `None` while all series fit.
    length: Option<usize>,
}

impl SeriesLimit {
    /// The number of series that each table may have. `configured` is `limits.series`.
    pub(super) fn length(&self, configured: usize) -> usize {
        self.length.map_or(configured, |length| length.min(configured))
    }

    /// Adjusts the length to what the tables hold. Returns whether it changed. Takes linear time in the number of tables.
    pub(super) fn note(&mut self, held: &TableUsage, configured: usize) -> bool {
        let before = self.length(configured);
        let total: usize = held.tables.iter().sum();
        // Includes the points of the series. The lower bound is an assumption for empty tables.
        let each = (held.bytes / total.max(1) as u64).max(256);
        let aim = held.share - held.share / FREE;
        if held.bytes > held.share {
            let excess = (held.bytes - aim).div_ceil(each) as usize;
            self.length = Some(level(&held.tables, excess).clamp(MIN, before.max(MIN)));
        } else if let Some(length) = self.length {
            let full = held.tables.iter().filter(|&&table| table >= length).count().max(1);
            let more = (aim.saturating_sub(held.bytes) / each) as usize / full;
            if more > length / RAISED_BY {
                self.length = Some(length.saturating_add(more)).filter(|&length| length < configured);
            }
        }
        self.length(configured) != before
    }
}

/// The length to which the largest tables are reduced so that all of them together lose at least `excess` series.
fn level(tables: &[usize], mut excess: usize) -> usize {
    let mut tables = tables.to_vec();
    tables.sort_unstable_by(|a, b| b.cmp(a));
    let mut length = tables.first().copied().unwrap_or_default();
    for (index, _) in tables.iter().enumerate() {
        // These are at `length` now.
        let reduced = index + 1;
        let next = tables.get(reduced).copied().unwrap_or_default();
        let step = (length - next) * reduced;
        if step >= excess {
            return length - excess.div_ceil(reduced);
        }
        excess -= step;
        length = next;
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(tables: &[usize], share: u64) -> TableUsage {
        let bytes = tables.iter().sum::<usize>() as u64 * 1000;
        TableUsage { tables: tables.to_vec(), bytes, share }
    }

    #[test]
    fn while_all_series_fit_the_configured_limit_holds() {
        let mut limit = SeriesLimit::default();
        assert!(!limit.note(&held(&[900, 100], 1_000_000), 5000));
        assert_eq!(limit.length(5000), 5000);
        assert!(!limit.note(&TableUsage::default(), 5000));
    }

    #[test]
    fn over_the_share_the_largest_tables_are_reduced_to_a_common_length() {
        let mut limit = SeriesLimit::default();
        assert!(limit.note(&held(&[1000, 100, 700], 1_300_000), 5000));
        assert_eq!(limit.length(5000), 559, "a sixteenth of the share stays free");
        assert!(!limit.note(&held(&[559, 100, 559], 1_300_000), 5000), "it fits");
    }

    #[test]
    fn tables_grow_again_when_there_is_room() {
        let mut limit = SeriesLimit::default();
        limit.note(&held(&[1000, 1000], 1_000_000), 5000);
        assert_eq!(limit.length(5000), 468);
        assert!(!limit.note(&held(&[468, 460], 1_000_000), 5000), "a little room changes nothing");
        assert!(limit.note(&held(&[468, 100], 1_000_000), 5000));
        assert_eq!(limit.length(5000), 837);
        assert!(limit.note(&held(&[468, 100], 100_000_000), 5000));
        assert_eq!(limit.length(5000), 5000);
    }

    #[test]
    fn the_length_never_falls_below_the_least() {
        let mut limit = SeriesLimit::default();
        limit.note(&held(&[10_000; 4], 1000), 5000);
        assert_eq!(limit.length(5000), MIN);
        assert_eq!(limit.length(10), 10);
    }

    proptest! {
        #[test]
        fn tables_that_obey_fit_after_one_collection(
            tables in prop::collection::vec(0..5000usize, 1..20),
            share in 1_500_000..50_000_000u64,
        ) {
            let mut limit = SeriesLimit::default();
            limit.note(&held(&tables, share), 100_000);
            let length = limit.length(100_000);
            let reduced: Vec<usize> = tables.iter().map(|&table| table.min(length)).collect();
            let after = held(&reduced, share);
            prop_assert!(after.bytes <= share || length == MIN);
            prop_assert!(!limit.note(&after, 100_000) || limit.length(100_000) > length);
        }
    }
}
