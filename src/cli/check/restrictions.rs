//! Restrictions that the service imposes on itself, tried on a thread.

use std::io::{self, Write};

use serde::Serialize;

use super::words::heading;
use crate::sys::sandbox;

/// A restriction of the service.
#[derive(Debug, Serialize)]
pub(super) struct RestrictionRow {
    /// What is restricted.
    what: &'static str,
    /// Feature of the kernel.
    by: &'static str,
    /// Reason why this kernel does not enforce it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl RestrictionRow {
    /// Tries all restrictions.
    pub(super) fn all() -> Vec<Self> {
        let (calls, files) = sandbox::try_out();
        let files = match files {
            Ok(true) => None,
            Ok(false) => Some("needs Linux 5.13 with Landlock enabled (lsm=landlock,…)".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let calls = calls.err().map(|error| error.to_string());
        vec![
            Self { what: "system calls", by: "seccomp", problem: calls },
            Self { what: "files of threads that use the network", by: "Landlock", problem: files },
        ]
    }
}

pub(super) fn write(out: &mut impl Write, rows: &[RestrictionRow]) -> io::Result<()> {
    heading(out, rows, "Restrictions of the service, unless it runs with --no-sandbox")?;
    for RestrictionRow { what, by, problem } in rows {
        match problem {
            None => writeln!(out, "  {what}, by {by}")?,
            Some(problem) => writeln!(out, "  {what}: not enforced by this kernel ({by}): {problem}")?,
        }
    }
    Ok(())
}
