use proptest::prelude::*;

use super::*;

mod continuation;
mod names;

type Plain = Table<u64>;

fn labels(comm: &str) -> Arc<Labels> {
    Labels::new([("comm", comm)])
}

fn table(limit: usize) -> Plain {
    Table::new(0, limit, 10, Timestamp(0))
}

fn naming(comm: &str) -> Naming {
    Naming { labels: labels(comm), rest: labels("other"), own: None, info: () }
}

fn enter(table: &mut Plain, comm: &str) -> SeriesId {
    table.enter(naming(comm), at(0))
}

/// Adds counts to the total and the activity.
fn count(table: &mut Plain, id: SeriesId, n: u64) {
    let series = table.get_mut(id).unwrap();
    series.total += n;
    series.active += n;
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(Duration::from_secs(seconds))
}

/// Ends the collection at a time in seconds.
fn collect(table: &mut Plain, seconds: u64) {
    table.end_collection(Timestamp(seconds * 1000), at(seconds));
}

fn comm<I>(series: &Published<'_, u64, I>) -> String {
    series.labels.get("comm").unwrap().to_owned()
}

/// Returns the published totals, sorted by name.
fn totals(table: &Plain) -> Vec<(String, u64)> {
    let mut totals: Vec<_> = table.iter().map(|series| (comm(&series), *series.total)).collect();
    totals.sort();
    totals
}

fn expected(totals: &[(&str, u64)]) -> Vec<(String, u64)> {
    totals.iter().map(|&(comm, total)| (comm.to_owned(), total)).collect()
}

/// Returns the published series without the aggregated one.
fn named(table: &Plain) -> String {
    let named = totals(table).into_iter().map(|(comm, _)| comm).filter(|comm| comm != "other");
    named.collect::<Vec<_>>().join(" ")
}

fn start(table: &Plain, wanted: &str) -> Timestamp {
    table.iter().find(|series| comm(series) == wanted).unwrap().start
}

#[test]
fn a_series_counts_since_the_collection_before_its_first_count() {
    let mut table = table(10);
    let a = enter(&mut table, "a");
    count(&mut table, a, 5);
    collect(&mut table, 10);
    let b = enter(&mut table, "b");
    count(&mut table, b, 7);
    collect(&mut table, 20);
    assert_eq!(totals(&table), expected(&[("a", 5), ("b", 7)]));
    assert_eq!([start(&table, "a"), start(&table, "b")], [Timestamp(0), Timestamp(10_000)]);
    assert_eq!((table.start(), table.previous()), (Timestamp(0), Timestamp(20_000)));
}

#[test]
fn the_first_series_count_since_the_creation_of_their_table() {
    let mut table = Table::new(0, 1, 10, Timestamp(500));
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    [a, b].into_iter().for_each(|id| count(&mut table, id, 5));
    collect(&mut table, 10);
    assert_eq!(
        (table.start(), start(&table, "a"), start(&table, "other")),
        (Timestamp(500), Timestamp(500), Timestamp(500))
    );
}

