//! Turns records into stacks.

use std::sync::Arc;

use super::account::{Accounts, Loss};
use super::chain::{Chain, places, splice};
use super::library::{Library, UNKNOWN_PROCESS};
use super::map::{Map, MappedContent};
use super::space::{Spaces, is_unknown_process};
use super::stacks::{FULL, FrameId};
use super::tables::Tables;
use super::unwind::Subject;
use super::{Code, Frame, Limits, ModuleId, ProcessId, Remap, StackId, Stacks, Truncation, Unwind};
use crate::files::Files;
use crate::host;
use crate::ring::{Record, Sample};

/// The most addresses that the kernel writes, unless `kernel.perf_event_max_stack` differs.
const MAX_STACK: u64 = 127;
/// The fewest and the most cached places: powers of two.
const CACHE_SIZES: (usize, usize) = (1 << 12, 1 << 16);
/// The address space of the kernel.
const KERNEL_SPACE: u64 = 0;
/// The address space of processes that are not visible in this PID namespace.
const NO_SPACE: u64 = 1;

/// The result of analyzing a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnalyzedSample {
    /// The call stack.
    pub stack: StackId,
    /// The process of the sample. The idle task, and processes outside our PID namespace, have process number 0.
    pub process: ProcessId,
    /// Whether the task was in the kernel, for itself or for its process.
    pub kernel: bool,
    /// The reason why the stack is truncated.
    pub cut: Option<Truncation>,
}

/// The result of [`Analyzer::retain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    /// The new numbers of stacks.
    pub stacks: Remap,
    /// Dropped files. Their numbers will be reused: discard all state that is keyed by them.
    pub modules: Vec<ModuleId>,
    /// Dropped processes, as for files.
    pub processes: Vec<ProcessId>,
}

/// Turns records, in the order of their times, into stacks.
#[derive(Debug)]
pub struct Analyzer {
    max_stack: usize,
    depth: usize,
    spaces: Spaces,
    library: Library,
    tables: Tables,
    stacks: Stacks,
    places: Places,
    /// The most bytes of stacks and places together.
    stack_memory: usize,
    // Buffers that each sample reuses.
    chain: Chain,
    user: Vec<u64>,
    frames: Vec<FrameId>,
}

impl Analyzer {
    /// Creates an analyzer without any state. Reads `kernel.perf_event_max_stack`.
    ///
    /// Reading other users' processes requires `CAP_SYS_PTRACE`, opening deleted files `CAP_CHECKPOINT_RESTORE`. Without them stacks
    /// contain addresses instead of file offsets.
    pub fn new(files: impl Into<Files>, limits: Limits) -> Self {
        let files = files.into();
        let max_stack = host::read_number(&files.roots().proc.join("sys/kernel/perf_event_max_stack"));
        Self {
            max_stack: usize::try_from(max_stack.unwrap_or(MAX_STACK)).unwrap_or(usize::MAX),
            depth: limits.depth,
            spaces: Spaces::new(&files, limits),
            library: Library::new(&files, limits.modules, limits.files),
            tables: Tables::new(limits.unwind_bytes),
            stacks: Stacks::new(limits.stacks),
            places: Places::within(limits.stacks.bytes),
            stack_memory: limits.stacks.bytes,
            chain: Chain::default(),
            user: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Updates the state of processes from a record. Samples have no effect here; pass them to [`Self::stack`].
    pub fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Mmap(mmap) => self.spaces.mmap(mmap, &mut self.library),
            Record::Fork(task) => self.spaces.fork(task, &mut self.library),
            Record::Exit(task) => self.spaces.exit(task),
            Record::Comm(comm) => self.spaces.comm(comm, &mut self.library),
            Record::Lost { .. } => self.spaces.records_lost(),
            _ => {}
        }
    }

    /// Reports a loss of records without a [`Record::Lost`]. The state of each process is read again when it is needed next. This happens
    /// at most once every 1024 samples.
    pub fn records_lost(&mut self) {
        self.spaces.records_lost();
    }

