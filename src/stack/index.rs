//! An index of the functions of a file, for files whose own search table is missing or unusable: 8 bytes a function. A dedicated thread
//! builds it, in one bounded pass through the entries.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::ModuleId;
use super::cfi::{Cfi, Entry, Fault};
use super::elf::{Elf, FrameSection, LOADS_LIMIT, Segment};
use super::pages::{Allowance, PAGE, PagedFile, Pages};
use crate::files::Opened;
use crate::host::ReadAt;

/// The largest section that is read, in bytes.
const SECTION_LIMIT: u64 = 64 << 20;
/// The largest `.debug_frame` that is read as a fallback, in bytes.
const DEBUG_FRAME_LIMIT: u64 = 16 << 20;
/// Cached pages during indexing: of headers, names, entries, and of the common entries that they refer to.
const PAGES: u64 = 32;

/// The entries of functions, by the addresses of functions.
pub(super) struct Index {
    section: FrameSection,
    /// The base address of `functions`.
    first: u64,
    /// The start of each function, and the offset of its entry in the section; sorted.
    functions: Box<[(u32, u32)]>,
}

impl Index {
    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.functions) as u64
    }

    /// Returns the offset of the entry of the last function that begins at or before an address.
    pub(super) fn find(&self, address: u64) -> Option<(FrameSection, u64)> {
        let wanted = u32::try_from(address.checked_sub(self.first)?).ok()?;
        let behind = self.functions.partition_point(|&(start, _)| start <= wanted);
        let &(_, at) = self.functions.get(behind.checked_sub(1)?)?;
        Some((self.section, at.into()))
    }
}

/// The result of indexing a file.
pub(super) enum Indexed {
    Done(Box<[Segment]>, Index),
    /// The file has no unwind information.
    Absent,
    Broken,
    /// The index takes at least this many bytes, more than the limit.
    Large(u64),
    /// The content of the file is not available yet.
    Later,
}

/// Indexes a file, in at most `limit` bytes. Takes time proportional to the size of the section.
pub(super) fn index(file: &dyn ReadAt, limit: u64) -> Indexed {
    let (pages, allowance) = (RefCell::new(Pages::new(PAGES * PAGE as u64)), Allowance::new(u64::MAX));
    let file = PagedFile::new(file, 1, &pages, &allowance);
    let absent = |otherwise| if allowance.is_exceeded() { Indexed::Later } else { otherwise };
    let Some(elf) = Elf::read(&file) else { return absent(Indexed::Broken) };
    let Some(section) = elf.frames() else { return absent(Indexed::Absent) };
    if section.size > if section.debug { DEBUG_FRAME_LIMIT } else { SECTION_LIMIT } {
        return Indexed::Large(u64::MAX);
    }
    let loads: Box<[Segment]> = elf.loads().take(LOADS_LIMIT).collect();
    let code = || loads.iter().filter(|load| load.executable);
    // In most files addresses fit into 32 bits.
    let end = code().map(|load| load.address.saturating_add(load.size)).max().unwrap_or(0);
    let small = u32::try_from(end).is_ok();
    let first = if small { 0 } else { code().map(|load| load.address).min().unwrap_or(0) };
    match functions(&file, &section, first, limit) {
        Ok(functions) => Indexed::Done(loads, Index { section, first, functions }),
        Err(indexed) => indexed,
    }
}

/// Reads the start of all functions. Damaged entries are skipped. If no entry is valid, the result is an error.
fn functions(
    file: &dyn ReadAt,
    section: &FrameSection,
    first: u64,
    limit: u64,
) -> Result<Box<[(u32, u32)]>, Indexed> {
    let most = usize::try_from(limit / size_of::<(u32, u32)>() as u64).unwrap_or(usize::MAX);
    let (mut cfi, mut functions, mut broken, mut at) = (Cfi::new(), Vec::new(), false, 0);
    loop {
        let next = match section.entry(file, at) {
            Ok(Entry::End) => break,
            Ok(Entry::Other { next } | Entry::Function { next }) if next > section.size => {
                broken = true;
                break;
            }
            Ok(Entry::Other { next }) => next,
            Ok(Entry::Function { next }) => {
                match cfi.start(file, section, at) {
                    Ok(start) => {
                        let start = start.checked_sub(first).and_then(|start| u32::try_from(start).ok());
                        functions.extend(start.zip(u32::try_from(at).ok()));
                    }
                    Err(Fault::Later) => return Err(Indexed::Later),
                    Err(Fault::Broken) => broken = true,
                }
                next
            }
            Err(Fault::Later) => return Err(Indexed::Later),
            Err(Fault::Broken) => {
                broken = true;
                break;
            }
        };
        if functions.len() > most {
            return Err(Indexed::Large(limit.saturating_add(1)));
        }
        at = next;
    }
    if functions.is_empty() {
        return Err(if broken { Indexed::Broken } else { Indexed::Absent });
    }
    functions.sort_unstable();
    Ok(functions.into_boxed_slice())
}

type IndexRequest = (ModuleId, u32, u64, Arc<Opened>);
/// The result for a file that was requested under a number.
pub(super) type Answered = (ModuleId, u32, Indexed);

/// The thread that indexes files. It ends when this handle is dropped.
pub(super) struct IndexThread {
    requests: Sender<IndexRequest>,
    answers: Receiver<Answered>,
}

impl IndexThread {
    /// Starts the thread. Returns `None` if the thread cannot be created.
    pub(super) fn start() -> Option<Self> {
        let (requests, questions) = channel::<IndexRequest>();
        let (given, answers) = channel();
        let answer = move || {
            for (module, number, limit, opened) in questions {
                if given.send((module, number, index(&opened.file, limit))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("unwind-tables".into()).spawn(answer).ok()?;
        Some(Self { requests, answers })
    }

    /// Queues a file to be indexed, in at most `limit` bytes. Returns whether the thread is running.
    pub(super) fn ask(&self, module: ModuleId, number: u32, limit: u64, file: &Arc<Opened>) -> bool {
        self.requests.send((module, number, limit, Arc::clone(file))).is_ok()
    }

    /// Returns the result for a file, if one is available.
    pub(super) fn answer(&self) -> Option<Answered> {
        self.answers.try_recv().ok()
    }

    /// Waits for the result for a file. Returns `None` if the thread has ended.
    pub(super) fn wait(&self) -> Option<Answered> {
        self.answers.recv().ok()
    }
}
