//! Listening sockets: TCP, unix sockets, and sockets that the service manager passes.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use rustix::fs::{Mode, chmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::admission::Peer;
use super::transport::Stream;
use crate::error::Errno;
use crate::net::listen::{Listen, ListenAddress};
use crate::sys::InheritedSocket;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listening sockets. The files of unix sockets are removed on drop.
#[derive(Debug)]
pub struct Listeners(Vec<Listener>);

/// A listening socket.
#[derive(Debug)]
struct Listener {
    socket: Socket,
    /// Whether its clients have the rights of clients on this machine.
    admin: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// With the file to remove; `None` if the service manager has created it.
    Unix(UnixListener, Option<SocketFile>),
}

/// File of a unix socket, removed on drop unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), inode: inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the unix socket");
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Reason why an address could not be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindError {
    /// The address.
    pub address: ListenAddress,
    /// The error of the kernel.
    pub errno: Errno,
}

/// An accepted connection.
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    /// Whether the client has the rights of clients on this machine.
    pub(super) is_local: bool,
}

impl Listeners {
    /// Listens on all addresses, or on none.
    ///
    /// # Errors
    /// Returns the first address that cannot be bound, with the kernel's error and a remedy.
    pub fn bind(listen: &Listen) -> Result<Self, BindError> {
        let addresses = listen.all.iter().map(|address| (address, false));
        let addresses = addresses.chain(listen.admin.iter().map(|address| (address, true)));
        let bound = addresses.map(|(address, admin)| {
            let socket = match address {
                ListenAddress::Tcp(address) => tcp(*address),
                ListenAddress::Unix(path) => unix(path, listen.socket_mode),
            };
            match socket {
                Ok(socket) => Ok(Listener { socket, admin }),
                Err(error) => Err(BindError { address: address.clone(), errno: Errno::of(&error) }),
            }
        });
        bound.collect::<Result<_, _>>().map(Self)
    }

    /// Uses the sockets that the service manager has passed. Those with the name `admin` have the rights of [`Listen::admin`].
    ///
    /// # Errors
    /// Returns an error if a descriptor is not a listening stream socket.
    pub fn inherited(sockets: Vec<InheritedSocket>) -> io::Result<Self> {
        let listener = |InheritedSocket { descriptor, name }| {
            Ok(Listener { socket: socket_of(descriptor)?, admin: name == "admin" })
        };
        sockets.into_iter().map(listener).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the addresses of the sockets, with the ports assigned by the kernel, and whether each is one of [`Listen::admin`].
    pub fn addresses(&self) -> Vec<(ListenAddress, bool)> {
        let address = |listener: &Listener| match &listener.socket {
            Socket::Tcp(socket) => socket.local_addr().ok().map(ListenAddress::Tcp),
            Socket::Unix(socket, _) => {
                socket.local_addr().ok()?.as_pathname().map(|path| ListenAddress::Unix(path.to_owned()))
            }
        };
        self.0.iter().filter_map(|listener| Some((address(listener)?, listener.admin))).collect()
    }

    /// Registers the sockets with the runtime of this thread.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot register them.
    pub(super) fn open(self) -> io::Result<OpenListeners> {
        let open = |Listener { socket, admin }| {
            Ok(match socket {
                Socket::Tcp(socket) => OpenListener::Tcp(tokio::net::TcpListener::from_std(socket)?, admin),
                Socket::Unix(socket, file) => {
                    OpenListener::Unix { socket: tokio::net::UnixListener::from_std(socket)?, _file: file }
                }
            })
        };
        let listeners = self.0.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        Ok(OpenListeners { listeners, first: Cell::new(0) })
    }
}

/// Sockets of a runtime.
pub(super) struct OpenListeners {
    listeners: Vec<OpenListener>,
    /// The socket that is asked first. It changes, so that clients of one socket cannot delay those of another.
    first: Cell<usize>,
}

enum OpenListener {
    Tcp(tokio::net::TcpListener, bool),
    /// With its file, which is removed on drop.
    Unix {
        socket: tokio::net::UnixListener,
        _file: Option<SocketFile>,
    },
}

impl OpenListeners {
    /// Returns the next connection of any socket.
    ///
    /// # Errors
    /// Returns the kernel's error. Later connections are not affected.
    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        poll_fn(|context| {
            let count = self.listeners.len();
            let first = self.first.get();
            self.first.set((first + 1) % count.max(1));
            let order = (first..count).chain(0..first.min(count));
            let mut ready = order.map(|at| self.listeners[at].poll_accept(context));
            ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

impl OpenListener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            Self::Tcp(socket, admin) => socket.poll_accept(context).map_ok(|(stream, address)| {
                let peer = Peer::of(address.ip());
                // Otherwise the kernel holds the end of a response back until the client confirms its beginning, which it delays by 40 ms.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                Accepted { stream: Stream::Tcp(stream), peer, is_local: *admin || peer.is_on_this_machine() }
            }),
            Self::Unix { socket, .. } => socket.poll_accept(context).map_ok(|(stream, _)| {
                // The permissions of the file restrict the clients. A client without credentials has an invalid user ID.
                let peer = Peer::User(stream.peer_cred().map_or(u32::MAX, |credentials| credentials.uid()));
                Accepted { stream: Stream::Unix(stream), peer, is_local: true }
            }),
        }
    }
}

fn tcp(address: SocketAddr) -> io::Result<Socket> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Tcp(listener))
}

