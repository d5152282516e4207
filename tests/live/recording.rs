//! `perf-exporter record` and `top`: a program whose functions take known shares of its time, recorded with every way of selecting it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use flate2::read::GzDecoder;
use perf_exporter::host::{self, read_text};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::cgroup::TestCgroup;
use crate::support::lines::Lines;
use crate::support::program::{Program, Running, copy_program};
use crate::support::{Feature, lacks};

mod perf_data;

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// High enough that two seconds have many samples.
const FREQUENCY: &str = "499";

fn lacks_recording() -> bool {
    lacks(Feature::Compiler) || lacks(Feature::Software)
}

/// The program, in a directory for its output files.
struct Recorder {
    dir: tempfile::TempDir,
    program: PathBuf,
    /// Whether it runs as user nobody.
    unprivileged: bool,
}

/// Exit status and output of the program.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    said: String,
}

impl Recorder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), program: PERF_EXPORTER.into(), unprivileged: false }
    }

    /// Creates a recorder without privileges: the directory and the executable are accessible to every user.
    fn unprivileged() -> Self {
        let everybody = Permissions::from_mode(0o777);
        let dir = tempfile::Builder::new().permissions(everybody.clone()).tempdir().unwrap();
        fs::set_permissions(dir.path(), everybody).unwrap();
        let program = dir.path().join("perf-exporter");
        copy_program(Path::new(PERF_EXPORTER), &program);
        Self { dir, program, unprivileged: true }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if self.unprivileged && rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        Ended { status: output.status, said: String::from_utf8(output.stderr).unwrap() }
    }

    /// Records with these arguments while the program works.
    fn record(&self, arguments: &[&str]) -> Recording {
        let mut command = self.command(&[&["record", "-F", FREQUENCY], arguments].concat());
        let mut child = command.spawn().unwrap();
        let said = Lines::of(child.stderr.take().unwrap());
        Recording { child, said }
    }
}

/// A running recording.
struct Recording {
    child: Child,
    said: Lines,
}

impl Recording {
    fn ends_by(self, signal: Signal) -> Ended {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.ends()
    }

    fn ends(mut self) -> Ended {
        let said: Vec<String> = std::iter::from_fn(|| self.said.next()).collect();
        Ended { status: self.child.wait().unwrap(), said: said.join("\n") }
    }
}

/// Folded stacks, outermost first, with the sum of their values.
#[derive(Debug)]
struct Folded(BTreeMap<Vec<String>, u64>);

impl Folded {
    fn read(path: &Path) -> Self {
        let text = read_text(path).unwrap();
        let mut stacks = BTreeMap::new();
        for line in text.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let stack: Vec<String> = stack.split(';').map(str::to_owned).collect();
            *stacks.entry(stack).or_default() += value.parse::<u64>().unwrap();
        }
        Self(stacks)
    }

    fn total(&self) -> f64 {
        self.0.values().sum::<u64>() as f64
    }

    /// Returns the share of stacks that contain these functions as consecutive frames.
    fn share(&self, functions: &[&str]) -> f64 {
        let has = |stack: &&Vec<String>| stack.windows(functions.len()).any(|part| part == functions);
        let found: u64 = self.0.iter().filter(|(stack, _)| has(stack)).map(|(_, value)| value).sum();
        found as f64 / self.total()
    }
}

/// Asserts that three quarters of the spinning time are in one function and one quarter in another, with hundreds of samples. The start of
/// the program and of its children comes on top.
#[track_caller]
fn assert_shares(folded: &Folded) {
    let spins = folded.share(&["spins"]);
    assert!(spins > 0.5, "{spins}: {folded:#?}");
    for (function, expected) in [("three_quarters", 0.75), ("one_quarter", 0.25)] {
        let share = folded.share(&["spins", function, "burns"]) / spins;
        assert!((share - expected).abs() < 0.12, "{share:.3} of {expected} in {function}: {folded:#?}");
    }
}

