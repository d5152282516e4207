//! What a count means beside others: the right-hand column of `perf stat`.
//!
//! Formulas and words are those of `tools/perf/util/stat-shadow.c` (perf 6.1).

use std::time::Duration;

/// A derived value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metric {
    /// The value.
    pub(super) value: f64,
    /// Its unit in perf's words: `insn per cycle`, `of all branches`, `GHz`, `K/sec`.
    pub(super) unit: &'static str,
    /// Whether the value is a percentage, which is printed with two digits and a percent sign.
    pub(super) percentage: bool,
}

/// Misses, and the accesses that they are a part of.
const RATIOS: [(&str, &str, &str); 10] = [
    ("branch-misses", "branches", "of all branches"),
    ("branch-misses", "branch-instructions", "of all branches"),
    ("cache-misses", "cache-references", "of all cache refs"),
    ("L1-dcache-load-misses", "L1-dcache-loads", "of all L1-dcache accesses"),
    ("L1-icache-load-misses", "L1-icache-loads", "of all L1-icache accesses"),
    ("LLC-load-misses", "LLC-loads", "of all LL-cache accesses"),
    ("dTLB-load-misses", "dTLB-loads", "of all dTLB cache accesses"),
    ("iTLB-load-misses", "iTLB-loads", "of all iTLB cache accesses"),
    ("stalled-cycles-frontend", "cycles", "frontend cycles idle"),
    ("stalled-cycles-backend", "cycles", "backend cycles idle"),
];

/// What `count` of `event` (without modifiers) means. `other` gives the counts of other events at the same place.
pub(super) fn derive(
    event: &str,
    count: u64,
    other: impl Fn(&str) -> Option<u64>,
    elapsed: Duration,
) -> Option<Metric> {
    let plain = |value, unit| Some(Metric { value, unit, percentage: false });
    let cycles = || other("cycles").or_else(|| other("cpu-cycles"));
    let clock = other("task-clock").or_else(|| other("cpu-clock"));
    match event {
        "task-clock" | "cpu-clock" => {
            let utilized = count as f64 / elapsed.as_nanos().max(1) as f64;
            return plain(utilized, "CPUs utilized");
        }
        "instructions" => {
            return cycles()
                .filter(|&cycles| cycles > 0)
                .and_then(|cycles| plain(count as f64 / cycles as f64, "insn per cycle"));
        }
        "cycles" | "cpu-cycles" => {
            return clock
                .filter(|&clock| clock > 0)
                .and_then(|clock| plain(count as f64 / clock as f64, "GHz"));
        }
        _ => {}
    }
    let of = |&(misses, accesses, words): &(&str, &str, &'static str)| {
        let all = if accesses == "cycles" { cycles() } else { other(accesses) };
        let all = all.filter(|&all| misses == event && all > 0)?;
        Some(Metric { value: count as f64 / all as f64 * 100.0, unit: words, percentage: true })
    };
    RATIOS.iter().find_map(of).or_else(|| {
        let seconds = clock.filter(|&clock| clock > 0)? as f64 / 1e9;
        let (value, unit) = per_second(count as f64 / seconds);
        plain(value, unit)
    })
}

/// A rate with the prefix that keeps it readable. perf begins with `K` at a thousand and goes up to `G`.
fn per_second(rate: f64) -> (f64, &'static str) {
    match rate {
        rate if rate >= 1e9 => (rate / 1e9, "G/sec"),
        rate if rate >= 1e6 => (rate / 1e6, "M/sec"),
        rate if rate >= 1e3 => (rate / 1e3, "K/sec"),
        rate => (rate, "/sec"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: [(&str, u64); 6] = [
        ("task-clock", 500_000_000),
        ("cycles", 1_000_000_000),
        ("branches", 200_000),
        ("cache-references", 0),
        ("L1-dcache-loads", 400),
        ("LLC-loads", 50),
    ];

    fn derived(event: &str, count: u64) -> Option<(f64, &'static str)> {
        let other = |name: &str| COUNTS.iter().find(|(known, _)| *known == name).map(|&(_, count)| count);
        derive(event, count, other, Duration::from_secs(1)).map(|metric| (metric.value, metric.unit))
    }

    #[test]
    fn each_event_has_perfs_formula() {
        for (event, count, expected) in [
            ("task-clock", 500_000_000, (0.5, "CPUs utilized")),
            ("cycles", 1_000_000_000, (2.0, "GHz")),
            ("instructions", 1_500_000_000, (1.5, "insn per cycle")),
            ("branch-misses", 1_000, (0.5, "of all branches")),
            ("L1-dcache-load-misses", 100, (25.0, "of all L1-dcache accesses")),
            ("LLC-load-misses", 25, (50.0, "of all LL-cache accesses")),
            ("stalled-cycles-backend", 100_000_000, (10.0, "backend cycles idle")),
            ("page-faults", 5_000, (10.0, "K/sec")),
            ("context-switches", 50, (100.0, "/sec")),
            ("branches", 200_000_000, (400.0, "M/sec")),
        ] {
            assert_eq!(derived(event, count), Some(expected), "{event}");
        }
    }

    #[test]
    fn without_what_it_is_a_part_of_a_count_is_a_rate_and_without_a_clock_nothing() {
        assert_eq!(derived("cache-misses", 5), Some((10.0, "/sec")));
        let nothing = derive("page-faults", 5, |_| None, Duration::from_secs(1));
        assert_eq!(nothing, None);
        assert_eq!(derive("instructions", 5, |_| Some(0), Duration::from_secs(1)), None);
    }
}
