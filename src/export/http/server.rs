//! The socket, the connections and their end.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::admission::{Admission, Held, Peer, Places};
use super::route::answer;
use super::shared::Shared;
use super::stream::Guarded;
use super::traffic::Aborted;
use super::{Limits, Source, Traffic};
use crate::budget::{Part, Share};
use crate::clock::Clock;
use crate::error::Errno;

/// The largest request line and headers together, in bytes; more gets a 431. Prometheus sends about 500.
const HEADER_BYTES: usize = 32 << 10;

/// How much of an answer hyper holds for one connection, in bytes, beside the piece that it is given.
const BUFFER_BYTES: usize = 64 << 10;

/// How long to wait before the next attempt when there is no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The answer on a connection that is closed before its request has arrived. Ends with the connection, so it needs no
/// length.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\nretry-after: 5\r\n\r\n\
    too many connections wait for a request; limits.connections allows more\n";

/// A socket that listens. Clients can connect from here on; they are answered once it [runs](Self::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
    memory: Share,
}

/// Why an address cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the kernel said.
    pub errno: Errno,
}

impl Server {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The kernel's refusal, with the address and what to do about it.
    pub fn bind(address: SocketAddr, limits: Limits) -> Result<Self, BindError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        match listen() {
            Ok(listener) => Ok(Self { listener, limits, memory: Share::fixed(Part::Queues, u64::MAX) }),
            Err(error) => Err(BindError { address, errno: Errno::of(&error) }),
        }
    }

    /// Answers that are not sent yet take no more than `memory`: profiles are refused while it is full.
    #[must_use]
    pub fn within(self, memory: Share) -> Self {
        Self { memory, ..self }
    }

    /// Where it listens, the port as the kernel gave it.
    ///
    /// # Errors
    /// The kernel's refusal, which a listening socket does not meet.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is ready, then lets answers under way finish within [`Limits::shutdown`]. Must run on a
    /// tokio runtime with I/O and time. One thread is enough: metrics, pages and profiles are made on blocking threads.
    ///
    /// # Errors
    /// When the runtime does not take the socket. What befalls a connection ends that connection alone.
    pub async fn run<S: Source>(
        self,
        source: S,
        traffic: Traffic,
        clock: Clock,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let places = Places::of(self.limits.connections);
        let admission = Admission::new(places, clock.clone(), traffic.clone());
        let shared = Arc::new(Shared::new(source, traffic, clock, self.limits, self.memory));
        let (stop, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(finished) = connections.join_next() => {
                    if let Err(error) = finished {
                        tracing::error!(%error, "serving a connection failed");
                    }
                    continue;
                }
                () = &mut shutdown => break,
            };
            match accepted {
                Ok((stream, address)) => {
                    let held = admission.enter(Peer::of(address.ip()));
                    connections.spawn(serve(stream, held, Arc::clone(&shared), stopping.clone()));
                    // The runtime looks at sockets before it comes back: a request that is there already is read
                    // before its connection could be closed for those that are accepted next.
                    yield_now().await;
                }
                Err(error) => accept_failed(&error, &admission, &shared.traffic).await,
            }
        }
        // Whoever tries to connect from here on sees at once that nobody is there.
        drop(listener);
        stop.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(self.limits.shutdown, all).await.is_err() {
            tracing::warn!(connections = connections.len(), "stopped with answers under way");
        }
        connections.shutdown().await;
        Ok(())
    }
}

async fn serve<S: Source>(
    stream: TcpStream,
    held: Arc<Held>,
    shared: Arc<Shared<S>>,
    mut stopping: watch::Receiver<bool>,
) {
    let traffic = shared.traffic.clone();
    let guarded = Guarded::new(stream, Arc::clone(&held), shared.clock.clone(), shared.limits);
    let service = service_fn({
        let held = Arc::clone(&held);
        move |request| {
            let (shared, held) = (Arc::clone(&shared), Arc::clone(&held));
            async move { Ok::<_, Infallible>(answer(shared, &held, request).await) }
        }
    });
    let mut connection = http1::Builder::new()
        // The socket has deadlines of its own: hyper has one for idle connections and slow headers together.
        .header_read_timeout(None)
        .max_header_size(HEADER_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(guarded), service);
    let mut stops = false;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break Some(ended),
            () = held.evicted() => break None,
            _ = stopping.wait_for(|stop| *stop), if !stops => {
                stops = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            traffic.aborted(reason(&error));
            tracing::debug!(%error, "a connection was broken off");
        }
        None if held.was_arriving() => turn_away(connection.into_parts().io.into_inner().into_inner()),
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

/// Answers a client whose connection is closed to make room, if that can be done at once; it is not worth waiting for.
fn turn_away(stream: TcpStream) {
    // Tokio would first wait to be told that the socket can be written; the buffer of a new one is empty.
    let told = stream.into_std().and_then(|mut stream| stream.write(TURNED_AWAY));
    if let Err(error) = told {
        tracing::debug!(%error, "a connection that makes room could not be told so");
    }
}

async fn accept_failed(error: &io::Error, admission: &Admission, traffic: &Traffic) {
    match Errno::of(error) {
        errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno(libc::ENOBUFS)) => {
            traffic.aborted(Aborted::Descriptors);
            tracing::warn!(%errno, "a connection could not be accepted; raise LimitNOFILE= or lower limits.descriptors");
            admission.make_room();
            sleep(ACCEPT_PAUSE).await;
        }
        // The client was gone before it was its turn.
        errno => {
            traffic.aborted(Aborted::Disconnected);
            tracing::debug!(%errno, "a connection could not be accepted");
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, errno } = self;
        let (ip, port) = (address.ip(), address.port());
        write!(f, "cannot listen on {address}: {errno}; ")?;
        match *errno {
            Errno::EADDRINUSE => write!(
                f,
                "another process has port {port} (`ss -ltnp 'sport = :{port}'` shows it): stop it, or choose another \
                 port with `listen:` or `--listen`"
            ),
            Errno::EACCES | Errno::EPERM => write!(
                f,
                "ports below net.ipv4.ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE: choose a higher \
                 port than {port} with `listen:` or `--listen`"
            ),
            Errno::EADDRNOTAVAIL => write!(
                f,
                "no interface of this machine has the address {ip} (`ip address` lists them): correct `listen:`, or \
                 use 0.0.0.0 or [::] for all"
            ),
            Errno(libc::EAFNOSUPPORT) => {
                write!(
                    f,
                    "this kernel has no IPv{}: use an address of the other kind",
                    if address.is_ipv4() { 4 } else { 6 }
                )
            }
            _ => f.write_str("choose another address with `listen:` or `--listen`"),
        }
    }
}

impl std::error::Error for BindError {}
