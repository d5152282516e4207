//! `perf-exporter record -o perf.data`: what perf reads in the file.

use super::*;
use crate::profiles::FRAME_POINTERS;

fn lacks_perf() -> bool {
    lacks_recording() || lacks(Feature::Perf)
}

/// Runs a command of perf on a file. It must succeed, and find nothing wrong with the file.
#[track_caller]
fn perf(recorder: &Recorder, file: &str, arguments: &[&str]) -> String {
    let (command, options) = arguments.split_first().unwrap();
    let output = Command::new("perf")
        .args([command, "-i", file])
        .args(options)
        .current_dir(recorder.dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("WARNING"), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the number of samples that `perf script` prints of an event.
fn samples_of(recorder: &Recorder, file: &str, event: &str) -> u64 {
    let printed = perf(recorder, file, &["script", "-F", "event"]);
    printed.lines().filter(|line| line.trim() == format!("{event}:")).count() as u64
}

/// Returns the stacks that `perf script` prints.
fn stacks(recorder: &Recorder, file: &str) -> Folded {
    let printed = perf(recorder, file, &["script", "-F", "comm,ip,sym"]);
    let mut stacks = BTreeMap::new();
    for sample in printed.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let mut lines = sample.trim().lines();
        let comm = lines.next().unwrap().trim().to_owned();
        let symbol = |line: &str| line.trim().split_once(' ').map_or("", |(_, symbol)| symbol).to_owned();
        let mut stack: Vec<String> = lines.map(symbol).collect();
        stack.push(comm);
        stack.reverse();
        *stacks.entry(stack).or_default() += 1;
    }
    Folded(stacks)
}

#[test]
fn perf_finds_the_samples_of_a_command_with_their_functions() {
    if lacks_perf() {
        return;
    }
    let program = Program::compile_hot("stored", &FRAME_POINTERS);
    let recorder = Recorder::new();
    let script = script(&program, "spins 1500");
    let ended = recorder.record(&["-o", "x.data", "--", "sh", "-c", &script]).ends();
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert_eq!(samples_of(&recorder, "x.data", "cpu-clock"), samples(&ended), "{ended:?}");
    assert_shares(&stacks(&recorder, "x.data"));
    let report = perf(&recorder, "x.data", &["report", "--stdio", "--no-children", "-g", "none"]);
    assert!(report.contains("] burns"), "{report}");
    let header = perf(&recorder, "x.data", &["report", "--stdio", "--header-only"]);
    for words in [
        "# cmdline : ",
        "# perf version : perf-exporter ",
        "# event : name = cpu-clock",
        "# nrcpus online : ",
    ] {
        assert!(header.contains(words), "{words}: {header}");
    }
    let ids = perf(&recorder, "x.data", &["buildid-list"]);
    let path = program.path().display().to_string();
    assert!(ids.lines().any(|line| line.len() > path.len() + 20 && line.ends_with(&path)), "{ids}");
    // Our other formats have the same shares.
    let ended = recorder.record(&["-o", "x.folded", "--call-graph", "fp", "--", "sh", "-c", &script]).ends();
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let (perfs, ours) = (stacks(&recorder, "x.data"), Folded::read(&recorder.path("x.folded")));
    let share = |folded: &Folded| folded.share(&["three_quarters", "burns"]) / folded.share(&["spins"]);
    assert!((share(&perfs) - share(&ours)).abs() < 0.12, "{} {}", share(&perfs), share(&ours));
}

#[test]
fn perf_finds_what_ran_already_by_the_mappings_of_before() {
    if lacks_perf() {
        return;
    }
    let program = Program::compile_hot("earlier", &FRAME_POINTERS);
    let recorder = Recorder::new();
    let mut running = program.start();
    let recording = recorder.record(&["-o", "x.data", "-p", &running.pid().to_string()]);
    works_until_seen(&mut running);
    running.ends();
    let ended = recording.ends();
    assert!(ended.status.success(), "{ended:?}");
    let stacks = stacks(&recorder, "x.data");
    assert!(stacks.share(&["three_quarters", "burns"]) > 0.3, "{stacks:#?}");
    assert!(stacks.0.keys().all(|stack| stack[0] == "earlier"), "{stacks:#?}");
}

#[test]
fn copies_of_stacks_are_unwound_by_perf() {
    if lacks_perf() {
        return;
    }
    let program = Program::compile_hot("copied", &["-fomit-frame-pointer"]);
    let recorder = Recorder::new();
    let script = script(&program, "spins 1000");
    let ended =
        recorder.record(&["--call-graph", "dwarf,8192", "-o", "x.data", "--", "sh", "-c", &script]).ends();
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert_shares(&stacks(&recorder, "x.data"));
}

#[test]
fn the_fields_of_a_tracepoint_are_in_the_file() {
    if lacks_perf() || lacks(Feature::Tracepoint) {
        return;
    }
    let recorder = Recorder::new();
    let event = "sched:sched_switch";
    let ended = recorder.run(&["record", "-e", event, "-c", "1", "-a", "--duration", "0.5", "-o", "x.data"]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(samples_of(&recorder, "x.data", event), samples(&ended), "{ended:?}");
    let printed = perf(&recorder, "x.data", &["script", "-F", "comm,event,trace"]);
    assert!(printed.contains("prev_comm=") && printed.contains("next_pid="), "{printed}");
}

#[test]
fn a_recording_that_was_killed_is_complete_up_to_then() {
    if lacks_perf() {
        return;
    }
    let recorder = Recorder::new();
    let recording = recorder.record(&["-a", "-o", "x.data"]);
    let size = || fs::metadata(recorder.path("x.data")).map_or(0, |file| file.len());
    let mut before = size();
    // The first records are those of what existed before.
    for _ in 0..3 {
        while size() <= before {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        before = size();
    }
    let ended = recording.ends_by(Signal::KILL);
    assert_eq!(ended.status.signal(), Some(Signal::KILL.as_raw()), "{ended:?}");
    assert!(samples_of(&recorder, "x.data", "cpu-clock") > 0);
    let header = perf(&recorder, "x.data", &["report", "--stdio", "--header-only"]);
    assert!(header.contains("# cmdline : "), "{header}");
}

#[test]
fn a_full_disk_ends_the_recording_and_what_was_written_stays() {
    if lacks_perf() || lacks(Feature::Mounts) {
        return;
    }
    let recorder = Recorder::new();
    let script = "mount -t tmpfs -o size=2m none small && cd small && \
                  \"$1\" record -a -F 9999 --call-graph dwarf -o x.data -- sleep 20; code=$?; cp x.data ..; exit $code";
    fs::create_dir(recorder.path("small")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", PERF_EXPORTER]).current_dir(recorder.dir.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write x.data: No space left on device"), "{said}");
    assert!(samples_of(&recorder, "x.data", "cpu-clock") > 0, "{said}");
}

#[test]
fn an_earlier_recording_is_renamed_and_only_its_owner_can_read_a_new_one() {
    if lacks_recording() {
        return;
    }
    let recorder = Recorder::new();
    fs::write(recorder.path("x.data"), "old").unwrap();
    for (arguments, code, words) in [
        (&["-o", "-", "--format", "perf-data", "touch", "ran"][..], 1, "use -o perf.data"),
        (&["-o", "x.data", "--off-cpu", "touch", "ran"], 2, "record the switches with -e sched:sched_switch"),
        (&["-o", "/nonexistent/x.data", "touch", "ran"], 1, "-o /nonexistent/x.data"),
        (&["-o", "x.data", "/nonexistent/program"], 127, "cannot run /nonexistent/program"),
        (&["-o", "x.data", "true"], 0, "x.data: "),
    ] {
        let ended = recorder.run(&[&["record"], arguments].concat());
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.said.contains(words), "{arguments:?}: {ended:?}");
    }
    assert!(!recorder.path("ran").exists(), "the command must not run if it cannot be recorded");
    assert_eq!(host::list(recorder.dir.path()).unwrap(), ["x.data", "x.data.old"]);
    assert_eq!(fs::metadata(recorder.path("x.data")).unwrap().permissions().mode() & 0o777, 0o600);
}
