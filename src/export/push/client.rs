//! A receiver, by whichever protocol.

use bytes::Bytes;
use tokio::time::timeout;

use super::grpc::Grpc;
use super::http::Http;
use super::outcome::Outcome;
use super::settings::Target;
use crate::clock::Clock;
use crate::config::push::Protocol;

/// A receiver. What connects to it is made when it is needed, and made anew when it failed: certificates and addresses may be
/// others by then.
#[derive(Debug)]
pub(super) struct Client {
    target: Target,
    clock: Clock,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Connection {
    Grpc(Grpc),
    Http(Box<Http>),
}

impl Client {
    pub(super) fn new(target: Target, clock: Clock) -> Self {
        Self { target, clock, connection: None }
    }

    /// Sends one request, and tells within the time that the target allows what came of it.
    pub(super) async fn send(&mut self, body: &Bytes) -> Outcome {
        let connection = match self.connection.take().map_or_else(|| self.connect(), Ok) {
            Ok(connection) => connection,
            Err(why) => return Outcome::unreachable(why),
        };
        let attempt = async {
            match &connection {
                Connection::Grpc(grpc) => grpc.send(&self.target, body).await,
                Connection::Http(http) => http.send(&self.target, body, &self.clock).await,
            }
        };
        let outcome = timeout(self.target.timeout, attempt).await.unwrap_or_else(|_| {
            Outcome::unreachable(format!("it did not answer within {:?}", self.target.timeout))
        });
        if !matches!(outcome, Outcome::Again { reconnect: true, .. }) {
            self.connection = Some(connection);
        }
        outcome
    }

    fn connect(&self) -> Result<Connection, String> {
        Ok(match self.target.protocol {
            Protocol::Grpc => Connection::Grpc(Grpc::new(&self.target)?),
            Protocol::Http => Connection::Http(Box::new(Http::new(&self.target)?)),
        })
    }
}
