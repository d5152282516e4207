//! Somebody at a shell looks at somebody: at whom, for how long, and how that ends. What `stat`, `record`, `top`,
//! `sched` and `trace` share.
//!
//! ```text
//! TargetArgs ─► Target ─► Subject: found on this machine ─► whom events are opened for
//! a command ─► waits until they are open ─► Wait: time, its end, signals ─► Ending ─► exit code
//! ```

mod command;
mod host;
mod mean;
pub(super) mod notes;
mod subject;
mod target;
mod wait;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use rustix::process::Signal;

use super::{FAILED, USAGE, fail};
use crate::health::Refusal;
use crate::sys::usage;
pub(super) use command::Program;
pub(super) use host::Host;
pub(super) use mean::Mean;
pub(super) use subject::Subject;
pub(super) use target::{Target, TargetArgs};
pub(super) use wait::{Happened, Signals, Wait, if_any, measure, seconds};

/// As shells have it: the command is there and cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// As shells have it: there is no such command.
const NOT_FOUND: u8 = 127;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself.
    Done,
    /// With the command.
    Command(ExitStatus),
    /// By a signal.
    Signal(Signal),
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments are wrong.
    Usage(anyhow::Error),
    /// It did not work.
    Failed(anyhow::Error),
    /// No event could be opened.
    Nothing(Vec<Refusal>),
    /// The command cannot be run.
    Command { program: String, error: io::Error },
    /// The result cannot be written.
    Output(io::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// An I/O error that nothing was added to comes from writing.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The exit code, after what is to be said was said. `done` is what should have been done: `counted`.
pub(super) fn exit(outcome: Result<Ending, Failure>, done: &str) -> ExitCode {
    outcome.map_or_else(|failure| failed(failure, done), end)
}

/// Says why there is no result; gives the exit code.
pub(super) fn failed(failure: Failure, done: &str) -> ExitCode {
    match failure {
        Failure::Usage(error) => fail(USAGE, &error),
        Failure::Failed(error) => fail(FAILED, &error),
        Failure::Nothing(refusals) => fail(FAILED, &nothing(&refusals, done)),
        Failure::Command { program, error } => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
            fail(code, &anyhow::Error::new(error).context(format!("{program} cannot be run")))
        }
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        Failure::Output(error) => {
            fail(FAILED, &anyhow::Error::new(error).context("the result cannot be written"))
        }
    }
}

/// Ends as what was looked at ended: with its exit code, or by its signal.
fn end(ending: Ending) -> ExitCode {
    let status = match ending {
        Ending::Done => return ExitCode::SUCCESS,
        Ending::Command(status) => status,
        Ending::Signal(number) => ExitStatus::from_raw(number.as_raw()),
    };
    let Some(number) = status.signal() else {
        return ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED));
    };
    if let Err(error) = usage::die_by_signal(number) {
        tracing::debug!("cannot end by signal {number}: {error}");
    }
    // What a shell makes of a death by a signal.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILED))
}

/// That nothing could be opened, and why.
fn nothing(refusals: &[Refusal], done: &str) -> anyhow::Error {
    let mut why = Vec::new();
    // A `Vec` takes all that it is given.
    if refusals.is_empty() || notes::write(&mut why, &notes::refused(refusals)).is_err() {
        return anyhow::anyhow!("nothing was {done}: what was to be {done} has ended");
    }
    let why = String::from_utf8_lossy(&why);
    anyhow::anyhow!("nothing can be {done} here:\n{}", why.trim_end_matches('\n'))
}
