//! Records of what existed before the recording: mappings of the kernel, cgroups, threads and their mappings.

use std::collections::BTreeSet;

use super::format::{cgroup, comm, kernel_mmap, mmap2};
use crate::files::Files;
use crate::host::{self, Roots};
use crate::register::threads;
use crate::stack::{MappingKinds, mappings};
use crate::targets::{CgroupMount, Cgroups};

/// Maximum size of the list of kernel functions, in bytes.
const KALLSYMS: u64 = 128 << 20;

/// The processes to describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExistingProcesses {
    /// All processes.
    All,
    /// Processes of these threads, with all their threads.
    Of(BTreeSet<u32>),
}

/// The state of a machine before a recording.
#[derive(Debug)]
pub(crate) struct Existing<'a> {
    /// Opens files of processes.
    pub(crate) files: &'a Files,
    /// The processes to describe.
    pub(crate) processes: ExistingProcesses,
    /// The mappings that are described.
    pub(crate) mappings: MappingKinds,
    /// Length of the fields of `sample_id_all`, in bytes.
    pub(crate) trailer: usize,
}

/// A module of the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    name: String,
    range: (u64, u64),
}

impl Existing<'_> {
    /// Passes the records to `each`. What cannot be read is omitted: a process may have exited, and an ordinary user must not see the
    /// addresses of the kernel.
    pub(crate) fn records(&self, mut each: impl FnMut(&[u8])) {
        let (roots, trailer) = (self.files.roots(), self.trailer);
        if let Some((start, end)) = kernel_text(roots) {
            each(&kernel_mmap((start, end), start, "[kernel.kallsyms]_text", trailer));
        }
        for Module { name, range } in modules(roots) {
            each(&kernel_mmap(range, 0, &format!("[{name}]"), trailer));
        }
        for (id, path) in cgroups(roots) {
            each(&cgroup(id, &path, trailer));
        }
        self.processes(each);
    }

    /// Passes the names of threads and the mappings of processes to `each`.
    fn processes(&self, mut each: impl FnMut(&[u8])) {
        let all: Vec<_> = match &self.processes {
            ExistingProcesses::All => threads(self.files.roots()).collect(),
            ExistingProcesses::Of(none) if none.is_empty() => Vec::new(),
            ExistingProcesses::Of(tids) => {
                let all: Vec<_> = threads(self.files.roots()).collect();
                let pids: BTreeSet<u32> =
                    all.iter().filter(|(_, tid, _)| tids.contains(tid)).map(|&(pid, ..)| pid).collect();
                all.into_iter().filter(|(pid, ..)| pids.contains(pid)).collect()
            }
        };
        for of_process in all.chunk_by(|(pid, ..), (next, ..)| pid == next) {
            // The name of the first thread, which has the ID of the process, is that of the process.
            let first = of_process.iter().filter(|(pid, tid, _)| pid == tid);
            let others = of_process.iter().filter(|(pid, tid, _)| pid != tid);
            for (pid, tid, name) in first.chain(others) {
                each(&comm(*pid, *tid, name, self.trailer));
            }
            let Some(&(pid, ..)) = of_process.first() else { continue };
            let mapped = mappings(self.files, pid, self.mappings, |mmap| each(&mmap2(mmap, self.trailer)));
            if let Err(error) = mapped {
                tracing::debug!(pid, "the mappings of a process are missing in the recording: {error}");
            }
        }
    }
}

/// Returns the addresses of the kernel's functions. `None` if they are hidden from this user.
fn kernel_text(roots: &Roots) -> Option<(u64, u64)> {
    let (mut text, mut stext, mut etext) = (None, None, None);
    let read = host::lines(&roots.proc.join("kallsyms"), KALLSYMS, |line| {
        let place = match line.get(16..) {
            Some([b' ', _, b' ', rest @ ..]) => match rest {
                b"_text" => &mut text,
                b"_stext" => &mut stext,
                b"_etext" => &mut etext,
                _ => return,
            },
            _ => return,
        };
        *place = place.or_else(|| u64::from_str_radix(std::str::from_utf8(&line[..16]).ok()?, 16).ok());
    });
    if let Err(error) = read {
        tracing::debug!("the addresses of the kernel are missing in the recording: {error}");
    }
    let start = text.or(stext).filter(|&start| start > 0)?;
    etext.filter(|&end| end > start).map(|end| (start, end))
}

/// Returns the names of the modules of the kernel.
pub(crate) fn module_names(roots: &Roots) -> Vec<String> {
    modules(roots).into_iter().map(|module| module.name).collect()
}

/// Returns the modules of the kernel that this user sees with their addresses.
fn modules(roots: &Roots) -> Vec<Module> {
    // A name, a size, numbers of users, a state, an address.
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (name, size) = (fields.next()?, fields.next()?.parse::<u64>().ok()?);
        let start = fields.find_map(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok())?;
        let range = (start, start.saturating_add(size));
        (start > 0).then(|| Module { name: name.to_owned(), range })
    };
    host::read_text(&roots.proc.join("modules")).unwrap_or_default().lines().filter_map(parse).collect()
}

/// Returns IDs and paths of the cgroups.
fn cgroups(roots: &Roots) -> Vec<(u64, String)> {
    let Ok(mount) = CgroupMount::find(roots) else { return Vec::new() };
    let mut cgroups = Cgroups::new(mount.dir());
    if let Err(error) = cgroups.refresh() {
        tracing::debug!("cgroups are missing in the recording: {error}");
    }
    cgroups.iter().map(|cgroup| (cgroup.id.0, cgroup.path.to_string())).collect()
}
