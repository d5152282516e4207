//! `perf-exporter stat` compared with `perf stat`, and its behavior in a shell.

mod options;
mod recording;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use perf_exporter::host::read_text;
use rustix::process::{Pid, Signal, kill_process};

use crate::perf::PerfStat;
use crate::support::cgroup::TestCgroup;
use crate::support::lines::Lines;
use crate::support::program::copy_program;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

/// Exit status, and the text on standard error.
struct Ended {
    status: ExitStatus,
    printed: String,
}

/// Returns a command that runs the program, or perf, as `stat` with these arguments.
fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("stat").args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command) -> Ended {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Ended { status: output.status, printed: String::from_utf8(output.stderr).unwrap() }
}

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

fn stat(arguments: &[&str]) -> Ended {
    run(command(PERF_EXPORTER, arguments))
}

/// Returns the sum of the counts of an event in perf's CSV. Milliseconds are not converted.
fn count(csv: &str, event: &str) -> f64 {
    let counted = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let at = fields.iter().position(|field| *field == event)?;
        fields[at.checked_sub(2)?].trim().parse::<f64>().ok()
    };
    let counts: Vec<f64> = csv.lines().filter_map(counted).collect();
    assert!(!counts.is_empty(), "{event} was not counted: {csv}");
    counts.iter().sum()
}

/// A running `stat -I` of the exporter. It has printed its first interval, so it counts.
struct Running {
    child: Child,
    lines: Lines,
    printed: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(PERF_EXPORTER, &[&["-I", "20", "-x,"], arguments].concat()).spawn().unwrap();
        let lines = Lines::of(child.stderr.take().unwrap());
        let mut running = Self { child, lines, printed: String::new() };
        assert!(running.read_line(), "stat {arguments:?} printed nothing");
        running
    }

    /// Waits for one more line. Returns `false` at the end of the output.
    fn read_line(&mut self) -> bool {
        let Some(line) = self.lines.next() else { return false };
        self.printed += &line;
        self.printed.push('\n');
        true
    }

    /// Ends it by a signal, and returns its whole output.
    fn end(mut self, signal: Signal) -> Ended {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        while self.read_line() {}
        Ended { status: self.child.wait().unwrap(), printed: self.printed }
    }
}

/// The worker waits whenever one of the two starts or stops, so that both count the same work.
#[test]
fn a_process_is_counted_as_perf_stat_counts_it() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let mut worker = Worker::start("stat");
    let pid = worker.pid().to_string();
    let events = ["context-switches", "page-faults", "task-clock"];
    let ours = Running::start(&["-e", &events.join(","), "-p", &pid]);
    let mut perf = PerfStat::open(&events, &["-p", &pid]);
    perf.enable();
    [Work::Naps(300), Work::Faults(4096), Work::Spin(20_000_000)]
        .into_iter()
        .for_each(|work| worker.does(work));
    perf.disable();
    let perf = perf.counts();
    let ours = ours.end(Signal::INT).printed;
    for event in ["context-switches", "page-faults"] {
        let (ours, perf) = (count(&ours, event), perf.of(event));
        assert!((ours - perf).abs() <= 0.01 * perf, "{event}: the exporter counted {ours}, perf {perf}");
    }
    let (ours, perf) = (count(&ours, "task-clock") / 1e3, perf.of("task-clock"));
    // The exporter prints each interval in hundredths of milliseconds.
    assert!(
        (ours - perf).abs() <= 0.01 * perf + 1e-3,
        "task-clock: the exporter counted {ours} s, perf {perf} s"
    );
}

#[test]
fn a_commands_page_faults_are_those_that_perf_stat_counts() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    // One block of 32 MiB: some eight thousand pages, and about a hundred for the start of the program.
    let arguments = [
        "-x,",
        "-e",
        "page-faults",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=32M",
        "count=1",
        "status=none",
    ];
    let of = |ended: Ended| count(&ended.printed, "page-faults");
    let (ours, perf) = (of(stat(&arguments)), of(run(command("perf", &arguments))));
    assert!(perf > 100.0 && (ours - perf).abs() <= 0.01 * perf, "the exporter counted {ours}, perf {perf}");
}

