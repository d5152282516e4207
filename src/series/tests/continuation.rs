//! Tables that continue others.

use super::*;

#[test]
fn series_whose_targets_are_not_added_again_end_and_the_others_continue() {
    let mut table = table(10);
    let [stays, goes] = ["stays", "goes"].map(|comm| enter(&mut table, comm));
    [stays, goes].into_iter().for_each(|id| count(&mut table, id, 5));
    collect(&mut table, 10);
    table.remove_targets(at(20));
    assert_eq!(enter(&mut table, "stays"), stays);
    count(&mut table, stays, 1);
    collect(&mut table, 30);
    assert_eq!(totals(&table), expected(&[("goes", 5), ("stays", 6)]));
    collect(&mut table, 20 + 301);
    collect(&mut table, 20 + 302);
    assert_eq!(totals(&table), expected(&[("stays", 6)]));
    assert_eq!(start(&table, "stays"), Timestamp(0));
    table.leave(stays, at(400));
    [401, 702].into_iter().for_each(|now| collect(&mut table, now));
    assert_eq!(totals(&table), [], "its one target is gone");
}

#[test]
fn a_conversion_applies_to_all_totals_that_were_ever_counted() {
    let mut table = table(1);
    let [named, unnamed] = ["named", "unnamed"].map(|comm| enter(&mut table, comm));
    count(&mut table, named, 100);
    count(&mut table, unnamed, 7);
    collect(&mut table, 10);
    table.convert(0, |total| total * 10);
    assert_eq!(totals(&table), expected(&[("named", 1000), ("other", 70)]));
    assert_eq!(table.accounts().sum::<u64>(), 1070);
    table.set_limit(0);
    collect(&mut table, 20);
    table.remove_where(Series::is_rest);
    // Now, one total is the last of a series without labels, and the other one is that of a series that was removed.
    table.convert(0, |total| total * 10);
    assert_eq!(totals(&table), expected(&[("named", 10_000)]));
    assert_eq!(table.accounts().sum::<u64>(), 10_700);
}

#[test]
fn after_a_conversion_a_new_series_begins_with_the_new_empty_total_and_the_data_of_the_caller_is_unset() {
    let mut table: Table<u64, Option<&str>> = Table::new(0, 10, 10, Timestamp(0));
    let naming = |comm| Naming { labels: labels(comm), rest: labels("other"), own: None, info: Some("old") };
    table.enter(naming("a"), at(0));
    table.convert(1000, |total| total + 5);
    table.enter(naming("b"), at(0));
    let found: Vec<_> = table.iter().map(|series| (comm(&series), *series.total, *series.info)).collect();
    assert_eq!(found, [("a".to_owned(), 5, None), ("b".to_owned(), 1000, Some("old"))]);
}

/// Merges a table with one in which no series has labels of its own and one in which all have, and returns the result.
fn merged(limit: usize, of_other: usize) -> Plain {
    let [mut one, mut other] = [limit, of_other].map(table);
    for (table, factor) in [(&mut one, 1), (&mut other, 10)] {
        for (comm, counts) in [("a", 1), ("b", 2)] {
            let id = enter(table, comm);
            count(table, id, counts * factor);
        }
        collect(table, 10);
    }
    one.merge(other, at(11), |(to, _), (from, _)| *to += from);
    one
}

#[test]
fn published_totals_of_a_merged_table_stay_published_under_their_labels() {
    for (limit, of_other, published) in [
        (10, 10, &[("a", 11), ("b", 22)][..]),
        // In one of the two tables, only `a` has labels of its own.
        (10, 1, &[("a", 11), ("b", 2), ("other", 20)]),
        (1, 10, &[("a", 11), ("b", 20), ("other", 2)]),
        (1, 1, &[("a", 11), ("other", 22)]),
    ] {
        let table = merged(limit, of_other);
        assert_eq!(totals(&table), expected(published), "{limit} and {of_other}");
        assert_eq!(table.accounts().sum::<u64>(), 33, "nothing is lost or counted twice");
    }
}

