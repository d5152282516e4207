//! Attribution of the records of a simulated machine.

mod bundles;
mod conservation;
mod format;
mod ingest;
mod machine;
mod rotation;
mod shares;
mod timeline;
mod unsampled;

use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings as abi;

use super::{Attributor, Bundle, Owner, Reason};
use crate::plan::{Granularity, MAX_MEMBERS};
use crate::ring::testing::{self, Switch};
use crate::ring::{Losses, Task};
use crate::sys::{Fields, ReadFormat};
use crate::targets::{CgroupId, Changed};
use machine::{Machine, PACE, name};

fn cgroups() -> Machine {
    Machine::new(Granularity::Cgroup, 1, 1)
}

fn processes() -> Machine {
    Machine::new(Granularity::Process, 1, 1)
}

/// Returns the expected result of [`Machine::first`].
fn owned<const N: usize>(expected: [(&str, u64); N]) -> Vec<(String, u64)> {
    expected.map(|(owner, count)| (owner.to_owned(), count)).to_vec()
}

#[test]
fn a_slice_belongs_to_who_leaves_even_the_first_since_the_start() {
    let mut machine = cgroups();
    machine.runs(0, 5, 10);
    machine.runs(0, 6, 3);
    machine.runs(0, 5, 100);
    assert_eq!(machine.first(), owned([("cgroup 5", 110), ("cgroup 6", 3)]));
}

#[test]
fn what_was_taken_does_not_come_again_and_what_follows_is_the_difference() {
    let mut machine = processes();
    machine.runs(0, 5, 10);
    assert_eq!(machine.first(), owned([("5 ?", 10)]));
    assert_eq!(machine.first(), []);
    machine.runs(0, 5, 4);
    assert_eq!(machine.first(), owned([("5 ?", 4)]));
}

#[test]
fn each_cpu_has_its_own_readings() {
    let mut machine = Machine::new(Granularity::Process, 2, 1);
    machine.runs(0, 5, 1000);
    machine.runs(1, 6, 1);
    machine.runs(0, 6, 20);
    machine.runs(1, 5, 300);
    assert_eq!(machine.first(), owned([("5 ?", 1300), ("6 ?", 21)]));
}

#[test]
fn the_time_of_the_first_bundle_is_the_cpu_time() {
    let mut machine = Machine::new(Granularity::Process, 1, 2);
    machine.counts(0, 1, 1_000_000);
    machine.leaves(0, 1, 5);
    machine.runs(0, 5, 100);
    let shares = machine.attributor.take(|_| true);
    let time: Vec<_> = shares.iter().filter(|(_, share)| !share.time.is_zero()).collect();
    let [(owner, share)] = time[..] else { panic!("{time:?}") };
    assert_eq!((name(owner), share.counts), ("5 ?".to_owned(), &[100, 1_000_000][..]));
    assert_eq!(share.time, Duration::from_nanos(100 * PACE));
}

#[test]
fn idle_time_is_its_own_and_the_root_cgroups_where_only_cgroups_are_told_apart() {
    let mut machine = processes();
    machine.runs(0, 0, 10);
    assert_eq!(machine.first(), owned([("idle", 10)]));
    let mut machine = cgroups();
    machine.runs(0, 1, 10);
    assert_eq!(machine.first(), owned([("cgroup 1", 10)]));
}

#[test]
fn after_a_lost_record_one_slice_belongs_to_nobody_and_the_next_to_its_owner_again() {
    let mut machine = cgroups();
    machine.counts(0, 0, 7);
    machine.loses(0, 0);
    machine.runs(0, 5, 3);
    machine.runs(0, 6, 20);
    assert_eq!(machine.first(), owned([("cgroup 6", 20), ("lost", 10)]));
    assert_eq!(machine.attributor.losses().ring_full, 1);
}

