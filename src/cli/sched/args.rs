//! Arguments of `perf-exporter sched`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::follow::FollowArgs;
use crate::cli::time_range::time_range;
use crate::targets::Glob;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SchedArgs {
    #[command(subcommand)]
    pub(super) view: View,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum View {
    /// Show how long runnable threads waited for a CPU, as a table at the end.
    Latency(LatencyArgs),
    /// Show each period that a thread ran, with its CPU, duration and preceding wait, as it happens.
    Timehist(TimehistArgs),
    /// Show which thread is on each CPU, with a line for each change.
    Map(MapArgs),
    /// Draw when each CPU and each thread ran, waited for a CPU or was blocked, as an SVG file.
    Timechart(TimechartArgs),
    /// Trace, and then do the same again: threads that run, sleep and wake each other at the same times.
    Replay(ReplayArgs),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced. Ctrl-C ends the measurement and prints the table. \
With one of these options, a command only limits the duration: -a sleep 10. A command without these options is the target \
itself, with its children; perf sched record traces the whole machine in this case.

A delay is the time from the wakeup or the preemption of a thread until it runs. Count is the number of times that the \
thread was scheduled in. Threads with the same name are summed, with the number of threads in parentheses; --pids shows \
each thread, like -p of perf. Times are seconds of CLOCK_MONOTONIC.

Requires CAP_PERFMON and tracefs for every target, because any thread can wake a thread of the target.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct LatencyArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Sort keys, most significant first: avg, max, count (or switch), runtime, pid.
    #[arg(
        short = 's',
        long,
        value_name = "KEY,…",
        value_delimiter = ',',
        default_value = "avg,max,count,runtime",
        hide_possible_values = true
    )]
    pub(super) sort: Vec<Key>,
    /// Show one row per thread instead of one row per name.
    #[arg(long)]
    pub(super) pids: bool,
    /// Maximum number of rows.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) lines: Option<u32>,
}

/// Sort key of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Key {
    /// Mean delay, longest first.
    Avg,
    /// Maximum delay, longest first.
    Max,
    /// Number of times scheduled in, highest first.
    #[value(alias = "switch")]
    Count,
    /// Time on CPUs, longest first.
    Runtime,
    /// Thread ID, lowest first.
    Pid,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced until Ctrl-C. With one of these options, a command \
only limits the duration: -a sleep 10. A command without these options is the target itself, with its children; perf sched \
record traces the whole machine in this case.

Each line describes one period that a thread ran, and is printed when the thread leaves the CPU. Wait time is the time off \
CPU before the period, sch delay is the runnable part of the wait time, run time is the length of the period. A time whose \
begin was not recorded is a dash, where perf prints 0. State is the state in which the thread left the CPU: R preempted, \
S sleeping, D in uninterruptible sleep, X ended. Times are seconds of CLOCK_MONOTONIC.

Open the file of --json in ui.perfetto.dev or chrome://tracing. It shows what runs on each CPU, and when each thread runs \
or waits for a CPU.

Requires CAP_PERFMON and tracefs for every target, because any thread can wake a thread of the target.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct TimehistArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Show only a summary by thread, at the end.
    #[arg(short = 's', long)]
    pub(super) summary: bool,
    /// Also show a summary by thread at the end.
    #[arg(short = 'S', long, conflicts_with = "summary")]
    pub(super) with_summary: bool,
    /// Show the state in which a thread left its CPU.
    #[arg(long)]
    pub(super) state: bool,
    /// Also show wakeups.
    #[arg(short = 'w', long)]
    pub(super) wakeups: bool,
    /// Also show migrations to another CPU.
    #[arg(short = 'M', long)]
    pub(super) migrations: bool,
    /// Show the next thread on the CPU.
    #[arg(short = 'n', long)]
    pub(super) next: bool,
    /// Show the functions of the kernel in which a thread left its CPU, innermost first.
    #[arg(short = 'g', long)]
    pub(super) call_graph: bool,
    /// Maximum number of functions that -g shows.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=127))]
    pub(super) max_stack: u16,
    /// Show a column for each CPU, with s for a thread and i for an idle time.
    #[arg(short = 'V', long)]
    pub(super) cpu_visual: bool,
    /// Show idle times instead of threads.
    #[arg(short = 'I', long, conflicts_with_all = ["summary", "with_summary"])]
    pub(super) idle_hist: bool,
    /// Show only this time, in seconds of CLOCK_MONOTONIC, and end after it. Either can be omitted.
    #[arg(long, value_name = "START,STOP", value_parser = time_range)]
    pub(super) time: Option<RangeInclusive<u64>>,
    /// Show only threads with these names; patterns with * and ? are allowed.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = Glob::new)]
    pub(super) comm: Vec<Glob>,
    /// Write a trace in JSON to this file instead of lines; - is standard output. An existing file is overwritten.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["state", "wakeups", "migrations", "next", "call_graph", "cpu_visual", "idle_hist"]
    )]
    pub(super) json: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced until Ctrl-C. With one of these options, a command \
