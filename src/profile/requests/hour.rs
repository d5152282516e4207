//! An hour of samples of a large machine: the memory of the log, and the time of profiles of the past.
//!
//! `cargo test --release --locked --lib -- --ignored --nocapture an_hour_of_64_cpus` prints the figures of docs/memory.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::*;
use crate::budget::{Part, Share};
use crate::host::Roots;
use crate::profile::log::HISTORY;
use crate::profile::replayed::{EVENT, FixedRing, SAMPLE_FIELDS, empty_directory, sample};
use crate::profile::sample_profiles::sampler;

const CPUS: u64 = 64;
const FREQUENCY: u64 = 19;
const SECONDS: u64 = 3600;

const STACKS: usize = 20_000;
const FUNCTIONS: u64 = 8_000;
const PROCESSES: u64 = 300;
const THREADS: u64 = 8;

/// The address of the first function, and the length of each.
const KERNEL: u64 = 0xffff_ffff_8100_0000;
const LENGTH: u64 = 256;

/// Reproducible pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(most)) >> 64) as u64
    }
}

/// Stacks whose frequencies follow Zipf's law.
struct Load {
    stacks: Vec<Vec<u64>>,
    /// The cumulative frequencies.
    up_to: Vec<u64>,
    random: Random,
}

impl Load {
    fn new() -> Self {
        let mut random = Random(1);
        // Of few functions each outer one has few callees.
        let stack = |_| {
            let depth = 8 + random.below(36);
            let mut function = random.below(20);
            let mut frames: Vec<u64> = (0..depth)
                .map(|_| {
                    let address = KERNEL + function * LENGTH + random.below(4) * 16 + 1;
                    function = (function * 31 + random.below(3) * 977 + 1) % FUNCTIONS;
                    address
                })
                .collect();
            frames.reverse();
            frames
        };
        let stacks = (0..STACKS).map(stack).collect();
        let mut sum = 0;
        let up_to = (1..=STACKS as u64)
            .map(|rank| {
                sum += 1_000_000_000 / rank;
                sum
            })
            .collect();
        Self { stacks, up_to, random }
    }

    /// Returns a sample at a time in nanoseconds.
    fn sample(&mut self, time: u64) -> Vec<u8> {
        let most = self.up_to.last().copied().unwrap_or_default();
        let at = self.random.below(most);
        let stack = self.up_to.partition_point(|&up_to| up_to <= at);
        // A stack belongs to a program, and a program to a few processes.
        let process = (stack as u64 * 7 + self.random.below(2)) % PROCESSES + 100;
        let thread = process * 1000 + self.random.below(THREADS);
        sample(process as u32, thread as u32, time, &self.stacks[stack])
    }
}

/// Writes a list of kernel functions.
fn write_kallsyms(dir: &Path) {
    let mut list = String::new();
    for function in 0..FUNCTIONS {
        writeln!(list, "{:x} T function_with_a_usual_name_{function}", KERNEL + function * LENGTH).unwrap();
    }
    fs::create_dir_all(dir.join("proc")).unwrap();
    fs::write(dir.join("proc/kallsyms"), list).unwrap();
}

#[test]
#[ignore = "takes a minute; prints figures"]
fn an_hour_of_64_cpus() {
    let dir = tempfile::tempdir().unwrap();
    write_kallsyms(dir.path());
    let clock = Clock::manual(Timestamp(1_000_000));
    let shared = Shared::new(clock.clone(), &Roots::under(dir.path()), empty_directory());
    let shares =
        MemoryShares { stacks: Share::fixed(Part::Stacks, 128 << 20), ..MemoryShares::for_command() };
    shared.keep_within(&shares);
    shared.command(Command::Keep(HISTORY));
    shared.set_samplers(&[sampler("cpu")]);
    let source = || [(EVENT, SampleSource { sampler: 0, fields: SAMPLE_FIELDS, weight: Some(52_631_578) })];
    let (mut load, system) = (Load::new(), Clock::system());
    let timed = |action: &mut dyn FnMut()| {
        let before = system.monotonic();
        action();
        system.monotonic().since(before)
    };
    let period = 1_000_000_000 / FREQUENCY;
    let mut analyzed = Duration::ZERO;
    for second in 0..SECONDS {
        let begin = clock.kernel();
        // Each CPU has a timer of its own.
        let mut times: Vec<(u64, u64)> = (0..CPUS * FREQUENCY)
            .map(|at| (begin + at / CPUS * period + at % CPUS * 7_919 * 103 % period, at % CPUS))
            .collect();
        times.sort_unstable();
        let mut records = vec![Vec::new(); CPUS as usize];
        times.into_iter().for_each(|(time, cpu)| records[cpu as usize].push(load.sample(time)));
        for (cpu, records) in (0..).zip(records) {
            shared.add(cpu, source(), FixedRing(records));
        }
        clock.advance(Duration::from_secs(1));
        analyzed += timed(&mut || shared.drain(None));
        assert_eq!(shared.losses().ring_full, 0, "after {second} s");
    }
    let log = shared.log_states()["cpu"];
    assert_eq!(
        (log.samples, shared.losses().records),
        (CPUS * FREQUENCY * SECONDS, CPUS * FREQUENCY * SECONDS)
    );
    println!("{} samples, analyzed in {analyzed:?}", log.samples);
    println!("log: {} KiB, {:.2} bytes a sample", log.bytes >> 10, log.bytes as f64 / log.samples as f64);
    println!("stacks, tasks and log: {} KiB", shares.stacks.used() >> 10);

    let now = clock.now().0;
    let ago = |seconds: u64| Timestamp(now - seconds * 1000);
    let everything = Selection::default();
    let tail = TimeRange { from: ago(60), to: ago(0) };
    println!(
        "the last minute, first names: {:?}",
        timed(&mut || drop(shared.range("cpu", tail, &everything).unwrap()))
    );
    for (from, to) in [(1800, 1790), (1800, 1740), (3000, 2400), (3600, 0)] {
        let range = TimeRange { from: ago(from), to: ago(to) };
        let mut profile = Profile::default();
        // The first request looks up names.
        profile.clone_from(&shared.range("cpu", range, &everything).unwrap());
        let taken = timed(&mut || profile = shared.range("cpu", range, &everything).unwrap());
        let length = from - to;
        // More threads and stacks than a profile can have are attributed to the thread `other`.
        assert_eq!((profile.taken(), profile.duration.as_secs()), (CPUS * FREQUENCY * length, length));
        let (stacks, tasks) = (profile.stacks.len(), profile.tasks.len());
        println!(
            "profile of {length} s: {taken:?}; {} samples, {stacks} stacks, {tasks} tasks",
            profile.taken()
        );
    }
    let range = TimeRange { from: ago(3600), to: ago(0) };
    let map = timed(&mut || drop(shared.heat("cpu", range, 50, &everything).unwrap()));
    println!("heat map of an hour: {map:?}");
    // Everything that is used stays: the cost of each tidying.
    let mut analysis = shared.analysis.lock();
    println!("unused stacks and tasks are looked for in {:?}", timed(&mut || analysis.tidy()));
}
