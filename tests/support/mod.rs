//! Checks for what a test needs from the machine. If a feature is missing, the test prints a message to stderr and passes; if
//! `PERF_EXPORTER_REQUIRE` names the feature, the test fails. So `cargo test` passes on every machine, and CI cannot lose a test by losing
//! a privilege.

#[allow(dead_code, reason = "not every target makes system calls by workers")]
pub(crate) mod calls;
pub(crate) mod cgroup;
#[allow(dead_code, reason = "each target uses only some of the readings")]
pub(crate) mod collector;
#[allow(dead_code, reason = "each target uses only some of the times")]
pub(crate) mod cpu_times;
pub(crate) mod exposition;
#[allow(dead_code, reason = "not every target samples stacks")]
pub(crate) mod folded;
#[allow(dead_code, reason = "not every target mounts file systems")]
pub(crate) mod fuse;
#[allow(dead_code, reason = "not every target makes requests with a deadline")]
pub(crate) mod http;
pub(crate) mod lines;
#[allow(dead_code, reason = "each target uses only some of the loads")]
pub(crate) mod load;
#[allow(dead_code, reason = "not every target runs mixed loads")]
pub(crate) mod mixed;
#[allow(dead_code, reason = "not every target compares with commands of perf")]
pub(crate) mod perf_tables;
#[allow(dead_code, reason = "not every target compiles programs")]
pub(crate) mod program;
pub(crate) mod service;
#[allow(dead_code, reason = "not every target compares names of events with perf")]
pub(crate) mod vendor_events;
pub(crate) mod worker;

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use perf_exporter::clock::Clock;
use perf_exporter::host::{self, Facts, KernelVersion, Roots};
use rustix::fs::{Access, access};

/// Environment variable with a comma-separated list of features. A test fails if such a feature is missing.
const REQUIRE: &str = "PERF_EXPORTER_REQUIRE";

/// Further names that the variable may contain, for the scripts in `tests/interop`.
const OF_SCRIPTS: [&str; 12] = [
    "prometheus3",
    "pprof",
    "chromium",
    "otlp",
    "collector",
    "alertmanager",
    "npm",
    "manifests",
    "container",
    "systemd",
    "notify",
    "cargo-deb",
];

/// A feature that a machine may have, lack or forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Software events for any process and any CPU.
    Software,
    /// Tracepoints: a readable tracefs.
    Tracepoint,
    /// Cgroups for which events can be opened, in a hierarchy in which a test may create cgroups.
    Cgroup,
    /// A tracefs in which probes can be defined.
    Tracefs,
    /// Probes of user functions by `perf_event_open`.
    Uprobe,
    /// Probes of kernel functions by `perf_event_open`.
    Kprobe,
    /// Hardware counters of a CPU.
    Pmu,
    /// The time-stamp counter of x86 as an event, `msr/tsc/`.
    Tsc,
    /// The program `perf`, to compare counts with.
    Perf,
    /// The PMU that QEMU emulates for the arm64 guest: six counters for any event and one for cycles. It counts four cycles for each
    /// instruction.
    Emulated,
    /// A kernel that forbids ordinary users to open events of whole CPUs.
    Paranoid,
    /// A C compiler, with a C library for static linking.
    Compiler,
    /// Mount namespaces, and the right to mount file systems in them.
    Mounts,
    /// Loop devices.
    Loop,
    /// File systems in user space (FUSE).
    Fuse,
    /// The program `promtool`, which parses scrapes as Prometheus does.
    Promtool,
    /// The program `strace`, which counts system calls by stopping at each call.
    Strace,
    /// The terminal multiplexer `tmux`, which types keys and reads a screen.
    Tmux,
    /// The container runtime `containerd`, with `runc`, and the right to run containers.
    Containerd,
    /// The switch stream: a program with the setting for it, and `cgroup-switches` of Linux 5.13.
    Stream,
    /// A CPU that may be taken offline. Only guests require it, because it disturbs all other work on a machine.
    Hotplug,
}

