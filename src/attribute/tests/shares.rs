//! The table of counts by owner.

use super::super::shares::{Provided, Row, Shares};
use super::super::{Owner, Reason};
use crate::health::Interval;
use crate::targets::CgroupId;

/// Two cgroups in a table of `width` counters, which are consecutive members of a group behind its leader and its clock.
struct Table {
    shares: Shares,
    rows: [Row; 2],
    provided: Vec<Provided>,
}

impl Table {
    fn new(width: usize) -> Self {
        let mut shares = Shares::new(width, true);
        let rows = [5, 6].map(|cgroup| shares.add_row(Owner::Cgroup(CgroupId(cgroup))).unwrap());
        let provided = (0..width).map(|counter| Provided { member: 2 + counter, counter });
        Self { shares, rows, provided: provided.collect() }
    }

    /// Adds counts of a row, and nanoseconds in which the counters were enabled and on the PMU.
    fn counts<const N: usize>(&mut self, row: usize, counts: [u64; N], (enabled, running): (u64, u64)) {
        self.shares.attribute(self.rows[row], &self.provided, &members(counts), 0);
        self.shares.attribute_presence(self.rows[row], &self.provided, Interval { enabled, running });
    }

    /// Distributes counts over both rows, with the nanoseconds in which the counters were on the PMU for each.
    fn splits<const N: usize>(&mut self, counts: [u64; N], seen: [u64; 2]) {
        let rows = [(self.rows[0], seen[0]), (self.rows[1], seen[1])];
        self.shares.attribute_shared(&rows, &self.provided, &members(counts));
    }

    /// Returns the counts of both rows.
    fn rows(&self) -> [Vec<u64>; 2] {
        [5, 6].map(|cgroup| {
            let owner = Owner::Cgroup(CgroupId(cgroup));
            self.shares.iter().find(|&(known, _)| *known == owner).unwrap().1.counts.to_vec()
        })
    }
}

/// Returns the counts of all members of the group.
fn members<const N: usize>(counts: [u64; N]) -> Vec<u64> {
    [&[1, 1000][..], &counts].concat()
}

#[test]
fn each_counter_is_distributed_by_its_own_rates() {
    let mut table = Table::new(3);
    // Counts per nanosecond on the PMU: 10, 1 and 2 in the first row, 5, 4 and 2 in the second.
    table.counts(0, [100, 10, 20], (40, 10));
    table.counts(1, [25, 20, 10], (10, 5));
    // Expected in 10 and 20 nanoseconds: 100 and 100, 10 and 80, 20 and 40.
    table.splits([300, 180, 90], [10, 20]);
    assert_eq!(table.rows(), [vec![100 + 150, 10 + 20, 20 + 30], vec![25 + 150, 20 + 160, 10 + 60]]);
}

#[test]
fn counts_are_distributed_by_time_if_one_rate_is_unknown() {
    let mut table = Table::new(1);
    // Counts after a lost record come without a time on the PMU.
    table.counts(0, [100], (0, 0));
    table.counts(1, [25], (5, 5));
    table.splits([300], [10, 20]);
    assert_eq!(table.rows(), [vec![100 + 100], vec![25 + 200]]);
}

#[test]
fn counts_are_distributed_by_time_if_no_row_has_counts() {
    let mut table = Table::new(1);
    table.counts(0, [0], (10, 10));
    table.counts(1, [0], (10, 10));
    table.splits([300], [10, 20]);
    assert_eq!(table.rows(), [vec![100], vec![200]]);
}

#[test]
fn the_last_row_has_the_rest_of_a_count_that_cannot_be_divided() {
    let mut table = Table::new(1);
    table.splits([100], [10, 20]);
    assert_eq!(table.rows(), [vec![33], vec![67]]);
}

#[test]
fn a_row_has_no_more_than_the_whole_count() {
    let mut table = Table::new(1);
    // As a floating-point number, this count is rounded up.
    table.splits([(1 << 53) + 3], [10, 0]);
    assert_eq!(table.rows(), [vec![(1 << 53) + 3], vec![0]]);
}

#[test]
fn each_counter_of_a_row_has_its_own_time_on_the_pmu() {
    let mut table = Table::new(3);
    let last = [Provided { member: 2, counter: 2 }];
    table.shares.attribute_presence(table.rows[1], &last, Interval { enabled: 20, running: 10 });
    let presence: Vec<_> = table.shares.iter().map(|(_, share)| share.presence(2)).collect();
    let none = Interval::default();
    assert_eq!(presence[6..], [none, Interval { enabled: 20, running: 10 }]);
    assert!(presence[..6].iter().all(|&other| other == none));
    assert!(table.shares.iter().all(|(_, share)| share.presence(0) == none && share.presence(1) == none));
}

#[test]
fn a_share_with_a_count_or_a_time_is_not_empty() {
    let table = |counts, time, enabled| {
        let mut table = Table::new(1);
        table.shares.attribute(table.rows[0], &table.provided, &members([counts]), time);
        table.shares.attribute_presence(table.rows[0], &table.provided, Interval { enabled, running: 0 });
        table.shares.iter().filter(|(_, share)| !share.is_empty()).count()
    };
    assert_eq!([table(0, 0, 0), table(1, 0, 0), table(0, 1, 0), table(0, 0, 1)], [0, 1, 1, 1]);
}

#[test]
fn a_table_has_131_072_rows_at_most() {
    let mut shares = Shares::new(2, true);
    let of_reasons = 1 + Reason::ALL.len();
    let added =
        (0..140_000).filter(|&cgroup| shares.add_row(Owner::Cgroup(CgroupId(cgroup))).is_some()).count();
    assert_eq!(added + of_reasons, 131_072);
}
