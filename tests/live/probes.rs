//! Probes in tracefs: definitions that the kernel accepts or rejects, the reported errors, and their removal.

use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perf_exporter::health::Cause;
use perf_exporter::host::{self, Roots};
use perf_exporter::probe::ProbeKind;
use perf_exporter::probe::argument::{Arch, Argument};
use perf_exporter::probe::tracefs::{Line, Owner, Probes, SweepResult, complaint};
use perf_exporter::targets::ProcessKey;

use crate::support::worker::Worker;
use crate::support::{Feature, lacks};

/// A function whose arguments a probe can read; two of them are on the stack on x86-64.
#[inline(never)]
extern "C" fn probed(a: u64, b: i32, c: u8, d: *const u8, e: u64, f: u64, g: u64, h: u64) -> u64 {
    black_box(a + u64::from(c) + e + f + g + h) + u64::from(b.unsigned_abs()) + u64::from(d.is_null())
}

/// Returns the file that this test runs from, and the offset of [`probed`] in it.
fn here() -> (PathBuf, u64) {
    let address = probed as *const () as u64;
    let maps = host::read_text(Path::new("/proc/self/maps")).unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        if (hex(start)..hex(end)).contains(&address) {
            return (PathBuf::from(fields[5]), address - hex(start) + hex(fields[2]));
        }
    }
    panic!("no mapping holds the function");
}

fn arguments(texts: &[&str]) -> Vec<Argument> {
    texts.iter().zip(1..).map(|(text, place)| Argument::parse_nth(text, place).unwrap()).collect()
}

fn in_this_program(returns: bool, taken: &[&str]) -> Line {
    let (path, offset) = here();
    Line::user(&path, offset, None, returns, &arguments(taken), Arch::HOST).unwrap()
}

fn in_the_kernel(function: &str, offset: u64, returns: bool, taken: &[&str]) -> Line {
    Line::kernel(None, function, offset, returns, &arguments(taken), Arch::HOST).unwrap()
}

fn probes() -> (Roots, Probes) {
    let roots = Roots::default();
    let probes = Probes::new(&roots, std::process::id());
    (roots, probes)
}

/// A tracing instance that records events of one group, so that other tracing is not affected.
struct Recording {
    dir: PathBuf,
    group: PathBuf,
}

