//! `stat record` and `stat report`: files of each side, shown by both; and `--per-thread` of the whole machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{PERF_EXPORTER, command, run, stat};
use crate::support::cgroup::TestCgroup;
use crate::support::program::copy_program;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

/// Events that every machine counts, and one that no machine without a PMU has.
const EVENTS: &str = "task-clock,context-switches,page-faults,cycles";

/// Returns the rows of a table, without metrics and thousands separators. The order of threads differs.
fn rows(table: &str) -> BTreeSet<String> {
    let is_row = |line: &&str| EVENTS.split(',').any(|event| line.contains(&format!(" {event}")));
    let table = table.split("Could not be opened").next().unwrap();
    let counts = table.lines().filter(|line| !line.contains("Performance counter stats"));
    let row = |line: &str| {
        let count = line.split(" # ").next().unwrap().replace(',', "");
        // Without a count, perf shows another number of CPUs.
        let count = count.find("<not supported>").map_or(&*count, |at| &count[at..]);
        count.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    counts.filter(is_row).map(row).collect()
}

/// Runs the exporter, which must succeed.
fn ours(arguments: &[&str]) -> String {
    let ended = stat(arguments);
    assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {}", ended.printed);
    ended.printed
}

/// Records with each side, and compares the printed table with the reports of both.
fn agrees(options: &[&str], program: &[&str], dir: &Path) {
    let file = dir.join("counts.data");
    let file = file.to_str().unwrap();
    for recorder in [PERF_EXPORTER, "perf"] {
        let arguments = [&["record", "-o", file, "-e", EVENTS], options, program].concat();
        let ended = run(command(recorder, &arguments));
        assert!(ended.status.success(), "{recorder} {arguments:?}: {}", ended.printed);
        let printed = rows(&ended.printed);
        let report = |reader: &str| {
            let mut command = command(reader, &["report", "-i", file]);
            // perf writes to a pager otherwise.
            command.env("PERF_PAGER", "cat");
            run(command).printed
        };
        let (by_us, by_perf) = (report(PERF_EXPORTER), report("perf"));
        assert!(printed.len() >= 4, "{recorder} {options:?}\n{}", ended.printed);
        assert_eq!(rows(&by_us), printed, "{recorder} {options:?}\n{by_us}\n{}", ended.printed);
        assert_eq!(rows(&by_perf), printed, "{recorder} {options:?}\n{by_perf}\n{}", ended.printed);
    }
}

#[test]
fn recordings_of_both_sides_have_the_printed_counts_in_the_reports_of_both() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    agrees(&[], &["dd", "if=/dev/zero", "of=/dev/null", "bs=4M", "count=1", "status=none"], dir.path());
    for option in ["-A", "--per-core", "--per-die", "--per-socket", "--per-node"] {
        agrees(&["-a", option], &["sleep", "0.05"], dir.path());
    }
    agrees(&["-a", "-I", "50"], &["sleep", "0.18"], dir.path());
    agrees(&["-a", "-A", "-I", "50"], &["sleep", "0.12"], dir.path());
    let mut worker = Worker::start("stat-rec");
    let pid = worker.pid().to_string();
    worker.does(Work::Faults(16));
    agrees(&["-p", &pid], &["sleep", "0.05"], dir.path());
    agrees(&["--per-thread", "-p", &pid], &["sleep", "0.05"], dir.path());
}

