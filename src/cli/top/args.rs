//! Arguments of `perf-exporter top`.

use std::time::Duration;

use clap::Args;

use crate::cli::sample::SampleArgs;

/// Number of functions in a table without a terminal.
const LINES: usize = 40;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t or -G, the whole machine is sampled. Each table covers the last --window seconds. Older samples \
are dropped; in perf top they decay instead. With -z, each table covers the time since the previous table. Self is the \
function itself, Total includes the functions that it calls. [k] marks kernel functions, [j] marks JIT code.

On a terminal: s, t, n, m sort by self, total, name, module; r reverses; / filters; g groups by module, comm, cgroup or thread; \
Enter shows callers and callees of a function; p pauses; ? shows all keys; q or Ctrl-C quits. Above the functions are \
counters of the last interval: of the target, or of the selected comm, cgroup or thread. If standard output is not a terminal, \
tables are printed one after another, as with --batch.

Exit codes: 0 success; 1 if nothing could be sampled, 2 for invalid arguments.")]
pub(in crate::cli) struct TopArgs {
    #[command(flatten)]
    pub(super) sample: SampleArgs,
    /// Seconds between two tables.
    #[arg(short = 'd', long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    delay: u64,
    /// Seconds that each table covers.
    #[arg(long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=3600))]
    window: u64,
    /// Show in each table only the samples since the previous table.
    #[arg(short = 'z', long, conflicts_with = "window")]
    pub(super) zero: bool,
    /// Maximum number of functions. The default is all on a terminal, or 40 without one.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    lines: Option<u32>,
    /// Print tables one after another, without key bindings.
    #[arg(short = 'b', long)]
    pub(super) batch: bool,
    /// Stop after this number of tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iterations: Option<u64>,
}

impl TopArgs {
    /// Returns the time between two tables.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_secs(self.delay)
    }

    /// Returns the time that a table covers.
    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.window)
    }

    /// Returns the number of functions in a printed table.
    pub(super) fn lines(&self) -> usize {
        self.limit().unwrap_or(LINES)
    }

    /// Returns the maximum number of functions, if it was given.
    pub(super) fn limit(&self) -> Option<usize> {
        self.lines.map(|lines| lines as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<TopArgs, String> {
        typed(line)
    }

    #[test]
    fn a_printed_table_has_the_given_length_or_40_lines() {
        let args = |line: &str| read(line).unwrap();
        assert_eq!((args("").lines(), args("").limit()), (LINES, None));
        assert_eq!((args("-n 5").lines(), args("-n 5").limit()), (5, Some(5)));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-d 0", "0 is not in 1..=3600"),
            ("-n 0", "0 is not in 1..=100000"),
            ("--iterations 0", "0 is not in 1.."),
            ("-z --window 5", "cannot be used with"),
            ("sleep 5", "unexpected argument"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
