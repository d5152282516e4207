//! Symbols: the names of the functions of frames.
//!
//! ```text
//! Frame::Kernel ─► /proc/kallsyms, Ksymbol records ────────────────┐
//! Frame::File ───► .symtab, .dynsym, or those of a debug file ─────┼► Named
//! Frame::Memory ─► jit-PID.dump, /tmp/perf-PID.map ────────────────┤
//! Frame::Nowhere, Frame::Truncation ──────────────────────────────────────┘
//! ```
//!
//! Every frame gets a result: names, or a replacement text and a [`Reason`] that is counted.
//!
//! [`Lines`] adds the contents of debug information (DWARF): source lines and inlined functions. It has a separate lock, because it takes
//! longer than symbolization.
//!
//! Files are read, never mapped, because another process may truncate them. Debug files are found by build id and by `.gnu_debuglink`; a
//! stripped file may contain compressed symbols (`.gnu_debugdata`).

mod account;
mod cache;
mod demangle;
mod dwarf;
mod files;
mod find_file;
mod follow;
mod functions;
mod hash;
mod identity;
mod jit;
mod jitdump;
mod kernel;
mod lines;
mod objects;
mod perfmap;
mod regions;
mod source;
mod spans;
mod texts;
mod work;

#[cfg(test)]
mod tests;

pub use account::{Accounts, Reason};
pub(crate) use find_file::{FileIdentity, FileMissing, find_file};
pub use functions::{SourceFunction, SourceType, SourceVariable, ValueKind, source_functions, source_lines};
pub use hash::FileHash;
pub use lines::{LineAccounts, LineReason, Lines};
pub(crate) use objects::{Object, kernel_objects, objects};

use std::sync::Arc;
use std::time::Duration;

use self::files::FileNames;
use self::jit::{Jits, Losses};
use self::kernel::Kernel;
use self::spans::{Answer, Name, Space, Spans};
use crate::clock::{Clock, Monotonic};
use crate::error::printable;
use crate::files::Files;
use crate::named_enum::named_enum;
use crate::ring::Ksymbol;
use crate::stack::{BuildId, Code, Frame, ModuleId, Process, ProcessId};

/// A symbolized frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The kind of code.
    pub origin: Origin,
    /// The functions at the address, innermost first: all but the last were inlined into the next. Empty if there is no symbol.
    pub lines: Box<[NamedLine]>,
    /// The text to show instead of a function: `libc.so.6+0x2a1c0`, `[unmapped] 0x7f…`. Present if `lines` is empty.
    pub unknown: Option<Arc<str>>,
    /// Why there is no symbol; `None` for the end of a truncated stack, which is not a function.
    pub reason: Option<Reason>,
    /// The segment that contains the address; `None` if it belongs neither to a file nor to the kernel.
    pub segment: Option<Arc<Segment>>,
    /// The address: relative to the file according to its headers, or the kernel or process address where there is no file. 0 for the end
    /// of a truncated stack.
    pub address: u64,
    /// The first address and the end address (exclusive) of the function that contains it, if the symbol is from a table of the kernel or
    /// of a file.
    pub function: Option<(u64, u64)>,
}

named_enum! {
    /// A kind of code.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Origin {
        /// The kernel and its modules.
        Kernel = "kernel",
        /// A compiled file.
        Native = "native",
        /// Generated at run time, for example by node or Java.
        Jit = "jit",
        /// Unknown, or not code: the end of a truncated stack.
        Unknown = "unknown",
    }
}

/// A function and a line in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedLine {
    /// The demangled name.
    pub name: Arc<str>,
    /// The linkage name.
    pub linkage: Arc<str>,
    /// Its source file, if known.
    pub file: Option<Arc<str>>,
    /// From 1; 0 if unknown.
    pub line: u32,
}

/// An executable segment of a file, or the kernel or a module of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    /// The first address, relative to the file according to its own headers.
    pub start: u64,
    /// The end address (exclusive).
    pub limit: u64,
    /// The offset of its start in the file, in bytes.
    pub offset: u64,
    /// The path: `/usr/lib/libc.so.6`, `[kernel.kallsyms]`, `[nf_conntrack]`, `[vdso]`.
    pub path: Arc<str>,
    /// The build id of the file.
    pub build_id: Option<BuildId>,
    /// The build id of Go's linker (`.note.go.buildid`); `None` for a file that is not written in Go.
    pub go_build_id: Option<Arc<str>>,
    /// The hash of its contents; `None` if there is no file, or the file was no longer open.
    pub hash: Option<FileHash>,
    /// Whether it has a symbol table.
    pub named: bool,
}

