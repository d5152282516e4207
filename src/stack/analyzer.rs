//! From records to stacks.

use std::sync::Arc;

use super::account::{Accounts, Loss};
use super::chain::{Chain, places, splice};
use super::library::{Library, NOBODY};
use super::map::{Map, What};
use super::space::{SpaceLimits, Spaces, is_nobody};
use super::stacks::{FULL, FrameId};
use super::tables::Tables;
use super::unwind::Subject;
use super::{Code, Cut, Frame, ModuleId, ProcessId, Remap, StackId, StackLimits, Stacks, Unwind};
use crate::files::Files;
use crate::host;
use crate::ring::{Record, Sample};

/// How many addresses the kernel writes at most, unless `kernel.perf_event_max_stack` says something else.
const MAX_STACK: u64 = 127;
/// The fewest and the most places that are remembered: powers of two.
const REMEMBERED: (usize, usize) = (1 << 12, 1 << 16);
/// The space of the kernel's addresses.
const KERNEL_SPACE: u64 = 0;
/// The space of those whose process we cannot see.
const NO_SPACE: u64 = 1;

/// How much is kept. What is over a limit is counted, and told apart from what is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processes whose mappings are known at a time.
    pub processes: usize,
    /// Executable mappings of one process.
    pub mappings: usize,
    /// The longest `/proc/PID/maps` that is read, in bytes.
    pub maps_bytes: u64,
    /// Files whose code is executed.
    pub modules: usize,
    /// How many of them are held open: descriptors of this process.
    pub files: usize,
    /// What is kept of what files say about unwinding, for all of them together, in bytes. A quarter holds rules, 24 bytes
    /// for each instruction that turns up in stacks; a quarter pages of files; half indexes of files without their own.
    pub unwind_bytes: u64,
    /// Frames that are unwound of one stack.
    pub depth: usize,
    /// Stacks.
    pub stacks: StackLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: 1 << 16,
            mappings: 1 << 16,
            maps_bytes: 16 << 20,
            modules: 1 << 15,
            files: 512,
            unwind_bytes: 12 << 20,
            depth: 512,
            stacks: StackLimits::default(),
        }
    }
}

/// What a sample says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Who called whom.
    pub stack: StackId,
    /// Whose it is. The idle task, and processes that our PID namespace does not have, are a process of number 0.
    pub process: ProcessId,
    /// It was in the kernel, for itself or for the process.
    pub kernel: bool,
    /// Why the stack is not whole.
    pub cut: Option<Cut>,
}

/// What [`Analyzer::retain`] has forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    /// The new numbers of stacks.
    pub stacks: Remap,
    /// Files that are gone. Their numbers will be given to others: whoever remembers something about them must forget it.
    pub modules: Vec<ModuleId>,
    /// Processes that are gone, as for files.
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
    /// What stacks and places together may take, in bytes.
    stack_memory: usize,
    // What the next sample fills again.
    chain: Chain,
    user: Vec<u64>,
    frames: Vec<FrameId>,
}