/// Returns the number of samples in the final message.
#[track_caller]
fn samples(ended: &Ended) -> u64 {
    let (before, _) = ended.said.split_once(" samples in ").unwrap_or_else(|| panic!("{ended:?}"));
    let digits = before.rsplit(": ").next().unwrap().replace(' ', "");
    digits.parse().unwrap_or_else(|_| panic!("{ended:?}"))
}

/// Returns a shell script that runs an order of the program and exits with 7.
fn script(program: &Program, order: &str) -> String {
    format!("echo {order} | {}; exit 7", program.path().display())
}

#[test]
fn a_command_is_recorded_with_what_it_starts_and_its_exit_code_is_passed_on() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("recorded", &[]);
    let recorder = Recorder::new();
    let ended =
        recorder.record(&["-o", "x.folded", "--", "sh", "-c", &script(&program, "spins 1500")]).ends();
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let folded = Folded::read(&recorder.path("x.folded"));
    assert_shares(&folded);
    assert!(folded.0.keys().all(|stack| stack[0] == "recorded" || stack[0] == "sh"), "{folded:#?}");
    // CPU time in samples.
    let (taken, lost) = (samples(&ended), ended.said.contains("lost"));
    assert!(taken < 900 && (taken > 600 || lost), "{ended:?}");
    assert!(ended.said.contains("wrote ") && ended.said.contains(" to x.folded: "), "{ended:?}");
    assert!(!ended.said.contains('\r'), "progress was printed without a terminal: {ended:?}");
    assert_eq!(host::list(recorder.dir.path()).unwrap(), ["x.folded"], "no other files are left");
}

#[test]
fn a_process_that_runs_already_is_recorded_with_its_children_until_it_ends() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("followed", &[]);
    let recorder = Recorder::new();
    let mut running = program.start();
    let other = program.start();
    let recording = recorder.record(&["-o", "x.folded", "-p", &running.pid().to_string()]);
    // Its children start and exit until the recording covers them, whenever that begins.
    running.does("forks 150");
    running.does("spins 1500");
    running.ends();
    let ended = recording.ends();
    assert!(ended.status.success(), "{ended:?}");
    let folded = Folded::read(&recorder.path("x.folded"));
    assert_shares(&folded);
    assert!(
        folded.share(&["main", "obeys", "forks", "spins"]) > 0.1,
        "the children are missing: {folded:#?}"
    );
    other.ends();
}

#[test]
fn what_runs_in_a_cgroup_is_recorded_and_nobody_else() {
    if lacks_recording() || lacks(Feature::Cgroup) {
        return;
    }
    let program = Program::compile_hot("grouped", &[]);
    let (group, recorder) = (TestCgroup::new("record"), Recorder::new());
    let below = group.below("inner");
    let (mut inside, mut outside) = (program.start(), program.start());
    below.take(inside.pid());
    let names = format!("{},{}", group.path(), below.path());
    let recording = recorder.record(&["-o", "x.folded", "-G", &names, "--call-graph", "fp"]);
    inside.told("spins 3000");
    outside.told("spins 500");
    inside.answers();
    outside.answers();
    let ended = recording.ends_by(Signal::INT);
    assert_eq!(ended.status.signal(), Some(Signal::INT.as_raw()), "{ended:?}");
    let folded = Folded::read(&recorder.path("x.folded"));
    // The part of three seconds since the recording began, counted once although two of its cgroups were named.
    let seconds = folded.total() / 1e9;
    assert!((0.1..3.3).contains(&seconds), "{seconds}: {folded:#?}");
    assert!(folded.0.keys().all(|stack| stack[0] == "grouped"), "{folded:#?}");
    inside.ends();
    outside.ends();
}

/// Waits until a recording contains the running program.
fn works_until_seen(running: &mut Running) {
    for _ in 0..3 {
        running.does("spins 700");
    }
}

