//! `perf-exporter sched replay`, `timechart`, and `timehist --time`.

use std::path::Path;
use std::process::{Command, Stdio};

use perf_exporter::host::read_text;
use rustix::time::{ClockId, clock_gettime};

use crate::support::program::Program;
use crate::support::{Feature, lacks};

fn lacks_sched() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

fn output(arguments: &[&str], command: &[&str]) -> String {
    let mut exporter = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
    exporter.arg("sched").args(arguments).arg("--").args(command);
    let output = exporter.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{exporter:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn threads_that_hand_over_are_replayed_with_their_runs_and_wakeups() {
    if lacks_sched() {
        return;
    }
    let program = Program::compile_scheduled();
    let printed = output(&["replay", "-r", "2"], &[program.path().to_str().unwrap(), "relay", "500"]);
    let number = |what: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(what));
        let number = line.unwrap_or_else(|| panic!("no {what}: {printed}")).trim();
        number.trim_end_matches(" nsecs").parse::<f64>().unwrap()
    };
    assert!((1.0..1e5).contains(&number("run measurement overhead:")), "{printed}");
    assert!(number("the run test took") >= 1e6, "{printed}");
    // Each hand-over wakes the other thread, and each thread runs once for each.
    assert!((450.0..1500.0).contains(&number("nr_wakeup_events:")), "{printed}");
    assert!(number("nr_run_events:") >= 900.0 && number("nr_sleep_events:") >= 450.0, "{printed}");
    for thread in ["ping", "pong"] {
        assert!(printed.lines().any(|line| line.starts_with("task ") && line.contains(thread)), "{printed}");
    }
    for repetition in ["#1  : ", "#2  : "] {
        let line = printed.lines().find(|line| line.starts_with(repetition)).expect(&printed);
        let elapsed = line.split([':', ',']).nth(1).unwrap().trim().parse::<f64>().unwrap();
        assert!(elapsed > 0.5, "{printed}");
    }
}

#[test]
fn sleeps_that_a_timer_ends_take_their_time_in_the_replay() {
    if lacks_sched() {
        return;
    }
    let printed = output(&["replay", "-r", "1"], &["sleep", "0.3"]);
    let line = printed.lines().find(|line| line.starts_with("#1")).expect(&printed);
    let elapsed = line.split([':', ',']).nth(1).unwrap().trim().parse::<f64>().unwrap();
    assert!((295.0..5000.0).contains(&elapsed), "{printed}");
}

#[test]
fn the_image_has_a_row_for_each_cpu_and_thread_and_its_marks() {
    if lacks_sched() {
        return;
    }
    let (dir, program) = (tempfile::tempdir().unwrap(), Program::compile_scheduled());
    let file = dir.path().join("out.svg");
    let arguments = ["timechart", "-o", file.to_str().unwrap(), "-n", "2"];
    output(&arguments, &[program.path().to_str().unwrap(), "relay", "300"]);
    let svg = read_text(Path::new(&file)).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains(">CPU ") && svg.contains(" runs for ") && svg.contains("class=\"wait\""), "{svg}");
    assert!(
        ["ping[", "pong[", "spins["].iter().filter(|name| svg.contains(&format!("\">{name}"))).count() >= 1
    );
    assert!(svg.contains("more threads ran for a shorter time"), "{svg}");
}

#[test]
fn only_lines_of_the_selected_time_are_printed_and_the_command_ends_after_it() {
    if lacks_sched() {
        return;
    }
    let now = clock_gettime(ClockId::Monotonic);
    let start = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9 + 0.5;
    let time = format!("{start:.3},{:.3}", start + 0.2);
    // The command is ended when the time is over.
    let printed = output(&["timehist", "-a", "--time", &time], &["sleep", "100"]);
    let times = printed.lines().filter_map(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let times: Vec<f64> = times.collect();
    assert!(times.len() > 2, "{printed}");
    let (start, stop) = (start - 0.001, start + 0.201);
    assert!(times.iter().all(|time| (start..=stop).contains(time)), "{start} to {stop}: {printed}");
}
