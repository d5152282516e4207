//! The files whose code is executed: each identified by a number, held open, and dropped when no longer used.
//!
//! A file is identified by device, inode and path. Files on different devices with the same build id and path are the same file. Thus all
//! containers of an image share one, whatever device number the kernel assigned to each. (A forged build id confuses two programs: the one
//! that is mapped later gets the functions of the other.)
//!
//! The kernel could report build ids in mapping records (`perf_event_attr.build_id`, Linux 5.12). The exporter does not use this. The
//! kernel would then mark records of other users' older events as if they had build ids, which they do not. `perf script` aborts on such a
//! file (seen with Linux 6.18 and perf 6.1).
//!
//! A file is opened when it is first mapped, because its process may exit a moment later. The number of open files is limited. At the limit
//! the least recently used file is closed, and opened again if its code occurs in a stack.

use std::collections::HashMap;
use std::sync::Arc;

use super::account::{Accounts, Loss};
use super::elf::Elf;
use super::maps::Name;
use super::{BuildId, Code, Module, ModuleFiles, ModuleId, Process, ProcessId, vdso};
use crate::error::printable;
use crate::files::{Files, Opened, Root, RootError};
use crate::host;
use crate::ring::{MappedFile, Mmap};

/// The most attempts to open a file again, when another process maps it.
const ATTEMPTS: u8 = 8;
/// The longest `/proc/PID/status`, in bytes.
const STATUS_LIMIT: u64 = 64 << 10;
/// How long a file is held open after the last sample of its code, unless windows are longer: nanoseconds. An open file prevents its file
/// system from being unmounted.
const IDLE: u64 = 120_000_000_000;
/// The interval at which idle files are closed, in nanoseconds.
const SWEEP: u64 = 10_000_000_000;
/// The end of the addresses that 32-bit programs can use. Their vDSO differs.
const NARROW: u64 = 1 << 32;

/// The process and mapping of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileMapping<'a> {
    /// The process that mapped it.
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The path in the root of the process.
    pub(super) path: &'a [u8],
    pub(super) stored: MappedFile,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    stored: MappedFile,
    path: Box<[u8]>,
}

/// Further state of a module.
#[derive(Debug, Default)]
struct ModuleState {
    free: bool,
    /// `None` for a module without a file.
    stored: Option<MappedFile>,
    /// Whether the file was open, and was closed to limit the number of open files.
    closed: bool,
    attempts: u8,
    /// The [generation](Files::generation) in which access to its file system timed out: retried in another one.
    stuck: Option<u64>,
    /// The time of the last sample in its code, on the clock of the records. Nanoseconds.
    used: u64,
}

/// The files and processes that frames refer to.
#[derive(Debug)]
pub(super) struct Library {
    files: Files,
    pub(super) code: Code,
    /// Counters of missing data, also for the callers.
    pub(super) accounts: Accounts,
    keys: HashMap<Key, ModuleId>,
    by_build_id: HashMap<(BuildId, Arc<str>), ModuleId>,
    module_states: Vec<ModuleState>,
    free_modules: Vec<ModuleId>,
    free_processes: Vec<ProcessId>,
    vdso: Option<ModuleId>,
    module_limit: usize,
    file_limit: usize,
    held: usize,
    /// The time of the last sample, and when idle files were last closed.
    now: u64,
    swept: u64,
    /// The time without a sample after which a file is closed, in nanoseconds.
    idle: u64,
}

/// The process number of the idle task, and of processes outside our PID namespace.
pub(super) const UNKNOWN_PROCESS: ProcessId = ProcessId(0);

impl ModuleFiles for Library {
    /// Returns the file of a module, opened again through `seen` if it was closed.
    fn file(&mut self, module: ModuleId, seen: (u32, u64, u64)) -> Option<Arc<Opened>> {
        self.touch(module, seen);
        self.code.modules.get(module.0 as usize)?.file.as_ref().ok().cloned()
    }

    fn lose(&mut self, loss: Loss) {
        self.accounts.lose(loss);
    }
}

impl Library {
    pub(super) fn new(files: &Files, module_limit: usize, file_limit: usize) -> Self {
        Self {
            files: files.clone(),
            code: Code { modules: Vec::new(), processes: vec![Process { pid: 0, own_pid: 0 }] },
            accounts: Accounts::default(),
            keys: HashMap::new(),
            by_build_id: HashMap::new(),
            module_states: Vec::new(),
            free_modules: Vec::new(),
            free_processes: Vec::new(),
            vdso: None,
            module_limit,
            file_limit: file_limit.max(1),
            held: 0,
            now: 0,
            swept: 0,
            idle: IDLE,
        }
    }

