//! Call chains of records, with the functions of the kernel and of programs.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::profiled::Unwind;
use crate::error::printable;
use crate::host::Roots;
use crate::ring::{Record, Sample};
use crate::stack;
use crate::stack::{Analyzer, Frame, Limits, Truncation};
use crate::symbol::{Named, Options, Symbolizer};
use crate::sys::Fields;

/// Width of the space before a function in the lines of perf.
const MARGIN: usize = 38;

/// A function in a call chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct StackFrame {
    /// Its name; `None` if it has no symbol.
    pub(in crate::cli) name: Option<Arc<str>>,
    /// The address of the instruction, or the return address: relative to the file, or of the process where there is no file.
    pub(in crate::cli) address: u64,
    /// The distance of `address` from the start of the function; `None` if the start is unknown.
    pub(in crate::cli) offset: Option<u64>,
    /// The file, `[kernel.kallsyms]` or `[vdso]`; `None` if it is unknown.
    pub(in crate::cli) file: Option<Arc<str>>,
    /// Whether it is code of the kernel.
    pub(in crate::cli) kernel: bool,
}

impl StackFrame {
    fn new(frame: Frame, named: &Named, is_caller: bool) -> Self {
        // The frame of a caller is the last byte of its call.
        let address = named.address + u64::from(is_caller);
        let kernel = matches!(frame, Frame::Kernel(_));
        let segment = named.segment.as_ref().map(|segment| Arc::clone(&segment.path));
        let file = match frame {
            Frame::Memory { .. } => Some("//anon".into()),
            _ => segment.or_else(|| kernel.then(|| "[kernel.kallsyms]".into())),
        };
        let offset = named.function.map(|(start, _)| address.wrapping_sub(start));
        let name = named.lines.last().map(|line| printable(&line.name).into());
        Self { name, address, offset, file: file.map(|file| printable(&file).into()), kernel }
    }

    /// Returns the function and the distance from its start, such as `main+0x1f`. Without a name, the address.
    pub(in crate::cli) fn location(&self) -> String {
        match (&self.name, self.offset) {
            (Some(name), Some(offset)) => format!("{name}+{offset:#x}"),
            (Some(name), None) => name.to_string(),
            (None, _) => format!("{:#x}", self.address),
        }
    }

    /// Returns the function and the file as in the call chains of perf.
    pub(in crate::cli) fn text(&self) -> String {
        let file = self.file.as_deref().unwrap_or("[unknown]");
        match &self.name {
            Some(name) => format!("{name} ({file})"),
            None => format!("[{:#x}] ({file})", self.address),
        }
    }
}

/// Determines call chains, and names their functions while the processes run.
#[derive(Debug)]
pub(in crate::cli) struct CallChains {
    unwind: stack::Unwind,
    /// Maximum number of functions of a call chain.
    depth: usize,
    analyzer: Analyzer,
    symbolizer: Symbolizer,
}

impl CallChains {
    /// Creates the state without any process.
    pub(in crate::cli) fn new(unwind: Unwind, depth: usize, roots: &Roots, clock: &Clock) -> Self {
        let files = crate::cli::files(roots);
        let unwind = match unwind {
            Unwind::Auto { .. } => stack::Unwind::Auto,
            Unwind::Dwarf { .. } => stack::Unwind::Dwarf,
            Unwind::FramePointers | Unwind::Nothing => stack::Unwind::FramePointers,
        };
        let analyzer = Analyzer::new(files.clone(), Limits::default());
        let symbolizer = Symbolizer::new(files, clock.clone(), Options::default());
        Self { unwind, depth, analyzer, symbolizer }
    }

    /// Returns the fields of records with call chains: those of `base`, and what `unwind` needs.
    pub(in crate::cli) fn fields(unwind: Unwind, base: Fields) -> Fields {
        let user_stack = unwind.stack();
        Fields {
            ip: true,
            callchain: true,
            kernel_only: matches!(unwind, Unwind::Dwarf { .. }),
            user_stack,
            width: base.width && user_stack == 0,
            ..base
        }
    }

    /// Notes what a record reports about a process.
    pub(in crate::cli) fn apply_record(&mut self, record: &Record<'_>) {
        self.analyzer.apply_record(record);
    }

    /// Notes that records were lost.
    pub(in crate::cli) fn records_lost(&mut self) {
        self.analyzer.records_lost();
    }

