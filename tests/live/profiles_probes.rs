//! Stacks sampled at probes, of a program that calls its functions a known number of times.

use std::fs;

use crate::leftovers::defined_by;
use crate::profiles::profiling;
use crate::support::folded::Folded;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

fn lacks_probes() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs].into_iter().any(lacks)
}

/// Starts a service with these entries of `profiles`, with small stack copies.
fn sampling(entries: &[String]) -> Service {
    let entries: Vec<String> = entries.iter().map(|entry| entry.replace("}", ", stack: 1KiB}")).collect();
    profiling(&entries.join(", "))
}

fn folded(service: &Service, entry: &str, running: &Running) -> Folded {
    Folded::of(service, &format!("type={entry}&pid={}", running.pid()))
}

/// Returns the number of records lost because a ring was full.
fn lost(service: &Service) -> f64 {
    service.metrics().sum("perf_lost_records_total", &[("ring", "samples")])
}

#[test]
fn every_call_is_a_sample_with_the_stack_of_its_caller_and_needs_no_definition() {
    if lacks_probes() {
        return;
    }
    const CALLS: f64 = 2000.0;
    let program = Program::compile();
    let place = program.at("hit");
    let service = sampling(&[
        format!("calls: {{uprobe: \"{place}\"}}"),
        format!("some: {{uprobe: \"{place}\", period: 100}}"),
        format!("returns: {{uretprobe: \"{place}\"}}"),
    ]);
    assert_eq!(defined_by(service.child.id()), Vec::<String>::new());
    let mut running = program.start();
    running.does(&format!("hits 1 {CALLS}"));

    let calls = folded(&service, "calls", &running);
    let lost = lost(&service);
    // Each sample represents one call.
    assert!(calls.total() <= CALLS && calls.total() + lost >= CALLS, "{lost} lost: {calls:#?}");
    assert_eq!(calls.share(&["main", "hit"]), 1.0, "{calls:#?}");
    // A CPU with fewer than a hundred calls has no sample of them.
    let some = folded(&service, "some", &running);
    let cpus = perf_exporter::host::Facts::read(&perf_exporter::host::Roots::default()).online.len() as f64;
    assert_eq!(some.total() % 100.0, 0.0, "{some:#?}");
    assert!(some.total() <= CALLS && some.total() + 100.0 * (cpus + lost) > CALLS, "{lost} lost: {some:#?}");
    // The function has returned when the sample is taken.
    let returns = folded(&service, "returns", &running);
    assert!(returns.total() <= CALLS && returns.total() + lost >= CALLS, "{lost} lost: {returns:#?}");
    assert_eq!(returns.innermost().into_keys().collect::<Vec<_>>(), ["main"], "{returns:#?}");
    running.ends();
}

#[test]
fn a_marker_is_armed_by_its_semaphore_and_has_stacks() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = sampling(&[format!("steps: {{usdt: \"{}\"}}", program.at("live:step"))]);
    let mut running = program.start();
    assert!(running.does("semaphore") > 0);
    running.does("marks 1 10");
    let steps = folded(&service, "steps", &running);
    assert_eq!((steps.total() + lost(&service), steps.share(&["main", "marks"])), (10.0, 1.0), "{steps:#?}");
    drop(service);
    assert_eq!(running.does("semaphore"), 0);
}

#[test]
fn a_probe_moves_to_the_file_that_takes_the_place_of_its_own_and_goes_on_counting() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("upgraded");
    program.copy_to(&path);
    let start = || Running::by(&mut std::process::Command::new(&path));
    let mut service = sampling(&[format!("calls: {{uprobe: \"{}:hit\"}}", path.display())]);
    // A collection contains the samples analyzed before it. The sample reader runs five times per second.
    let sampled = |service: &Service, count: f64| {
        eventually("all hits are sampled", || {
            let sampled =
                service.metrics().sum("perf_samples_total", &[("profile", "calls")]) + lost(service);
            assert!(sampled <= count, "{sampled} of {count}");
            (sampled == count).then_some(())
        });
    };
    let mut old = start();
    old.does("hits 1 100");
    sampled(&service, 100.0);

    program.copy_to(&dir.path().join("new"));
    fs::rename(dir.path().join("new"), &path).unwrap();
    let mut new = start();
    eventually("the probe is attached to the new file", || {
        service.metrics();
        service.log().contains("attaching the probes to the new files").then_some(())
    });
    new.does("hits 1 10");
    old.does("hits 1 1000");
    // Samples of the new file, in addition to the old ones.
    sampled(&service, 110.0);
    let both = Folded::of(&service, "type=calls");
    assert_eq!(both.total() + lost(&service), 110.0, "{both:#?}");
}

#[test]
fn what_cannot_be_probed_is_told_and_the_rest_is_sampled() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut service = sampling(&[
        format!("misspelt: {{uprobe: \"{}\"}}", program.at("hid")),
        format!("calls: {{uprobe: \"{}\"}}", program.at("hit")),
    ]);
    service.has_logged(&["similar names: hit"]);
    let mut running = program.start();
    running.does("hits 1 12");
    assert_eq!(folded(&service, "calls", &running).total() + lost(&service), 12.0);
    let metrics = service.metrics();
    let told = metrics.by("perf_event_state", "event").any(|(event, _)| event.ends_with(":hid"));
    assert!(told, "{metrics:?}");
}