impl Recording {
    fn of(roots: &Roots, name: &str, probes: &Probes) -> Self {
        let dir = roots.tracing.join(format!("instances/live_{name}_{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let group = dir.join("events").join(&**probes.group());
        Self { dir, group }
    }

    fn start(&self, event: &str, filter: &str) {
        fs::write(self.group.join(event).join("filter"), filter).unwrap();
        fs::write(self.group.join(event).join("enable"), "1").unwrap();
    }

    /// Returns the recorded arguments of an event: the text after the address.
    fn stop(&self, event: &str) -> Vec<String> {
        fs::write(self.group.join(event).join("enable"), "0").unwrap();
        let trace = host::read_text(&self.dir.join("trace")).unwrap();
        let marker = format!(" {event}: (");
        let of_event = trace.lines().filter_map(|line| line.split_once(&marker));
        of_event.map(|(_, rest)| rest.split_once(") ").unwrap_or_default().1.to_owned()).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The instance stays if a failed test left an event enabled, and that test has reported its error.
        drop(fs::remove_dir(&self.dir));
    }
}

#[test]
fn the_arguments_of_a_function_of_a_program_are_where_the_calling_convention_has_them() {
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (roots, mut probes) = probes();
    let taken = [
        "a=$arg1",
        "b=$arg2:s32",
        "c=$arg3:u8",
        "d=+0($arg4):string",
        "e=$arg5",
        "g=$arg7",
        "h=$arg8",
        "who=$comm",
    ];
    let event = probes.add("entry", &in_this_program(false, &taken)).unwrap().event;
    let returns = probes.add("exit", &in_this_program(true, &["$retval"])).unwrap().event;
    let recording = Recording::of(&roots, "arguments", &probes);
    recording.start(&event, "0");
    recording.start(&returns, "0");
    let text = b"a word\0";
    assert_eq!(probed(1, -2, 3, black_box(text.as_ptr()), 5, 6, 7, 8), 32);
    let name = host::read_text(Path::new("/proc/thread-self/comm")).unwrap();
    let recorded = format!("a=0x1 b=-2 c=3 d=\"a word\" e=0x5 g=0x7 h=0x8 who=\"{name}\"");
    assert_eq!(recording.stop(&event), [recorded]);
    assert_eq!(recording.stop(&returns), ["arg1=0x20"]);
    drop(recording);
    let system = Arc::clone(probes.group());
    drop(probes);
    assert!(!roots.tracing.join("events").join(&*system).join(&*event).exists());
}

#[test]
fn names_are_made_valid_and_unique_and_probes_are_gone_with_their_owner() {
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (roots, mut probes) = probes();
    let line = in_this_program(false, &["a=%sp"]);
    let system = Arc::clone(probes.group());
    let first = probes.add("9 lives!", &line).unwrap();
    let second = probes.add("9 lives!", &line).unwrap();
    assert_eq!((&*first.event, &*second.event), ("_9_lives_", "_9_lives__1"));
    let long = probes.add(&"x".repeat(100), &line).unwrap();
    assert_eq!(probes.add(&"x".repeat(100), &line).unwrap().event.len(), long.event.len());
    let listed = probes.list().unwrap();
    let found = listed.iter().find(|probe| probe.system == system && probe.event == first.event).unwrap();
    assert_eq!((found.kind, &*found.arguments[0]), (ProbeKind::Uprobe, "a=%sp"));
    probes.remove(&first.event).unwrap();
    probes.remove(&first.event).unwrap();
    assert!(!roots.tracing.join("events").join(&*system).join(&*first.event).exists());
    assert!(roots.tracing.join("events").join(&*system).join(&*second.event).exists());
    drop(probes);
    let left = Probes::new(&roots, 1).list().unwrap();
    assert!(!left.iter().any(|probe| probe.system == system && probe.event == second.event), "{left:?}");
}

#[test]
fn a_probe_in_use_is_not_removed_until_it_is_free() {
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (roots, mut probes) = probes();
    let event = probes.add("busy", &in_this_program(false, &[])).unwrap().event;
    let recording = Recording::of(&roots, "busy", &probes);
    recording.start(&event, "0");
    let refusal = probes.remove(&event).unwrap_err();
    assert!(refusal.to_string().contains("still in use"), "{refusal}");
    recording.stop(&event);
    drop(recording);
    probes.remove(&event).unwrap();
}

#[test]
fn a_refused_probe_is_explained_in_the_kernels_words() {
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (_, mut probes) = probes();
    let (path, offset) = here();
    let line = Line::user(&path, offset, None, false, &arguments(&["a=%none"]), Arch::Other).unwrap();
    let refusal = probes.add("refused", &line).unwrap_err();
    assert_eq!(refusal.to_string(), "broken: the kernel reported: Invalid register name, at \"%none\"");
    let line = Line::user(Path::new("/nonexistent/file"), 0, None, false, &[], Arch::HOST).unwrap();
    let refusal = probes.add("refused", &line).unwrap_err();
    assert_eq!(refusal.judgement.cause, Cause::Absent, "{refusal}");
}

#[test]
fn what_a_dead_exporter_left_is_removed_and_what_a_live_one_has_is_not() {
    if lacks(Feature::Tracefs) || lacks(Feature::Uprobe) {
        return;
    }
    let (roots, mut probes) = probes();
    let own = probes.add("own", &in_this_program(false, &[])).unwrap();
    let (path, offset) = here();
    let tell = |line: String| {
        let opened = fs::OpenOptions::new().append(true).open(roots.tracing.join("uprobe_events"));
        opened.and_then(|mut file| file.write_all(line.as_bytes()))
    };
    let worker = Worker::start("lives");
    let key = ProcessKey::read(&PathBuf::from(format!("/proc/{}", worker.pid()))).unwrap();
    let alive = format!("perf_exporter_{}_{}", key.pid, key.start_time);
    // As seen in a container: another pid, the same start time.
    let contained = format!("perf_exporter_1_{}", key.start_time);
    let dead = format!("perf_exporter_{}_999999999999", key.pid);
    let somebodys = format!("probe_perf_exporter_{}", std::process::id());
    let groups = [&alive, &contained, &dead, &somebodys];
    for group in groups {
        tell(format!("p:{group}/left {}:{offset:#x}\n", path.display())).unwrap();
    }
    let swept = probes.sweep().unwrap();
    let exist = groups.map(|group| roots.tracing.join("events").join(group).exists());
    for group in [&alive, &contained, &somebodys] {
        tell(format!("-:{group}/left\n")).unwrap();
    }
    assert_eq!(exist, [true, true, false, true]);
    let fate = |group: &str| swept.iter().find(|left| &*left.system == group).map(|left| left.fate.clone());
    assert_eq!(
        [&alive, &contained].map(|group| fate(group)),
        [Some(SweepResult::Kept), Some(SweepResult::Kept)]
    );
    assert_eq!([&*somebodys, &own.system].map(fate), [None, None]);
    // Unless another exporter started at that moment and removed it first.
    assert!(matches!(fate(&dead), Some(SweepResult::Removed) | None), "{swept:?}");
    assert!(Owner::of_group(probes.group()).is_some());
}

#[test]
fn the_kernel_says_what_is_wrong_with_a_filter_and_no_instance_stays() {
    if lacks(Feature::Tracefs) || lacks(Feature::Tracepoint) {
        return;
    }
    let roots = Roots::default();
    let said = complaint(&roots, "sched", "sched_switch", "nope == 3").unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines[1].trim(), lines[2]), ("nope == 3", "^", "Field not found"));
    assert_eq!(complaint(&roots, "sched", "sched_switch", "prev_pid > 3"), None);
    assert_eq!(complaint(&roots, "sched", "nothing_of_the_kind", "x"), None);
    assert_eq!(complaint(&roots, "..", "sched", "x"), None);
    let own = Arc::clone(Probes::new(&roots, 1).group());
    let left = host::list(&roots.tracing.join("instances")).unwrap();
    assert!(!left.iter().any(|name| name.starts_with(&*own)), "{left:?}");
}

