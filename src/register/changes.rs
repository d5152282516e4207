//! Processes that records report as changed. A collection reads only these in `/proc`.

use crate::targets::Changed;

/// Maximum number of reported processes; above it, all processes are read.
const MAX: usize = 1 << 12;

/// Processes that changed since the last [`ChangedProcesses::take`].
#[derive(Debug, Default)]
pub(super) struct ChangedProcesses {
    changed: Changed,
    /// Whether no other process can have changed: no records are missing, and this is not the first [`ChangedProcesses::take`].
    complete: bool,
}

impl ChangedProcesses {
    /// Adds a process that was created, executed another program, was renamed, or moved to another cgroup.
    pub(super) fn changed(&mut self, pid: u32) {
        if self.has_room(pid) {
            self.changed.changed.insert(pid);
        }
    }

    /// Adds a process that is about to exit.
    pub(super) fn ends(&mut self, pid: u32) {
        if self.has_room(pid) {
            self.changed.ending.insert(pid);
        }
    }

    /// Marks the list as incomplete after lost records.
    pub(super) fn miss(&mut self) {
        self.complete = false;
    }

    /// Reports whether a process can be added. An incomplete list is dropped, so nothing is added to it. The IDs 0 and -1 denote processes
    /// that are not visible from here.
    fn has_room(&mut self, pid: u32) -> bool {
        let full = self.changed.changed.len() + self.changed.ending.len() >= MAX;
        self.complete &= !full && pid != 0 && pid != u32::MAX;
        self.complete
    }

    /// Returns all changes since the last call; `None` if they are not completely known.
    pub(super) fn take(&mut self) -> Option<Changed> {
        let changed = std::mem::take(&mut self.changed);
        std::mem::replace(&mut self.complete, true).then_some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_known_only_if_every_record_was_read() {
        let mut changed = ChangedProcesses::default();
        changed.changed(7);
        assert_eq!(changed.take(), None, "not all processes have been read yet");
        (1..4).for_each(|pid| changed.changed(pid));
        changed.ends(3);
        let told = changed.take().unwrap();
        assert_eq!((told.changed.len(), told.ending.len()), (3, 1));
        assert_eq!(changed.take(), Some(Changed::default()));
        for spoil in [
            ChangedProcesses::miss,
            |changed: &mut ChangedProcesses| changed.changed(0),
            |changed: &mut ChangedProcesses| changed.ends(u32::MAX),
        ] {
            spoil(&mut changed);
            assert_eq!(changed.take(), None);
            assert_eq!(changed.take(), Some(Changed::default()), "until all processes have been read");
        }
        (1..=MAX as u32 + 1).for_each(|pid| changed.changed(pid));
        assert_eq!(changed.take(), None);
    }
}