impl Feature {
    const ALL: [Self; 21] = [
        Self::Software,
        Self::Tracepoint,
        Self::Tracefs,
        Self::Cgroup,
        Self::Uprobe,
        Self::Kprobe,
        Self::Pmu,
        Self::Tsc,
        Self::Perf,
        Self::Emulated,
        Self::Paranoid,
        Self::Compiler,
        Self::Mounts,
        Self::Loop,
        Self::Fuse,
        Self::Promtool,
        Self::Strace,
        Self::Tmux,
        Self::Containerd,
        Self::Stream,
        Self::Hotplug,
    ];

    /// Returns why `roots` does not offer the feature, or `None` if it does.
    fn obstacle(self, roots: &Roots) -> Option<String> {
        match self {
            Self::Software => events_of_others_refused(roots),
            Self::Tracepoint => {
                unreadable(&roots.tracing.join("events/sched")).or_else(|| events_of_others_refused(roots))
            }
            Self::Tracefs => no_writable_tracefs(roots),
            Self::Cgroup => no_writable_cgroup(roots).or_else(|| events_of_others_refused(roots)),
            Self::Uprobe => no_pmu("uprobe", roots).or_else(|| events_of_others_refused(roots)),
            Self::Kprobe => no_pmu("kprobe", roots).or_else(|| events_of_others_refused(roots)),
            Self::Pmu => no_core_pmu(roots).or_else(|| events_of_others_refused(roots)),
            Self::Tsc => no_pmu("msr", roots)
                .or_else(|| unreadable(&pmus(roots).join("msr/events/tsc")))
                .or_else(|| events_of_others_refused(roots)),
            // Runs `perf`, because `/usr/bin/perf` of Debian exists for every kernel and fails without the package of the running one.
            Self::Perf => fails("perf", &["--version"]).or_else(|| events_of_others_refused(roots)),
            Self::Emulated => no_emulator(roots).or_else(|| events_of_others_refused(roots)),
            Self::Paranoid => not_paranoid(roots),
            Self::Compiler => no_compiler(roots),
            Self::Mounts => no_mounts(roots),
            Self::Loop => no_loop_device(roots),
            Self::Fuse => no_fuse(roots).or_else(|| no_mounts(roots)),
            Self::Promtool => fails("promtool", &["--version"]).or_else(|| events_of_others_refused(roots)),
            Self::Strace => fails("strace", &["-V"]).or_else(|| events_of_others_refused(roots)),
            Self::Tmux => fails("tmux", &["-V"]).or_else(|| events_of_others_refused(roots)),
            Self::Containerd => fails("containerd", &["--version"])
                .or_else(|| fails("runc", &["--version"]))
                .or_else(|| no_mounts(roots))
                .or_else(|| no_compiler(roots))
                .or_else(|| no_writable_cgroup(roots)),
            Self::Stream => no_stream(roots).or_else(|| events_of_others_refused(roots)),
            Self::Hotplug => no_hotplug(roots),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Software => "software",
            Self::Tracepoint => "tracepoint",
            Self::Tracefs => "tracefs",
            Self::Cgroup => "cgroup",
            Self::Uprobe => "uprobe",
            Self::Kprobe => "kprobe",
            Self::Pmu => "pmu",
            Self::Tsc => "tsc",
            Self::Perf => "perf",
            Self::Emulated => "emulated",
            Self::Paranoid => "paranoid",
            Self::Compiler => "compiler",
            Self::Mounts => "mounts",
            Self::Loop => "loop",
            Self::Fuse => "fuse",
            Self::Promtool => "promtool",
            Self::Strace => "strace",
            Self::Tmux => "tmux",
            Self::Containerd => "containerd",
            Self::Stream => "stream",
            Self::Hotplug => "hotplug",
        })
    }
}

/// Reports whether this machine lacks `feature`. The calling test then returns.
///
/// # Panics
/// If the feature is missing and `PERF_EXPORTER_REQUIRE` names it, or if that variable contains an unknown name.
pub(crate) fn lacks(feature: Feature) -> bool {
    let required = required(&env::var(REQUIRE).unwrap_or_default()).unwrap_or_else(|error| panic!("{error}"));
    let Some(obstacle) = feature.obstacle(&Roots::default()) else { return false };
    assert!(!required.contains(&feature), "{REQUIRE} names {feature}, but {obstacle}");
    let test = thread::current();
    let line = format!("skipped: {}: needs {feature}, but {obstacle}\n", test.name().unwrap_or("a test"));
    // Not eprintln!, because the harness shows its output only if the test fails.
    io::stderr().write_all(line.as_bytes()).expect("a line can be written to stderr");
    true
}

