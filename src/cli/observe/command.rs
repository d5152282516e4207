//! The command given after the options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Failure, Signals, Wait};
use crate::sys::spawn::Waiting;

/// A program with its arguments, or none.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Program<'a> {
    words: &'a [OsString],
    /// The limit on descriptors for the program. The limit of this process is raised for events.
    descriptors: Rlimit,
}

impl<'a> Program<'a> {
    /// Creates the program from `words`, with the current limits.
    pub(in crate::cli) fn new(words: &'a [OsString]) -> Self {
        Self { words, descriptors: getrlimit(Resource::Nofile) }
    }

    /// Returns the command line for display.
    pub(in crate::cli) fn shown(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Forks a child for the program, if there is one. The child waits until its events are open.
    ///
    /// # Errors
    /// If no child can be started.
    pub(in crate::cli) fn fork(&self) -> Result<Option<Waiting>, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(None) };
        setrlimit(Resource::Nofile, self.descriptors).context("cannot restore the limit on descriptors")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(Some(Waiting::fork(command).context("cannot fork a child process")?))
    }

    /// Starts the child, if there is one, and begins to wait for its end. Without a child, waits for the end of the processes `counted`
    /// (paths below `/proc`).
    ///
    /// # Errors
    /// If the program cannot be executed.
    pub(in crate::cli) fn start<'s>(
        &self,
        child: Option<Waiting>,
        counted: Vec<PathBuf>,
        signals: &'s mut Signals,
        interval: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Result<Wait<'s>, Failure> {
        let child = child.map(Waiting::start).transpose().map_err(|error| {
            let program = self.words.first().map(|program| program.to_string_lossy().into_owned());
            Failure::Command { program: program.unwrap_or_default(), error }
        })?;
        let counted = if child.is_some() { Vec::new() } else { counted };
        Ok(Wait::new(signals, child, counted, interval, timeout))
    }
}