#[test]
fn ctrl_c_ends_a_recording_and_what_there_is_is_written() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("stopped", &[]);
    let recorder = Recorder::new();
    let mut running = program.start();
    let pid = running.pid().to_string();
    let recording = recorder.record(&["-p", &pid, "--title", "until <Ctrl-C>", "-o", "x.svg"]);
    works_until_seen(&mut running);
    let ended = recording.ends_by(Signal::INT);
    assert_eq!(ended.status.signal(), Some(Signal::INT.as_raw()), "{ended:?}");
    assert!(samples(&ended) > 0, "{ended:?}");
    let svg = read_text(&recorder.path("x.svg")).unwrap();
    assert!(svg.contains("until &lt;Ctrl-C&gt;") && svg.contains("three_quarters"), "{ended:?}");
    running.ends();
}

#[test]
fn a_recording_for_some_seconds_of_the_machine_is_a_profile_that_pprof_reads() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("machine", &[]);
    let recorder = Recorder::new();
    let mut running = program.start();
    let recording = recorder.record(&["-a", "--call-graph", "fp", "--duration", "2"]);
    let ended = std::thread::scope(|scope| {
        let worker = scope.spawn(|| works_until_seen(&mut running));
        let ended = recording.ends();
        worker.join().unwrap();
        ended
    });
    assert!(ended.status.success(), "{ended:?}");
    let mut message = Vec::new();
    let file = host::read(&recorder.path("profile.pb.gz")).unwrap();
    GzDecoder::new(&file[..]).read_to_end(&mut message).unwrap();
    // Without frame pointers the direct caller is skipped.
    for name in ["burns", "machine", "nanoseconds", "cpu"] {
        let found = message.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(found, "{name} is missing: {ended:?}");
    }
    running.ends();
}

#[test]
fn where_a_command_waits_is_recorded_with_how_long() {
    if lacks_recording() || lacks(Feature::Tracepoint) {
        return;
    }
    let program = Program::compile_hot("waits", &[]);
    let recorder = Recorder::new();
    let order = script(&program, "naps 100 5");
    let arguments = ["record", "--off-cpu=2ms", "-o", "x.folded", "--", "sh", "-c", &order];
    let ended = recorder.run(&arguments);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let folded = Folded::read(&recorder.path("x.folded"));
    let slept = folded.share(&["naps", "waits_a_while"]) * folded.total() / 1e9;
    assert!((0.4..20.0).contains(&slept), "{slept} s asleep: {folded:#?}");
}

#[test]
fn each_hit_of_an_event_is_a_sample_and_without_callers_there_are_none() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("faults", &[]);
    let recorder = Recorder::new();
    let arguments =
        ["record", "-e", "page-faults", "-c", "1", "--call-graph", "no", "-o", "x.folded", "--", "sh", "-c"];
    let ended = recorder.run(&[&arguments[..], &[&script(&program, "faults 2000")]].concat());
    let folded = Folded::read(&recorder.path("x.folded"));
    let touched = folded.share(&["faults", "touches"]) * folded.total();
    assert!((1990.0..2010.0).contains(&touched) || ended.said.contains("lost"), "{touched}: {folded:#?}");
    assert!(folded.0.keys().all(|stack| stack.len() <= 2), "{folded:#?}");
}

#[test]
fn exit_codes_tell_arguments_failures_and_commands_apart() {
    if lacks(Feature::Software) {
        return;
    }
    let recorder = Recorder::new();
    for (arguments, code, words) in [
        (&["/nonexistent/program"][..], 127, "cannot run /nonexistent/program"),
        (&["/"], 126, "cannot run /"),
        (&["-e", "cylces", "true"], 2, "did you mean cycles?"),
        (&["-C", "8191"], 2, "CPU 8191 is not online"),
        (&["-F", "4000000000", "true"], 2, "this kernel allows at most"),
        (&["-o", "x.dat", "touch", "ran"], 2, "unknown file extension"),
        (&["-p", "2147483647"], 1, "there is no process 2147483647"),
        (&["-G", "nowhere/at/all"], 1, "there is no cgroup \"nowhere/at/all\""),
        (&["-o", "/nonexistent/x.svg", "touch", "ran"], 1, "-o /nonexistent/x.svg"),
    ] {
        let ended = recorder.run(&[&["record"], arguments].concat());
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.said.contains(words), "{arguments:?}: {ended:?}");
    }
    assert!(!recorder.path("ran").exists(), "the command must not run if it cannot be recorded");
    assert!(!recorder.path("profile.pb.gz").exists(), "no file may be written without a recording");
}

