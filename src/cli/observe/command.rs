//! The command that somebody types behind the options.

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
    /// The limit on descriptors that it is to find: ours is raised for events.
    descriptors: Rlimit,
}

impl<'a> Program<'a> {
    /// The program that `words` name, under the limits that are in force now.
    pub(in crate::cli) fn new(words: &'a [OsString]) -> Self {
        Self { words, descriptors: getrlimit(Resource::Nofile) }
    }

    /// As it was typed, for people.
    pub(in crate::cli) fn shown(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Forks a child for it, if there is one, that waits until its events are open.
    ///
    /// # Errors
    /// When no child can be started.
    pub(in crate::cli) fn fork(&self) -> Result<Option<Waiting>, Failure> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(None) };
        setrlimit(Resource::Nofile, self.descriptors).context("the limit on descriptors")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(Some(Waiting::fork(command).context("a child cannot be started")?))
    }

    /// Starts the child, if there is one, and begins to wait for its end, or else for that of `counted` (paths below `/proc`).
    ///
    /// # Errors
    /// When the program cannot be executed.
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