#[test]
fn the_arguments_and_the_return_of_a_kernel_function_are_recorded() {
    if lacks(Feature::Tracefs) || lacks(Feature::Kprobe) {
        return;
    }
    let (roots, mut probes) = probes();
    let entry = probes.add("reads", &in_the_kernel("vfs_read", 0, false, &["n=$arg3", "m=%cx", "$comm"]));
    let entry = match entry {
        Err(refusal) if Arch::HOST != Arch::X86_64 => {
            assert!(refusal.to_string().contains("%cx"), "{refusal}");
            return;
        }
        entry => entry.unwrap().event,
    };
    let exit = probes.add("read", &in_the_kernel("vfs_read", 0, true, &["n=$retval:s64"])).unwrap().event;
    let recording = Recording::of(&roots, "kprobe", &probes);
    recording.start(&entry, "n == 7717");
    recording.start(&exit, "n == 7717");
    let mut zeros = fs::File::open("/dev/zero").unwrap();
    for _ in 0..10 {
        zeros.read_exact(&mut [0; 7717]).unwrap();
    }
    assert_eq!(recording.stop(&entry).len(), 10);
    assert_eq!(recording.stop(&exit), vec!["n=7717"; 10]);
}

#[test]
fn functions_of_the_kernel_that_cannot_be_probed_are_told_apart() {
    if lacks(Feature::Tracefs) || lacks(Feature::Kprobe) {
        return;
    }
    let (_, mut probes) = probes();
    let mut refusal = |function: &str, offset: u64, returns: bool| {
        probes.add("refused", &in_the_kernel(function, offset, returns, &[])).unwrap_err()
    };
    let unknown = refusal("no_function_is_called_this", 0, false);
    assert_eq!(unknown.judgement.cause, Cause::Absent, "{unknown}");
    assert!(unknown.to_string().contains("no function no_function_is_called_this"), "{unknown}");
    let blacklisted = refusal("kprobe_exceptions_notify", 0, false);
    assert!([Cause::Forbidden, Cause::Absent].contains(&blacklisted.judgement.cause), "{blacklisted}");
    let inside = refusal("vfs_read", 5, true);
    assert!(inside.to_string().contains("the kernel reported"), "{inside}");
    if Arch::HOST == Arch::X86_64 {
        let middle = refusal("vfs_read", 1, false);
        assert!(middle.to_string().contains("middle of an instruction"), "{middle}");
    }
}

#[test]
fn where_the_kernel_has_no_kprobes_that_is_what_is_said() {
    let roots = Roots::default();
    if lacks(Feature::Tracefs) || roots.tracing.join("kprobe_events").exists() {
        return;
    }
    let (_, mut probes) = probes();
    let refusal = probes.add("absent", &in_the_kernel("vfs_read", 0, false, &[])).unwrap_err();
    assert_eq!(refusal.judgement.cause, Cause::Absent);
    assert!(refusal.to_string().contains("CONFIG_KPROBE_EVENTS"), "{refusal}");
}
