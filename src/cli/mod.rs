//! The command line: arguments in, exit code out. One file per sub-command.

mod check;
mod list;
mod run;
mod stat;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::host::Roots;

/// Bad arguments or a bad configuration.
const USAGE: u8 = 2;

/// It did not work.
const FAILED: u8 = 1;

/// Linux perf as an always-on service: counts hardware, software and tracepoint events per CPU, cgroup and process, and
/// serves them to Prometheus.
///
/// Without a command it runs the service with its built-in configuration and serves on 0.0.0.0:7373 what this
/// machine can measure.
#[derive(Debug, Parser)]
#[command(name = "perf-exporter", version, args_conflicts_with_subcommands = true)]
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
    /// Check a configuration: every problem at once, then what would be opened on this machine, and what is refused.
    Check(check::CheckArgs),
    /// List every event that can be named on this machine, and how to write it in the configuration.
    List(list::ListArgs),
    /// Count events for a command, a process, a cgroup or the whole machine, as perf stat does.
    Stat(stat::StatArgs),
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
struct Global {
    /// Where the host's /proc and /sys are found, in a container that has them mounted elsewhere.
    #[arg(long, value_name = "DIR", default_value = "/", global = true, env = "PERF_EXPORTER_HOST_ROOT")]
    host_root: PathBuf,
    /// What to log: error, warn, info, debug, trace, or filters such as perf_exporter::counter=debug.
    #[arg(long, value_name = "FILTER", default_value = "info", global = true, env = "PERF_EXPORTER_LOG")]
    log: String,
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

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
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
    if let Err(error) = start_log(&cli.global) {
        return fail(USAGE, &error);
    }
    let roots = Roots::under(&cli.global.host_root);
    match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(args) => run::run(args, roots),
        Command::Check(args) => check::check(&args, &roots),
        Command::List(args) => list::list(&args, &roots),
        Command::Stat(args) => stat::stat(&args, &roots),
    }
}

fn start_log(global: &Global) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&global.log)
        .map_err(|error| anyhow::anyhow!("--log {}: {error}; try --log debug", global.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    match global.log_format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Prints why the command failed, with its causes, and gives its exit code.
#[expect(clippy::print_stderr, reason = "the last word of a command goes to the person who typed it")]
fn fail(code: u8, error: &anyhow::Error) -> ExitCode {
    eprintln!("perf-exporter: {error:#}");
    ExitCode::from(code)
}