/// The limits of a [`Symbolizer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Memory in bytes. The kernel, functions generated at run time, and found symbols get at most a quarter each. Function lists of files
    /// get the rest. Below 8 MiB, large kernels have no symbols ([`Reason::TooLarge`]), and symbol tables of files are read repeatedly.
    /// While the kernel's list is read, it takes four times its share. Reading a symbol table of a file takes 2 MiB more.
    pub memory: usize,
    /// How long to assume that nothing has changed: no kernel module was loaded, no function was generated at run time.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory: 16 << 20, refresh: Duration::from_secs(2) }
    }
}

/// The approximate memory of a [`Symbolizer`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    /// The list of kernel functions.
    pub kernel: usize,
    /// Function lists of files, and further state of files.
    pub files: usize,
    /// Functions generated at run time.
    pub jits: usize,
    /// Found symbols.
    pub names: usize,
}

impl MemoryUsage {
    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.kernel + self.files + self.jits + self.names
    }
}

/// Unused symbols are dropped after once to twice this time.
const AGE: Duration = Duration::from_secs(150);

/// Symbolizes frames. Caches what it has read within a memory limit.
#[derive(Debug)]
pub struct Symbolizer {
    opener: Files,
    clock: Clock,
    options: Options,
    kernel: Kernel,
    files: FileNames,
    jits: Jits,
    /// Symbols of the kernel and of files.
    names: Spans,
    /// When unused symbols were last dropped.
    aged: Monotonic,
    /// Whether a kernel record arrived, so that cached symbols of the kernel may be wrong.
    kernel_changed: bool,
    accounts: Accounts,
}

impl Symbolizer {
    /// Creates a symbolizer that has read nothing yet.
    pub fn new(files: impl Into<Files>, clock: Clock, options: Options) -> Self {
        let quarter = options.memory / 4;
        Self {
            opener: files.into(),
            kernel: Kernel::new(quarter),
            files: FileNames::new(options.memory - 2 * quarter),
            jits: Jits::new(quarter),
            names: Spans::new(quarter),
            aged: clock.monotonic(),
            kernel_changed: false,
            accounts: Accounts::default(),
            clock,
            options,
        }
    }

    /// Changes the memory limit, in bytes. Data above it is dropped at once.
    pub fn set_limit(&mut self, bytes: usize) {
        if bytes == self.options.memory {
            return;
        }
        self.options.memory = bytes;
        let quarter = bytes / 4;
        self.kernel.set_limit(quarter);
        self.jits.set_limit(quarter);
        self.names.set_limit(quarter);
        // A table that was too large may fit now.
        self.names.retain(|_, (_, answer)| answer.name != Err(Reason::TooLarge));
        self.share();
    }

    /// Files get the unused part of the kernel's quarter.
    fn share(&mut self) {
        let quarter = self.options.memory / 4;
        let rest = self.options.memory.saturating_sub(2 * quarter);
        if self.files.set_limit(rest.saturating_sub(self.kernel.bytes())) {
            self.names.retain(|&(space, _), _| self.files.answers_for(space));
        }
    }

    /// Symbolizes each frame. Returns one result per frame, in their order. A symbol table is read when an address in it is first looked
    /// up. The rate is limited to 1 GiB at once and 64 MiB a second on average ([`Reason::Postponed`]). Reading the kernel's list takes 0.1
    /// s. Files are open only during the call.
    pub fn resolve(&mut self, frames: &[Frame], code: &Code) -> Vec<Arc<Named>> {
        self.prepare(frames, code);
        // Frames of one file are looked up together, so that no file is read twice with little memory.
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_unstable_by_key(|&place| frames.get(place));
        let mut answers: Vec<Option<Arc<Named>>> = vec![None; frames.len()];
        for place in order {
            if let (Some(frame), Some(answer)) = (frames.get(place), answers.get_mut(place)) {
                let named = self.name(*frame, code);
                match frame {
                    Frame::Truncation(_) => self.accounts.cut += 1,
                    _ => self.accounts.count(named.reason),
                }
                *answer = Some(named);
            }
        }
        self.files.finish();
        // The order contains each index.
        answers.into_iter().flatten().collect()
    }