#[test]
fn a_loss_is_of_one_ring_and_the_slices_of_another_keep_their_owners() {
    let mut machine = Machine::new(Granularity::Cgroup, 2, 2);
    machine.loses(0, 1);
    for (cpu, bundle) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        machine.counts(cpu, bundle, 10);
        machine.leaves(cpu, bundle, 5);
    }
    let expected = [("cgroup 5".to_owned(), vec![20, 10]), ("lost".to_owned(), vec![0, 10])];
    assert_eq!(machine.shares(), expected);
}

#[test]
fn a_sample_of_another_size_is_unreadable_and_makes_a_gap() {
    let mut machine = cgroups();
    let fields = Fields { read: Some(ReadFormat::default()), cgroup: true, ..Fields::default() };
    for members in [0, 2, 4, MAX_MEMBERS + 1] {
        machine.counts(0, 0, 3);
        let switch = Switch { values: vec![1_000_000; members], cgroup: 5, ..Switch::default() };
        machine.reads(0, 0, &switch.record(&fields));
        machine.runs(0, 5, 4);
        machine.runs(0, 5, 100);
        assert_eq!(machine.first(), owned([("cgroup 5", 100), ("lost", 7)]), "{members}");
    }
    assert_eq!(machine.attributor.losses().unreadable, 4);
}

#[test]
fn bytes_that_are_no_record_make_a_gap() {
    let mut machine = cgroups();
    for (count, bytes) in [&b""[..], b"perf", &[0xff; 64]].into_iter().enumerate() {
        machine.reads(0, 0, bytes);
        machine.runs(0, 5, 4);
        assert_eq!(machine.first(), owned([("lost", 4)]));
        assert_eq!(machine.attributor.losses().unreadable, 1 + count as u64);
    }
}

#[test]
fn a_record_of_a_ring_that_nobody_knows_is_passed_over() {
    let mut machine = cgroups();
    machine.reads(7, 0, &testing::lost(1, 1));
    machine.reads(0, 7, &testing::lost(1, 1));
    machine.attributor.mark_gap(7, 0);
    machine.attributor.mark_gap(0, 7);
    machine.runs(0, 5, 1);
    assert_eq!(machine.first(), owned([("cgroup 5", 1)]));
    assert_eq!(machine.attributor.losses().ring_full, 0);
}

#[test]
fn what_was_counted_after_the_last_record_of_a_cpu_that_goes_has_no_owner() {
    let mut machine = cgroups();
    machine.runs(0, 5, 10);
    machine.counts(0, 0, 6);
    // A gap makes no difference, because no record follows.
    machine.attributor.mark_gap(0, 0);
    let last = machine.totals(0, 0).words(0);
    machine.attributor.remove_cpu(0, &mut [last.clone()]);
    let shares = machine.attributor.take(|_| true);
    let (_, ended) = shares.iter().find(|(owner, _)| **owner == Owner::Unattributed(Reason::Ended)).unwrap();
    assert_eq!((ended.counts, ended.time), (&[6][..], Duration::from_nanos(6 * PACE)));
    // The CPU is removed, and its counts are reported once.
    machine.attributor.remove_cpu(0, &mut [last]);
    machine.runs(0, 5, 1);
    assert_eq!(machine.first(), []);
}

#[test]
fn a_last_reading_that_failed_or_is_of_another_group_charges_nothing() {
    for words in [vec![], vec![3, 1, 1], vec![1, 1, 1, 1000], vec![u64::MAX, 0, 0]] {
        let mut machine = cgroups();
        machine.runs(0, 5, 10);
        machine.attributor.remove_cpu(0, &mut [words]);
        assert_eq!(machine.first(), owned([("cgroup 5", 10)]));
    }
}

#[test]
fn a_bundle_of_more_members_than_a_group_may_have_is_left_out() {
    let mut machine = cgroups();
    machine.attributor.add_cpu(
        7,
        &[Bundle {
            counters: vec![vec![0]; MAX_MEMBERS + 3],
            measures: Vec::new(),
            switches: 0,
            untimed: true,
        }],
    );
    machine.reads(7, 0, &testing::lost(1, 1));
    assert_eq!(machine.attributor.losses().ring_full, 0);
}

