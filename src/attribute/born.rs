//! Cgroups that were created while the stream ran: the only trace of those that are gone before anybody looks.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::target::CgroupId;

/// How many are remembered: whoever counts looks every few seconds, and then knows those that are still there.
const MOST: usize = 1 << 14;

/// The paths of cgroups, the last ones that were created.
#[derive(Debug, Default)]
pub struct Born {
    paths: FxHashMap<CgroupId, Arc<str>>,
    order: VecDeque<CgroupId>,
}

impl Born {
    /// A cgroup was created.
    pub fn insert(&mut self, id: CgroupId, path: &[u8]) {
        // Every CPU's ring may tell of it.
        if self.paths.insert(id, String::from_utf8_lossy(path).into()).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }

    /// What its path was when it was created, from the root of the hierarchy.
    pub fn path(&self, id: CgroupId) -> Option<&Arc<str>> {
        self.paths.get(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let mut born = Born::default();
        for id in 0..=MOST as u64 {
            born.insert(CgroupId(id), b"/a\xff");
        }
        assert_eq!(born.path(CgroupId(0)), None);
        assert_eq!(born.path(CgroupId(1)).map(|path| &**path), Some("/a\u{fffd}"));
        assert_eq!(born.paths.len(), MOST);
    }
}
