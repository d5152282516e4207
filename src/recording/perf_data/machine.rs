//! The processes of a recording: names of threads, mappings, cgroups. Records update them in the order of time.
//!
//! Source of the layouts: `perf_event_open(2)`. Numbers are in the byte order of the recording machine, unlike those of [`crate::ring`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use perf_event_open_sys::bindings as abi;

use super::access::{DataPlace, SampledAccess};
use super::cursor::{Cursor, until_nul};
use super::data_source::DataSource;
use super::features::BuildIds;
use super::files::{RecordedFiles, is_file};
use super::header::damaged;
use super::sample::Fields;
use super::stream::Raw;
use crate::recording::about::Lost;
use crate::recording::{Invalid, at_most};
use crate::stack::{BuildId, Frame, Map, MappedContent, Mapping, ModuleId, ProcessId};

/// Maximum number of processes, of threads and of cgroups; and of mappings of all processes together.
const TABLE_LIMIT: usize = 1 << 18;
const MAPPING_LIMIT: usize = 1 << 21;
/// Maximum number of mappings of one process. A fork copies them.
const PROCESS_MAPPING_LIMIT: usize = 1 << 16;

/// Flags of records (`misc`).
const MODE: u16 = 7;
const COMM_EXEC: u16 = 1 << 13;
const MAPPED_DATA: u16 = 1 << 13;
const MAPPED_BUILD_ID: u16 = 1 << 14;

/// The mode in which a record was written (`PERF_RECORD_MISC_CPUMODE_MASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CpuMode {
    /// A program.
    User,
    /// The kernel, or a hypervisor.
    Kernel,
    /// A guest, for which there are no symbols.
    Guest,
    /// Unknown.
    Unknown,
}

impl CpuMode {
    pub(super) fn of(misc: u16) -> Self {
        match misc & MODE {
            1 | 3 => Self::Kernel,
            2 => Self::User,
            4 | 5 => Self::Guest,
            _ => Self::Unknown,
        }
    }

    /// Returns the mode after a marker in a call chain; `None` for an address.
    pub(super) fn of_marker(address: u64) -> Option<Self> {
        /// Markers are the highest addresses (`PERF_CONTEXT_MAX`).
        const FIRST: i64 = -4095;
        match address.cast_signed() {
            -32 | -128 => Some(Self::Kernel),
            -512 => Some(Self::User),
            FIRST..0 => Some(Self::Guest),
            _ => None,
        }
    }
}

/// A process.
#[derive(Debug, Clone, Default)]
struct Process {
    map: Arc<Map>,
    /// All mappings, also those that are not executable, if there are memory accesses. Memory without a file is a file of this name, in
    /// which offsets are addresses.
    data: Arc<Map>,
    exe: Option<Arc<str>>,
    id: Option<ProcessId>,
}

impl Process {
    fn mappings(&self) -> usize {
        self.map.len() + self.data.len()
    }
}

/// A thread.
#[derive(Debug, Clone)]
struct Thread {
    pid: u32,
    comm: Arc<str>,
}

/// The names of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) comm: Arc<str>,
    pub(super) program: Arc<str>,
    pub(super) exe: Option<Arc<str>>,
}

/// The state of the recorded machine.
#[derive(Debug, Default)]
pub(super) struct Machine {
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    mappings: usize,
    /// The most mappings of one process.
    most_mappings: usize,
    /// Mappings of the kernel and its modules by their begin: the end, and the path.
    kernel: BTreeMap<u64, (u64, Arc<str>)>,
    /// The address of `_text` or `_stext` when the recording began.
    pub(super) kernel_text: Option<(Arc<str>, u64)>,
    cgroups: HashMap<u64, Arc<str>>,
    pub(super) files: RecordedFiles,
    build_ids: BuildIds,
    /// Whether there are memory accesses.
    has_accesses: bool,
    /// Memory that each process has for itself.
    private: HashSet<ModuleId>,
    pub(super) lost: Lost,
}

