//! Notifications to a service manager with the protocol of `sd_notify(3)`: ready, reloading, stopping, and watchdog keep-alives.
//!
//! The service manager passes the socket in `NOTIFY_SOCKET` and the maximum time between keep-alives in `WATCHDOG_USEC`. After that time
//! without a keep-alive, it restarts the service.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::engine::Published;
use crate::clock::Clock;
use crate::host::Environment;

/// Number of intervals, plus additional time, without a collection after which keep-alives stop.
const STALE: (u32, Duration) = (3, Duration::from_secs(30));

/// The service manager.
#[derive(Debug)]
pub(super) struct Manager {
    /// `None` if the service manager requests no notifications.
    socket: Option<Socket>,
    watchdog: Option<Duration>,
}

/// Timeout for a notification while the service manager is behind with reading.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The notification socket.
#[derive(Debug)]
struct Socket {
    address: SocketAddr,
    /// For state changes, which must not be lost.
    patient: UnixDatagram,
    /// For keep-alives, which are useless when late.
    hasty: UnixDatagram,
}

impl Manager {
    /// Reads the variables for process `pid`.
    pub(super) fn of(environment: &Environment, pid: u32) -> Self {
        let socket = environment.get("NOTIFY_SOCKET").and_then(|place| match connect(place) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(place, %error, "cannot use NOTIFY_SOCKET; the service manager receives no notifications");
                None
            }
        });
        let number = |name: &str| environment.get(name)?.parse::<u64>().ok();
        // Without `WATCHDOG_PID`, the watchdog applies to any process.
        let meant = environment.get("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
        let watchdog =
            number("WATCHDOG_USEC").filter(|&micros| meant && micros > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// Notifies that the configuration is being reloaded.
    pub(super) fn reloading(&self, clock: &Clock) {
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock.kernel() / 1000));
    }

    /// Notifies that the service is ready.
    pub(super) fn ready(&self) {
        self.notify("READY=1");
    }

    /// Notifies that the service is stopping.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// Notifies readiness after the first collection, and then sends keep-alives while collections continue.
    pub(super) async fn follow(&self, mut published: watch::Receiver<Arc<Published>>, clock: Clock) {
        // The channel is closed when the service ends.
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
                self.send_keepalive();
            }
        }
    }

    fn send_keepalive(&self) {
        let Some(Socket { address, hasty, .. }) = &self.socket else { return };
        send("WATCHDOG=1", hasty, address);
    }

    fn notify(&self, what: &str) {
        let Some(Socket { address, patient, .. }) = &self.socket else { return };
        send(what, patient, address);
    }
}

fn send(what: &str, socket: &UnixDatagram, address: &SocketAddr) {
    if let Err(error) = socket.send_to_addr(what.as_bytes(), address) {
        tracing::debug!(%error, what, "cannot notify the service manager");
    }
}

fn connect(place: &str) -> io::Result<Socket> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let (patient, hasty) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
    patient.set_write_timeout(Some(WATCHDOG_TIMEOUT))?;
    hasty.set_nonblocking(true)?;
    Ok(Socket { address, patient, hasty })
}

/// Reports whether collections continue. A read of a kernel file can block forever.
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
        // More than the socket buffer holds.
        (0..1000).for_each(|_| manager.send_keepalive());
        std::thread::scope(|scope| {
            scope.spawn(|| manager.reloading(&Clock::manual(Timestamp(0))));
            // Gives the notification time to block first. Otherwise, the test would not test anything.
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
