//! Trouble of real processes: each kind is found on the node, and its incident has a suspect, the function and the waits.
//!
//! The limits are fixed, because a comparison with the past needs ten minutes of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use serde_json::Value;

use crate::support::cgroup::TestCgroup;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, get_path};
use crate::support::{Feature, eventually, lacks};
use crate::traces::LoopDevice;

fn service(directory: &Path, cgroups: &[&TestCgroup], anomalies: &str) -> Service {
    let paths: Vec<&str> = cgroups.iter().map(|cgroup| cgroup.path()).collect();
    Service::start(&format!(
        "collection: {{interval: 1s, freshness: 0s}}\n\
         cgroups: {{include: [{}]}}\n\
         counters: {{os: {{events: [task-clock, context-switches], per: [cgroup]}}}}\n\
         limits: {{cpu: 100%}}\n\
         presets: [forks]\n\
         scheduler: {{per: [cgroup]}}\n\
         syscalls: {{per: [cgroup]}}\n\
         profiles: {{cpu: {{frequency: 99}}, off_cpu: {{threshold: 1ms}}}}\n\
         anomalies: {{{anomalies}}}\n\
         incidents: {{directory: {}, cooldown: 10m}}\n",
        paths.join(", "),
        directory.display()
    ))
}

/// Starts trouble of a kind in a cgroup, on one CPU.
fn trouble(program: &Program, kind: &str, path: &str, cgroup: &TestCgroup, cpu: Option<usize>) -> Running {
    // Other tests run meanwhile: the hogs use most of their CPU nevertheless.
    let nice = if kind == "hog" { "-10" } else { "0" };
    let running = Running::by(Command::new("nice").args(["-n", nice]).arg(program.path()).args([kind, path]));
    cgroup.take(running.pid());
    if let Some(cpu) = cpu {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(Pid::from_raw(running.pid() as i32), &cpus).unwrap();
    }
    running
}

/// Waits until there is an incident of each cgroup, and returns them by cgroup.
fn incidents(service: &Service, cgroups: &[&TestCgroup]) -> BTreeMap<String, Value> {
    eventually("each trouble is found", || {
        // A comparison takes place every ten seconds.
        thread::sleep(Duration::from_millis(200));
        let list: Value = serde_json::from_str(&get_path(&service.address, "/api/v1/incidents").1).unwrap();
        let incident = |row: &Value| Some((row["incident"]["cgroup"].as_str()?.to_owned(), row.clone()));
        let found: BTreeMap<_, _> = list["incidents"].as_array()?.iter().filter_map(incident).collect();
        cgroups.iter().all(|cgroup| found.contains_key(cgroup.path())).then_some(found)
    })
}

fn kind(row: &Value) -> &str {
    row["incident"]["trigger"]["kind"].as_str().unwrap()
}

fn file(service: &Service, row: &Value, name: &str) -> String {
    get_path(&service.address, &format!("/incidents/{}/{name}", row["id"].as_str().unwrap())).1
}

#[test]
fn a_neighbor_that_takes_the_cpu_is_the_suspect_of_the_waits() {
    if [Feature::Compiler, Feature::Cgroup, Feature::Stream].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (victim, neighbor) = (TestCgroup::new("victim"), TestCgroup::new("neighbor"));
    let bystander = TestCgroup::new("bystander");
    let program = Program::compile_troubled("troubled");
    let anomalies = "waits: {of: runqueue_latency, above: 0.005, for: 10s}";
    let service = service(dir.path(), &[&victim, &neighbor, &bystander], anomalies);
    let _running = [
        trouble(&program, "serve", "", &victim, Some(0)),
        trouble(&program, "hog", "", &neighbor, Some(0)),
        trouble(&program, "hog", "", &neighbor, Some(0)),
        trouble(&program, "hog", "", &neighbor, Some(0)),
        trouble(&program, "serve", "", &bystander, Some(1)),
    ];
    let found = incidents(&service, &[&victim]);
    let row = &found[victim.path()];
    assert_eq!(kind(row), "waits", "{row:#}");
    let suspects = row["incident"]["suspects"].as_array().unwrap();
    let named = |cgroup: &TestCgroup| suspects.iter().find(|suspect| suspect["cgroup"] == cgroup.path());
    // Other processes of the machine may use this CPU, too.
    let suspect = named(&neighbor).unwrap_or_else(|| panic!("{row:#}"));
    assert_eq!(suspect["basis"], "ran_meanwhile", "{row:#}");
    assert!(suspect["score"].as_f64().unwrap() > 0.2, "{row:#}");
    assert_eq!(named(&bystander), None, "it runs on another CPU");
    let scheduling = &row["incident"]["scheduling"][0];
    let longest = &scheduling["longest"][0];
    assert!(longest["seconds"].as_f64().unwrap() > 0.001, "{row:#}");
    assert_eq!(scheduling["file"], "scheduler-begin.json.gz");
    let report = file(&service, row, "report.html");
    for text in [neighbor.path(), "serve_requests", "scheduler-begin.json.gz"] {
        assert!(report.contains(text), "{text} is not in the report");
    }
}

