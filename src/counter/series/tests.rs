use proptest::prelude::*;

use super::*;

const MILLISECOND: u64 = 1_000_000;

fn labels(comm: &str) -> Arc<Labels> {
    Labels::new([("comm", comm)])
}

fn table(limit: usize) -> SeriesTable {
    SeriesTable::new(1, Vec::new(), limit, labels("other"), Timestamp(0))
}

fn enter(table: &mut SeriesTable, comm: &str) -> SeriesId {
    table.enter(labels(comm), Timestamp(0))
}

fn count(table: &mut SeriesTable, id: SeriesId, n: u64) {
    let series = table.get_mut(id).unwrap();
    series.totals[0] += n;
    series.counted[0] = true;
}

fn doubt(table: &mut SeriesTable, id: SeriesId) {
    table.get_mut(id).unwrap().doubted[0] = true;
}

/// A collection in which each of these series used so many milliseconds of CPU time.
fn collect(table: &mut SeriesTable, now: u64, busy: &[(SeriesId, u64)]) {
    for series in table.iter_mut() {
        series.interval = Interval::default();
    }
    for &(id, milliseconds) in busy {
        table.get_mut(id).unwrap().interval.enabled = milliseconds * MILLISECOND;
    }
    table.end_collection(Timestamp(now));
    table.iter_mut().for_each(|series| series.doubted.fill(false));
}

fn comm(series: &Series) -> String {
    series.labels.get("comm").unwrap().to_owned()
}

fn totals(table: &SeriesTable) -> Vec<(String, u64)> {
    table.iter().map(|series| (comm(series), series.totals[0])).collect()
}

/// Who is published under a name, in the order of the alphabet.
fn names(table: &SeriesTable) -> String {
    let mut names: Vec<String> = table.iter().map(comm).filter(|comm| comm != "other").collect();
    names.sort();
    names.join(" ")
}

fn published<'a>(table: &'a SeriesTable, wanted: &str) -> Option<&'a Series> {
    table.iter().find(|series| comm(series) == wanted)
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(Duration::from_secs(seconds))
}

#[test]
fn a_series_goes_on_where_its_predecessor_stopped() {
    let mut table = table(10);
    let id = enter(&mut table, "nginx");
    count(&mut table, id, 5);
    table.leave(id, at(1));
    table.expire(at(300));
    assert_eq!(table.enter(labels("nginx"), Timestamp(9)), id);
    table.expire(at(9999));
    assert_eq!(totals(&table), [("nginx".into(), 5)]);
}

#[test]
fn what_ended_long_ago_is_folded_and_the_sum_stays() {
    let mut table = table(10);
    for comm in ["a", "b"] {
        let id = enter(&mut table, comm);
        count(&mut table, id, 5);
        table.leave(id, at(0));
    }
    table.expire(at(301));
    assert_eq!(totals(&table), [("other".into(), 10)]);
    assert_eq!((table.folded(), table.hidden()), (2, 0));
}

#[test]
fn over_the_limit_other_takes_the_target_until_an_ended_series_makes_room() {
    let mut table = table(2);
    let [a, _, c] = ["a", "b", "c"].map(|comm| enter(&mut table, comm));
    count(&mut table, a, 1);
    count(&mut table, c, 10);
    collect(&mut table, 1, &[]);
    assert_eq!(totals(&table), [("other".into(), 10), ("a".into(), 1), ("b".into(), 0)]);
    assert_eq!((table.folded(), table.hidden()), (1, 1));
    table.leave(a, at(1));
    count(&mut table, c, 3);
    collect(&mut table, 2, &[]);
    assert_eq!(totals(&table), [("other".into(), 11), ("b".into(), 0), ("c".into(), 3)]);
    assert_eq!((table.folded(), table.hidden()), (2, 0));
}

#[test]
fn a_newcomer_that_gets_the_name_of_an_ended_series_keeps_all_that_it_counted() {
    let mut table = table(1);
    let a = enter(&mut table, "a");
    count(&mut table, a, 1);
    table.leave(a, at(1));
    let b = table.enter(labels("b"), Timestamp(7));
    count(&mut table, b, 10);
    collect(&mut table, 9, &[]);
    assert_eq!(totals(&table), [("other".into(), 1), ("b".into(), 10)]);
    assert_eq!(published(&table, "b").unwrap().start, Timestamp(7));
    assert_eq!(table.folded(), 1);
}

#[test]
fn an_ended_series_whose_target_comes_back_before_the_collection_keeps_its_name() {
    let mut table = table(1);
    let a = enter(&mut table, "a");
    count(&mut table, a, 1);
    table.leave(a, at(1));
    enter(&mut table, "b");
    assert_eq!(enter(&mut table, "a"), a);
    collect(&mut table, 2, &[]);
    assert_eq!(totals(&table), [("other".into(), 0), ("a".into(), 1)]);
}

