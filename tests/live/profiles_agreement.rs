//! Samples of the exporter compared with those of `perf record`, of the same process over the same time.
//!
//! Each samples by its own clock, so no two samples are equal, and only shares are compared. The process waits at both ends, so a longer
//! interval contains no additional work.

use std::collections::{BTreeMap, BTreeSet};

use crate::perf::PerfRecord;
use crate::profiles::{FRAME_POINTERS, lacks_profiles, profiling};
use crate::support::cgroup::TestCgroup;
use crate::support::folded::Folded;
use crate::support::load::switches_from;
use crate::support::program::Program;
use crate::support::{Feature, lacks};

/// Not a multiple of the kernel's timer frequencies.
const FREQUENCY: u64 = 997;

/// Sampled CPU time in milliseconds: enough for four thousand samples.
const MILLISECONDS: u64 = 4000;

/// Number of parts into which the program's time is divided; function `part_1` takes one part, and so on.
const PARTS: f64 = 325.0;

/// Samples of one process by the exporter and by perf.
struct Seen {
    ours: Folded,
    perfs: Folded,
    /// Records of all processes lost because a ring was full.
    lost: f64,
    /// Number of times the process was switched off its CPU.
    switches: f64,
}

impl Seen {
    /// Runs a program while both sample it.
    fn once() -> Self {
        let program = Program::compile_hot("parts", &FRAME_POINTERS);
        let service = profiling(&format!(
            "cpu: {{event: cpu-clock, frequency: {FREQUENCY}, unwind: fp, window: 600s}}"
        ));
        let (cgroup, mut running) = (TestCgroup::new("sampled"), program.start());
        cgroup.take(running.pid());
        let mut perf = PerfRecord::open("cpu-clock", FREQUENCY, &cgroup);
        perf.enable();
        let before = switches_from(running.pid());
        running.does(&format!("parts {MILLISECONDS}"));
        let switches = switches_from(running.pid()) - before;
        let (perfs, lost) = perf.samples_of(running.pid());
        let ours = Folded::of(&service, &format!("type=cpu&annotate=false&pid={}", running.pid()));
        let metrics = service.metrics();
        for (reason, count) in
            metrics.by("perf_frames_unresolved_total", "reason").filter(|found| found.1 > 0.0)
        {
            eprintln!("{count} frames are not symbolized: {reason}");
        }
        let lost_by_us = metrics.sum("perf_lost_records_total", &[("ring", "samples")]);
        Self { ours, perfs, lost: lost as f64 + lost_by_us, switches: switches as f64 }
    }

    /// Returns the number of the exporter's samples. Each represents one period.
    fn samples(&self) -> f64 {
        self.ours.total() / (1_000_000_000 / FREQUENCY) as f64
    }
}

/// Returns the square of four standard errors of a share of this many samples.
fn chance(share: f64, samples: f64) -> f64 {
    // Sums of shares may be slightly above one.
    let share = share.min(1.0);
    16.0 * share * (1.0 - share) / samples
}

/// Returns the functions with the largest shares, without those below one percent.
fn largest<'a>(shares: &BTreeMap<&'a str, f64>) -> BTreeSet<&'a str> {
    let mut shares: Vec<(&str, f64)> = shares.iter().map(|(&name, &share)| (name, share)).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares.into_iter().take(20).filter(|(_, share)| *share > 0.01).map(|(name, _)| name).collect()
}

/// Returns Spearman's rank correlation.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let rank = |pair: &(f64, f64)| {
            let among = |than: fn(&f64, &f64) -> bool| {
                pairs.iter().filter(|other| than(&of(other), &of(pair))).count() as f64
            };
            // Equal values share the mean of their ranks.
            among(|other, own| other < own) + (among(|other, own| other == own) - 1.0) / 2.0
        };
        pairs.iter().map(rank).collect()
    };
    let (ones, others) = (ranks(|pair| pair.0), ranks(|pair| pair.1));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    product(&ones, &others) / (product(&ones, &ones) * product(&others, &others)).sqrt()
}

