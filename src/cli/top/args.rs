//! What can be typed behind `perf-exporter top`.

use std::time::Duration;

use clap::Args;

use crate::cli::sample::SampleArgs;

/// How many functions a table has where no screen says it.
const LINES: usize = 40;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t or -G the whole machine is looked at. Each table is of the last --window seconds: a function that \
was busy is gone after that, where perf top lets it fade; with -z it is of the time since the table before. Self is what a \
function did itself, Total with all that it called. [k] stands before functions of the kernel, [j] before those that were \
made at run time.

q or Ctrl-C ends it. Where standard output is no terminal tables are printed one after another, as with --batch.

Exit code: 0; 1 if nothing could be sampled, 2 for bad arguments.")]
pub(in crate::cli) struct TopArgs {
    #[command(flatten)]
    pub(super) sample: SampleArgs,
    /// Seconds between two tables.
    #[arg(short = 'd', long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    delay: u64,
    /// Of how many seconds a table is.
    #[arg(long, value_name = "SECS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=3600))]
    window: u64,
    /// Each table is of the time since the one before.
    #[arg(short = 'z', long, conflicts_with = "window")]
    pub(super) zero: bool,
    /// Show so many functions; else as many as the screen has lines, or 40.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    lines: Option<u32>,
    /// Print tables one after another, and take no keys.
    #[arg(short = 'b', long)]
    pub(super) batch: bool,
    /// Stop after so many tables.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iterations: Option<u64>,
}

impl TopArgs {
    /// Between two tables.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_secs(self.delay)
    }

    /// Of how long a table is.
    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.window)
    }

    /// How many functions a table has on a screen of so many lines, of which others are taken.
    pub(super) fn lines(&self, screen: Option<(usize, usize)>) -> usize {
        match (self.lines, screen) {
            (Some(lines), _) => lines as usize,
            (None, Some((rows, taken))) => rows.saturating_sub(taken).max(1),
            (None, None) => LINES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::typed;

    fn read(line: &str) -> Result<TopArgs, String> {
        typed(line)
    }

    #[test]
    fn a_table_fills_the_screen_unless_somebody_says_how_long_it_is() {
        let lines = |line: &str, screen| read(line).unwrap().lines(screen);
        assert_eq!(lines("", Some((50, 8))), 42);
        assert_eq!(lines("", Some((3, 8))), 1);
        assert_eq!(lines("", None), LINES);
        assert_eq!(lines("-n 5", Some((50, 8))), 5);
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
