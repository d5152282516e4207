//! Address spaces: the executable mappings of each process.
//!
//! Records report changes while the exporter runs: a process maps a file, forks, executes another program, exits. Earlier mappings are read
//! from `/proc/PID/maps` when a sample, or a forked child, first needs them. No record reports unmapping; later mappings replace earlier
//! ones.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::account::Loss;
use super::library::{FileMapping, Library};
use super::map::{Map, MappedContent, Mapping};
use super::maps::{Line, Name};
use super::{Limits, ProcessId};
use crate::error::{Errno, FileError, FileErrorKind};
use crate::files::{Files, Opened, ProcessFile, RootError};
use crate::host;
use crate::ring::{Comm, Mmap, Task};

/// The most exited processes that are kept: further threads may run for a moment after the first thread, whose exit is reported.
const ENDED: usize = 256;
/// The shortest interval, in samples, at which the state of all processes is read again. When records are lost, the load is already high.
pub(super) const MIN_RESYNC_INTERVAL: u64 = 1024;
/// `PROT_READ`
const READABLE: u32 = 1;
/// `PROT_EXEC`
const EXECUTABLE: u32 = 4;

/// The address spaces of all processes.
#[derive(Debug)]
pub(super) struct Spaces {
    files: Files,
    limits: Limits,
    spaces: FxHashMap<u32, Space>,
    /// Exited processes, with the serial number of their space at exit.
    ended: VecDeque<(u32, u64)>,
    serial: u64,
    /// Incremented after records were lost.
    doubt: u32,
    /// The number of samples so far.
    now: u64,
    /// The sample from which on `doubt` may be incremented again.
    doubts_from: u64,
    /// Whether `doubt` must be incremented.
    doubtful: bool,
}

/// The address space of one process.
#[derive(Debug)]
pub(super) struct Space {
    /// A unique number: no other space, and no earlier content of this one, has the same number.
    pub(super) serial: u64,
    process: Option<ProcessId>,
    /// Its mappings.
    pub(super) map: Arc<Map>,
    /// Whether all mappings are known, or cannot be read.
    complete: bool,
    /// The value of [`Spaces::doubt`] when the mappings were read.
    doubt: u32,
    /// Whether there were recent samples.
    used: bool,
}

impl Space {
    /// Returns the number of its process.
    pub(super) fn process(&mut self, pid: u32, library: &mut Library) -> ProcessId {
        *self.process.get_or_insert_with(|| library.add_process(pid))
    }
}

