//! `perf-exporter run`: the service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{FAILED, USAGE, fail};
use crate::app::{self, Failure, Options};
use crate::clock::Clock;
use crate::export::otlp::logs::Switch;
use crate::host::{Environment, Roots};
use crate::sys::live::Live;

/// The options that may stand without the command's name.
pub(super) const OPTIONS: [&str; 2] = ["config", "listen"];

#[derive(Debug, Clone, Args)]
pub(super) struct RunArgs {
    /// The configuration file; without one the built-in configuration is used (perf-exporter check prints what it does).
    #[arg(long, short, value_name = "FILE", env = "PERF_EXPORTER_CONFIG")]
    config: Option<PathBuf>,
    /// Where to serve, instead of the address in the configuration (0.0.0.0:7373).
    #[arg(long, short, value_name = "ADDRESS:PORT", env = "PERF_EXPORTER_LISTEN", value_parser = address)]
    listen: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, like 0.0.0.0:7373 or [::]:7373".into())
}

/// Runs the service until a signal ends it.
pub(super) fn run(args: RunArgs, roots: Roots, log: Switch) -> ExitCode {
    let options = Options {
        config: args.config,
        listen: args.listen,
        files: super::files(&roots),
        roots,
        clock: Clock::system(),
        environment: Environment::of_process(),
        log,
    };
    match app::serve(options, Live) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure @ Failure::Config(_)) => fail(USAGE, &failure.into()),
        Err(failure) => fail(FAILED, &failure.into()),
    }
}