/// Creates a unix socket with these permissions. The file of a socket on which no process listens is replaced.
fn unix(path: &Path, mode: u32) -> io::Result<Socket> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_left_over(path) => {
            std::fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        bound => bound?,
    }
    let file = SocketFile::of(path)?;
    // Nothing can connect before `listen`.
    chmod(path, Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(Socket::Unix(UnixListener::from(socket), Some(file)))
}

/// Reports whether a file is a socket on which no process listens, as after a crash.
fn is_left_over(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn socket_of(descriptor: OwnedFd) -> io::Result<Socket> {
    if sockopt::socket_type(&descriptor)? != SocketType::STREAM || !sockopt::socket_acceptconn(&descriptor)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a listening stream socket"));
    }
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    match sockopt::socket_domain(&descriptor)? {
        AddressFamily::UNIX => Ok(Socket::Unix(descriptor.into(), None)),
        AddressFamily::INET | AddressFamily::INET6 => Ok(Socket::Tcp(descriptor.into())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a TCP nor a unix socket")),
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, errno } = self;
        write!(f, "cannot listen on {address}: {errno}; ")?;
        match address {
            ListenAddress::Tcp(address) => tcp_remedy(f, *address, *errno),
            ListenAddress::Unix(path) => unix_remedy(f, path, *errno),
        }
    }
}

fn tcp_remedy(f: &mut fmt::Formatter<'_>, address: SocketAddr, errno: Errno) -> fmt::Result {
    let (ip, port) = (address.ip(), address.port());
    match errno {
        Errno::EADDRINUSE => write!(
            f,
            "another process uses port {port} (`ss -ltnp 'sport = :{port}'` shows it): stop it, or choose another \
             port with `listen:` or `--listen`"
        ),
        Errno::EACCES | Errno::EPERM => write!(
            f,
            "ports below net.ipv4.ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE: choose a higher \
             port than {port} with `listen:` or `--listen`"
        ),
        Errno::EADDRNOTAVAIL => write!(
            f,
            "no interface has the address {ip} (`ip address` lists the addresses): correct `listen:`, or \
             use 0.0.0.0 or [::] for all"
        ),
        Errno(libc::EAFNOSUPPORT) => {
            write!(
                f,
                "this kernel does not support IPv{}: use an address of the other family",
                if address.is_ipv4() { 4 } else { 6 }
            )
        }
        _ => f.write_str("choose another address with `listen:` or `--listen`"),
    }
}

fn unix_remedy(f: &mut fmt::Formatter<'_>, path: &Path, errno: Errno) -> fmt::Result {
    let directory = path.parent().unwrap_or(path).display();
    match errno {
        Errno::EADDRINUSE => write!(
            f,
            "another process listens on it (`ss -lxp` shows it), or the file is not a socket: stop it, remove the file, or \
             choose another path"
        ),
        Errno::EACCES | Errno::EPERM | Errno::EROFS => write!(
            f,
            "the exporter may not create files in {directory}: choose a directory of its own (`RuntimeDirectory=perf-exporter` \
             of systemd creates /run/perf-exporter)"
        ),
        Errno::ENOENT | Errno::ENOTDIR => {
            write!(f, "the directory {directory} does not exist: create it, or choose another path")
        }
        _ => f.write_str("choose another path"),
    }
}

impl std::error::Error for BindError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_response_does_not_wait_for_the_client() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = std::net::TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        let listener = OpenListener::Tcp(socket, false);
        let accepted = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
        assert!(matches!(accepted.stream, Stream::Tcp(stream) if stream.nodelay().unwrap()));
    }
}
