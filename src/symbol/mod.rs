//! Symbols: what the functions are called that frames are in.
//!
//! ```text
//! Frame::Kernel ─► /proc/kallsyms, Ksymbol records ────────────────┐
//! Frame::File ───► .symtab, .dynsym, or those of a debug file ─────┼► Named
//! Frame::Memory ─► jit-PID.dump, /tmp/perf-PID.map ────────────────┤
//! Frame::Nowhere, Frame::Cut ──────────────────────────────────────┘
//! ```
//!
//! Every frame gets an answer: names, or a text that says what is known instead and a [`Reason`] that is counted.
//!
//! [`Lines`] adds what only debug information tells (DWARF): lines, and functions that were inlined. It is apart, with a
//! lock of its own, for that takes longer than names do.
//!
//! Files are read, never mapped, for somebody may cut them off meanwhile. Debug files are found by build id and by
//! `.gnu_debuglink`; a stripped file may bring names along compressed (`.gnu_debugdata`).

mod account;
mod cache;
mod debug;
mod demangle;
mod dwarf;
mod files;
mod follow;
mod hash;
mod identity;
mod jit;
mod jitdump;
mod kernel;
mod lines;
mod perfmap;
mod regions;
mod source;
mod spans;
mod texts;
mod work;

#[cfg(test)]
mod tests;

pub use account::{Accounts, Reason};
pub use hash::FileHash;
pub use lines::{LineAccounts, LineReason, Lines};

use std::sync::Arc;
use std::time::Duration;

use self::files::FileNames;
use self::jit::{Jits, Losses};
use self::kernel::Kernel;
use self::spans::{Answer, Space, Spans};
use crate::clock::{Clock, Monotonic};
use crate::error::printable;
use crate::files::Files;
use crate::probe::kallsyms::KallsymsError;
use crate::ring::Ksymbol;
use crate::stack::{BuildId, Code, Frame, ModuleId, Process, ProcessId};
use crate::words::words;

/// A frame with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Whose code it is.
    pub origin: Origin,
    /// The functions that are there, innermost first: all but the last were inlined into the next. Empty where none is
    /// known.
    pub lines: Box<[NamedLine]>,
    /// What to show in place of a function: `libc.so.6+0x2a1c0`, `[unmapped] 0x7f…`. There if `lines` is empty.
    pub unknown: Option<Arc<str>>,
    /// Why it has no name; `None` for an end of a stack that was cut off, which is no function.
    pub reason: Option<Reason>,
    /// What it is a part of; `None` where that is no file and not the kernel.
    pub segment: Option<Arc<Segment>>,
    /// The address: as the file's headers count, or as the kernel or process does where there is no file. 0 for where a
    /// stack was cut off.
    pub address: u64,
}

words! {
    /// Whose code something is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Origin {
        /// The kernel and its modules.
        Kernel = "kernel",
        /// A file that was compiled.
        Native = "native",
        /// Made at run time, by node, Java and their kin.
        Jit = "jit",
        /// Nobody knows, or it is no code: where a stack was cut off.
        Unknown = "unknown",
    }
}

/// A function, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedLine {
    /// As its programmers know it, demangled.
    pub name: Arc<str>,
    /// As the linker does.
    pub linkage: Arc<str>,
    /// Its source file, where that is known.
    pub file: Option<Arc<str>>,
    /// From 1; 0 where it is not known.
    pub line: u32,
}

/// A part of a file that is executed, or the kernel or a module of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    /// The first address, as the file's own headers count.
    pub start: u64,
    /// The end, which is not in it.
    pub limit: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The path: `/usr/lib/libc.so.6`, `[kernel.kallsyms]`, `[nf_conntrack]`, `[vdso]`.
    pub path: Arc<str>,
    /// What the linker called the file.
    pub build_id: Option<BuildId>,
    /// What Go's linker called it (`.note.go.buildid`); `None` for what is not written in Go.
    pub go_build_id: Option<Arc<str>>,
    /// What tells its contents from others'; `None` where it is no file, or the file was not open any more.
    pub hash: Option<FileHash>,
    /// Whether its functions have names.
    pub named: bool,
}

/// How much a [`Symbolizer`] may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Memory, in bytes: a quarter for the kernel at most, a quarter for functions that were made at run time, a quarter
    /// for names that were found, and the rest for lists of the functions of files. Below 8 MiB, large kernels lose their
    /// names ([`Reason::TooLarge`]), and tables of files are read again and again. While the kernel's list is read, it
    /// takes four times its share; a table of a file takes 2 MiB then.
    pub memory: usize,
    /// How long it is believed that nothing has changed: no module of the kernel was loaded, no function was made at run
    /// time.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory: 16 << 20, refresh: Duration::from_secs(2) }
    }
}

