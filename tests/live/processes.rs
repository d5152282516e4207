//! Processes: their threads, their names, and their exit.

use crate::counting::{Counting, about};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

const FAULTS: &str = "perf_process_page_faults";

fn page_faults_of(pid: u32) -> Counting {
    Counting::of(&format!(
        "counters: {{memory: {{events: [page-faults], per: [process]}}}}\n\
         processes: {{include: [{{pid: {pid}}}], by: [comm]}}\n"
    ))
}

#[test]
fn threads_are_counted_whether_they_start_before_or_after_the_counters() {
    if lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("threads");
    worker.starts_thread();
    let mut counting = page_faults_of(worker.pid());
    let thread = ("comm", "threads");
    counting.collect();
    worker.does_in_thread(Work::Faults(1024));
    let early = counting.collect().value(FAULTS, thread);
    assert!(about(early, 1024), "page faults of a thread that existed before: {early:?}");
    worker.starts_thread();
    worker.does_in_thread(Work::Faults(2048));
    let late = counting.collect().value(FAULTS, thread);
    assert!(about(late, 3072), "page faults including a thread that was created later: {late:?}");
    worker.does(Work::Faults(512));
    let own = counting.collect().value(FAULTS, thread);
    assert!(about(own, 3584), "page faults including the main thread: {own:?}");
}

#[test]
fn what_a_process_counts_after_an_execve_goes_to_its_new_name() {
    if lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("caterpillar");
    let mut counting = page_faults_of(worker.pid());
    worker.does(Work::Faults(1024));
    assert!(about(counting.collect().value(FAULTS, ("comm", "caterpillar")), 1024));
    worker.executes("butterfly");
    // A rename may be detected late. Earlier counts stay with the old name permanently.
    let noticed = std::iter::repeat_with(|| counting.collect()).nth(8).unwrap();
    let old = noticed.value(FAULTS, ("comm", "caterpillar"));
    let new = noticed.value(FAULTS, ("comm", "butterfly")).unwrap_or(0.0);
    worker.does(Work::Faults(2048));
    let after = counting.collect();
    assert_eq!(after.value(FAULTS, ("comm", "caterpillar")), old, "{after:?}");
    assert!(about(after.value(FAULTS, ("comm", "butterfly")).map(|value| value - new), 2048), "{after:?}");
}

#[test]
fn what_a_process_did_just_before_it_ended_is_counted() {
    if lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("mayfly");
    let mut counting = page_faults_of(worker.pid());
    worker.starts_thread();
    worker.does_in_thread(Work::Faults(512));
    let before = counting.collect().value(FAULTS, ("comm", "mayfly"));
    worker.ends_after(Work::Faults(1024));
    let after = counting.collect().value(FAULTS, ("comm", "mayfly"));
    let end = after.zip(before).map(|(after, before)| after - before);
    // An exiting process touches a little more of its memory than a waiting one.
    assert!(end.is_some_and(|end| (1024.0..1300.0).contains(&end)), "{before:?} then {after:?}");
    let later = counting.collect().value(FAULTS, ("comm", "mayfly"));
    assert_eq!(later, after, "its series is kept");
}