/// The contents of `PERF_RECORD_MMAP` and `PERF_RECORD_MMAP2`.
struct Mapped<'a> {
    pid: u32,
    start: u64,
    end: u64,
    offset: u64,
    path: &'a [u8],
    build_id: Option<BuildId>,
    executable: bool,
    /// Whether it is private memory without a file.
    private: bool,
}

impl Machine {
    pub(super) fn new(build_ids: BuildIds, has_accesses: bool) -> Self {
        let mut machine = Self { build_ids, has_accesses, ..Self::default() };
        machine.threads.insert(0, Thread { pid: 0, comm: "swapper".into() });
        machine
    }

    /// Applies a record that is not a sample.
    pub(super) fn apply(&mut self, raw: &Raw, big: bool) -> Result<(), Invalid> {
        let mut cursor = Cursor::new(&raw.body, big);
        let applied = match raw.kind {
            abi::PERF_RECORD_MMAP => mapped(&mut cursor, raw.misc).map(|seen| self.map(&seen, raw.misc)),
            abi::PERF_RECORD_MMAP2 => mapped2(&mut cursor, raw.misc).map(|seen| self.map(&seen, raw.misc)),
            abi::PERF_RECORD_COMM => self.name(&mut cursor, raw.misc),
            abi::PERF_RECORD_FORK => self.fork(&mut cursor),
            abi::PERF_RECORD_LOST => cursor.u64().and_then(|_| cursor.u64()).map(|lost| {
                self.lost.records = self.lost.records.saturating_add(lost);
            }),
            abi::PERF_RECORD_LOST_SAMPLES => cursor.u64().map(|lost| {
                self.lost.samples = self.lost.samples.saturating_add(lost);
            }),
            abi::PERF_RECORD_THROTTLE => {
                self.lost.throttled += 1;
                Some(())
            }
            abi::PERF_RECORD_CGROUP => cursor.u64().map(|id| {
                let path = String::from_utf8_lossy(until_nul(cursor.rest())).into();
                self.cgroups.insert(id, path);
            }),
            _ => Some(()),
        };
        applied.ok_or_else(|| damaged("a record is shorter than its fields", raw.offset))?;
        at_most(TABLE_LIMIT, self.processes.len(), "processes")?;
        at_most(TABLE_LIMIT, self.threads.len(), "threads")?;
        at_most(TABLE_LIMIT, self.cgroups.len(), "cgroups")?;
        at_most(TABLE_LIMIT, self.files.len(), "files")?;
        at_most(PROCESS_MAPPING_LIMIT, self.most_mappings, "mappings of one process")?;
        at_most(MAPPING_LIMIT, self.mappings, "mappings")
    }

    fn map(&mut self, seen: &Mapped<'_>, misc: u16) {
        let path = String::from_utf8_lossy(seen.path);
        if CpuMode::of(misc) == CpuMode::Kernel {
            self.map_kernel(seen, &path);
            return;
        }
        let is_file = is_file(&path);
        if self.has_accesses {
            self.map_data(seen, &path, is_file);
        }
        if !seen.executable {
            return;
        }
        let content = match is_file {
            true => {
                let build_id = seen.build_id.clone().or_else(|| self.build_ids.get(seen.path).cloned());
                MappedContent::File { module: self.files.add(&path, build_id), offset: seen.offset }
            }
            false => MappedContent::Memory,
        };
        let process = self.processes.entry(seen.pid).or_default();
        if is_file && process.exe.is_none() && path.starts_with('/') {
            process.exe = Some((*path).into());
        }
        let before = process.map.len();
        Arc::make_mut(&mut process.map).insert(Mapping { start: seen.start, end: seen.end, content });
        self.mappings = (self.mappings + process.map.len()).saturating_sub(before);
        self.most_mappings = self.most_mappings.max(process.map.len());
    }

