//! Restarts, with good and bad files.

use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use crate::anomaly::tests::Machine;

/// Lets the thread load the file, and then the machine run for some time.
fn run(baselines: &mut Baselines, machine: &mut Machine, directory: &Arc<Path>, steps: u64) {
    let directory = Some(Arc::clone(directory));
    baselines.follow(&directory, &mut machine.watch, Timestamp(machine.at));
    while baselines.thread.as_ref().is_some_and(|thread| thread.loaded.is_some()) {
        thread::sleep(Duration::from_millis(1));
        baselines.restore(&mut machine.watch);
    }
    for _ in 0..steps {
        machine.step(|_| (1.0, 1.0));
        baselines.follow(&directory, &mut machine.watch, Timestamp(machine.at));
    }
}

/// Runs a machine with such a directory and ends it regularly. Returns how many cgroups were judged in its last interval.
fn run_and_end(directory: &Path, begin: u64, steps: u64) -> u64 {
    let (running, ended) = channel();
    let (mut baselines, mut machine) = (Baselines::new(running), Machine::of_cpi(&["/a"]));
    machine.at += begin;
    run(&mut baselines, &mut machine, &directory.into(), steps);
    let judged = machine.step(|_| (1.0, 1.0)).unwrap().verdicts[0].normal;
    baselines.finish(&mut machine.watch, Timestamp(machine.at));
    // Disconnected when everything is written.
    ended.recv().unwrap_err();
    judged
}

#[test]
fn a_restart_begins_with_what_was_learned_before() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run_and_end(directory.path(), 0, 70), 1);
    assert_eq!(run_and_end(directory.path(), 3_600_000, 2), 1, "judged at once");
    let other = tempfile::tempdir().unwrap();
    assert_eq!(run_and_end(other.path(), 3_600_000, 2), 0, "without a file it is warming up");
}

#[test]
fn without_a_directory_nothing_is_written_and_no_thread_is_started() {
    let (running, ended) = channel();
    let (mut baselines, mut machine) = (Baselines::new(running), Machine::of_cpi(&["/a"]));
    for _ in 0..70 {
        machine.step(|_| (1.0, 1.0));
        baselines.follow(&None, &mut machine.watch, Timestamp(machine.at));
    }
    assert!(baselines.thread.is_none());
    baselines.finish(&mut machine.watch, Timestamp(machine.at));
    ended.recv().unwrap_err();
}

#[test]
fn it_is_written_every_five_minutes_so_a_killed_exporter_loses_no_more() {
    for (passed, is_written) in [(EVERY - 1, false), (EVERY, true)] {
        let directory = tempfile::tempdir().unwrap();
        let (running, ended) = channel();
        let (mut baselines, mut machine) = (Baselines::new(running), Machine::of_cpi(&["/a"]));
        run(&mut baselines, &mut machine, &directory.path().into(), 0);
        let started = machine.at;
        (0..70).for_each(|_| drop(machine.step(|_| (1.0, 1.0))));
        let path: Arc<Path> = directory.path().into();
        baselines.follow(&Some(path), &mut machine.watch, Timestamp(started + passed));
        drop(baselines);
        ended.recv().unwrap_err();
        assert_eq!(directory.path().join("baselines").exists(), is_written);
        assert_eq!(run_and_end(directory.path(), 3_600_000, 2), u64::from(is_written));
    }
}

#[test]
fn a_file_of_a_newer_version_is_left_alone_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, newer) = (directory.path().join("baselines"), "perf-exporter baselines 99\nsomething");
    fs::write(&path, newer).unwrap();
    assert_eq!(run_and_end(directory.path(), 0, 70), 1);
    assert_eq!(crate::host::read_text(&path).unwrap(), newer);
    let (running, ended) = channel();
    let (mut baselines, mut machine) = (Baselines::new(running), Machine::of_cpi(&["/a"]));
    run(&mut baselines, &mut machine, &directory.path().into(), 70);
    fs::remove_file(&path).unwrap();
    baselines.finish(&mut machine.watch, Timestamp(machine.at));
    ended.recv().unwrap_err();
    assert!(path.exists());
}

#[test]
fn a_directory_that_does_not_exist_or_is_a_file_changes_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [directory.path().join("missing"), file] {
        assert_eq!(run_and_end(&path, 0, 70), 1);
    }
}

#[test]
fn a_changed_directory_gets_what_was_learned_and_adds_what_it_has() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    assert_eq!(run_and_end(one.path(), 0, 70), 1);
    let (running, ended) = channel();
    let (mut baselines, mut machine) = (Baselines::new(running), Machine::of_cpi(&["/b"]));
    machine.at += 3_600_000;
    run(&mut baselines, &mut machine, &one.path().into(), 70);
    run(&mut baselines, &mut machine, &other.path().into(), 1);
    baselines.finish(&mut machine.watch, Timestamp(machine.at));
    ended.recv().unwrap_err();
    assert_eq!(run_and_end(other.path(), 7_200_000, 2), 1, "of the first directory");
}