    /// Returns a number for a new process.
    pub(super) fn add_process(&mut self, pid: u32) -> ProcessId {
        let process = Process { pid, own_pid: self.own_pid(pid).unwrap_or(pid) };
        let id = self.free_processes.pop().unwrap_or(ProcessId(self.code.processes.len() as u32));
        put(&mut self.code.processes, id.0, process);
        id
    }

    /// Returns the process ID in the innermost namespace, which is the last field.
    fn own_pid(&self, pid: u32) -> Option<u32> {
        let path = self.files.roots().proc.join(pid.to_string()).join("status");
        let status = host::read_at_most(&path, STATUS_LIMIT).ok()?;
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().next_back()?.parse().ok()
    }

    /// Returns the module of a file; `None` if the table is full. `process` returns the number of the mapping process.
    pub(super) fn module(
        &mut self,
        seen: &FileMapping<'_>,
        process: impl FnOnce(&mut Self) -> ProcessId,
    ) -> Option<ModuleId> {
        let key = Key { stored: seen.stored, path: seen.path.into() };
        if let Some(&known) = self.keys.get(&key) {
            self.try_again(known, seen);
            return Some(known);
        }
        let path: Arc<str> = String::from_utf8_lossy(seen.path).into();
        if self.free_modules.is_empty() && self.code.modules.len() >= self.module_limit {
            // A file without a module number is not opened.
            self.accounts.lose(Loss::ModulesFull);
            return None;
        }
        let opened = Found::open(&self.files, seen);
        let build_id = opened.as_ref().ok().and_then(|found| found.build_id.clone());
        if let Some(build_id) = &build_id
            && let Some(&known) = self.by_build_id.get(&(build_id.clone(), Arc::clone(&path)))
        {
            if self.file_is_missing(known)
                && let Ok(found) = opened
            {
                self.hold(known, found.file);
            }
            self.remember(key, known);
            return Some(known);
        }
        let process = process(self);
        let generation = self.files.generation();
        let (file, refusal, stuck) = match opened {
            Ok(found) => (Some(found.file), "".into(), None),
            Err((loss, sentence)) => {
                self.accounts.lose(loss);
                (None, sentence.into(), (loss == Loss::FileStuck).then_some(generation))
            }
        };
        let module =
            Module { path: Arc::clone(&path), build_id: build_id.clone(), process, file: Err(refusal) };
        let module =
            self.add(module, ModuleState { stored: Some(seen.stored), stuck, ..ModuleState::default() });
        if let Some(file) = file {
            self.hold(module, file);
        }
        if let Some(build_id) = build_id {
            self.by_build_id.insert((build_id, path), module);
        }
        self.remember(key, module);
        Some(module)
    }

    fn add(&mut self, module: Module, state: ModuleState) -> ModuleId {
        let id = self.free_modules.pop().unwrap_or(ModuleId(self.module_states.len() as u32));
        put(&mut self.code.modules, id.0, module);
        put(&mut self.module_states, id.0, state);
        id
    }

    /// Adds a key. A module has few keys: one for each device of the concurrent containers of an image.
    fn remember(&mut self, key: Key, module: ModuleId) {
        if self.keys.len() >= self.module_limit.saturating_mul(4) {
            self.keys.clear();
        }
        self.keys.insert(key, module);
    }

    /// Returns the module of the vDSO.
    pub(super) fn vdso(
        &mut self,
        start: u64,
        process: impl FnOnce(&mut Self) -> ProcessId,
    ) -> Option<ModuleId> {
        if start < NARROW {
            return None;
        }
        if self.vdso.is_none() {
            let process = process(self);
            let image = vdso::image();
            let build_id = image.as_ref().and_then(|image| Elf::read(&image.file)?.build_id());
            let refusal = "the vDSO is only in memory, and the exporter's own copy cannot be read".into();
            let module = Module { path: "[vdso]".into(), build_id, process, file: Err(refusal) };
            let module = self.add(module, ModuleState { attempts: ATTEMPTS, ..ModuleState::default() });
            if let Some(image) = image {
                self.hold(module, image);
                // The vDSO cannot be opened again.
                self.module_states[module.0 as usize].used = u64::MAX;
            }
            self.vdso = Some(module);
        }
        self.vdso
    }

