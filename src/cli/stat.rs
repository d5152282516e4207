//! stat
use crate::host::Roots;
use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Clone, Args)]
pub(super) struct StatArgs {}
pub(super) fn stat(_args: &StatArgs, _roots: &Roots) -> ExitCode {
    ExitCode::SUCCESS
}