only limits the duration: -a sleep 10. A command without these options is the target itself, with its children; perf sched \
record traces the whole machine in this case.

Each line describes one change: a column for each CPU with the short name of its thread, an asterisk before the one that \
changed, and the time in seconds of CLOCK_MONOTONIC. A new short name is explained. A dot is an idle CPU, a dash a thread \
that does not belong to the target.

Requires CAP_PERFMON and tracefs for every target, because any thread can run before a thread of the target on its CPU.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct MapArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Show columns only for CPUs that have changed, in the order of their first change.
    #[arg(long)]
    pub(super) compact: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced until Ctrl-C. With one of these options, a command \
only limits the duration: -a sleep 10. A command without these options is the target itself, with its children.

The file shows a row for each CPU and for each of the threads that ran longest. Blue is a run, yellow a wait for a CPU, red \
a sleep that cannot be interrupted, such as disk I/O. Each mark has a tooltip. The file is complete in itself.

Requires CAP_PERFMON and tracefs for every target, because any thread can wake a thread of the target.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct TimechartArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Write to this file; - is standard output. An existing file is overwritten.
    #[arg(short = 'o', long, value_name = "FILE", default_value = "output.svg")]
    pub(super) output: PathBuf,
    /// Width in pixels.
    #[arg(short = 'w', long, value_name = "PIXELS", default_value_t = 1600, value_parser = clap::value_parser!(u32).range(400..=100_000))]
    pub(super) width: u32,
    /// Maximum number of threads.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) proc_num: u32,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced until Ctrl-C. With one of these options, a command \
only limits the duration: -a sleep 10. A command without these options is the target itself, with its children; perf sched \
record traces the whole machine in this case.

Each thread of the target becomes a thread of the replay. It uses the CPU for as long as the thread ran, and sleeps until \
the thread that woke it does so again. A sleep that an interrupt or another process ended takes its recorded time; perf \
omits it. perf also uses the CPU for the time in which a CPU was idle. System calls, memory and CPUs are not replayed.

A line for each repetition shows the elapsed time, its average, the CPU time and its average, in milliseconds.

Requires CAP_PERFMON and tracefs for every target, because any thread can wake a thread of the target.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Number of repetitions.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repeat: u32,
}

impl TimehistArgs {
    /// Reports whether lines are printed.
    pub(super) fn shows_lines(&self) -> bool {
        !self.summary && self.json.is_none()
    }

    /// Reports whether a summary is printed.
    pub(super) fn shows_summary(&self) -> bool {
        self.summary || self.with_summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

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
            ("-p x", "expected comma-separated numbers"),
        ] {
            let error = latency(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(timehist("--time 5").unwrap_err().contains("write START,STOP"));
        assert!(typed::<ReplayArgs>("-r 0").unwrap_err().contains("0 is not in 1.."));
        assert!(typed::<TimechartArgs>("-w 10").unwrap_err().contains("10 is not in 400..=100000"));
        assert!(timehist("-s -S").unwrap_err().contains("cannot be used with"));
        assert!(timehist("--json x -w").unwrap_err().contains("cannot be used with"));
    }
}