#[test]
fn the_busiest_takes_the_name_of_the_least_busy_and_no_total_falls() {
    let mut table = table(2);
    let [a, b, c] = ["a", "b", "c"].map(|comm| enter(&mut table, comm));
    for id in [a, b, c] {
        count(&mut table, id, 100);
    }
    collect(&mut table, 10, &[(a, 5), (b, 50), (c, 5)]);
    assert_eq!(totals(&table), [("other".into(), 100), ("a".into(), 100), ("b".into(), 100)]);

    for id in [a, b, c] {
        count(&mut table, id, 1);
    }
    collect(&mut table, 20, &[(a, 5), (b, 50), (c, 500)]);
    // What `c` counted up to the collection before stays in `other`; what `a` ever counted goes there.
    assert_eq!(totals(&table), [("other".into(), 201), ("b".into(), 101), ("c".into(), 1)]);
    assert_eq!(published(&table, "c").unwrap().start, Timestamp(10));
    assert_eq!((table.folded(), table.hidden()), (2, 1));

    count(&mut table, a, 1);
    collect(&mut table, 30, &[(a, 2000), (b, 2000), (c, 5)]);
    assert_eq!(totals(&table), [("other".into(), 202), ("a".into(), 1), ("b".into(), 101)]);
    assert_eq!((table.folded(), table.hidden()), (3, 1));
}

#[test]
fn two_that_are_alike_or_take_turns_do_not_take_the_name_from_each_other() {
    let mut table = table(1);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    for now in 1..20 {
        collect(&mut table, now, &[(a, 100), (b, 190)]);
        assert_eq!(names(&table), "a", "after {now} collections");
    }
    for now in 20..60 {
        let busy = if now % 2 == 0 { a } else { b };
        collect(&mut table, now, &[(busy, 100)]);
        assert_eq!(names(&table), "a", "after {now} collections");
    }
}

#[test]
fn who_hardly_ran_takes_no_name_from_those_who_did_not_run() {
    let mut table = table(1);
    let a = enter(&mut table, "a");
    let b = enter(&mut table, "b");
    table.get_mut(b).unwrap().interval.enabled = MILLISECOND - 1;
    table.end_collection(Timestamp(1));
    assert_eq!(names(&table), "a");
    table.leave(a, at(1));
    collect(&mut table, 2, &[]);
    assert_eq!(names(&table), "b");
}

#[test]
fn only_so_many_names_change_hands_at_one_collection() {
    let mut table = table(40);
    let enter_all = |table: &mut SeriesTable, from: usize| -> Vec<SeriesId> {
        (from..from + 40).map(|n| enter(table, &format!("p{n:02}"))).collect()
    };
    enter_all(&mut table, 0);
    let busy: Vec<(SeriesId, u64)> = enter_all(&mut table, 40).into_iter().map(|id| (id, 9)).collect();
    for (now, new) in [(1, 16), (2, 32), (3, 40), (4, 40)] {
        collect(&mut table, now, &busy);
        let named: Vec<String> = table.iter().map(comm).collect();
        let of_the_busy = named.iter().filter(|name| ("p40".."q").contains(&name.as_str())).count();
        assert_eq!((of_the_busy, named.len()), (new, 41));
    }
}

#[test]
fn a_lower_limit_takes_the_names_of_the_least_busy_and_a_higher_one_gives_them_to_the_busiest() {
    let mut table = table(50);
    let ids: Vec<SeriesId> = (10..60).map(|n| enter(&mut table, &format!("p{n}"))).collect();
    let busy: Vec<(SeriesId, u64)> = ids.iter().zip(10..).map(|(&id, n)| (id, n)).collect();
    collect(&mut table, 1, &busy);
    assert_eq!(table.iter().count(), 50);
    table.set_limit(2);
    assert_eq!(table.iter().count(), 50, "before the next collection nothing changes");
    collect(&mut table, 2, &busy);
    assert_eq!((names(&table).as_str(), table.hidden()), ("p58 p59", 48));
    table.set_limit(4);
    collect(&mut table, 3, &busy);
    assert_eq!((names(&table).as_str(), table.hidden()), ("p56 p57 p58 p59", 46));
}

#[test]
fn a_hidden_series_is_forgotten_with_its_last_target_and_its_counts_are_not() {
    let mut table = table(1);
    enter(&mut table, "a");
    let b = enter(&mut table, "b");
    assert_eq!(enter(&mut table, "b"), b);
    count(&mut table, b, 1);
    collect(&mut table, 1, &[]);
    table.leave(b, at(1));
    count(&mut table, b, 2);
    table.leave(b, at(1));
    assert!(table.get_mut(b).is_none());
    assert_eq!(totals(&table), [("other".into(), 3), ("a".into(), 0)]);
    assert_eq!((table.folded(), table.hidden()), (1, 0));
    assert_ne!(enter(&mut table, "b"), b);
}

