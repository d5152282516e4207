//! The files of functions: their code, symbols and source lines.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::choice::Chosen;
use super::{CODE_LIMIT, NotAnnotated, Options};
use crate::clock::Clock;
use crate::files::{Files, Opened};
use crate::probe::argument::Arch;
use crate::profile::FileHash;
use crate::stack::{BuildId, Code, Frame, Module, ModuleId, Process, ProcessId};
use crate::symbol::{self, FileIdentity, FileMissing, LineReason, Lines, Named, Symbolizer, find_file};

/// Memory for symbol tables, in bytes.
const MEMORY: usize = 8 << 20;
/// Maximum number of open files.
const OPEN_LIMIT: usize = 64;
/// A process that does not exist: related files are looked up on this machine, not in the root of a process.
const NO_PROCESS: ProcessId = ProcessId(u32::MAX);

/// The path, the build id and the hash of a file.
type Key = (Arc<str>, Option<BuildId>, Option<FileHash>);

/// The files of the annotated functions.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) files: Files,
    code: Code,
    known: FxHashMap<Key, ModuleId>,
    symbols: Symbolizer,
    lines: Option<Lines>,
    cache: Option<String>,
}

/// A function in a file.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    /// The first address and the end address (exclusive), according to the headers of the file.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The difference between its offset in the file and its address.
    delta: u64,
    /// Its code, which may be truncated.
    pub(super) code: Vec<u8>,
    pub(super) machine: Arch,
    pub(super) file: Arc<Opened>,
    /// The processes that executed it.
    pub(super) pids: Vec<u32>,
    module: ModuleId,
    named: Arc<Named>,
}

impl Function {
    /// Returns the address of an offset in the file.
    pub(super) fn address(&self, offset: u64) -> u64 {
        offset.wrapping_sub(self.delta)
    }

    fn frame(&self, address: u64) -> Frame {
        Frame::File { module: self.module, offset: address.wrapping_add(self.delta) }
    }
}

/// A source line.
pub(super) type Line = (Arc<str>, u32);

impl Programs {
    pub(super) fn new(files: &Files, options: &Options) -> Self {
        let limits = symbol::Options { memory: MEMORY, ..symbol::Options::default() };
        Self {
            files: files.clone(),
            code: Code::default(),
            known: FxHashMap::default(),
            symbols: Symbolizer::new(files, Clock::system(), limits),
            lines: (options.debug_info > 0).then(|| Lines::new(files, options.debug_info)),
            cache: options.cache.clone(),
        }
    }

    /// Reads a function.
    pub(super) fn function(&mut self, chosen: &Chosen<'_>, pids: &[u32]) -> Result<Function, NotAnnotated> {
        let path = chosen.file.path;
        let module = self.module(chosen.file, pids)?;
        let frame = Frame::File { module, offset: chosen.offset };
        let named = self.symbols.resolve(&[frame], &self.code).pop();
        let reason = named.as_ref().and_then(|named| named.reason).map_or("none", |reason| reason.as_str());
        let no_symbol = || NotAnnotated::NoSymbol { path: path.to_owned(), reason };
        let named = named.filter(|named| !named.lines.is_empty()).ok_or_else(no_symbol)?;
        let (start, end) = named.function.ok_or_else(no_symbol)?;
        let name = named.lines.last().map(|line| Arc::clone(&line.name)).ok_or_else(no_symbol)?;
        let file = self.code.modules.get(module.0 as usize).and_then(|module| module.file.as_ref().ok());
        let file = file.ok_or_else(|| NotAnnotated::NoFile(path.to_owned()))?;
        let binary = file.binary().map_err(NotAnnotated::Unreadable)?;
        let machine = binary.machine();
        if machine == Arch::Other {
            return Err(NotAnnotated::Machine(path.to_owned()));
        }
        let code = binary.code_at(start, end, CODE_LIMIT).map_err(NotAnnotated::Unreadable)?;
        let delta = chosen.offset.wrapping_sub(named.address);
        drop(binary);
        let (file, pids) = (Arc::clone(file), pids.to_vec());
        Ok(Function { name, start, end, delta, code, machine, file, pids, module, named })
    }

