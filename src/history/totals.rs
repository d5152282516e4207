//! The lists of a subject without a history: since the begin of its series.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::additional::Additional;
use super::amounts::Amounts;
use super::lists::{List, Listed};
use super::quantity::{Scope, found};
use crate::metrics::Snapshot;

/// Returns the lists of a subject since the begin of its series, with all names.
pub fn totals(snapshot: &Snapshot, scope: Scope, name: &str) -> Vec<Listed> {
    let mut lists: BTreeMap<List, Vec<(Arc<str>, f64)>> = BTreeMap::new();
    for found in found(snapshot, &Additional::default()).filter(|found| found.scope == scope) {
        let own = found.family.points().iter().filter(|point| found.subject(&point.labels) == Some(name));
        for point in own {
            if let Some((list, line)) = found.line(name, &point.labels) {
                let total = Amounts { earlier: None, now: &point.value }.total();
                lists.entry(list).or_default().push((line.into(), total));
            }
        }
    }
    lists.into_iter().filter_map(|(list, values)| Listed::new(list, values.into_iter())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::metrics::{Family, Kind, Labels, Metadata, Point, Value};

    fn family(name: &str, points: &[(&[(&str, &str)], u64)]) -> Family {
        let metadata = Metadata::new(name, "help", "", Kind::Counter).unwrap();
        let point = |&(labels, count): &(&[(&str, &str)], u64)| Point {
            labels: Labels::new(labels.iter().copied()),
            value: Value::Integer(count),
            start: Timestamp(0),
        };
        Family::new(metadata, points.iter().map(point).collect())
    }

    #[test]
    fn lists_contain_the_subject_only_and_begin_with_the_most() {
        let snapshot = Snapshot::new(
            Timestamp(0),
            [
                family(
                    "perf_cgroup_syscalls",
                    &[
                        (&[("cgroup", "/a"), ("syscall", "read")], 5),
                        (&[("cgroup", "/a"), ("syscall", "write")], 7),
                        (&[("cgroup", "/a"), ("syscall", "other")], 8),
                        (&[("cgroup", "/a"), ("syscall", "close")], 0),
                        (&[("cgroup", "/b"), ("syscall", "close")], 9),
                    ],
                ),
                family(
                    "perf_cgroup_sched_preempted_by_cgroup",
                    &[
                        (&[("by_cgroup", "/a"), ("cgroup", "/a")], 100),
                        (&[("by_cgroup", "/b"), ("cgroup", "/a")], 3),
                        (&[("by_cgroup", "/a"), ("cgroup", "/b")], 4),
                    ],
                ),
                family("perf_cgroup_tcp_send", &[(&[("cgroup", "/a")], 12)]),
                family("perf_cgroup_page_faults", &[(&[("cgroup", "/a")], 12)]),
            ],
        );
        let listed = |list, lines: &[(&str, f64)]| {
            let lines = lines.iter().map(|&(name, value)| (name.into(), value)).collect();
            Listed { list, lines }
        };
        assert_eq!(
            totals(&snapshot, Scope::Cgroup, "/a"),
            [
                listed(List::PreemptedBy, &[("/b", 3.0)]),
                listed(List::Preempts, &[("/b", 4.0)]),
                listed(List::Calls, &[("write", 7.0), ("read", 5.0), ("other", 8.0)]),
                listed(List::Events, &[("tcp_send", 12.0)]),
            ]
        );
    }

    #[test]
    fn sums_of_sizes_are_no_hits() {
        let bytes = Metadata::new("perf_cgroup_tcp_send_bytes", "help", "bytes", Kind::Counter).unwrap();
        let point =
            Point { labels: Labels::new([("cgroup", "/a")]), value: Value::Integer(9), start: Timestamp(0) };
        let snapshot = Snapshot::new(Timestamp(0), [Family::new(bytes, vec![point])]);
        assert_eq!(totals(&snapshot, Scope::Cgroup, "/a"), []);
    }
}
