//! The command line: arguments in, exit code out. One file per sub-command.

mod check;
mod follow;
mod list;
mod observe;
mod probe;
mod record;
mod run;
mod sample;
mod sched;
mod stat;
mod top;
mod trace;
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
use crate::sys::live::Live;
use observe::{Host, exit, failed};

/// Bad arguments or a bad configuration.
const USAGE: u8 = 2;

/// It did not work.
const FAILED: u8 = 1;

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 failed at run time, 2 bad arguments or configuration";

/// Linux perf as an always-on service: counts hardware, software and tracepoint events per CPU, cgroup and process, and
/// serves them to Prometheus.
///
/// Without a command it runs the service with its built-in configuration and serves on 0.0.0.0:7373 what this
/// machine can measure.
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
    /// Run the service (what perf-exporter does without a command).
    Run(run::RunArgs),
    /// Check a configuration: every problem at once, then what is counted on this machine, how and why so, what it
    /// takes, and what is refused.
    Check(check::CheckArgs),
    /// List every event that can be named on this machine, and how to write it in the configuration.
    List(list::ListArgs),
    /// Show what can be probed in the kernel or in a program, what can be taken there, and how to write it in the
    /// configuration; add, list and remove probes, as perf probe does.
    Probe(probe::ProbeArgs),
    /// Count events for a command, a process, a cgroup or the whole machine, as perf stat does.
    Stat(stat::StatArgs),
    /// Record which functions a command, a process, a cgroup or the whole machine spends its time in, or waits in: as
    /// pprof, a flame graph or folded stacks, as perf record, report and script do together.
    Record(record::RecordArgs),
    /// Show which functions the machine, a process or a cgroup is in now, over and over, as perf top does.
    Top(top::TopArgs),
    /// Show how long threads wait for a CPU (latency), or each time that a thread runs (timehist), as perf sched does.
    Sched(sched::SchedArgs),
    /// Show system calls as they end, with their arguments, durations and errors, as perf trace does.
    Trace(trace::TraceArgs),
    /// Open and read files of other processes for the process at the other end of standard input.
    #[command(hide = true)]
    FilesHelper,
}

/// Options of every command. They stand behind its own, and do not move when a command is added.
#[derive(Debug, Clone, Args)]
#[command(next_display_order = 100)]
struct Global {
    /// Where the host's /proc and /sys are found, in a container that has them mounted elsewhere.
    #[arg(long, value_name = "DIR", default_value = "/", global = true, env = "PERF_EXPORTER_HOST_ROOT")]
    host_root: PathBuf,
    /// What to log: error, warn, info, debug, trace, or filters such as perf_exporter::counter=debug. By default run
    /// logs info, and every other command errors.
    #[arg(long, value_name = "FILTER", global = true, env = "PERF_EXPORTER_LOG")]
    log: Option<String>,
    /// How to write the log, which goes to standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true, value_enum)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How a command writes its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Output {
    /// Writes rows to standard output: each as a JSON object on a line, or all of them as `text` does.
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

/// Writes a value to standard output as JSON that people can read.
fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print();
            return if error.use_stderr() || printed.is_err() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let command = cli.command.unwrap_or(Command::Run(cli.run));
    let roots = Roots::under(&cli.global.host_root);
    if matches!(command, Command::FilesHelper) {
        return files_helper(roots);
    }
    let log = match start_log(&cli.global, &command) {
        Ok(log) => log,
        Err(error) => return fail(USAGE, &error),
    };
    let host = || Host::new(&Live, &roots);
    match command {
        Command::FilesHelper => ExitCode::SUCCESS,
        Command::Run(args) => run::run(args, roots, log),
        Command::Check(args) => check::check(&args, &roots),
        Command::List(args) => list::list(&args, &roots),
        Command::Probe(args) => {
            probe::probe(&args, &roots).unwrap_or_else(|failure| failed(failure, "probed"))
        }
        Command::Stat(args) => exit(stat::stat(&args, &host()), "counted"),
        Command::Record(args) => exit(record::record(&args, &host()), "recorded"),
        Command::Top(args) => exit(top::top(&args, &host()), "sampled"),
        Command::Sched(args) => exit(sched::sched(&args, &host()), "followed"),
        Command::Trace(args) => exit(trace::trace(&args, &host()), "followed"),
    }
}

/// Opens files of other processes in a child process, which is this binary even when another one is at its path by now.
fn files(roots: &Roots) -> Files {
    Files::apart(roots, PathBuf::from("/proc/self/exe"))
}

/// Serves the process that started this one. Nothing is logged: what fails is an answer.
fn files_helper(roots: Roots) -> ExitCode {
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => {
            // Every thread that asks waits for this process. Without the priority it works as well.
            crate::sys::scheduling::raise_priority().ok();
            crate::files::serve(socket, roots);
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &anyhow::Error::new(error).context("no socket at standard input")),
    }
}

/// The answer to be expected for an event without opening it: that of a machine without hardware counters.
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

/// Reads the arguments. Options of `run` may stand alone, and before another command they would do nothing.
fn parse() -> Result<Cli, clap::Error> {
    let mut grammar = Cli::command();
    let matches = grammar.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(command) = matches.subcommand_name() {
        let typed = |option: &&str| matches.value_source(option) == Some(ValueSource::CommandLine);
        if let Some(option) = run::OPTIONS.into_iter().find(typed) {
            let message = format!(
                "--{option} stands before {command}, where it does nothing: options of a command stand behind it"
            );
            return Err(grammar.error(ErrorKind::ArgumentConflict, message));
        }
    }
    Cli::from_arg_matches(&matches)
}

/// The service tells all that happens; a command that prints its result only what broke, for the result says the rest.
/// The answer is where it can pass to be pushed; whatever is written, from level `info` on all that the program itself tells
/// passes there.
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

/// A filter of the log. A lone word must be a level: the library takes any other for the name of a module, and logs
/// nothing.
fn log_filter(text: &str) -> anyhow::Result<EnvFilter> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let mut words = text.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    if let Some(word) = words.find(|word| !is_level(word)) {
        anyhow::bail!(
            "--log {text}: {word:?} is not one of error, warn, info, debug, trace and off; the level of one module is \
             written perf_exporter::counter=debug"
        );
    }
    EnvFilter::try_new(text).map_err(|error| anyhow::anyhow!("--log {text}: {error}; try --log debug"))
}

/// The exit code of a command that wrote its result to stdout. Whoever reads it may have seen enough (`| head`).
fn written(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(FAILED, &anyhow::Error::new(error).context("the result cannot be written"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes to standard output at once.
fn put(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes.as_ref())?;
    out.flush()
}

/// Prints why the command failed, with its causes, and gives its exit code.
#[expect(clippy::print_stderr, reason = "the last word of a command goes to the person who typed it")]
fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    eprintln!("perf-exporter: {error:#}");
    ExitCode::from(code)
}

/// What a line stands for that is typed behind a command; the words of its refusal.
#[cfg(test)]
fn typed<A: Args>(line: &str) -> Result<A, String> {
    #[derive(Debug, Parser)]
    struct Alone<A: Args> {
        #[command(flatten)]
        args: A,
    }

    let words = std::iter::once("command").chain(line.split(' ').filter(|word| !word.is_empty()));
    Alone::try_parse_from(words).map(|alone| alone.args).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
