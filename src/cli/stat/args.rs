//! Arguments of `perf-exporter stat`: the options of perf, and the settings derived from them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::cli::observe::{Target, TargetArgs};
use crate::event::{Preset, parse, syntax};

/// Shortest interval and timeout of perf, in milliseconds.
const SHORTEST: u64 = 10;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is counted until Ctrl-C. With one of these options, a command \
only limits the duration. Each cgroup is shown separately. The result is written to standard error, as in perf, because \
standard output belongs to the command. --output csv and --output json write the result to standard output.

Exit codes: the exit code of the command; 1 if nothing could be counted, 2 for invalid arguments, 126 or 127 if the \
command cannot be run.")]
pub(in crate::cli) struct StatArgs {
    /// Events to count, in the syntax of perf: cycles,{instructions:u,branches},sched:sched_switch. May be repeated.
    #[arg(short = 'e', long = "event", value_name = "EVENTS", value_parser = events)]
    events: Vec<Events>,
    /// Count additional events: -d first-level and last-level caches, -dd also TLBs and instruction caches, -ddd also prefetches.
    #[arg(short = 'd', long = "detailed", action = ArgAction::Count)]
    detailed: u8,
    /// Count no events: show only the time of the command.
    #[arg(short = 'n', long = "null", requires = "command", conflicts_with_all = ["events", "detailed"])]
    null: bool,
    /// Count user space only, in all events.
    #[arg(long)]
    pub(super) all_user: bool,
    #[command(flatten)]
    target_args: TargetArgs,
    /// Show each CPU separately.
    #[arg(short = 'A', long)]
    pub(super) no_aggr: bool,
    /// Print the counts of each interval of this many milliseconds.
    #[arg(short = 'I', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(SHORTEST..))]
    interval_print: Option<u64>,
    /// Stop after this number of intervals.
    #[arg(long, value_name = "N", requires = "interval_print", value_parser = clap::value_parser!(u64).range(1..))]
    interval_count: Option<u64>,
    /// Stop after this many milliseconds. A command receives SIGTERM.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(SHORTEST..))]
    timeout: Option<u64>,
    /// Run the command this many times, and show the mean and its standard error.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, hide_default_value = true, requires = "command", conflicts_with = "interval_print", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Write CSV as perf does, with this separator: -x, or -x ';'; \t is a tab.
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with_all = ["json_output", "output"], value_parser = separator)]
    field_separator: Option<String>,
    /// Write JSON as perf does, one object per line.
    #[arg(short = 'j', long, conflicts_with = "output")]
    json_output: bool,
    /// Write the result to this file instead of standard error.
    #[arg(short = 'o', long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Append to the file of -o.
    #[arg(long, requires = "output_file")]
    append: bool,
    /// Run this command in a shell before each run of the command.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub(super) pre: Option<OsString>,
    /// Run this command in a shell after each run of the command.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub(super) post: Option<OsString>,
    /// Output format: a table, or the CSV of -x or the JSON of -j, but on standard output.
    #[arg(long, value_name = "FORMAT", value_enum)]
    output: Option<Output>,
    /// Command to run and count, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table as text.
    Text,
    /// CSV in the format of perf.
    Csv,
    /// JSON in the format of perf.
    Json,
}

/// Format of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    /// A table as text.
    Text,
    /// CSV with this separator.
    Csv(String),
    /// One JSON object per line.
    Json,
}

/// Destination of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sink<'a> {
    /// Standard error, as in perf.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, which is truncated unless `append` is set.
    File {
        /// Its path.
        path: &'a Path,
        append: bool,
    },
}

/// Durations and repetitions of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// Time between two readings.
    pub interval: Option<Duration>,
    /// Number of readings.
    pub interval_count: Option<u64>,
    /// Maximum duration.
    pub timeout: Option<Duration>,
    /// Number of runs of the command.
    pub repeat: u32,
}

impl StatArgs {
    /// Returns the events to count: the requested events or the default of perf, followed by the detailed events.
    pub(super) fn events(&self) -> Vec<syntax::Group> {
        if self.null {
            return Vec::new();
        }
        let default = Preset::Default.groups();
        let detailed = match self.detailed {
            0 => Vec::new(),
            1 => Preset::Detailed.groups(),
            2 => Preset::VeryDetailed.groups(),
            _ => Preset::AllDetailed.groups(),
        };
        // Each preset begins with the default events.
        let details = detailed.into_iter().skip(default.len());
        let events = match &self.events[..] {
            [] => default,
            asked => asked.iter().flat_map(|Events(groups)| groups.clone()).collect(),
        };
        events.into_iter().chain(details).collect()
    }

