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
        Self::of(calls, files)
    }

    /// Returns the rows for these results of a try.
    fn of(calls: io::Result<()>, files: io::Result<bool>) -> Vec<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results of a try on four kernels: with both features, without Landlock, without seccomp, and with errors of both.
    fn kernels() -> [(io::Result<()>, io::Result<bool>); 4] {
        let error = |errno| io::Error::from_raw_os_error(errno);
        [
            (Ok(()), Ok(true)),
            (Ok(()), Ok(false)),
            (Err(error(libc::EINVAL)), Ok(true)),
            (Err(error(libc::ENOSYS)), Err(error(libc::EOPNOTSUPP))),
        ]
    }

    #[test]
    fn each_restriction_is_shown_with_the_reason_if_the_kernel_does_not_enforce_it() {
        let mut out = Vec::new();
        for (calls, files) in kernels() {
            write(&mut out, &RestrictionRow::of(calls, files)).unwrap();
        }
        write(&mut out, &[]).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }

    #[test]
    fn programs_get_a_problem_only_for_what_is_not_enforced() {
        let rows: Vec<_> =
            kernels().into_iter().map(|(calls, files)| RestrictionRow::of(calls, files)).collect();
        insta::assert_snapshot!(serde_json::to_string_pretty(&rows).unwrap());
    }
}
