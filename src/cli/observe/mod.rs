//! Target selection, duration and exit code of the commands `stat`, `record`, `top`, `sched`, `trace`, `lock` and `kmem`.
//!
//! ```text
//! TargetArgs ─► Target ─► Subject: resolved on this machine ─► targets to open events for
//! a command ─► blocked until its events are open ─► Wait: time, end, signals ─► Ending ─► exit code
//! ```

mod command;
mod host;
mod mean;
pub(super) mod notes;
pub(super) mod rings;
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
pub(super) use wait::{Signals, Wait, WaitEvent, if_any, measure, seconds};

/// Exit code of shells for a command that exists but cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// Exit code of shells for a command that does not exist.
const NOT_FOUND: u8 = 127;

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// All work was done or the time was over.
    Done,
    /// The command ended.
    Command(ExitStatus),
    /// A signal was received.
    Signal(Signal),
}

impl Ending {
    /// Returns how an interactive view ends by a signal. Ctrl-C is the normal way to quit, therefore it is not a failure. Other signals are
    /// reflected in the exit status.
    pub(super) fn of_view(number: Signal) -> Self {
        if number == Signal::INT { Self::Done } else { Self::Signal(number) }
    }
}

/// Reason why there is no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// Invalid arguments.
    Usage(anyhow::Error),
    /// Failure at run time.
    Failed(anyhow::Error),
    /// No event could be opened.
    Nothing(Vec<Refusal>),
    /// The command could not be run.
    Command { program: String, error: io::Error },
    /// The result could not be written.
    Output(io::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// An I/O error without context is an error of writing the result.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Returns the exit code, and prints the error of a failure. `done` is the action as a past participle, such as `counted`.
pub(super) fn exit(outcome: Result<Ending, Failure>, done: &str) -> ExitCode {
    outcome.map_or_else(|failure| failed(failure, done), end)
}

/// Prints why there is no result, and returns the exit code.
pub(super) fn failed(failure: Failure, done: &str) -> ExitCode {
    match failure {
        Failure::Usage(error) => fail(USAGE, &error),
        Failure::Failed(error) => fail(FAILED, &error),
        Failure::Nothing(refusals) => fail(FAILED, &nothing(&refusals, done)),
        Failure::Command { program, error } => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
            fail(code, &anyhow::Error::new(error).context(format!("cannot run {program}")))
        }
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        Failure::Output(error) => fail(FAILED, &anyhow::Error::new(error).context("cannot write the result")),
    }
}

/// Ends like the measured command: with its exit code or by its signal.
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
    // The exit code that a shell reports for a process that was ended by a signal.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(FAILED))
}

/// Returns the error for a measurement without any open event, with the reasons.
fn nothing(refusals: &[Refusal], done: &str) -> anyhow::Error {
    let mut why = Vec::new();
    // Writing to a `Vec` cannot fail.
    if refusals.is_empty() || notes::write(&mut why, &notes::refused(refusals)).is_err() {
        return anyhow::anyhow!("nothing was {done}: the target to be {done} has ended");
    }
    let why = String::from_utf8_lossy(&why);
    anyhow::anyhow!("nothing can be {done} on this host:\n{}", why.trim_end_matches('\n'))
}
