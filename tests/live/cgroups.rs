//! Cgroups: their own counts, counts including their descendants, and series of removed cgroups.

use std::time::Duration;

use crate::counting::{Counting, about};
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::http::ask;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

const FAULTS: &str = "perf_cgroup_page_faults";

/// Counts the page faults of a cgroup and all its descendants.
fn page_faults_below(top: &TestCgroup, descendants: bool) -> Counting {
    let path = top.path();
    Counting::of(&format!(
        "counters: {{memory: {{events: [page-faults], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{path}\", \"{path}/**\"], descendants: {descendants}}}\n"
    ))
}

#[test]
fn each_count_belongs_to_one_cgroup_and_the_sum_is_the_kernels_count_of_the_parent() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let outer = TestCgroup::new("nested");
    let inner = outer.below("inner");
    let (mut above, mut below) = (Worker::start("above"), Worker::start("below"));
    outer.take(above.pid());
    inner.take(below.pid());
    let mut own = page_faults_below(&outer, false);
    let mut inclusive = page_faults_below(&outer, true);
    above.does(Work::Faults(1024));
    below.does(Work::Faults(4096));
    let (own, inclusive) = (own.collect(), inclusive.collect());
    let (of_outer, of_inner) = (("cgroup", outer.path()), ("cgroup", inner.path()));
    assert!(about(own.value(FAULTS, of_outer), 1024), "page faults of the parent: {own:?}");
    assert!(about(own.value(FAULTS, of_inner), 4096), "page faults of the child: {own:?}");
    assert_eq!(
        inclusive.value(FAULTS, of_inner),
        own.value(FAULTS, of_inner),
        "the child has no descendants"
    );
    assert_eq!(inclusive.value(FAULTS, of_outer), Some(own.sum(FAULTS)), "own: {own:?}");
}

#[test]
fn a_cgroup_that_is_removed_keeps_its_count_for_five_minutes() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let outer = TestCgroup::new("vanishing");
    let inner = outer.below("inner");
    let mut counting = page_faults_below(&outer, false);
    let worker = Worker::start("short");
    inner.take(worker.pid());
    // The last counts are made after the last collection that read the cgroup.
    counting.collect();
    worker.ends_after(Work::Faults(2048));
    let path = inner.path().to_owned();
    drop(inner);
    let gone = counting.collect();
    let last = gone.value(FAULTS, ("cgroup", &path));
    assert!(about(last, 2048), "{gone:?}");

    counting.advance(Duration::from_secs(301));
    let later = counting.collect();
    assert_eq!(later.value(FAULTS, ("cgroup", &path)), None, "{later:?}");
    assert_eq!(
        later.value(FAULTS, ("cgroup", "other")),
        None,
        "the total of the removed cgroup was added to `other`: {later:?}"
    );
}

#[test]
fn a_cgroup_that_is_made_again_goes_on_where_it_stopped() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let outer = TestCgroup::new("again");
    let mut counting = page_faults_below(&outer, false);
    let mut expected = 0;
    for pages in [1024, 512] {
        let inner = outer.below("inner");
        let worker = Worker::start("short");
        inner.take(worker.pid());
        counting.collect();
        worker.ends_after(Work::Faults(pages));
        let path = inner.path().to_owned();
        drop(inner);
        expected += pages;
        let collected = counting.collect();
        assert!(about(collected.value(FAULTS, ("cgroup", &path)), expected), "{expected} of {collected:?}");
    }
}

