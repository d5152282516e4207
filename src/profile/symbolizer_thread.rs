//! The thread that symbolizes before a request: functions in metrics, processes that generate code at run time, because they have exited or
//! will, and frames of the sample logs, whose files may be gone when a profile of the past is requested. It reads files, which may block; the thread that drains rings must not wait for that.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustc_hash::FxHashMap;

use crate::plan::Sampler;
use crate::stack::{Code, Frame, Process, ProcessId};

/// A function that was added to or removed from the kernel: its address, its length, whether it was removed, its name.
pub(super) type KernelFunction = (u64, u32, bool, Box<[u8]>);

/// Work for the symbolization thread.
#[derive(Debug, Default)]
pub(super) struct SymbolizerWork {
    pub(super) code: Code,
    /// Processes that generate code at run time.
    pub(super) jit_processes: Vec<ProcessId>,
    /// Those processes that have exited.
    pub(super) ended: Vec<ProcessId>,
    /// Processes that no stack refers to any more. Their numbers will be reused.
    pub(super) gone: Vec<(ProcessId, Process)>,
    /// Functions that were added to or removed from the kernel.
    pub(super) kernel_functions: Vec<KernelFunction>,
    /// By entry, the number of samples with each frame as innermost frame.
    pub(super) innermost: Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)>,
    /// Frames whose names must be known when their files can no longer be read.
    pub(super) kept: Vec<Frame>,
}

impl SymbolizerWork {
    pub(super) fn is_empty(&self) -> bool {
        self.jit_processes.is_empty()
            && self.ended.is_empty()
            && self.gone.is_empty()
            && self.kernel_functions.is_empty()
            && self.innermost.iter().all(|(_, frames)| frames.is_empty())
            && self.kept.is_empty()
    }
}

/// The handle of the thread. After the handle is dropped, the thread finishes its current work and ends.
#[derive(Debug)]
pub(super) struct SymbolizerThread {
    work: SyncSender<SymbolizerWork>,
    busy: Arc<AtomicBool>,
}

impl SymbolizerThread {
    /// Starts the thread. If the work panics, the thread calls `failed` and continues with the next work.
    ///
    /// # Errors
    /// When the thread cannot be created.
    pub(super) fn start(
        look_up: impl Fn(SymbolizerWork) + Send + 'static,
        failed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (work, arrived) = sync_channel::<SymbolizerWork>(1);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&busy);
        thread::Builder::new().name("profile-names".into()).spawn(move || {
            for work in arrived {
                // Locks are not poisoned, and a symbol table that is read in part is read again.
                if catch_unwind(AssertUnwindSafe(|| look_up(work))).is_err() {
                    failed();
                }
                done.store(false, Ordering::Release);
            }
        })?;
        Ok(Self { work, busy })
    }

    /// Reports whether the thread still works. New work stays with the caller until then.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Passes work to the thread.
    pub(super) fn send(&self, work: SymbolizerWork) {
        self.busy.store(true, Ordering::Release);
        if self.work.try_send(work).is_err() {
            // The thread takes one item at a time and never ends before this handle: a bug.
            tracing::error!("the thread profile-names has ended: functions in metrics have no names");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    fn work(maker: u32) -> SymbolizerWork {
        SymbolizerWork { jit_processes: vec![ProcessId(maker)], ..SymbolizerWork::default() }
    }

    #[test]
    fn names_are_looked_up_after_a_look_up_that_panicked() {
        let (sender, receiver) = channel();
        let failures = Arc::new(AtomicU32::new(0));
        let failed = Arc::clone(&failures);
        let look_up = move |work: SymbolizerWork| {
            assert_ne!(work.jit_processes, [ProcessId(1)], "this work panics");
            sender.send(work.jit_processes).unwrap();
        };
        let count = move || {
            failed.fetch_add(1, Ordering::SeqCst);
        };
        let symbolizer = SymbolizerThread::start(look_up, count).unwrap();
        symbolizer.send(work(1));
        for _ in 0..10_000 {
            if !symbolizer.is_busy() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!symbolizer.is_busy(), "the thread works after a panic");
        symbolizer.send(work(2));
        assert_eq!(receiver.recv().unwrap(), [ProcessId(2)]);
        assert_eq!(failures.load(Ordering::SeqCst), 1);
    }
}
