//! Memory accesses by cache line, as `perf c2c report` shows them: which lines several cores share, and which code accesses which offset.
//!
//! A load that hits a line which another core has modified (HITM) waits for that core. If the accesses are at different offsets, the line
//! is shared by accident.

mod counts;
mod layout;
mod lines;
mod text;

use std::sync::Arc;

use self::counts::{Counts, Outcome};
use self::lines::Line;
use crate::named_enum::named_enum;
use crate::recording::perf_data::Accesses;

named_enum! {
    /// The loads by which cache lines are sorted and selected.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Ranking {
        /// Hits in lines that any other core had modified.
        #[default]
        Total = "tot",
        /// Hits in lines that a core of the same node had modified.
        Local = "lcl",
        /// Hits in lines that a core of another node had modified.
        Remote = "rmt",
    }
}

named_enum! {
    /// What distinguishes accesses to the same offset of a cache line.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Coalesce {
        /// The process.
        Pid = "pid",
        /// The thread.
        Tid = "tid",
        /// The address of the instruction.
        Code = "iaddr",
        /// The file of the code.
        Object = "dso",
    }
}

/// What the tables of cache lines show.
#[derive(Debug, Clone)]
pub struct LineOptions {
    /// The order of cache lines.
    pub ranking: Ranking,
    /// What distinguishes accesses to the same offset.
    pub coalesce: Vec<Coalesce>,
    /// Whether cache lines with few or without such hits are shown too.
    pub all: bool,
    /// The size of a cache line in bytes: a power of two.
    pub line: u64,
    /// Whether the names of functions have any length.
    pub full_symbols: bool,
    /// Whether the lines of the source are shown.
    pub sources: bool,
    /// Whether only the statistics are shown.
    pub statistics: bool,
}

impl Default for LineOptions {
    /// The defaults of perf, with cache lines of 64 bytes.
    fn default() -> Self {
        Self {
            ranking: Ranking::Total,
            coalesce: vec![Coalesce::Code],
            all: false,
            line: 64,
            full_symbols: false,
            sources: true,
            statistics: false,
        }
    }
}

impl Ranking {
    /// Returns the number of loads by which a line is sorted.
    fn of(self, counts: &Counts) -> u64 {
        match self {
            Self::Total => counts.hitm(),
            Self::Local => counts.get(Outcome::LocalHitm),
            Self::Remote => counts.get(Outcome::RemoteHitm),
        }
    }
}

/// The tables of the cache lines of a recording, which `Display` writes.
#[derive(Debug)]
pub struct CacheLines {
    options: LineOptions,
    /// Names of the events with accesses.
    events: Vec<Arc<str>>,
    /// All accesses.
    counts: Counts,
    /// Accesses to lines that several cores share.
    shared: Counts,
    /// Number of these lines.
    shared_lines: u64,
    /// The lines to show, in the order of the ranking.
    lines: Vec<Line>,
}

impl CacheLines {
    /// Smallest share of the hits of a line, as in perf.
    const SMALLEST: f64 = 0.0005;

    /// Sums the accesses of a recording by cache line.
    pub fn new(accesses: &Accesses, options: &LineOptions) -> Self {
        let events = accesses.about.events.iter().zip(&accesses.events);
        let events =
            events.filter(|(_, of)| !of.accesses.is_empty()).map(|(event, _)| Arc::clone(&event.name));
        let (events, mut lines) = (events.collect(), lines::lines(accesses, options));
        let (mut counts, mut shared, mut shared_lines) = (Counts::default(), Counts::default(), 0);
        for line in &lines {
            counts.add(&line.counts);
            if line.counts.hitm() + line.counts.peer() > 0 {
                shared.add(&line.counts);
                shared_lines += 1;
            }
        }
        let total = options.ranking.of(&shared);
        if !options.all {
            let share = |line: &Line| options.ranking.of(&line.counts) as f64 / total as f64;
            lines.retain(|line| total > 0 && share(line) >= Self::SMALLEST);
        }
        Self { options: options.clone(), events, counts, shared, shared_lines, lines }
    }
}
