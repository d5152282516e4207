//! Build ids of the mapped files, read by a thread of its own: a file may be on a file system that hangs.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use perf_event_open_sys::bindings as abi;
use rustc_hash::FxHashSet;

use super::constants::EXECUTABLE;
use super::sections;
use crate::files::Files;
use crate::lock::Lock;
use crate::ring::{MappedFile, Mmap};
use crate::stack::{kernel_build_id, mapped_build_id};

/// Maximum number of files.
const LIMIT: usize = 1 << 14;
/// Maximum number of files that wait for the thread. Further files are read when they are mapped again.
const QUEUE: usize = 1 << 12;
/// Maximum time to wait for the thread at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Collects the build ids of files. Unlike `perf record` by default, of all files with executable mappings, not only of those with
/// samples: so the samples need not be interpreted.
#[derive(Debug)]
pub(crate) struct BuildIds {
    known: FxHashSet<(MappedFile, Box<[u8]>)>,
    queue: Option<SyncSender<Mapped>>,
    /// The content of the section, as far as known.
    section: Arc<Lock<Vec<u8>>>,
    /// Disconnected when the thread ends.
    ended: Receiver<Infallible>,
}

/// A mapping of a file that is to be read.
#[derive(Debug)]
struct Mapped {
    pid: u32,
    range: (u64, u64),
    file: MappedFile,
    path: Box<[u8]>,
}

impl BuildIds {
    /// Starts the thread. It begins with the build ids of the kernel and of these modules.
    ///
    /// # Errors
    /// If no thread can be created.
    pub(crate) fn start(files: Files, modules: Vec<String>) -> io::Result<Self> {
        let (queue, mappings) = sync_channel::<Mapped>(QUEUE);
        let (running, ended) = channel();
        let section = Arc::new(Lock::new(Vec::new()));
        let found = Arc::clone(&section);
        thread::Builder::new().name("build-ids".into()).spawn(move || {
            let _running: std::sync::mpsc::Sender<Infallible> = running;
            let kernel = of_kernel(&files, &modules);
            found.lock().extend(kernel);
            for Mapped { pid, range: (start, end), file, path } in mappings {
                let (length, path) = (end - start, &*path);
                let mmap = Mmap { pid, tid: pid, start, length, offset: 0, file, protection: 0, path };
                let Some(id) = mapped_build_id(&files, &mmap) else { continue };
                let entry = sections::build_id(abi::PERF_RECORD_MISC_USER, path, &id);
                found.lock().extend(entry);
            }
        })?;
        Ok(Self { known: FxHashSet::default(), queue: Some(queue), section, ended })
    }

    /// Requests the build id of the file of a mapping, once for each file and path.
    pub(super) fn add(&mut self, mmap: &Mmap<'_>) {
        let end = mmap.start.saturating_add(mmap.length);
        let key = (mmap.file, mmap.path.into());
        if mmap.file.inode == 0
            || mmap.protection & EXECUTABLE == 0
            || self.known.len() >= LIMIT
            || self.known.contains(&key)
        {
            return;
        }
        let mapped =
            Mapped { pid: mmap.pid, range: (mmap.start, end), file: mmap.file, path: mmap.path.into() };
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(mapped).is_ok()) {
            self.known.insert(key);
        }
    }

    /// Returns the content of the section, as far as known.
    pub(super) fn section(&self) -> Vec<u8> {
        self.section.lock().clone()
    }

    /// Waits until all requested files were read, for at most five seconds.
    pub(super) fn finish(&mut self) {
        self.queue = None;
        match self.ended.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(
                    "files do not respond: the recording does not contain the build ids of all files"
                );
            }
            Err(RecvTimeoutError::Disconnected) => {}
            Ok(never) => match never {},
        }
    }
}

/// Returns the entries of the kernel and of its modules.
fn of_kernel(files: &Files, modules: &[String]) -> Vec<u8> {
    let entry = |module: Option<&str>, path: &str| {
        let id = kernel_build_id(files.roots(), module)?;
        Some(sections::build_id(abi::PERF_RECORD_MISC_KERNEL, path.as_bytes(), &id))
    };
    let modules = modules.iter().filter_map(|name| entry(Some(name), &format!("[{name}]")));
    entry(None, "[kernel.kallsyms]").into_iter().chain(modules).flatten().collect()
}
