//! Evidence of incidents, recorded by the service on request.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use perf_exporter::host::{list, read as read_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cgroup::TestCgroup;
use crate::support::http::ask;
use crate::support::program::Program;
use crate::support::service::{Service, get_bytes, get_path};
use crate::support::{Feature, eventually, lacks};

fn service(directory: &Path) -> Service {
    Service::start(&format!(
        "collection: {{interval: 1s, freshness: 0s}}\n\
         counters: {{os: {{events: [task-clock], per: [cpu, cgroup]}}}}\n\
         profiles: {{cpu: {{event: cpu-clock, frequency: 199}}}}\n\
         incidents: {{directory: {}, cooldown: 1m}}\n",
        directory.display()
    ))
}

/// Requests an incident, and returns the outcome.
fn post(service: &Service, body: &Value) -> Value {
    let url = format!("http://{}/api/v1/incidents", service.address);
    let sent = Command::new("curl").args(["-sS", "-d", &body.to_string(), &url]).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    serde_json::from_slice(&sent.stdout).unwrap()
}

/// Returns the output of `perf-exporter incidents` for a directory.
fn command(directory: &Path, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
    let output = command.arg("incidents").arg("--directory").arg(directory).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn the_evidence_of_a_cgroup_names_its_hot_function_and_survives_the_service() {
    if [Feature::Compiler, Feature::Software, Feature::Cgroup].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("incidents");
    let cgroup = TestCgroup::new("incident");
    let program = Program::compile_hot("hot", &[]);
    let mut hot = program.start();
    cgroup.take(hot.pid());
    hot.told("spins 3600000");
    let mut service = service(&directory);
    let path = cgroup.path().to_owned();
    eventually("the program is sampled", || {
        let folded = get_path(&service.address, &format!("/folded?cgroup={path}")).1;
        folded.contains("spin").then_some(())
    });
    let first = post(&service, &serde_json::json!({"reason": "a test", "cgroup": path}));
    let address = first[0]["incident"].as_str().unwrap().to_owned();
    let report = eventually("the evidence is written", || {
        let list: Value = serde_json::from_str(&get_path(&service.address, "/api/v1/incidents").1).unwrap();
        (list["total"] == 1).then(|| get_path(&service.address, &address).1)
    });
    assert!(report.contains("requested: a test") && report.contains("spin"), "{report}");
    let archive = get_bytes(&service.address, &format!("{address}/archive.tar"));
    let id = address.rsplit('/').next().unwrap();
    assert_eq!(read_file(&directory.join(format!("{id}.tar"))).unwrap(), archive);
    // The same incident: nothing is recorded again.
    let again = post(&service, &serde_json::json!({"reason": "again", "cgroup": path}));
    assert_eq!(again[0]["incident"], address.as_str());
    kill_process(Pid::from_child(&service.child), Signal::USR2).unwrap();
    service.has_logged(&["trigger=SIGUSR2"]);
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    // As if it had been killed while it wrote.
    let partial = directory.join("20200101T000000Z.tar.partial");
    fs::write(&partial, "half").unwrap();
    let list = String::from_utf8(command(&directory, &["list"])).unwrap();
    assert!(list.contains(id) && list.contains("SIGUSR2, the machine"), "{list}");
    let shown: Value = serde_json::from_slice(&command(&directory, &["show", id])).unwrap();
    assert_eq!((&shown["ended_ms"], shown["cgroup"].as_str()), (&Value::Null, Some(path.as_str())));
    assert!(shown["profiles"][0]["during"].as_u64().unwrap() > 0, "{shown}");
    let folded = command(&directory, &["export", id, "--file", "cpu-during.folded"]);
    assert!(String::from_utf8(folded).unwrap().contains("spin"));
    let restarted = self::service(&directory);
    let list: Value = serde_json::from_str(&get_path(&restarted.address, "/api/v1/incidents").1).unwrap();
    assert_eq!(list["total"], 2, "{list}");
    post(&restarted, &serde_json::json!({}));
    eventually("the next incident removes what was left", || (!partial.exists()).then_some(()));
}

/// Returns the number of triggers with this result.
fn triggers(service: &Service, result: &str) -> f64 {
    let metrics = service.metrics();
    let of = metrics.by("perf_exporter_incident_triggers_total", "result");
    of.filter(|(known, _)| *known == result).map(|(_, count)| count).sum()
}

#[test]
fn a_thousand_triggers_in_a_second_cost_one_archive() {
    if lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let service = service(&dir.path().join("incidents"));
    let post = || ask(&service.address, "POST", "/api/v1/incidents", Duration::from_secs(60)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..250).for_each(|_| assert!([200, 202].contains(&post().code))));
        }
    });
    let list: Value = serde_json::from_str(&get_path(&service.address, "/api/v1/incidents").1).unwrap();
    assert_eq!(list["total"], 1, "{list}");
    let [recorded, attached, suppressed] =
        ["recorded", "attached", "suppressed"].map(|result| triggers(&service, result));
    assert_eq!((recorded, recorded + attached + suppressed), (1.0, 1000.0), "{attached} {suppressed}");
}

#[test]
fn a_full_disk_fails_the_evidence_and_nothing_else() {
    if lacks(Feature::Software) || lacks(Feature::Mounts) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::of(dir.path(), "64k");
    let directory = dir.path().join("incidents");
    let mut service = service(&directory);
    post(&service, &serde_json::json!({"reason": "a full disk"}));
    service.has_logged(&["the evidence of an incident cannot be written", "No space left on device"]);
    assert_eq!(triggers(&service, "failed"), 1.0);
    assert!(list(&directory).unwrap().is_empty(), "nothing is left of the archive");
    assert!(get_path(&service.address, "/incidents").1.contains("There was none so far"));
    // The end of the incident writes it again. A request about another cgroup does not wait for it.
    disk.resize("64m");
    post(&service, &serde_json::json!({"cgroup": "/another"}));
    eventually("there is room again", || {
        let list = get_path(&service.address, "/api/v1/incidents").1;
        list.contains("/another").then_some(())
    });
}

#[test]
fn whenever_the_service_is_killed_its_archives_are_whole() {
    if lacks(Feature::Software) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("incidents");
    for round in 0..6 {
        let mut service = service(&directory);
        post(&service, &serde_json::json!({"reason": round.to_string()}));
        thread::sleep(Duration::from_millis(round * 7));
        service.child.kill().unwrap();
        service.child.wait().unwrap();
        let rows = String::from_utf8(command(&directory, &["list", "--output", "json"])).unwrap();
        for row in rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()) {
            assert_eq!(row["error"], Value::Null, "{row:#}");
            let id = row["id"].as_str().unwrap();
            let report = command(&directory, &["export", id, "--file", "report.html"]);
            assert!(String::from_utf8(report).unwrap().ends_with("</html>\n"), "{id}");
        }
    }
}

/// A file system in memory, with a size. It is unmounted when it is dropped.
struct Disk<'d>(&'d Path);

impl<'d> Disk<'d> {
    fn of(path: &'d Path, size: &str) -> Self {
        let mut mount = Command::new("mount");
        let options = format!("size={size}");
        assert!(mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(path).status().unwrap().success());
        Self(path)
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        let options = format!("remount,size={size}");
        assert!(mount.args(["-o", &options]).arg(self.0).status().unwrap().success());
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).status());
    }
}
