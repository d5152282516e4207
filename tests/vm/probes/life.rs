//! Ownership and removal of probe definitions in tracefs.

use std::fs::OpenOptions;
use std::io::{self, Write};

use perf_exporter::host::{Roots, read_text};
use rustix::process::{Pid, Signal, kill_process};

use super::{configuration, defined_by, kprobes, service};
use crate::support::calls::Calls;
use crate::support::eventually;
use crate::support::service::Service;
use crate::support::worker::Worker;

const READS: &str =
    "probes: {reads: {kprobe: vfs_read, arguments: [count], filter: count == 7717, labels: [count]}}";

fn kprobe_events(line: &str) -> io::Result<()> {
    let path = Roots::default().tracing.join("kprobe_events");
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

/// A probe of another program. It is removed when the value is dropped.
struct Neighbour;

impl Neighbour {
    fn define() -> Self {
        kprobe_events("p:neighbour/kept vfs_read\n").unwrap();
        Self
    }

    fn is_there(&self) -> bool {
        let all = read_text(&Roots::default().tracing.join("kprobe_events")).unwrap();
        all.lines().any(|line| line.starts_with("p:neighbour/kept "))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        if let Err(error) = kprobe_events("-:neighbour/kept\n") {
            eprintln!("a probe could not be removed: {error}");
        }
    }
}

fn signal(service: &Service, signal: Signal) {
    kill_process(Pid::from_child(&service.child), signal).unwrap();
}

#[test]
fn what_a_killed_exporter_left_is_removed_by_the_next_and_that_leaves_nothing() {
    let Some(_counters) = kprobes() else { return };
    let neighbour = Neighbour::define();
    let mut worker = Worker::start("reads");
    let mut killed = service(READS, "");
    assert_eq!(defined_by(&killed).len(), 1);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_eq!(defined_by(&killed).len(), 1, "the probe of a killed exporter was removed");

    let mut next = service(READS, "");
    next.has_logged(&["leftover probe"]);
    assert_eq!(defined_by(&killed), [""; 0]);
    assert_eq!(defined_by(&next).len(), 1);
    worker.calls(Calls::Read(7717), 33);
    assert_eq!(next.metrics().value("perf_probe_reads_total", &[("count", "7717")]), Some(33.0));

    signal(&next, Signal::TERM);
    assert!(next.child.wait().unwrap().success(), "{}", next.log());
    assert_eq!(defined_by(&next), [""; 0]);
    assert!(neighbour.is_there());
}

#[test]
fn two_exporters_do_not_take_each_others_probes() {
    let Some(_counters) = kprobes() else { return };
    let mut worker = Worker::start("reads");
    let services = [service(READS, ""), service(READS, "")];
    worker.calls(Calls::Read(7717), 20);
    for service in &services {
        assert_eq!(defined_by(service).len(), 1);
        let count = service.metrics().value("perf_probe_reads_total", &[("count", "7717")]);
        assert_eq!(count, Some(20.0));
    }
}

#[test]
fn a_reload_removes_the_probes_that_are_not_wanted_any_more_and_the_others_go_on() {
    let Some(_counters) = kprobes() else { return };
    let mut worker = Worker::start("reads");
    let both = "probes:\n  reads: {kprobe: vfs_read, arguments: [count], filter: count == 7717, labels: [count]}\n  \
         opens: {kprobe: do_sys_openat2, arguments: [dfd], labels: [dfd]}\n";
    let service = service(both, "");
    worker.calls(Calls::Read(7717), 20);
    assert_eq!(defined_by(&service).len(), 2);
    let kept = defined_by(&service).into_iter().find(|line| line.contains("/reads ")).unwrap();

    service.rewrite(&configuration(READS, ""));
    signal(&service, Signal::HUP);
    eventually("the other probe is removed", || (defined_by(&service).len() == 1).then_some(()));
    assert_eq!(defined_by(&service), [kept]);
    worker.calls(Calls::Read(7717), 7);
    let scrape = service.metrics();
    assert_eq!(scrape.value("perf_probe_reads_total", &[("count", "7717")]), Some(27.0), "{scrape:?}");
}