/// How much memory a [`Symbolizer`] holds, in bytes, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The list of the kernel's functions.
    pub kernel: usize,
    /// Lists of the functions of files, and what else is known of files.
    pub files: usize,
    /// Functions that were made at run time.
    pub jits: usize,
    /// Names that were found.
    pub names: usize,
}

impl Held {
    /// All of it.
    pub fn total(&self) -> usize {
        self.kernel + self.files + self.jits + self.names
    }
}

/// Unused names are dropped after this time at the earliest, and after twice this time at the latest.
const AGE: Duration = Duration::from_secs(150);

/// Finds the names of frames. Keeps what it has read within a limit of memory.
#[derive(Debug)]
pub struct Symbolizer {
    opener: Files,
    clock: Clock,
    options: Options,
    kernel: Kernel,
    files: FileNames,
    jits: Jits,
    /// Names in the kernel and in files.
    names: Spans,
    /// When what was not used was dropped.
    aged: Monotonic,
    /// Whether the kernel told of something, so that answers for its frames may be wrong.
    heard: bool,
    accounts: Accounts,
}

impl Symbolizer {
    /// One that has read nothing yet.
    pub fn new(files: impl Into<Files>, clock: Clock, options: Options) -> Self {
        let quarter = options.memory / 4;
        Self {
            opener: files.into(),
            kernel: Kernel::new(quarter),
            files: FileNames::new(options.memory - 2 * quarter),
            jits: Jits::new(quarter),
            names: Spans::new(quarter),
            aged: clock.monotonic(),
            heard: false,
            accounts: Accounts::default(),
            clock,
            options,
        }
    }

    /// Changes how much memory may be held, in bytes. What is over it is forgotten at once.
    pub fn set_limit(&mut self, bytes: usize) {
        if bytes == self.options.memory {
            return;
        }
        self.options.memory = bytes;
        let quarter = bytes / 4;
        self.kernel.set_limit(quarter);
        self.jits.set_limit(quarter);
        self.names.set_limit(quarter);
        // What was too large may not be any more.
        self.names.retain(|_, (_, answer)| answer.name != Err(Reason::TooLarge));
        self.share();
    }

    /// Files get what the kernel leaves of its quarter.
    fn share(&mut self) {
        let quarter = self.options.memory / 4;
        let rest = self.options.memory.saturating_sub(2 * quarter);
        if self.files.set_limit(rest.saturating_sub(self.kernel.bytes())) {
            self.names.retain(|&(space, _), _| self.files.answers_for(space));
        }
    }

    /// Names each frame: one answer per frame, in their order. Tables of symbols are read when an address in them is asked
    /// for first, at most 1 GiB of them at once and 64 MiB a second in the long run ([`Reason::Postponed`]); the kernel's
    /// list is read in 0.1 s. Files are open in the meantime only.
    pub fn resolve(&mut self, frames: &[Frame], code: &Code) -> Vec<Arc<Named>> {
        self.prepare(frames, code);
        // What is in one file is asked for together, so that none is read twice however little memory there is.
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_unstable_by_key(|&place| frames.get(place));
        let mut answers: Vec<Option<Arc<Named>>> = vec![None; frames.len()];
        for place in order {
            if let (Some(frame), Some(answer)) = (frames.get(place), answers.get_mut(place)) {
                let named = self.name(*frame, code);
                match frame {
                    Frame::Cut(_) => self.accounts.cut += 1,
                    _ => self.accounts.count(named.reason),
                }
                *answer = Some(named);
            }
        }
        self.files.finish();
        // Each place was in the order.
        answers.into_iter().flatten().collect()
    }

    /// Says that the kernel has a function more, or one less: a program of BPF, or what jumps to it.
    pub fn hear(&mut self, symbol: &Ksymbol<'_>) {
        self.accounts.dropped += u64::from(!self.kernel.hear(symbol));
        self.heard = true;
    }

    /// Looks for what a process tells of the code that it makes, and keeps it open. To be called when a frame in its
    /// memory is seen first: when it has ended, its files cannot be found any more.
    pub fn notice(&mut self, process: ProcessId, code: &Code) {
        let now = self.clock.monotonic();
        let losses = self.jits.look(process, code, &self.opener, now, self.options.refresh);
        self.lose(losses);
    }

    /// Says that a process has ended or executes another program: what it told last is read, and nobody else is asked
    /// who gets its number.
    pub fn end(&mut self, process: ProcessId) {
        let losses = self.jits.end(process, self.clock.monotonic());
        self.lose(losses);
    }

    /// Drops the functions of a process whose number will be given to another one: no frame refers to it any more.
    pub fn forget(&mut self, id: ProcessId, process: &Process) {
        self.jits.forget(id, process);
    }

