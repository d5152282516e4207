//! Named address ranges that are added, replaced and moved, for code generated at run time.

use std::collections::BTreeMap;

use super::texts::{TextId, Texts};

/// The bytes of a range in the tree, including the free space of its nodes.
const REGION: usize = 40;
/// One in this many parts of the limit is freed when the limit is reached.
const FREED: usize = 4;
/// A generation ends when one in this many parts of the limit was added in it.
const GENERATIONS: usize = 16;

/// Address ranges that do not overlap: a later one replaces the earlier ones that it covers.
///
/// For any input, every operation takes amortized O(log n) steps for n ranges, and time linear in the name. Only a full table costs more.
/// Then garbage is removed and, if that is too little, the oldest ranges are evicted, in O(n log n) steps. At least a quarter of the limit
/// is free afterwards, so that the next time is many added bytes later.
///
/// Ranges that were inserted or [used](Self::touch) longest ago are evicted first: samples hit recent code.
#[derive(Debug)]
pub(super) struct Regions {
    by_start: BTreeMap<u64, Region>,
    names: Texts,
    /// The memory limit, in bytes.
    limit: usize,
    /// The number of the current generation.
    generation: u32,
    /// Bytes that were added in the current generation.
    added: usize,
    /// The number of evicted ranges. A caller adds those that it could not insert.
    pub(super) dropped: u64,
    /// The number of examined ranges and moved bytes when space was freed.
    #[cfg(test)]
    work: usize,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    /// The end, exclusive.
    end: u64,
    name: TextId,
    /// The generation in which it was last inserted or used.
    generation: u32,
    /// The distance of its start from the start of the inserted range of which it is a part.
    into: u32,
}

/// A range that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) name: TextId,
    /// The offset of the address in the inserted range.
    pub(super) offset: u64,
}

/// The error for an entry that takes more than a quarter of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Regions {
    /// Creates an empty table of at most `limit` bytes of memory.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            by_start: BTreeMap::new(),
            names: Texts::default(),
            limit,
            generation: 0,
            added: 0,
            dropped: 0,
            #[cfg(test)]
            work: 0,
        }
    }

    /// Sets the memory limit in bytes. Ranges above it are evicted at once.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.bytes() > limit {
            self.make_space();
        }
    }

    /// Adds a named range. Does nothing for an empty range or one that exceeds the address space.
    ///
    /// # Errors
    /// If the name alone takes more than a quarter of the limit, or is longer than 64 KiB.
    pub(super) fn insert(&mut self, start: u64, size: u64, name: &[u8]) -> Result<(), Full> {
        let Some(end) = start.checked_add(size).filter(|&end| end > start) else { return Ok(()) };
        // An inserted range can split another one in two.
        self.reserve(Texts::needed(name.len()) + 2 * REGION)?;
        let name = self.names.intern(name).ok_or(Full)?;
        self.place(start, Region { end, name, generation: self.generation, into: 0 });
        Ok(())
    }

    /// Moves the range that begins at `from` to `to`. Does nothing if there is none.
    ///
    /// # Errors
    /// If the limit is too small for any range.
    pub(super) fn shift(&mut self, from: u64, to: u64) -> Result<(), Full> {
        self.reserve(2 * REGION)?;
        let Some(region) = self.by_start.remove(&from) else { return Ok(()) };
        match to.checked_add(region.end - from) {
            Some(end) => self.place(to, Region { end, generation: self.generation, ..region }),
            None => self.names.release(region.name),
        }
        Ok(())
    }

    /// Returns the range that contains an address.
    pub(super) fn find(&self, address: u64) -> Option<Found> {
        let (&start, region) = self.by_start.range(..=address).next_back()?;
        let offset = u64::from(region.into) + (address - start);
        (address < region.end).then_some(Found { start, name: region.name, offset })
    }

    /// Marks the range that begins at `start` as used, so that older ones are evicted first.
    pub(super) fn touch(&mut self, start: u64) {
        if let Some(region) = self.by_start.get_mut(&start) {
            region.generation = self.generation;
        }
    }

    pub(super) fn name(&self, name: TextId) -> &[u8] {
        self.names.get(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Removes all ranges. The number of dropped ranges is kept.
    pub(super) fn restart(&mut self) {
        *self = Self { dropped: self.dropped, ..Self::new(self.limit) };
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.by_start.len() * REGION + self.names.bytes()
    }

    fn place(&mut self, start: u64, region: Region) {
        self.clear(start, region.end);
        self.by_start.insert(start, region);
    }

    /// Removes everything between `start` and `end`. The rest of a range that extends beyond is kept.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((&before, region)) = self.by_start.range_mut(..start).next_back()
            && region.end > start
        {
            let whole = *region;
            region.end = start;
            if whole.end > end {
                self.names.retain(whole.name);
                self.by_start.insert(end, whole.from(end - before));
            }
        }
        while let Some((&within, &region)) = self.by_start.range(start..end).next() {
            self.by_start.remove(&within);
            if region.end > end {
                self.by_start.insert(end, region.from(end - within));
            } else {
                self.names.release(region.name);
            }
        }
    }

    /// Ensures that `bytes` more fit within the limit.
    fn reserve(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > self.limit / FREED {
            return Err(Full);
        }
        if self.bytes() + bytes > self.limit {
            self.make_space();
        }
        self.added += bytes;
        if self.added > self.limit / GENERATIONS {
            (self.added, self.generation) = (0, self.generation.saturating_add(1));
        }
        Ok(())
    }

    /// Removes garbage, and evicts the oldest ranges until a quarter of the limit is free. Takes O(n log n) steps, and temporarily 16 bytes
    /// of memory for each range.
    fn make_space(&mut self) {
        let wanted = self.limit - self.limit / FREED;
        if self.live_bytes() > wanted {
            let mut ages: Vec<(u32, u64)> =
                self.by_start.iter().map(|(&start, region)| (region.generation, start)).collect();
            ages.sort_unstable();
            for (_, start) in ages {
                if self.live_bytes() <= wanted {
                    break;
                }
                if let Some(region) = self.by_start.remove(&start) {
                    self.names.release(region.name);
                    self.dropped += 1;
                }
            }
        }
        #[cfg(test)]
        {
            self.work += self.bytes();
        }
        let renumbered = self.names.compact();
        self.by_start.values_mut().for_each(|region| region.name = renumbered.of(region.name));
    }

    fn live_bytes(&self) -> usize {
        self.by_start.len() * REGION + self.names.live_bytes()
    }
}

