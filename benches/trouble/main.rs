//! The exporter on a machine in trouble: compilers, a browser, node, java, python, a fork storm, short-lived cgroups, and a FUSE file
//! system that hangs for a part of the run. Prints the answered scrapes and their latency, the exporter's memory, CPU time and descriptors,
//! and the gaps of its profiles.
//!
//! `cargo bench --bench trouble` takes about eleven minutes. Options, after `--`:
//!
//!   --program PATH      measures another binary, for example one that was built before a change
//!   --config FILE       replaces the built-in configuration; `benches/trouble/full.yaml` has system calls and three profiles
//!   --incidents         records incidents, in a temporary directory
//!   --minutes N         length of the run (10). The file system hangs from 30 % to 70 % of it
//!   --attacks           adds sockets that hold connections, clients that request profiles, a large perf map that is rewritten
//!                       all the time, and a process that renames itself
//!   --attack-from IP    peer address of these sockets (127.0.0.2)
//!   --afterwards N      continues for N minutes without load and prints the remaining memory (0)
//!   --storm             another load: threads that switch as fast as they can; prints the lost records (`storm.rs`)
//!   --hog               with `--storm`, adds a real-time process that never leaves its CPU
//!
//! Requires root. A helper process ends the load and removes mounts, cgroups and files, also when the benchmark is interrupted. Goals are
//! not checked as tests: a missed goal is only printed.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

#[expect(
    dead_code,
    unused_imports,
    clippy::print_stderr,
    clippy::explicit_write,
    reason = "it belongs to the tests, which use all of it, may print and have their output captured"
)]
#[path = "../../tests/support/mod.rs"]
mod support;

mod attacks;
mod exporter;
mod janitor;
mod load;
mod report;
mod storm;
mod watch;

use std::fmt::Write;
use std::fs::read_to_string;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Parser;

use attacks::{Attacks, Programs};
use exporter::Exporter;
use janitor::Janitor;
use load::{Hanging, Load};
use report::Report;
use support::fuse::Stop;
use support::{Feature, lacks};
use watch::Watch;

/// Time without load before the start. The memory at its end is the baseline for the comparison afterwards.
const ALONE: Duration = Duration::from_secs(15);

/// Options, described at the top of this file.
#[derive(Debug, Parser)]
struct Options {
    #[arg(long, default_value = env!("CARGO_BIN_EXE_perf-exporter"))]
    program: PathBuf,
    #[arg(long)]
    config: Option<PathBuf>,
    #[arg(long)]
    incidents: bool,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    #[arg(long)]
    attacks: bool,
    #[arg(long, default_value = "127.0.0.2")]
    attack_from: IpAddr,
    #[arg(long, default_value_t = 0.0)]
    afterwards: f64,
    #[arg(long)]
    storm: bool,
    #[arg(long, requires = "storm")]
    hog: bool,
    /// Passed by cargo to each benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    /// Runs as the helper that cleans up.
    #[arg(long, hide = true)]
    janitor: bool,
}

fn minutes(number: f64) -> Duration {
    Duration::from_secs_f64(number * 60.0)
}

fn main() {
    if support::worker::is_child() {
        return;
    }
    let options = Options::parse();
    if options.janitor {
        return janitor::run();
    }
    if [Feature::Compiler, Feature::Software, Feature::Cgroup, Feature::Fuse].into_iter().any(lacks) {
        return;
    }
    if options.storm { storm::run(&options) } else { run(&options) }
}

/// Returns the text of the configuration; empty for the built-in one.
fn configuration(options: &Options, janitor: &Janitor) -> String {
    let mut text = options.config.as_ref().map_or_else(String::new, |path| read_to_string(path).unwrap());
    if options.incidents {
        let directory = janitor.scratch().join("incidents");
        writeln!(text, "incidents: {{directory: {}}}", directory.display()).unwrap();
    }
    text
}

fn run(options: &Options) {
    // Dropped last, because it removes the remains of the others.
    let janitor = Janitor::start();
    let hanging = Hanging::prepare(&janitor);
    let programs = options.attacks.then(|| Programs::compile(&janitor));
    let mut load = Load::prepare(&janitor);
    let mut exporter = Exporter::start(&options.program, &configuration(options, &janitor), &janitor);
    let watch = Watch::start(exporter.address.clone(), exporter.pid());
    sleep(ALONE);
    watch.begins("load");
    load.start(&janitor);
    let attacks = programs.map(|programs| {
        Attacks::start(&programs, &janitor, &exporter.address, options.attack_from, &mut load)
    });
    let start = Instant::now();
    let length = minutes(options.minutes);
    let until = |part: f64| sleep((start + length.mul_f64(part)).saturating_duration_since(Instant::now()));
    hanging.spin();
    until(0.3);
    watch.begins("hang");
    hanging.stop(Stop::Everything, length);
    until(0.7);
    hanging.resume();
    watch.begins("recovery");
    until(1.0);
    let attacked = attacks.map(Attacks::end);
    drop(load);
    drop(hanging);
    watch.begins("afterwards");
    sleep(minutes(options.afterwards));
    let seen = watch.end();
    let end = exporter.terminate();
    Report { options, seen: &seen, attacked: attacked.as_ref(), end, log: &exporter.log() }.print();
}
