//! Event names that are the same on every host: generic hardware events, cache events and software events, in perf's spellings. Only the
//! kernel determines whether a host can count them.
//!
//! Numbers: `enum perf_hw_id`, `perf_hw_cache_id`, `perf_sw_ids` of `include/uapi/linux/perf_event.h`. Spellings:
//! `tools/perf/util/parse-events.l`. They are case sensitive, as in perf.

use std::sync::Arc;

use super::{Kind, Scale, Selector};
use crate::host::KernelVersion;

/// `PERF_TYPE_HARDWARE`.
pub(super) const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub(super) const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub(super) const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_TYPE_HW_CACHE`.
pub(super) const TYPE_HW_CACHE: u32 = 3;
/// `PERF_TYPE_RAW`.
pub(super) const TYPE_RAW: u32 = 4;
/// `PERF_TYPE_BREAKPOINT`.
pub(super) const TYPE_BREAKPOINT: u32 = 5;

/// An event with a generic name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Generic {
    /// The spelling of `perf list`, even if an alias was looked up.
    pub name: Arc<str>,
    /// Family: hardware, cache or software.
    pub kind: Kind,
    /// Encoding, without a PMU type in the upper half.
    pub selector: Selector,
    /// The first kernel version with this event; 0.0 if every supported kernel has it.
    pub since: KernelVersion,
    /// Where the event occurs, as far as that limits the modifiers.
    pub place: Place,
    /// Description in one sentence.
    pub help: Arc<str>,
}

/// Context in which an event occurs. It determines the allowed modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In user space and in the kernel. The kernel can count them separately.
    Anywhere,
    /// Only in the kernel. With user space only, the count stays zero.
    Kernel,
    /// Clock time, which the kernel does not split into user and kernel time.
    Clock,
}

impl Generic {
    /// Returns the unit of the count: nanoseconds for the clocks.
    pub(super) fn scale(&self) -> Option<Scale> {
        (self.place == Place::Clock).then(|| Scale { factor: 1e-9, unit: "seconds".into() })
    }
}

/// Result of looking up a word among the generic names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// An event.
    Event(Generic),
    /// A cache with an operation that it never performs (`iTLB-stores`), and the reason.
    Impossible(String),
    /// A pseudo-event of perf that no kernel counts, and the reason.
    Tool(&'static str),
}

/// One row of the tables below: name in `perf list`, aliases, config, description.
type Row = (&'static str, &'static [&'static str], u64, &'static str);

const HARDWARE: &[Row] = &[
    ("cycles", &["cpu-cycles"], 0, "Cycles of the core while it was not halted, at its actual frequency"),
    ("instructions", &[], 1, "Instructions retired"),
    ("cache-references", &[], 2, "Accesses to the last level of cache that the core's PMU sees"),
    ("cache-misses", &[], 3, "Accesses that missed the last level of cache"),
    ("branches", &["branch-instructions"], 4, "Branch instructions retired"),
    ("branch-misses", &[], 5, "Mispredicted branches"),
    ("bus-cycles", &[], 6, "Cycles of the bus, at a constant rate on most machines"),
    (
        "stalled-cycles-frontend",
        &["idle-cycles-frontend"],
        7,
        "Cycles in which no instruction could be fetched or decoded",
    ),
    (
        "stalled-cycles-backend",
        &["idle-cycles-backend"],
        8,
        "Cycles in which no instruction could be executed or retired",
    ),
    ("ref-cycles", &[], 9, "Cycles while not halted, at a constant reference frequency"),
];

const SOFTWARE: &[Row] = &[
    ("cpu-clock", &[], 0, "CPU clock time"),
    ("task-clock", &[], 1, "Time that tasks spent running"),
    ("page-faults", &["faults"], 2, "Page faults of both kinds"),
    ("context-switches", &["cs"], 3, "Switches from one task to another"),
    ("cpu-migrations", &["migrations"], 4, "Migrations of a task to another CPU"),
    ("minor-faults", &[], 5, "Page faults served from memory"),
    ("major-faults", &[], 6, "Page faults that waited for a device"),
    ("alignment-faults", &[], 7, "Unaligned accesses that the kernel repaired"),
    ("emulation-faults", &[], 8, "Instructions that the kernel emulated"),
    ("dummy", &[], 9, "No count; carries side-band records only"),
    ("bpf-output", &[], 10, "Records written by BPF programs"),
    ("cgroup-switches", &[], 11, "Switches to a task of another cgroup"),
];

/// A cache: its name, aliases, description, and whether it is read, written and prefetched into (perf's `hw_cache_stat`). Its index is its
/// number in `perf_hw_cache_id`.
type Cache = (&'static str, &'static [&'static str], &'static str, [bool; 3]);

const CACHES: [Cache; 7] = [
    ("L1-dcache", &["l1-d", "l1d", "L1-data"], "the first-level data cache", [true, true, true]),
    (
        "L1-icache",
        &["l1-i", "l1i", "L1-instruction"],
        "the first-level instruction cache",
        [true, false, true],
    ),
    ("LLC", &["L2"], "the last-level cache", [true, true, true]),
    ("dTLB", &["d-tlb", "Data-TLB"], "the data TLB", [true, true, true]),
    ("iTLB", &["i-tlb", "Instruction-TLB"], "the instruction TLB", [true, false, false]),
    ("branch", &["bpu", "btb", "bpc"], "the branch predictor", [true, false, false]),
    ("node", &[], "the memory of the NUMA node", [true, true, true]),
];

/// An operation: its names (plural, singular, aliases), the start of its description, and its participle for error messages. Its index is
/// its number in `perf_hw_cache_op_id`.
type Operation = (&'static [&'static str], &'static str, &'static str);

const OPERATIONS: [Operation; 3] = [
    (&["loads", "load", "read"], "Loads from", "read"),
    (&["stores", "store", "write"], "Stores to", "written"),
    (
        &["prefetches", "prefetch", "speculative-read", "speculative-load"],
        "Prefetches into",
        "prefetched into",
    ),
];

/// The names of `perf_hw_cache_op_result_id`.
const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// Names that perf implements without the kernel.
const TOOLS: &[&str] = &["duration_time", "user_time", "system_time"];

/// Looks up a word among the generic names.
pub(super) fn find(word: &str) -> Option<Found> {
    let in_table = |table: &[Row], kind| {
        let row = table.iter().find(|(name, aliases, ..)| *name == word || aliases.contains(&word))?;
        Some(Found::Event(from_row(row, kind)))
    };
    if TOOLS.contains(&word) {
        let reason =
            "perf measures this time itself, without a kernel event; task-clock is the closest kernel event";
        return Some(Found::Tool(reason));
    }
    in_table(HARDWARE, Kind::Hardware)
        .or_else(|| in_table(SOFTWARE, Kind::Software))
        .or_else(|| find_cache(word))
}

/// Returns every generic event once, under its name in `perf list`, with its aliases.
pub(super) fn all() -> impl Iterator<Item = (Generic, &'static [&'static str])> {
    let rows = |table: &'static [Row], kind| table.iter().map(move |row| (from_row(row, kind), row.1));
    let caches = (0..CACHES.len()).flat_map(|cache| {
        let possible = (0..OPERATIONS.len()).filter(move |&operation| CACHES[cache].3[operation]);
        possible.flat_map(move |operation| {
            [false, true].map(|miss| (cache_event(cache, operation, miss), &[][..]))
        })
    });
    rows(HARDWARE, Kind::Hardware).chain(rows(SOFTWARE, Kind::Software)).chain(caches)
}

fn from_row(&(name, _, config, help): &Row, kind: Kind) -> Generic {
    let place = match name {
        "cpu-clock" | "task-clock" => Place::Clock,
        "context-switches" | "cpu-migrations" | "cgroup-switches" => Place::Kernel,
        _ => Place::Anywhere,
    };
    let since = if name == "cgroup-switches" { KernelVersion(5, 13) } else { KernelVersion(0, 0) };
    let number = if kind == Kind::Hardware { TYPE_HARDWARE } else { TYPE_SOFTWARE };
    let selector = Selector { kind: number, config: [config, 0, 0, 0] };
    Generic { name: name.into(), kind, selector, since, place, help: help.into() }
}

/// Parses `cache[-word[-word]]`: an operation and a result in either order. The defaults are loads and references. As in perf, a word that
/// contradicts an earlier word has no effect.
fn find_cache(word: &str) -> Option<Found> {
    let names = CACHES.iter().map(|(name, aliases, ..)| aliases.iter().chain([name]));
    let (cache, mut rest) = first(word, names)?;
    let (mut operation, mut miss) = (None, None);
    for _ in 0..2 {
        let Some(tail) = rest.strip_prefix('-') else { break };
        rest = if let Some((found, rest)) = first(tail, OPERATIONS.iter().map(|(names, ..)| names.iter())) {
            operation.get_or_insert(found);
            rest
        } else {
            let (result, rest) = first(tail, RESULTS.iter().map(|names| names.iter()))?;
            miss.get_or_insert(result == 1);
            rest
        };
    }
    if !rest.is_empty() {
        return None;
    }
    // Both are valid indices of their tables.
    let (operation, (.., what, possible)) = (operation.unwrap_or(0), CACHES[cache]);
    Some(if possible[operation] {
        Found::Event(cache_event(cache, operation, miss == Some(true)))
    } else {
        Found::Impossible(format!("{what} is never {}", OPERATIONS[operation].2))
    })
}

/// Returns the table index of the name that the text starts with, and the rest of the text. The name must end at a `-` or at the end.
fn first<'t, N: Iterator<Item = &'t &'static str>>(
    text: &str,
    table: impl Iterator<Item = N>,
) -> Option<(usize, &str)> {
    let behind =
        |name: &&str| text.strip_prefix(*name).filter(|rest| rest.is_empty() || rest.starts_with('-'));
    table.enumerate().find_map(|(place, mut names)| Some((place, names.find_map(behind)?)))
}

/// Returns the event for the indices into both tables.
fn cache_event(cache: usize, operation: usize, miss: bool) -> Generic {
    let config = cache as u64 | (operation as u64) << 8 | u64::from(miss) << 16;
    let ((cache, _, what, _), (names, noun, _)) = (CACHES[cache], OPERATIONS[operation]);
    let (name, help) = if miss {
        (format!("{cache}-{}-misses", names[1]), format!("{noun} {what} that missed it"))
    } else {
        (format!("{cache}-{}", names[0]), format!("{noun} {what}"))
    };
    Generic {
        name: name.into(),
        kind: Kind::Cache,
        selector: Selector { kind: TYPE_HW_CACHE, config: [config, 0, 0, 0] },
        since: KernelVersion(0, 0),
        place: Place::Anywhere,
        help: help.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(word: &str) -> Option<(u32, u64)> {
        match find(word) {
            Some(Found::Event(event)) => Some((event.selector.kind, event.selector.config[0])),
            _ => None,
        }
    }

    /// Encodings that `perf stat -vv -e NAME` of perf 6.1 writes into `perf_event_attr`.
    #[test]
    fn names_have_the_encodings_that_perf_gives_them() {
        for (word, kind, config) in [
            ("cycles", 0, 0),
            ("cpu-cycles", 0, 0),
            ("branches", 0, 4),
            ("idle-cycles-backend", 0, 8),
            ("cs", 1, 3),
            ("cgroup-switches", 1, 0xb),
            ("L1-dcache", 3, 0),
            ("L1-dcache-misses", 3, 0x10000),
            ("L1-dcache-load-misses", 3, 0x10000),
            ("l1d-loads", 3, 0),
            ("L1-icache-prefetch-misses", 3, 0x10201),
            ("LLC-speculative-read-miss", 3, 0x10202),
            ("LLC-miss-loads", 3, 0x10002),
            ("LLC-loads-stores", 3, 2),
            ("L2-stores", 3, 0x102),
            ("d-tlb-write-miss", 3, 0x10103),
            ("iTLB-load-misses", 3, 0x10004),
            ("branch-load-misses", 3, 0x10005),
            ("bpc-read", 3, 5),
            ("node-prefetch-misses", 3, 0x10206),
        ] {
            assert_eq!(encoding(word), Some((kind, config)), "{word}");
        }
    }

    #[test]
    fn what_a_cache_never_does_is_impossible_and_not_unknown() {
        let impossible = |reason: &str| Some(Found::Impossible(reason.to_owned()));
        assert_eq!(find("iTLB-stores"), impossible("the instruction TLB is never written"));
        assert_eq!(
            find("branch-prefetch-misses"),
            impossible("the branch predictor is never prefetched into")
        );
        assert_eq!(
            find("L1-icache-store-misses"),
            impossible("the first-level instruction cache is never written")
        );
    }

    #[test]
    fn other_words_are_unknown_whatever_they_begin_with() {
        for word in
            ["", "Cycles", "l1-dcache-loads", "L1-d-loads", "branches-loads", "LLC-", "LLC-loads-", "nodes"]
        {
            assert_eq!(find(word), None, "{word}");
        }
        assert_eq!(find("LLC-loads-misses-refs"), None);
    }

    #[test]
    fn every_listed_name_and_alias_finds_its_own_event() {
        for (event, aliases) in all() {
            for name in aliases.iter().copied().chain([&*event.name]) {
                assert_eq!(find(name), Some(Found::Event(event.clone())), "{name}");
            }
        }
        assert_eq!(all().count(), 10 + 12 + 2 * (3 + 2 + 3 + 3 + 1 + 1 + 3));
    }
}