#[test]
fn series_beyond_their_share_of_the_memory_are_aggregated_and_the_busiest_keep_their_labels() {
    if lacks(Feature::Cgroup) || lacks(Feature::Stream) {
        return;
    }
    let outer = TestCgroup::new("crowd");
    let _idle: Vec<TestCgroup> = (0..5000).map(|number| outer.below(&format!("{number}"))).collect();
    let inner = outer.below("busy");
    let mut worker = Worker::start("busy");
    inner.take(worker.pid());
    let events = "[task-clock, page-faults, context-switches, cpu-migrations]";
    let mut service = Service::start_fresh(&format!(
        "limits: {{memory: 8MiB}}\ncounters: {{os: {{events: {events}, per: [cgroup], cgroups: {{include: ['{}/**']}}}}}}",
        outer.path()
    ));
    let of_series = [("part", "series")];
    let held = |metrics: &Exposition| {
        ["perf_exporter_memory_bytes", "perf_exporter_memory_limit_bytes"]
            .map(|name| metrics.value(name, &of_series).unwrap())
    };
    let named = |metrics: &Exposition| metrics.series("perf_cgroup_page_faults_total").count();
    let mut numbers = Vec::new();
    for _ in 0..6 {
        worker.does(Work::Faults(20_000));
        numbers.push(named(&service.metrics()));
    }
    let metrics = service.metrics();
    assert!(
        numbers[3..].iter().all(|&number| number == named(&metrics)),
        "the number of series changes: {numbers:?}"
    );
    let [used, limit] = held(&metrics);
    assert!(used <= limit, "{used} bytes used, the limit is {limit}");
    assert!((64..4000).contains(&named(&metrics)), "{numbers:?} series");
    let faults = metrics.value("perf_cgroup_page_faults_total", &[("cgroup", inner.path())]);
    // The cgroup may exceed `limits.series` until its first counts, which are then aggregated into `other`.
    let other = metrics.value("perf_cgroup_page_faults_total", &[("cgroup", "other")]).unwrap_or(0.0);
    assert!(other < 25_000.0, "{other}");
    // On a loaded machine the kernel does not write a record of every switch.
    let lost: f64 = ["lost", "unrecorded"]
        .into_iter()
        .filter_map(|reason| {
            metrics.value("perf_unattributed_page_faults_total", &[("scope", "cgroup"), ("reason", reason)])
        })
        .sum();
    let faults = faults.unwrap_or_default();
    assert!(
        faults + other + lost >= 119_000.0,
        "{faults} page faults, {other} in `other`, {lost} unattributed"
    );
    service.has_logged(&["series exceed their share of limits.memory", "set limits.memory higher"]);
}

#[test]
fn at_the_level_standard_cgroups_have_series_from_their_first_event_on_and_programs_have_none() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (active, idle) = (TestCgroup::new("active"), TestCgroup::new("idle"));
    let mut worker = Worker::start("active");
    active.take(worker.pid());
    let service = Service::start(&format!(
        "metrics: {{level: standard, include: [perf_cgroup_major_faults_total]}}\n\
         counters:\n  os: {{events: [page-faults, major-faults], per: cgroup}}\n  \
         programs: {{events: [page-faults], per: process, level: full}}\n\
         cgroups: {{include: [\"{}\", \"{}\"]}}\n",
        active.path(),
        idle.path()
    ));
    worker.does(Work::Faults(1024));
    let faults = |metrics: &Exposition, cgroup: &TestCgroup| {
        metrics.value("perf_cgroup_page_faults_total", &[("cgroup", cgroup.path())])
    };
    let metrics = eventually("the page faults of the active cgroup are published", || {
        Some(service.metrics()).filter(|metrics| faults(metrics, &active) >= Some(1024.0))
    });
    assert_eq!(faults(&metrics, &idle), None, "{metrics:?}");
    assert_eq!(metrics.series("perf_process_page_faults_total").count(), 0, "{metrics:?}");
    let included = metrics.value("perf_cgroup_major_faults_total", &[("cgroup", idle.path())]);
    assert_eq!(included, Some(0.0), "an included metric is published whole");
    let recorded = eventually("the history has the page faults of the program", || {
        let path = "/api/v1/history?scope=program&name=active&figure=page_faults";
        // Before its first collection with the program, the history answers that it does not have it.
        let answer = ask(&service.address, "GET", path, Duration::from_secs(30)).unwrap();
        Some(answer.body).filter(|body| body.contains("\"name\":\"active\""))
    });
    assert!(recorded.contains("page_faults"), "{recorded}");
}