impl Spaces {
    pub(super) fn new(files: &Files, limits: Limits) -> Self {
        Self {
            files: files.clone(),
            limits,
            spaces: FxHashMap::default(),
            ended: VecDeque::new(),
            // 0 is the kernel.
            serial: 1,
            doubt: 0,
            now: 0,
            doubts_from: 0,
            doubtful: false,
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Reports a loss of records. The mappings of each process are read again when needed next, or a little later if they were read just
    /// now.
    pub(super) fn records_lost(&mut self) {
        self.doubtful = true;
    }

    /// Counts a sample.
    pub(super) fn tick(&mut self) {
        self.now += 1;
        if self.doubtful && self.now >= self.doubts_from {
            self.doubtful = false;
            self.doubt = self.doubt.wrapping_add(1);
            self.doubts_from = self.now + MIN_RESYNC_INTERVAL;
        }
    }

    /// Handles a new mapping of a process.
    pub(super) fn mmap(&mut self, mmap: &Mmap<'_>, library: &mut Library) {
        let end = mmap.start.saturating_add(mmap.length);
        if mmap.protection & EXECUTABLE == 0 || is_unknown_process(mmap.pid) || mmap.start >= end {
            return;
        }
        let &Mmap { start, offset, file, path, .. } = mmap;
        let line = Line { start, end, offset, executable: true, file, path: path.into() };
        let serial = self.next_serial();
        let limit = self.limits.mappings;
        let space = self.entry(mmap.pid, false, library);
        space.serial = serial;
        let mapping = mapping(&line, mmap.pid, &mut space.process, library);
        let Some(mapping) = mapping else { return };
        if space.map.len() >= limit {
            library.accounts.lose(Loss::MapsCut);
            return;
        }
        Arc::make_mut(&mut space.map).insert(mapping);
    }

    /// Handles the creation of a process, as a copy of its parent. A new thread shares everything.
    pub(super) fn fork(&mut self, task: &Task, library: &mut Library) {
        if task.pid == task.parent_pid || is_unknown_process(task.pid) {
            return;
        }
        // If the parent is unknown, its mappings are read now: the child may exit before its own can be read.
        let known = self.spaces.get(&task.parent_pid).is_some_and(|parent| parent.complete);
        if !known && !is_unknown_process(task.parent_pid) {
            self.read(task.parent_pid, task.parent_tid, library);
        }
        let Some(parent) = self.spaces.get(&task.parent_pid) else {
            // The previous process with this number is gone.
            self.spaces.remove(&task.pid);
            return;
        };
        // The mappings just read may belong to another program that the parent has executed since.
        let (map, complete, doubt) = (Arc::clone(&parent.map), known, parent.doubt);
        let serial = self.next_serial();
        let space = self.entry(task.pid, false, library);
        *space = Space { serial, process: None, map, complete, doubt, used: false };
    }

    /// Handles a new name of a thread. If the process executed another program, its earlier mappings are dropped.
    pub(super) fn comm(&mut self, comm: &Comm<'_>, library: &mut Library) {
        if comm.exec && !is_unknown_process(comm.pid) {
            let (serial, doubt) = (self.next_serial(), self.doubt);
            let space = self.entry(comm.pid, true, library);
            *space =
                Space { serial, process: None, map: Arc::default(), complete: true, doubt, used: space.used };
        }
    }

    /// Handles the exit of a thread. If it was the first thread of its process, the process is kept only a little longer.
    pub(super) fn exit(&mut self, task: &Task) {
        if task.pid != task.tid {
            return;
        }
        if let Some(space) = self.spaces.get(&task.pid) {
            self.ended.push_back((task.pid, space.serial));
        }
        while self.ended.len() > ENDED {
            self.drop_exited();
        }
    }

    /// Drops the process that exited first, unless its number has been reused.
    fn drop_exited(&mut self) {
        let Some((pid, serial)) = self.ended.pop_front() else { return };
        if self.spaces.get(&pid).is_some_and(|space| space.serial == serial) {
            self.spaces.remove(&pid);
        }
    }

    /// Drops all exited processes.
    pub(super) fn drop_all_exited(&mut self) {
        while !self.ended.is_empty() {
            self.drop_exited();
        }
    }

    /// Returns the address space of a process. If it is unknown and `mapped` is set, its mappings are read. `tid` is one of its threads.
    pub(super) fn of(&mut self, (pid, tid): (u32, u32), mapped: bool, library: &mut Library) -> &mut Space {
        let doubt = self.doubt;
        let known = self.spaces.get(&pid).is_some_and(|space| space.complete && space.doubt == doubt);
        if !known && mapped {
            self.read(pid, tid, library);
        }
        let space = self.entry(pid, false, library);
        space.used = true;
        space
    }

    /// Returns the space of a process, which is initially empty.
    fn entry(&mut self, pid: u32, complete: bool, library: &mut Library) -> &mut Space {
        if !self.spaces.contains_key(&pid) && self.spaces.len() >= self.limits.processes.max(1) {
            self.make_room();
            library.accounts.lose(Loss::ProcessesFull);
        }
        let (serial, doubt) = (&mut self.serial, self.doubt);
        self.spaces.entry(pid).or_insert_with(|| {
            *serial += 1;
            Space { serial: *serial, process: None, map: Arc::default(), complete, doubt, used: false }
        })
    }

    /// Drops the processes without samples since the previous call, or all processes if there are none.
    fn make_room(&mut self) {
        let before = self.spaces.len();
        self.drop_all_exited();
        self.spaces.retain(|_, space| std::mem::take(&mut space.used));
        if self.spaces.len() >= before {
            self.spaces.clear();
        }
    }

    /// Reads the mappings of a process. If that fails, the known mappings stay.
    fn read(&mut self, pid: u32, tid: u32, library: &mut Library) {
        let (serial, doubt) = (self.next_serial(), self.doubt);
        let mut process = self.spaces.get(&pid).and_then(|space| space.process);
        let mut list = |file: ProcessFile| {
            let opened = self.files.open_process(pid, file)?;
            read_list(&opened, pid, &self.limits, &mut process, library)
        };
        let mut found = list(ProcessFile::Maps);
        // The first thread of a process may exit before others, which still have all mappings.
        if tid != pid && found.as_ref().is_ok_and(|map| map.len() == 0) {
            found = list(ProcessFile::ThreadMaps(tid));
        }
        let space = self.entry(pid, false, library);
        (space.complete, space.doubt, space.serial, space.process) = (true, doubt, serial, process);
        match found {
            Ok(map) => {
                if space.map.len() > 0 && !have_common(&space.map, &map) {
                    // The number has been reused by another program.
                    space.process = None;
                }
                space.map = Arc::new(map);
            }
            Err(error) => {
                // The failure is temporary: the mappings are read again when needed next.
                space.complete = !error.is_temporary();
                library.accounts.lose(loss_of(&error));
            }
        }
    }

    /// Returns the number of known processes.
    pub(super) fn len(&self) -> usize {
        self.spaces.len()
    }

    /// Calls `each` for all processes.
    pub(super) fn each(&self, mut each: impl FnMut(Option<ProcessId>, &Arc<Map>)) {
        self.spaces.values().for_each(|space| each(space.process, &space.map));
    }
}

/// Reports whether a process ID is not a known process: the idle task, the kernel, and processes outside this PID namespace.
pub(super) fn is_unknown_process(pid: u32) -> bool {
    pid == 0 || pid == u32::MAX
}

/// Reports whether the same content is at the same address in both.
fn have_common(one: &Map, other: &Map) -> bool {
    one.iter().any(|mapping| other.find(mapping.start).is_some_and(|found| found.content == mapping.content))
}

/// Returns the mapping of a line; `None` if the table of files is full.
fn mapping(
    line: &Line<'_>,
    pid: u32,
    process: &mut Option<ProcessId>,
    library: &mut Library,
) -> Option<Mapping> {
    let &Line { start, end, offset, file, .. } = line;
    let mut process = |library: &mut Library| *process.get_or_insert_with(|| library.add_process(pid));
    let content = match line.name() {
        Name::Memory => MappedContent::Memory,
        Name::Vdso => match library.vdso(start, process) {
            Some(module) => MappedContent::File { module, offset: 0 },
            None => MappedContent::Memory,
        },
        Name::File(path) => {
            let seen = FileMapping { pid, start, end, path, stored: file };
            MappedContent::File { module: library.module(&seen, &mut process)?, offset }
        }
    };
    Some(Mapping { start, end, content })
}

fn loss_of(error: &RootError) -> Loss {
    match error {
        RootError::Unreadable(error) if error.is_absent() => Loss::MapsGone,
        RootError::Unreadable(error) => match error.errno() {
            Some(Errno::EACCES | Errno::EPERM) => Loss::MapsForbidden,
            Some(Errno::ETIMEDOUT) => Loss::FileStuck,
            _ => Loss::MapsBroken,
        },
        RootError::Stuck { .. } | RootError::Unavailable(_) => Loss::FileStuck,
        _ => Loss::MapsBroken,
    }
}

/// Which mappings of a process are of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappingKinds {
    /// Code.
    Executable,
    /// Code and files.
    Files,
    /// All, also memory without a file.
    All,
}

/// Calls `each` for mappings that a process has now, within the limits of [`Limits::default`].
///
/// # Errors
/// If the mappings cannot be read, for example because the process has exited.
pub(crate) fn mappings(
    files: &Files,
    pid: u32,
    kinds: MappingKinds,
    mut each: impl FnMut(&Mmap<'_>),
) -> Result<(), RootError> {
    let limits = Limits::default();
    let maps = files.open_process(pid, ProcessFile::Maps)?;
    let mut left = limits.mappings;
    host::lines_of(&mut maps.file.sequential(), &maps.shown, limits.maps_bytes, |line| {
        let wanted = |line: &Line<'_>| match kinds {
            MappingKinds::Executable => line.executable,
            MappingKinds::Files => line.executable || line.file.inode != 0,
            MappingKinds::All => true,
        };
        let Some(line) = Line::parse(line).filter(|line| wanted(line) && left > 0) else { return };
        left -= 1;
        let Line { start, end, offset, file, path, .. } = &line;
        let (length, protection) =
            (end - start, if line.executable { READABLE | EXECUTABLE } else { READABLE });
        let (&start, &offset, &file) = (start, offset, file);
        each(&Mmap { pid, tid: pid, start, length, offset, file, protection, path });
    })?;
    Ok(())
}

/// Reads a list of mappings.
fn read_list(
    maps: &Opened,
    pid: u32,
    limits: &Limits,
    process: &mut Option<ProcessId>,
    library: &mut Library,
) -> Result<Map, RootError> {
    let (mut map, mut cut) = (Map::default(), false);
    let end = host::lines_of(&mut maps.file.sequential(), &maps.shown, limits.maps_bytes, |line| {
        let Some(line) = Line::parse(line).filter(|line| line.executable) else { return };
        if map.len() >= limits.mappings {
            cut = true;
            return;
        }
        if let Some(mapping) = mapping(&line, pid, process, library) {
            map.insert(mapping);
        }
    });
    match end {
        Ok(()) => {}
        Err(FileError { kind: FileErrorKind::TooLarge { .. } | FileErrorKind::Malformed(_), .. }) => {
            cut = true;
        }
        Err(error) => return Err(error.into()),
    }
    if cut {
        library.accounts.lose(Loss::MapsCut);
    }
    Ok(map)
}