    /// Returns the stack of a sample. Pass all records that were written before it to [`Self::apply_record`] first.
    pub fn stack(&mut self, sample: &Sample<'_>, unwind: Unwind) -> AnalyzedSample {
        self.chain.take(sample, self.max_stack);
        let copy = sample.user.filter(|user| unwind != Unwind::FramePointers && !user.bytes.is_empty());
        let Self { spaces, library, chain, .. } = self;
        spaces.tick();
        library.tick(sample.time);
        let mapped = copy.is_some() || !chain.user.is_empty();
        let (serial, process, map) = if is_unknown_process(sample.pid) {
            (NO_SPACE, UNKNOWN_PROCESS, None)
        } else {
            let space = spaces.of((sample.pid, sample.tid), mapped, library);
            (space.serial, space.process(sample.pid, library), Some(&*space.map))
        };
        self.user.clear();
        let mut cut = chain.cut();
        match (copy, map) {
            (Some(copy), Some(map)) => {
                let subject = Subject { pid: sample.pid, map, user: &copy, depth: self.depth };
                let unwound = subject.walk(&mut self.tables, library, &mut self.user);
                // If the chain was truncated in its kernel part, the stack is truncated, however far the user part was unwound.
                cut = cut.filter(|_| chain.user.is_empty() && !chain.kernel.is_empty());
                if unwound.is_some() {
                    let helped = unwind == Unwind::Auto && splice(&mut self.user, &chain.user, self.depth);
                    cut = if helped { chain.cut() } else { unwound };
                }
            }
            _ => self.user.extend(&chain.user),
        }
        let owner = Owner { pid: sample.pid, process, map };
        let (mut full, frames) = (false, &mut self.frames);
        frames.clear();
        let (stacks, known) = (&mut self.stacks, &mut self.places);
        let mut push = |space: u64, address: u64, frame: &mut dyn FnMut() -> Frame| match known
            .find(space, address)
            .or_else(|| known.keep(space, address, stacks.frame(frame())))
        {
            Some(found) => frames.push(found),
            None => full = true,
        };
        for address in places(&chain.kernel) {
            push(KERNEL_SPACE, address, &mut || Frame::Kernel(address));
        }
        for address in places(&self.user) {
            push(serial, address, &mut || owner.frame(address, library));
        }
        if self.frames.is_empty() && !full {
            library.accounts.lose(Loss::NoStack);
        }
        if let Some(cut) = cut {
            match self.stacks.frame(Frame::Truncation(cut)) {
                Some(frame) => self.frames.push(frame),
                None => full = true,
            }
        }
        let stack = if full { FULL } else { self.stacks.intern(&self.frames) };
        let cut = if stack == FULL { Some(Truncation::Full) } else { cut };
        self.library.accounts.take(cut);
        AnalyzedSample { stack, process, kernel: !self.chain.kernel.is_empty(), cut }
    }

    /// Drops all stacks except `stacks`, and all files and processes that neither these stacks nor running processes refer to, except
    /// `processes`. All numbers of stacks change. Numbers of dropped files and processes will be reused. Takes time proportional to the
    /// number of entries.
    pub fn retain(
        &mut self,
        stacks: impl IntoIterator<Item = StackId>,
        processes: impl IntoIterator<Item = ProcessId>,
    ) -> Retained {
        let stacks = self.stacks.retain(stacks);
        self.places = Places::within(self.stack_memory);
        self.spaces.drop_all_exited();
        let (mut modules, mut owners) = (Vec::new(), Vec::new());
        processes.into_iter().for_each(|process| mark(&mut owners, process.0));
        self.stacks.each_owner(|module| mark(&mut modules, module.0), |process| mark(&mut owners, process.0));
        self.spaces.each(|process, map: &Arc<Map>| {
            process.into_iter().for_each(|process| mark(&mut owners, process.0));
            for mapping in map.iter() {
                if let MappedContent::File { module, .. } = mapping.content {
                    mark(&mut modules, module.0);
                }
            }
        });
        let (modules, processes) = self.library.retain(&modules, &mut owners);
        modules.iter().for_each(|&module| self.tables.forget(module));
        Retained { stacks, modules, processes }
    }

