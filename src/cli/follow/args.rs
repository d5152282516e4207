//! Arguments that all commands have that follow records.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::cli::observe::{Program, Target, TargetArgs, seconds};

/// Target, duration and command.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct FollowArgs {
    #[command(flatten)]
    target_args: TargetArgs,
    /// Stop after this number of seconds. A command receives SIGTERM.
    #[arg(long = "time-limit", value_name = "SECS", value_parser = seconds)]
    pub(in crate::cli) limit: Option<Duration>,
    /// Command to run and trace, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(in crate::cli) command: Vec<OsString>,
}

impl FollowArgs {
    /// Returns the selected target.
    pub(in crate::cli) fn target(&self) -> Target {
        self.target_args.target(&self.command)
    }

    /// Returns the program that the command runs.
    pub(in crate::cli) fn program(&self) -> Program<'_> {
        Program::new(&self.command)
    }
}
