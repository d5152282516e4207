//! Connections and shutdown.

use std::convert::Infallible;
use std::error::Error as _;
use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Sleep, sleep, timeout};

use super::access::Client;
use super::admission::{Admission, ConnectionEntry, SlotLimits};
use super::listener::{Accepted, Listeners};
use super::route::answer;
use super::shared::Shared;
use super::stream::Guarded;
use super::traffic::Aborted;
use super::transport::{Stream, Transport, secure};
use super::{Limits, Rules, Source, Traffic};
use crate::budget::{Part, Share};
use crate::clock::Clock;
use crate::error::Errno;
use crate::span::Spans;

/// Maximum size of request line and headers, in bytes; a larger request gets a 431. Prometheus sends about 500 bytes.
const HEADER_BYTES: usize = 32 << 10;

/// Maximum size of response data that hyper buffers per connection, in bytes, in addition to the current piece.
const BUFFER_BYTES: usize = 64 << 10;

/// Pause before the next accept after a failure because of too few descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Time limit of the response on a connection that is closed to make room.
const EVICTION: Duration = Duration::from_millis(200);

/// Response on a connection that is closed before its request has arrived. It ends with the connection, so it has no length.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\nretry-after: 5\r\n\r\n\
    too many connections without a request; set limits.connections higher\n";

/// A server. Clients can connect immediately and are served once it [runs](Self::run).
#[derive(Debug)]
pub struct Server {
    listeners: Listeners,
    limits: Limits,
    memory: Share,
    spans: Spans,
}

impl Server {
    /// Creates a server of these sockets.
    pub fn new(listeners: Listeners, limits: Limits) -> Self {
        let memory = Share::fixed(Part::Queues, u64::MAX);
        Self { listeners, limits, memory, spans: Spans::default() }
    }

    /// Creates a span for each scrape.
    #[must_use]
    pub fn tracing(self, spans: &Spans) -> Self {
        Self { spans: spans.clone(), ..self }
    }

    /// Limits queued response data to `memory`. Requests for profiles are rejected while it is full.
    #[must_use]
    pub fn within(self, memory: Share) -> Self {
        Self { memory, ..self }
    }

