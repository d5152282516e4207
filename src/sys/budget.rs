//! The number of descriptors available for events: computed before events are opened, to reserve the last descriptors for files and
//! connections.

/// A budget of file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of open events.
    pub limit: usize,
    /// Number of open events.
    pub used: usize,
}

impl Budget {
    /// Descriptors that are reserved for everything except events: the log, `/proc` and cgroup directories being read, the listener, its
    /// connections, the runtime.
    pub const RESERVE: usize = 64;

    /// Returns the budget: `process_limit` (`RLIMIT_NOFILE`) minus the reserve and `connections`, or `configured` if that is less.
    pub fn new(process_limit: u64, connections: usize, configured: Option<usize>) -> Self {
        let process_limit = usize::try_from(process_limit).unwrap_or(usize::MAX);
        let free = process_limit.saturating_sub(Self::RESERVE + connections);
        Self { limit: configured.map_or(free, |configured| configured.min(free)), used: 0 }
    }

    /// Reports whether `descriptors` more fit.
    pub fn has_room_for(&self, descriptors: usize) -> bool {
        self.used + descriptors <= self.limit
    }

    /// Accounts `descriptors` that were opened.
    pub fn take(&mut self, descriptors: usize) {
        self.used += descriptors;
    }

    /// Accounts `descriptors` that were closed.
    pub fn give_back(&mut self, descriptors: usize) {
        self.used = self.used.saturating_sub(descriptors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_connections_keep_their_share() {
        let budget = Budget::new(1024, 32, None);
        assert_eq!(budget.limit, 1024 - 64 - 32);
        assert_eq!(Budget::new(1024, 32, Some(100)).limit, 100);
        assert_eq!(Budget::new(1024, 32, Some(5000)).limit, 928);
        assert_eq!(Budget::new(16, 32, None).limit, 0);
    }
}
