//! What a service manager is told, by the protocol of `sd_notify(3)`: that the service is ready, loads its configuration
//! again, stops, and is alive.
//!
//! Whoever started the service says by `NOTIFY_SOCKET` where it wants to be told, and by `WATCHDOG_USEC` how often it must
//! hear that the service is alive before it starts another one.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::engine::Published;
use crate::clock::Clock;
use crate::host::Environment;

/// So many intervals may pass without a collection, and so much time besides, before the service is taken for dead.
const STALE: (u32, Duration) = (3, Duration::from_secs(30));

/// Who started the service.
#[derive(Debug)]
pub(super) struct Manager {
    /// `None` if nobody wants to be told.
    socket: Option<Socket>,
    watchdog: Option<Duration>,
}

/// How long a manager that is behind with reading is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the manager reads.
#[derive(Debug)]
struct Socket {
    address: SocketAddr,
    /// For changes of state, each of which the manager waits for.
    patient: UnixDatagram,
    /// For signs of life: a late one is worth nothing.
    hasty: UnixDatagram,
}

impl Manager {
    /// Whoever the variables name that process `pid` was started with.
    pub(super) fn of(environment: &Environment, pid: u32) -> Self {
        let socket = environment.get("NOTIFY_SOCKET").and_then(|place| match connect(place) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(place, %error, "NOTIFY_SOCKET: the service manager cannot be told");
                None
            }
        });
        let number = |name: &str| environment.get(name)?.parse::<u64>().ok();
        // Without a process it is meant for whoever reads it.
        let meant = environment.get("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let watchdog =
            number("WATCHDOG_USEC").filter(|&micros| meant && micros > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// The configuration is being read again.
    pub(super) fn reloading(&self, clock: &Clock) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock.kernel() / 1000));
    }

    /// The service does what it was started for.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The service ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Says when the first collection is there, and from then on that the service is alive, as long as it collects.
    pub(super) async fn follow(&self, mut published: watch::Receiver<Arc<Published>>, clock: Clock) {
        // Collections end with the service.
        if published.wait_for(|published| published.snapshot.is_some()).await.is_err() {
            return std::future::pending().await;
        }
        self.ready();
        let Some(watchdog) = self.watchdog.filter(|_| self.socket.is_some()) else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval((watchdog / 2).max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            if is_alive(&published.borrow(), &clock) {
                self.gives_sign_of_life();
            }
        }
    }

    fn gives_sign_of_life(&self) {
        let Some(Socket { address, hasty, .. }) = &self.socket else { return };
        send("WATCHDOG=1", hasty, address);
    }

    fn tell(&self, what: &str) {
        let Some(Socket { address, patient, .. }) = &self.socket else { return };
        send(what, patient, address);
    }
}

fn send(what: &str, socket: &UnixDatagram, address: &SocketAddr) {
    if let Err(error) = socket.send_to_addr(what.as_bytes(), address) {
        tracing::debug!(%error, what, "the service manager was not told");
    }
}

fn connect(place: &str) -> io::Result<Socket> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let (patient, hasty) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
    patient.set_write_timeout(Some(PATIENCE))?;
    hasty.set_nonblocking(true)?;
    Ok(Socket { address, patient, hasty })
}

/// Whether collections go on. A file of the kernel may hold up its reader for ever.
fn is_alive(published: &Published, clock: &Clock) -> bool {
    let (intervals, besides) = STALE;
    let collection = published.status.collection.as_ref();
    let interval = collection.map_or(Duration::ZERO, |collection| collection.interval);
    clock.monotonic().since(published.at) < interval * intervals + besides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn manager(pairs: &[(&str, &str)]) -> Manager {
        Manager::of(&pairs.iter().copied().collect(), 7)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn who_wants_to_be_told_is_told_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("perf-exporter-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (place, socket) in [
            (path.to_str().unwrap().to_owned(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}"), UnixDatagram::bind_addr(&abstract_address).unwrap()),
        ] {
            let manager = manager(&[("NOTIFY_SOCKET", &place)]);
            manager.ready();
            assert_eq!(heard(&socket), "READY=1");
            let clock = Clock::manual(Timestamp(0));
            clock.advance(Duration::from_millis(5));
            manager.reloading(&clock);
            assert_eq!(heard(&socket), "RELOADING=1\nMONOTONIC_USEC=5000");
            manager.stopping();
            assert_eq!(heard(&socket), "STOPPING=1");
        }
    }

    #[test]
    fn a_manager_that_is_behind_hears_of_a_reload_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        // More than a socket holds.
        (0..1000).for_each(|_| manager.gives_sign_of_life());
        std::thread::scope(|scope| {
            scope.spawn(|| manager.reloading(&Clock::manual(Timestamp(0))));
            // So that it most likely speaks first; else the test sees nothing.
            std::thread::sleep(Duration::from_millis(20));
            while !heard(&socket).starts_with("RELOADING=1") {}
        });
    }

    #[test]
    fn nobody_is_told_where_nobody_listens() {
        for place in ["", "/nowhere/at/all", "relative", &"x".repeat(300)] {
            manager(&[("NOTIFY_SOCKET", place)]).ready();
        }
    }

    #[test]
    fn a_watchdog_is_meant_for_the_process_that_it_names() {
        let watchdog = |pairs: &[(&str, &str)]| manager(pairs).watchdog;
        let (usec, pid) = ("WATCHDOG_USEC", "WATCHDOG_PID");
        assert_eq!(watchdog(&[(usec, "3000000")]), Some(Duration::from_secs(3)));
        assert_eq!(watchdog(&[(usec, "3000000"), (pid, "7")]), Some(Duration::from_secs(3)));
        for pairs in [&[(usec, "3000000"), (pid, "8")][..], &[(usec, "0")], &[(usec, "soon")], &[]] {
            assert_eq!(watchdog(pairs), None, "{pairs:?}");
        }
    }
}