#[test]
fn a_count_that_fills_its_number_stays_there() {
    let mut machine = cgroups();
    for total in [u64::MAX, 0, u64::MAX] {
        *machine.totals(0, 0) = machine::Totals {
            enabled: total,
            running: total,
            counts: vec![total],
            ..machine::Totals::default()
        };
        machine.leaves(0, 0, 5);
    }
    machine.totals(0, 0).counts[0] = 0;
    machine.runs(0, 5, 0);
    assert_eq!(machine.first(), owned([("cgroup 5", u64::MAX)]));
}

#[test]
fn cgroups_that_come_and_go_leave_their_paths() {
    let mut machine = cgroups();
    machine.reads(0, 0, &testing::cgroup(77, b"/short/lived"));
    let shares = machine.attributor.take(|_| true);
    assert_eq!(shares.created().get(CgroupId(77)).map(|path| &**path), Some("/short/lived"));
    assert_eq!(shares.created().get(CgroupId(78)), None);
}

#[test]
fn a_thread_that_gave_back_its_id_is_of_the_process_that_has_just_ended() {
    let mut machine = processes();
    machine.is_named(0, 5, "work");
    machine.ends(0, 5);
    machine.counts(0, 0, 10);
    machine.leaves_without_an_id(0, 0);
    // The clock writes a record between the exit of the thread and that of its process.
    machine.ends(0, 5);
    machine.runs(0, 5, 5);
    machine.counts(0, 0, 20);
    machine.leaves_without_an_id(0, 0);
    machine.counts(0, 0, 4000);
    machine.leaves_without_an_id(0, 0);
    assert_eq!(machine.first(), owned([("5 work", 35), ("unknown", 4000)]));
}

#[test]
fn a_process_whose_parent_ran_before_its_last_steps_is_known_without_an_id() {
    for next in [0, 6] {
        let mut machine = processes();
        machine.is_named(0, 5, "work");
        machine.ends(0, 5);
        machine.runs(0, 5, 1);
        // It is reaped meanwhile.
        machine.runs(0, next, 20);
        machine.counts(0, 0, 3);
        machine.leaves_without_an_id(0, 0);
        let other = if next == 0 { ("idle", 20) } else { ("6 ?", 20) };
        let mut expected = [("5 work", 4), other];
        expected.sort_unstable();
        assert_eq!(machine.first(), owned(expected));
    }
}

#[test]
fn of_several_that_ended_the_last_leaves_first() {
    let mut machine = processes();
    for (pid, name) in [(5, "a"), (6, "b"), (7, "c"), (8, "d"), (9, "e")] {
        machine.is_named(0, pid, name);
        machine.ends(0, pid);
    }
    for count in [1, 2, 3, 4, 100] {
        machine.counts(0, 0, count);
        machine.leaves_without_an_id(0, 0);
    }
    let expected = [("6 b", 4), ("7 c", 3), ("8 d", 2), ("9 e", 1), ("unknown", 100)];
    assert_eq!(machine.first(), owned(expected));
}

#[test]
fn which_process_left_without_an_id_is_not_guessed_after_a_loss() {
    let mut machine = processes();
    machine.ends(0, 5);
    machine.loses(0, 0);
    machine.runs(0, 6, 1);
    // One of the lost records may have been the exit of another process.
    machine.counts(0, 0, 10);
    machine.leaves_without_an_id(0, 0);
    assert_eq!(machine.first(), owned([("lost", 1), ("unknown", 10)]));
}

#[test]
fn a_child_has_its_parents_name_until_its_own() {
    let mut machine = processes();
    machine.is_named(0, 5, "sh");
    machine.forks(0, 5, 6);
    machine.runs(0, 6, 10);
    machine.is_named(0, 6, "ls");
    machine.runs(0, 6, 3);
    machine.runs(0, 5, 1);
    assert_eq!(machine.first(), owned([("5 sh", 1), ("6 ls", 3), ("6 sh before", 10)]));
}