    /// Looks up the names of frames in files, so that [`resolve`](Self::resolve) knows them when the files can no longer be read. Names that
    /// are looked up more often than every 150 s are kept, memory permitting. These frames are not counted in [`accounts`](Self::accounts).
    /// Other frames need no file: the kernel's list can be read at any time, and functions of a process are kept as a whole.
    pub fn keep(&mut self, frames: &[Frame], code: &Code) {
        let in_files = |frame: &&Frame| matches!(frame, Frame::File { .. });
        let mut frames: Vec<Frame> = frames.iter().filter(in_files).copied().collect();
        frames.sort_unstable();
        self.prepare(&frames, code);
        for frame in frames {
            if let Frame::File { module, offset } = frame {
                self.files.find(module, offset, code, &self.opener, &mut self.names);
            }
        }
        self.files.finish();
    }

    /// Registers that the kernel added or removed a function: a BPF program or a trampoline.
    pub fn apply_ksymbol(&mut self, symbol: &Ksymbol<'_>) {
        self.accounts.dropped += u64::from(!self.kernel.apply_ksymbol(symbol));
        self.kernel_changed = true;
    }

    /// Opens and reads the JIT symbol files of a process. Call this when a frame in its memory is first sampled: after its exit, its files
    /// can no longer be found.
    pub fn notice(&mut self, process: ProcessId, code: &Code) {
        let now = self.clock.monotonic();
        let losses = self.jits.look(process, code, &self.opener, now, self.options.refresh);
        self.lose(losses);
    }

    /// Registers that a process has exited or executes another program. The rest of its files is read. No file of a later process with the
    /// same process ID is opened.
    pub fn end(&mut self, process: ProcessId) {
        let losses = self.jits.end(process, self.clock.monotonic());
        self.lose(losses);
    }

    /// Drops the functions of a process whose number will be reused: no frame refers to it any more.
    pub fn forget(&mut self, id: ProcessId, process: &Process) {
        self.jits.forget(id, process);
    }

    /// Returns the number of frames with symbols, and the reasons for frames without.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Returns the memory in use, by parts.
    pub fn held(&self) -> MemoryUsage {
        MemoryUsage {
            kernel: self.kernel.bytes(),
            files: self.files.bytes(),
            jits: self.jits.bytes(),
            names: self.names.bytes(),
        }
    }

    /// Returns the approximate memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.held().total()
    }

    /// Reads data that the frames need and that may have changed.
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
        if is_read || self.kernel_changed {
            self.names.retain(|&(space, _), _| space != Space::Kernel);
            self.kernel_changed = false;
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
            Frame::Truncation(cut) => {
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
        let function = name.as_ref().ok().map(Name::function);
        let line = name.map(|name| name.line());
        let named = Named::of(Origin::Kernel, address, line, || format!("[kernel] {address:#x}"));
        Named { segment, function, ..named }
    }

    fn name_in_file(&mut self, module: ModuleId, offset: u64, code: &Code) -> Named {
        let Some(found) = self.files.find(module, offset, code, &self.opener, &mut self.names) else {
            // The frame refers to a file that is not in `code`.
            let text = format!("[unknown file]+{offset:#x}");
            return Named::unknown(Origin::Unknown, offset, text, Some(Reason::NoFile));
        };
        let (address, segment) = (found.address, found.segment);
        let function = found.name.as_ref().ok().map(Name::function);
        let line = found.name.map(|name| name.line());
        let named = Named::of(Origin::Native, address, line, || place_in(&segment.path, address));
        Named { segment: Some(segment), function, ..named }
    }

    fn name_in_memory(&mut self, process: ProcessId, address: u64, code: &Code) -> Named {
        self.notice(process, code);
        let line = self.jits.find(process, address);
        Named::of(Origin::Jit, address, line, || format!("[anon] {address:#x}"))
    }
}

impl Named {
    /// Creates a result with a name, or with a replacement text.
    fn of(
        origin: Origin,
        address: u64,
        line: Result<NamedLine, Reason>,
        text: impl FnOnce() -> String,
    ) -> Self {
        match line {
            Ok(line) => {
                let lines = Box::new([line]);
                Self { lines, unknown: None, reason: None, origin, segment: None, address, function: None }
            }
            Err(reason) => Self::unknown(origin, address, text(), Some(reason)),
        }
    }

    fn unknown(origin: Origin, address: u64, text: String, reason: Option<Reason>) -> Self {
        let unknown = Some(text.into());
        Self { origin, lines: Box::new([]), unknown, reason, segment: None, address, function: None }
    }
}

/// Returns `libfoo.so+0x1234`: a location in a file, by its address according to the headers, as `addr2line` expects it.
pub(crate) fn place_in(path: &str, address: u64) -> String {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path);
    format!("{}+{address:#x}", printable(name))
}