    /// Registers a sample in the code of a module: the process, and the start and end of its mapping.
    pub(super) fn touch(&mut self, module: ModuleId, (pid, start, end): (u32, u64, u64)) {
        let place = module.0 as usize;
        let generation = self.files.generation();
        let (Some(state), Some(known)) = (self.module_states.get_mut(place), self.code.modules.get(place))
        else {
            return;
        };
        state.used = state.used.max(self.now);
        if known.file.as_ref().is_ok_and(|file| file.file.is_gone()) {
            // The helper process that held the file has exited.
            state.closed = true;
            self.held -= 1;
            self.code.modules[place].file = Err("its file is opened again when it is needed".into());
        } else if !state.closed && state.stuck.is_none_or(|stuck| stuck == generation) {
            return;
        }
        let (Some(state), Some(known)) = (self.module_states.get(place), self.code.modules.get(place)) else {
            return;
        };
        let (path, Some(stored)) = (Arc::clone(&known.path), state.stored) else { return };
        self.try_again(module, &FileMapping { pid, start, end, path: path.as_bytes(), stored });
    }

    fn file_is_missing(&self, module: ModuleId) -> bool {
        self.code.modules.get(module.0 as usize).is_some_and(|module| module.file.is_err())
    }

    /// Opens a file that is not open.
    fn try_again(&mut self, module: ModuleId, seen: &FileMapping<'_>) {
        if !self.file_is_missing(module) {
            return;
        }
        let Some(state) =
            self.module_states.get_mut(module.0 as usize).filter(|state| state.attempts < ATTEMPTS)
        else {
            return;
        };
        let generation = self.files.generation();
        if state.stuck == Some(generation) {
            return;
        }
        state.attempts += 1;
        match Found::open(&self.files, seen) {
            Ok(found) => {
                let known = &mut self.code.modules[module.0 as usize];
                known.build_id = known.build_id.take().or(found.build_id);
                self.hold(module, found.file);
            }
            // The missing file was counted when it was first mapped.
            Err((loss, sentence)) => {
                self.code.modules[module.0 as usize].file = Err(sentence.into());
                if loss == Loss::FileStuck {
                    // A timeout gives no information about the file.
                    let state = &mut self.module_states[module.0 as usize];
                    (state.stuck, state.attempts) = (Some(generation), state.attempts - 1);
                }
            }
        }
    }

    /// Holds a file open, and closes another one if there are too many.
    fn hold(&mut self, module: ModuleId, file: Opened) {
        if self.held >= self.file_limit {
            self.close_one();
        }
        // The caller has the number from the list.
        let state = &mut self.module_states[module.0 as usize];
        (state.closed, state.attempts, state.stuck) = (false, 0, None);
        state.used = state.used.max(self.now);
        self.code.modules[module.0 as usize].file = Ok(Arc::new(file));
        self.held += 1;
    }

    /// Advances the time to that of a sample. Closes files without recent samples.
    pub(super) fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.now - self.swept < SWEEP {
            return;
        }
        self.swept = self.now;
        let since = self.now.saturating_sub(self.idle);
        for (state, module) in self.module_states.iter_mut().zip(&mut self.code.modules) {
            if state.used < since && module.file.is_ok() {
                state.closed = true;
                module.file = Err("it was closed because its code had no samples for a long time".into());
                self.held -= 1;
            }
        }
    }

    /// Sets the time for which files are needed after the last sample of their code, in nanoseconds.
    pub(super) fn keep_open_for(&mut self, window: u64) {
        self.idle = IDLE.max(window.saturating_add(SWEEP));
    }

    fn close_one(&mut self) {
        let held = self
            .module_states
            .iter_mut()
            .zip(&mut self.code.modules)
            .filter(|(_, module)| module.file.is_ok());
        if let Some((state, module)) = held.min_by_key(|(state, _)| state.used) {
            state.closed = true;
            let sentence = format!(
                "{} is not open, because {} others were used more recently",
                printable(&module.path),
                self.file_limit
            );
            module.file = Err(sentence.into());
            self.held -= 1;
        }
    }

    /// Drops unused modules and processes and returns them: their numbers will be reused.
    pub(super) fn retain(
        &mut self,
        modules: &[bool],
        processes: &mut Vec<bool>,
    ) -> (Vec<ModuleId>, Vec<ProcessId>) {
        let wanted = |marks: &[bool], place: usize| marks.get(place).copied().unwrap_or(false);
        let mut gone = Vec::new();
        for (place, (module, state)) in self.code.modules.iter_mut().zip(&mut self.module_states).enumerate()
        {
            let id = ModuleId(place as u32);
            if state.free {
                continue;
            }
            if wanted(modules, place) || self.vdso == Some(id) {
                let process = module.process.0 as usize;
                processes.resize(processes.len().max(process + 1), false);
                processes[process] = true;
                continue;
            }
            self.held -= usize::from(module.file.is_ok());
            *state = ModuleState { free: true, ..ModuleState::default() };
            *module = Module {
                path: "".into(),
                build_id: None,
                process: UNKNOWN_PROCESS,
                file: Err("the file is no longer used".into()),
            };
            gone.push(id);
        }
        if !gone.is_empty() {
            let module_states = &self.module_states;
            let stays =
                |module: &ModuleId| module_states.get(module.0 as usize).is_some_and(|state| !state.free);
            self.keys.retain(|_, module| stays(module));
            self.by_build_id.retain(|_, module| stays(module));
            self.free_modules.extend(&gone);
        }
        let mut free = vec![false; self.code.processes.len()];
        self.free_processes.iter().for_each(|free_one| free[free_one.0 as usize] = true);
        let ended: Vec<ProcessId> = (1..self.code.processes.len())
            .filter(|&place| !free[place] && !wanted(processes, place))
            .map(|place| ProcessId(place as u32))
            .collect();
        self.free_processes.extend(&ended);
        (gone, ended)
    }
}