impl Region {
    /// Returns the rest of the range from `bytes` after its start on.
    fn from(self, bytes: u64) -> Self {
        Self { into: u32::try_from(u64::from(self.into) + bytes).unwrap_or(u32::MAX), ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_of(regions: &Regions, address: u64) -> Option<String> {
        regions.find(address).map(|found| String::from_utf8_lossy(regions.name(found.name)).into_owned())
    }

    proptest! {
        /// Compares with a model of one name and offset for each address. An evicted range is missing, but never wrong.
        #[test]
        fn each_address_has_what_was_put_there_last_or_nothing_if_it_was_evicted(
            steps in proptest::collection::vec((0u64..200, 0u64..50, 0u8..40, any::<bool>()), 0..80),
            limit in 600usize..4000
        ) {
            let mut regions = Regions::new(limit);
            let mut model = vec![None; 400];
            for (start, size, name, shift) in steps {
                if shift {
                    // The space is freed before the look-up.
                    prop_assert_eq!(regions.reserve(2 * REGION), Ok(()));
                    let Some(first) = regions.find(start).map(|found| found.start) else { continue };
                    let count = (first..).take_while(|at| {
                        regions.find(*at).is_some_and(|there| there.start == first)
                    }).count();
                    let to = size * 5;
                    prop_assert_eq!(regions.shift(first, to), Ok(()));
                    let (first, to) = (usize::try_from(first).unwrap(), usize::try_from(to).unwrap());
                    let moved: Vec<_> = model[first..first + count].to_vec();
                    model[first..first + count].fill(None);
                    if model.len() < to + count {
                        model.resize(to + count, None);
                    }
                    model[to..to + count].clone_from_slice(&moved);
                } else {
                    let name = format!("name {name}");
                    prop_assert_eq!(regions.insert(start, size, name.as_bytes()), Ok(()));
                    for (offset, at) in (start as usize..(start + size) as usize).enumerate() {
                        model[at] = Some((name.clone(), offset as u64));
                    }
                }
                prop_assert!(regions.bytes() <= limit);
                for (address, expected) in model.iter_mut().enumerate() {
                    let found = regions.find(address as u64).map(|found| found.offset);
                    let found = name_of(&regions, address as u64).zip(found);
                    if found.is_none() && regions.dropped > 0 {
                        *expected = None;
                    }
                    prop_assert_eq!(&found, expected, "{}", address);
                }
            }
        }
    }

    #[test]
    fn names_without_ranges_make_space() {
        let mut regions = Regions::new(2000);
        for round in 0..1000 {
            let name = format!("{round} {}", "x".repeat(300));
            assert_eq!(regions.insert(0x1000, 16, name.as_bytes()), Ok(()));
            assert_eq!(name_of(&regions, 0x1008), Some(name));
        }
        assert_eq!((regions.by_start.len(), regions.dropped), (1, 0));
    }

    #[test]
    fn the_ranges_that_are_evicted_are_those_that_were_inserted_and_used_longest_ago() {
        let mut regions = Regions::new(100_000);
        for number in 0..10_000u64 {
            regions.insert(number * 16, 16, format!("function {number}").as_bytes()).unwrap();
            regions.touch(0);
        }
        let kept = |number: u64| regions.find(number * 16).is_some();
        assert!(kept(0), "the range is used all the time");
        assert!((9_500..10_000).all(kept) && !(1..8_000).any(kept));
        assert!(regions.dropped > 8_000 && regions.bytes() <= 100_000);
    }

    #[test]
    fn an_entry_that_would_evict_everything_is_refused() {
        let mut regions = Regions::new(10_000);
        regions.insert(0, 16, b"small").unwrap();
        assert_eq!(regions.insert(16, 16, &[b'x'; 3000]), Err(Full));
        assert_eq!((name_of(&regions, 0).as_deref(), regions.dropped), (Some("small"), 0));
        assert_eq!(Regions::new(0).insert(0, 1, b"x"), Err(Full));
    }

    #[test]
    fn a_lower_limit_holds_at_once() {
        let mut regions = Regions::new(100_000);
        for number in 0..1000u64 {
            regions.insert(number * 16, 16, format!("function {number}").as_bytes()).unwrap();
        }
        regions.set_limit(20_000);
        assert!(regions.bytes() <= 20_000, "{}", regions.bytes());
        assert!(regions.dropped > 0);
    }

    /// The work to free space must stay within a few times the inserted bytes. The kinds of input are those that once made every line cost
    /// as much as the whole table.
    #[test]
    fn making_space_takes_time_linear_in_what_is_inserted() {
        const LINES: u64 = 60_000;
        type Line = fn(u64) -> (u64, u64, String);
        let inputs: [(&str, Line); 6] = [
            ("new functions, as node writes them", |n| {
                (n * 64, 64, format!("LazyCompile:*f{n} /app/{}.js:1", "x".repeat(90)))
            }),
            ("functions that replace others", |n| (n % 700 * 64, 64, format!("f{n} {}", "x".repeat(90)))),
            ("the same name repeatedly", |n| (n * 64, 64, "same".into())),
            ("short names", |n| (n * 2, 1, format!("{n:x}"))),
            ("a large function with a long name, split and replaced", |n| match n % 1000 {
                0 => (0, 1 << 40, "x".repeat(4096)),
                at => (at * 1024, 1, "y".into()),
            }),
            ("long names that replace each other among many short ones", |n| match n % 2 {
                0 => (n * 4, 2, format!("{n:x}")),
                _ => (u64::MAX - 8, 8, format!("{n} {}", "z".repeat(2000))),
            }),
        ];
        for (what, line) in inputs {
            let (mut regions, mut inserted) = (Regions::new(1 << 20), 0);
            for number in 0..LINES {
                let (start, size, name) = line(number);
                inserted += Texts::needed(name.len()) + 2 * REGION;
                regions.insert(start, size, name.as_bytes()).unwrap();
            }
            assert!(regions.work <= 4 * inserted, "{what}: {} for {inserted}", regions.work);
            assert!(regions.bytes() <= 1 << 20);
        }
    }

    #[test]
    fn the_ends_of_the_address_space_are_no_trap() {
        let mut regions = Regions::new(10_000);
        assert_eq!(regions.insert(u64::MAX, 1, b"last"), Ok(()));
        assert_eq!(regions.insert(u64::MAX - 1, 1, b"last but one"), Ok(()));
        assert_eq!(regions.insert(0, u64::MAX, b"all"), Ok(()));
        assert_eq!(name_of(&regions, u64::MAX - 1), Some("all".to_owned()));
        assert_eq!(name_of(&regions, u64::MAX), None);
        assert_eq!(regions.shift(0, 10), Ok(()));
        assert_eq!(name_of(&regions, 20), None);
    }
}
