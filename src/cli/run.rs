//! `perf-exporter run`: runs the service.

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

/// Names of the options that are also accepted without the command name.
pub(super) const OPTIONS: [&str; 4] = ["config", "listen", "web_config", "no_sandbox"];

#[derive(Debug, Clone, Args)]
pub(super) struct RunArgs {
    /// Configuration file. Without it, the built-in configuration is used (perf-exporter check describes it).
    #[arg(long, short, value_name = "FILE", env = "PERF_EXPORTER_CONFIG")]
    config: Option<PathBuf>,
    /// Address and port to serve on. Overrides the address in the configuration (0.0.0.0:7373).
    #[arg(long, short, value_name = "ADDRESS:PORT", env = "PERF_EXPORTER_LISTEN", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Web configuration file: TLS and passwords, in the format of Prometheus' exporter-toolkit. Its keys take precedence over the section
    /// `web` of the configuration.
    #[arg(long = "web.config.file", value_name = "FILE", env = "PERF_EXPORTER_WEB_CONFIG_FILE")]
    web_config: Option<PathBuf>,
    /// Keep all capabilities of the start. By default, the exporter gives up those that no feature needs, and can gain no others.
    #[arg(long, env = "PERF_EXPORTER_NO_SANDBOX")]
    no_sandbox: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 0.0.0.0:7373 or [::]:7373".into())
}

/// Runs the service until it receives a signal to stop.
pub(super) fn run(args: RunArgs, roots: Roots, log: Switch) -> ExitCode {
    let options = Options {
        config: args.config,
        listen: args.listen,
        web_config: args.web_config,
        files: super::files(&roots),
        sandbox: !args.no_sandbox,
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