/// An opened file that is the mapped one.
struct Found {
    file: Opened,
    build_id: Option<BuildId>,
}

impl Found {
    /// Opens the file of a mapping. Tries its path in the root of its process, its path on the host if the file is the same there, and the
    /// mapping itself.
    fn open(files: &Files, seen: &FileMapping<'_>) -> Result<Self, (Loss, String)> {
        let path = String::from_utf8_lossy(seen.path);
        let shown = printable(&path);
        let mut refusal = None;
        for root in [Root::Process(seen.pid), Root::Host] {
            match files.open(&root, &path, None) {
                Ok(opened) => match Self::check(opened, seen, root == Root::Host) {
                    Some(found) => return Ok(found),
                    None => refusal = refusal.or(Some((Loss::FileReplaced, None))),
                },
                // Any other path leads to the same file system.
                Err(error) if error.is_temporary() => return Err((Loss::FileStuck, error.to_string())),
                Err(error) => refusal = refusal.or(Some((loss_of(&error), Some(error)))),
            }
        }
        let through =
            match files.open_mapped(seen.pid, (seen.start, seen.end), (seen.stored.major, seen.stored.minor))
            {
                Ok(opened) => match Self::check(opened, seen, false) {
                    Some(found) => return Ok(found),
                    None => "leads to another file, too".to_owned(),
                },
                Err(error) => format!("does not lead to it either: {error}"),
            };
        let (loss, error) = refusal.unwrap_or((Loss::FileGone, None));
        let why = match error {
            Some(RootError::NoProcess(pid)) => {
                return Err((
                    loss,
                    format!("process {pid}, which had mapped {shown}, exited before the file was opened"),
                ));
            }
            Some(error) => error.to_string(),
            None => format!("{shown} is not the file that was mapped"),
        };
        Err((loss, format!("{why}; /proc/{}/map_files {through}", seen.pid)))
    }

    /// Checks whether an opened file is the mapped one, by its inode. The device is compared only if the path was looked up in a root that
    /// may differ. overlayfs and btrfs report other devices in mappings than `stat` does.
    fn check(file: Opened, seen: &FileMapping<'_>, with_device: bool) -> Option<Self> {
        let stat = file.file.stat().ok()?;
        let device = rustix::fs::makedev(seen.stored.major, seen.stored.minor);
        let same = stat.inode == seen.stored.inode && (!with_device || stat.device == device);
        same.then(|| Self { build_id: Elf::read(&file.file).and_then(|elf| elf.build_id()), file })
    }
}

/// Returns the build id of a mapped file. Returns `None` for memory, for a file without build id, and for one that cannot be read.
pub(crate) fn mapped_build_id(files: &Files, mmap: &Mmap<'_>) -> Option<BuildId> {
    let Name::File(path) = Name::of(mmap.path, mmap.file.inode) else { return None };
    let (start, end) = (mmap.start, mmap.start.saturating_add(mmap.length));
    let seen = FileMapping { pid: mmap.pid, start, end, path, stored: mmap.file };
    Found::open(files, &seen).ok()?.build_id
}

/// Stores an item at a free index or appends it.
fn put<T>(list: &mut Vec<T>, place: u32, item: T) {
    match list.get_mut(place as usize) {
        Some(free) => *free = item,
        None => list.push(item),
    }
}

fn loss_of(error: &RootError) -> Loss {
    match error {
        RootError::NoProcess(_) | RootError::Absent { .. } => Loss::FileGone,
        RootError::ProcessForbidden { .. }
        | RootError::FileForbidden { .. }
        | RootError::MappingForbidden { .. } => Loss::FileForbidden,
        RootError::Stuck { .. } | RootError::Unavailable(_) => Loss::FileStuck,
        _ => Loss::FileBroken,
    }
}
