//! `perf-exporter script` beside `perf script`, on recordings of perf.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::support::program::Program;
use crate::support::{Feature, lacks};

const EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// Records a load of the shell by perf, or by the exporter.
fn record(mut command: Command, file: &Path, options: &[&str]) {
    let load = "timeout 1 sh -c 'while :; do :; done'; ls -R /usr/include >/dev/null 2>&1; sleep 0.01";
    command.args(["record", "-o"]).arg(file).args(options).args(["--", "sh", "-c", load]);
    let recorded = command.output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
}

/// Returns the output of `perf script`, or of that of the exporter.
fn script(mut command: Command, file: &Path, options: &[&str]) -> Vec<String> {
    let output = command.arg("script").arg("-i").arg(file).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns a line without the name of its function, which may have several. Its address, its offset and its file stay.
fn without_alias(line: &str) -> String {
    let Some((before, file)) = line.rsplit_once(" (").filter(|_| line.ends_with(')')) else {
        return line.to_owned();
    };
    let (place, symbol) = before.rsplit_once(' ').unwrap_or(("", before));
    let offset = symbol.rsplit_once('+').map_or("", |(_, offset)| offset);
    format!("{place} +{offset} ({file}")
}

/// On arm64, removes the callers of the innermost function of a program. Both add the caller of a leaf function from its return register,
/// but by different unwind information: perf does not where it cannot open the file.
fn without_callers_in_programs(mut lines: Vec<String>) -> Vec<String> {
    let mut is_innermost = true;
    lines.retain(|line| {
        let is_kernel = line.contains(" ([") && !line.ends_with("([unknown])");
        match line.starts_with('\t') {
            true if !is_kernel => std::mem::take(&mut is_innermost) || cfg!(not(target_arch = "aarch64")),
            is_frame => {
                is_innermost |= !is_frame;
                true
            }
        }
    });
    lines
}

/// Checks that both print the same lines, except for other names of the same functions.
fn agree(events: &[&str], options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(Command::new("perf"), &file, events);
    print_the_same(&file, options, options);
}

/// Splits lines into samples: the line of an event with the lines of its call chain.
fn samples(lines: &[String]) -> Vec<Vec<&str>> {
    let mut samples: Vec<Vec<&str>> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        match (line.starts_with('\t'), samples.last_mut()) {
            (true, Some(sample)) => sample.push(line),
            _ => samples.push(vec![line]),
        }
    }
    samples
}

/// Returns a line without the name of the function, if one of both names an entry of a procedure linkage table. Entries are no functions of
/// the file: each finds others of them by the layout of the table.
fn without_entry<'a>(line: &'a str, other: &str) -> Option<(&'a str, &'a str)> {
    let is_entry = [line, other].iter().any(|line| line.contains("@plt"));
    let (before, file) = line.rsplit_once(" (").filter(|_| is_entry)?;
    Some((before.rsplit_once(' ')?.0, file))
}

/// Checks the same for a file, with the options of each.
fn print_the_same(file: &Path, options: &[&str], of_perf: &[&str]) {
    let own = without_callers_in_programs(script(Command::new(EXPORTER), file, options));
    let perf = without_callers_in_programs(script(Command::new("perf"), file, of_perf));
    let (own, perf) = (samples(&own), samples(&perf));
    assert!(perf.len() > 5, "{perf:?}");
    assert_eq!(own.len(), perf.len());
    let (mut aliases, mut discarded) = (0, 0);
    for (own, perf) in own.iter().zip(&perf) {
        // Perf discards a call chain with an address that looks like a marker of the kernel: any value of a register may be in a chain.
        if own.len() > 1 && perf.len() == 1 {
            assert_eq!(own[0], perf[0]);
            discarded += 1;
            continue;
        }
        assert_eq!(own.len(), perf.len(), "{own:#?} instead of {perf:#?}");
        for (own, perf) in own.iter().zip(perf) {
            aliases += usize::from(own != perf);
            match (without_entry(own, perf), without_entry(perf, own)) {
                (Some(own), Some(perf)) => assert_eq!(own, perf),
                _ => assert_eq!(without_alias(own), without_alias(perf)),
            }
        }
    }
    if discarded > 0 {
        let perf =
            Command::new("perf").args(["script", "-v", "-i"]).arg(file).args(of_perf).output().unwrap();
        let said = String::from_utf8_lossy(&perf.stderr).matches("invalid callchain context").count();
        assert!(discarded <= said, "{discarded} call chains are missing, perf discards {said}");
    }
    println!(
        "{} samples, {aliases} lines with another name of the same function, {discarded} discarded",
        own.len()
    );
}

