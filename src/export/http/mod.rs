//! The HTTP server: `/metrics`, status and profile pages, health checks. HTTP/1.1, with and without TLS.
//!
//! The server is reachable on the node's network, so all requests are untrusted input. Headers are small, request headers and responses
//! have deadlines, and request bodies are never read. Connections and requests are limited in total and per client (`admission`). Requests
//! for profiles are scheduled round robin by peer (`turns`).
//!
//! One thread accepts connections, reads requests and writes responses. Metrics, pages and profiles are rendered on blocking threads with a
//! separate limit for each, so a scrape never waits for a profile. Requests that a browser sends for another site are rejected (`guard`), and
//! so are those of clients that may not use a resource (`access`, `password`, `review`).

mod access;
mod admission;
mod answer;
mod baselines;
mod body;
mod cpu;
mod deep;
mod digest;
mod guard;
mod guesses;
mod heatmap;
mod incidents;
mod listener;
mod nonce;
mod password;
mod past;
mod profiles;
mod rate;
mod rendered;
mod review;
mod route;
mod server;
mod shared;
mod stream;
mod traffic;
mod transport;
mod turns;
mod uploads;

#[cfg(test)]
mod tests;

pub use access::Rules;
pub use cpu::RequestCpu;
pub use listener::{BindError, Listeners};
pub use server::Server;
pub use traffic::Traffic;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::annotate::{Annotator, Options, Syntax};
use crate::anomaly::Report;
use crate::config::Metrics;
use crate::deep as sets;
use crate::files::Files;
use crate::history::SharedHistory;
use crate::host::Roots;
use crate::incident::{IncidentId, Store, Trigger};
use crate::metrics::Snapshot;
use crate::profile::{HeatMap, Profile, Selection, TimeRange};
use crate::status::Status;

/// Interface of the server to the rest of the program. All methods except [`status`](Self::status) are called on the server's thread. They
/// must not block: long operations are awaited, and locks are held for a few instructions only.
pub trait Source: Send + Sync + 'static {
    /// Returns the latest collection if it is fresh enough, otherwise a new one. If the new one takes longer than `patience`, returns the
    /// latest one. Concurrent calls share one collection.
    ///
    /// # Errors
    /// Returns an error if there was no collection yet, or if there will be no more.
    fn snapshot(&self, patience: Duration) -> impl Future<Output = Result<Collected, Unavailable>> + Send;

    /// Returns the status of the exporter. Called on a blocking thread.
    fn status(&self) -> Arc<Status>;

    /// Reports whether the exporter is ready: not before the first collection, and not during shutdown.
    ///
    /// # Errors
    /// Returns the reason, and when the exporter will be ready.
    fn ready(&self) -> Result<(), Unavailable>;

    /// Reloads the configuration and applies it. Returns a text that lists the changes.
    ///
    /// # Errors
    /// Returns all problems of the configuration, one per line. The previous configuration stays active.
    fn reload(&self) -> impl Future<Output = Result<String, String>> + Send;

    /// Returns the rules of access in force.
    fn rules(&self) -> Arc<Rules> {
        Arc::default()
    }

    /// Returns the rules of access in force, and all that replace them.
    fn follow_rules(&self) -> watch::Receiver<Arc<Rules>> {
        watch::channel(self.rules()).1
    }

    /// Returns the history.
    fn history(&self) -> SharedHistory {
        SharedHistory::default()
    }

    /// Returns the last comparison of figures with their past; empty if there was none.
    fn anomalies(&self) -> Arc<Report> {
        Arc::default()
    }

    /// Returns the last collection; `None` before the first.
    fn latest(&self) -> Option<Arc<Snapshot>> {
        None
    }

    /// Returns the directory of incidents; `None` = none is configured.
    fn incidents(&self) -> Option<Store> {
        None
    }

    /// Requests the evidence of an incident of a cgroup, or of the machine. Returns its identifier before the evidence is collected.
    ///
    /// # Errors
    /// One sentence for the client: why there will be none.
    fn trigger(
        &self,
        trigger: Trigger,
        cgroup: Option<String>,
    ) -> impl Future<Output = Result<IncidentId, String>> + Send {
        let text =
            format!("no incident is recorded for a trigger of the type {} of {cgroup:?}", trigger.word());
        async { Err(text) }
    }

    /// Begins or ends a set of events that is counted for a limited time.
    ///
    /// # Errors
    /// Why nothing changed.
    fn deep(&self, wanted: sets::Wanted) -> impl Future<Output = sets::Outcome> + Send {
        let reason = format!("sets of events are not counted here: {wanted:?}");
        async move { Err(sets::Refusal::new(sets::RefusalKind::Stopping, reason, "use the service")) }
    }

    /// Returns the names of the recorded kinds of profiles, the most important first; empty if none is recorded.
    fn profiles(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Returns a profile of one of these kinds. It may contain more than the selection, which the server filters. Requests for the same
    /// time range can therefore share one profile. The future is dropped when the client disconnects.
    fn profile(&self, wanted: Wanted) -> impl Future<Output = Result<Arc<Profile>, Unavailable>> + Send {
        let text = format!("no {} profile is taken", wanted.kind);
        async { Err(Unavailable(text)) }
    }

    /// Returns what annotates functions of profiles. It is used on a blocking thread.
    fn annotator(&self, syntax: Syntax) -> Annotator {
        Annotator::new(&Files::here(&Roots::default()), Options { syntax, ..Options::default() })
    }

    /// Returns the number of samples of one of these kinds by second, and by offset within the second, in `rows`.
    fn heat(
        &self,
        kind: Arc<str>,
        range: TimeRange,
        rows: u32,
        selection: Selection,
    ) -> impl Future<Output = Result<HeatMap, Unavailable>> + Send {
        let _ = (range, rows, selection);
        async move { Err(Unavailable(format!("no {kind} profile is taken"))) }
    }
}

