//! Options for the output of `perf-exporter stat`: format, destination and columns.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// Options for the output.
#[derive(Debug, Clone, Args)]
pub(super) struct OutputArgs {
    /// Write CSV as perf does, with this separator: -x, or -x ';'; \t is a tab.
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with_all = ["json_output", "output"], value_parser = separator)]
    field_separator: Option<String>,
    /// Write JSON as perf does, one object per line.
    #[arg(short = 'j', long, conflicts_with = "output")]
    json_output: bool,
    /// Separate thousands by commas (the default).
    #[arg(short = 'B', long, conflicts_with_all = ["field_separator", "no_big_num"])]
    big_num: bool,
    /// Do not separate thousands.
    #[arg(long)]
    no_big_num: bool,
    /// Show only metrics, as columns.
    #[arg(long)]
    pub(super) metric_only: bool,
    /// Show the raw count of each event, and the nanoseconds in which it was enabled and running.
    #[arg(short = 'v', long)]
    pub(super) verbose: bool,
    /// Write the result to this file instead of standard error.
    #[arg(short = 'o', long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Append to the file of -o.
    #[arg(long, requires = "output_file")]
    append: bool,
    /// Output format: a table, or the CSV of -x or the JSON of -j, but on standard output.
    #[arg(long, value_name = "FORMAT", value_enum)]
    output: Option<Output>,
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

impl OutputArgs {
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

    /// Returns the file of `-o`, which is removed from the options: the result is then written to standard error.
    ///
    /// # Errors
    /// With `--append`.
    pub(super) fn take_file(&mut self) -> anyhow::Result<Option<PathBuf>> {
        anyhow::ensure!(!self.append, "--append: a recording has one measurement; omit --append");
        Ok(self.output_file.take())
    }

    /// Returns the destination of the result.
    pub(super) fn sink(&self) -> Sink<'_> {
        match (&self.output_file, self.output) {
            (Some(path), _) => Sink::File { path, append: self.append },
            (None, Some(Output::Csv | Output::Json)) => Sink::Stdout,
            (None, Some(Output::Text) | None) => Sink::Stderr,
        }
    }

    /// Reports whether thousands are separated in the table.
    pub(super) fn groups_thousands(&self) -> bool {
        self.big_num || !self.no_big_num
    }
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
    use crate::cli::stat::StatArgs;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<OutputArgs, String> {
        typed::<StatArgs>(line).map(|args| args.output_args)
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
        assert!(read("-B").unwrap().groups_thousands() && read("").unwrap().groups_thousands());
        assert!(!read("--no-big-num").unwrap().groups_thousands());
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (line, words) in [
            ("-x, -j", "cannot be used with"),
            ("-j --output csv", "cannot be used with"),
            ("-B -x,", "cannot be used with"),
            ("--table true", "--repeat"),
            ("--append", "--output-file"),
            ("--output xml", "[possible values: text, csv, json]"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
