//! The slices that a span between two records of hardware events consists of.

use super::super::Reason;
use super::super::timeline::{OwnerKey, Slice, Span, Timeline};

const UNKNOWN: OwnerKey = OwnerKey::Unattributed(Reason::Unknown);

/// Returns the timeline of these ends and cgroups. Each slice begins at the end of the one before it.
fn timeline(slices: &[(u64, u64)]) -> Timeline {
    let (mut timeline, mut begin) = (Timeline::default(), 0);
    for &(end, cgroup) in slices {
        timeline.push(end, end - begin, OwnerKey::Cgroup(cgroup));
        begin = end;
    }
    timeline
}

/// Returns a span that ends with a record at a switch, and does not begin with one.
fn span(from: u64, to: u64, own: OwnerKey) -> Span {
    Span { from, to, left: None, own, at_switch: true }
}

fn between(timeline: &Timeline, span: &Span) -> Vec<(u64, u64, OwnerKey)> {
    let mut slices = Vec::new();
    timeline.between(span, &mut slices);
    slices.iter().map(|&Slice { begin, end, owner }| (begin, end, owner)).collect()
}

/// Returns the expected result of [`between`].
fn owned(slices: &[(u64, u64, u64)]) -> Vec<(u64, u64, OwnerKey)> {
    slices.iter().map(|&(begin, end, cgroup)| (begin, end, OwnerKey::Cgroup(cgroup))).collect()
}

/// Three owners of a millisecond each.
const THREE: &[(u64, u64)] = &[(1_000_000, 5), (2_000_000, 6), (3_000_000, 7)];

#[test]
fn a_span_contains_the_parts_of_the_slices_between_its_ends() {
    let at_tick = Span { at_switch: false, ..span(500_000, 2_500_000, OwnerKey::Cgroup(7)) };
    let expected = [(500_000, 1_000_000, 5), (1_000_000, 2_000_000, 6), (2_000_000, 2_500_000, 7)];
    assert_eq!(between(&timeline(THREE), &at_tick), owned(&expected));
}

#[test]
fn a_span_that_begins_and_ends_with_a_slice_contains_only_that_slice() {
    let exact = Span { at_switch: false, ..span(1_000_000, 2_000_000, OwnerKey::Cgroup(6)) };
    assert_eq!(between(&timeline(THREE), &exact), owned(&[(1_000_000, 2_000_000, 6)]));
}

#[test]
fn the_owner_of_the_record_has_the_time_after_the_last_slice() {
    let later = span(2_500_000, 4_000_000, OwnerKey::Cgroup(8));
    let expected = [(2_500_000, 3_000_000, 7), (3_000_000, 4_000_000, 8)];
    assert_eq!(between(&timeline(THREE), &later), owned(&expected));
    assert_eq!(between(&Timeline::default(), &later), owned(&[(2_500_000, 4_000_000, 8)]));
}

#[test]
fn a_slice_that_begins_after_the_span_has_no_part_of_it() {
    let mut timeline = timeline(&[(1_000_000, 5)]);
    // No slice covers the time in between.
    timeline.push(3_000_000, 1_000_000, OwnerKey::Cgroup(6));
    let tick = Span { at_switch: false, ..span(500_000, 1_500_000, OwnerKey::Cgroup(6)) };
    let expected = [(500_000, 1_000_000, 5), (1_500_000, 1_500_000, 6)];
    assert_eq!(between(&timeline, &tick), owned(&expected));
}

#[test]
fn records_less_than_a_tenth_of_a_millisecond_apart_are_of_one_switch() {
    let timeline = timeline(THREE);
    let late = |by: u64| between(&timeline, &span(1_000_000, 2_000_000 + by, OwnerKey::Cgroup(6)));
    assert_eq!(late(99_999), owned(&[(1_000_000, 2_099_999, 6)]));
    assert_eq!(late(100_000), owned(&[(1_000_000, 2_000_000, 6), (2_000_000, 2_100_000, 7)]));
}

#[test]
fn a_record_of_the_clock_is_of_no_switch() {
    let tick = Span { at_switch: false, ..span(1_000_000, 2_050_000, OwnerKey::Cgroup(6)) };
    let expected = [(1_000_000, 2_000_000, 6), (2_000_000, 2_050_000, 7)];
    assert_eq!(between(&timeline(THREE), &tick), owned(&expected));
}

#[test]
fn a_record_with_another_owner_is_of_the_next_switch() {
    // The software events write the record of this switch a tenth of a millisecond later.
    let timeline = timeline(&[(1_000_000, 5), (2_000_000, 6), (2_150_000, 7), (3_000_000, 8)]);
    let expected = [(1_000_000, 2_000_000, 6), (2_000_000, 2_050_000, 7)];
    assert_eq!(between(&timeline, &span(1_000_000, 2_050_000, OwnerKey::Cgroup(7))), owned(&expected));
}

