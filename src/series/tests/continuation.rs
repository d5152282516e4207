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
