//! The output lines of `perf-exporter trace`.

use std::collections::VecDeque;
use std::io;

use super::args::TraceArgs;
use super::arguments::{Arguments, REGISTERS};
use super::descriptors::{Answer, Descriptor, Descriptors};
use super::words::Words;
use crate::cli::follow::{Output, milliseconds, shown};
use crate::error::Errno;
use crate::event::Catalog;
use crate::sched::Thread;
use crate::syscall::{Call, CompletedCall, PendingCall, errno};

/// Minimum width of the call, before the result.
const CALL: usize = 70;
/// Maximum number of lines that wait for the paths of descriptors. The lines above it have none.
const WAITING: usize = 1 << 16;

/// Which lines are written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    /// Start of the trace, in nanoseconds, or 0 for times on the clock of the kernel.
    begun: u64,
    /// Duration of the shortest call to show, in nanoseconds.
    shortest: u64,
    failures_only: bool,
    /// Maximum number of lines.
    most: u64,
    /// Whether lines have durations: not if only tracepoints are traced.
    durations: bool,
}

impl Shape {
    /// Returns the shape that the options ask for, for a trace that begins at `begun`. `durations`: whether calls or page
    /// faults are traced.
    pub(super) fn of(args: &TraceArgs, begun: u64, durations: bool) -> Self {
        let shortest =
            args.duration.map_or(0, |shortest| u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX));
        let begun = if args.time { 0 } else { begun };
        let most = args.max_events.map_or(u64::MAX, u64::from);
        Self { begun, shortest, failures_only: args.failure, most, durations }
    }
}

/// Lines that have not been written yet.
#[derive(Debug)]
pub(super) struct Lines<'c> {
    shape: Shape,
    arguments: Arguments<'c>,
    descriptors: Descriptors,
    /// In the order in which calls ended.
    waiting: VecDeque<Line>,
    /// Number of these lines, from the front, for which links were read.
    read: usize,
    text: String,
    /// Number of lines that are in `text` or were written.
    count: u64,
}

/// A line with descriptors that may not have paths yet.
#[derive(Debug)]
struct Line {
    thread: Thread,
    begun: u64,
    /// Duration.
    took: Option<u64>,
    what: What,
    /// The lines of the call chain.
    chain: String,
}

#[derive(Debug)]
enum What {
    Call {
        call: Call,
        registers: Option<[u64; REGISTERS]>,
        descriptors: Vec<Descriptor>,
        result: String,
    },
    /// The text of a tracepoint or of a page fault.
    Event(String),
}

impl<'c> Lines<'c> {
    /// Creates an empty buffer.
    pub(super) fn new(catalog: &'c Catalog, descriptors: Descriptors, shape: Shape) -> Self {
        let arguments = Arguments::new(catalog);
        Self {
            shape,
            arguments,
            descriptors,
            waiting: VecDeque::new(),
            read: 0,
            text: String::new(),
            count: 0,
        }
    }

    /// Reports whether a call that has ended has a line.
    pub(super) fn shows(&self, ended: &CompletedCall) -> bool {
        let Shape { shortest, failures_only, .. } = self.shape;
        ended.took >= shortest && (!failures_only || ended.error().is_some())
    }

    /// Adds a call that has ended, with the lines of its call chain.
    pub(super) fn ended(
        &mut self,
        ended: &CompletedCall,
        registers: Option<&[u64; REGISTERS]>,
        chain: String,
    ) {
        let (begun, took) = (ended.time - ended.took, Some(ended.took));
        self.call((ended.thread, begun, took), ended.call, registers, (result(ended, registers), chain));
    }

    /// Notes what a call did to descriptors, whether it is shown or not, after its own line.
    pub(super) fn apply(&mut self, ended: &CompletedCall, registers: Option<&[u64; REGISTERS]>) {
        match registers {
            Some(registers) => self.descriptors.apply(ended, registers),
            None => self.descriptors.forget(ended.thread.pid),
        }
    }

    /// Adds a call that has not ended by `now`.
    pub(super) fn unended(&mut self, begun: &PendingCall, now: u64, registers: Option<&[u64; REGISTERS]>) {
        let Shape { shortest, failures_only, .. } = self.shape;
        if failures_only || now.saturating_sub(begun.time) < shortest {
            return;
        }
        self.call((begun.thread, begun.time, None), begun.call, registers, ("?".into(), String::new()));
    }

    /// Adds a hit of a tracepoint, or a page fault, which has a duration of 0 as in perf. `text` and `chain` are its line and the lines of its
    /// call chain.
    pub(super) fn event(
        &mut self,
        (thread, begun): (Thread, u64),
        took: Option<u64>,
        (text, chain): (String, String),
    ) {
        self.waiting.push_back(Line { thread, begun, took, what: What::Event(text), chain });
    }

    /// Notes the end of a process.
    pub(super) fn forget(&mut self, pid: u32) {
        self.descriptors.forget(pid);
    }

    /// Notes that records were lost.
    pub(super) fn lose(&mut self) {
        self.descriptors.lose();
    }

    fn call(
        &mut self,
        (thread, begun, took): (Thread, u64, Option<u64>),
        call: Call,
        registers: Option<&[u64; REGISTERS]>,
        (result, chain): (String, String),
    ) {
        let numbers = registers.map(|registers| self.arguments.descriptors(call, registers));
        let numbers = numbers.unwrap_or_default().into_iter().filter(|number| *number >= 0);
        let descriptors = numbers.map(|number| self.descriptors.now(thread.pid, number)).collect();
        let what = What::Call { call, registers: registers.copied(), descriptors, result };
        self.waiting.push_back(Line { thread, begun, took, what, chain });
    }

