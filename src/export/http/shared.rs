//! State shared by all connections of a server, and the blocking threads that render responses.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::baselines::Baselines;
use super::cpu::RequestCpu;
use super::rate::TokenBucket;
use super::turns::Turns;
use super::{Limits, Source, Traffic};
use crate::budget::Share;
use crate::clock::Clock;
use crate::lock::Lock;
use crate::span::Spans;

/// Maximum number of pages rendered concurrently. More would compete with scrapes for CPU time.
const PAGES: usize = 2;

/// Maximum number of profiles encoded concurrently, for the same reason.
const ENCODED: usize = 2;

/// Maximum number of functions annotated concurrently. Each can take memory for the debug information of a file.
const ANNOTATED: usize = 1;

/// Limit of changes of sets of events: one in this time, after a burst.
const PER_CHANGE: Duration = Duration::from_secs(5);
const CHANGES: u32 = 10;

/// State shared by all connections of a server.
#[derive(Debug)]
pub(super) struct Shared<S> {
    pub(super) source: S,
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// Memory share of response data that is not sent yet.
    pub(super) memory: Share,
    /// Spans of scrapes.
    pub(super) spans: Spans,
    /// Scheduler of profile requests.
    pub(super) turns: Turns,
    /// Uploaded profiles.
    pub(super) baselines: Baselines,
    /// One permit for each profile that may be encoded concurrently.
    pub(super) encoded: Arc<Semaphore>,
    /// One permit for each function that may be annotated concurrently.
    pub(super) annotated: Arc<Semaphore>,
    /// One permit for each page that may be rendered concurrently.
    pub(super) pages: Arc<Semaphore>,
    /// Limits the changes of sets of events that are counted for a limited time.
    pub(super) deep: Lock<TokenBucket>,
}

impl<S: Source> Shared<S> {
    pub(super) fn new(
        source: S,
        traffic: Traffic,
        clock: Clock,
        limits: Limits,
        (memory, spans): (Share, Spans),
    ) -> Self {
        let turns = Turns::new(limits.profiles);
        let baselines = Baselines::new(memory.clone());
        let permits = [ENCODED, ANNOTATED, PAGES];
        let [encoded, annotated, pages] = permits.map(|permits| Arc::new(Semaphore::new(permits)));
        let deep = Lock::new(TokenBucket::new(PER_CHANGE, CHANGES));
        Self {
            source,
            traffic,
            clock,
            limits,
            memory,
            spans,
            turns,
            baselines,
            encoded,
            annotated,
            pages,
            deep,
        }
    }
}

/// Reads the body of a request.
///
/// # Errors
/// It has more than `limit` bytes, or it does not arrive in time.
pub(super) async fn read_body<S, B: Body<Error: Into<Box<dyn Error + Send + Sync>>>>(
    shared: &Shared<S>,
    body: B,
    limit: usize,
) -> Result<Bytes, TooLate> {
    match timeout(shared.limits.upload, Limited::new(body, limit).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(_)) | Err(_) => Err(TooLate),
    }
}

/// A body that is too large, or did not arrive in time.
#[derive(Debug)]
pub(super) struct TooLate;

/// Runs a function on a blocking thread, at the priority of ordinary processes, once a permit is available. The permit is held until the
/// function returns, even if the client disconnects.
///
/// # Errors
/// Returns an error if the function panicked or the runtime is shutting down.
pub(super) async fn run_blocking<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    cpu: &RequestCpu,
    make: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let cpu = cpu.clone();
    let made = spawn_blocking(move || {
        let made = cpu.count_at_normal_priority(make);
        drop(permit);
        made
    });
    made.await.map_err(io::Error::other)
}
