//! The HTTP server: `/metrics`, the page, profiles, and what an orchestrator asks. HTTP/1.1 without TLS.
//!
//! It stands on a node's network, so every client is hostile until it has read its answer: headers are small, requests
//! must come and answers must go in time, bodies of requests are never read, and there is a limit on connections. An
//! answer of any size is made while it is sent, one [`CHUNK`](super::prometheus::CHUNK) at a time, and other
//! connections have their turn between the pieces.

mod answer;
mod body;
mod profiles;
mod server;
mod stream;
mod traffic;

#[cfg(test)]
mod tests;

pub use server::{BindError, Server};
pub use traffic::Traffic;

use std::sync::Arc;
use std::time::Duration;

use super::status::Status;
use crate::metrics::Snapshot;
use crate::profile::{Profile, Selection};

/// What the server asks of the rest of the program. Everything here is called on the server's thread: what takes long
/// is awaited, not done.
pub trait Source: Send + Sync + 'static {
    /// The newest collection that is fresh enough, else a new one. All who ask at the same time share one.
    fn snapshot(&self) -> impl Future<Output = Result<Arc<Snapshot>, Unavailable>> + Send;

    /// How things are.
    fn status(&self) -> Arc<Status>;

    /// Whether scrapes are worth making; false before the first collection and while stopping.
    ///
    /// # Errors
    /// Why not, and when they will be.
    fn ready(&self) -> Result<(), Unavailable>;

    /// Reads the configuration again and puts it in force; the text says what changed.
    ///
    /// # Errors
    /// All problems of the configuration, one a line; the one before stays in force.
    fn reload(&self) -> impl Future<Output = Result<String, String>> + Send;

    /// The names of the kinds of profiles that are taken, the most important first; none where there are none.
    fn profiles(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// A profile of one of these kinds. What it holds beyond the selection is left out by the server, so that one
    /// profile can be shared by all who ask for the same time. When whoever asked goes away the future is dropped.
    fn profile(&self, wanted: Wanted) -> impl Future<Output = Result<Arc<Profile>, Unavailable>> + Send {
        let text = format!("no {} profile is taken", wanted.kind);
        async { Err(Unavailable(text)) }
    }
}

/// A profile that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// One of [`Source::profiles`].
    pub kind: Arc<str>,
    /// The time from now on, in seconds: 1 to [`LONGEST`](super::query::LONGEST). It is there when they have passed.
    /// `None` = the time that has passed, as much of it as is kept, at once.
    pub seconds: Option<u32>,
    /// What of it will be shown.
    pub selection: Selection,
}

/// Why there is no answer now: one sentence for the person who asked, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// The bounds that the server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; more are turned away with a 503.
    pub connections: usize,
    /// From the end of one answer to the end of the next request's headers. Covers slow clients and idle connections
    /// alike, so it must be longer than the interval of scrapes for connections to be kept.
    pub request: Duration,
    /// Profiles that are asked for at a time, from the request until all is encoded; more are turned away with a 503.
    pub profiles: usize,
    /// How long a collection may take before the scrape is answered with a 503; the same for a profile, beyond the time
    /// that it is of.
    pub collection: Duration,
    /// How long a client may take to read what fits a buffer.
    pub stall: Duration,
    /// How long a client may take to read an answer.
    pub answer: Duration,
    /// How long answers under way may take once the server is to stop.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            profiles: 8,
            request: Duration::from_secs(75),
            collection: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            answer: Duration::from_secs(60),
            shutdown: Duration::from_secs(5),
        }
    }
}
