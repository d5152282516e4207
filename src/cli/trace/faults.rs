//! Page faults: the instruction, and the mapping of the address that it accessed.

use rustc_hash::FxHashMap;

use crate::cli::follow::CallChains;
use crate::error::printable;
use crate::files::Files;
use crate::ring::{Mmap, Record, Sample};
use crate::stack::{Map, MappedContent, Mapping, MappingKinds, ModuleId, mappings};

/// Maximum number of processes with mappings, of mappings of a process, and of names of mapped files.
const MAX_PROCESSES: usize = 1 << 12;
const MAX_MAPPINGS: usize = 1 << 14;
const MAX_NAMES: usize = 1 << 16;

/// The first address of the kernel half on all supported processors.
const KERNEL_HALF: u64 = 1 << 63;

/// The mappings of all processes, for data and for code.
#[derive(Debug)]
pub(super) struct Faults {
    files: Files,
    processes: FxHashMap<u32, Map>,
    /// Names of mapped files, by their number in the mappings.
    names: Vec<String>,
    numbers: FxHashMap<Vec<u8>, ModuleId>,
}

impl Faults {
    pub(super) fn new(files: Files) -> Self {
        Self { files, processes: FxHashMap::default(), names: Vec::new(), numbers: FxHashMap::default() }
    }

    /// Notes what a record reports about the mappings of a process.
    pub(super) fn apply_record(&mut self, record: &Record<'_>) {
        match record {
            Record::Mmap(mmap) => {
                self.read(mmap.pid);
                self.add(mmap);
            }
            Record::Fork(task) if task.pid != task.parent_pid => {
                self.read(task.parent_pid);
                let copy = self.processes.get(&task.parent_pid).cloned();
                self.keep(task.pid, copy.unwrap_or_default());
            }
            Record::Comm(comm) if comm.exec => self.keep(comm.pid, Map::default()),
            Record::Exit(task) if task.pid == task.tid => drop(self.processes.remove(&task.pid)),
            _ => {}
        }
    }

    /// Discards all mappings, because records of others may have been lost.
    pub(super) fn lose(&mut self) {
        self.processes.clear();
    }

    /// Returns the text of a page fault as perf prints it.
    pub(super) fn text(&mut self, sample: &Sample<'_>, major: bool, chains: &mut CallChains) -> String {
        let instruction = chains.instruction(sample).location();
        let level = if sample.ip >= KERNEL_HALF { 'k' } else { '.' };
        let kind = if major { "maj" } else { "min" };
        let (address, found) = match self.find(sample.pid, sample.address) {
            Some((name, offset)) => (format!("{name}@{offset:#x}"), 'd'),
            None => (format!("{:#x}", sample.address), '?'),
        };
        format!("{kind}fault [{instruction}] => {address} ({found}{level})")
    }

    /// Returns the name of the mapping that contains an address, and the offset in it.
    fn find(&mut self, pid: u32, address: u64) -> Option<(&str, u64)> {
        self.read(pid);
        let Mapping { start, content, .. } = self.processes.get(&pid)?.find(address)?;
        let MappedContent::File { module, offset } = content else { return None };
        let name = self.names.get(module.0 as usize)?;
        Some((name, offset.wrapping_add(address - start)))
    }

    /// Reads the mappings of a process that are not known yet.
    fn read(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) {
            return;
        }
        self.keep(pid, Map::default());
        let files = self.files.clone();
        // A process that has ended has none, and only later mappings of it are known.
        mappings(&files, pid, MappingKinds::All, |mmap| self.add(mmap)).ok();
    }

    fn keep(&mut self, pid: u32, map: Map) {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        self.processes.insert(pid, map);
    }

    fn add(&mut self, mmap: &Mmap<'_>) {
        let Some(module) = self.number(mmap.path) else { return };
        let Some(map) = self.processes.get_mut(&mmap.pid).filter(|map| map.len() < MAX_MAPPINGS) else {
            return;
        };
        // As in perf, a place in memory without a file is shown as its address.
        let offset = if is_memory(mmap.path) { mmap.start } else { mmap.offset };
        let content = MappedContent::File { module, offset };
        map.insert(Mapping { start: mmap.start, end: mmap.start.saturating_add(mmap.length), content });
    }

    /// Returns the number of a name; `None` if there are too many.
    fn number(&mut self, path: &[u8]) -> Option<ModuleId> {
        if let Some(&number) = self.numbers.get(path) {
            return Some(number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < MAX_NAMES)?;
        self.names.push(printable(&String::from_utf8_lossy(path)));
        self.numbers.insert(path.to_vec(), ModuleId(number));
        Some(ModuleId(number))
    }
}

/// Reports whether the name is that of memory without a file: a stack, a heap, anonymous or shared memory.
fn is_memory(name: &[u8]) -> bool {
    let starts: [&[u8]; 6] = [b"//", b"[stack", b"[heap]", b"/SYSV", b"/dev/zero", b"/anon_hugepage"];
    starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Roots;
    use crate::ring::{Comm, MappedFile, Task};

    fn mmap<'a>(pid: u32, start: u64, offset: u64, path: &'a [u8]) -> Record<'a> {
        let file = MappedFile { major: 8, minor: 1, inode: 7 };
        Record::Mmap(Mmap { pid, tid: pid, start, length: 0x1000, offset, file, protection: 1, path })
    }

    fn faults() -> Faults {
        let dir = tempfile::tempdir().unwrap();
        Faults::new(Files::from(&Roots::under(dir.path())))
    }

    #[test]
    fn an_address_belongs_to_the_newest_mapping_of_its_process() {
        let mut faults = faults();
        faults.apply_record(&mmap(7, 0x5000, 0x2000, b"/lib/a.so"));
        assert_eq!(faults.find(7, 0x5010), Some(("/lib/a.so", 0x2010)));
        assert_eq!(faults.find(7, 0x6000), None);
        assert_eq!(faults.find(8, 0x5010), None);
        faults.apply_record(&mmap(7, 0x5000, 0x7000, b"//anon\x1b"));
        assert_eq!(faults.find(7, 0x5010), Some(("//anon\\u{1b}", 0x5010)));
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_until_it_executes_a_program() {
        let mut faults = faults();
        faults.apply_record(&mmap(7, 0x5000, 0, b"/lib/a.so"));
        let task = Task { pid: 9, parent_pid: 7, tid: 9, parent_tid: 7, time: 0 };
        faults.apply_record(&Record::Fork(task));
        assert_eq!(faults.find(9, 0x5001), Some(("/lib/a.so", 1)));
        faults.apply_record(&Record::Comm(Comm { pid: 9, tid: 9, name: b"x", exec: true }));
        assert_eq!(faults.find(9, 0x5001), None);
        assert_eq!(faults.find(7, 0x5001), Some(("/lib/a.so", 1)));
        faults.apply_record(&Record::Exit(Task { pid: 7, tid: 7, ..task }));
        assert_eq!(faults.find(7, 0x5001), None);
    }
}