    /// Returns the sockets.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Serves until `shutdown` is ready, then waits up to [`Limits::shutdown`] for responses in progress. Must run on a tokio runtime with
    /// I/O and time enabled. One thread is sufficient: metrics, pages and profiles are rendered on blocking threads.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot register the sockets. An error on a connection ends only that connection.
    pub async fn run<S: Source>(
        self,
        source: S,
        traffic: Traffic,
        clock: Clock,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listeners = self.listeners.open()?;
        let places = SlotLimits::of(self.limits.connections);
        let admission = Admission::new(places, clock.clone(), traffic.clone());
        let shared = Shared::new(source, traffic, clock, self.limits, (self.memory, self.spans));
        let shared = Arc::new(shared);
        let (stop, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = listeners.accept() => accepted,
                Some(finished) = connections.join_next() => {
                    if let Err(error) = finished {
                        tracing::error!(%error, "serving a connection failed");
                    }
                    continue;
                }
                () = &mut shutdown => break,
            };
            match accepted {
                Ok(accepted) => {
                    let held = admission.enter(accepted.peer);
                    connections.spawn(serve(accepted, held, Arc::clone(&shared), stopping.clone()));
                    // The runtime polls sockets before it returns here. A request that has already arrived is read before its connection
                    // could be closed in favor of newly accepted ones.
                    yield_now().await;
                }
                Err(error) => accept_failed(&error, &admission, &shared.traffic).await,
            }
        }
        // From here on, connection attempts are refused immediately.
        drop(listeners);
        stop.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(self.limits.shutdown, all).await.is_err() {
            tracing::warn!(connections = connections.len(), "stopped with responses in progress");
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// Performs the TLS handshake, if the rules require TLS. Returns `None` if the connection has ended.
async fn admit<S: Source>(
    Accepted { stream, peer, is_local }: Accepted,
    held: &ConnectionEntry,
    shared: &Shared<S>,
    stopping: &mut watch::Receiver<bool>,
) -> Option<(Transport, Client)> {
    let rules = shared.source.rules();
    let plain = Client { peer, is_local, certificate: None, requirements: None };
    let (stream, tls) = match (stream, rules.tls()) {
        (Stream::Tcp(stream), Some(tls)) => (stream, tls),
        (stream, _) => return Some((stream.plain(), plain)),
    };
    let secured = tokio::select! {
        secured = timeout(shared.limits.headers, secure(stream, tls)) => secured,
        () = held.evicted() => return None,
        _ = stopping.wait_for(|stop| *stop) => return None,
    };
    match secured {
        Ok(Ok((stream, certificate))) => {
            let requirements = Some(Arc::clone(&tls.requirements));
            Some((stream, Client { certificate, requirements, ..plain }))
        }
        Ok(Err(error)) => {
            shared.traffic.aborted(Aborted::Protocol);
            tracing::debug!(%peer, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            shared.traffic.aborted(Aborted::Timeout);
            None
        }
    }
}

/// Completes when a connection must be closed after the response in progress: the server stops, or the TLS settings in force require something
/// else of clients than those that admitted the connection.
async fn must_close(
    stopping: &mut watch::Receiver<bool>,
    rules: &mut watch::Receiver<Arc<Rules>>,
    client: &Client,
) {
    let replaced = async {
        let stay = rules.wait_for(|rules| !rules.admits(client)).await.is_err();
        if stay {
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => {}
        () = replaced => tracing::debug!(peer = %client, "connection closed: the TLS settings have changed"),
    }
}

/// Completes when the timer has elapsed; never without a timer.
async fn elapsed(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.await,
        None => pending().await,
    }
}

async fn serve<S: Source>(
    accepted: Accepted,
    held: Arc<ConnectionEntry>,
    shared: Arc<Shared<S>>,
    mut stopping: watch::Receiver<bool>,
) {
    let traffic = shared.traffic.clone();
    let mut rules = shared.source.follow_rules();
    let Some((stream, client)) = admit(accepted, &held, &shared, &mut stopping).await else { return };
    let (client, limit) = (Arc::new(client), shared.limits.answer);
    let guarded = Guarded::new(stream, Arc::clone(&held), shared.clock.clone(), shared.limits);
    let service = service_fn({
        let (held, client) = (Arc::clone(&held), Arc::clone(&client));
        move |request| {
            let (shared, held, client) = (Arc::clone(&shared), Arc::clone(&held), Arc::clone(&client));
            async move { Ok::<_, Infallible>(answer(shared, &held, &client, request).await) }
        }
    });
    let mut connection = http1::Builder::new()
        // The socket has deadlines of its own: hyper has one deadline for both idle connections and slow headers.
        .header_read_timeout(None)
        .max_header_size(HEADER_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(guarded), service);
    // The end of the response in progress; `None` = the connection stays open.
    let mut deadline: Option<Pin<Box<Sleep>>> = None;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break Some(ended),
            () = held.evicted() => break None,
            () = elapsed(&mut deadline) => {
                traffic.aborted(Aborted::Timeout);
                break None;
            }
            () = must_close(&mut stopping, &mut rules, &client), if deadline.is_none() => {
                deadline = Some(Box::pin(sleep(limit)));
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            traffic.aborted(reason(&error));
            tracing::debug!(%error, "connection aborted");
        }
        None if held.was_arriving() && client.requirements.is_none() => {
            reject(connection.into_parts().io.into_inner().into_inner()).await;
        }
        None => {}
    }
}

fn reason(error: &hyper::Error) -> Aborted {
    let io_error = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if error.is_timeout() || io_error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        Aborted::Timeout
    } else if error.is_parse() {
        Aborted::Protocol
    } else {
        Aborted::Disconnected
    }
}

/// Sends a response on a connection that is closed to make room. The send buffer of a new socket is empty, so the client cannot delay it.
async fn reject(mut stream: Transport) {
    if let Ok(Err(error)) = timeout(EVICTION, stream.write_all(TURNED_AWAY)).await {
        tracing::debug!(%error, "the response on an evicted connection could not be sent");
    }
}

async fn accept_failed(error: &io::Error, admission: &Admission, traffic: &Traffic) {
    match Errno::of(error) {
        errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno(libc::ENOBUFS)) => {
            traffic.aborted(Aborted::Descriptors);
            tracing::warn!(%errno, "accepting a connection failed; raise LimitNOFILE= or lower limits.descriptors");
            admission.make_room();
            sleep(ACCEPT_PAUSE).await;
        }
        // The client disconnected before the connection was accepted.
        errno => {
            traffic.aborted(Aborted::Disconnected);
            tracing::debug!(%errno, "accepting a connection failed");
        }
    }
}
