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
mod texts;

#[cfg(test)]
mod tests;

pub use account::{Accounts, Reason};
pub use hash::FileHash;
pub use lines::{LineAccounts, LineReason, Lines};

use std::sync::Arc;
use std::time::Duration;

use self::cache::Cache;
use self::files::Files;
use self::jit::{Jits, Losses};
use self::kernel::Kernel;
use crate::clock::Clock;
use crate::error::printable;
use crate::host::Roots;
use crate::probe::kallsyms::KallsymsError;
use crate::ring::Ksymbol;
use crate::stack::{BuildId, Code, Frame, ModuleId, ProcessId};

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

/// Whose code something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The kernel and its modules.
    Kernel,
    /// A file that was compiled.
    Native,
    /// Made at run time, by node, Java and their kin.
    Jit,
    /// Nobody knows, or it is no code: where a stack was cut off.
    Unknown,
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
    /// Memory, in bytes: a quarter for answers, a quarter for tables of files, a quarter for functions that were made at
    /// run time, a quarter for the kernel. Below 32 MiB, large kernels and programs lose their names
    /// ([`Reason::TooLarge`]). While a table is read, it takes up to twice its
    /// size.
    pub memory: usize,
    /// How long it is believed that nothing has changed: no module of the kernel was loaded, no function was made at run
    /// time.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory: 64 << 20, refresh: Duration::from_secs(2) }
    }
}

/// Finds the names of frames. Keeps what it has read within a limit of memory.
#[derive(Debug)]
pub struct Symbolizer {
    roots: Roots,
    clock: Clock,
    options: Options,
    kernel: Kernel,
    files: Files,
    jits: Jits,
    /// Answers for frames of the kernel and of files.
    answers: Cache<Frame, Arc<Named>>,
    /// Whether the kernel told of something, so that answers for its frames may be wrong.
    heard: bool,
    accounts: Accounts,
}

impl Symbolizer {
    /// One that has read nothing yet.
    pub fn new(roots: &Roots, clock: Clock, options: Options) -> Self {
        let quarter = options.memory / 4;
        Self {
            roots: roots.clone(),
            clock,
            kernel: Kernel::new(quarter),
            files: Files::new(quarter, quarter / 2),
            jits: Jits::new(quarter),
            answers: Cache::new(quarter / 2),
            heard: false,
            accounts: Accounts::default(),
            options,
        }
    }

    /// Names each frame: one answer per frame, in their order. A file is read when a frame in it is seen first, which
    /// takes 1.6 MB for 100 000 functions and, without optimisation, 0.3 s; the kernel's list takes 5 MB and 0.1 s.
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
        let losses = self.jits.look(process, code, &self.roots, now, self.options.refresh);
        self.lose(losses);
    }

    /// Says that a process has ended or executes another program: what it told last is read, and nobody else is asked
    /// who gets its number.
    pub fn end(&mut self, process: ProcessId) {
        let losses = self.jits.end(process, self.clock.monotonic());
        self.lose(losses);
    }

    /// Sets how much memory functions that were made at run time may take, in bytes, and keeps it at once.
    pub fn set_generated_limit(&mut self, bytes: usize) {
        self.jits.set_limit(bytes);
    }

    /// How many frames have names, and why the others have none.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Why the kernel's functions have no names, and what would help.
    pub fn kernel_refusal(&self) -> Option<&KallsymsError> {
        self.kernel.refusal()
    }

    /// How much memory is held, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        self.kernel.bytes() + self.files.bytes() + self.jits.bytes() + self.answers.bytes()
    }

    /// Reads what the frames need that may have changed.
    fn prepare(&mut self, frames: &[Frame], code: &Code) {
        let now = self.clock.monotonic();
        if self.files.check(code) {
            self.answers.retain(|frame| matches!(frame, Frame::Kernel(_)));
        }
        let kernel = frames.iter().filter_map(|frame| match frame {
            Frame::Kernel(address) => Some(*address),
            _ => None,
        });
        if self.kernel.prepare(&self.roots, now, self.options.refresh, kernel) || self.heard {
            self.answers.retain(|frame| !matches!(frame, Frame::Kernel(_)));
            self.heard = false;
        }
    }

    fn lose(&mut self, losses: Losses) {
        self.accounts.malformed += losses.malformed;
        self.accounts.dropped += losses.dropped;
    }

    fn name(&mut self, frame: Frame, code: &Code) -> Arc<Named> {
        match frame {
            Frame::Kernel(address) => self.kept(frame, |own| own.name_in_kernel(address)),
            Frame::File { module, offset } => self.kept(frame, |own| own.name_in_file(module, offset, code)),
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

    /// The answer from before, or a new one.
    fn kept(&mut self, frame: Frame, find: impl FnOnce(&mut Self) -> Named) -> Arc<Named> {
        if let Some(named) = self.answers.get(&frame) {
            return named;
        }
        let named = Arc::new(find(self));
        let text = named.unknown.as_ref().map_or(0, |text| text.len());
        let held = size_of::<Named>() + named.lines.len() * size_of::<NamedLine>() + text + 32;
        self.answers.insert(frame, Arc::clone(&named), held);
        named
    }

    fn name_in_kernel(&mut self, address: u64) -> Named {
        match self.kernel.find(address) {
            Ok(found) => {
                Named { segment: found.segment, ..Named::known(Origin::Kernel, address, found.line) }
            }
            Err(reason) => {
                Named::unknown(Origin::Kernel, address, format!("[kernel] {address:#x}"), Some(reason))
            }
        }
    }

    fn name_in_file(&mut self, module: ModuleId, offset: u64, code: &Code) -> Named {
        let Some(found) = self.files.find(module, offset, code, &self.roots) else {
            // Somebody asks for a file that is not among those that were given.
            let text = format!("[unknown file]+{offset:#x}");
            return Named::unknown(Origin::Unknown, offset, text, Some(Reason::NoFile));
        };
        let (address, segment) = (found.address, Some(Arc::clone(&found.segment)));
        let named = match found.line {
            Ok(line) => Named::known(Origin::Native, address, line),
            Err(reason) => {
                let text = place_in(&found.segment.path, address);
                Named::unknown(Origin::Native, address, text, Some(reason))
            }
        };
        Named { segment, ..named }
    }

    fn name_in_memory(&mut self, process: ProcessId, address: u64, code: &Code) -> Named {
        self.notice(process, code);
        match self.jits.find(process, address) {
            Ok(line) => Named::known(Origin::Jit, address, line),
            Err(reason) => Named::unknown(Origin::Jit, address, format!("[anon] {address:#x}"), Some(reason)),
        }
    }
}

impl Named {
    fn known(origin: Origin, address: u64, line: NamedLine) -> Self {
        Self { origin, lines: Box::new([line]), unknown: None, reason: None, segment: None, address }
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
