//! The files of a recording, and the same files on this machine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::printable;
use crate::files::{Files, Opened, Root};
use crate::stack::{BuildId, Code, Frame, Module, ModuleId, Process, ProcessId};

/// Maximum number of open files.
const OPEN_LIMIT: usize = 256;
/// A process that does not exist: related files are looked up on this machine, not in the root of a process.
const NO_PROCESS: ProcessId = ProcessId(u32::MAX);

/// Why a file of the recording is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unused {
    /// It does not exist on this machine, or cannot be read.
    Missing,
    /// The file on this machine has another build id than the recorded one.
    OtherBuild,
}

/// The files, in the form that the symbolizer reads.
#[derive(Debug, Default)]
pub(super) struct RecordedFiles {
    pub(super) code: Code,
    known: HashMap<(Arc<str>, Option<BuildId>), ModuleId>,
    /// For each module, the result of the last attempt to open it.
    states: Vec<Option<Result<PathBuf, Unused>>>,
    open: usize,
}

impl RecordedFiles {
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Adds a file.
    pub(super) fn add(&mut self, path: &str, build_id: Option<BuildId>) -> ModuleId {
        let key = (Arc::from(path), build_id);
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let id = ModuleId(u32::try_from(self.states.len()).unwrap_or(u32::MAX));
        let (path, build_id) = key.clone();
        self.code.modules.push(Module { path, build_id, process: NO_PROCESS, file: Err("".into()) });
        self.states.push(None);
        self.known.insert(key, id);
        id
    }

    /// Adds a process with memory that contains code.
    pub(super) fn add_process(&mut self, pid: u32) -> ProcessId {
        self.code.processes.push(Process { pid, own_pid: pid });
        ProcessId(u32::try_from(self.code.processes.len() - 1).unwrap_or(u32::MAX))
    }

    /// Opens the files of these frames. Another call may close them.
    pub(super) fn open(&mut self, frames: &[Frame], files: &Files, cache: Option<&str>) {
        let modules = frames.iter().filter_map(|frame| match frame {
            Frame::File { module, .. } => Some(*module),
            _ => None,
        });
        for module in modules {
            self.open_module(module, files, cache);
        }
    }

    /// Returns the file of a module, which is opened if necessary.
    pub(super) fn file(&mut self, id: ModuleId, files: &Files, cache: Option<&str>) -> Option<Arc<Opened>> {
        self.open_module(id, files, cache);
        self.code.modules.get(id.0 as usize)?.file.as_ref().ok().cloned()
    }

    fn open_module(&mut self, id: ModuleId, files: &Files, cache: Option<&str>) {
        let place = id.0 as usize;
        let (Some(module), Some(state)) = (self.code.modules.get(place), self.states.get(place)) else {
            return;
        };
        if module.file.is_ok() || matches!(state, Some(Err(_))) || &*module.path == "[vdso]" {
            return;
        }
        let opened = find(module, files, cache);
        if self.open >= OPEN_LIMIT {
            for module in &mut self.code.modules {
                module.file = Err("".into());
            }
            self.open = 0;
        }
        let state = match opened {
            Ok(opened) => {
                let path = opened.shown.clone();
                if let Some(module) = self.code.modules.get_mut(place) {
                    module.file = Ok(Arc::new(opened));
                    self.open += 1;
                }
                Ok(path)
            }
            Err(unused) => Err(unused),
        };
        if let Some(place) = self.states.get_mut(place) {
            *place = Some(state);
        }
    }

    /// Returns the files that are not used, with their paths.
    pub(super) fn unused(&self) -> Vec<(Unused, String)> {
        let states = self.states.iter().zip(&self.code.modules);
        let mut unused: Vec<_> = states
            .filter_map(|(state, module)| match state {
                Some(Err(unused)) => Some((*unused, printable(&module.path).to_string())),
                _ => None,
            })
            .collect();
        unused.sort();
        unused
    }
}

/// Opens the file with the recorded build id: at its path, or in the build id cache of perf, or a debug file.
fn find(module: &Module, files: &Files, cache: Option<&str>) -> Result<Opened, Unused> {
    let wanted = module.build_id.as_ref().map(ToString::to_string);
    let has_build_id = |opened: &Opened| {
        let found = opened.binary().ok().and_then(|binary| binary.build_id());
        // perf records at most 20 bytes.
        wanted.as_ref().is_none_or(|wanted| found.is_some_and(|found| found.starts_with(wanted)))
    };
    let mut unused = Unused::Missing;
    if let Ok(opened) = files.open(&Root::Host, &module.path, None) {
        if has_build_id(&opened) {
            return Ok(opened);
        }
        unused = Unused::OtherBuild;
    }
    let Some((start, rest)) = wanted.as_ref().and_then(|id| id.split_at_checked(2)) else {
        return Err(unused);
    };
    let cached = cache.map(|cache| format!("{cache}/.build-id/{start}/{rest}/elf"));
    cached.and_then(|path| files.open(&Root::Host, &path, None).ok()).filter(has_build_id).ok_or(unused)
}