impl Analyzer {
    /// One that knows nothing yet. Reads `kernel.perf_event_max_stack`.
    ///
    /// To look at processes of others it needs `CAP_SYS_PTRACE`, to open files that were deleted `CAP_CHECKPOINT_RESTORE`;
    /// without them stacks have addresses where they would have places in files.
    pub fn new(files: impl Into<Files>, limits: Limits) -> Self {
        let files = files.into();
        let spaces = SpaceLimits {
            processes: limits.processes.max(1),
            mappings: limits.mappings,
            maps_bytes: limits.maps_bytes,
        };
        let max_stack = host::read_number(&files.roots().proc.join("sys/kernel/perf_event_max_stack"));
        Self {
            max_stack: usize::try_from(max_stack.unwrap_or(MAX_STACK)).unwrap_or(usize::MAX),
            depth: limits.depth,
            spaces: Spaces::new(&files, spaces),
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

    /// Takes note of what a record says about processes. Samples say nothing here; give them to [`Self::stack`].
    pub fn hear(&mut self, record: &Record<'_>) {
        match record {
            Record::Mmap(mmap) => self.spaces.mmap(mmap, &mut self.library),
            Record::Fork(task) => self.spaces.fork(task, &mut self.library),
            Record::Exit(task) => self.spaces.exit(task),
            Record::Comm(comm) => self.spaces.comm(comm, &mut self.library),
            Record::Lost { .. } => self.spaces.distrust(),
            _ => {}
        }
    }

    /// Records were lost in another way than [`Record::Lost`] tells: what is known of each process is read again when it
    /// is needed next. That is not done more often than every thousand samples.
    pub fn distrust(&mut self) {
        self.spaces.distrust();
    }

    /// The stack of a sample. All records that were written before it have been heard.
    pub fn stack(&mut self, sample: &Sample<'_>, unwind: Unwind) -> Taken {
        self.chain.take(sample, self.max_stack);
        let copy = sample.user.filter(|user| unwind != Unwind::FramePointers && !user.bytes.is_empty());
        let Self { spaces, library, chain, .. } = self;
        spaces.tick();
        library.tick(sample.time);
        let mapped = copy.is_some() || !chain.user.is_empty();
        let (serial, process, map) = if is_nobody(sample.pid) {
            (NO_SPACE, NOBODY, None)
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
                // A chain that was cut in the kernel's part is cut, however far the program's was unwound.
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
            match self.stacks.frame(Frame::Cut(cut)) {
                Some(frame) => self.frames.push(frame),
                None => full = true,
            }
        }
        let stack = if full { FULL } else { self.stacks.intern(&self.frames) };
        let cut = if stack == FULL { Some(Cut::Full) } else { cut };
        self.library.accounts.take(cut);
        Taken { stack, process, kernel: !self.chain.kernel.is_empty(), cut }
    }

    /// Forgets all stacks but `stacks`, and files and processes that neither they nor any process that runs have to do
    /// with, but for `processes`. All numbers of stacks change, and those of files and processes that are forgotten will
    /// be given to others. Takes time for all there are.
    pub fn retain(
        &mut self,
        stacks: impl IntoIterator<Item = StackId>,
        processes: impl IntoIterator<Item = ProcessId>,
    ) -> Retained {
        let stacks = self.stacks.retain(stacks);
        self.places = Places::within(self.stack_memory);
        self.spaces.bury_all();
        let (mut modules, mut owners) = (Vec::new(), Vec::new());
        processes.into_iter().for_each(|process| mark(&mut owners, process.0));
        self.stacks.each_owner(|module| mark(&mut modules, module.0), |process| mark(&mut owners, process.0));
        self.spaces.each(|process, map: &Arc<Map>| {
            process.into_iter().for_each(|process| mark(&mut owners, process.0));
            for mapping in map.iter() {
                if let What::File { module, .. } = mapping.what {
                    mark(&mut modules, module.0);
                }
            }
        });
        let (modules, processes) = self.library.retain(&modules, &mut owners);
        modules.iter().for_each(|&module| self.tables.forget(module));
        Retained { stacks, modules, processes }
    }

    /// The files and processes that frames tell of.
    pub fn code(&self) -> &Code {
        &self.library.code
    }

    /// The stacks.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// What could not be had, and why.
    pub fn accounts(&self) -> &Accounts {
        &self.library.accounts
    }

    /// Files are held open for at least so many nanoseconds after the last sample of their code.
    pub fn keep_open_for(&mut self, window: u64) {
        self.library.keep_open_for(window);
    }

    /// How many files are held open.
    pub fn open_files(&self) -> usize {
        self.library.held()
    }

    /// How many processes are known.
    pub fn processes(&self) -> usize {
        self.spaces.len()
    }

    /// Stacks hold at most `stacks` bytes from now on, and unwind tables `unwind`.
    pub fn set_memory(&mut self, stacks: u64, unwind: u64) {
        self.stack_memory = usize::try_from(stacks).unwrap_or(usize::MAX);
        self.stacks.set_memory(self.stack_memory.saturating_sub(self.places.bytes()));
        self.tables.set_limit(unwind);
    }

    /// Drops what is cached of unwind tables, and frees its memory. It is read again when it is needed.
    pub fn clear_caches(&mut self) {
        self.tables.clear_caches();
    }

    /// How many bytes stacks take.
    pub fn stack_bytes(&self) -> usize {
        self.stacks.memory() + self.places.bytes()
    }

    /// How many bytes are kept of what files say about unwinding.
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

/// Whose addresses are looked up.
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
        match mapping.what {
            What::File { module, offset } => {
                library.touch(module, (self.pid, mapping.start, mapping.end));
                Frame::File { module, offset: offset.wrapping_add(address - mapping.start) }
            }
            What::Memory => Frame::Memory { process: self.process, address },
        }
    }
}

/// The frames of addresses that were looked up lately. Each address has one place where it can be, and whoever was there
/// before gives way.
#[derive(Debug)]
struct Places(Box<[Place]>);

#[derive(Debug, Clone, Copy)]
struct Place {
    space: u64,
    address: u64,
    frame: Option<FrameId>,
}

impl Places {
    /// As many as take a sixteenth of so many bytes.
    fn within(bytes: usize) -> Self {
        let (fewest, most) = REMEMBERED;
        let number = 1 << (bytes / 16 / size_of::<Place>()).clamp(fewest, most).ilog2();
        Self(vec![Place { space: 0, address: 0, frame: None }; number].into_boxed_slice())
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn slot(&mut self, space: u64, address: u64) -> &mut Place {
        let mixed = (address ^ space.rotate_right(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A number below that of places, which is a power of two.
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
