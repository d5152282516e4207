//! Cgroups that were created while the stream ran: the only trace of those that are gone before anybody looks.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::target::CgroupId;

/// How many of the newest are remembered at least, if there were so many.
const LEAST: usize = 1 << 13;

/// After how many collections those before them are forgotten: what a cgroup counted last is attributed by then, and those
/// that are still there are known from the file system.
const COLLECTIONS: u32 = 30;

/// The paths of cgroups that were created, in two generations. The older one is dropped when the younger one has
/// 8192 paths, or is as old as 30 collections.
#[derive(Debug, Default)]
pub struct Born {
    young: FxHashMap<CgroupId, Arc<str>>,
    old: FxHashMap<CgroupId, Arc<str>>,
    collections: u32,
}

impl Born {
    /// A cgroup was created.
    pub fn insert(&mut self, id: CgroupId, path: &[u8]) {
        // Every CPU's ring may tell of it.
        if self.path(id).is_some_and(|known| known.as_bytes() == path) {
            return;
        }
        if self.young.len() >= LEAST {
            self.begin_generation();
        }
        self.young.insert(id, String::from_utf8_lossy(path).into());
    }

    /// A collection has ended.
    pub fn collected(&mut self) {
        self.collections += 1;
        if self.collections >= COLLECTIONS {
            self.begin_generation();
        }
    }

    fn begin_generation(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.collections = 0;
    }

    /// What its path was when it was created, from the root of the hierarchy.
    pub fn path(&self, id: CgroupId) -> Option<&Arc<str>> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_the_oldest_make_room() {
        let mut born = Born::default();
        let last = 100_000;
        for id in 0..=last {
            born.insert(CgroupId(id), b"/a\xff");
            born.insert(CgroupId(id), b"/a\xff");
        }
        assert_eq!(born.path(CgroupId(0)), None);
        for id in last - LEAST as u64 + 1..=last {
            assert_eq!(born.path(CgroupId(id)).map(|path| &**path), Some("/a\u{fffd}"));
        }
        assert!(born.young.len() + born.old.len() <= 2 * LEAST);
    }

    #[test]
    fn those_that_were_created_long_ago_are_forgotten() {
        let mut born = Born::default();
        born.insert(CgroupId(7), b"/a");
        (0..COLLECTIONS).for_each(|_| born.collected());
        assert!(born.path(CgroupId(7)).is_some());
        (0..COLLECTIONS).for_each(|_| born.collected());
        assert_eq!(born.path(CgroupId(7)), None);
    }
}
