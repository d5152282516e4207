//! Answers that are kept for the next time they are asked for.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// What was used lately, within a limit of memory.
///
/// There are two generations. What is used is moved into the younger; when that has grown to half of the limit, it
/// becomes the older, and what was in the older and not used meanwhile is forgotten.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    young: Generation<K, V>,
    old: Generation<K, V>,
    limit: usize,
}

#[derive(Debug)]
struct Generation<K, V> {
    entries: FxHashMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for Generation<K, V> {
    fn default() -> Self {
        Self { entries: FxHashMap::default(), bytes: 0 }
    }
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// What an entry takes beside what it holds: itself twice, for tables are half empty.
    const ENTRY: usize = 2 * size_of::<(K, (V, usize))>();

    /// `limit` is in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), limit }
    }

    /// Changes the limit. What is over it is forgotten.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.bytes() > limit {
            self.old = Generation::default();
        }
        if self.bytes() > limit {
            self.young = Generation::default();
        }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.entries.get(key) {
            return Some(value.clone());
        }
        let (value, held) = self.old.entries.remove(key)?;
        self.old.bytes -= held;
        self.put(*key, value.clone(), held);
        Some(value)
    }

    /// Keeps a value that holds so many bytes.
    pub(super) fn insert(&mut self, key: K, value: V, held: usize) {
        self.put(key, value, held + Self::ENTRY);
    }

    fn put(&mut self, key: K, value: V, held: usize) {
        if self.young.bytes + held > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += held;
        if let Some((_, before)) = self.young.entries.insert(key, (value, held)) {
            self.young.bytes -= before;
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        for generation in [&mut self.young, &mut self.old] {
            let mut bytes = 0;
            generation.entries.retain(|key, (_, held)| {
                let kept = keep(key);
                bytes += if kept { *held } else { 0 };
                kept
            });
            generation.bytes = bytes;
        }
    }

    /// How much memory it takes, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut cache = Cache::new(20 * (Cache::<u32, u32>::ENTRY + 100));
        for key in 0..1000 {
            cache.insert(key, key, 100);
            assert_eq!(cache.get(&0), Some(0), "after {key}");
        }
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&999), Some(999));
    }

    proptest! {
        #[test]
        fn it_keeps_to_its_limit_and_counts_what_it_holds(
            limit in 0usize..10_000, steps in proptest::collection::vec((0u8..50, 0usize..400, any::<bool>()), 0..300)
        ) {
            let mut cache = Cache::new(limit);
            for (key, held, put) in steps {
                if put {
                    cache.insert(key, held, held);
                    prop_assert_eq!(cache.get(&key), Some(held));
                } else {
                    cache.get(&key);
                }
                let one = 400 + Cache::<u8, usize>::ENTRY;
                prop_assert!(cache.bytes() <= limit.max(2 * one), "{}", cache.bytes());
            }
            cache.retain(|key| *key < 25);
            prop_assert_eq!(cache.get(&30), None);
            cache.retain(|_| false);
            prop_assert_eq!(cache.bytes(), 0);
        }
    }
}
