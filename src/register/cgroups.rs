//! Paths of recent cgroups by ID, including those that are removed before the next scan of the file system.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ring;
use crate::targets::CgroupId;

/// Minimum number of the newest paths that are kept.
const MIN: usize = 1 << 13;

/// Number of [rounds](CgroupPaths::end_round) after which a generation is closed. By then, the last counts of a removed cgroup are
/// attributed, and existing cgroups are known from the file system.
const ROUNDS: u32 = 30;

/// Paths of cgroups by ID, in two generations. The older generation is dropped when the younger has 8192 paths or is 30 rounds old.
#[derive(Debug, Clone, Default)]
pub struct CgroupPaths {
    young: FxHashMap<CgroupId, Arc<str>>,
    old: FxHashMap<CgroupId, Arc<str>>,
    rounds: u32,
}

impl CgroupPaths {
    /// Adds a created cgroup. Its path starts at the root of the hierarchy.
    pub fn apply_record(&mut self, created: &ring::Cgroup<'_>) {
        self.insert(CgroupId(created.id), &String::from_utf8_lossy(created.path).into());
    }

    /// Adds a path, which replaces an earlier one.
    pub fn insert(&mut self, id: CgroupId, path: &Arc<str>) {
        // The rings of several CPUs may report the same cgroup.
        if self.young.get(&id) == Some(path) {
            return;
        }
        if self.young.len() >= MIN {
            self.begin_generation();
        }
        self.young.insert(id, Arc::clone(path));
    }

    /// Adds all paths of another table.
    pub fn extend(&mut self, others: &Self) {
        for (&id, path) in others.old.iter().chain(&others.young) {
            self.insert(id, path);
        }
    }

    /// Ends a round.
    pub fn end_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.begin_generation();
        }
    }

    /// Drops the older generation; the younger becomes the older.
    pub fn begin_generation(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.rounds = 0;
    }

    /// Returns the most recent path of a cgroup.
    pub fn get(&self, id: CgroupId) -> Option<&Arc<str>> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        /// Bytes of a path, including reference counts and allocator overhead.
        const PATH: usize = 96;
        let entries = self.young.capacity() + self.old.capacity();
        entries * (size_of::<(CgroupId, Arc<str>)>() + 1) + (self.young.len() + self.old.len()) * PATH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply_record(paths: &mut CgroupPaths, id: u64, path: &[u8]) {
        paths.apply_record(&ring::Cgroup { id, path });
    }

    #[test]
    fn the_newest_are_remembered_and_the_oldest_make_room() {
        let mut paths = CgroupPaths::default();
        let last = 100_000;
        for id in 0..=last {
            apply_record(&mut paths, id, b"/a\xff");
            apply_record(&mut paths, id, b"/a\xff");
        }
        assert_eq!(paths.get(CgroupId(0)), None);
        for id in last - MIN as u64 + 1..=last {
            assert_eq!(paths.get(CgroupId(id)).map(|path| &**path), Some("/a\u{fffd}"));
        }
        assert!(paths.young.len() + paths.old.len() <= 2 * MIN);
        assert!(paths.bytes() < 4 << 20, "{}", paths.bytes());
    }

    #[test]
    fn those_that_were_created_long_ago_are_forgotten() {
        let mut paths = CgroupPaths::default();
        apply_record(&mut paths, 7, b"/a");
        (0..ROUNDS).for_each(|_| paths.end_round());
        assert!(paths.get(CgroupId(7)).is_some());
        (0..ROUNDS).for_each(|_| paths.end_round());
        assert_eq!(paths.get(CgroupId(7)), None);
    }

    #[test]
    fn a_path_that_is_added_again_is_as_young_as_a_new_one_and_the_newest_path_of_an_id_counts() {
        let mut paths = CgroupPaths::default();
        apply_record(&mut paths, 7, b"/a");
        apply_record(&mut paths, 8, b"/old");
        (0..ROUNDS).for_each(|_| paths.end_round());
        apply_record(&mut paths, 7, b"/a");
        apply_record(&mut paths, 8, b"/new");
        (0..ROUNDS).for_each(|_| paths.end_round());
        assert_eq!([7, 8].map(|id| paths.get(CgroupId(id)).map(|path| &**path)), [Some("/a"), Some("/new")]);
    }

    #[test]
    fn the_paths_of_another_table_are_added_the_newest_last() {
        let (mut paths, mut others) = (CgroupPaths::default(), CgroupPaths::default());
        apply_record(&mut others, 7, b"/old");
        others.begin_generation();
        apply_record(&mut others, 7, b"/new");
        apply_record(&mut paths, 6, b"/own");
        paths.extend(&others);
        assert_eq!(
            [6, 7].map(|id| paths.get(CgroupId(id)).map(|path| &**path)),
            [Some("/own"), Some("/new")]
        );
    }
}
