//! Privileges of the running service, as the kernel shows them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use perf_exporter::host::{list, read_text};

use crate::support::folded::Folded;
use crate::support::service::{Service, get_bytes, get_path};
use crate::support::{Feature, eventually, lacks};

/// `CAP_DAC_READ_SEARCH`, `IPC_LOCK`, `SYS_PTRACE`, `SYS_NICE`, `SYSLOG`, `PERFMON` and `CHECKPOINT_RESTORE`.
const KEPT: u64 = 1 << 2 | 1 << 14 | 1 << 19 | 1 << 23 | 1 << 34 | 1 << 38 | 1 << 40;
/// `CAP_SYS_ADMIN`.
const ADMIN: u64 = 1 << 21;

const FILES: &str = "counters: {os: {events: [task-clock], per: [cpu]}}\nprofiles: {cpu: {event: cpu-clock, frequency: 99}}\n";

/// Returns the values of these fields for all threads of a process.
fn fields(pid: u32, names: &[&str]) -> BTreeSet<Vec<String>> {
    let tasks = format!("/proc/{pid}/task");
    let mut threads = BTreeSet::new();
    for thread in list(Path::new(&tasks)).unwrap() {
        // A thread may have ended.
        let Ok(text) = read_text(&Path::new(&tasks).join(thread).join("status")) else { continue };
        let of = |name: &&str| {
            let line = text.lines().find_map(|line| line.strip_prefix(*name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        threads.insert(names.iter().map(of).collect());
    }
    threads
}

/// Returns the child that opens files of other processes, once it runs.
fn helper(service: &Service) -> u32 {
    child_of(service)
}

/// Returns the child of the process, once it runs.
fn child_of(service: &Service) -> u32 {
    eventually("the child runs", || {
        let parent = format!("PPid:\t{}", service.child.id());
        let processes = list(Path::new("/proc")).ok()?;
        processes.iter().filter_map(|name| name.parse::<u32>().ok()).find(|child| {
            let status = read_text(Path::new(&format!("/proc/{child}/status"))).unwrap_or_default();
            status.lines().any(|line| line == parent)
        })
    })
}

/// Waits until all threads of a process have exactly these capabilities, and can gain no others.
fn has_only(pid: u32, capabilities: u64) {
    let mask = format!("{capabilities:016x}");
    let expected = BTreeSet::from([vec![mask.clone(), mask.clone(), mask, "1".to_owned()]]);
    eventually("no thread has other capabilities", || {
        let found = fields(pid, &["CapPrm", "CapEff", "CapBnd", "NoNewPrivs"]);
        (found == expected).then_some(()).ok_or_else(|| println!("{found:?}")).ok()
    });
}

#[test]
fn started_as_root_it_keeps_the_capabilities_of_its_features_and_cannot_regain_others() {
    if lacks(Feature::Software) {
        return;
    }
    let mut service = Service::start(FILES);
    service.has_logged(&["gave up capabilities that no feature needs", "CAP_SYS_PTRACE"]);
    has_only(service.child.id(), KEPT);
    // The child is executed as user 0, which would give it all capabilities of the bounding set.
    has_only(helper(&service), KEPT);
    // Profiles read files of all users.
    eventually("there are samples", || (Folded::of(&service, "type=cpu").total() > 0.0).then_some(()));
}

#[test]
fn every_thread_and_the_child_for_files_are_restricted_to_their_system_calls() {
    if lacks(Feature::Software) {
        return;
    }
    let service = Service::start(FILES);
    eventually("there are samples", || (Folded::of(&service, "type=cpu").total() > 0.0).then_some(()));
    for pid in [service.child.id(), helper(&service)] {
        eventually("no thread is without a filter", || {
            let modes = fields(pid, &["Seccomp"]);
            (modes == BTreeSet::from([vec!["2".to_owned()]])).then_some(())
        });
    }
    // That of the service, and that of the child.
    let filters = fields(helper(&service), &["Seccomp_filters"]);
    let own = fields(std::process::id(), &["Seccomp_filters"]);
    let own: u32 = own.first().and_then(|fields| fields[0].parse().ok()).unwrap_or(0);
    assert_eq!(filters, BTreeSet::from([vec![(own + 2).to_string()]]));
}

/// A call that is not in the lists fails with `ENOSYS`, and the feature that makes it is missing something.
#[test]
fn no_feature_makes_a_system_call_that_is_not_in_the_lists() {
    if lacks(Feature::Software) || lacks(Feature::Strace) || lacks(Feature::Tracefs) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (calls, socket) = (dir.path().join("calls"), dir.path().join("http.sock"));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "signal=none", "-e", "status=failed", "-o"]).arg(&calls);
    command.arg(env!("CARGO_BIN_EXE_perf-exporter"));
    command.arg(format!("--listen=unix:{}", socket.display()));
    // The receiver does not exist: connections and name resolution are tried.
    let mut service = Service::start_by(
        command,
        &format!(
            "{FILES}collection: {{interval: 1s}}\nscheduler: {{per: [host, cgroup]}}\nsyscalls: {{per: [host], include: [openat]}}\n\
             presets: [forks, irq]\nprocesses: {{by: [comm]}}\n\
             probes: {{exits: {{uprobe: \"/bin/true:0x2000\"}}}}\n\
             export: {{otlp: {{endpoint: \"http://absent.invalid:4317\"}}, remote_write: {{url: \"http://127.0.0.1:1/\"}}}}\n"
        ),
    );
    eventually("there are samples", || (Folded::of(&service, "type=cpu").total() > 0.0).then_some(()));
    for path in [
        "/",
        "/program?name=strace",
        "/api/v1/history",
        "/status",
        "/top?seconds=1",
        "/flamegraph",
        "/heatmap",
        "/debug/pprof/profile?seconds=1",
        "/-/ready",
    ] {
        get_bytes(&service.address, path);
    }
    let upload = ["-sSf", "--data-binary", "a;b 1", &format!("http://{}/api/v1/baselines", service.address)];
    assert!(Command::new("curl").args(upload).stdout(Stdio::null()).status().unwrap().success());
    let reload =
        ["-sS", "-X", "POST", "--unix-socket", socket.to_str().unwrap(), "http://localhost/-/reload"];
    assert!(Command::new("curl").args(reload).status().unwrap().success());
    service.has_logged(&[
        "reload of the configuration requested by HTTP peer=uid",
        "recording of a profile requested by HTTP peer=127.0.0.1",
        "profile uploaded for comparisons peer=127.0.0.1",
    ]);
    // The child of strace is the service.
    let service_pid = child_of(&service).to_string();
    assert!(Command::new("kill").arg(service_pid).status().unwrap().success());
    assert!(service.child.wait().unwrap().success());
    assert!(!socket.exists(), "the socket is removed at the end");
    let calls = read_text(&calls).unwrap();
    // The C library starts threads by `clone` if there is no `clone3`.
    let is_forbidden = |line: &&str| line.contains("ENOSYS") && !line.contains("clone3(");
    let forbidden: Vec<&str> = calls.lines().filter(is_forbidden).collect();
    assert!(forbidden.is_empty(), "{}", forbidden.join("\n"));
}

#[test]
fn probes_keep_the_capability_that_they_need_and_a_reload_says_what_is_missing() {
    if lacks(Feature::Software) {
        return;
    }
    let probes = format!("{FILES}probes: {{exits: {{uprobe: \"/bin/true:0x1000\"}}}}\n");
    let service = Service::start(&probes);
    has_only(service.child.id(), KEPT | ADMIN);

    let mut service = Service::start(FILES);
    service.rewrite(&probes);
    let reload = ["-sS", "-X", "POST", &format!("http://{}/-/reload", service.address)];
    let output = Command::new("curl").args(reload).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("restart to apply the new probes or tracefs.mount, which need CAP_SYS_ADMIN"),
        "{text}"
    );
    service.has_logged(&["reload of the configuration requested by HTTP"]);
}

#[test]
fn no_sandbox_keeps_everything_and_the_status_says_so() {
    if lacks(Feature::Software) {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
    command.args(["run", "--no-sandbox"]);
    let service = Service::start_by(command, FILES);
    let own = fields(std::process::id(), &["CapEff"]);
    assert_eq!(fields(service.child.id(), &["CapEff"]), own);
    let status = get_path(&service.address, "/api/v1/status").1;
    assert!(status.contains("keeps capabilities that no feature needs (--no-sandbox"), "{status}");
}