    fn map_data(&mut self, seen: &Mapped<'_>, path: &str, is_file: bool) {
        let known = seen.build_id.clone().or_else(|| self.build_ids.get(seen.path).cloned());
        let module = self.files.add(path, known.filter(|_| is_file));
        if seen.private {
            self.private.insert(module);
        }
        let content = MappedContent::File { module, offset: if is_file { seen.offset } else { seen.start } };
        let process = self.processes.entry(seen.pid).or_default();
        let before = process.data.len();
        Arc::make_mut(&mut process.data).insert(Mapping { start: seen.start, end: seen.end, content });
        self.mappings = (self.mappings + process.data.len()).saturating_sub(before);
        self.most_mappings = self.most_mappings.max(process.data.len());
    }

    fn map_kernel(&mut self, seen: &Mapped<'_>, path: &str) {
        let name: Arc<str> = match path.strip_prefix("[kernel.kallsyms]") {
            Some(symbol) => {
                self.kernel_text = Some((symbol.into(), seen.offset));
                "[kernel.kallsyms]".into()
            }
            None => module_name(path),
        };
        if self.kernel.len() < TABLE_LIMIT {
            self.kernel.insert(seen.start, (seen.end, name));
        }
    }

    fn name(&mut self, cursor: &mut Cursor<'_>, misc: u16) -> Option<()> {
        let (pid, tid) = (cursor.u32()?, cursor.u32()?);
        let comm: Arc<str> = String::from_utf8_lossy(until_nul(cursor.rest())).into();
        self.threads.insert(tid, Thread { pid, comm });
        let process = self.processes.entry(pid).or_default();
        if misc & COMM_EXEC != 0 {
            // Mappings stay, as in perf, until others replace them: samples within `execve` have the call chain of the program before.
            (process.exe, process.id) = (None, None);
        }
        Some(())
    }

    fn fork(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let (pid, parent, tid, parent_tid) = (cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?);
        // perf writes a record without a parent for each thread that existed before.
        let comm = match self.threads.get(&parent_tid) {
            Some(thread) if thread.pid == parent => Arc::clone(&thread.comm),
            _ => format!(":{tid}").into(),
        };
        if tid != parent_tid {
            self.threads.insert(tid, Thread { pid, comm });
        }
        if pid != parent && pid == tid {
            let parent = self.processes.get(&parent).cloned().unwrap_or_default();
            let process = Process { id: None, ..parent };
            let before = self.processes.get(&pid).map_or(0, Process::mappings);
            self.mappings = (self.mappings + process.mappings()).saturating_sub(before);
            self.processes.insert(pid, process);
        }
        Some(())
    }

    /// Returns the names of a thread; `:TID` if no record contains them, as in perf.
    pub(super) fn names(&self, pid: u32, tid: u32) -> Names {
        let comm = |tid: u32| self.threads.get(&tid).map(|thread| Arc::clone(&thread.comm));
        let own = comm(tid).unwrap_or_else(|| format!(":{}", tid.cast_signed()).into());
        let exe = self.processes.get(&pid).and_then(|process| process.exe.clone());
        Names { program: comm(pid).unwrap_or_else(|| Arc::clone(&own)), comm: own, exe }
    }

    pub(super) fn cgroup(&self, id: u64) -> Option<Arc<str>> {
        self.cgroups.get(&id).cloned()
    }

    /// Returns the name of the kernel or the module that contains an address.
    pub(super) fn kernel_module(&self, address: u64) -> Option<&Arc<str>> {
        let (_, (end, name)) = self.kernel.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Returns the mappings of a process.
    pub(super) fn map_of(&self, pid: u32) -> Option<Arc<Map>> {
        self.processes.get(&pid).map(|process| Arc::clone(&process.map))
    }

    /// Returns the location of an address.
    pub(super) fn frame(&mut self, pid: u32, mode: CpuMode, address: u64) -> Frame {
        match mode {
            CpuMode::Kernel => return Frame::Kernel(address),
            CpuMode::Guest => return Frame::Nowhere(address),
            CpuMode::User | CpuMode::Unknown => {}
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Frame::Nowhere(address) };
        match process.map.find(address) {
            None => Frame::Nowhere(address),
            Some(Mapping { start, content: MappedContent::File { module, offset }, .. }) => {
                Frame::File { module, offset: offset.wrapping_add(address - start) }
            }
            Some(Mapping { content: MappedContent::Memory, .. }) => {
                let files = &mut self.files;
                let process = *process.id.get_or_insert_with(|| files.add_process(pid));
                Frame::Memory { process, address }
            }
        }
    }
}

impl Machine {
    /// Returns the memory access of a sample. `is_split`: the weight consists of parts.
    pub(super) fn access(
        &mut self,
        pid: u32,
        mode: CpuMode,
        fields: &Fields<'_>,
        is_split: bool,
    ) -> SampledAccess {
        let weight = fields.weight.unwrap_or(0);
        let (weight, latency) = match is_split {
            true => (weight & u64::from(u32::MAX), (weight >> 32) as u16),
            false => (weight, 0),
        };
        let data = self.data_place(pid, mode, fields.address.unwrap_or(0));
        let is_mapped = data.module.is_some()
            && fields.ip.is_some_and(|address| self.data_place(pid, mode, address).module.is_some());
        SampledAccess {
            data,
            is_mapped,
            weight,
            latency,
            source: fields.source.map_or(DataSource::UNKNOWN, DataSource),
            physical: fields.physical.unwrap_or(0),
        }
    }