#[test]
fn a_command_is_counted_from_its_start_with_everything_that_it_starts() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let events = "sched:sched_process_fork,sched:sched_process_exit";
    let script = "for i in 1 2 3 4 5 6 7; do (exec true); done; exit 3";
    let ended = stat(&["-x,", "-e", events, "--", "sh", "-c", script]);
    assert_eq!(count(&ended.printed, "sched:sched_process_fork"), 7.0, "{}", ended.printed);
    // Its own exit is the eighth.
    assert_eq!(count(&ended.printed, "sched:sched_process_exit"), 8.0, "{}", ended.printed);
    assert_eq!(ended.status.code(), Some(3));
}

#[test]
fn each_cgroup_has_its_own_counts() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (busy, idle) = (TestCgroup::new("stat-busy"), TestCgroup::new("stat-idle"));
    let mut worker = Worker::start("stat");
    busy.take(worker.pid());
    let names = format!("{},{}", busy.path(), idle.path());
    let ours = Running::start(&["-e", "page-faults", "-G", &names]);
    worker.does(Work::Faults(1024));
    let printed = ours.end(Signal::INT).printed;
    let of = |cgroup: &str| -> Vec<&str> { printed.lines().filter(|line| line.contains(cgroup)).collect() };
    assert!(count(&of(busy.path()).join("\n"), "page-faults") >= 1024.0, "{printed}");
    assert!(of(idle.path()).iter().all(|line| line.contains("<not counted>")), "{printed}");
    worker.ends_after(Work::Faults(0));
}

/// Returns the fields of CSV lines that do not change from run to run.
fn shape(csv: &str) -> Vec<(usize, String, String)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields.len(), fields[1].to_owned(), fields[2].to_owned())
    };
    csv.lines().map(line).collect()
}

#[test]
fn the_formats_for_programs_have_perfs_fields() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let both = |format: &str| {
        let arguments = [format, "-e", "task-clock,context-switches,page-faults", "true"];
        [stat(&arguments).printed, run(command("perf", &arguments)).printed]
    };
    let [ours, perf] = both("-x,");
    assert_eq!(shape(&ours), shape(&perf), "\n{ours}\n{perf}");
    let keys = |text: &str| -> Vec<Vec<String>> {
        let object = |line: &str| -> serde_json::Map<String, serde_json::Value> {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        text.lines().map(|line| object(line).keys().cloned().collect()).collect()
    };
    let [ours, perf] = both("-j");
    assert_eq!(keys(&ours), keys(&perf), "\n{ours}\n{perf}");
}

#[test]
fn a_signal_prints_what_was_counted_and_ends_the_program_as_it_would_have() {
    if lacks(Feature::Software) {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let ended = Running::start(&["-a", "-e", "task-clock"]).end(signal);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{:?}", ended.status);
        assert!(count(&ended.printed, "task-clock") > 0.0);
    }
}

#[test]
fn a_commands_death_by_a_signal_is_passed_on() {
    if lacks(Feature::Software) {
        return;
    }
    for signal in [Signal::KILL, Signal::ABORT] {
        let ended = stat(&["-e", "task-clock", "--", "sh", "-c", &format!("kill -{} $$", signal.as_raw())]);
        assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{:?}", ended.status);
        assert!(!ended.status.core_dumped(), "the program itself must not dump core");
        assert!(ended.printed.contains("seconds time elapsed"), "{}", ended.printed);
    }
}

#[test]
fn a_terminating_signal_reaches_the_command_and_its_counts_are_printed() {
    if lacks(Feature::Software) {
        return;
    }
    let script = "trap 'exit 9' TERM; echo trapped >&2; while :; do sleep 0.01; done";
    let mut ours = Running::start(&["-e", "task-clock", "--", "sh", "-c", script]);
    while !ours.printed.contains("trapped\n") {
        ours.read_line();
    }
    let ended = ours.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(9), "{:?}", ended.status);
    assert!(count(&ended.printed, "task-clock") > 0.0);
}