/// Calls `ask` until it returns a value, for at least half a minute, and at most two minutes if each call takes long.
///
/// # Panics
/// If it returns none by then. `what` is the description of the expected event.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let begin = clock.monotonic();
    let elapsed = || clock.monotonic().since(begin);
    let mut calls = 0;
    while calls < 1500 && elapsed() < Duration::from_secs(120) {
        if let Some(answer) = ask() {
            return answer;
        }
        calls += 1;
        thread::sleep(Duration::from_millis(20));
    }
    panic!("did not happen within {:?} and {calls} calls: {what}", elapsed());
}

/// Parses a value of `PERF_EXPORTER_REQUIRE` into features.
fn required(list: &str) -> Result<Vec<Feature>, String> {
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !OF_SCRIPTS.contains(name));
    names
        .map(|name| {
            let feature = Feature::ALL.into_iter().find(|feature| feature.to_string() == name);
            feature.ok_or_else(|| {
                let known = Feature::ALL.map(|feature| feature.to_string()).join(", ");
                format!("{REQUIRE} contains the unknown feature {name:?}; known features: {known}")
            })
        })
        .collect()
}

fn no_writable_tracefs(roots: &Roots) -> Option<String> {
    let path = roots.tracing.join("dynamic_events");
    let opened = std::fs::OpenOptions::new().append(true).open(&path);
    opened.err().map(|error| format!("{}: {error}", path.display()))
}

fn events_of_others_refused(roots: &Roots) -> Option<String> {
    let facts = Facts::read(roots);
    match facts.paranoid {
        None => Some("the kernel does not support perf events".to_owned()),
        Some(_) if facts.capabilities.perfmon() => None,
        Some(level) => {
            Some(format!("this process has no CAP_PERFMON (kernel.perf_event_paranoid is {level})"))
        }
    }
}

/// Returns why a program fails, or `None` if it succeeds.
fn fails(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(format!("{program} {} fails: {}", arguments.join(" "), said.trim()))
        }
        Err(error) => Some(format!("{program} could not be run: {error}")),
    }
}

fn no_compiler(roots: &Roots) -> Option<String> {
    unreadable(&roots.mounted("/usr/include/stdlib.h")).or_else(|| fails("gcc", &["-print-file-name=libc.a"]))
}

fn no_mounts(roots: &Roots) -> Option<String> {
    unreadable(&roots.proc.join("self/ns/mnt")).or_else(|| fails("unshare", &["--mount", "true"]))
}

fn no_loop_device(roots: &Roots) -> Option<String> {
    unreadable(&roots.mounted("/dev/loop-control")).or_else(|| fails("losetup", &["--find"]))
}

/// Opens the device, because `access` succeeds even where the kernel does not support FUSE.
fn no_fuse(roots: &Roots) -> Option<String> {
    let path = roots.mounted("/dev/fuse");
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(&path);
    opened.err().map(|error| format!("{}: {error}", path.display()))
}

fn no_emulator(roots: &Roots) -> Option<String> {
    let path = roots.proc.join("device-tree/compatible");
    match host::read_text(&path) {
        Ok(machine) if machine.contains("linux,dummy-virt") => no_core_pmu(roots),
        Ok(machine) => Some(format!("unexpected machine {machine:?}")),
        Err(error) => Some(error.to_string()),
    }
}

fn not_paranoid(roots: &Roots) -> Option<String> {
    match Facts::read(roots).paranoid {
        None => Some("the kernel does not support perf events".to_owned()),
        Some(level) if level < 1 => Some(format!("kernel.perf_event_paranoid is {level}")),
        Some(_) => None,
    }
}

fn no_hotplug(roots: &Roots) -> Option<String> {
    if !env::var(REQUIRE).unwrap_or_default().split(',').any(|word| word.trim() == "hotplug") {
        return Some(format!("it disturbs the machine, and {REQUIRE} does not name it"));
    }
    unreadable(&roots.sys.join("devices/system/cpu/cpu1/online"))
}

fn no_stream(roots: &Roots) -> Option<String> {
    let kernel = Facts::read(roots).kernel;
    if kernel < KernelVersion(5, 13) {
        return Some(format!("Linux {kernel} does not support cgroup-switches"));
    }
    (!can_choose_attribution())
        .then(|| "the program does not have the setting cgroups.attribution".to_owned())
}

