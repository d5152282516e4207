//! `perf-exporter run`: runs the service.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{FAILED, USAGE, fail};
use crate::app::{self, Failure, Options};
use crate::clock::Clock;
use crate::export::otlp::logs::Switch;
use crate::host::{Environment, Roots};
use crate::net::listen::ListenAddress;
use crate::sys::inherited_sockets;
use crate::sys::live::Live;

/// Names of the options that are also accepted without the command name.
pub(super) const OPTIONS: [&str; 4] = ["config", "listen", "web_config", "no_sandbox"];

#[derive(Debug, Clone, Args)]
pub(super) struct RunArgs {
    /// Configuration file. Without it, the built-in configuration is used (perf-exporter check describes it).
    #[arg(long, short, value_name = "FILE", env = "PERF_EXPORTER_CONFIG")]
    config: Option<PathBuf>,
    /// Address and port to serve on, or unix:PATH. Overrides the addresses in the configuration (0.0.0.0:7373). Can be repeated.
    #[arg(
        long,
        short,
        value_name = "ADDRESS:PORT",
        env = "PERF_EXPORTER_LISTEN",
        value_parser = address,
        value_delimiter = ','
    )]
    listen: Vec<ListenAddress>,
    /// Web configuration file: TLS and passwords, in the format of Prometheus' exporter-toolkit. Its keys take precedence over the section
    /// `web` of the configuration.
    #[arg(long = "web.config.file", value_name = "FILE", env = "PERF_EXPORTER_WEB_CONFIG_FILE")]
    web_config: Option<PathBuf>,
    /// Keep all capabilities of the start, and restrict no system calls. By default, the exporter gives up what no feature needs.
    #[arg(long, env = "PERF_EXPORTER_NO_SANDBOX")]
    no_sandbox: bool,
}

fn address(text: &str) -> Result<ListenAddress, String> {
    let form = "expected an IP address and a port, such as 0.0.0.0:7373 or [::]:7373, or unix:PATH";
    text.parse().map_err(|reason| format!("it is {reason}; {form}"))
}

/// Runs the service until it receives a signal to stop.
pub(super) fn run(args: RunArgs, roots: Roots, log: Switch) -> ExitCode {
    // Before the first child process is started, which would inherit them.
    let environment = Environment::of_process();
    let sockets = inherited_sockets(&environment, std::process::id());
    let options = Options {
        config: args.config,
        listen: args.listen,
        web_config: args.web_config,
        files: super::files(&roots),
        sandbox: !args.no_sandbox,
        roots,
        clock: Clock::system(),
        environment,
        log,
    };
    match app::serve(options, sockets, Live) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure @ Failure::Config(_)) => fail(USAGE, &failure.into()),
        Err(failure) => fail(FAILED, &failure.into()),
    }
}
