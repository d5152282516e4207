//! `perf-exporter lock contention` and `perf-exporter kmem` of a worker with known work, beside perf and beside histograms that the kernel
//! itself makes of the same tracepoints; and the presets about the kernel, each of which opens or says what the kernel lacks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use perf_exporter::host::read_text;

use crate::alone;
use crate::support::calls::Calls;
use crate::support::perf_tables;
use crate::support::service::Service;
use crate::support::worker;
use crate::support::{Feature, lacks};

const EVENTS: &str = "/sys/kernel/tracing/events";

/// The name of the worker's thread, which the harness of its test named, cut to the length of such names.
const THREAD: &str = "support::worker";

/// A histogram that the kernel makes of a tracepoint.
struct Histogram {
    event: PathBuf,
    definition: String,
}

impl Histogram {
    /// Starts it for threads of workers. `definition` has keys and values. Returns `None` on a kernel without histograms.
    fn start(event: &str, definition: &str) -> Option<Self> {
        let event = Path::new(EVENTS).join(event);
        if !event.join("hist").exists() {
            eprintln!("no comparison with {}/hist, which this kernel does not have", event.display());
            return None;
        }
        let definition = format!("hist:keys=common_pid.execname,{definition}:size=16384");
        fs::write(event.join("trigger"), &definition).unwrap();
        Some(Self { event, definition })
    }

    /// Returns the sums of a value over rows of the worker's threads that contain all of `texts`.
    fn sum(&self, texts: &[&str], value: &str) -> f64 {
        let all = read_text(&self.event.join("hist")).unwrap();
        assert!(all.contains("Dropped: 0"), "{all}");
        let rows = all.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        let rows = rows.filter(|row| row.contains(&format!("common_pid: {THREAD} ")));
        let rows = rows.filter(|row| texts.iter().all(|text| row.contains(text)));
        let figure = |row: String| {
            let (_, figures) = row.split_once("} ").unwrap();
            let (_, figure) = figures.split_once(&format!("{value}:")).unwrap();
            figure.split_whitespace().next().unwrap().parse::<f64>().unwrap()
        };
        rows.map(figure).sum()
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        drop(fs::write(self.event.join("trigger"), format!("!{}", self.definition)));
    }
}

/// Runs `perf-exporter` with these arguments on a worker with this order, while perf records the same. Returns what the exporter printed.
fn beside_perf(perf: &[&str], data: &Path, arguments: &[&str], order: &str) -> String {
    let orders = data.with_extension("orders");
    fs::write(&orders, format!("{order}\n")).unwrap();
    let output = Command::new("perf")
        .args(perf)
        .args(["-q", "-m", "8M", "-o"])
        .arg(data)
        .args(["--", env!("CARGO_BIN_EXE_perf-exporter")])
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(worker::arguments())
        .stdin(File::open(&orders).unwrap())
        .output()
        .unwrap();
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {printed}\n{said}", output.status);
    assert!(!said.contains("were lost"), "{said}");
    printed.into_owned()
}

/// Returns both outputs of perf, which prints some tables to standard error.
fn perf(arguments: &[&str]) -> String {
    let output = Command::new("perf").args(arguments).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn waits_of_threads_that_write_to_one_file_are_those_of_perf_and_of_the_kernels_histogram() {
    if [Feature::Tracefs, Feature::Tracepoint, Feature::Perf].into_iter().any(lacks) {
        return;
    }
    let _alone = alone();
    let histogram = Histogram::start("lock/contention_begin", "flags:vals=hitcount");
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("perf.data"), dir.path().join("written"));
    let (threads, times) = (6, 200);
    let order = format!("write_together {threads} {times} {}", file.display());
    let printed = beside_perf(&["lock", "record"], &data, &["lock", "contention"], &order);
    // LCB_F_WRITE, of a semaphore.
    let counted = histogram.as_ref().map(|histogram| histogram.sum(&["flags: 4 }"], "hitcount"));
    // By thread, because perf 6.1 does not find the begin of a wait in a call chain that starts with the tracepoint, as in Linux 6.12.
    let of_perf = perf(&["lock", "contention", "-t", "-i", data.to_str().unwrap()]);
    let sum = |table: &str, is_included: &dyn Fn(&str) -> bool| {
        let rows = perf_tables::waits(table).into_iter().filter(|(row, _)| is_included(row));
        rows.fold((0.0, 0.0), |(number, time), (_, row)| (number + row.0, time + row.1))
    };
    let (all, writes) = (sum(&printed, &|_| true), sum(&printed, &|row| row.starts_with("rwsem:W")));
    // perf also records the exporter.
    let theirs = sum(&of_perf, &|row| !row.ends_with("perf-exporter"));
    let figures = format!("{all:?}, perf {theirs:?}; rwsem:W {writes:?}, the kernel {counted:?}");
    println!("number of waits and their milliseconds: {figures}\n{printed}\n{of_perf}");
    assert!((5.0..=f64::from(threads * times) + 10.0).contains(&writes.0), "{figures}");
    assert!((all.0 - theirs.0).abs() <= theirs.0 * 0.02 + 3.0, "{figures}");
    assert!((all.1 - theirs.1).abs() <= theirs.1 * 0.02 + 10.0, "{figures}");
    if let Some(counted) = counted {
        assert!((writes.0 - counted).abs() <= counted * 0.01 + 2.0, "{figures}");
    }
}