/// Reports whether the program accepts the setting `attribution`. The answer is no only if the program reports the setting as unknown; the
/// tests find all other errors.
pub(crate) fn can_choose_attribution() -> bool {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(b"cgroups: {attribution: stream}\nprocesses: {attribution: stream}\n").unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
    let checked = check.args(["check", "--no-open", "--config"]).arg(file.path()).output().unwrap();
    !String::from_utf8_lossy(&checked.stderr).contains("unknown setting `attribution`")
}

fn unreadable(path: &Path) -> Option<String> {
    access(path, Access::READ_OK).err().map(|errno| format!("{}: {errno}", path.display()))
}

fn no_pmu(name: &str, roots: &Roots) -> Option<String> {
    unreadable(&pmus(roots).join(name).join("type"))
}

fn no_core_pmu(roots: &Roots) -> Option<String> {
    core_pmus(roots).is_empty().then(|| format!("{} has no PMU of a CPU", pmus(roots).display()))
}

fn pmus(roots: &Roots) -> PathBuf {
    roots.sys.join("bus/event_source/devices")
}

/// Returns the directories of CPU PMUs: `cpu`, or one for each kind of core (`cpu_core`, `armv8_pmuv3_0`).
pub(crate) fn core_pmus(roots: &Roots) -> Vec<PathBuf> {
    let names = host::list(&pmus(roots)).unwrap_or_default();
    let core = |name: &String| name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv");
    names.into_iter().filter(core).map(|name| pmus(roots).join(name)).collect()
}

fn no_writable_cgroup(roots: &Roots) -> Option<String> {
    let mounts = host::read_text(&roots.proc.join("self/mounts")).unwrap_or_default();
    match perf_cgroup_mount(&mounts) {
        None => Some("no cgroup hierarchy with perf_event is mounted".to_owned()),
        Some(path) => access(roots.mounted(path), Access::WRITE_OK | Access::EXEC_OK)
            .err()
            .map(|errno| format!("cgroups cannot be created in {path}: {errno}")),
    }
}

/// Returns the mount point of the hierarchy with the controller `perf_event`: the v1 hierarchy that names it, else v2.
fn perf_cgroup_mount(mounts: &str) -> Option<&str> {
    let find = |wanted: fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(kind, options).then_some(path)
        })
    };
    find(|kind, options| kind == "cgroup" && options.split(',').any(|option| option == "perf_event"))
        .or_else(|| find(|kind, _| kind == "cgroup2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_features_and_a_name_that_is_none_is_an_error() {
        assert_eq!(required(""), Ok(vec![]));
        assert_eq!(required("pmu, cgroup"), Ok(vec![Feature::Pmu, Feature::Cgroup]));
        assert_eq!(required("pprof,pmu"), Ok(vec![Feature::Pmu]));
        assert!(required("pmu,cgroups").unwrap_err().contains("\"cgroups\""));
    }

    /// Runs the check once in every target, even if no test of the target needs the feature.
    #[test]
    fn this_machine_has_every_feature_that_is_required_of_it() {
        for feature in required(&env::var(REQUIRE).unwrap_or_default()).unwrap() {
            assert_eq!(feature.obstacle(&Roots::default()), None, "{REQUIRE} names {feature}");
        }
    }

    #[test]
    fn a_machine_without_files_lacks_everything_for_a_reason() {
        let empty = tempfile::tempdir().unwrap();
        for feature in Feature::ALL {
            let obstacle = feature.obstacle(&Roots::under(empty.path()));
            assert!(obstacle.is_some_and(|text| !text.is_empty()), "{feature}");
        }
    }

    #[test]
    fn the_hierarchy_of_perf_event_is_v1_where_v1_has_it() {
        let v2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(perf_cgroup_mount(v2), Some("/sys/fs/cgroup/unified"));
        let hybrid = format!("{v2}cgroup /sys/fs/cgroup/perf cgroup rw,perf_event 0 0\n");
        assert_eq!(perf_cgroup_mount(&hybrid), Some("/sys/fs/cgroup/perf"));
        assert_eq!(perf_cgroup_mount("proc /proc proc rw 0 0\n"), None);
    }
}
