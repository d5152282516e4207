//! What can be typed behind `perf-exporter sched`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::observe::{TargetArgs, seconds};

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SchedArgs {
    #[command(subcommand)]
    pub(super) view: View,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum View {
    /// How long threads that could run waited for a CPU: perf's table, at the end.
    Latency(LatencyArgs),
    /// Each time that a thread ran: where and for how long, and how long it had waited, as it happens.
    Timehist(TimehistArgs),
}

/// Whom to follow, and for how long.
#[derive(Debug, Clone, Args)]
pub(super) struct Follow {
    #[command(flatten)]
    pub(super) whom: TargetArgs,
    /// Stop after so many seconds; a command is sent SIGTERM then.
    #[arg(long = "time-limit", value_name = "SECS", value_parser = seconds)]
    pub(super) limit: Option<Duration>,
    /// The command to run and follow, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is followed until Ctrl-C, which prints the table. A command \
beside one of them only says for how long: -a sleep 10. Alone, it is what is followed, with what it starts; perf sched \
record follows the machine then.

A delay is the time from the moment that a thread is woken, or taken from its CPU though it would go on, to the moment that \
it runs. Count is how often it came onto a CPU. Threads of one name are added up, with their number in parentheses; --pids \
shows each by itself, for which perf has -p. Times are seconds of CLOCK_MONOTONIC.

Needs CAP_PERFMON and tracefs, whoever is shown: who wakes a thread may be anybody.

Exit code: that of the command; 1 if nothing could be followed, 2 for bad arguments, 126 and 127 for a command that cannot \
be run.")]
pub(super) struct LatencyArgs {
    #[command(flatten)]
    pub(super) follow: Follow,
    /// By what to sort, the first before the second: avg, max, count (or switch), runtime, pid.
    #[arg(
        short = 's',
        long,
        value_name = "KEY,…",
        value_delimiter = ',',
        default_value = "avg,max,count,runtime",
        hide_possible_values = true
    )]
    pub(super) sort: Vec<Key>,
    /// A row for each thread, not for each name.
    #[arg(long)]
    pub(super) pids: bool,
    /// Show so many rows at most.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) lines: Option<u32>,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Key {
    /// The mean delay, the longest first.
    Avg,
    /// The longest delay, the longest first.
    Max,
    /// How often it came onto a CPU.
    #[value(alias = "switch")]
    Count,
    /// The time on CPUs.
    Runtime,
    /// The number of the thread, the smallest first.
    Pid,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is followed until Ctrl-C. A command beside one of them only says \
for how long: -a sleep 10. Alone, it is what is followed, with what it starts; perf sched record follows the machine then.

There is a line for each time that a thread leaves its CPU: wait time is how long it had been away before it came, sch delay \
how much of that it could have run and had no CPU, run time how long it ran. A time that nobody saw begin is a dash, where \
perf writes 0. State is how it left: R it would have gone on, S it sleeps, D it sleeps and must not be disturbed, X it has \
ended. Times are seconds of CLOCK_MONOTONIC.

The file of --json is for ui.perfetto.dev and chrome://tracing: what runs on each CPU, and when each thread runs or waits \
for a CPU.

Needs CAP_PERFMON and tracefs, whoever is shown: who wakes a thread may be anybody.

Exit code: that of the command; 1 if nothing could be followed, 2 for bad arguments, 126 and 127 for a command that cannot \
be run.")]
pub(super) struct TimehistArgs {
    #[command(flatten)]
    pub(super) follow: Follow,
    /// Show only a summary by thread, at the end.
    #[arg(short = 's', long)]
    pub(super) summary: bool,
    /// Show a summary by thread besides.
    #[arg(short = 'S', long, conflicts_with = "summary")]
    pub(super) with_summary: bool,
    /// Show how a thread left its CPU.
    #[arg(long)]
    pub(super) state: bool,
    /// Show who wakes whom, too.
    #[arg(short = 'w', long)]
    pub(super) wakeups: bool,
    /// Show who is given to another CPU, too.
    #[arg(short = 'M', long)]
    pub(super) migrations: bool,
    /// Show who comes next.
    #[arg(short = 'n', long)]
    pub(super) next: bool,
    /// Write a trace to this file, and no lines; - is standard output. What is there is overwritten.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "wakeups", "migrations", "next"])]
    pub(super) json: Option<PathBuf>,
}

impl TimehistArgs {
    /// Whether there are lines.
    pub(super) fn shows_lines(&self) -> bool {
        !self.summary && self.json.is_none()
    }

    /// Whether there is a summary.
    pub(super) fn shows_summary(&self) -> bool {
        self.summary || self.with_summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::typed;

    fn timehist(line: &str) -> Result<TimehistArgs, String> {
        typed(line)
    }

    fn latency(line: &str) -> Result<LatencyArgs, String> {
        typed(line)
    }

    #[test]
    fn rows_are_sorted_as_perf_sorts_them_unless_somebody_says_otherwise() {
        assert_eq!(latency("").unwrap().sort, [Key::Avg, Key::Max, Key::Count, Key::Runtime]);
        assert_eq!(latency("-s switch,pid").unwrap().sort, [Key::Count, Key::Pid]);
        assert_eq!(latency("--sort max -p 7").unwrap().sort, [Key::Max]);
    }

    #[test]
    fn a_summary_or_a_file_takes_the_place_of_lines() {
        for (line, lines, summary) in [
            ("", true, false),
            ("-s", false, true),
            ("-S", true, true),
            ("--json x.json", false, false),
            ("--json x.json -s", false, true),
        ] {
            let args = timehist(line).unwrap();
            assert_eq!((args.shows_lines(), args.shows_summary()), (lines, summary), "{line}");
        }
    }

    #[test]
    fn everything_behind_the_command_belongs_to_it() {
        assert_eq!(timehist("-w -- ls -s --state").unwrap().follow.command, ["ls", "-s", "--state"]);
        assert_eq!(latency("-a sleep 10").unwrap().follow.command, ["sleep", "10"]);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-s wakeups", "invalid value 'wakeups'"),
            ("--time-limit 0", "expected seconds from 0.01"),
            ("-n 0", "0 is not in 1.."),
            ("-p x", "expected numbers"),
        ] {
            let error = latency(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(timehist("-s -S").unwrap_err().contains("cannot be used with"));
        assert!(timehist("--json x -w").unwrap_err().contains("cannot be used with"));
    }
}
