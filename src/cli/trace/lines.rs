//! The output lines of `perf-exporter trace`.

use std::io;
use std::time::Duration;

use super::arguments::{Arguments, REGISTERS};
use crate::cli::follow::{milliseconds, shown};
use crate::cli::put;
use crate::error::Errno;
use crate::event::Catalog;
use crate::sched::Thread;
use crate::syscall::{Call, CompletedCall, PendingCall, errno};

/// Minimum width of the call, before the result.
const CALL: usize = 70;

/// Lines that have not been written yet.
#[derive(Debug)]
pub(super) struct Lines<'c> {
    text: String,
    arguments: Arguments<'c>,
    /// Start of the trace, in nanoseconds.
    begun: u64,
    /// Duration of the shortest call to show, in nanoseconds.
    shortest: u64,
    failures_only: bool,
}

impl<'c> Lines<'c> {
    /// Creates an empty buffer. Times are shown relative to `begun`, in nanoseconds.
    pub(super) fn new(
        catalog: &'c Catalog,
        begun: u64,
        shortest: Option<Duration>,
        failures_only: bool,
    ) -> Self {
        let shortest = shortest.map_or(0, |shortest| u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX));
        Self { text: String::new(), arguments: Arguments::new(catalog), begun, shortest, failures_only }
    }

    /// Adds a call that has ended.
    pub(super) fn ended(&mut self, ended: &CompletedCall, registers: Option<&[u64; REGISTERS]>) {
        if ended.took < self.shortest || self.failures_only && ended.error().is_none() {
            return;
        }
        let took = format!("{:>6.3} ms", milliseconds(ended.took));
        self.line((&ended.thread, ended.call), ended.time - ended.took, &took, registers, &result(ended));
    }

    /// Adds a call that has not ended by `now`.
    pub(super) fn unended(&mut self, begun: &PendingCall, now: u64, registers: Option<&[u64; REGISTERS]>) {
        if self.failures_only || now.saturating_sub(begun.time) < self.shortest {
            return;
        }
        self.line((&begun.thread, begun.call), begun.time, "         ", registers, "?");
    }

    fn line(
        &mut self,
        (thread, call): (&Thread, Call),
        begun: u64,
        took: &str,
        registers: Option<&[u64; REGISTERS]>,
        result: &str,
    ) {
        let mut what = format!("{call}(");
        match registers {
            Some(registers) => self.arguments.write(&mut what, call, registers),
            None => what.push_str("..."),
        }
        what.push(')');
        self.text.push_str(&format!(
            "{:>10.3} ({took}): {}/{} {what:<CALL$} = {result}\n",
            milliseconds(begun.saturating_sub(self.begun)),
            shown(thread.comm.bytes()),
            thread.tid
        ));
    }

    /// Writes the buffered lines.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        put(std::mem::take(&mut self.text))
    }
}

/// Formats the result of a call.
fn result(ended: &CompletedCall) -> String {
    if let Some(number) = ended.error() {
        let name = errno(number);
        let said = Errno(number.into()).to_string();
        return match said.split_once(": ") {
            Some((known, meaning)) if known == name => format!("-1 {name} ({meaning})"),
            // Some error numbers are internal to the kernel: it restarts the call.
            _ => format!("-1 {name}"),
        };
    }
    match u32::try_from(ended.result) {
        Ok(number) => number.to_string(),
        // Large results are usually addresses.
        Err(_) => format!("{:#x}", ended.result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Facts, Roots};
    use crate::sched::Comm;
    use crate::syscall::Abi;

    fn lines(shortest: Option<Duration>, failures_only: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let mut lines = Lines::new(&catalog, 1_000_000_000, shortest, failures_only);
        let thread = |name: &[u8]| Thread { tid: 812, pid: 812, comm: Comm::new(name), ..Thread::default() };
        let call = |number| Call { abi: Abi::X86_64, number };
        for (comm, number, took, result) in [
            (&b"ls"[..], 257, 28_000, 3),
            (b"ls", 257, 21_000, -2),
            (b"\x1b[31m\n", 9, 80_000, 0x7fae_358a_3000),
            (b"sleep", 230, 100_161_000, -516),
        ] {
            let ended =
                CompletedCall { thread: thread(comm), call: call(number), time: 1_200_000_000, took, result };
            lines.ended(&ended, Some(&[1, 2, 3, 4, 5, 6]));
        }
        let begun = PendingCall { thread: thread(b"sh"), call: call(231), time: 1_150_000_000, cpu: 0 };
        lines.unended(&begun, 1_210_000_000, None);
        lines.text
    }

    #[test]
    fn the_lines_are_as_recorded() {
        insta::assert_snapshot!(lines(None, false));
    }

    #[test]
    fn only_what_was_asked_for_is_shown() {
        assert_eq!(lines(Some(Duration::from_millis(1)), false).lines().count(), 2);
        assert_eq!(lines(Some(Duration::from_millis(80)), false).lines().count(), 1);
        assert_eq!(lines(None, true).lines().count(), 2);
    }
}
