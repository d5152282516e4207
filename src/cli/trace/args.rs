//! Arguments of `perf-exporter trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};

use crate::cli::follow::FollowArgs;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine except perf-exporter itself is traced until Ctrl-C. With one of \
these options, a command only limits the duration: -a sleep 10. A command without these options is the target itself, with \
its children, beginning with its execve.

Each line describes one call, and is printed when the call ends: milliseconds from the start of the trace to the entry, \
duration, thread, call with arguments, and result. The result is a question mark if the call has not ended at the end of \
the trace or of its thread. Flags and constants have words, pointers are shown as addresses, and descriptors have their \
path if it is certain. If the kernel does not describe a call, all six argument registers are shown. Tracepoints are shown in \
the words of the kernel. If only tracepoints are selected, no calls are traced.

Requires CAP_PERFMON and tracefs.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(in crate::cli) struct TraceArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Show only these calls: openat,read*, or classes of them: file, network, process, memory, signal, ipc. With ! before the first, show
    /// all other calls. Words with a colon are tracepoints: sched:sched_switch,kmem:*. May be repeated.
    #[arg(
        short = 'e',
        long = "expr",
        visible_alias = "event",
        value_name = "LIST",
        allow_hyphen_values = true
    )]
    pub(super) selected: Vec<String>,
    /// Show only calls that took at least this many milliseconds.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(super) duration: Option<Duration>,
    /// Show only calls that failed.
    #[arg(long)]
    pub(super) failure: bool,
    /// Show times on the clock of the kernel, not since the start.
    #[arg(short = 'T', long)]
    pub(super) time: bool,
    /// Write to this file instead of standard output; - is standard output. An existing file is overwritten.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Stop after this number of lines. A command receives SIGTERM.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(super) max_events: Option<u32>,
    /// Show only a summary by thread and call, at the end.
    #[arg(short = 's', long)]
    pub(super) summary: bool,
    /// Also show a summary by thread and call at the end.
    #[arg(short = 'S', long, conflicts_with = "summary")]
    pub(super) with_summary: bool,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
    let duration = number.map(|number| Duration::from_secs_f64(number / 1e3));
    duration.ok_or_else(|| "expected milliseconds, such as 10 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<TraceArgs, String> {
        typed(line)
    }

    #[test]
    fn options_are_perfs() {
        let args = read("-e !read,write --duration 0.5 -s -p 7").unwrap();
        assert_eq!(args.selected, ["!read,write"]);
        assert_eq!((args.duration, args.summary), (Some(Duration::from_micros(500)), true));
        assert_eq!(read("--failure -- ls -s").unwrap().follow.command, ["ls", "-s"]);
        let args = read("-T -o out.txt --max-events 5 -e file -e sched:*").unwrap();
        assert_eq!((args.time, args.max_events, args.selected.len()), (true, Some(5), 2));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("--duration soon", "expected milliseconds, such as 10 or 0.5"),
            ("--duration=-1", "expected milliseconds"),
            ("--time-limit 0", "expected seconds from 0.01"),
            ("-s -S", "cannot be used with"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