    /// Returns the place of data. As in perf, an access in the kernel is looked up in the kernel only.
    fn data_place(&mut self, pid: u32, mode: CpuMode, address: u64) -> DataPlace {
        let kernel = mode == CpuMode::Kernel;
        let (module, offset) = match mode {
            CpuMode::Kernel => {
                let name = self.kernel_module(address).cloned();
                (name.map(|name| self.files.add(&name, None)), address)
            }
            CpuMode::Guest => (None, address),
            CpuMode::User | CpuMode::Unknown => {
                let mapping = self.processes.get(&pid).and_then(|process| process.data.find(address));
                match mapping {
                    Some(Mapping { start, content: MappedContent::File { module, offset }, .. }) => {
                        (Some(module), offset.wrapping_add(address - start))
                    }
                    _ => (None, address),
                }
            }
        };
        let process = module.filter(|module| self.private.contains(module)).map(|_| pid);
        DataPlace { kernel, module, process, offset, address }
    }
}

/// Parses `PERF_RECORD_MMAP`.
fn mapped<'a>(cursor: &mut Cursor<'a>, misc: u16) -> Option<Mapped<'a>> {
    let (pid, _) = (cursor.u32()?, cursor.u32()?);
    let (start, length, offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let (end, path) = (start.saturating_add(length), until_nul(cursor.rest()));
    // Without the number of its file, perf distinguishes the memory of processes.
    let (executable, private) = (misc & MAPPED_DATA == 0, true);
    Some(Mapped { pid, start, end, offset, path, build_id: None, executable, private })
}

/// Parses `PERF_RECORD_MMAP2`.
fn mapped2<'a>(cursor: &mut Cursor<'a>, misc: u16) -> Option<Mapped<'a>> {
    let (pid, _) = (cursor.u32()?, cursor.u32()?);
    let (start, length, offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    // Device, inode and generation, or size and bytes of the build id.
    let identity = cursor.take(24)?;
    let build_id = match identity {
        [size, _, _, _, id @ ..] if misc & MAPPED_BUILD_ID != 0 => {
            id.get(..usize::from(*size)).filter(|id| !id.is_empty()).map(|id| BuildId(id.into()))
        }
        _ => None,
    };
    let (protection, flags) = (cursor.u32()?, cursor.u32()?);
    let (end, path) = (start.saturating_add(length), until_nul(cursor.rest()));
    let executable = protection & libc::PROT_EXEC.cast_unsigned() != 0;
    let private = identity.iter().all(|&byte| byte == 0) && flags & libc::MAP_SHARED.cast_unsigned() == 0;
    Some(Mapped { pid, start, end, offset, path, build_id, executable, private })
}

/// Returns `[ext4]` for the path of a module.
fn module_name(path: &str) -> Arc<str> {
    let file = path.rsplit('/').next().unwrap_or(path);
    match file.split_once(".ko") {
        Some((name, _)) => format!("[{}]", name.replace('-', "_")).into(),
        None => path.into(),
    }
}