#[test]
fn what_is_called_other_itself_is_counted_there_and_needs_no_name() {
    let mut table = table(1);
    let other = enter(&mut table, "other");
    count(&mut table, other, 5);
    collect(&mut table, 1, &[(other, 1000)]);
    assert_eq!(totals(&table), [("other".into(), 5)]);
    assert_eq!((table.folded(), table.hidden()), (0, 0), "it lost no name");
    let a = enter(&mut table, "a");
    collect(&mut table, 2, &[(other, 1000)]);
    assert_eq!(names(&table), "a");
    table.leave(a, at(1));
    collect(&mut table, 3, &[(other, 1000)]);
    assert_eq!(names(&table), "a", "nobody else needs the name");
}

#[test]
fn other_is_unknown_until_something_in_it_was_counted() {
    let mut table = table(0);
    let a = enter(&mut table, "a");
    assert!(!published(&table, "other").unwrap().counted[0]);
    collect(&mut table, 1, &[(a, 5)]);
    let other = published(&table, "other").unwrap();
    assert!(!other.counted[0], "never counted is not zero");
    assert_eq!(other.interval.enabled, 5 * MILLISECOND);
    count(&mut table, a, 0);
    collect(&mut table, 2, &[(a, 5)]);
    assert!(published(&table, "other").unwrap().counted[0]);
}

#[test]
fn other_is_doubted_only_if_nothing_in_it_is_to_be_believed() {
    let mut table = table(0);
    let [a, b] = ["a", "b"].map(|comm| enter(&mut table, comm));
    count(&mut table, a, 1);
    doubt(&mut table, b);
    collect(&mut table, 1, &[]);
    assert!(!published(&table, "other").unwrap().doubted[0]);
    // What was counted in the collection before is no reason to believe this one.
    doubt(&mut table, b);
    collect(&mut table, 2, &[]);
    assert!(published(&table, "other").unwrap().doubted[0]);
    count(&mut table, b, 1);
    doubt(&mut table, b);
    collect(&mut table, 3, &[]);
    assert!(published(&table, "other").unwrap().doubted[0]);
    collect(&mut table, 4, &[]);
    assert!(!published(&table, "other").unwrap().doubted[0]);
}

/// What can happen to a table. Targets are chosen by their number among those that there are.
#[derive(Debug, Clone)]
enum Step {
    Enter(u8),
    Leave(usize),
    Count(usize, u64, u64),
    Collect(u64),
    SetLimit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..12).prop_map(Step::Enter),
        2 => any::<usize>().prop_map(Step::Leave),
        4 => (any::<usize>(), 0u64..1000, 0u64..100).prop_map(|(who, n, busy)| Step::Count(who, n, busy)),
        3 => prop_oneof![Just(1u64), Just(15), Just(400)].prop_map(Step::Collect),
        1 => (0usize..6).prop_map(Step::SetLimit),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn totals_never_fall_nothing_is_lost_and_names_are_within_the_limit(steps in steps(), mut limit in 0usize..6) {
        let mut table = table(limit);
        let mut targets: Vec<(u8, SeriesId)> = Vec::new();
        let (mut seconds, mut counted, mut folded) = (1, 0, 0);
        // What was published last of each label set, and at which collection.
        let mut last: HashMap<String, (u64, Timestamp, usize)> = HashMap::new();
        let mut collections = 0;
        for step in steps.into_iter().chain([Step::Collect(1)]) {
            match step {
                // Eleven is called like the series that takes the rest.
                Step::Enter(who) => {
                    let comm = if who == 11 { "other".to_owned() } else { who.to_string() };
                    targets.push((who, table.enter(labels(&comm), Timestamp(seconds * 1000))));
                }
                Step::Leave(_) | Step::Count(..) if targets.is_empty() => {}
                Step::Leave(which) => {
                    let (_, id) = targets.swap_remove(which % targets.len());
                    table.leave(id, at(seconds));
                }
                Step::Count(which, n, busy) => {
                    let (_, id) = targets[which % targets.len()];
                    count(&mut table, id, n);
                    table.get_mut(id).unwrap().interval.enabled += busy * MILLISECOND;
                    counted += n;
                }
                Step::SetLimit(new) => {
                    limit = new;
                    table.set_limit(limit);
                }
                Step::Collect(after) => {
                    seconds += after;
                    collections += 1;
                    let now = Timestamp(seconds * 1000);
                    table.expire(at(seconds));
                    table.end_collection(now);
                    table.iter_mut().for_each(|series| series.interval = Interval::default());

                    let named = table.iter().filter(|series| comm(series) != "other");
                    prop_assert!(named.count() <= limit);
                    prop_assert_eq!(table.iter().map(|series| series.totals[0]).sum::<u64>(), counted);
                    prop_assert!(table.folded() >= folded);
                    folded = table.folded();
                    for series in table.iter() {
                        let (total, start) = (series.totals[0], series.start);
                        prop_assert!(start <= now);
                        let before = last.insert(comm(series), (total, start, collections));
                        let Some((old_total, old_start, when)) = before else { continue };
                        let began_anew = start > old_start && when + 1 < collections;
                        prop_assert!(
                            began_anew || start == old_start && total >= old_total,
                            "{:?} was {} since {:?}, {} collections ago", series, old_total, old_start,
                            collections - when
                        );
                    }
                    let mut live: Vec<u8> = targets.iter().map(|&(who, _)| who).collect();
                    live.sort_unstable();
                    live.dedup();
                    let with_a_name = table.named.values().filter(|series| series.targets > 0).count();
                    let nameless = usize::from(live.contains(&11));
                    let wanted = live.len() - nameless;
                    prop_assert_eq!(table.hidden() + with_a_name, wanted);
                    prop_assert_eq!(with_a_name, wanted.min(limit), "no name is free while somebody wants it");
                }
            }
        }
    }
}

