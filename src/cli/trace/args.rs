//! Arguments of `perf-exporter trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

use crate::cli::follow::FollowArgs;
use crate::cli::sample::call_graph;
use crate::config::profiled::{STACK, Unwind};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine except perf-exporter itself is traced until Ctrl-C. With one of \
these options, a command only limits the duration: -a sleep 10. A command without these options is the target itself, with \
its children, beginning with its execve.

Each line describes one call, and is printed when the call ends: milliseconds from the start of the trace to the entry, \
duration, thread, call with arguments, and result. The result is a question mark if the call has not ended at the end of \
the trace or of its thread. Flags and constants have words, pointers are shown as addresses, and descriptors have their \
path if it is certain. If the kernel does not describe a call, all six argument registers are shown. Tracepoints are shown in \
the words of the kernel. If only tracepoints are selected, no calls are traced. A page fault is shown with the instruction and \
the accessed address, as file@offset. After it, d is a known mapping, ? an unknown one, k an access by the kernel.

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
    /// Also trace page faults: maj (read from a disk), min (served from memory), or all. -F alone is maj.
    #[arg(short = 'F', long = "pf", value_name = "KIND", num_args = 0..=1, default_missing_value = "maj")]
    pub(super) faults: Option<Faults>,
    /// Trace no calls, but only page faults and tracepoints.
    #[arg(long)]
    pub(super) no_syscalls: bool,
    /// Show call chains below calls, page faults and tracepoints: fp (frame pointers), dwarf, dwarf,SIZE (copies SIZE bytes of the stack into
    /// each record), or auto (both).
    #[arg(long, value_name = "HOW", value_parser = call_graph)]
    call_graph: Option<Unwind>,
    /// Maximum number of functions of a call chain. Without --call-graph, this selects --call-graph dwarf.
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=512))]
    max_stack: Option<u16>,
    /// Also show functions of the kernel in call chains of calls: those that run at their end.
    #[arg(long)]
    pub(super) kernel_syscall_graph: bool,
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

/// Page faults to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Faults {
    All,
    Maj,
    Min,
}

impl Faults {
    /// Returns the events, and whether each counts major faults.
    pub(super) fn events(self) -> &'static [(&'static str, bool)] {
        const ALL: [(&str, bool); 2] = [("major-faults", true), ("minor-faults", false)];
        match self {
            Self::All => &ALL,
            Self::Maj => &ALL[..1],
            Self::Min => &ALL[1..],
        }
    }
}

impl TraceArgs {
    /// Returns how call chains are determined; `None` if they are not shown.
    pub(super) fn unwind(&self) -> Option<Unwind> {
        let by_depth = self.max_stack.map(|_| Unwind::Dwarf { stack: STACK });
        self.call_graph.or(by_depth).filter(|unwind| *unwind != Unwind::Nothing)
    }

    /// Returns the maximum number of functions of a call chain.
    pub(super) fn depth(&self) -> usize {
        self.max_stack.map_or(usize::MAX, usize::from)
    }
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
        for (line, faults) in [
            ("", None),
            ("-F", Some(Faults::Maj)),
            ("-F all", Some(Faults::All)),
            ("--pf min", Some(Faults::Min)),
        ] {
            assert_eq!(read(line).unwrap().faults, faults, "{line}");
        }
        let dwarf = Some(Unwind::Dwarf { stack: STACK });
        for (line, unwind, depth) in [
            ("", None, usize::MAX),
            ("--call-graph fp", Some(Unwind::FramePointers), usize::MAX),
            ("--call-graph no --max-stack 3", None, 3),
            ("--max-stack 3", dwarf, 3),
        ] {
            let args = read(line).unwrap();
            assert_eq!((args.unwind(), args.depth()), (unwind, depth), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("--duration soon", "expected milliseconds, such as 10 or 0.5"),
            ("--duration=-1", "expected milliseconds"),
            ("--time-limit 0", "expected seconds from 0.01"),
            ("-s -S", "cannot be used with"),
            ("-F some", "invalid value 'some'"),
            ("--call-graph lbr", "expected auto, fp, dwarf, dwarf,SIZE or no"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
