//! The command line: parses the arguments, runs one command and returns its exit code. Each command has a module of its own.

mod annotate;
mod c2c;
mod check;
mod follow;
mod incidents;
mod input;
mod kmem;
mod list;
mod lock;
mod mem;
mod observe;
mod probe;
mod record;
mod report;
mod run;
mod sample;
mod sched;
mod script;
mod service;
mod stat;
mod terminal;
mod time_range;
mod top;
mod trace;
mod usage;
mod wanted;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::Errno;
use crate::event::{Catalog, Kind};
use crate::export::otlp::logs::Switch;
use crate::files::Files;
use crate::health::{Attempt, Refusal, Scope, classify};
use crate::host::Roots;
use crate::recording::About;
use crate::recording::perf_data::Options;
use crate::sys::live::Live;
use crate::sys::sandbox::{CallSet, restrict_calls};
use observe::{Host, exit, failed};

/// Exit code for invalid arguments or an invalid configuration.
const USAGE: u8 = 2;

/// Exit code for a failure at run time.
const FAILED: u8 = 1;

const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure at run time, 2 invalid arguments or configuration";

/// Linux perf as an always-on service: counts hardware, software and tracepoint events per CPU, cgroup and process, and exports them to
/// Prometheus.
///
/// Without a command, runs the service with its built-in configuration and serves on 0.0.0.0:7373 what this machine can measure.
#[derive(Debug, Parser)]
#[command(name = "perf-exporter", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunArgs,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service (the default command).
    Run(run::RunArgs),
    /// Check a configuration: print all problems, then the events counted on this machine, how they are counted, the resources they use,
    /// and the events that cannot be opened.
    Check(check::CheckArgs),
    /// List the events available on this machine and how to write each in the configuration.
    List(list::ListArgs),
    /// Show functions, lines and variables that can be probed in the kernel or in a program, and how to write a probe in the configuration.
    /// Add, list and remove probes, as perf probe does.
    Probe(probe::ProbeArgs),
    /// Count events for a command, a process, a cgroup or the whole machine, as perf stat does.
    Stat(Box<stat::StatCommand>),
    /// Record where a command, a process, a cgroup or the whole machine spends CPU time or waits. Write pprof, a flame graph or folded
    /// stacks, as perf record, report and script do together.
    Record(record::RecordArgs),
    /// Print the samples of a recording of perf or of record, as perf script does.
    Script(script::ScriptArgs),
    /// Show the functions of a recording or of a running service, as perf report does.
    Report(report::ReportArgs),
    /// Show the hot instructions of functions with their source lines, as perf annotate does.
    Annotate(annotate::AnnotateArgs),
    /// Compare two recordings, or a recording and a running service, as perf diff does.
    Diff(report::DiffArgs),
    /// Show a live view of the functions that the machine, a process or a cgroup runs, as perf top does.
    Top(top::TopArgs),
    /// Show how long threads wait for a CPU (latency) or each period that a thread runs (timehist), as perf sched does.
    Sched(sched::SchedArgs),
    /// Show system calls as they finish, with arguments, durations and errors, as perf trace does.
    Trace(trace::TraceArgs),
    /// Show how long threads wait for locks of the kernel, by caller, lock or thread, as perf lock contention does.
    Lock(lock::LockArgs),
    /// Show which functions of the kernel allocate memory from slabs, and how much of it is unused, as perf kmem stat does.
    Kmem(kmem::KmemArgs),
    /// Sample memory accesses with their addresses, latencies and sources, and show them, as perf mem does.
    Mem(mem::MemArgs),
    /// Show which cache lines several cores share, and the code that accesses them, as perf c2c does.
    C2c(c2c::C2cArgs),
    /// List incidents that the service has recorded, describe one, or copy its archive.
    Incidents(incidents::IncidentsArgs),
    /// Open and read files of other processes for the process connected to standard input.
    #[command(hide = true)]
    FilesHelper {
        /// Restrict system calls to those that files need.
        #[arg(long)]
        sandbox: bool,
    },
}

/// Options common to all commands. The high display order lists them after the options of each command.
#[derive(Debug, Clone, Args)]
#[command(next_display_order = 100)]
struct Global {
    /// Root of the host's /proc and /sys, for a container that mounts them elsewhere.
    #[arg(long, value_name = "DIR", default_value = "/", global = true, env = "PERF_EXPORTER_HOST_ROOT")]
    host_root: PathBuf,
    /// Log level (error, warn, info, debug, trace) or filters such as perf_exporter::counter=debug. The default is info for run and error
    /// for all other commands.
    #[arg(long, value_name = "FILTER", global = true, env = "PERF_EXPORTER_LOG")]
    log: Option<String>,
    /// Format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true, value_enum)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl Output {
    /// Writes rows to standard output: as one JSON object per line, or with `text`.
    fn print<R: IntoIterator<Item: Serialize>>(
        self,
        rows: R,
        text: impl FnOnce(&mut dyn Write, R) -> io::Result<()>,
    ) -> ExitCode {
        let mut out = BufWriter::new(io::stdout().lock());
        let done = match self {
            Self::Json => rows.into_iter().try_for_each(|row| {
                serde_json::to_writer(&mut out, &row)?;
                writeln!(out)
            }),
            Self::Text => text(&mut out, rows),
        };
        written(done.and_then(|()| out.flush()))
    }
}