/// A process in a cgroup, in series by name alone.
fn process(comm: &str, cgroup: &str) -> Naming {
    let own = OwnName { owner: cgroup.into(), name: comm.into() };
    Naming { labels: labels(comm), own: Some((own, labels("other"))) }
}

#[test]
fn a_process_that_renames_itself_all_the_time_leaves_the_names_of_other_cgroups_alone() {
    let mut table = table(20_000);
    table.set_names(100);
    let mut last = None;
    for number in 0..10_000u64 {
        // Ten minutes, in which 20 names a minute are new; those of the first five have ended.
        let now = at(number * 60 / 1000);
        let id = table.enter_as(process(&format!("renamed-{number}"), "/pod"), Timestamp(0), now);
        count(&mut table, id, 1);
        if let Some(before) = last.replace(id) {
            table.leave(before, now);
        }
        table.expire(now);
        let service = format!("service-{}", number % 500);
        let id = table.enter_as(process(&service, &format!("/{service}")), Timestamp(0), now);
        count(&mut table, id, 1);
        table.leave(id, now);
    }
    collect(&mut table, 1, &[]);
    let all = totals(&table);
    let renamed = all.iter().filter(|(comm, _)| comm.starts_with("renamed-")).count();
    assert!((50..=100).contains(&renamed), "{renamed}");
    assert_eq!(all.iter().filter(|(comm, _)| comm.starts_with("service-")).count(), 500);
    assert_eq!(all.iter().map(|(_, total)| total).sum::<u64>(), 20_000, "nothing is lost");
    assert!(table.folded() > 9_000);
}

#[test]
fn a_build_that_starts_many_programs_has_the_names_of_all_of_them() {
    let mut table = table(20_000);
    table.set_names(100);
    for round in 0..1000u64 {
        for program in 0..60 {
            let id = table.enter_as(process(&format!("tool-{program}"), "/build"), Timestamp(0), at(round));
            count(&mut table, id, 1);
            table.leave(id, at(round));
        }
    }
    collect(&mut table, 1, &[]);
    assert_eq!((totals(&table).len(), table.folded()), (60, 0));
}

#[test]
fn a_name_that_was_refused_is_admitted_once_its_cgroup_has_room() {
    let mut table = table(100);
    table.set_names(1);
    let naming = |comm: &str| Naming {
        labels: labels(comm),
        own: Some((OwnName { owner: "/pod".into(), name: comm.into() }, labels("rest of /pod"))),
    };
    let first = table.enter_as(naming("first"), Timestamp(0), at(0));
    let second = table.enter_as(naming("second"), Timestamp(0), at(0));
    count(&mut table, second, 3);
    assert!(table.enter_again(second, || naming("second"), Timestamp(0), at(60)).is_none());
    assert!(table.enter_again(first, || naming("first"), Timestamp(0), at(60)).is_none(), "it has its name");
    table.leave(first, at(60));
    table.expire(at(361));
    let named = table.enter_again(second, || naming("second"), Timestamp(361), at(361)).unwrap();
    table.leave(second, at(361));
    count(&mut table, named, 4);
    let expected = [("rest of /pod".to_owned(), 3), ("second".to_owned(), 4)];
    assert_eq!(totals(&table).into_iter().filter(|(comm, _)| comm != "other").collect::<Vec<_>>(), expected);
}
