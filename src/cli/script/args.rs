//! Arguments of `perf-exporter script`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::time_range::time_range;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The text is that of perf script: stackcollapse-perf.pl, speedscope and Firefox Profiler accept it. Symbols are from the \
files of this machine with the recorded build ids.

Fields: comm, tid, pid, time, cpu, period, event, trace, ip, sym, symoff, dso. The default depends on the type of the \
event. +FIELD and -FIELD change the default.")]
pub(in crate::cli) struct ScriptArgs {
    /// Recording of perf record or of perf-exporter record.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub(super) input: PathBuf,
    /// Output format.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    pub(super) format: Format,
    /// Fields to print, separated by commas.
    #[arg(short = 'F', long, value_name = "FIELDS", allow_hyphen_values = true)]
    pub(super) fields: Option<String>,
    /// Print only samples of these events, by name.
    #[arg(short, long, value_name = "EVENT")]
    pub(super) event: Vec<String>,
    /// Print only samples of threads with these names.
    #[arg(long, value_name = "COMM", value_delimiter = ',')]
    pub(super) comms: Vec<String>,
    /// Print only samples in these files: paths, file names or [kernel.kallsyms].
    #[arg(long, value_name = "DSO", value_delimiter = ',')]
    pub(super) dsos: Vec<String>,
    /// Print only samples in these functions.
    #[arg(short = 'S', long, value_name = "SYMBOL", value_delimiter = ',')]
    pub(super) symbols: Vec<String>,
    /// Print only samples of these processes.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(super) pid: Vec<u32>,
    /// Print only samples of these threads.
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub(super) tid: Vec<u32>,
    /// Print only samples on these CPUs, such as 0-3,8.
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub(super) cpu: Option<String>,
    /// Print only samples from START to STOP, in seconds as printed. Either can be omitted.
    #[arg(long, value_name = "START,STOP", value_parser = time_range)]
    pub(super) time: Option<RangeInclusive<u64>>,
    /// Print at most this number of functions of a call chain.
    #[arg(long, value_name = "N")]
    pub(super) max_stack: Option<usize>,
    /// Print the innermost function only.
    #[arg(short = 'G', long)]
    pub(super) hide_call_graph: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The text of perf script.
    Text,
    /// Folded stacks with the sums of one event: the first with selected samples, or that of --event.
    Folded,
    /// JSON for Firefox Profiler (profiler.firefox.com).
    Firefox,
    /// JSON for speedscope (speedscope.app).
    Speedscope,
    /// JSON for Perfetto (ui.perfetto.dev) and chrome://tracing.
    Chrome,
}
