//! The files of a recording, and the same files on this machine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::printable;
use crate::files::{Files, Opened};
use crate::stack::{BuildId, Code, Frame, Module, ModuleId, Process, ProcessId};
use crate::symbol::{self, FileIdentity, FileMissing, Object, find_file};

/// Maximum number of open files.
const OPEN_LIMIT: usize = 256;
/// A process that does not exist: related files are looked up on this machine, not in the root of a process.
const NO_PROCESS: ProcessId = ProcessId(u32::MAX);

/// The files, in the form that the symbolizer reads.
#[derive(Debug, Default)]
pub(super) struct RecordedFiles {
    pub(super) code: Code,
    known: HashMap<(Arc<str>, Option<BuildId>), ModuleId>,
    /// For each module, the result of the last attempt to open it.
    states: Vec<Option<Result<PathBuf, FileMissing>>>,
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

    /// Returns the variables at offsets in the file of a module, in their order. Memory without a file has none.
    pub(super) fn objects(
        &mut self,
        id: ModuleId,
        files: &Files,
        cache: Option<&str>,
        offsets: &[u64],
    ) -> Vec<Option<Object>> {
        if !self.code.modules.get(id.0 as usize).is_some_and(|module| is_file(&module.path)) {
            return vec![None; offsets.len()];
        }
        self.open_module(id, files, cache);
        match self.code.modules.get(id.0 as usize) {
            Some(module) => symbol::objects(module, files, offsets),
            None => vec![None; offsets.len()],
        }
    }

    fn open_module(&mut self, id: ModuleId, files: &Files, cache: Option<&str>) {
        let place = id.0 as usize;
        let (Some(module), Some(state)) = (self.code.modules.get(place), self.states.get(place)) else {
            return;
        };
        if module.file.is_ok() || matches!(state, Some(Err(_))) || &*module.path == "[vdso]" {
            return;
        }
        let build_id = module.build_id.as_ref();
        let opened = find_file(files, &[], FileIdentity { path: &module.path, build_id, hash: None }, cache);
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
    pub(super) fn unused(&self) -> Vec<(FileMissing, String)> {
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

/// Reports whether a path is that of a file, or of the vDSO.
pub(super) fn is_file(path: &str) -> bool {
    const MEMORY: [&str; 6] = ["//anon", "/dev/zero", "/anon_hugepage", "[stack", "[heap]", "/SYSV"];
    path == "[vdso]" || path.starts_with('/') && !MEMORY.iter().any(|memory| path.starts_with(memory))
}
