//! Cost of building OTLP requests of a profile of 100 000 samples with 10 000 stacks.
//!
//! `cargo bench --bench otlp_profiles` prints the time, and the memory needed above the profile, measured in a separate process. The goals
//! are 60 ms, and twice the size of the requests.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use perf_exporter::clock::Timestamp;
use perf_exporter::export::otlp::Encoded;
use perf_exporter::export::otlp::attribute::{Attribute, Resource};
use perf_exporter::export::otlp::profiles::{Options, encode};
use perf_exporter::profile::{Function, Kind, Line, Location, Mapping, Mode, Origin, Profile, Sample, Task};
use perf_exporter::stack::BuildId;

const SAMPLES: u32 = 100_000;
const STACKS: u32 = 10_000;
const LOCATIONS: u32 = 15_000;
const FUNCTIONS: u32 = 8_000;
const MAPPINGS: u32 = 200;
const THREADS: u32 = 2_000;
const CONTAINERS: u32 = 50;

/// Returns reproducible pseudo-random numbers.
fn any(seed: u32, most: u32) -> u32 {
    let mixed = (u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as u32 % most
}

/// Returns the profile of a minute on a busy node.
fn profile() -> Profile {
    let function = |number: u32| {
        let name = format!("service::module_{}::Type{}::method_{number}", number % 97, number % 1013);
        Function {
            linkage: format!("_ZN7service{number}17h0123456789abcdefE").into(),
            name: name.into(),
            file: None,
        }
    };
    let mapping = |number: u32| Mapping {
        start: 0x1000,
        limit: 0x90_0000,
        offset: 0x1000,
        path: format!("/usr/lib/x86_64-linux-gnu/lib{number}.so.1").into(),
        build_id: Some(BuildId(number.to_le_bytes().repeat(5).into())),
        named: true,
        ..Mapping::default()
    };
    let location = |number: u32| Location {
        mapping: Some(number % MAPPINGS),
        address: 0x1000 + u64::from(number) * 64,
        lines: vec![Line { function: any(number, FUNCTIONS), line: 0 }],
        origin: Origin::Native,
        unknown: None,
    };
    let stack = |number: u32| -> Box<[u32]> {
        (0..10 + any(number, 30)).map(|depth| any(number * 64 + depth, LOCATIONS)).collect()
    };
    let task = |number: u32| Task {
        pid: 1000 + number / 8,
        tid: 1000 + number,
        comm: format!("worker/{}", number % 8).into(),
        cgroup: Some(format!("/kubepods/burstable/pod{0}/{0:064x}", number % CONTAINERS).into()),
        exe: Some(format!("/usr/bin/service-{}", number % CONTAINERS).into()),
        ..Task::default()
    };
    // One sample for each combination: stacks by thread and CPU.
    let sample = |number: u32| {
        let count = 1 + u64::from(any(number, 5));
        Sample {
            stack: number % STACKS,
            task: any(number / 3, THREADS),
            mode: if number.is_multiple_of(4) { Mode::Kernel } else { Mode::User },
            cpu: Some((number / STACKS) as u16),
            count,
            value: count * 52_631_578,
        }
    };
    Profile {
        kind: Kind { period: Some(52_631_578), ..Kind::default() },
        start: Timestamp(1_763_715_126_000),
        duration: Duration::from_secs(60),
        samples: (0..SAMPLES).map(sample).collect(),
        stacks: (0..STACKS).map(stack).collect(),
        locations: (0..LOCATIONS).map(location).collect(),
        functions: (0..FUNCTIONS).map(function).collect(),
        mappings: (0..MAPPINGS).map(mapping).collect(),
        tasks: (0..THREADS).map(task).collect(),
        lost: Vec::new(),
    }
}

fn resource() -> Resource {
    let name: Arc<str> = "node-17".into();
    Resource::new([Attribute::text("host.name", name)])
}

fn encoded(profile: &Profile, limit: usize) -> Encoded {
    encode(std::slice::from_ref(profile), &resource(), &Options { limit, ..Options::default() })
}

/// Size limits of a request: 4 MB, and the maximum recommended by the specification.
const LIMITS: [(&str, usize); 2] = [("4 MB", 4_000_000), ("32 MiB", 32 << 20)];

/// Returns a field of `/proc/self/status`, in KiB.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs on the real machine")]
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Encodes once and prints the increase of peak resident memory, in KiB.
fn print_peak(limit: usize) {
    let profile = profile();
    // `5` resets the peak to the current value (proc(5), since Linux 4.0).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let state = status("VmRSS");
    black_box(encoded(&profile, limit));
    println!("{}", status("VmHWM").saturating_sub(state));
}

fn summary() {
    let profile = profile();
    for (name, limit) in LIMITS {
        let encoded = encoded(&profile, limit);
        let bytes: usize = encoded.payloads.iter().map(|payload| payload.bytes.len()).sum();
        let arguments = ["--peak".to_owned(), limit.to_string()];
        let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
        let peak: f64 = String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap() * 1024.0;
        println!(
            "up to {name}: {} requests, {:.2} MB, peak + {:.2} MB, × {:.2}",
            encoded.payloads.len(),
            bytes as f64 / 1e6,
            peak / 1e6,
            peak / bytes as f64
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [peak, limit] = &arguments[..]
        && peak == "--peak"
    {
        return print_peak(limit.parse().unwrap());
    }
    let mut criterion = Criterion::default().configure_from_args();
    let profile = profile();
    let mut group = criterion.benchmark_group("otlp_profiles");
    group.throughput(Throughput::Elements(SAMPLES.into())).sample_size(20);
    for (name, limit) in LIMITS {
        group.bench_function(name, |bencher| bencher.iter(|| encoded(&profile, limit)));
    }
    group.finish();
    criterion.final_summary();
    // `cargo test --benches` only checks that everything runs.
    if arguments.iter().any(|argument| argument == "--bench") {
        summary();
    }
}