#[test]
fn a_series_of_only_the_merged_table_ends_unless_its_target_is_added_again() {
    let (mut one, mut other) = (table(10), table(10));
    let ids = ["ended", "there"].map(|comm| enter(&mut other, comm));
    ids.into_iter().for_each(|id| count(&mut other, id, 5));
    collect(&mut other, 10);
    collect(&mut one, 10);
    one.merge(other, at(11), |(to, _), (from, _)| *to += from);
    enter(&mut one, "there");
    collect(&mut one, 20);
    assert_eq!(totals(&one), expected(&[("ended", 5), ("there", 5)]));
    assert_eq!(start(&one, "there"), Timestamp(0), "it counts since its own start");
    collect(&mut one, 11 + 301);
    collect(&mut one, 11 + 302);
    assert_eq!(totals(&one), expected(&[("there", 5)]));
}

#[test]
fn a_merged_table_has_the_aggregations_the_removed_totals_and_the_open_counts_of_both_and_the_earlier_start()
{
    // At a limit of one, all series but the first are aggregated.
    let filled = |start: u64, comms: &[&str]| {
        let mut table: Plain = Table::new(0, 1, 10, Timestamp(start));
        let ids: Vec<SeriesId> = comms.iter().map(|comm| enter(&mut table, comm)).collect();
        ids.iter().for_each(|&id| count(&mut table, id, 1));
        collect(&mut table, 10);
        table.remove_where(|series| series.labels.get("comm") == Some(comms[0]));
        ids[1..].iter().for_each(|&id| count(&mut table, id, 100));
        table
    };
    let (early, late) = (filled(3, &["a", "b", "c"]), filled(5, &["d", "e"]));
    for (mut one, other) in [(early.clone(), late.clone()), (late, early)] {
        one.merge(other, at(11), |(to, _), (from, _)| *to += from);
        assert_eq!((one.aggregated(), one.start()), (3, Timestamp(3)));
        assert_eq!(
            one.accounts().sum::<u64>(),
            305,
            "including 2 of removed series and 300 since the collection"
        );
    }
}

#[test]
fn a_merged_series_counts_since_the_earlier_start_with_and_without_labels_of_its_own() {
    for limit in [0, 1] {
        let [mut early, mut late] = [table(1), table(limit)];
        // The second series is aggregated.
        for comm in ["a", "b"] {
            let id = enter(&mut early, comm);
            count(&mut early, id, 1);
        }
        [&mut early, &mut late].into_iter().for_each(|table| collect(table, 10));
        for comm in ["a", "b"] {
            enter(&mut late, comm);
        }
        collect(&mut late, 20);
        assert_eq!(start(&late, "other"), Timestamp(10_000));
        late.merge(early, at(21), |(to, _), (from, _)| *to += from);
        assert_eq!(["a", "other"].map(|comm| start(&late, comm)), [Timestamp(0); 2], "at most {limit}");
        assert_eq!(totals(&late), expected(&[("a", 1), ("other", 1)]));
    }
}

#[test]
fn a_series_that_comes_with_a_merged_table_is_aggregated_as_before_and_its_last_value_is_published() {
    let (mut one, mut other) = (table(1), table(1));
    let a = enter(&mut other, "a");
    enter(&mut other, "b");
    count(&mut other, a, 5);
    [&mut one, &mut other].into_iter().for_each(|table| collect(table, 10));
    assert_eq!(other.aggregated(), 1);
    one.merge(other, at(11), |(to, _), (from, _)| *to += from);
    for comm in ["a", "b"] {
        enter(&mut one, comm);
    }
    one.set_limit(0);
    collect(&mut one, 12);
    assert_eq!(totals(&one), expected(&[("a", 5), ("other", 0)]), "a was active two seconds ago");
    assert_eq!(one.aggregated(), 1, "b was aggregated before");
}

#[test]
fn a_last_value_that_is_no_longer_published_stays_so_in_the_table_that_it_is_merged_into() {
    let [mut one, mut other] = [0, 1].map(table);
    let a = enter(&mut other, "a");
    count(&mut other, a, 5);
    collect(&mut other, 10);
    other.set_limit(0);
    [11, 12].into_iter().for_each(|now| collect(&mut other, now));
    assert_eq!(totals(&other), expected(&[("other", 0)]), "5 events were published as a");
    let a = enter(&mut one, "a");
    one.merge(other, at(13), |(to, _), (from, _)| *to += from);
    assert_eq!(totals(&one), expected(&[("other", 0)]));
    one.set_limit(1);
    count(&mut one, a, 1);
    [20, 30].into_iter().for_each(|now| collect(&mut one, now));
    assert_eq!(totals(&one), expected(&[("a", 5), ("other", 1)]), "it continues");
}
