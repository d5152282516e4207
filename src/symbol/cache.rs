//! A cache of results.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The most recently used entries, within a memory limit.
///
/// There are two generations. A used entry is moved into the young generation. When that has grown to half of the limit, it becomes the old
/// generation, and the unused entries of the old one are dropped. Every call takes logarithmic time.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    young: Generation<K, V>,
    old: Generation<K, V>,
    limit: usize,
}

#[derive(Debug)]
struct Generation<K, V> {
    entries: BTreeMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for Generation<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), bytes: 0 }
    }
}

impl<K: Ord + Copy, V> Generation<K, V> {
    /// Returns the last key in `range`, if `fits` accepts its value.
    fn last_in(&self, range: &RangeInclusive<K>, fits: impl Fn(&V) -> bool) -> Option<(K, &V)> {
        let (&key, (value, _)) = self.entries.range(range.clone()).next_back()?;
        fits(value).then_some((key, value))
    }

    fn remove(&mut self, key: &K) -> Option<(V, usize)> {
        let (value, held) = self.entries.remove(key)?;
        self.bytes -= held;
        Some((value, held))
    }
}

impl<K: Ord + Copy, V: Clone> Cache<K, V> {
    /// The bytes of an entry without those that its value points to: nodes of the tree are half empty at worst.
    pub(super) const ENTRY: usize = size_of::<(K, (V, usize))>() * 3 / 2;

    /// Creates an empty cache. `limit` is in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), limit }
    }

    /// Changes the limit. Entries above it are dropped.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.bytes() > limit {
            self.old = Generation::default();
        }
        if self.bytes() > limit {
            self.young = Generation::default();
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.last_in(*key..=*key, |_| true)
    }

    /// Returns the value of the last key in `range`, if `fits` accepts it.
    pub(super) fn last_in(&mut self, range: RangeInclusive<K>, fits: impl Fn(&V) -> bool) -> Option<V> {
        if let Some((_, value)) = self.young.last_in(&range, &fits) {
            return Some(value.clone());
        }
        let (key, _) = self.old.last_in(&range, &fits)?;
        let (value, held) = self.old.remove(&key)?;
        self.put(key, value.clone(), held);
        Some(value)
    }

    /// Adds a value that points to `held` bytes, unless it takes more than half of the limit.
    pub(super) fn insert(&mut self, key: K, value: V, held: usize) {
        self.put(key, value, held + Self::ENTRY);
    }

    fn put(&mut self, key: K, value: V, held: usize) {
        // The previous value is outdated, even if the new one does not fit.
        self.young.remove(&key);
        self.old.remove(&key);
        if self.young.bytes + held > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        if held <= self.limit / 2 {
            self.young.bytes += held;
            self.young.entries.insert(key, (value, held));
        }
    }

    /// Drops entries that were not used since the last call, or since they were moved into the old generation.
    pub(super) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    /// Drops the entries for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        for generation in [&mut self.young, &mut self.old] {
            let mut bytes = 0;
            generation.entries.retain(|key, (value, held)| {
                let kept = keep(key, value);
                bytes += if kept { *held } else { 0 };
                kept
            });
            generation.bytes = bytes;
        }
    }

    /// Returns the approximate memory in use, in bytes.
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

    #[test]
    fn what_is_not_used_between_two_ages_is_dropped() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(1, "used", 0);
        cache.insert(2, "unused", 0);
        cache.age();
        assert_eq!(cache.get(&1), Some("used"));
        cache.age();
        assert_eq!((cache.get(&1), cache.get(&2)), (Some("used"), None));
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
                    let fits = held + Cache::<u8, usize>::ENTRY <= limit / 2;
                    prop_assert_eq!(cache.get(&key), fits.then_some(held));
                } else {
                    cache.get(&key);
                }
                prop_assert!(cache.bytes() <= limit, "{}", cache.bytes());
            }
            cache.retain(|key, _| *key < 25);
            prop_assert_eq!(cache.get(&30), None);
            cache.retain(|_, _| false);
            prop_assert_eq!(cache.bytes(), 0);
        }
    }
}
