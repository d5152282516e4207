//! `perf-exporter probe` on the command line. An added probe is a tracepoint that counts each call, also for other tools, until it is
//! removed. Listed functions of a process's own files can be probed by the exporter.

use std::process::Command;

use crate::functions::probing;
use crate::support::program::Program;
use crate::support::{Feature, lacks};

/// Reports whether the machine lacks a feature that every test here needs.
fn lacks_probes() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs].into_iter().any(lacks)
}

/// Returns the output of a command that succeeds.
fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_perf-exporter")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// An added probe, as `group:event`. It is removed when the value is dropped.
struct Added(String);

impl Added {
    fn new(path: &str, definition: &str) -> Self {
        let added = said(&["probe", "-x", path, "--add", definition, "--output", "json"]);
        let added: serde_json::Value = serde_json::from_str(added.lines().next().unwrap()).unwrap();
        Self(added["event"].as_str().unwrap().to_owned())
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        said(&["probe", "--del", &self.0]);
        assert!(!said(&["probe", "--list"]).contains(&self.0), "{}", self.0);
    }
}

#[test]
fn a_probe_that_a_person_adds_counts_every_call_until_it_is_removed() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let path = program.path().to_str().unwrap();
    let event = format!("person_{}", std::process::id());
    let added = Added::new(path, &format!("{event}=hit number=%di:u64"));
    assert_eq!(added.0, format!("perf_exporter:{event}"));
    let listed = said(&["probe", "--list", &event]);
    assert!(listed.contains(&format!("{path}:{:#x} with number=", program.offset_of("hit"))), "{listed}");
    let told = format!("printf 'hits 1 1000\\n' | {path}");
    let output = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["stat", "-x", ",", "-e", &added.0, "--", "sh", "-c", &told])
        .output()
        .unwrap();
    let counts = String::from_utf8(output.stderr).unwrap();
    assert!(counts.starts_with("1000,"), "{counts}");
}

#[test]
fn what_is_shown_of_a_processs_own_files_counts_its_calls() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut running = program.start();
    let inside = format!("pid:{}", running.pid());
    let path = program.path().to_str().unwrap();
    let shown = said(&["probe", "-x", path, "--in", &inside, "--output", "json"]);
    let rows = shown.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let meant = rows.filter(|row| row["probe"] == "hit" || row["probe"] == "%live:step");
    let entries: Vec<String> = meant.map(|row| row["yaml"].as_str().unwrap().to_owned()).collect();
    assert_eq!(entries.len(), 2, "{shown}");
    let service = probing(&entries, "");
    running.does("hits 1 1000");
    running.does("marks 1 77");
    let metrics = service.metrics();
    assert_eq!(metrics.value("perf_probe_hit_total", &[]), Some(1000.0));
    assert_eq!(metrics.value("perf_probe_step_total", &[]), Some(77.0));
}