#[test]
fn without_privileges_ones_own_programs_are_recorded_in_user_space_and_the_machine_is_not() {
    if lacks_recording() || lacks(Feature::Paranoid) {
        return;
    }
    let level: i32 = read_text(Path::new("/proc/sys/kernel/perf_event_paranoid")).unwrap().parse().unwrap();
    let program = Program::compile_hot("own", &[]);
    fs::set_permissions(program.path().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let recorder = Recorder::unprivileged();
    let machine = recorder.run(&["record", "-a", "--duration", "1"]);
    assert_eq!(machine.status.code(), Some(1), "{machine:?}");
    assert!(machine.said.contains("CAP_PERFMON is missing"), "{machine:?}");
    if level > 2 {
        return;
    }
    assert!(
        machine.said.contains("your own programs need no privileges: use -p PID or a command"),
        "{machine:?}"
    );
    let own = recorder.record(&["-o", "x.folded", "--", "sh", "-c", &script(&program, "spins 1500")]).ends();
    assert_eq!(own.status.code(), Some(7), "{own:?}");
    let folded = Folded::read(&recorder.path("x.folded"));
    assert_shares(&folded);
    if level == 2 {
        assert!(own.said.contains("user space only: CAP_PERFMON is missing"), "{own:?}");
        assert!(folded.0.keys().flatten().all(|name| !name.ends_with("_[k]")), "{folded:#?}");
    }
}

#[test]
fn the_function_that_is_hot_is_on_top() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("topmost", &[]);
    let mut running = program.start();
    running.told("spins 60000");
    let pid = running.pid().to_string();
    let arguments = ["top", "--batch", "--iterations", "2", "-n", "3", "-d", "1", "-p", &pid];
    let output = Recorder::new().command(&arguments).stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let tables: Vec<&str> = printed.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{printed}");
    let rows: Vec<&str> = tables[1].lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() <= 3 && rows[0].contains(" topmost ") && rows[0].ends_with(" [.] burns"), "{printed}");
    let percent = |column: usize| -> f64 {
        let text = rows[0].split_ascii_whitespace().nth(column).unwrap();
        text.trim_end_matches('%').parse().unwrap()
    };
    assert!(percent(0) > 80.0 && percent(1) >= percent(0), "{printed}");
    assert!(!printed.contains('\x1b'), "{printed}");
}

#[test]
fn top_ends_with_the_process_that_it_shows_and_as_asked() {
    if lacks_recording() {
        return;
    }
    let program = Program::compile_hot("leaves", &[]);
    let recorder = Recorder::new();
    let running = program.start();
    let pid = running.pid().to_string();
    let mut top = recorder.command(&["top", "-b", "-z", "-d", "1", "-p", &pid]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let printed = Lines::of(top.stdout.take().unwrap());
    assert!(printed.next().is_some(), "a table");
    running.ends();
    while printed.next().is_some() {}
    assert!(top.wait().unwrap().success());
    let mut machine = recorder.command(&["top", "-b", "-d", "1"]);
    let mut machine = machine.stdout(Stdio::piped()).spawn().unwrap();
    let printed = Lines::of(machine.stdout.take().unwrap());
    assert!(printed.next().is_some(), "a table");
    kill_process(Pid::from_child(&machine), Signal::INT).unwrap();
    while printed.next().is_some() {}
    assert!(machine.wait().unwrap().success());
}