#[test]
fn a_thread_is_of_its_process() {
    let mut machine = processes();
    machine.is_named(0, 5, "work");
    let thread = Task { pid: 5, parent_pid: 5, tid: 50, parent_tid: 5, time: 0 };
    machine.reads(0, 0, &testing::fork(thread));
    machine.runs(0, 5, 1);
    // Neither the name nor the exit of the thread changes the process.
    machine.takes_name(0, (5, 50), b"helper");
    machine.reads(0, 0, &testing::exit(thread));
    machine.runs(0, 5, 20);
    machine.forks(0, 5, 6);
    machine.runs(0, 6, 300);
    assert_eq!(machine.first(), owned([("5 work", 21), ("6 work", 300)]));
}

#[test]
fn a_process_that_takes_its_own_name_again_stays_what_it_is() {
    let mut machine = processes();
    machine.is_named(0, 5, "sh");
    machine.runs(0, 5, 10);
    machine.is_named(0, 5, "sh");
    machine.runs(0, 5, 3);
    let shares = machine.attributor.take(|_| true);
    let counted: u64 = shares
        .iter()
        .filter(|(owner, _)| matches!(owner, Owner::Task(task) if task.pid == 5 && task.comm.as_deref() == Some("sh")))
        .map(|(_, share)| share.counts[0])
        .sum();
    assert_eq!(counted, 13);
}

#[test]
fn a_name_of_any_bytes_is_made_readable() {
    let mut machine = processes();
    machine.takes_name(0, (5, 5), b"\xff\n\"");
    machine.runs(0, 5, 1);
    assert_eq!(machine.first(), owned([("5 \u{fffd}\n\"", 1)]));
}

#[test]
fn the_kernels_threads_are_known_by_their_parent() {
    let mut machine = processes();
    machine.forks(0, 2, 50);
    machine.is_named(0, 50, "kworker/0:1");
    machine.runs(0, 50, 1);
    machine.forks(0, 50, 51);
    machine.runs(0, 51, 2);
    let kernel_thread: Arc<str> = "kthreadd".into();
    machine.attributor.describe(2, &kernel_thread, true);
    machine.runs(0, 2, 3);
    let expected =
        [("2 kthreadd of the kernel", 3), ("50 kworker/0:1 of the kernel", 1), ("51 kworker/0:1", 2)];
    assert_eq!(machine.first(), owned(expected));
}

#[test]
fn a_process_that_was_there_before_has_the_name_that_proc_tells() {
    let mut machine = processes();
    machine.runs(0, 5, 1);
    machine.attributor.describe(5, &"sh".into(), false);
    // Names from records are newer than those from /proc in the same scan.
    machine.is_named(0, 6, "new");
    machine.attributor.describe(6, &"old".into(), false);
    machine.runs(0, 6, 2);
    assert_eq!(machine.first(), owned([("5 sh", 1), ("6 new", 2)]));
}

#[test]
fn a_pid_that_comes_again_is_another_process() {
    let mut machine = processes();
    machine.is_named(0, 1, "init");
    machine.attributor.describe(5, &"old".into(), false);
    machine.runs(0, 5, 10);
    machine.ends(0, 5);
    machine.forks(0, 1, 5);
    machine.runs(0, 5, 3);
    assert_eq!(machine.first(), owned([("5 init", 3), ("5 old before", 10)]));
    // Even if the record of its exit was lost.
    machine.runs(0, 5, 20);
    machine.forks(0, 1, 5);
    machine.is_named(0, 5, "new");
    machine.runs(0, 5, 4);
    assert_eq!(machine.first(), owned([("5 init before", 20), ("5 new", 4)]));
}

#[test]
fn what_a_child_did_before_its_birth_was_read_has_its_parents_name() {
    let mut machine = Machine::new(Granularity::Process, 2, 1);
    machine.is_named(1, 5, "sh");
    machine.runs(0, 6, 10);
    machine.forks(1, 5, 6);
    machine.runs(0, 6, 3);
    assert_eq!(machine.first(), owned([("6 sh", 13)]));
}

