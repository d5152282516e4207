//! The commands of `perf-exporter stat`: counting, recording of counts, and reports of recordings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};

use super::aggregation::{Aggregation, AggregationArgs};
use super::args::StatArgs;
use super::metric_list::MetricList;
use super::output::OutputArgs;

/// The name that perf gives a recording.
const DATA: &str = "perf.data";

#[derive(Debug, Clone, Args)]
#[command(
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    override_usage = "\
perf-exporter stat [OPTIONS] [COMMAND]...
       perf-exporter stat record [OPTIONS] [COMMAND]...
       perf-exporter stat report [OPTIONS]"
)]
pub(in crate::cli) struct StatCommand {
    #[command(subcommand)]
    pub(super) view: Option<View>,
    #[command(flatten)]
    pub(super) args: StatArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum View {
    /// Count as stat does, and write the counts into a file that stat report and perf stat report read.
    Record(Box<RecordArgs>),
    /// Show the counts of a file that stat record or perf stat record wrote.
    Report(ReportArgs),
}

#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("output_file", |arg| arg.help("Write the counts to this file. The default is perf.data")),
    mut_arg("append", |arg| arg.hide(true)),
    mut_arg("repeat", |arg| arg.hide(true)),
    mut_arg("table", |arg| arg.hide(true)),
    mut_arg("per_cache", |arg| arg.hide(true)),
    after_help = "\
Counts and prints as stat does, with the same options. They may also be before the word record. The file is in the format of \
perf stat record: perf stat report reads it, and perf-exporter stat report reads files of perf."
)]
pub(super) struct RecordArgs {
    #[command(flatten)]
    pub(super) args: StatArgs,
}

#[derive(Debug, Clone, Args)]
#[command(mut_arg("per_cache", |arg| arg.hide(true)), after_help = "\
Without an option, the counts are shown as they were recorded: in total, or for each part, and for each interval. The result is \
written to standard error, as in perf. --output csv and --output json write it to standard output.

Exit codes: 0 success, 1 if the file cannot be read, 2 for invalid arguments.")]
pub(super) struct ReportArgs {
    /// File to read.
    #[arg(short = 'i', long, value_name = "FILE", default_value = DATA)]
    pub(super) input: PathBuf,
    #[command(flatten)]
    aggregation_args: AggregationArgs,
    /// Show only these metrics or groups of metrics: IPC,branch_miss_rate. See perf-exporter list metric.
    #[arg(short = 'M', long, value_name = "METRICS", value_parser = MetricList::parse)]
    metrics: Vec<MetricList>,
    #[command(flatten)]
    pub(super) output_args: OutputArgs,
}

impl RecordArgs {
    /// Returns the arguments of the measurement, and the path of the recording.
    ///
    /// # Errors
    /// If an option has no equivalent in a recording.
    pub(super) fn split(&self) -> anyhow::Result<(StatArgs, PathBuf)> {
        let mut args = self.args.clone();
        if args.times().repeat > 1 {
            bail!(
                "-r: a recording has one run, as in perf; omit -r, or write the runs with stat -r -j -o FILE"
            );
        }
        if let Aggregation::Cache(_) = args.aggregation() {
            bail!("--per-cache: a recording does not describe the caches; use -A or --per-die");
        }
        let path = args.output_args.take_file()?.unwrap_or_else(|| DATA.into());
        if path == Path::new("-") {
            bail!(
                "-o -: a recording is written into a file, because its header is updated at the end; use -o {DATA}"
            );
        }
        Ok((args, path))
    }
}

impl ReportArgs {
    /// Returns the selected parts.
    ///
    /// # Errors
    /// For caches.
    pub(super) fn aggregation(&self) -> anyhow::Result<Aggregation> {
        match self.aggregation_args.aggregation() {
            Aggregation::Cache(_) => {
                bail!("--per-cache: a recording does not describe the caches; use -A or --per-die")
            }
            other => Ok(other),
        }
    }

    /// Returns the names of the metrics to show. Empty for all.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().flat_map(MetricList::words)
    }
}

/// Moves the word `record` or `report` to its place behind `stat`. As in perf, options of `stat` may be before it. Returns `None` if the
/// word is there already.
pub(in crate::cli) fn reordered(mut arguments: Vec<OsString>, word: &str) -> Option<Vec<OsString>> {
    let stat = arguments.iter().position(|argument| argument == "stat")?;
    let at = stat + 1 + arguments.iter().skip(stat + 1).position(|argument| argument == word)?;
    if at == stat + 1 {
        return None;
    }
    let word = arguments.remove(at);
    arguments.insert(stat + 1, word);
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn record(line: &str) -> anyhow::Result<(StatArgs, PathBuf)> {
        let command = typed::<StatCommand>(line).map_err(|error| anyhow::anyhow!(error))?;
        match command.view {
            Some(View::Record(args)) => args.split(),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn a_recording_has_the_options_of_a_measurement_and_a_file() {
        let (args, path) = record("record -e faults -o x.data -I 100 -- ls record").unwrap();
        assert_eq!((&*args.command, path), (&["ls".into(), "record".into()][..], "x.data".into()));
        assert_eq!(record("record -n true").unwrap().1, Path::new(DATA));
        for (line, words) in [
            ("record -r 3 true", "one run"),
            ("record -a --per-cache", "does not describe the caches"),
            ("record -o - true", "header is updated"),
            ("record --append -o x true", "--append"),
        ] {
            let error = record(line).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn a_command_that_is_called_like_a_view_is_a_command() {
        for line in ["-a ls record", "-e faults -- record"] {
            let command = typed::<StatCommand>(line).unwrap();
            assert!(command.view.is_none() && !command.args.command.is_empty(), "{line}");
        }
    }

    #[test]
    fn options_may_be_before_the_word() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let line = words("perf-exporter stat -e cs -a record -o f -- true");
        let expected = words("perf-exporter stat record -e cs -a -o f -- true");
        assert_eq!(reordered(line, "record"), Some(expected.clone()));
        assert_eq!(reordered(expected, "record"), None);
    }
}