    /// Returns the call chain of a record, innermost first. `kernel`: whether it includes functions of the kernel.
    pub(in crate::cli) fn frames(&mut self, sample: &Sample<'_>, kernel: bool) -> Vec<StackFrame> {
        let mut analyzed = self.analyzer.stack(sample, self.unwind);
        if analyzed.cut == Some(Truncation::Full) {
            self.forget();
            analyzed = self.analyzer.stack(sample, self.unwind);
        }
        let (mut frames, mut innermost) = (Vec::new(), Vec::new());
        let mut before = None;
        for frame in self.analyzer.stacks().frames(analyzed.stack) {
            let part = matches!(frame, Frame::Kernel(_));
            if !matches!(frame, Frame::Truncation(_)) && (kernel || !part) && frames.len() < self.depth {
                frames.push(frame);
                innermost.push(before != Some(part));
            }
            before = Some(part);
        }
        let named = self.symbolizer.resolve(&frames, self.analyzer.code());
        let chain = frames.into_iter().zip(&named).zip(innermost);
        chain.map(|((frame, named), innermost)| StackFrame::new(frame, named, !innermost)).collect()
    }

    /// Returns the function of the instruction of a record.
    pub(in crate::cli) fn instruction(&mut self, sample: &Sample<'_>) -> StackFrame {
        let frames = self.frames(&Sample { callchain: &[], user: None, ..*sample }, true);
        let unknown = StackFrame { name: None, address: sample.ip, offset: None, file: None, kernel: false };
        frames.into_iter().next().unwrap_or(unknown)
    }

    /// Returns the call chain of a record as perf prints it below a line.
    pub(in crate::cli) fn text(&mut self, sample: &Sample<'_>, kernel: bool) -> String {
        let frames = self.frames(sample, kernel);
        frames.iter().map(|frame| format!("{:MARGIN$} {}\n", "", frame.text())).collect()
    }

    /// Drops all stacks, and what belongs to ended processes.
    fn forget(&mut self) {
        let retained = self.analyzer.retain([], []);
        let processes = &self.analyzer.code().processes;
        for id in retained.processes {
            if let Some(process) = processes.get(id.0 as usize) {
                self.symbolizer.forget(id, process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::{NamedLine, Origin, Segment};

    fn named(name: Option<&str>, address: u64) -> Named {
        let line = |name: &str| NamedLine { name: name.into(), linkage: name.into(), file: None, line: 0 };
        Named {
            origin: Origin::Native,
            lines: name.map(line).into_iter().collect(),
            unknown: None,
            reason: None,
            segment: Some(Arc::new(Segment { path: "/usr/bin/x".into(), ..Segment::default() })),
            address,
            function: name.map(|_| (0x1000, 0x2000)),
        }
    }

    #[test]
    fn a_function_is_shown_with_its_file_and_a_caller_by_its_return_address() {
        let frame = Frame::Nowhere(0x1010);
        let innermost = StackFrame::new(frame, &named(Some("main"), 0x1010), false);
        assert_eq!(
            (innermost.location(), innermost.text()),
            ("main+0x10".into(), "main (/usr/bin/x)".into())
        );
        let caller = StackFrame::new(frame, &named(Some("main"), 0x1010), true);
        assert_eq!(caller.location(), "main+0x11");
        let unknown = StackFrame::new(frame, &named(None, 0x1010), true);
        assert_eq!((unknown.location(), unknown.text()), ("0x1011".into(), "[0x1011] (/usr/bin/x)".into()));
        let kernel = Named { segment: None, ..named(Some("schedule"), 0x1010) };
        let kernel = StackFrame::new(Frame::Kernel(0x1010), &kernel, false);
        assert_eq!(kernel.text(), "schedule ([kernel.kallsyms])");
    }

    #[test]
    fn records_have_what_unwinding_needs() {
        let base = Fields { identifier: true, width: true, ..Fields::NONE };
        let dwarf = CallChains::fields(Unwind::Dwarf { stack: 4096 }, base);
        assert_eq!((dwarf.user_stack, dwarf.kernel_only, dwarf.width), (4096, true, false));
        let pointers = CallChains::fields(Unwind::FramePointers, base);
        assert_eq!((pointers.user_stack, pointers.kernel_only, pointers.width), (0, false, true));
        assert!([dwarf, pointers].iter().all(|fields| fields.ip && fields.callchain));
    }
}