#[test]
fn a_birth_that_is_read_late_does_not_take_the_name_that_the_child_chose() {
    let mut machine = Machine::new(Granularity::Process, 2, 1);
    machine.is_named(1, 5, "sh");
    // The child is on another CPU, whose ring is read first.
    machine.runs(0, 6, 10);
    machine.is_named(0, 6, "ls");
    machine.runs(0, 6, 3);
    machine.forks(1, 5, 6);
    machine.runs(0, 6, 200);
    let shares = machine.first();
    assert_eq!(shares, owned([("6 ls", 203), ("6 sh before", 10)]));
}

#[test]
fn a_child_that_was_seen_in_proc_before_its_birth_was_read_is_one_process() {
    let mut machine = processes();
    machine.is_named(0, 5, "sh");
    machine.attributor.describe(6, &"ls".into(), false);
    machine.forks(0, 5, 6);
    machine.runs(0, 6, 10);
    machine.is_named(0, 6, "ls");
    machine.runs(0, 6, 3);
    assert_eq!(machine.first(), owned([("6 ls", 3), ("6 sh before", 10)]));
}

#[test]
fn a_process_has_a_row_in_each_cgroup_that_it_ran_in() {
    let mut machine = processes();
    machine.is_named(0, 5, "sh");
    for (cgroup, count) in [(7, 1), (8, 20), (7, 300)] {
        machine.runs_in(0, (5, cgroup), count);
    }
    assert_eq!(machine.first(), owned([("5 sh in 7", 301), ("5 sh in 8", 20)]));
}

#[test]
fn who_is_gone_and_did_not_run_is_forgotten_and_who_is_there_is_not() {
    let mut machine = processes();
    for pid in [5, 6, 7] {
        machine.is_named(0, pid, "name");
    }
    // The last scan may be older than a process that was named in this round: it is kept.
    machine.attributor.take(|_| false);
    machine.runs(0, 5, 1);
    // 5 has exited but ran, 6 exists, 7 neither exists nor ran.
    machine.attributor.take(|pid| pid == 6);
    for pid in [5, 6, 7] {
        machine.runs(0, pid, u64::from(pid));
    }
    assert_eq!(machine.first(), owned([("5 name", 5), ("6 name", 6), ("7 ?", 7)]));
}

#[test]
fn whoever_takes_name_after_name_makes_no_more_rows_than_there_may_be() {
    let mut machine = processes();
    for turn in 0..200_000u32 {
        machine.is_named(0, 5, if turn % 2 == 0 { "one" } else { "other" });
        machine.runs(0, 5, 1);
    }
    let shares = machine.attributor.take(|_| true);
    assert!(shares.iter().count() <= 1 << 17);
    let nobody = shares.iter().find(|(owner, ..)| **owner == Owner::Unattributed(Reason::Unknown)).unwrap();
    assert!(nobody.1.counts[0] > 60_000, "{nobody:?}");
    assert_eq!(shares.iter().map(|(_, share)| share.counts[0]).sum::<u64>(), 200_000);
    // The table has space again.
    machine.runs(0, 5, 1);
    assert_eq!(machine.first(), owned([("5 other", 1)]));
}

#[test]
fn the_names_of_two_hundred_thousand_processes_are_kept_as_far_as_there_is_room() {
    let mut machine = processes();
    for pid in 1..=200_000 {
        machine.is_named(0, pid, "name");
    }
    for pid in [1, 200_000] {
        machine.runs(0, pid, 1);
        machine.forks(0, 1, pid + 1_000_000);
        machine.runs(0, pid + 1_000_000, 1);
    }
    machine.attributor.describe(200_000, &"late".into(), false);
    let expected = [("1 name", 1), ("1000001 ?", 1), ("1200000 ?", 1), ("200000 ?", 1)];
    assert_eq!(machine.first(), owned(expected));
    // Processes that have exited are removed.
    machine.attributor.take(|_| false);
    machine.is_named(0, 200_000, "name");
    machine.runs(0, 200_000, 1);
    assert_eq!(machine.first(), owned([("200000 name", 1)]));
}

