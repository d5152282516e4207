//! The HTTP server: `/metrics`, the page, profiles, and what an orchestrator asks. HTTP/1.1 without TLS.
//!
//! It stands on a node's network, so every client is hostile until it has read its answer: headers are small, requests
//! must come and answers must go in time, bodies of requests are never read, and there are limits on connections and
//! requests, of all clients and of each (`admission`). Requests for profiles take turns by peer (`turns`).
//!
//! One thread accepts, reads requests and writes answers. Metrics, pages and profiles are made on blocking threads, each
//! within a bound of its own, so a scrape never waits for a profile.

mod admission;
mod answer;
mod body;
mod cpu;
mod profiles;
mod route;
mod server;
mod shared;
mod stream;
mod traffic;
mod turns;

#[cfg(test)]
mod tests;

pub use cpu::RequestCpu;
pub use server::{BindError, Server};
pub use traffic::Traffic;

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Snapshot;
use crate::profile::{Profile, Selection};
use crate::status::Status;

/// What the server asks of the rest of the program. Everything but [`status`](Self::status) is called on the server's
/// thread: what takes long is awaited, not done, and no lock is taken that is held for longer than a few instructions.
pub trait Source: Send + Sync + 'static {
    /// Returns the newest collection that is fresh enough, else a new one, else the last one when the new one takes
    /// longer than `patience`. All who ask at the same time share one.
    ///
    /// # Errors
    /// There was no collection yet, or there will be none any more.
    fn snapshot(&self, patience: Duration) -> impl Future<Output = Result<Collected, Unavailable>> + Send;

    /// How things are. Called on a blocking thread.
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

/// A collection that answers a scrape.
#[derive(Debug, Clone)]
pub struct Collected {
    /// What was measured.
    pub snapshot: Arc<Snapshot>,
    /// How long ago the collection began: no count in it is older.
    pub age: Duration,
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
    /// Requests for pages and profiles that are answered at a time. Some sockets more are kept for scrapes, and for
    /// connections whose request has not arrived.
    pub connections: usize,
    /// From the first byte of a request, or from the beginning of its connection, to the end of its headers.
    pub headers: Duration,
    /// From the end of one answer to the first byte of the next request. Must be longer than the interval of scrapes for
    /// connections to be kept.
    pub idle: Duration,
    /// Profiles that are made at a time; further requests wait for their turn.
    pub profiles: usize,
    /// How long the first collection may take before the scrape is answered with a 503; the same for a profile, beyond
    /// the time that it is of, and for its turn.
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
            headers: Duration::from_secs(5),
            idle: Duration::from_secs(75),
            collection: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            answer: Duration::from_secs(60),
            shutdown: Duration::from_secs(2),
        }
    }
}
