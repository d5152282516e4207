//! The thread that looks names up before anybody asks: those of functions in metrics, and what cannot wait, because a
//! process that makes code at run time has ended or will. It reads files, which takes as long as it takes; the thread
//! that empties rings must not wait for that.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustc_hash::FxHashMap;

use super::intake::KernelFunction;
use crate::plan::Sampler;
use crate::stack::{Code, Frame, ProcessId};

/// What there is to be looked up.
#[derive(Debug)]
pub(super) struct News {
    pub(super) code: Code,
    /// Processes that make code at run time.
    pub(super) makers: Vec<ProcessId>,
    /// Those of them that have ended.
    pub(super) ended: Vec<ProcessId>,
    /// Functions that the kernel got or lost.
    pub(super) kernel_functions: Vec<KernelFunction>,
    /// By entry, how often which frame was seen innermost.
    pub(super) innermost: Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)>,
}

/// The thread. It ends when this is dropped and what it looks up is found.
pub(super) struct Namer {
    news: SyncSender<News>,
    busy: Arc<AtomicBool>,
}

impl fmt::Debug for Namer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namer").field("busy", &self.is_busy()).finish_non_exhaustive()
    }
}

impl Namer {
    /// Starts it.
    ///
    /// # Errors
    /// When there are no threads left.
    pub(super) fn start(look_up: impl Fn(News) + Send + 'static) -> io::Result<Self> {
        let (news, arrived) = sync_channel::<News>(1);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&busy);
        thread::Builder::new().name("profile-names".into()).spawn(move || {
            for news in arrived {
                look_up(news);
                done.store(false, Ordering::Release);
            }
        })?;
        Ok(Self { news, busy })
    }

    /// Whether it still looks up what it was told last. What is new meanwhile stays where it is.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Has it look something up.
    pub(super) fn tell(&self, news: News) {
        self.busy.store(true, Ordering::Release);
        if self.news.try_send(news).is_err() {
            // It is not there any more: a bug, of which its panic tells.
            tracing::error!("nobody looks up the names of functions any more");
        }
    }
}
