//! The program as a service: scrapes, reloads, exit, too few descriptors, and no privileges.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use perf_exporter::host::{Facts, Roots, list, read, read_text};
use rustix::process::{Pid, Signal, kill_process};

use crate::counting::about;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::copy_program;
use crate::support::service::{Service, TEXT, get, get_path};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, core_pmus, eventually, lacks};

/// Every scrape makes a collection.
const ALWAYS_FRESH: &str = "collection: {interval: 1m, freshness: 0s}\nhistory: {for: 0s}\n";

fn signal(service: &Service, signal: Signal) {
    kill_process(Pid::from_child(&service.child), signal).unwrap();
}

/// Returns the part that is equal in two scrapes of one collection: everything except its age.
fn same(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("perf_exporter_snapshot_age_seconds "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn text_and_openmetrics_say_the_same() {
    if lacks(Feature::Software) {
        return;
    }
    let service = Service::start("collection: {interval: 1s, freshness: 1s}\n");
    let both = || {
        let (kind, text) = get(&service.address, TEXT);
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        let (kind, open) = get(&service.address, "application/openmetrics-text;version=1.0.0");
        assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
        assert!(open.ends_with("# EOF\n"), "OpenMetrics without # EOF");
        [text, open].map(|text| Exposition::parse(&same(&text)).unwrap())
    };
    let of_one_collection = || {
        let [text, open] = both();
        let collections =
            |of: &Exposition| of.value("perf_exporter_collect_duration_seconds_count", &[]).unwrap();
        (collections(&text) == collections(&open)).then_some((text, open))
    };
    // The first collection is some milliseconds after the start, when threads may not have left their CPU yet.
    eventually("a collection contains page faults and switches", || {
        let (text, open) = of_one_collection()?;
        assert!(text == open, "they differ: {text:?}\n\nand {open:?}");
        let counted = |name: &str| text.sum(name, &[]) > 0.0;
        (counted("perf_cpu_page_faults_total") && counted("perf_process_context_switches_total"))
            .then_some(())
    });
}

#[test]
fn a_cgroup_that_is_made_while_the_service_runs_gets_a_series_and_keeps_it_when_it_goes() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let top = TestCgroup::new("served");
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{memory: {{events: [page-faults], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{}/*\"], attribution: dedicated}}\n",
        top.path()
    ));
    let faults = |path: &str| service.metrics().value("perf_cgroup_page_faults_total", &[("cgroup", path)]);
    let late = top.below("late");
    let path = late.path().to_owned();
    assert_eq!(faults(&path), Some(0.0), "the process has a series as soon as it is discovered");
    let worker = Worker::start("late");
    late.take(worker.pid());
    worker.ends_after(Work::Faults(1024));
    drop(late);
    assert!(about(faults(&path), 1024), "its last counts are missing: {:?}", faults(&path));
    assert_eq!(faults("other"), None, "no series is aggregated into `other` yet");
}

#[test]
fn a_reload_adds_counters_and_leaves_those_that_stay_undisturbed() {
    if lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("reloaded");
    let configuration = |more: &str| {
        format!(
            "{ALWAYS_FRESH}counters:\n  memory: {{events: [page-faults], per: [process]}}\n{more}\
             processes: {{include: [{{pid: {}}}], by: [comm]}}\n",
            worker.pid()
        )
    };
    let (before, after) =
        (configuration(""), configuration("  time: {events: [task-clock], per: [process]}\n"));
    let service = Service::start(&before);
    let value = |name: &str| service.metrics().value(name, &[("comm", "reloaded")]);
    worker.does(Work::Faults(1024));
    let faults = value("perf_process_page_faults_total");
    assert!(about(faults, 1024), "before: {faults:?}");
    assert_eq!(value("perf_process_task_clock_seconds_total"), None);

    service.rewrite(&after);
    signal(&service, Signal::HUP);
    worker.does(Work::Faults(1024));
    eventually("the new counter has a series", || value("perf_process_task_clock_seconds_total"));
    let faults = value("perf_process_page_faults_total");
    assert!(about(faults, 2048), "the old counter did not continue while the new one was opened: {faults:?}");
}

#[test]
fn a_reload_of_a_broken_file_changes_nothing_and_is_told() {
    if lacks(Feature::Software) {
        return;
    }
    let mut service =
        Service::start(&format!("{ALWAYS_FRESH}counters: {{memory: {{events: [page-faults]}}}}\n"));
    fs::write(&service.configuration, "counters: {memory: {events: [page-fults]}}\nlisten: nowhere\n")
        .unwrap();
    signal(&service, Signal::HUP);
    let metrics = eventually("the reload failed", || {
        let metrics = service.metrics();
        (metrics.value("perf_exporter_config_last_reload_successful", &[]) == Some(0.0)).then_some(metrics)
    });
    assert!(metrics.sum("perf_cpu_page_faults_total", &[]) > 0.0, "the counters of the old file continue");
    service.has_logged(&["configuration reload failed", "nowhere"]);
}

#[test]
fn scrapers_that_come_together_share_one_collection() {
    if lacks(Feature::Software) {
        return;
    }
    let service = Service::start("collection: {interval: 10m, freshness: 10m}\n");
    let address = &service.address;
    let scrape = || same(&get(address, TEXT).1);
    let (one, other) = thread::scope(|scope| {
        let (one, other) = (scope.spawn(scrape), scope.spawn(scrape));
        (one.join().unwrap(), other.join().unwrap())
    });
    assert!(one == other, "two scrapes differ");
    let collections = |text: &str| {
        let read = Exposition::parse(text).unwrap();
        read.value("perf_exporter_collect_duration_seconds_count", &[])
    };
    assert_eq!(collections(&one), Some(1.0));
}

#[test]
fn a_scraper_that_wants_fresh_counts_gets_a_collection_of_its_own() {
    if lacks(Feature::Software) {
        return;
    }
    let service = Service::start(ALWAYS_FRESH);
    let collections =
        || service.metrics().value("perf_exporter_collect_duration_seconds_count", &[]).unwrap();
    let first = collections();
    assert_eq!((collections(), collections()), (first + 1.0, first + 2.0));
}

#[test]
fn sigterm_ends_the_service_with_success() {
    let mut service = Service::start(ALWAYS_FRESH);
    signal(&service, Signal::TERM);
    let status = eventually("the service exited", || service.child.try_wait().unwrap());
    assert!(status.success(), "{status}: {}", service.log());
}

#[test]
fn what_was_learned_is_written_at_the_end_and_the_file_of_a_newer_version_is_left_alone() {
    if lacks(Feature::Software) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("baselines");
    let run = || {
        let path = directory.path().display();
        let mut service = Service::start(&format!("anomalies_directory: {path}\n"));
        eventually("a collection is in the history", || {
            get_path(&service.address, "/api/v1/history").1.contains("\"recorded\":{").then_some(())
        });
        signal(&service, Signal::TERM);
        let status = eventually("the service exited", || service.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", service.log());
        service.log()
    };
    let log = run();
    assert!(read(&file).unwrap().starts_with(b"perf-exporter baselines 2\n"), "{log}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(list(directory.path()).unwrap(), ["baselines"], "nothing unfinished");
    let newer = "perf-exporter baselines 3\nsomething";
    fs::write(&file, newer).unwrap();
    let log = run();
    assert!(log.contains("its version is 3") && log.contains("move or remove it"), "{log}");
    assert_eq!(read_text(&file).unwrap(), newer);
}

#[test]
fn a_service_that_is_short_of_descriptors_says_what_does_not_fit_and_serves_the_rest() {
    if lacks(Feature::Software) {
        return;
    }
    let cpus = Facts::read(&Roots::default()).online.len();
    // Of the limit, 64 are reserved for files and 4 for connections. All CPUs fit, and three threads.
    let limit = 64 + 4 + cpus + 3;
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!("ulimit -n {limit}; exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_perf-exporter"),
    ]);
    let mut service = Service::start_by(
        shell,
        &format!(
            "{ALWAYS_FRESH}counters:\n\
             \x20 cpus: {{events: [page-faults], per: [cpu]}}\n\
             \x20 processes: {{events: [context-switches], per: [process]}}\n\
             processes: {{include: [{{comm: \"*\"}}], by: [pid], attribution: dedicated}}\n\
             limits: {{connections: 4}}\n"
        ),
    );
    let metrics = service.metrics();
    let state =
        |event: &str, state: &str| metrics.sum("perf_event_state", &[("event", event), ("state", state)]);
    assert_eq!(state("page-faults", "counting"), cpus as f64, "every CPU is counted");
    assert!(
        state("context-switches", "exhausted") > 0.0,
        "events beyond the limit are not reported: {metrics:?}"
    );
    assert_eq!(metrics.sum("perf_exporter_open_descriptors", &[]), (cpus + 3) as f64);
    let used_up = format!("the budget of {} descriptors is used up", cpus + 3);
    service.has_logged(&[&used_up, "raise LimitNOFILE (systemd) or ulimit -n"]);
}

#[test]
fn without_privileges_the_service_says_what_it_may_not_and_what_would_help() {
    if lacks(Feature::Paranoid) {
        return;
    }
    // A copy that every user can execute, because the build directory may not be accessible.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = dir.path().join("perf-exporter");
    copy_program(Path::new(env!("CARGO_BIN_EXE_perf-exporter")), &program);
    let mut command = Command::new(&program);
    if rustix::process::geteuid().is_root() {
        // Changing the uid from root drops all capabilities.
        command.uid(65534).gid(65534);
    }
    let mut service = Service::start_by(
        command,
        &format!("{ALWAYS_FRESH}counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n"),
    );
    let metrics = service.metrics();
    assert_eq!(
        metrics.value("perf_cpu_context_switches_total", &[("cpu", "0")]),
        None,
        "an event that did not count must have no series"
    );
    let forbidden = metrics.sum("perf_event_state", &[("event", "context-switches"), ("state", "forbidden")]);
    assert!(forbidden > 0.0, "{metrics:?}");
    assert!(
        metrics.value("perf_exporter_cpu_seconds_total", &[]).is_some(),
        "the metrics of the exporter itself are missing"
    );
    service.has_logged(&["CAP_PERFMON is missing", "grant perf-exporter CAP_PERFMON"]);
}

#[test]
fn the_thread_that_reads_switches_has_reserved_cpu_time_or_the_log_says_what_is_missing() {
    if lacks(Feature::Stream) {
        return;
    }
    let mut service = Service::start(
        "counters: {os: {events: [task-clock], per: [process]}}\n\
         processes: {include: [{comm: \"*\"}], attribution: stream}\n",
    );
    service.metrics();
    let tasks = format!("/proc/{}/task", service.child.id());
    let stats = list(Path::new(&tasks)).unwrap().into_iter().map(|tid| {
        let stat = Path::new(&tasks).join(tid).join("stat");
        read_text(&stat).unwrap_or_default()
    });
    let stat = stats.into_iter().find(|stat| stat.contains("(switch-reader)")).unwrap();
    // The policy is the 41st field, and the name is the second.
    let policy: u32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().parse().unwrap();
    const SCHED_DEADLINE: u32 = 6;
    if policy != SCHED_DEADLINE {
        service.has_logged(&["no CPU time is reserved to read switch records", "CAP_SYS_NICE"]);
    }
}

#[test]
fn a_group_of_which_nothing_is_there_ran_for_no_part_of_the_time() {
    if lacks(Feature::Cgroup) || !core_pmus(&Roots::default()).is_empty() {
        return;
    }
    let (cgroup, mut worker) = (TestCgroup::new("absent"), Worker::start("absent"));
    cgroup.take(worker.pid());
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters:\n  core: {{events: [cycles, instructions], per: [cpu, cgroup]}}\n  \
         os: {{events: [task-clock], per: [cgroup]}}\ncgroups: {{include: [\"/**\"]}}\n"
    ));
    worker.does(Work::Naps(20));
    let metrics = service.metrics();
    let of_cgroup = ("cgroup", cgroup.path());
    assert!(metrics.sum("perf_cgroup_task_clock_seconds_total", &[of_cgroup]) > 0.0, "{metrics:?}");
    assert!(
        metrics.sum("perf_event_state", &[("event", "cycles"), ("state", "absent")]) > 0.0,
        "{metrics:?}"
    );
    assert_eq!(metrics.series("perf_event_running_ratio").count(), 0, "{metrics:?}");
}