#[test]
fn errors_forks_locks_and_a_slow_disk_are_found_with_the_function_that_causes_them() {
    let needed = [Feature::Compiler, Feature::Cgroup, Feature::Stream, Feature::Loop];
    if needed.into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [errors, forks, convoy, disk] = ["errors", "forks", "convoy", "disk"].map(TestCgroup::new);
    let program = Program::compile_troubled("troubled");
    let anomalies = "errors: {of: syscall_errors, above: 0.5, for: 10s}, forks: {of: forks, above: 20, for: 10s}, \
                     blocked: {of: off_cpu, above: 0.5, for: 10s}";
    let service = service(dir.path(), &[&errors, &forks, &convoy, &disk], anomalies);
    let device = LoopDevice::of(16 << 20);
    let written = dir.path().join("written").display().to_string();
    let disk_path = device.path.display().to_string();
    let running = [
        trouble(&program, "errors", "", &errors, None),
        trouble(&program, "forks", "", &forks, None),
        trouble(&program, "convoy", &written, &convoy, None),
        trouble(&program, "disk", &disk_path, &disk, None),
    ];
    let slow = SlowDevice::of(&device, running[3].pid());
    let found = incidents(&service, &[&errors, &forks, &convoy, &disk]);
    for (cgroup, expected, profile, function) in [
        (&errors, "errors", "cpu", "open_missing_files"),
        (&forks, "forks", "cpu", "fork_children"),
        (&convoy, "blocked", "off_cpu", "write_in_turns"),
        (&disk, "blocked", "off_cpu", "read_from_disk"),
    ] {
        let row = &found[cgroup.path()];
        assert_eq!(kind(row), expected, "{row:#}");
        let folded = file(&service, row, &format!("{profile}-during.folded"));
        assert!(folded.contains(function), "{function}: {folded}");
        // The name of a child that has exited may be unknown.
        let is_own = |line: &&str| ["troubled", "[gone]"].iter().any(|comm| line.starts_with(comm));
        let others = folded.lines().filter(|line| !is_own(line));
        assert_eq!(others.count(), 0, "other cgroups are in the profile: {folded}");
    }
    let metrics = file(&service, &found[errors.path()], "metrics-begin.txt");
    let failed = |line: &str| line.contains("ENOENT") && line.contains(errors.path());
    assert!(metrics.lines().any(failed), "{metrics}");
    drop((running, slow));
}

/// A limit of the reads of a process from a device, where the controller of version 1 exists. Without it, the device is as fast as its file.
struct SlowDevice(PathBuf);

impl SlowDevice {
    fn of(device: &LoopDevice, pid: u32) -> Self {
        let directory = Path::new("/sys/fs/cgroup/blkio").join(format!("perf-exporter-{pid}"));
        let limit = format!("{} 500000", device.numbers().replace(',', ":"));
        let limited = fs::create_dir(&directory)
            .and_then(|()| fs::write(directory.join("blkio.throttle.read_bps_device"), limit))
            .and_then(|()| fs::write(directory.join("cgroup.procs"), pid.to_string()));
        if let Err(error) = limited {
            eprintln!("the device is not slowed down: {error}");
        }
        Self(directory)
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        let removed = || fs::remove_dir(&self.0).ok();
        if thread::panicking() {
            let _left_behind_by_a_failed_test = removed();
        } else if self.0.exists() {
            eventually("the cgroup of a device is empty", removed);
        }
    }
}