#[test]
fn records_tell_which_processes_changed_unless_some_are_missing() {
    let mut machine = processes();
    assert_eq!(machine.attributor.take_changed(), None, "there was no full scan yet");
    machine.forks(0, 5, 7);
    machine.is_named(0, 7, "tool");
    machine.ends(0, 5);
    let news = machine.attributor.take_changed().unwrap();
    assert!(news.changed.iter().eq([&7]) && news.ending.iter().eq([&5]), "{news:?}");
    machine.runs(0, 7, 10);
    assert_eq!(
        machine.attributor.take_changed(),
        Some(Changed::default()),
        "a process does not change by running"
    );
    for misses in [
        |machine: &mut Machine| machine.loses(0, 0),
        |machine: &mut Machine| machine.reads(0, 0, b"perf"),
        |machine: &mut Machine| machine.attributor.mark_gap(0, 0),
        |machine: &mut Machine| machine.attributor.add_cpu(1, &[]),
    ] {
        misses(&mut machine);
        assert_eq!(machine.attributor.take_changed(), None);
        assert_eq!(machine.attributor.take_changed(), Some(Changed::default()));
    }
}

#[test]
fn records_of_cgroups_do_not_identify_the_processes_that_changed() {
    let mut machine = cgroups();
    machine.attributor.take_changed();
    assert_eq!(machine.attributor.take_changed(), None);
}

#[test]
fn the_slice_after_a_gap_is_lost_and_its_switches_are_not_unrecorded() {
    let mut machine = cgroups();
    machine.runs(0, 5, 1);
    machine.attributor.mark_gap(0, 0);
    machine.runs_unseen(0, 20);
    machine.runs(0, 5, 300);
    machine.runs(0, 6, 4000);
    assert_eq!(machine.first(), owned([("cgroup 5", 1), ("cgroup 6", 4000), ("lost", 320)]));
    assert_eq!(machine.attributor.losses(), Losses { records: 3, ..Losses::default() });
}

#[test]
fn throttling_is_counted() {
    let mut machine = cgroups();
    for _ in 0..2 {
        machine.reads(0, 0, &testing::record(abi::PERF_RECORD_THROTTLE, 0, &testing::bytes(&[0; 3])));
    }
    assert_eq!(machine.attributor.losses(), Losses { throttled: 2, ..Losses::default() });
}

#[test]
fn the_exit_of_a_thread_does_not_explain_a_record_without_an_id() {
    let mut machine = processes();
    machine.is_named(0, 5, "work");
    machine.reads(0, 0, &testing::exit(Task { pid: 5, parent_pid: 5, tid: 50, parent_tid: 5, time: 0 }));
    machine.counts(0, 0, 10);
    machine.leaves_without_an_id(0, 0);
    assert_eq!(machine.first(), owned([("unknown", 10)]));
}

#[test]
fn a_process_has_no_cgroup_if_records_contain_none() {
    let fields = Fields { tid: true, read: Some(ReadFormat::default()), ..Fields::default() };
    let mut attributor = Attributor::new(Granularity::Process, fields, 1, false);
    let bundle =
        Bundle { counters: vec![vec![], vec![], vec![0]], measures: Vec::new(), switches: 0, untimed: true };
    attributor.add_cpu(0, &[bundle]);
    let switch = Switch { pid: 5, tid: 5, values: vec![1, 100, 10], ..Switch::default() };
    attributor.read(0, 0, |read| read(&switch.record(&super::bundle_fields(fields, true))));
    let shares = attributor.take(|_| true);
    let (owner, _) = shares.iter().find(|(_, share)| !share.is_empty()).unwrap();
    assert!(matches!(owner, Owner::Task(task) if task.pid == 5 && task.cgroup.is_none()), "{owner:?}");
}
