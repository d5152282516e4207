//! Processes that records report as changed. A collection reads only these in `/proc`.

use crate::targets::Changed;

/// Maximum number of reported processes; above it, all processes are read.
const MOST: usize = 1 << 12;

/// Processes that changed since the last [`News::take`].
#[derive(Debug)]
pub(super) struct News {
    changed: Changed,
    /// Whether other processes may have changed: records are missing, or this is the first [`News::take`].
    incomplete: bool,
}

impl Default for News {
    fn default() -> Self {
        Self { changed: Changed::default(), incomplete: true }
    }
}

impl News {
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
        self.incomplete = true;
    }

    /// Reports whether a process can be added. An incomplete list is dropped, so nothing is added to it. The IDs 0 and -1 denote processes
    /// that are not visible from here.
    fn has_room(&mut self, pid: u32) -> bool {
        let full = self.changed.changed.len() + self.changed.ending.len() >= MOST;
        self.incomplete |= full || pid == 0 || pid == u32::MAX;
        !self.incomplete
    }

    /// Returns all changes since the last call; `None` if they are not completely known.
    pub(super) fn take(&mut self) -> Option<Changed> {
        let changed = std::mem::take(&mut self.changed);
        (!std::mem::take(&mut self.incomplete)).then_some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_known_only_if_every_record_was_read() {
        let mut news = News::default();
        news.changed(7);
        assert_eq!(news.take(), None, "not all processes have been read yet");
        (1..4).for_each(|pid| news.changed(pid));
        news.ends(3);
        let told = news.take().unwrap();
        assert_eq!((told.changed.len(), told.ending.len()), (3, 1));
        assert_eq!(news.take(), Some(Changed::default()));
        for spoil in [News::miss, |news: &mut News| news.changed(0), |news: &mut News| news.ends(u32::MAX)] {
            spoil(&mut news);
            assert_eq!(news.take(), None);
            assert_eq!(news.take(), Some(Changed::default()), "until all processes have been read");
        }
        (1..=MOST as u32 + 1).for_each(|pid| news.changed(pid));
        assert_eq!(news.take(), None);
    }
}
