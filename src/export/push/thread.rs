//! The thread that pushes, and its life.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::formats::{Formats, Settings};
use super::pump::Feed;
use super::start::Running;
use super::surroundings::Surroundings;

/// The thread. It pushes nothing until there are settings that say so.
#[derive(Debug)]
pub struct Pusher {
    stop: watch::Sender<bool>,
    ended: Receiver<()>,
}

impl Pusher {
    /// Starts the thread. Whenever the settings are others it pushes by those.
    ///
    /// # Errors
    /// The kernel's refusal of a thread or of what a runtime needs.
    pub fn start<F: Feed>(
        feed: F,
        settings: watch::Receiver<Option<Arc<Settings>>>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let (running, ended) = channel();
        thread::Builder::new().name("push".into()).spawn(move || {
            runtime.block_on(run(Arc::new(feed), settings, surroundings, stopped));
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
            drop(running);
        })?;
        Ok(Self { stop, ended })
    }

    /// Has the thread push what there is and what waits, and end.
    pub fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// The same, and waits for it for as long as `patience`.
    pub fn stop(self, patience: Duration) {
        self.ask_to_stop();
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("stopped while something was being pushed");
        }
    }
}

async fn run<F: Feed>(
    feed: Arc<F>,
    mut settings: watch::Receiver<Option<Arc<Settings>>>,
    surroundings: Surroundings,
    mut stop: watch::Receiver<bool>,
) {
    let mut formats = Formats::new(&surroundings);
    // Until settings were sent it is not known whether the log is pushed, and it is kept.
    let (mut known, nothing) = (false, Settings::default());
    loop {
        let current = settings.borrow_and_update().clone();
        let wanted = current.as_deref().unwrap_or(&nothing);
        let running = Running::start(&feed, &surroundings, |starter| formats.start(wanted, known, starter));
        let stopping = loop {
            let changed = tokio::select! {
                changed = settings.changed() => changed.is_ok(),
                _ = stop.wait_for(|stop| *stop) => false,
            };
            if !changed {
                break true;
            }
            known = true;
            // What says the same goes on.
            if current.is_none() || *settings.borrow() != current {
                break false;
            }
        };
        running.stop(&surroundings.board).await;
        if stopping {
            return;
        }
    }
}