#[test]
fn exit_codes_tell_arguments_failures_and_commands_apart() {
    if lacks(Feature::Software) {
        return;
    }
    for (arguments, code, words) in [
        (&["-e", "faults", "/nonexistent/program"][..], 127, "cannot run /nonexistent/program"),
        (&["-e", "faults", "/"], 126, "cannot run /"),
        (&["-e", "cylces", "true"], 2, "did you mean cycles?"),
        (&["-C", "8191"], 2, "CPU 8191 is not online"),
        (&["-p", "2147483647"], 1, "there is no process 2147483647"),
        (&["-G", "nowhere/at/all"], 1, "there is no cgroup \"nowhere/at/all\""),
        (&["-o", "/nonexistent/file", "-e", "faults", "true"], 1, "-o /nonexistent/file"),
    ] {
        let ended = stat(arguments);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.printed);
        assert!(ended.printed.contains(words), "{arguments:?}: {}", ended.printed);
    }
}

#[test]
fn a_command_without_events_runs_between_others_and_results_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (seen, results) = (path("seen"), path("results"));
    let [before, during, after] = ["before", "during", "after"].map(|word| format!("echo {word} >> {seen}"));
    for _ in 0..2 {
        let arguments = ["-n", "-r", "2", "--pre", &before, "--post", &after, "--append", "-o", &results];
        let ended = stat(&[&arguments[..], &["sh", "-c", &during]].concat());
        assert_eq!(ended.status.code(), Some(0), "{}", ended.printed);
    }
    let lines = read_text(Path::new(&seen)).unwrap();
    assert_eq!(lines, ["before\nduring\nafter"; 4].join("\n"));
    let results = read_text(Path::new(&results)).unwrap();
    assert_eq!(results.matches("seconds time elapsed").count(), 2, "{results}");
    let ended = stat(&["-n", "--pre", "exit 3", "true"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.printed.contains("--pre exit 3: exit status: 3"), "{}", ended.printed);
}

#[test]
fn a_process_that_ends_ends_its_measurement() {
    if lacks(Feature::Software) {
        return;
    }
    let worker = Worker::start("stat");
    let mut ours = Running::start(&["-e", "page-faults", "-p", &worker.pid().to_string()]);
    worker.ends_after(Work::Faults(256));
    while ours.read_line() {}
    assert!(ours.child.wait().unwrap().success());
}

/// With `-o` for standard output, the result goes there. The command runs with the caller's limit of descriptors.
#[test]
fn a_command_finds_what_its_caller_gave_it() {
    if lacks(Feature::Software) {
        return;
    }
    let script = format!(
        "ulimit -Sn 123; exec {PERF_EXPORTER} stat -r 2 -o /dev/null -e faults -- sh -c 'ulimit -Sn'"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "123\n123\n", "{output:?}");
    let json = Command::new(PERF_EXPORTER)
        .args(["stat", "--output", "json", "-e", "faults", "true"])
        .output()
        .unwrap();
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((object["event"].as_str(), json.stderr.len()), (Some("faults"), 0));
}

#[test]
fn without_privileges_a_name_says_that_user_space_is_counted_and_nothing_is_zero_in_silence() {
    if lacks(Feature::Paranoid) {
        return;
    }
    let level: i32 = read_text(Path::new("/proc/sys/kernel/perf_event_paranoid")).unwrap().parse().unwrap();
    let expected = match level {
        ..=1 => &["context-switches", "task-clock  "][..],
        2 => &[
            "task-clock:u",
            "page-faults:u",
            "<not supported>      context-switches\n",
            "perf_event_paranoid=1",
        ],
        // Debian's third level forbids all counting; other kernels treat it as the second.
        _ => &["perf_event_paranoid=1"],
    };
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = dir.path().join("perf-exporter");
    copy_program(Path::new(PERF_EXPORTER), &program);
    let mut command =
        command(program.to_str().unwrap(), &["-e", "task-clock,page-faults,context-switches", "true"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let printed = run(command).printed;
    for words in expected {
        assert!(printed.contains(words), "at level {level}: {printed}");
    }
}