#[test]
fn a_series_that_ends_in_the_collection_of_its_begin_is_aggregated_and_takes_no_labels() {
    let mut table = table(1);
    let [_, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    count(&mut table, b, 1000);
    assert_eq!(table.unnamed(), 1);
    table.leave(b, at(0));
    assert_eq!(table.unnamed(), 0);
    collect(&mut table, 1);
    assert_eq!((table.aggregated(), table.find(&labels("b"))), (1, None));
    collect(&mut table, 2);
    assert_eq!(totals(&table), expected(&[("a", 0), ("other", 1000)]));
}

#[test]
fn all_totals_can_be_changed() {
    let mut table = heavy();
    table.all_mut().for_each(|series| series.total.all += 100);
    assert_eq!(
        table.accounts().map(|total| total.all).sum::<u64>(),
        310,
        "of two series and the aggregated one"
    );
}

#[test]
fn a_series_is_absent_five_minutes_after_its_last_target_ended_and_its_total_goes_nowhere() {
    let mut table = table(10);
    for comm in ["a", "b"] {
        let id = enter(&mut table, comm);
        count(&mut table, id, 5);
    }
    let a = table.find(&labels("a")).unwrap();
    table.leave(a, at(1));
    collect(&mut table, 301);
    assert_eq!(totals(&table), expected(&[("a", 5), ("b", 5)]));
    collect(&mut table, 302);
    assert_eq!(totals(&table), expected(&[("b", 5)]));
    assert_eq!((table.accounts().sum::<u64>(), table.aggregated()), (10, 0));
}

#[test]
fn a_series_whose_target_comes_back_continues() {
    let mut table = table(10);
    let id = enter(&mut table, "nginx");
    count(&mut table, id, 5);
    table.leave(id, at(1));
    collect(&mut table, 300);
    assert_eq!(enter(&mut table, "nginx"), id);
    collect(&mut table, 9999);
    assert_eq!(totals(&table), expected(&[("nginx", 5)]));
}

#[test]
fn over_the_limit_counts_are_aggregated_until_an_ended_series_makes_room() {
    let mut table = table(2);
    let [a, b, c] = ["a", "b", "c"].map(|comm| enter(&mut table, comm));
    [(a, 1), (b, 1), (c, 5)].into_iter().for_each(|(id, n)| count(&mut table, id, n));
    collect(&mut table, 1);
    assert_eq!(totals(&table), expected(&[("a", 1), ("b", 1), ("other", 5)]));
    assert_eq!((table.aggregated(), table.unnamed()), (1, 1));
    assert_eq!(table.count(), SeriesCount { published: 2, in_other: 1 });
    table.leave(a, at(1));
    [(b, 1), (c, 3)].into_iter().for_each(|(id, n)| count(&mut table, id, n));
    collect(&mut table, 2);
    assert_eq!(
        totals(&table),
        expected(&[("a", 1), ("b", 2), ("other", 8)]),
        "a was active in the last minute"
    );
    count(&mut table, c, 3);
    collect(&mut table, 61);
    assert_eq!(totals(&table), expected(&[("b", 2), ("c", 0), ("other", 11)]));
    assert_eq!(start(&table, "c"), Timestamp(61_000), "its counts until then are in other");
    count(&mut table, c, 3);
    collect(&mut table, 62);
    assert_eq!(totals(&table), expected(&[("b", 2), ("c", 3), ("other", 11)]));
    assert_eq!(start(&table, "c"), Timestamp(61_000));
    assert_eq!((table.aggregated(), table.unnamed()), (1, 0));
}

#[test]
fn a_series_that_loses_its_labels_goes_stale_and_continues_when_it_regains_them() {
    let mut table = table(1);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    count(&mut table, a, 50);
    collect(&mut table, 1);
    count(&mut table, a, 1);
    count(&mut table, b, 500);
    collect(&mut table, 11);
    assert_eq!(totals(&table), expected(&[("a", 51), ("other", 500)]), "labels change after this collection");
    for (now, other) in [(12, 1003), (70, 1506)] {
        count(&mut table, a, 3);
        count(&mut table, b, 500);
        collect(&mut table, now);
        assert_eq!(
            totals(&table),
            expected(&[("a", 51), ("other", other)]),
            "the last value stays for a minute"
        );
    }
    collect(&mut table, 71);
    assert_eq!(totals(&table), expected(&[("b", 0), ("other", 1506)]));
    assert_eq!(start(&table, "b"), Timestamp(71_000));
    let published = table.iter().map(|series| *series.total).sum::<u64>();
    assert_eq!(table.accounts().sum::<u64>(), published + 51, "the total of a is kept");
    count(&mut table, a, 5000);
    count(&mut table, b, 500);
    collect(&mut table, 81);
    assert_eq!(totals(&table), expected(&[("b", 500), ("other", 6506)]));
    count(&mut table, a, 7);
    collect(&mut table, 141);
    assert_eq!(totals(&table), expected(&[("a", 51), ("other", 6513)]));
    count(&mut table, a, 7);
    collect(&mut table, 142);
    assert_eq!(totals(&table), expected(&[("a", 58), ("other", 6513)]));
    assert_eq!(start(&table, "a"), Timestamp(0), "it continues");
    assert_eq!((table.aggregated(), table.unnamed()), (3, 1));
}

#[test]
fn the_labels_of_a_series_that_was_idle_for_a_minute_are_free_at_once() {
    for (now, expected) in [(61, "a"), (62, "b")] {
        let mut table = table(1);
        let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
        count(&mut table, a, 5);
        collect(&mut table, 2);
        (3..61).for_each(|now| collect(&mut table, now));
        count(&mut table, b, 50);
        collect(&mut table, now);
        assert_eq!(named(&table), expected, "after {now} s");
    }
}

#[test]
fn a_new_series_has_labels_at_once_after_the_last_value_of_an_ended_one() {
    let mut table = table(1);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    count(&mut table, a, 10);
    count(&mut table, b, 1000);
    collect(&mut table, 1);
    assert_eq!((table.named.len(), named(&table).as_str()), (0, "a"), "its last value");
    [a, b].into_iter().for_each(|id| table.leave(id, at(1)));
    collect(&mut table, 61);
    assert_eq!((table.unnamed.len(), named(&table).as_str()), (0, ""));
    let c = enter(&mut table, "c");
    count(&mut table, c, 7);
    collect(&mut table, 62);
    assert_eq!(totals(&table), expected(&[("c", 7), ("other", 1000)]));
}

#[test]
fn similar_series_and_those_that_alternate_do_not_take_the_labels_from_each_other() {
    let mut table = table(1);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    for now in 1..20 {
        count(&mut table, a, 100);
        count(&mut table, b, 190);
        collect(&mut table, now);
        assert_eq!(named(&table), "a", "after {now} collections");
    }
    for now in 20..60 {
        count(&mut table, if now % 2 == 0 { a } else { b }, 100);
        collect(&mut table, now);
        assert_eq!(named(&table), "a", "after {now} collections");
    }
}

#[test]
fn a_series_that_is_hardly_active_takes_no_labels_from_an_idle_one() {
    let mut table = table(1);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    count(&mut table, b, 9);
    collect(&mut table, 1);
    collect(&mut table, 2);
    assert_eq!(named(&table), "a");
    table.leave(a, at(2));
    collect(&mut table, 3);
    assert_eq!(named(&table), "b", "but from an ended one");
}

#[test]
fn the_least_activity_is_enough_to_take_labels_from_an_idle_series() {
    for (activity, expected) in [(9, "a"), (10, "b")] {
        let mut table = table(1);
        let [_, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
        count(&mut table, b, activity);
        collect(&mut table, 1);
        assert_eq!(named(&table), expected, "with an activity of {activity}");
    }
}

#[test]
fn only_so_many_labels_change_hands_in_ten_seconds() {
    let mut table = table(40);
    let mut enter_all = |from: usize| -> Vec<SeriesId> {
        (from..from + 40).map(|n| enter(&mut table, &format!("p{n:02}"))).collect()
    };
    enter_all(0);
    let busy = enter_all(40);
    for (now, new) in [(1, 16), (10, 16), (11, 32), (21, 40), (31, 40)] {
        busy.iter().for_each(|&id| count(&mut table, id, 100));
        collect(&mut table, now);
        let all = named(&table);
        let of_the_busy = all.split(' ').filter(|name| ("p40".."q").contains(name)).count();
        assert_eq!((of_the_busy, all.split(' ').count()), (new, 40));
    }
}

#[test]
fn a_lower_limit_takes_the_labels_of_the_least_active_and_a_higher_one_gives_them_to_the_most_active() {
    let mut table = table(50);
    let ids: Vec<SeriesId> = (10..60).map(|n| enter(&mut table, &format!("p{n}"))).collect();
    let mut collect = |limit: usize, now: u64| {
        ids.iter().zip(10..).for_each(|(&id, n)| count(&mut table, id, n));
        table.set_limit(limit);
        collect(&mut table, now);
        let published = named(&table).split(' ').count();
        (published, table.named.len(), named(&table), table.unnamed())
    };
    assert_eq!(collect(50, 1).0, 50);
    let (published, len, ..) = collect(2, 2);
    assert_eq!((published, len), (50, 2), "all are published once more");
    assert_eq!(collect(2, 3), (2, 2, "p58 p59".into(), 48));
    assert_eq!(collect(4, 4), (4, 4, "p56 p57 p58 p59".into(), 46));
    assert_eq!(collect(4, 5), (4, 4, "p56 p57 p58 p59".into(), 46));
}

#[test]
fn a_series_with_the_labels_of_the_aggregated_one_is_part_of_it() {
    let mut table = table(1);
    let other = enter(&mut table, "other");
    count(&mut table, other, 500);
    collect(&mut table, 1);
    assert_eq!(totals(&table), expected(&[("other", 500)]));
    assert_eq!((table.aggregated(), table.unnamed()), (0, 0));
    let a = enter(&mut table, "a");
    count(&mut table, other, 500);
    collect(&mut table, 2);
    table.leave(a, at(2));
    collect(&mut table, 3);
    assert_eq!(named(&table), "a", "no other series needs the labels");
}

#[test]
fn series_without_targets_are_dropped_when_they_are_idle() {
    let mut table = table(1);
    for number in 0..5000u64 {
        let id = table.find_or_insert(naming(&number.to_string()), at(number));
        count(&mut table, id, 1);
        if number % 100 == 99 {
            collect(&mut table, number);
            assert!(table.unnamed() <= 1024, "{}", table.unnamed());
        }
    }
    assert_eq!(table.accounts().sum::<u64>(), 5000);
    (5000..5100).for_each(|now| collect(&mut table, now));
    assert_eq!(table.unnamed(), 0);
    assert_eq!(totals(&table).iter().map(|(_, total)| total).sum::<u64>(), 5000);
}

#[test]
fn an_active_series_without_a_target_is_remembered_until_it_is_idle() {
    let mut table = table(1);
    enter(&mut table, "a");
    let [b, c] = ["b", "c"].map(|comm| table.find_or_insert(naming(comm), at(0)));
    for id in [b, c] {
        table.get_mut(id).unwrap().count(7);
    }
    table.find_or_insert(naming("idle"), at(0));
    collect(&mut table, 1);
    let found = |table: &Plain| ["a", "b", "c", "idle"].map(|comm| table.find(&labels(comm)).is_some());
    assert_eq!(found(&table), [true, true, true, false]);
    assert_eq!(totals(&table), expected(&[("a", 0), ("other", 14)]));
    table.find_or_insert(naming("idle"), at(1));
    collect(&mut table, 2);
    assert_eq!(found(&table), [true, true, true, false], "it was never active");
    (1..10).for_each(|turn| collect(&mut table, 1 + 10 * turn));
    assert_eq!(found(&table), [true, false, false, false]);
}

#[test]
fn a_series_ends_when_the_caller_finds_no_target_and_resumes_when_it_finds_one() {
    let mut table = table(10);
    for comm in ["a", "b"] {
        let id = table.find_or_insert(naming(comm), at(0));
        table.get_mut(id).unwrap().count(5);
    }
    let follow = |table: &mut Plain, seconds: u64, there: &str| {
        table.follow(at(seconds), |series| there.contains(series.labels.get("comm").unwrap()));
        collect(table, seconds);
        named(table)
    };
    assert_eq!(follow(&mut table, 1, "a"), "a b");
    assert_eq!(follow(&mut table, 200, "a b"), "a b", "b has a target again");
    assert_eq!(follow(&mut table, 400, "a"), "a b");
    assert_eq!(follow(&mut table, 700, "a"), "a b", "five minutes are not over");
    assert_eq!(follow(&mut table, 701, "a"), "a", "it ended at 400 s, not at the last call");
    assert_eq!(table.accounts().sum::<u64>(), 10);
}

#[test]
fn series_are_removed_on_request_and_their_totals_stay_in_the_accounts() {
    let mut table = table(2);
    let [a, b, c] = ["a", "b", "c"].map(|comm| enter(&mut table, comm));
    [(a, 1), (b, 2), (c, 4)].into_iter().for_each(|(id, n)| count(&mut table, id, n));
    collect(&mut table, 1);
    assert_eq!(totals(&table), expected(&[("a", 1), ("b", 2), ("other", 4)]));
    table.remove_where(|series| ["a", "c"].contains(&series.labels.get("comm").unwrap()));
    assert_eq!(totals(&table), expected(&[("b", 2), ("other", 4)]));
    assert_eq!([a, b, c].map(|id| table.get_mut(id).is_some()), [false, true, false]);
    table.remove_where(Series::is_rest);
    assert_eq!(totals(&table), expected(&[("b", 2)]), "aggregated series are removed as well");
    assert_eq!(table.accounts().sum::<u64>(), 7);
}

#[test]
fn an_ended_series_stays_for_five_minutes_and_its_aggregated_labels_are_kept_while_a_series_refers_to_them() {
    let mut table = table(10);
    let a = enter(&mut table, "a");
    collect(&mut table, 1);
    table.leave(a, at(1));
    collect(&mut table, 2);
    collect(&mut table, 301);
    assert_eq!((named(&table).as_str(), table.rest_labels.len()), ("a", 1));
    collect(&mut table, 302);
    assert_eq!((named(&table).as_str(), table.rest_labels.len()), ("", 0));
}

/// Total with a part that applies to one collection, and 10,000 bytes on the heap.
#[derive(Debug, Clone, Default)]
struct Heavy {
    all: u64,
    latest: u64,
}

impl Total for Heavy {
    fn absorb(&mut self, from: &mut Self) {
        self.all += std::mem::take(&mut from.all);
        self.latest += std::mem::take(&mut from.latest);
    }

    fn begin_collection(&mut self) {
        self.latest = 0;
    }

    fn bytes(&self) -> usize {
        10_000
    }
}

/// Returns a table with one series with labels, one without, and the aggregated one.
fn heavy() -> Table<Heavy> {
    let mut table = Table::new(Heavy::default(), 1, 10, Timestamp(0));
    for comm in ["a", "b"] {
        let id = table.enter(naming(comm), at(0));
        table.get_mut(id).unwrap().total = Heavy { all: 5, latest: 5 };
    }
    table.end_collection(Timestamp(1000), at(1));
    table
}

#[test]
fn every_series_forgets_what_holds_for_one_collection() {
    let mut table = heavy();
    let unnamed = table.find(&labels("b")).unwrap();
    table.get_mut(unnamed).unwrap().total = Heavy { all: 5, latest: 5 };
    table.begin_collection();
    let sums = |table: &Table<Heavy>| {
        let sum = |pick: fn(&Heavy) -> u64| table.accounts().map(pick).sum::<u64>();
        (sum(|total| total.all), sum(|total| total.latest))
    };
    assert_eq!(sums(&table), (15, 0));
    // A series that loses its labels keeps its total.
    let named = table.find(&labels("a")).unwrap();
    table.get_mut(named).unwrap().total.latest = 5;
    table.set_limit(0);
    table.end_collection(Timestamp(2000), at(2));
    table.begin_collection();
    assert_eq!((table.named.len(), sums(&table)), (0, (15, 0)));
}

#[test]
fn the_memory_of_a_table_includes_the_heap_of_each_published_series() {
    let each = heavy().bytes() / 2;
    let least = size_of::<Series<Heavy>>() + 10_000;
    assert!((least..least + 1000).contains(&each), "{each} bytes, at least {least}");
    let mut plain = table(1);
    assert_eq!(plain.bytes(), 0);
    enter(&mut plain, "a");
    let size = size_of::<Series<u64>>();
    assert_eq!(plain.bytes() - size, each - least, "a number has nothing on the heap");
}

/// Operation on a table. Targets are selected by index.
#[derive(Debug, Clone)]
enum Step {
    Enter(u8),
    Leave(usize),
    Count(usize, u64),
    Touch(u8, u64),
    Collect(u64),
    SetLimit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..12).prop_map(Step::Enter),
        2 => any::<usize>().prop_map(Step::Leave),
        4 => (any::<usize>(), 0u64..1000).prop_map(|(who, n)| Step::Count(who, n)),
        2 => (20u8..26, 1u64..1000).prop_map(|(who, n)| Step::Touch(who, n)),
        3 => prop_oneof![Just(1u64), Just(15), Just(400)].prop_map(Step::Collect),
        1 => (0usize..6).prop_map(Step::SetLimit),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Prometheus' state of a series: its last sample with the created timestamp, and the collection of the sample.
type Sample = (u64, Timestamp, usize);

/// Returns the increase of a series as Prometheus computes it with created timestamps: since the last sample, or since zero if the created
/// timestamp is newer.
fn increase(before: Option<&Sample>, (total, start, _): Sample) -> u64 {
    match before {
        Some(&(old, old_start, _)) if start <= old_start => total - old,
        _ => total,
    }
}

proptest! {
    #[test]
    fn the_increase_of_all_series_is_what_was_counted_in_every_interval(steps in steps(), mut limit in 0usize..6) {
        let mut table = table(limit);
        let mut targets: Vec<(u8, SeriesId)> = Vec::new();
        let (mut seconds, mut collections, mut counted) = (1, 0, 0);
        let mut all = 0;
        // Model: all samples so far.
        let mut samples: HashMap<String, Sample> = HashMap::new();
        let mut lowered = false;
        for step in steps.into_iter().chain([Step::Collect(1)]) {
            match step {
                // Target 11 has the labels of the aggregated series.
                Step::Enter(who) => {
                    let comm = if who == 11 { "other".to_owned() } else { who.to_string() };
                    targets.push((who, enter(&mut table, &comm)));
                }
                Step::Leave(_) | Step::Count(..) if targets.is_empty() => {}
                Step::Leave(which) => {
                    let (_, id) = targets.swap_remove(which % targets.len());
                    table.leave(id, at(seconds));
                }
                Step::Count(which, n) => {
                    let (_, id) = targets[which % targets.len()];
                    count(&mut table, id, n);
                    counted += n;
                }
                Step::Touch(who, n) => {
                    let id = table.find_or_insert(naming(&who.to_string()), at(seconds));
                    count(&mut table, id, n);
                    counted += n;
                }
                Step::SetLimit(new) => {
                    lowered |= new < limit;
                    limit = new;
                    table.set_limit(limit);
                }
                Step::Collect(after) => {
                    let previous = Timestamp(if collections == 0 { 0 } else { seconds * 1000 });
                    seconds += after;
                    collections += 1;
                    collect(&mut table, seconds);
                    let now: Vec<(String, Sample)> = table
                        .iter()
                        .map(|series| (comm(&series), (*series.total, series.start, collections)))
                        .collect();
                    let published = now.iter().filter(|(comm, _)| comm != "other").count();
                    prop_assert!(published <= limit || lowered, "{published} series, at most {limit}");
                    lowered = false;
                    let mut increased = 0;
                    for (comm, sample) in &now {
                        let before = samples.get(comm);
                        let (total, start, _) = *sample;
                        prop_assert!(start <= previous || total == 0, "{comm} was created after its first count");
                        if let Some(&(old, old_start, when)) = before {
                            let anew = start > old_start;
                            prop_assert!(anew || total >= old, "{comm} fell from {old} to {total}");
                            prop_assert!(!anew || when + 1 < collections, "{comm} was never absent");
                            prop_assert!(!anew || start.0 >= old_start.0);
                        }
                        increased += increase(before, *sample);
                    }
                    prop_assert_eq!(increased, counted, "in collection {}: {:?}", collections, now);
                    all += counted;
                    prop_assert_eq!(table.accounts().sum::<u64>(), all);
                    counted = 0;
                    samples.extend(now);
                    prop_assert!(table.named.len() <= limit);
                    prop_assert_eq!(table.published(), published);
                }
            }
        }
    }
}

fn steps_without_limits() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..12).prop_map(Step::Enter),
        2 => any::<usize>().prop_map(Step::Leave),
        4 => (any::<usize>(), 0u64..1000).prop_map(|(who, n)| Step::Count(who, n)),
        2 => (20u8..26, 1u64..1000).prop_map(|(who, n)| Step::Touch(who, n)),
        4 => prop_oneof![Just(1u64), Just(15), Just(30)].prop_map(Step::Collect),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_scraper_that_sees_a_collection_each_minute_computes_the_whole_increase(steps in steps_without_limits(), limit in 0usize..6) {
        let mut table = table(limit);
        let mut targets: Vec<SeriesId> = Vec::new();
        let (mut seconds, mut scraped, mut counted) = (1, 1, 0);
        let mut samples: HashMap<String, Sample> = HashMap::new();
        for step in steps {
            match step {
                Step::Enter(who) => targets.push(enter(&mut table, &who.to_string())),
                Step::Leave(_) | Step::Count(..) if targets.is_empty() => {}
                Step::Leave(which) => table.leave(targets.swap_remove(which % targets.len()), at(seconds)),
                Step::Count(which, n) => {
                    count(&mut table, targets[which % targets.len()], n);
                    counted += n;
                }
                Step::Touch(who, n) => {
                    let id = table.find_or_insert(naming(&who.to_string()), at(seconds));
                    count(&mut table, id, n);
                    counted += n;
                }
                Step::SetLimit(_) => {}
                Step::Collect(after) => {
                    seconds += after;
                    collect(&mut table, seconds);
                    // The next collection is at most half a minute later.
                    if seconds - scraped <= 30 {
                        continue;
                    }
                    let now: Vec<(String, Sample)> =
                        table.iter().map(|series| (comm(&series), (*series.total, series.start, 0))).collect();
                    let increased: u64 = now.iter().map(|(comm, sample)| increase(samples.get(comm), *sample)).sum();
                    prop_assert_eq!(increased, counted, "{} s after {} s: {:?}", seconds, scraped, now);
                    samples.extend(now);
                    (scraped, counted) = (seconds, 0);
                }
            }
        }
    }
}

/// Series are ranked by their counts in the first collection, too: one that has counted nothing comes last.
#[test]
fn a_series_without_counts_is_not_active() {
    let mut table = table(100);
    let [silent, busy] = ["silent", "busy"].map(|comm| enter(&mut table, comm));
    count(&mut table, busy, 1);
    assert_eq!([silent, busy].map(|id| table.get_mut(id).unwrap().active), [0, 1]);
    collect(&mut table, 1);
    let active = [silent, busy].map(|id| table.get_mut(id).unwrap().last_active);
    assert_eq!(active, [None, Some(at(1))]);
}