    /// Reads the paths of descriptors, and formats the lines with known paths: all records before `until` are handled. `now` is the
    /// time, in nanoseconds of the clock of the records.
    pub(super) fn settle(&mut self, until: u64, now: u64) {
        for line in self.waiting.iter().skip(self.read) {
            if let What::Call { descriptors, .. } = &line.what {
                descriptors.iter().for_each(|&descriptor| self.descriptors.read(descriptor, now));
            }
        }
        self.read = self.waiting.len();
        while let Some(line) = self.waiting.front() {
            if self.waiting.len() <= WAITING && self.is_waiting(line, until) {
                break;
            }
            if let Some(line) = self.waiting.pop_front() {
                self.read -= 1;
                self.write(&line, until);
            }
        }
    }

    /// Formats all lines at the end of the trace. Links that were not read before are not read.
    pub(super) fn finish(&mut self, end: u64) {
        while let Some(line) = self.waiting.pop_front() {
            self.write(&line, end);
        }
    }

    fn is_waiting(&self, line: &Line, until: u64) -> bool {
        let What::Call { descriptors, .. } = &line.what else { return false };
        descriptors.iter().any(|&descriptor| self.descriptors.path(descriptor, until) == Answer::Later)
    }

    fn write(&mut self, line: &Line, until: u64) {
        if self.is_done() {
            return;
        }
        self.count += 1;
        let Line { thread, begun, took, what, chain } = line;
        let start = milliseconds(begun.saturating_sub(self.shape.begun));
        let took = match took {
            _ if !self.shape.durations => String::new(),
            Some(took) => format!("({:>6.3} ms): ", milliseconds(*took)),
            None => "(         ): ".into(),
        };
        let text = match what {
            What::Event(text) => text.clone(),
            What::Call { call, registers, descriptors, result } => {
                let mut what = format!("{call}(");
                match registers {
                    Some(registers) => {
                        let path = |number: i32| {
                            let descriptor = descriptors.iter().find(|one| one.number() == number)?;
                            match self.descriptors.path(*descriptor, until) {
                                Answer::Path(path) => Some(path),
                                _ => None,
                            }
                        };
                        self.arguments.write(&mut what, *call, registers, path);
                    }
                    None => what.push_str("..."),
                }
                what.push(')');
                format!("{what:<CALL$} = {result}")
            }
        };
        let comm = shown(thread.comm.bytes());
        self.text.push_str(&format!("{start:>10.3} {took}{comm}/{} {text}\n{chain}", thread.tid));
    }

    /// Reports whether all lines that the user wants are there.
    pub(super) fn is_done(&self) -> bool {
        self.count >= self.shape.most
    }

    /// Writes the formatted lines.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn flush(&mut self, output: &mut Output) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        output.put(&std::mem::take(&mut self.text))
    }
}

/// Formats the result of a call.
fn result(ended: &CompletedCall, registers: Option<&[u64; REGISTERS]>) -> String {
    if let Some(number) = ended.error() {
        let name = errno(number);
        let said = Errno(number.into()).to_string();
        return match said.split_once(": ") {
            Some((known, meaning)) if known == name => format!("-1 {name} ({meaning})"),
            // Some error numbers are internal to the kernel: it restarts the call.
            _ => format!("-1 {name}"),
        };
    }
    let words =
        ended.call.name().zip(registers).and_then(|(name, registers)| Words::of_result(name, registers));
    match u32::try_from(ended.result) {
        Ok(number) => words.map_or_else(|| number.to_string(), |words| words.written(number.into())),
        // Large results are usually addresses.
        Err(_) => format!("{:#x}", ended.result),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::{Facts, Roots};
    use crate::sched::Comm;
    use crate::syscall::Abi;

    fn lines(shortest: Option<Duration>, failures_only: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let shortest = shortest.map_or(0, |shortest| u64::try_from(shortest.as_nanos()).unwrap());
        let shape = Shape { begun: 1_000_000_000, shortest, failures_only, most: 6, durations: true };
        let mut lines = Lines::new(&catalog, Descriptors::new(dir.path().to_owned()), shape);
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
            if lines.shows(&ended) {
                lines.ended(&ended, Some(&[1, 2, 3, 4, 5, 6]), String::new());
            }
        }
        let begun = PendingCall { thread: thread(b"sh"), call: call(231), time: 1_150_000_000, cpu: 0 };
        lines.unended(&begun, 1_210_000_000, None);
        let chain = format!("{:39}elf_load ([kernel.kallsyms])\n", "");
        let fault = ("minfault [elf_load+0x28a] => 0x5000 (?k)".to_owned(), chain);
        lines.event((thread(b"sh"), 1_215_000_000), Some(0), fault);
        let beyond = ("sched:sched_wakeup(beyond the limit of lines)".to_owned(), String::new());
        lines.event((thread(b"sh"), 1_220_000_000), None, beyond);
        lines.finish(u64::MAX);
        lines.text
    }

    #[test]
    fn the_lines_are_as_recorded() {
        insta::assert_snapshot!(lines(None, false));
    }

    #[test]
    fn only_what_was_asked_for_is_shown() {
        assert_eq!(
            lines(Some(Duration::from_millis(1)), false).lines().count(),
            5,
            "two calls, the page fault with its call chain, and the tracepoint"
        );
        assert_eq!(lines(Some(Duration::from_millis(80)), false).lines().count(), 4);
        assert_eq!(lines(None, true).lines().count(), 5);
    }
}
