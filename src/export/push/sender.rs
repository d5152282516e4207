//! Sends what waits, one request after the other, over connections by whatever transport its format has.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::outcome::Outcome;
use super::pump::Outlet;
use super::retry::Backoff;
use crate::clock::Clock;

/// The longest pause once there is a hurry.
const HURRIED: Duration = Duration::from_millis(250);

/// Makes requests, and judges the answers.
pub(in crate::export) trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Open connections to one receiver.
    type Connection: fmt::Debug + Send + Sync;

    /// Prepares connections; they may be opened with the first request. Is called on a tokio runtime, whenever there is no
    /// connection, so files of certificates are read again.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    fn connect(&self) -> Result<Self::Connection, String>;

    /// Sends one request. The caller limits the time.
    fn send(
        &self,
        connection: &Self::Connection,
        body: &Bytes,
        clock: &Clock,
    ) -> impl Future<Output = Outcome> + Send;
}

/// One signal's way to its receiver. A connection is made when it is needed, and made anew after a failure: certificates
/// and addresses may have changed.
#[derive(Debug)]
pub(super) struct Sender<T: Transport> {
    pub(super) outlet: Outlet,
    pub(super) transport: T,
    /// How long an answer may take.
    pub(super) patience: Duration,
    pub(super) connection: Option<T::Connection>,
    pub(super) clock: Clock,
    pub(super) backoff: Backoff,
    /// Becomes true when the exporter is about to stop.
    pub(super) hurry: watch::Receiver<bool>,
}

impl<T: Transport> Sender<T> {
    /// Sends for as long as it is let.
    pub(super) async fn run(mut self) {
        let Outlet { flow, queue, board } = self.outlet.clone();
        loop {
            let waiting = queue.oldest().await;
            let begin = self.clock.monotonic();
            let outcome = self.send(&waiting.bytes).await;
            let took = self.clock.monotonic().since(begin);
            board.sent(flow, took, waiting.bytes.len() as u64, waiting.items, &outcome);
            if let Outcome::Again { after, .. } = outcome {
                queue.put_back();
                let pause = self.backoff.next(after);
                self.pause(pause).await;
            } else {
                self.backoff.reset();
                queue.done(waiting.number);
                board.queued(flow, &queue);
            }
        }
    }

    /// Sends one request. Takes no longer than the receiver is given to answer.
    async fn send(&mut self, body: &Bytes) -> Outcome {
        let connection = match self.connection.take().map_or_else(|| self.transport.connect(), Ok) {
            Ok(connection) => connection,
            Err(why) => return Outcome::unreachable(why),
        };
        let attempt = self.transport.send(&connection, body, &self.clock);
        let outcome = timeout(self.patience, attempt).await.unwrap_or_else(|_| {
            Outcome::unreachable(format!("it did not answer within {:?}", self.patience))
        });
        if !matches!(outcome, Outcome::Again { reconnect: true, .. }) {
            self.connection = Some(connection);
        }
        outcome
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