#[test]
fn samples_with_call_chains_are_printed_as_by_perf() {
    if lacks(Feature::Perf) {
        return;
    }
    agree(&["-g", "-e", "cpu-clock", "-F", "999"], &[]);
    agree(&["-g", "-e", "cpu-clock", "-F", "499"], &["-G", "-F", "comm,pid,tid,time,ip,sym,dso"]);
}

#[test]
fn samples_without_call_chains_and_compressed_ones_are_printed_as_by_perf() {
    if lacks(Feature::Perf) {
        return;
    }
    agree(&["-e", "cpu-clock", "-e", "page-faults"], &[]);
    agree(&["-z", "-a", "-e", "cpu-clock"], &["--comms", "sh"]);
}

/// Records a program that only uses CPU time by perf.
fn record_hot(dir: &Path, options: &[&str]) {
    let program = Program::compile_hot("hot", &["-g"]);
    let orders = dir.join("orders");
    fs::write(&orders, "spins 500\n").unwrap();
    let mut perf = Command::new("perf");
    perf.args(["record", "-F", "999", "-o", "perf.data"]).args(options).arg("--").arg(program.path());
    let recorded = perf.current_dir(dir).stdin(File::open(orders).unwrap()).output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
}

#[test]
fn copied_stacks_are_unwound_as_by_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record_hot(dir.path(), &["-e", "cpu-clock:u", "--call-graph", "dwarf"]);
    print_the_same(&dir.path().join("perf.data"), &[], &["--no-inline"]);
}

#[test]
fn perf_reads_what_we_record_also_compressed() {
    if lacks(Feature::Perf) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let sizes = [&["-e", "cpu-clock"][..], &["-e", "cpu-clock", "-z"]].map(|options| {
        record(Command::new(EXPORTER), &file, options);
        print_the_same(&file, &[], &[]);
        fs::metadata(&file).unwrap().len()
    });
    assert!(sizes[1] * 2 < sizes[0], "{sizes:?} bytes without and with -z");
}

#[test]
fn filters_select_the_same_samples_in_each_format() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record_hot(dir.path(), &["-g", "-e", "cpu-clock"]);
    let file = dir.path().join("perf.data");
    let lines = |options: &[&str]| script(Command::new(EXPORTER), &file, options);
    let times: Vec<String> =
        lines(&["-G", "-F", "time"]).iter().map(|line| line.trim().replace(':', "")).collect();
    let (first, last) = (&times[times.len() / 4], &times[times.len() / 2]);
    let select = ["--time", &format!("{first},{last}"), "-S", "burns", "--comms", "hot"];
    let text = lines(&[&["-G", "-F", "time"][..], &select].concat()).len();
    assert!(text > 50, "{text}");
    let json = |format: &str| -> serde_json::Value {
        let lines = lines(&[&["--format", format][..], &select].concat());
        serde_json::from_str(&lines.join("\n")).unwrap()
    };
    let instants = |trace: &serde_json::Value| {
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "i").count()
    };
    assert_eq!(instants(&json("chrome")), text);
    assert_eq!(json("speedscope")["profiles"][0]["samples"].as_array().unwrap().len(), text);
    assert_eq!(json("firefox")["threads"][0]["samples"]["length"], text);
    let value = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let folded: u64 = lines(&[&["--format", "folded"][..], &select].concat()).iter().map(value).sum();
    assert_eq!(folded / 1_001_001, text as u64, "in periods of 999 Hz");
}

#[test]
fn tracepoints_are_printed_as_by_perf() {
    if lacks(Feature::Perf) {
        return;
    }
    let events = "sched:sched_switch,sched:sched_process_exec,syscalls:sys_enter_openat,syscalls:sys_exit_openat,kmem:kmalloc";
    agree(&["-e", events], &[]);
    agree(&["-g", "-e", "sched:sched_switch"], &[]);
}
