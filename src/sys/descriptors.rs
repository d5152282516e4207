//! The open descriptors of this process, by kind.

use std::fs;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::host;

/// Maximum number of descriptors to examine, besides those of events. Any others count as [`OpenDescriptors::other`].
const MAX: usize = 4096;

/// Open descriptors by kind. Each descriptor counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenDescriptors {
    /// Perf events.
    pub event: u64,
    /// Files and directories.
    pub file: u64,
    /// Sockets.
    pub socket: u64,
    /// Pipes, eventfds, epoll instances and the like.
    pub other: u64,
}

impl OpenDescriptors {
    /// Counts the descriptors of this process, of which `events` are known to be perf events. Does not access the files themselves, and
    /// takes about a microsecond per descriptor.
    pub fn count(events: usize) -> Self {
        // Not below a configured root: `self` may be another process in the host's /proc.
        let dir = Path::new("/proc/self/fd");
        let names = host::list(dir).unwrap_or_default();
        let mut found = Self { event: events as u64, ..Self::default() };
        let mut looked_at = 0;
        for name in names.iter().take(events.saturating_add(MAX)) {
            let Ok(target) = fs::read_link(dir.join(name)) else { continue };
            looked_at += 1;
            match target.to_str() {
                Some("anon_inode:[perf_event]") => {}
                Some(text) if text.starts_with("socket:") => found.socket += 1,
                Some(text) if !text.starts_with('/') => found.other += 1,
                _ => found.file += 1,
            }
        }
        // Without the descriptor that the directory was read with, which is closed by now.
        let known = found.event + found.file + found.socket + found.other;
        if looked_at == events.saturating_add(MAX) {
            found.other += (names.len() as u64).saturating_sub(known);
        }
        found
    }

    /// Returns the count of each kind, with the value of the label `kind`.
    pub fn kinds(self) -> [(&'static str, u64); 4] {
        [("event", self.event), ("file", self.file), ("socket", self.socket), ("other", self.other)]
    }
}

/// Serialized as a list of the kinds: `[{"kind": "event", "open": 12}, …]`.
impl Serialize for OpenDescriptors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OfKind {
            kind: &'static str,
            open: u64,
        }
        serializer.collect_seq(self.kinds().map(|(kind, open)| OfKind { kind, open }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted() {
        let before = OpenDescriptors::count(0);
        let file = fs::File::open("/proc/self/exe").unwrap();
        let files: Vec<fs::File> = (0..50).map(|_| file.try_clone().unwrap()).collect();
        let sockets: Vec<_> = (0..50).map(|_| std::os::unix::net::UnixDatagram::unbound().unwrap()).collect();
        let now = OpenDescriptors::count(7);
        // Concurrent tests open and close some, too.
        assert!(now.file >= before.file + 30, "{now:?} {before:?} {}", files.len());
        assert!(now.socket >= before.socket + 30, "{now:?} {before:?} {}", sockets.len());
        assert_eq!(now.event, 7);
    }
}
