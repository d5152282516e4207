//! The push thread and its life cycle.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::context::PushContext;
use super::formats::{Formats, Settings};
use super::producer::Feed;
use super::start::Running;

/// The push thread. It pushes nothing until it receives settings that enable a push.
#[derive(Debug)]
pub struct Pusher {
    stop: watch::Sender<bool>,
    ended: Receiver<()>,
}

impl Pusher {
    /// Starts the thread. Whenever the settings change, the new ones are applied.
    ///
    /// # Errors
    /// Returns the kernel's error if the thread or the resources of its runtime cannot be created.
    pub fn start<F: Feed>(
        feed: F,
        settings: watch::Receiver<Option<Arc<Settings>>>,
        push_context: PushContext,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let (running, ended) = channel();
        thread::Builder::new().name("push".into()).spawn(move || {
            runtime.block_on(run(Arc::new(feed), settings, push_context, stopped));
            // A pending name lookup would block the thread and is abandoned.
            runtime.shutdown_background();
            drop(running);
        })?;
        Ok(Self { stop, ended })
    }

    /// Signals the thread to push current and queued data and then to end.
    pub fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Does the same as [`ask_to_stop`](Self::ask_to_stop) and waits up to `patience` for the thread.
    pub fn stop(self, patience: Duration) {
        self.ask_to_stop();
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("push thread did not stop in time");
        }
    }
}

async fn run<F: Feed>(
    feed: Arc<F>,
    mut settings: watch::Receiver<Option<Arc<Settings>>>,
    push_context: PushContext,
    mut stop: watch::Receiver<bool>,
) {
    let mut formats = Formats::new(&push_context);
    // Whether the log is pushed is unknown before the first settings, so it is buffered until then.
    let (mut known, nothing) = (false, Settings::default());
    loop {
        let current = settings.borrow_and_update().clone();
        let wanted = current.as_deref().unwrap_or(&nothing);
        let running = Running::start(&feed, &push_context, |starter| formats.start(wanted, known, starter));
        let stopping = loop {
            let changed = tokio::select! {
                changed = settings.changed() => changed.is_ok(),
                _ = stop.wait_for(|stop| *stop) => false,
            };
            if !changed {
                break true;
            }
            known = true;
            // Equal settings continue without a restart.
            if current.is_none() || *settings.borrow() != current {
                break false;
            }
        };
        running.stop(&push_context.board).await;
        if stopping {
            return;
        }
    }
}