/// Writes a value to standard output as indented JSON.
fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return rejected(error),
    };
    let command = cli.command.unwrap_or(Command::Run(cli.run));
    let roots = Roots::under(&cli.global.host_root);
    if let Command::FilesHelper { sandbox } = command {
        return files_helper(roots, sandbox);
    }
    let log = match start_log(&cli.global, &command) {
        Ok(log) => log,
        Err(error) => return fail(USAGE, &error),
    };
    let host = || Host::new(&Live, &roots);
    match command {
        Command::FilesHelper { .. } => ExitCode::SUCCESS,
        Command::Run(args) => run::run(args, roots, log),
        Command::Check(args) => check::check(&args, &roots),
        Command::Incidents(args) => incidents::incidents(&args),
        Command::List(args) => list::list(&args, &roots),
        Command::Probe(args) => {
            probe::probe(&args, &roots).unwrap_or_else(|failure| failed(failure, "probed"))
        }
        Command::Stat(args) => exit(stat::stat(&args, &host()), "counted"),
        Command::Record(args) => exit(record::record(&args, &host()), "recorded"),
        Command::Script(args) => script::script(&args, &roots),
        Command::Report(args) => report::report(&args, &roots),
        Command::Annotate(args) => annotate::annotate(&args, &roots),
        Command::Diff(args) => report::diff(&args, &roots),
        Command::Top(args) => exit(top::top(&args, &host()), "sampled"),
        Command::Sched(args) => exit(sched::sched(&args, &host()), "followed"),
        Command::Trace(args) => exit(trace::trace(&args, &host()), "followed"),
        Command::Lock(args) => exit(lock::lock(&args, &host()), "followed"),
        Command::Kmem(args) => exit(kmem::kmem(&args, &host()), "followed"),
        Command::Mem(args) => mem::mem(&args, &host, &roots),
        Command::C2c(args) => c2c::c2c(&args, &host, &roots),
    }
}

/// Returns a client that opens files of other processes in a child process. The child runs this binary, even if the file at its path has
/// been replaced.
fn files(roots: &Roots) -> Files {
    Files::apart(roots, PathBuf::from("/proc/self/exe"))
}

/// Serves the parent process. Nothing is logged: failures are returned as responses.
fn files_helper(roots: Roots, sandbox: bool) -> ExitCode {
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => {
            // Threads of the parent block on this process. A failure to raise the priority only makes it slower.
            crate::sys::scheduling::raise_priority().ok();
            if sandbox {
                // The parent has already warned of a kernel that cannot restrict system calls.
                restrict_calls(CallSet::Helper).ok();
            }
            crate::files::serve(socket, roots);
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &anyhow::Error::new(error).context("standard input is not a socket")),
    }
}

/// Returns the refusal that is expected for an event without opening it. Only the lack of a core PMU can be predicted.
fn foreseen(event: &Arc<str>, kind: Kind, scope: Scope, catalog: &Catalog) -> Option<Refusal> {
    if !kind.on_core_pmu() || catalog.has_core_pmu() {
        return None;
    }
    Some(classify(Errno::ENOENT, &Attempt::without_pmu(scope), catalog.facts()).refusal(
        event,
        "this host",
        None,
    ))
}

/// Returns the commands and options of the program, for man pages and shell completions.
pub fn grammar() -> clap::Command {
    Cli::command()
}

/// Prints the help, the version, or what is wrong with the arguments, and returns the exit code.
#[expect(clippy::print_stderr, reason = "errors of the command line are for the terminal, not for the log")]
fn rejected(error: clap::Error) -> ExitCode {
    let by_clap = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if !error.use_stderr() || by_clap {
        let printed = error.print();
        return if by_clap || printed.is_err() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
    }
    let parse = |arguments: &[std::ffi::OsString]| Cli::command().try_get_matches_from(arguments).map(|_| ());
    let mut grammar = Cli::command();
    // Sets the names of arguments.
    grammar.build();
    eprint!("{}", usage::text(error, &grammar, std::env::args_os().collect(), parse));
    ExitCode::from(USAGE)
}