/// Asserts that the largest functions of both have the same shares and the same order.
fn assert_agree(ours: &BTreeMap<&str, f64>, perfs: &BTreeMap<&str, f64>, samples: f64) {
    let of = |shares: &BTreeMap<&str, f64>, name: &str| shares.get(name).copied().unwrap_or(0.0);
    let names: BTreeSet<&str> = largest(ours).union(&largest(perfs)).copied().collect();
    let rows: Vec<(&str, f64, f64)> =
        names.into_iter().map(|name| (name, of(ours, name), of(perfs, name))).collect();
    let told = rows.iter().map(|(name, ours, perfs)| format!("{name}: we {ours:.4}, perf {perfs:.4}\n"));
    let told = told.collect::<String>();
    for (name, ours, perfs) in &rows {
        let off = 0.01 + (2.0 * chance(perfs.max(*ours), samples)).sqrt();
        assert!((ours - perfs).abs() < off, "{name} is off by more than {off:.4}:\n{told}");
    }
    let correlation = rank_correlation(&rows.iter().map(|row| (row.1, row.2)).collect::<Vec<_>>());
    assert!(correlation > 0.85, "the order of functions differs: {correlation:.3}\n{told}");
}

#[test]
fn functions_have_the_shares_that_perf_gives_them() {
    if lacks_profiles() || lacks(Feature::Perf) || lacks(Feature::Cgroup) {
        return;
    }
    let seen = Seen::once();
    let (samples, perfs) = (seen.samples(), seen.perfs.total());
    // For each stay on a CPU, a clock may tick once more or once less than the time contains periods.
    let by_chance = 4.0 * (seen.switches / 2.0).sqrt() + 2.0;
    assert!(
        (samples - perfs).abs() <= 0.02 * perfs + by_chance + seen.lost,
        "{samples} samples, {perfs} of perf, {} lost, {} switches",
        seen.lost,
        seen.switches
    );
    assert!(samples > 1000.0, "too few to compare: {samples}");

    let innermost = seen.ours.innermost();
    assert_agree(&innermost, &seen.perfs.innermost(), samples);
    assert_agree(&seen.ours.anywhere(), &seen.perfs.anywhere(), samples);
    for part in 1..=25 {
        let (name, expected) = (format!("part_{part}"), f64::from(part) / PARTS);
        let share = innermost.get(&*name).copied().unwrap_or(0.0);
        let off = 0.01 + chance(expected, samples).sqrt();
        assert!((share - expected).abs() < off, "{name}: {share} of {expected}: {innermost:#?}");
    }
}

/// The kernel corrupts the mapping records of other readers once a reader requests build ids.
#[test]
fn perf_that_records_already_is_not_disturbed() {
    if lacks_profiles() || lacks(Feature::Perf) || lacks(Feature::Cgroup) {
        return;
    }
    let program = Program::compile_hot("undisturbed", &FRAME_POINTERS);
    let cgroup = TestCgroup::new("undisturbed");
    let mut perf = PerfRecord::open("cpu-clock", FREQUENCY, &cgroup);
    perf.enable();
    let _service = profiling("cpu: {event: cpu-clock}");
    let mut running = program.start();
    cgroup.take(running.pid());
    running.does("spins 500");
    let (seen, _) = perf.samples_of(running.pid());
    assert!(seen.share(&["three_quarters", "burns"]) > 0.6, "{seen:#?}");
}

#[test]
fn the_same_order_correlates_and_another_does_not() {
    let of = |others: [f64; 4]| {
        rank_correlation(&[1.0, 2.0, 3.0, 4.0].into_iter().zip(others).collect::<Vec<_>>())
    };
    assert_eq!(of([10.0, 20.0, 30.0, 40.0]), 1.0);
    assert_eq!(of([4.0, 3.0, 2.0, 1.0]), -1.0);
    assert!((of([2.0, 1.0, 4.0, 3.0]) - 0.6).abs() < 1e-9);
}