#[test]
fn a_record_without_a_pid_is_of_the_nearest_switch() {
    let timeline = timeline(&[(1_000_000, 5), (2_000_000, 6), (2_060_000, 7), (3_000_000, 8)]);
    let slices = |to, own| between(&timeline, &span(1_000_000, to, own));
    assert_eq!(slices(2_020_000, UNKNOWN), owned(&[(1_000_000, 2_020_000, 6)]));
    // The earlier of two equally near ones.
    assert_eq!(slices(2_030_000, UNKNOWN), owned(&[(1_000_000, 2_030_000, 6)]));
    assert_eq!(slices(2_050_000, UNKNOWN), owned(&[(1_000_000, 2_000_000, 6), (2_000_000, 2_050_000, 7)]));
    // With a pid, the owner decides.
    assert_eq!(slices(2_050_000, OwnerKey::Cgroup(6)), owned(&[(1_000_000, 2_050_000, 6)]));
}

#[test]
fn a_record_without_a_pid_is_of_the_last_switch_if_none_follows() {
    let timeline = timeline(&[(1_000_000, 5), (2_000_000, 6)]);
    assert_eq!(between(&timeline, &span(1_000_000, 2_020_000, UNKNOWN)), owned(&[(1_000_000, 2_020_000, 6)]));
}

#[test]
fn the_slice_of_the_owner_that_left_at_the_begin_of_the_span_is_not_in_it() {
    let timeline = timeline(&[(950_000, 4), (1_000_000, 5), (2_000_000, 6)]);
    let after = |from, left| {
        let begun = Span { left: Some(left), at_switch: false, ..span(from, 1_500_000, OwnerKey::Cgroup(6)) };
        between(&timeline, &begun)
    };
    assert_eq!(after(990_000, OwnerKey::Cgroup(5)), owned(&[(1_000_000, 1_500_000, 6)]));
    assert_eq!(after(990_000, UNKNOWN), owned(&[(1_000_000, 1_500_000, 6)]));
    // 4 left at 960 000, so 5 had the CPU from then on.
    assert_eq!(
        after(960_000, OwnerKey::Cgroup(4)),
        owned(&[(960_000, 1_000_000, 5), (1_000_000, 1_500_000, 6)])
    );
    // 5 left long before, and returned.
    let again =
        Span { left: Some(OwnerKey::Cgroup(6)), at_switch: false, ..span(1_200_000, 1_500_000, UNKNOWN) };
    assert_eq!(between(&timeline, &again), owned(&[(1_200_000, 1_500_000, 6)]));
}

#[test]
fn a_span_between_two_records_of_one_switch_is_of_its_own_owner() {
    let timeline = timeline(&[(1_000_000, 5), (1_020_000, 6), (3_000_000, 7)]);
    let short = Span { left: Some(OwnerKey::Cgroup(6)), ..span(1_010_000, 1_015_000, OwnerKey::Cgroup(5)) };
    assert_eq!(between(&timeline, &short), owned(&[(1_010_000, 1_015_000, 5)]));
}

#[test]
fn consecutive_slices_of_one_owner_are_one_slice() {
    let timeline = timeline(&[(1_000_000, 5), (2_000_000, 5)]);
    assert_eq!(between(&timeline, &span(0, 2_000_000, OwnerKey::Cgroup(5))), owned(&[(0, 2_000_000, 5)]));
}

#[test]
fn a_slice_that_ends_before_its_predecessor_does_not_set_the_end_back() {
    let mut timeline = timeline(&[(2_000_000, 5)]);
    timeline.push(1_900_000, 100_000, OwnerKey::Cgroup(6));
    assert_eq!(timeline.end(), 2_000_000);
}

#[test]
fn a_slice_that_is_longer_than_the_time_so_far_begins_at_zero() {
    let mut timeline = Timeline::default();
    timeline.push(1_000_000, 2_000_000, OwnerKey::Cgroup(5));
    assert_eq!(between(&timeline, &span(0, 1_000_000, OwnerKey::Cgroup(5))), owned(&[(0, 1_000_000, 5)]));
}

#[test]
fn slices_up_to_a_time_are_removed() {
    let mut timeline = timeline(THREE);
    timeline.forget(999_999);
    let whole = Span { at_switch: false, ..span(0, 1_500_000, OwnerKey::Cgroup(6)) };
    assert_eq!(between(&timeline, &whole), owned(&[(0, 1_000_000, 5), (1_000_000, 1_500_000, 6)]));
    timeline.forget(1_000_000);
    assert_eq!(between(&timeline, &whole), owned(&[(1_000_000, 1_500_000, 6)]));
}

#[test]
fn the_oldest_slice_is_taken_if_there_are_too_many_and_it_ended_in_time() {
    let mut timeline = timeline(THREE);
    assert_eq!(timeline.pop_beyond(3, u64::MAX), None);
    assert_eq!(timeline.pop_beyond(2, 999_999), None);
    let oldest = Slice { begin: 0, end: 1_000_000, owner: OwnerKey::Cgroup(5) };
    assert_eq!(timeline.pop_beyond(2, 1_000_000), Some(oldest));
    assert_eq!(timeline.pop_beyond(2, u64::MAX), None);
}
