//! The connection to a receiver, by whatever transport its format has.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::outcome::Outcome;
use crate::clock::Clock;

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

/// A receiver. Its connection is made when it is needed, and made anew after a failure: certificates and addresses may have
/// changed.
#[derive(Debug)]
pub(super) struct Client<T: Transport> {
    transport: T,
    /// How long an answer may take.
    patience: Duration,
    clock: Clock,
    connection: Option<T::Connection>,
}

impl<T: Transport> Client<T> {
    pub(super) fn new(transport: T, patience: Duration, clock: Clock) -> Self {
        Self { transport, patience, clock, connection: None }
    }

    /// Sends one request. Takes no longer than the receiver is given to answer.
    pub(super) async fn send(&mut self, body: &Bytes) -> Outcome {
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
}
