//! `perf-exporter script` beside `perf script`, on recordings of perf.

use std::path::Path;
use std::process::Command;

use crate::support::{Feature, lacks};

/// Records a load of the shell.
fn record(file: &Path, options: &[&str]) {
    let load = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; ls -R /usr/include >/dev/null; sleep 0.01";
    let mut perf = Command::new("perf");
    perf.arg("record").args(["-q", "-o"]).arg(file).args(options).args(["--", "sh", "-c", load]);
    let recorded = perf.output().unwrap();
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

/// Checks that both print the same lines, except for other names of the same functions.
fn agree(events: &[&str], options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    record(&file, events);
    let own = script(Command::new(env!("CARGO_BIN_EXE_perf-exporter")), &file, options);
    let perf = script(Command::new("perf"), &file, options);
    assert!(perf.len() > 5, "{perf:?}");
    assert_eq!(own.len(), perf.len());
    let mut aliases = 0;
    for (own, perf) in own.iter().zip(&perf) {
        aliases += usize::from(own != perf);
        // Perf itself names the entries of procedure linkage tables, which are no functions of the file.
        if let Some((place, linkage)) = perf.split_once("@plt") {
            let (address, file) = (place.rsplit_once(' ').unwrap().0, linkage.split_once(' ').unwrap().1);
            assert!(own.starts_with(address) && own.ends_with(file), "{own} instead of {perf}");
            continue;
        }
        assert_eq!(without_alias(own), without_alias(perf));
    }
    println!("{} lines, {aliases} with another name of the same function", own.len());
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

#[test]
fn tracepoints_are_printed_as_by_perf() {
    if lacks(Feature::Perf) {
        return;
    }
    let events = "sched:sched_switch,sched:sched_process_exec,syscalls:sys_enter_openat,syscalls:sys_exit_openat,kmem:kmalloc";
    agree(&["-e", events], &[]);
    agree(&["-g", "-e", "sched:sched_switch"], &[]);
}