    /// Returns the number of a file, which is open until the next call.
    fn module(&mut self, wanted: FileIdentity<'_>, pids: &[u32]) -> Result<ModuleId, NotAnnotated> {
        let key = (Arc::from(wanted.path), wanted.build_id.cloned(), wanted.hash);
        let known = self.known.get(&key).copied();
        let is_open = |id: &ModuleId| self.code.modules.get(id.0 as usize).is_some_and(|of| of.file.is_ok());
        if let Some(known) = known.filter(is_open) {
            return Ok(known);
        }
        let opened = find_file(&self.files, pids, wanted, self.cache.as_deref());
        let opened = opened.map_err(|missing| match missing {
            FileMissing::Missing => NotAnnotated::NoFile(wanted.path.to_owned()),
            FileMissing::OtherBuild => NotAnnotated::OtherBuild(wanted.path.to_owned()),
        })?;
        if self.code.modules.iter().filter(|module| module.file.is_ok()).count() >= OPEN_LIMIT {
            self.code.modules.iter_mut().for_each(|module| module.file = Err("".into()));
        }
        let id = known.unwrap_or(ModuleId(u32::try_from(self.code.modules.len()).unwrap_or(u32::MAX)));
        if known.is_none() {
            let process = opened.pid.map_or(NO_PROCESS, |pid| self.process(pid));
            let (path, build_id) = (Arc::clone(&key.0), key.1.clone());
            self.code.modules.push(Module { path, build_id, process, file: Err("".into()) });
            self.known.insert(key, id);
        }
        if let Some(module) = self.code.modules.get_mut(id.0 as usize) {
            module.file = Ok(Arc::new(opened));
        }
        Ok(id)
    }

    fn process(&mut self, pid: u32) -> ProcessId {
        self.code.processes.push(Process { pid, own_pid: pid });
        ProcessId(u32::try_from(self.code.processes.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns what is at each of these addresses of the file: `puts@plt`, `burns+0x10`; `None` if it is no function.
    pub(super) fn names(&mut self, function: &Function, addresses: &[u64]) -> Vec<Option<String>> {
        let frames: Vec<Frame> = addresses.iter().map(|&address| function.frame(address)).collect();
        let name = |named: &Arc<Named>| {
            let (line, (start, _)) = (named.lines.last()?, named.function?);
            let name = crate::clean::function_name(&line.name);
            match named.address.wrapping_sub(start) {
                0 => Some(name.into_owned()),
                offset => Some(format!("{name}+{offset:#x}")),
            }
        };
        self.symbols.resolve(&frames, &self.code).iter().map(name).collect()
    }

    /// Returns the source line of each of these addresses of a function, the innermost one in inlined code; and why there are none.
    pub(super) fn lines(
        &mut self,
        function: &Function,
        addresses: impl Iterator<Item = u64>,
    ) -> (Vec<Option<Line>>, Option<LineReason>) {
        let each = |address| Arc::new(Named { address, ..(*function.named).clone() });
        let mut named: Vec<Arc<Named>> = addresses.map(each).collect();
        let Some(lines) = &mut self.lines else { return (vec![None; named.len()], None) };
        let frames: Vec<Frame> = named.iter().map(|named| function.frame(named.address)).collect();
        let before = lines.accounts().clone();
        lines.refine(&frames, &mut named, &self.code);
        let line = |named: &Arc<Named>| {
            let line = named.lines.first().filter(|line| line.line > 0)?;
            Some((line.file.clone()?, line.line))
        };
        let found: Vec<Option<Line>> = named.iter().map(line).collect();
        let after = lines.accounts();
        let increase = |reason: &LineReason| after.of(*reason) - before.of(*reason);
        let main = LineReason::ALL.into_iter().max_by_key(increase).filter(|reason| increase(reason) > 0);
        (found, main)
    }
}
