//! Arguments of `perf-exporter record`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::cli::observe::seconds;
use crate::cli::sample::SampleArgs;

/// Default output file.
const FILE: &str = "profile.pb.gz";

/// Default output file of [`Format::PerfData`], as in `perf record`.
const PERF_DATA: &str = "perf.data";

/// Value of `--output` for standard output.
pub(super) const STDOUT: &str = "-";

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is recorded. Ctrl-C ends a recording and writes the \
profile. With one of these options, a command only limits the duration: -a sleep 10. Child processes are recorded too.

Call chains are recorded unless --call-graph no is given. Unlike perf record, no separate report step is needed: \
symbols are resolved while the programs are running. View the file with go tool pprof profile.pb.gz, or open .svg and \
.html in a browser. For perf report and perf script, write -o perf.data: call chains are then those of --call-graph fp, \
unless dwarf is given.

Exit codes: the exit code of the command; 1 if nothing could be recorded, 2 for invalid arguments, 126 or 127 if the \
command cannot be run.")]
pub(in crate::cli) struct RecordArgs {
    #[command(flatten)]
    pub(super) sample: SampleArgs,
    /// Stop after this number of seconds. A command receives SIGTERM.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(super) duration: Option<Duration>,
    /// Output file; - is standard output. The default is profile.pb.gz. The file extension selects the format: .pb.gz and .pprof for
    /// pprof, .data for perf.data, .folded and .txt for folded stacks, .svg for a flame graph, .html for a page with a flame graph. An
    /// existing file is overwritten; an existing perf.data is renamed to perf.data.old.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format, regardless of the file extension. The default for standard output is folded.
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// Compress the records of perf.data with zstd.
    #[arg(short = 'z', long)]
    pub(super) compress: bool,
    /// Title of the flame graph.
    #[arg(long, value_name = "TEXT")]
    pub(super) title: Option<String>,
    /// Command to run and record, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

/// Output format of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// pprof, for go tool pprof, Pyroscope, Parca and similar tools.
    Pprof,
    /// The records of the kernel in the format of perf, for perf report, perf script, hotspot and similar tools. The file is written while
    /// events are recorded.
    PerfData,
    /// One line per stack with its value, for flamegraph.pl and speedscope.
    Folded,
    /// A flame graph.
    Svg,
    /// A self-contained page with the flame graph and a table of functions.
    Html,
    /// A table of functions, like perf report --stdio.
    Top,
}

impl RecordArgs {
    /// Returns the output file.
    pub(super) fn output(&self) -> &Path {
        let default = if self.format == Some(Format::PerfData) { PERF_DATA } else { FILE };
        self.output.as_deref().unwrap_or(Path::new(default))
    }

    /// Returns the output format.
    ///
    /// # Errors
    /// If the file extension selects no format, or if the format cannot contain what is recorded.
    pub(super) fn format(&self) -> anyhow::Result<Format> {
        let format = self.selected_format()?;
        if format == Format::PerfData && self.sample.off_cpu.is_some() {
            anyhow::bail!(
                "--off-cpu: perf.data contains samples of events, but no durations of waits; record the switches with \
                 -e sched:sched_switch -c 1, or write another format, such as -o waits.pb.gz"
            );
        }
        if format != Format::PerfData && self.compress {
            anyhow::bail!("-z: only perf.data is compressed by this option; profiles in pprof always are");
        }
        Ok(format)
    }

    fn selected_format(&self) -> anyhow::Result<Format> {
        let path = self.output();
        if path == STDOUT {
            return Ok(self.format.unwrap_or(Format::Folded));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let by_name = || {
            let endings = [
                (Format::Pprof, &[".pb.gz", ".pprof"][..]),
                (Format::PerfData, &[".data"]),
                (Format::Folded, &[".folded", ".txt"]),
                (Format::Svg, &[".svg"]),
                (Format::Html, &[".html"]),
            ];
            let named = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
            endings.into_iter().find(|(_, endings)| named(endings)).map(|(format, _)| format)
        };
        self.format.or_else(by_name).with_context(|| {
            format!(
                "-o {}: unknown file extension; use .pb.gz, .pprof, .data, .folded, .txt, .svg or .html, or \
                 give --format",
                path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<RecordArgs, String> {
        typed(line)
    }

    #[test]
    fn the_name_of_the_file_says_how_it_is_written_unless_somebody_says_otherwise() {
        for (line, file, format) in [
            ("", "profile.pb.gz", Format::Pprof),
            ("-o a/b.PPROF", "a/b.PPROF", Format::Pprof),
            ("-o x.folded", "x.folded", Format::Folded),
            ("-o x.txt", "x.txt", Format::Folded),
            ("-o x.svg", "x.svg", Format::Svg),
            ("-o x.html", "x.html", Format::Html),
            ("-o x.svg --format top", "x.svg", Format::Top),
            ("-o /dev/null --format html", "/dev/null", Format::Html),
            ("-o perf.data", "perf.data", Format::PerfData),
            ("--format perf-data", "perf.data", Format::PerfData),
            ("-o x --format perf-data", "x", Format::PerfData),
        ] {
            let args = read(line).unwrap();
            assert_eq!((args.output().to_str(), args.format().unwrap()), (Some(file), format), "{line}");
        }
        let stdout =
            |line| read(line).map(|args| (*args.output() == *STDOUT, args.format().unwrap())).unwrap();
        assert_eq!(stdout("-o -"), (true, Format::Folded));
        assert_eq!(stdout("-o - --format pprof"), (true, Format::Pprof));
        let error = read("-o perf.dat").unwrap().format().unwrap_err().to_string();
        assert!(error.starts_with("-o perf.dat: unknown file extension"), "{error}");
    }

    #[test]
    fn waits_are_not_written_as_perf_data() {
        let error = read("--off-cpu -o perf.data").unwrap().format().unwrap_err().to_string();
        assert!(
            error.contains("no durations of waits; record the switches with -e sched:sched_switch"),
            "{error}"
        );
    }

    #[test]
    fn a_recording_lasts_for_seconds() {
        assert_eq!(read("--duration 0.25").unwrap().duration, Some(Duration::from_millis(250)));
        for nonsense in ["0", "-1", "ten", "NaN", "1e9", "inf"] {
            let error = read(&format!("--duration={nonsense}")).unwrap_err();
            assert!(error.contains("such as 10 or 0.5"), "{error}");
        }
    }

    #[test]
    fn everything_behind_the_command_belongs_to_it() {
        let args = read("-F 999 -- ls -o x --format y").unwrap();
        assert_eq!(args.command, ["ls", "-o", "x", "--format", "y"]);
    }
}
