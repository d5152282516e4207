//! Definitions in tracefs are global to the machine: the exporter leaves none behind, and removes none of other programs.

use std::fs;
use std::io::Write;
use std::process::Command;

use perf_exporter::host::{Roots, read_text};
use rustix::process::{Pid, Signal, kill_process};

use crate::functions::probing;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

fn lacks_probes() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs].into_iter().any(lacks)
}

/// Returns the definitions of user probes that belong to the exporter process `pid`.
pub(crate) fn defined_by(pid: u32) -> Vec<String> {
    lines_with(&format!(":perf_exporter_{pid}_"))
}

fn lines_with(text: &str) -> Vec<String> {
    let list = read_text(&Roots::default().tracing.join("uprobe_events")).unwrap();
    list.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// Probes that a test defines like any other program, in its own group. They are removed when the value is dropped, so their users must
/// have exited before.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// Name of the group.
    pub(crate) system: String,
    events: Vec<String>,
}

impl Neighbour {
    pub(crate) fn new(name: &str) -> Self {
        Self { system: format!("live_{name}_{}", std::process::id()), events: Vec::new() }
    }

    /// Defines a probe at a function, with arguments in the kernel's syntax.
    pub(crate) fn defines(&mut self, event: &str, program: &Program, function: &str, arguments: &str) {
        let (path, offset) = (program.path().display(), program.offset_of(function));
        tell(&format!("p:{}/{event} {path}:{offset:#x} {arguments}", self.system)).unwrap();
        self.events.push(event.to_owned());
    }

    fn definitions(&self) -> Vec<String> {
        lines_with(&format!(":{}/", self.system))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        for event in &self.events {
            let removed = || tell(&format!("-:{}/{event}", self.system)).ok();
            if std::thread::panicking() {
                let _left_behind_by_a_failed_test = removed();
            } else {
                eventually("the probe of the test is not in use", removed);
            }
        }
    }
}

fn tell(line: &str) -> std::io::Result<()> {
    let mut file =
        fs::OpenOptions::new().append(true).open(Roots::default().tracing.join("uprobe_events"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn taking(program: &Program, name: &str) -> String {
    format!(
        "{name}: {{uprobe: {}, arguments: [\"size=$arg1:u64\"], sum: {{of: size, unit: bytes}}}}",
        program.at("takes")
    )
}

fn send(service: &Service, signal: Signal) {
    kill_process(Pid::from_child(&service.child), signal).unwrap();
}

#[test]
fn a_service_that_stops_takes_its_probes_with_it() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut neighbour = Neighbour::new("stop");
    neighbour.defines("stays", &program, "takes", "");
    let mut service = probing(&[taking(&program, "one"), taking(&program, "two")], "");
    let pid = service.child.id();
    assert_eq!(defined_by(pid).len(), 2);
    send(&service, Signal::TERM);
    let status = service.child.wait().unwrap();
    assert!(status.success(), "{status}: {}", service.log());
    assert_eq!(defined_by(pid), Vec::<String>::new());
    assert_eq!(neighbour.definitions().len(), 1);
}

#[test]
fn a_reload_removes_the_probes_that_it_drops_and_leaves_the_others_counting() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut neighbour = Neighbour::new("reload");
    neighbour.defines("stays", &program, "takes", "");
    let service = probing(&[taking(&program, "kept"), taking(&program, "dropped")], "");
    let pid = service.child.id();
    let kept = defined_by(pid).into_iter().find(|line| line.contains("/kept ")).unwrap();
    let mut running = program.start();
    running.does("takes 1 10");
    let bytes = |name: &str| service.metrics().value(&format!("perf_probe_{name}_bytes_total"), &[]);
    assert_eq!((bytes("kept"), bytes("dropped")), (Some(55.0), Some(55.0)));

    let configuration = read_text(&service.configuration).unwrap();
    let without = configuration.lines().filter(|line| !line.contains("dropped"));
    fs::write(&service.configuration, without.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    send(&service, Signal::HUP);
    eventually("the probe is removed", || (defined_by(pid) == [kept.clone()]).then_some(()));
    eventually("its metric is removed", || bytes("dropped").is_none().then_some(()));
    running.does("takes 1 10");
    assert_eq!(bytes("kept"), Some(110.0));
    assert_eq!(neighbour.definitions().len(), 1);
}

#[test]
fn what_a_killed_service_left_behind_is_removed_by_the_next_one() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut neighbour = Neighbour::new("kill");
    neighbour.defines("stays", &program, "takes", "");
    let mut killed = probing(&[taking(&program, "left")], "");
    let pid = killed.child.id();
    assert_eq!(defined_by(pid).len(), 1);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let next = probing(&[taking(&program, "next")], "");
    assert_eq!(defined_by(pid), Vec::<String>::new());
    assert_eq!(defined_by(next.child.id()).len(), 1);
    assert_eq!(neighbour.definitions().len(), 1);
    program.start().does("takes 1 10");
    assert_eq!(next.metrics().value("perf_probe_next_bytes_total", &[]), Some(55.0));
}

#[test]
fn two_services_leave_each_other_alone() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut running = program.start();
    let first = probing(&[taking(&program, "same")], "");
    running.does("takes 1 10");
    let second = probing(&[taking(&program, "same")], "");
    running.does("takes 1 10");
    let bytes = |service: &Service| service.metrics().value("perf_probe_same_bytes_total", &[]);
    assert_eq!((bytes(&first), bytes(&second)), (Some(110.0), Some(55.0)));
    send(&second, Signal::TERM);
    let pid = second.child.id();
    eventually("the probe of the second exporter is removed", || defined_by(pid).is_empty().then_some(()));
    assert_eq!(defined_by(first.child.id()).len(), 1);
    running.does("takes 1 10");
    assert_eq!(bytes(&first), Some(165.0));
}

#[test]
fn a_probe_follows_its_path_to_another_file() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("upgraded");
    program.copy_to(&path);
    let entry = |name: &str, more: &str| format!("{name}: {{uprobe: \"{}:takes\"{more}}}", path.display());
    let sum = ", arguments: [\"size=$arg1:u64\"], sum: {of: size, unit: bytes}";
    let service = probing(&[entry("sums", sum), entry("counts", "")], "");
    let value = |metric: &str| service.metrics().value(metric, &[]).unwrap_or_default();
    Running::by(&mut Command::new(&path)).does("takes 1 10");
    assert_eq!((value("perf_probe_sums_bytes_total"), value("perf_probe_counts_total")), (55.0, 10.0));

    // As package managers do: running processes keep the old file.
    let new = dir.path().join("new");
    program.copy_to(&new);
    fs::rename(&new, &path).unwrap();
    let mut running = Running::by(&mut Command::new(&path));
    eventually("calls in the new file are counted", || {
        running.does("takes 1 1");
        let seen = (value("perf_probe_sums_bytes_total") > 55.0, value("perf_probe_counts_total") != 10.0);
        (seen == (true, true)).then_some(())
    });
    assert_eq!(defined_by(service.child.id()).len(), 1, "the old definition is removed");
    let before = value("perf_probe_sums_bytes_total");
    running.does("takes 1 10");
    assert_eq!(value("perf_probe_sums_bytes_total"), before + 55.0);
}