    /// Returns the files and processes that frames refer to.
    pub fn code(&self) -> &Code {
        &self.library.code
    }

    /// Returns the stacks.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Returns the counters of missing data.
    pub fn accounts(&self) -> &Accounts {
        &self.library.accounts
    }

    /// Sets the minimum time for which files are held open after the last sample of their code, in nanoseconds.
    pub fn keep_open_for(&mut self, window: u64) {
        self.library.keep_open_for(window);
    }

    /// Returns the number of known processes.
    pub fn processes(&self) -> usize {
        self.spaces.len()
    }

    /// Limits stacks to `stacks` bytes and unwind tables to `unwind` bytes from now on.
    pub fn set_memory(&mut self, stacks: u64, unwind: u64) {
        self.stack_memory = usize::try_from(stacks).unwrap_or(usize::MAX);
        self.stacks.set_memory(self.stack_memory.saturating_sub(self.places.bytes()));
        self.tables.set_limit(unwind);
    }

    /// Clears the caches of unwind tables and frees their memory. Entries are read again when needed.
    pub fn clear_caches(&mut self) {
        self.tables.clear_caches();
    }

    /// Returns the bytes of stacks.
    pub fn stack_bytes(&self) -> usize {
        self.stacks.memory() + self.places.bytes()
    }

    /// Returns the bytes of unwind information.
    pub fn unwind_bytes(&self) -> u64 {
        self.tables.bytes()
    }
}

fn mark(marks: &mut Vec<bool>, number: u32) {
    let place = number as usize;
    if marks.len() <= place {
        marks.resize(place + 1, false);
    }
    marks[place] = true;
}

/// The process whose addresses are looked up.
struct Owner<'a> {
    pid: u32,
    process: ProcessId,
    map: Option<&'a Map>,
}

impl Owner<'_> {
    #[cold]
    fn frame(&self, address: u64, library: &mut Library) -> Frame {
        let Some(mapping) = self.map.and_then(|map| map.find(address)) else {
            return Frame::Nowhere(address);
        };
        match mapping.content {
            MappedContent::File { module, offset } => {
                library.touch(module, (self.pid, mapping.start, mapping.end));
                Frame::File { module, offset: offset.wrapping_add(address - mapping.start) }
            }
            MappedContent::Memory => Frame::Memory { process: self.process, address },
        }
    }
}

/// A direct-mapped cache of the frames of recently used addresses. Each address has one slot; a new entry replaces the old one.
#[derive(Debug)]
struct Places(Box<[Place]>);

#[derive(Debug, Clone, Copy)]
struct Place {
    space: u64,
    address: u64,
    frame: Option<FrameId>,
}

impl Places {
    /// Creates a cache that takes about a sixteenth of `bytes`, within [`CACHE_SIZES`].
    fn within(bytes: usize) -> Self {
        let (fewest, most) = CACHE_SIZES;
        let number = 1 << (bytes / 16 / size_of::<Place>()).clamp(fewest, most).ilog2();
        Self(vec![Place { space: 0, address: 0, frame: None }; number].into_boxed_slice())
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn slot(&mut self, space: u64, address: u64) -> &mut Place {
        let mixed = (address ^ space.rotate_right(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The number is below the number of places, which is a power of two.
        &mut self.0[(mixed >> (u64::BITS - self.0.len().trailing_zeros())) as usize]
    }

    #[inline]
    fn find(&mut self, space: u64, address: u64) -> Option<FrameId> {
        let slot = self.slot(space, address);
        if (slot.space, slot.address) == (space, address) { slot.frame } else { None }
    }

    fn keep(&mut self, space: u64, address: u64, frame: Option<FrameId>) -> Option<FrameId> {
        if frame.is_some() {
            *self.slot(space, address) = Place { space, address, frame };
        }
        frame
    }
}