/// Parses the arguments. Rejects options of `run` before another command, where they would have no effect.
fn parse() -> Result<Cli, clap::Error> {
    let mut grammar = Cli::command();
    let arguments: Vec<_> = std::env::args_os().collect();
    let mut matches = grammar.try_get_matches_from_mut(&arguments)?;
    let view = matches.subcommand_matches("stat").and_then(clap::ArgMatches::subcommand_name);
    if let Some(moved) = view.and_then(|view| stat::reordered(arguments, view)) {
        matches = grammar.try_get_matches_from_mut(moved)?;
    }
    if let Some(command) = matches.subcommand_name() {
        let typed = |option: &&str| matches.value_source(option) == Some(ValueSource::CommandLine);
        if let Some(option) = run::OPTIONS.into_iter().find(typed) {
            let message = format!(
                "--{option} is before {command}, where it has no effect: write the options of a command after it"
            );
            return Err(grammar.error(ErrorKind::ArgumentConflict, message));
        }
    }
    Cli::from_arg_matches(&matches)
}

/// Starts logging to standard error. The service logs at `info`; other commands log errors only, because they print their results.
///
/// Returns the switch that forwards the program's own events of level `info` and above to OTLP log export.
fn start_log(global: &Global, command: &Command) -> anyhow::Result<Switch> {
    let by_default = if matches!(command, Command::Run(_)) { "info" } else { "error" };
    let filter = log_filter(global.log.as_deref().filter(|text| !text.is_empty()).unwrap_or(by_default))?;
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let serves = matches!(command, Command::Run(_));
    let switch = if serves { Switch::keeping() } else { Switch::default() };
    let own = Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::INFO);
    let pushed = serves.then(|| switch.clone().with_filter(own));
    let registry = tracing_subscriber::registry().with(pushed);
    match global.log_format {
        LogFormat::Text => {
            registry.with(log.with_ansi(io::stderr().is_terminal()).with_filter(filter)).init();
        }
        LogFormat::Json => registry.with(log.json().flatten_event(true).with_filter(filter)).init(),
    }
    Ok(switch)
}

/// Parses the log filter. A word without `=` must be a level: `EnvFilter` takes any other word for a module name, and logs nothing.
fn log_filter(text: &str) -> anyhow::Result<EnvFilter> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let mut words = text.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    if let Some(word) = words.find(|word| !is_level(word)) {
        anyhow::bail!(
            "--log {text}: {word:?} is not a log level: use error, warn, info, debug, trace or off; for one module \
             write perf_exporter::counter=debug"
        );
    }
    EnvFilter::try_new(text).map_err(|error| anyhow::anyhow!("--log {text}: {error}; try --log debug"))
}

/// Returns the exit code of a command that wrote its result to standard output. A closed pipe (`| head`) is not an error.
fn written(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(FAILED, &anyhow::Error::new(error).context("cannot write the result"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns the options for reading recordings: with the build id cache of this user.
fn reading_options() -> Options {
    let cache = std::env::var("HOME").ok().map(|home| format!("{home}/.debug"));
    Options { cache, ..Options::default() }
}

/// Prints what is missing in a recording, and why, to standard error.
#[expect(clippy::print_stderr, reason = "notes about the result are for the terminal, not for the log")]
fn print_notes(about: &About) {
    let lost = about.lost;
    for (count, what) in [
        (lost.records, "records were lost because a ring was full"),
        (lost.samples, "samples were lost in the kernel"),
        (lost.unknown, "samples belong to no event of the recording"),
    ] {
        if count > 0 {
            eprintln!("perf-exporter: {count} {what}");
        }
    }
    about.notes.iter().for_each(|note| print_note(note));
}

/// Prints a note about a result to standard error.
#[expect(clippy::print_stderr, reason = "notes about the result are for the terminal, not for the log")]
fn print_note(note: &str) {
    eprintln!("perf-exporter: {note}");
}

/// Parses a share in percent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 100".into())
}

/// Writes to standard output and flushes it.
fn put(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes.as_ref())?;
    out.flush()
}

/// Prints the error with its causes to standard error and returns the exit code.
#[expect(clippy::print_stderr, reason = "the error of a command is for the terminal, not for the log")]
fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    eprintln!("perf-exporter: {error:#}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the arguments that follow a command name. The error is the message of clap.
    pub(in crate::cli) fn typed<A: Args>(line: &str) -> Result<A, String> {
        #[derive(Debug, Parser)]
        struct Alone<A: Args> {
            #[command(flatten)]
            args: A,
        }

        let words = std::iter::once("command").chain(line.split(' ').filter(|word| !word.is_empty()));
        Alone::try_parse_from(words).map(|alone| alone.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_for_it_would_log_nothing() {
        for text in ["info", "warn,perf_exporter::counter=debug", "off", "perf_exporter=debug", "WARN"] {
            assert!(log_filter(text).is_ok(), "{text}");
        }
        for text in ["inof", "debug,perf_exporter", "perf_exporter=loud"] {
            let error = log_filter(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--log {text}: ")), "{error}");
        }
    }

    #[test]
    fn the_grammar_of_the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
