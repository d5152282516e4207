//! `perf-exporter report` and `diff` beside those of perf, on recordings of perf.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::support::program::Program;
use crate::support::{Feature, lacks};

/// Records a program that spins, as the file `name`.
pub(super) fn record(program: &Program, dir: &Path, name: &str) {
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-g", "-e", "cpu-clock", "-F", "999", "-o", name, "--"]).arg(program.path());
    let orders = dir.join("orders");
    fs::write(&orders, "spins 800\n").unwrap();
    let recorded = perf.current_dir(dir).stdin(File::open(orders).unwrap()).output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
}

/// Returns the lines of a table, without headings and without call trees.
fn entries(program: &str, dir: &Path, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_entry =
        |line: &&str| line.trim_start().split('%').next().is_some_and(|share| share.parse::<f64>().is_ok());
    text.lines().filter(is_entry).map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_table_of_a_recording_is_that_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_hot("hot", &["-fno-omit-frame-pointer"]);
    record(&program, dir.path(), "perf.data");
    for options in [&["--no-children", "-g", "none"][..], &["-g", "none", "--sort", "sym"]] {
        let arguments = [&["report", "--stdio", "--percent-limit", "2"], options].concat();
        let mut own = entries(env!("CARGO_BIN_EXE_perf-exporter"), dir.path(), &arguments);
        let mut perf = entries("perf", dir.path(), &arguments);
        assert!(!perf.is_empty(), "{perf:?}");
        // The order of equal shares depends on addresses.
        own.sort();
        perf.sort();
        assert_eq!(own, perf);
    }
}

#[test]
fn the_header_of_a_recording_has_the_facts_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(&Program::compile_hot("hot", &[]), dir.path(), "perf.data");
    let header = |program: &str| {
        let mut command = Command::new(program);
        let output = command.args(["report", "--header-only"]).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (own, perf) = (header(env!("CARGO_BIN_EXE_perf-exporter")), header("perf"));
    // Perf prints the time in the local zone, and all attributes of an event.
    let is_equal = |line: &&str| !line.starts_with("# captured on") && !line.starts_with("# event :");
    for line in own.lines().filter(is_equal) {
        assert!(perf.lines().any(|of_perf| of_perf == line), "{line}:\n{perf}");
    }
    for fact in ["hostname", "os release", "arch", "cmdline", "event", "sample duration"] {
        assert!(own.contains(&format!("# {fact} : ")), "{fact}:\n{own}");
    }
}

#[test]
fn two_recordings_of_the_same_program_differ_by_a_few_percent_and_the_flame_graph_is_an_image() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_hot("hot", &["-fno-omit-frame-pointer"]);
    record(&program, dir.path(), "old.data");
    record(&program, dir.path(), "new.data");
    let lines = entries(env!("CARGO_BIN_EXE_perf-exporter"), dir.path(), &["diff", "old.data", "new.data"]);
    let perf = entries("perf", dir.path(), &["diff", "old.data", "new.data"]);
    let large = |lines: &[String]| {
        let words = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut large: Vec<String> = words
            .filter(|words| words[0].trim_end_matches('%').parse::<f64>().is_ok_and(|share| share >= 2.0))
            .map(|words| words.join(" "))
            .collect();
        large.sort();
        large
    };
    assert_eq!(large(&lines), large(&perf), "functions of at least 2%");
    assert!(!large(&perf).is_empty());
    let drawn = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["diff", "old.data", "new.data", "-o", "diff.svg"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(drawn.status.success(), "{drawn:?}");
    let image = perf_exporter::host::read_text(&dir.path().join("diff.svg")).unwrap();
    assert!(image.contains("larger share than in the base"), "{image}");
}
