//! Names that processes choose: limits by cgroup.

use super::*;

/// Returns the naming of a process in a cgroup, in series by name only.
fn process(comm: &str, cgroup: &str) -> Naming {
    let name = OwnName { owner: cgroup.into(), name: comm.into() };
    let own = Own { name, labels: labels(&format!("rest of {cgroup}")), info: () };
    Naming { own: Some(own), ..naming(comm) }
}

#[test]
fn a_process_that_renames_itself_all_the_time_leaves_the_names_of_other_cgroups_alone() {
    let mut table = table(20_000);
    table.set_names(100);
    let mut last = None;
    for number in 0..10_000u64 {
        // Ten minutes with 20 new names per minute; those of the first five have ended.
        let now = at(number * 60 / 1000);
        let id = table.enter(process(&format!("renamed-{number}"), "/pod"), now);
        count(&mut table, id, 1);
        if let Some(before) = last.replace(id) {
            table.leave(before, now);
        }
        let service = format!("service-{}", number % 500);
        let id = table.enter(process(&service, &format!("/{service}")), now);
        count(&mut table, id, 1);
        table.leave(id, now);
        if number % 100 == 99 {
            table.end_collection(Timestamp(number), now);
        }
    }
    let all = totals(&table);
    let renamed = all.iter().filter(|(comm, _)| comm.starts_with("renamed-")).count();
    assert!((50..=100).contains(&renamed), "{renamed}");
    assert_eq!(all.iter().filter(|(comm, _)| comm.starts_with("service-")).count(), 500);
    assert_eq!(table.accounts().sum::<u64>(), 20_000, "nothing is lost");
    assert!(table.aggregated() > 9_000);
}

#[test]
fn a_build_that_starts_many_programs_has_the_names_of_all_of_them() {
    let mut table = table(20_000);
    table.set_names(100);
    for round in 0..1000u64 {
        for program in 0..60 {
            let id = table.enter(process(&format!("tool-{program}"), "/build"), at(round));
            count(&mut table, id, 1);
            table.leave(id, at(round));
        }
    }
    collect(&mut table, 1000);
    assert_eq!((totals(&table).len(), table.aggregated()), (60, 0));
}

#[test]
fn a_name_that_was_refused_is_admitted_once_its_cgroup_has_room() {
    let mut table = table(100);
    table.set_names(1);
    let [first, second] = ["first", "second"].map(|comm| table.enter(process(comm, "/pod"), at(0)));
    count(&mut table, second, 3);
    assert_eq!(table.aggregated(), 1);
    assert!(table.enter_again(second, || process("second", "/pod"), at(60)).is_none());
    assert!(table.enter_again(first, || process("first", "/pod"), at(60)).is_none(), "it has its name");
    table.leave(first, at(60));
    collect(&mut table, 61);
    collect(&mut table, 361);
    let with_its_name = table.enter_again(second, || process("second", "/pod"), at(361)).unwrap();
    table.leave(second, at(361));
    count(&mut table, with_its_name, 4);
    collect(&mut table, 362);
    assert_eq!(totals(&table), expected(&[("rest of /pod", 3), ("second", 4)]));
    let other = table.enter(process("second", "/pod"), at(362));
    assert_eq!(other, with_its_name);
    table.leave(other, at(362));
    (363..365).for_each(|now| collect(&mut table, now));
    collect(&mut table, 900);
    assert_eq!(totals(&table), expected(&[("second", 4)]), "one of its two targets is left");
}

#[test]
fn a_name_that_was_refused_is_admitted_after_its_table_was_merged_into_another() {
    let (mut one, mut other) = (table(100), table(100));
    other.set_names(0);
    let id = other.enter(process("nginx", "/pod"), at(0));
    assert_eq!((other.aggregated(), comm_of(&mut other, id)), (1, "rest of /pod".to_owned()));
    one.merge(other, at(1), |(to, _), (from, _)| *to += from);
    let rest = one.find(&labels("rest of /pod")).unwrap();
    let named = one.enter_again(rest, || process("nginx", "/pod"), at(1)).unwrap();
    assert_eq!(comm_of(&mut one, named), "nginx");
}

fn comm_of(table: &mut Plain, id: SeriesId) -> String {
    table.get_mut(id).unwrap().labels.get("comm").unwrap().to_owned()
}
