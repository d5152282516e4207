//! Sends what waits, one request after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::client::{Client, Transport};
use super::outcome::Outcome;
use super::queue::Queue;
use super::retry::Backoff;
use super::route::Flow;
use super::state::Board;
use crate::clock::Clock;

/// The longest pause once there is a hurry.
const HURRIED: Duration = Duration::from_millis(250);

/// One signal's way to its receiver.
#[derive(Debug)]
pub(super) struct Sender<T: Transport> {
    pub(super) flow: Flow,
    pub(super) queue: Arc<Queue>,
    pub(super) client: Client<T>,
    pub(super) board: Arc<Board>,
    pub(super) clock: Clock,
    pub(super) backoff: Backoff,
    /// Becomes true when the exporter is about to stop.
    pub(super) hurry: watch::Receiver<bool>,
}

impl<T: Transport> Sender<T> {
    /// Sends for as long as it is let.
    pub(super) async fn run(mut self) {
        loop {
            let waiting = self.queue.oldest().await;
            let begin = self.clock.monotonic();
            let outcome = self.client.send(&waiting.bytes).await;
            let took = self.clock.monotonic().since(begin);
            self.board.sent(self.flow, took, waiting.bytes.len() as u64, waiting.items, &outcome);
            if let Outcome::Again { after, .. } = outcome {
                self.queue.put_back();
                let pause = self.backoff.next(after);
                self.pause(pause).await;
            } else {
                self.backoff.reset();
                self.queue.done(waiting.number);
                self.board.queued(self.flow, &self.queue);
            }
        }
    }

    /// Waits, for less time if there is a hurry or one begins.
    async fn pause(&mut self, pause: Duration) {
        if !*self.hurry.borrow() {
            tokio::select! {
                () = sleep(pause) => return,
                // When nobody can tell any more the task is about to be ended.
                _ = self.hurry.wait_for(|hurry| *hurry) => {}
            }
        }
        sleep(pause.min(HURRIED)).await;
    }
}