    /// How many frames have names, and why the others have none.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Why the kernel's functions have no names, and what would help.
    pub fn kernel_refusal(&self) -> Option<&KallsymsError> {
        self.kernel.refusal()
    }

    /// How much memory is held, by parts.
    pub fn held(&self) -> Held {
        Held {
            kernel: self.kernel.bytes(),
            files: self.files.bytes(),
            jits: self.jits.bytes(),
            names: self.names.bytes(),
        }
    }

    /// How much memory is held, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        self.held().total()
    }

    /// How many files are held open: those in which processes tell of functions that they make.
    pub fn open_files(&self) -> usize {
        self.files.open() + self.jits.open_files()
    }

    /// Reads what the frames need that may have changed.
    fn prepare(&mut self, frames: &[Frame], code: &Code) {
        let now = self.clock.monotonic();
        let mut gone = self.files.begin(code, now);
        if now.since(self.aged) >= AGE {
            self.aged = now;
            self.names.age();
            gone |= self.files.age();
        }
        if gone {
            let files = &self.files;
            self.names.retain(|&(space, _), _| files.answers_for(space));
        }
        let kernel = frames.iter().filter_map(|frame| match frame {
            Frame::Kernel(address) => Some(*address),
            _ => None,
        });
        let is_read = self.kernel.prepare(self.opener.roots(), now, self.options.refresh, kernel);
        if is_read {
            self.share();
        }
        if is_read || self.heard {
            self.names.retain(|&(space, _), _| space != Space::Kernel);
            self.heard = false;
        }
    }

    fn lose(&mut self, losses: Losses) {
        self.accounts.malformed += losses.malformed;
        self.accounts.dropped += losses.dropped;
    }

    fn name(&mut self, frame: Frame, code: &Code) -> Arc<Named> {
        match frame {
            Frame::Kernel(address) => Arc::new(self.name_in_kernel(address)),
            Frame::File { module, offset } => Arc::new(self.name_in_file(module, offset, code)),
            Frame::Memory { process, address } => Arc::new(self.name_in_memory(process, address, code)),
            Frame::Nowhere(address) => {
                let text = format!("[unmapped] {address:#x}");
                Arc::new(Named::unknown(Origin::Unknown, address, text, Some(Reason::Unmapped)))
            }
            Frame::Cut(cut) => {
                Arc::new(Named::unknown(Origin::Unknown, 0, format!("[truncated: {}]", cut.as_str()), None))
            }
        }
    }

    fn name_in_kernel(&mut self, address: u64) -> Named {
        let Answer { name, segment } = match self.names.find(Space::Kernel, address) {
            Some(answer) => answer,
            None => {
                let (answer, span) = self.kernel.find(address);
                self.names.keep(Space::Kernel, span, answer.clone());
                answer
            }
        };
        let line = name.map(|name| name.line());
        Named { segment, ..Named::of(Origin::Kernel, address, line, || format!("[kernel] {address:#x}")) }
    }

    fn name_in_file(&mut self, module: ModuleId, offset: u64, code: &Code) -> Named {
        let Some(found) = self.files.find(module, offset, code, &self.opener, &mut self.names) else {
            // Somebody asks for a file that is not among those that were given.
            let text = format!("[unknown file]+{offset:#x}");
            return Named::unknown(Origin::Unknown, offset, text, Some(Reason::NoFile));
        };
        let (address, segment) = (found.address, found.segment);
        let line = found.name.map(|name| name.line());
        let named = Named::of(Origin::Native, address, line, || place_in(&segment.path, address));
        Named { segment: Some(segment), ..named }
    }

    fn name_in_memory(&mut self, process: ProcessId, address: u64, code: &Code) -> Named {
        self.notice(process, code);
        let line = self.jits.find(process, address);
        Named::of(Origin::Jit, address, line, || format!("[anon] {address:#x}"))
    }
}

impl Named {
    /// With a name, or else a text that says what is known.
    fn of(
        origin: Origin,
        address: u64,
        line: Result<NamedLine, Reason>,
        text: impl FnOnce() -> String,
    ) -> Self {
        match line {
            Ok(line) => {
                Self { lines: Box::new([line]), unknown: None, reason: None, origin, segment: None, address }
            }
            Err(reason) => Self::unknown(origin, address, text(), Some(reason)),
        }
    }

    fn unknown(origin: Origin, address: u64, text: String, reason: Option<Reason>) -> Self {
        Self { origin, lines: Box::new([]), unknown: Some(text.into()), reason, segment: None, address }
    }
}

/// `libfoo.so+0x1234`: a place in a file, by the address that its headers give it, which `addr2line` takes.
pub(crate) fn place_in(path: &str, address: u64) -> String {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path);
    format!("{}+{address:#x}", printable(name))
}
