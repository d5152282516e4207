//! Sends queued requests in sequence, over the transport of their format.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::outcome::Outcome;
use super::producer::PayloadSink;
use super::retry::Backoff;
use super::span::RequestSpans;
use crate::clock::Clock;

/// Maximum retry delay during shutdown.
const HURRIED: Duration = Duration::from_millis(250);

/// Sends requests and evaluates the responses.
pub(in crate::export) trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Open connections to one receiver.
    type Connection: fmt::Debug + Send + Sync;

    /// Prepares connections; the first request may open them. Called on a tokio runtime whenever there is no connection, so certificate
    /// files are read again.
    ///
    /// # Errors
    /// Returns an error that describes the problem with the certificates.
    fn connect(&self) -> Result<Self::Connection, String>;

    /// Sends one request. The caller limits the time.
    fn send(
        &self,
        connection: &Self::Connection,
        body: &Bytes,
        clock: &Clock,
    ) -> impl Future<Output = Outcome> + Send;
}

/// Sender of one signal to its receiver. A connection is created when needed, and replaced after a failure: certificates and addresses may
/// have changed.
#[derive(Debug)]
pub(super) struct Sender<T: Transport> {
    pub(super) sink: PayloadSink,
    pub(super) spans: RequestSpans,
    pub(super) transport: T,
    /// Time limit for a response.
    pub(super) patience: Duration,
    pub(super) connection: Option<T::Connection>,
    pub(super) clock: Clock,
    pub(super) backoff: Backoff,
    /// Becomes true when the exporter is about to stop.
    pub(super) hurry: watch::Receiver<bool>,
}

impl<T: Transport> Sender<T> {
    /// Sends requests until the task is aborted.
    pub(super) async fn run(mut self) {
        let PayloadSink { flow, queue, board } = self.sink.clone();
        loop {
            let waiting = queue.oldest().await;
            let begin = self.clock.monotonic();
            let span = self.spans.begin(waiting.bytes.len() as u64, waiting.items);
            let outcome = self.send(&waiting.bytes).await;
            self.spans.end(span, &outcome);
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

    /// Sends one request within the response time limit.
    async fn send(&mut self, body: &Bytes) -> Outcome {
        let connection = match self.connection.take().map_or_else(|| self.transport.connect(), Ok) {
            Ok(connection) => connection,
            Err(why) => return Outcome::unreachable(why),
        };
        let attempt = self.transport.send(&connection, body, &self.clock);
        let outcome = timeout(self.patience, attempt)
            .await
            .unwrap_or_else(|_| Outcome::unreachable(format!("no response within {:?}", self.patience)));
        if !matches!(outcome, Outcome::Again { reconnect: true, .. }) {
            self.connection = Some(connection);
        }
        outcome
    }

    /// Waits; the time is shortened during shutdown.
    async fn pause(&mut self, pause: Duration) {
        if !*self.hurry.borrow() {
            tokio::select! {
                () = sleep(pause) => return,
                // When the sender is gone, the task is about to be aborted.
                _ = self.hurry.wait_for(|hurry| *hurry) => {}
            }
        }
        sleep(pause.min(HURRIED)).await;
    }
}
