//! The exporter on a machine in trouble: compilers, a browser, node, java, python, a fork storm, cgroups that come and go,
//! and a FUSE file system that hangs for a part of the run. Prints whether every scrape was answered, how fast, how much
//! memory, CPU time and descriptors the exporter took, and what its profiles lack.
//!
//! `cargo bench --bench trouble` takes about eleven minutes. Options, behind `--`:
//!
//!   --program PATH      measures another binary, such as one that was built before a change
//!   --config FILE       instead of the built-in configuration; `benches/trouble/full.yaml` has system calls and three profiles
//!   --minutes N         length of the run (10). The file system hangs from 30 % to 70 % of it
//!   --attacks           adds sockets that hold connections, clients that ask for profiles, a large perf map that changes all
//!                       the time, and a process that renames itself
//!   --attack-from IP    the peer address of these sockets (127.0.0.2)
//!   --afterwards N      goes on for N minutes without load and prints what memory is left (0)
//!   --storm             another load: threads that switch as fast as they can, for how many records are lost (`storm.rs`)
//!   --hog               with it, a real-time process that does not let go of a CPU
//!
//! Needs root. A helper process ends the load and removes mounts, cgroups and files also when the bench is interrupted.
//! The goals are no tests: a figure that misses its goal is printed like any other.

#![expect(clippy::print_stdout, reason = "the figures are for the person who asked for them")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure should stop")]
#![expect(clippy::disallowed_methods, reason = "a benchmark's time is the real one")]

#[expect(
    dead_code,
    unused_imports,
    clippy::print_stderr,
    clippy::explicit_write,
    reason = "it is the tests', which use all of it, may print and have their output caught"
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

/// How long the exporter is alone before the load begins: its memory then is what it is compared with afterwards.
const ALONE: Duration = Duration::from_secs(15);

/// See the documentation of this file.
#[derive(Debug, Parser)]
struct Options {
    #[arg(long, default_value = env!("CARGO_BIN_EXE_perf-exporter"))]
    program: PathBuf,
    #[arg(long)]
    config: Option<PathBuf>,
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
    /// Cargo says so to each benchmark.
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

fn run(options: &Options) {
    // Dropped last: it removes what the others leave.
    let janitor = Janitor::start();
    let hanging = Hanging::prepare(&janitor);
    let programs = options.attacks.then(|| Programs::compile(&janitor));
    let mut load = Load::prepare(&janitor);
    let mut exporter = Exporter::start(&options.program, options.config.as_deref(), &janitor);
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