#[test]
fn known_allocations_of_the_kernel_are_those_of_perf_and_of_the_kernels_histogram() {
    if [Feature::Tracefs, Feature::Tracepoint, Feature::Perf].into_iter().any(lacks) {
        return;
    }
    let _alone = alone();
    const PATHS: f64 = 1000.0;
    let histogram =
        Histogram::start("kmem/kmem_cache_alloc", "call_site.sym:vals=hitcount,bytes_req,bytes_alloc");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data");
    // For each path the kernel allocates one object of 4096 bytes in getname_flags.
    let order = Calls::Open(b"/nowhere/at/all").times(PATHS as u64);
    let events = "kmem:kmalloc,kmem:kmem_cache_alloc,kmem:kfree,kmem:kmem_cache_free";
    let printed = beside_perf(&["record", "-e", events], &data, &["kmem"], &order);
    let names = |table: &str| {
        let rows = perf_tables::allocations(table);
        let rows = rows.into_iter().filter(|(function, _)| function.starts_with("getname_flags"));
        rows.fold([0.0; 3], |sum, (_, row)| [0, 1, 2].map(|at| sum[at] + row[at] as f64))
    };
    let of_perf = perf(&["kmem", "--caller", "-i", data.to_str().unwrap(), "stat"]);
    let counted = histogram.as_ref().map(|histogram| {
        ["bytes_alloc", "bytes_req", "hitcount"].map(|value| histogram.sum(&["getname_flags"], value))
    });
    let (ours, theirs) = (names(&printed), names(&of_perf));
    let figures = format!("{ours:?}, perf {theirs:?}, the kernel {counted:?}");
    println!("bytes allocated, requested, allocations in getname_flags: {figures}");
    // The start of the program opens libraries and files as well. perf also records the start of the exporter's child.
    let start = 400.0;
    assert!((PATHS..=PATHS + start).contains(&ours[2]), "{figures}\n{printed}");
    assert_eq!([ours[0], ours[1]], [4096.0 * ours[2]; 2], "{figures}");
    assert!((ours[2]..=ours[2] + start).contains(&theirs[2]), "{figures}\n{of_perf}");
    if let Some(counted) = counted {
        assert_eq!(counted, [4096.0 * PATHS, 4096.0 * PATHS, PATHS], "{figures}");
    }
}

#[test]
fn each_event_of_a_preset_opens_or_is_absent_as_its_tracepoint_is() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let _alone = alone();
    for (preset, text) in [
        ("locks", include_str!("../../config/presets/locks.yaml")),
        ("kmem", include_str!("../../config/presets/kmem.yaml")),
        ("tcp", include_str!("../../config/presets/tcp.yaml")),
        ("ext4", include_str!("../../config/presets/ext4.yaml")),
        ("xfs", include_str!("../../config/presets/xfs.yaml")),
        ("oom", include_str!("../../config/presets/oom.yaml")),
        ("reclaim", include_str!("../../config/presets/reclaim.yaml")),
        ("kvm-exits", include_str!("../../config/presets/kvm-exits.yaml")),
    ] {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let words = lines.flat_map(|line| line.split(|c: char| " ,{}\"[]".contains(c)));
        let events: Vec<(&str, &str)> = words
            .filter_map(|word| word.split_once(':'))
            .filter(|(system, event)| !system.is_empty() && !event.is_empty())
            .collect();
        assert!(!events.is_empty(), "{preset}");
        let service = Service::start_fresh(&format!(
            "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\npresets: [{preset}]\n"
        ));
        let metrics = service.metrics();
        let (mut opened, mut absent) = (0, 0);
        // On arm64, kvm:kvm_exit has no field exit_reason.
        let broken = metrics.sum("perf_event_state", &[("state", "broken")]) > 0.0;
        assert_eq!(broken, preset == "kvm-exits" && cfg!(target_arch = "aarch64"), "{preset}: {metrics:?}");
        if broken {
            println!("{preset}: refused, because the tracepoint has other fields");
            continue;
        }
        for (system, event) in events {
            let name = format!("{system}:{event}");
            let state = |state| metrics.sum("perf_event_state", &[("event", &name), ("state", state)]);
            let exists = Path::new(EVENTS).join(system).join(event).exists();
            assert_eq!(state("counting") > 0.0, exists, "{preset}: {name}: {metrics:?}");
            assert_eq!(state("absent") > 0.0, !exists, "{preset}: {name}: {metrics:?}");
            (opened, absent) = if exists { (opened + 1, absent) } else { (opened, absent + 1) };
        }
        println!("{preset}: {opened} events opened, {absent} absent");
    }
}