    /// Returns the target to count.
    ///
    /// # Errors
    /// If `-A` is given for a target that is not counted per CPU.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        match self.target_args.target(&self.command) {
            Target::Processes(_) | Target::Threads(_) | Target::Command if self.no_aggr => {
                anyhow::bail!(
                    "-A requires counts per CPU, but processes are counted across all CPUs: add -a, or omit -A"
                )
            }
            target => Ok(target),
        }
    }

    /// Returns the durations and repetitions.
    pub(super) fn times(&self) -> Times {
        Times {
            interval: self.interval_print.map(Duration::from_millis),
            interval_count: self.interval_count,
            timeout: self.timeout.map(Duration::from_millis),
            repeat: self.repeat,
        }
    }

    /// Returns the format of the result.
    pub(super) fn format(&self) -> Format {
        match (&self.field_separator, self.output) {
            (Some(separator), _) => Format::Csv(separator.clone()),
            (None, Some(Output::Csv)) => Format::Csv(",".into()),
            (None, Some(Output::Json)) => Format::Json,
            (None, _) if self.json_output => Format::Json,
            (None, _) => Format::Text,
        }
    }

    /// Returns the destination of the result.
    pub(super) fn sink(&self) -> Sink<'_> {
        match (&self.output_file, self.output) {
            (Some(path), _) => Sink::File { path, append: self.append },
            (None, Some(Output::Csv | Output::Json)) => Sink::Stdout,
            (None, Some(Output::Text) | None) => Sink::Stderr,
        }
    }
}

/// The groups of one `-e` option.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Events(Vec<syntax::Group>);

fn events(text: &str) -> Result<Events, String> {
    // The alternate format shows the position of the error.
    parse(text).map(Events).map_err(|error| format!("{error:#}"))
}

fn separator(text: &str) -> Result<String, String> {
    match text {
        "" => Err("expected a separator, such as , or ; or \\t".into()),
        "\\t" => Ok("\t".into()),
        other => Ok(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<StatArgs, String> {
        typed(line)
    }

    #[test]
    fn everything_behind_the_command_belongs_to_it() {
        for line in ["-e cycles ls -a -x --log y", "-e cycles -- ls -a -x --log y"] {
            assert_eq!(read(line).unwrap().command, ["ls", "-a", "-x", "--log", "y"], "{line}");
        }
    }

    #[test]
    fn details_are_added_to_the_events_and_the_default_stands_for_none() {
        let names = |line: &str| -> Vec<String> {
            read(line).unwrap().events().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("-e faults,{cycles,branches} -e r1a8"), ["faults", "{cycles,branches}", "r1a8"]);
        assert_eq!(names("").first().map(String::as_str), Some("task-clock"));
        assert_eq!(names("-d").len(), names("").len() + 2);
        assert_eq!(names("-ddddd"), names("-d -dd"));
        let detail = names("-d -e faults");
        assert_eq!(detail[..2], ["faults", "{L1-dcache-loads,L1-dcache-load-misses}"]);
    }

    #[test]
    fn formats_have_perfs_letters_and_ours() {
        let file = |append| Sink::File { path: Path::new("f"), append };
        for (line, format, sink) in [
            ("", Format::Text, Sink::Stderr),
            ("-x,", Format::Csv(",".into()), Sink::Stderr),
            (r"-x \t", Format::Csv("\t".into()), Sink::Stderr),
            ("-j", Format::Json, Sink::Stderr),
            ("--output csv", Format::Csv(",".into()), Sink::Stdout),
            ("--output json", Format::Json, Sink::Stdout),
            ("--output text -o f", Format::Text, file(false)),
            ("--output json -o f", Format::Json, file(false)),
            ("-j --append -o f", Format::Json, file(true)),
        ] {
            let args = read(line).unwrap();
            assert_eq!((args.format(), args.sink()), (format, sink), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-e cycles,{branches", "the group is not closed"),
            ("-I 1", "1 is not in 10.."),
            ("-r 0 true", "0 is not in 1.."),
            ("-r 2", "<COMMAND>"),
            ("-r 2 -I 100 true", "cannot be used with"),
            ("--interval-count 2", "--interval-print"),
            ("-x, -j", "cannot be used with"),
            ("-j --output csv", "cannot be used with"),
            ("--output xml", "[possible values: text, csv, json]"),
            ("--bogus", "unexpected argument"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        let per_cpu = read("-A true").unwrap().target().unwrap_err().to_string();
        assert!(per_cpu.contains("add -a"), "{per_cpu}");
    }
}