/// A collection that is the response to a scrape.
#[derive(Debug, Clone)]
pub struct Collected {
    /// The published metrics.
    pub snapshot: Arc<Snapshot>,
    /// Which metrics are published.
    pub metrics: Arc<Metrics>,
    /// Time since the start of the collection: no value in it is older.
    pub age: Duration,
}

/// Parameters of a requested profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// One of [`Source::profiles`].
    pub kind: Arc<str>,
    /// Duration from now on in seconds, 1 to [`LONGEST`](super::query::LONGEST). The profile is available after this time. `None` selects
    /// the recorded past, immediately.
    pub seconds: Option<u32>,
    /// A range of the recorded past. `None` selects the window of the entry up to now. Excludes `seconds`.
    pub range: Option<TimeRange>,
    /// Selection of samples that will be shown.
    pub selection: Selection,
}

/// Reason why a request cannot be answered now: one sentence for the client, without a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Limits of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent requests for pages and profiles. A few more sockets are reserved for scrapes and for connections whose
    /// request has not arrived.
    pub connections: usize,
    /// Time limit from the first byte of a request, or from the start of its connection, to the end of its headers.
    pub headers: Duration,
    /// Time limit from the end of a response to the first byte of the next request. To keep connections open, it must be longer than the
    /// scrape interval.
    pub idle: Duration,
    /// Maximum number of profiles in progress. Further requests are queued.
    pub profiles: usize,
    /// Time limit of the first collection, after which a scrape is answered with 503. The same limit applies to the wait for a turn, and to
    /// a profile beyond its duration.
    pub collection: Duration,
    /// Time limit for a client to read one full buffer.
    pub stall: Duration,
    /// Time limit for the body of an upload.
    pub upload: Duration,
    /// Time limit for a client to read a response.
    pub answer: Duration,
    /// Time limit for responses in progress during shutdown.
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
            upload: Duration::from_secs(20),
            answer: Duration::from_secs(60),
            shutdown: Duration::from_secs(2),
        }
    }
}