#[test]
fn parts_that_were_summed_can_be_shown_separately_as_perf_does() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts.data");
    let file = file.to_str().unwrap();
    ours(&["-e", EVENTS, "-a", "record", "-o", file, "sleep", "0.05"]);
    for option in ["-A", "--per-core", "--per-socket", "--per-node"] {
        let by_us = ours(&["report", "-i", file, option]);
        let by_perf = run(command("perf", &["report", "-i", file, option])).printed;
        assert_eq!(rows(&by_us), rows(&by_perf), "{option}\n{by_us}\n{by_perf}");
    }
    let csv = ours(&["report", "-i", file, "-x,"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let json = ours(&["report", "-i", file, "-j", "--per-core"]);
    assert!(json.lines().all(|line| line.contains("\"core\"")), "{json}");
}

/// perf stores neither the formats of tracepoints, so that it rejects its own file, nor cgroups.
#[test]
fn tracepoints_and_cgroups_are_recorded_too() {
    if lacks(Feature::Tracepoint) || lacks(Feature::Cgroup) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts.data");
    let file = file.to_str().unwrap();
    let script = "for i in 1 2 3; do (exec true); done";
    ours(&["record", "-o", file, "-e", "sched:sched_process_fork", "sh", "-c", script]);
    for reader in [PERF_EXPORTER, "perf"] {
        if reader == "perf" && lacks(Feature::Perf) {
            continue;
        }
        let table = run(command(reader, &["report", "-i", file])).printed;
        let row = table.lines().find(|line| line.trim_end().ends_with(" sched:sched_process_fork"));
        let row = row.unwrap_or(&table);
        assert_eq!(row.split_whitespace().next(), Some("3"), "{reader}: {table}");
    }
    let (one, other) = (TestCgroup::new("stat-record-1"), TestCgroup::new("stat-record-2"));
    let names = format!("{},{}", one.path(), other.path());
    ours(&["record", "-o", file, "-e", "page-faults", "-G", &names, "sleep", "0.02"]);
    let table = ours(&["report", "-i", file]);
    for cgroup in [&one, &other] {
        assert!(table.lines().any(|line| line.trim_end().ends_with(cgroup.path())), "{table}");
    }
}

#[test]
fn a_file_of_another_kind_has_a_remedy() {
    if lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts.data");
    let file = file.to_str().unwrap();
    ours(&["record", "-o", file, "-e", "page-faults", "true"]);
    let report = Command::new(PERF_EXPORTER).args(["report", "--stdio", "-i", file]).output().unwrap();
    let text = String::from_utf8_lossy(&report.stderr);
    assert!(!report.status.success() && text.contains("perf-exporter stat report"), "{text}");
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/perf_data/clock.data");
    for (input, words) in [(samples, "has no counts"), ("/nonexistent", "No such file")] {
        let ended = stat(&["report", "-i", input]);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.printed);
        assert!(ended.printed.contains(words), "{}", ended.printed);
    }
    let ended = stat(&["record", "-r", "3", "-o", file, "true"]);
    assert!(ended.status.code() == Some(2) && ended.printed.contains("one run"), "{}", ended.printed);
    // A recording that fails leaves the previous file.
    let ended = stat(&["record", "-o", file, "/nonexistent/program"]);
    assert_eq!(ended.status.code(), Some(127), "{}", ended.printed);
    assert!(ours(&["report", "-i", file]).contains("page-faults"));
}

#[test]
fn all_threads_of_the_machine_are_shown_the_busiest_first() {
    if lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("stat-spinner");
    copy_program(Path::new("/bin/sh"), &program);
    let spin = "while :; do :; done";
    let mut spinner = Command::new(program).args(["-c", spin]).spawn().unwrap();
    // In JSON, because the other formats round a few microseconds of a thread to zero milliseconds.
    let arguments = ["-a", "--per-thread", "-j", "-e", "task-clock,page-faults", "sleep", "0.3"];
    let ended = stat(&arguments);
    spinner.kill().unwrap();
    spinner.wait().unwrap();
    let counts: Vec<(String, f64)> = ended
        .printed
        .lines()
        .filter(|line| line.contains("task-clock"))
        .map(|line| {
            let fields: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| fields[name].as_str().unwrap().to_owned();
            (text("thread"), text("counter-value").parse().unwrap())
        })
        .collect();
    assert!(counts.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count > 0.0), "{counts:?}");
    let own = format!("stat-spinner-{}", spinner.id());
    assert!(counts.iter().any(|(name, _)| *name == own), "{own}: {counts:?}");
}

#[test]
fn threads_for_which_descriptors_are_missing_have_a_remedy() {
    if lacks(Feature::Software) {
        return;
    }
    let script = format!("ulimit -n 80; exec {PERF_EXPORTER} stat -a --per-thread sleep 0.1");
    let ended = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("the limit is 80") && text.contains("ulimit -n"), "{text}");
}
