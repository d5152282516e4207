//! Arguments of `perf-exporter c2c`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::mem::AccessRecordArgs;
use crate::cli::time_range::time_range;
use crate::report::{Coalesce, LineOptions, Ranking};

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct C2cArgs {
    #[command(subcommand)]
    pub(super) command: C2cCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum C2cCommand {
    /// Sample loads and stores into a file, with physical addresses.
    Record(C2cRecordArgs),
    /// Show the cache lines that several cores share, with the offsets and the code of the accesses.
    Report(C2cReportArgs),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Requires hardware that samples memory accesses, and privileges for physical addresses: see perf-exporter mem record --help. Sample the whole \
machine with -a, because the threads that share a line may belong to different processes.

Exit codes: the exit code of the command; 1 if nothing could be recorded, 2 for invalid arguments, 126 or 127 if the command cannot be run.")]
pub(super) struct C2cRecordArgs {
    #[command(flatten)]
    pub(super) record: AccessRecordArgs,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
A load that hits a line which another core has modified (HITM) waits for that core. Accesses of several threads to different offsets of a \
line share it by accident: move the variables to different lines.")]
pub(super) struct C2cReportArgs {
    /// Recording of perf-exporter or perf: perf c2c record, perf mem record, or perf record -d -W.
    #[arg(short = 'i', long = "input", value_name = "FILE", default_value = "perf.data")]
    pub(super) input: PathBuf,
    /// Print text, which is the only output.
    #[arg(long)]
    _stdio: bool,
    /// Print only the statistics.
    #[arg(long)]
    stats: bool,
    /// Order of cache lines, by the loads that hit a modified line: tot (all), lcl (of the same node), rmt (of another node).
    #[arg(short = 'd', long, value_name = "KIND", default_value = "tot", value_parser = ranking)]
    display: Ranking,
    /// What distinguishes accesses to an offset: pid, tid, iaddr, dso.
    #[arg(short = 'c', long, value_name = "FIELD,…", value_delimiter = ',', default_value = "iaddr", value_parser = coalesce)]
    coalesce: Vec<Coalesce>,
    /// Show all cache lines, also those that no cores share.
    #[arg(long)]
    show_all: bool,
    /// Do not shorten the names of functions.
    #[arg(long)]
    full_symbols: bool,
    /// Do not show the lines of the source, which takes time to look up.
    #[arg(long)]
    pub(super) no_source: bool,
    /// Only samples from START to STOP, in seconds as script prints them. Either can be omitted.
    #[arg(long, value_name = "START,STOP", value_parser = time_range)]
    pub(super) time: Option<RangeInclusive<u64>>,
}

impl C2cReportArgs {
    /// Returns the options of the tables for cache lines of this size in bytes.
    pub(super) fn options(&self, line: u64) -> LineOptions {
        LineOptions {
            ranking: self.display,
            coalesce: self.coalesce.clone(),
            all: self.show_all,
            line,
            full_symbols: self.full_symbols,
            sources: !self.no_source,
            statistics: self.stats,
        }
    }
}

fn ranking(word: &str) -> Result<Ranking, String> {
    match Ranking::ALL.into_iter().find(|ranking| ranking.as_str() == word) {
        Some(ranking) => Ok(ranking),
        None if word == "peer" => {
            Err("peer is for recordings of Arm SPE, which are not decoded; use tot, lcl or rmt".into())
        }
        None => Err("expected tot, lcl or rmt".into()),
    }
}

fn coalesce(word: &str) -> Result<Coalesce, String> {
    let found = Coalesce::ALL.into_iter().find(|coalesce| coalesce.as_str() == word);
    found.ok_or_else(|| "expected pid, tid, iaddr or dso".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    #[test]
    fn the_defaults_are_those_of_perf() {
        let options = typed::<C2cReportArgs>("").unwrap().options(64);
        assert_eq!((options.ranking, options.coalesce), (Ranking::Total, vec![Coalesce::Code]));
        assert!(options.sources && !options.all && !options.statistics && !options.full_symbols);
    }

    #[test]
    fn nonsense_is_answered_with_what_is_possible() {
        for (line, words) in [
            ("-d peer", "use tot, lcl or rmt"),
            ("-d all", "expected tot, lcl or rmt"),
            ("-c pid,weather", "expected pid, tid, iaddr or dso"),
        ] {
            let error = typed::<C2cReportArgs>(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
