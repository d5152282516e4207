//! What can be typed behind `perf-exporter trace`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::cli::observe::{TargetArgs, seconds};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is followed until Ctrl-C, this program left out. A command beside \
one of them only says for how long: -a sleep 10. Alone, it is what is followed, with what it starts, from its execve on.

There is a line for each call when it ends: milliseconds from the beginning to when it was entered, how long it took, who \
called, the call, and what it gave. A call that has not ended at the end, or with its thread, gives a question mark. \
Arguments are numbers, and addresses of what they point to; where the kernel does not describe a call, all six registers \
are shown.

Needs CAP_PERFMON and tracefs.

Exit code: that of the command; 1 if nothing could be followed, 2 for bad arguments, 126 and 127 for a command that cannot \
be run.")]
pub(in crate::cli) struct TraceArgs {
    #[command(flatten)]
    pub(super) whom: TargetArgs,
    /// These calls only, with patterns: openat,read*; with ! before the first, all but these.
    #[arg(short = 'e', long = "expr", value_name = "CALLS", allow_hyphen_values = true)]
    pub(super) calls: Option<String>,
    /// Only calls that took at least so many milliseconds.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(super) duration: Option<Duration>,
    /// Only calls that failed.
    #[arg(long)]
    pub(super) failure: bool,
    /// Show only a summary by thread and call, at the end.
    #[arg(short = 's', long)]
    pub(super) summary: bool,
    /// Show a summary by thread and call besides.
    #[arg(short = 'S', long, conflicts_with = "summary")]
    pub(super) with_summary: bool,
    /// Stop after so many seconds; a command is sent SIGTERM then.
    #[arg(long = "time-limit", value_name = "SECS", value_parser = seconds)]
    pub(super) limit: Option<Duration>,
    /// The command to run and follow, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
    let duration = number.map(|number| Duration::from_secs_f64(number / 1e3));
    duration.ok_or_else(|| "expected milliseconds, such as 10 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::typed;

    fn read(line: &str) -> Result<TraceArgs, String> {
        typed(line)
    }

    #[test]
    fn options_are_perfs() {
        let args = read("-e !read,write --duration 0.5 -s -p 7").unwrap();
        assert_eq!(args.calls.as_deref(), Some("!read,write"));
        assert_eq!((args.duration, args.summary), (Some(Duration::from_micros(500)), true));
        assert_eq!(read("--failure -- ls -s").unwrap().command, ["ls", "-s"]);
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
