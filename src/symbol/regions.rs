//! Named pieces of an address space that come and go, as code does that is made at run time.

use std::collections::BTreeMap;

/// The longest name that is kept, in bytes; the rest is cut off.
const NAME_LIMIT: usize = 4096;
/// What a piece takes in the tree, in bytes, with the room that its nodes keep free.
const REGION: usize = 40;

/// Pieces that do not overlap: the later one wins.
#[derive(Debug)]
pub(super) struct Regions {
    by_start: BTreeMap<u64, Region>,
    /// Names, each with a NUL behind it.
    names: Vec<u8>,
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    /// The end, which is not in it.
    end: u64,
    name: Name,
}

/// A name: where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name(u32);

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Regions {
    /// They and their names take at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { by_start: BTreeMap::new(), names: Vec::new(), limit }
    }

    /// Gives a piece a name, whatever was there before. A piece of no bytes, or behind the end of the address space, is
    /// nothing.
    pub(super) fn insert(&mut self, start: u64, size: u64, name: &[u8]) -> Result<(), Full> {
        let Some(end) = start.checked_add(size).filter(|&end| end > start) else { return Ok(()) };
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let name = &name[..name.len().min(NAME_LIMIT)];
        // What is inserted can split another in two.
        let room = |regions: &Self| regions.bytes() + name.len() + 1 + 2 * REGION <= regions.limit;
        if !room(self) {
            // The names of what was replaced are still there.
            self.compact();
            if !room(self) {
                return Err(Full);
            }
        }
        let at = self.name(name).ok_or(Full)?;
        self.place(start, end, at);
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> Option<Name> {
        let at = u32::try_from(self.names.len()).ok()?;
        self.names.extend_from_slice(name);
        self.names.push(0);
        Some(Name(at))
    }

    fn place(&mut self, start: u64, end: u64, name: Name) {
        self.clear(start, end);
        self.by_start.insert(start, Region { end, name });
    }

    /// Takes away what there is from `start` to `end`; of what reaches beyond, the rest stays.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((&before, region)) = self.by_start.range_mut(..start).next_back()
            && region.end > start
        {
            let rest = *region;
            debug_assert!(before < start);
            region.end = start;
            if rest.end > end {
                self.by_start.insert(end, rest);
            }
        }
        while let Some((&within, &region)) = self.by_start.range(start..end).next() {
            self.by_start.remove(&within);
            if region.end > end {
                self.by_start.insert(end, region);
            }
        }
    }

    /// The piece that begins at `from`, if there is one, is at `to` from now on. Without room it is nowhere.
    pub(super) fn shift(&mut self, from: u64, to: u64) -> Result<(), Full> {
        let Some(region) = self.by_start.remove(&from) else { return Ok(()) };
        let Some(end) = to.checked_add(region.end - from) else { return Ok(()) };
        if self.bytes() + 2 * REGION > self.limit {
            return Err(Full);
        }
        self.place(to, end, region.name);
        Ok(())
    }

    /// Where the piece begins that an address is in, and its name.
    pub(super) fn find(&self, address: u64) -> Option<(u64, Name)> {
        let (&start, region) = self.by_start.range(..=address).next_back()?;
        (address < region.end).then_some((start, region.name))
    }

    pub(super) fn text(&self, Name(at): Name) -> &[u8] {
        let rest = self.names.get(at as usize..).unwrap_or_default();
        memchr::memchr(0, rest).and_then(|end| rest.get(..end)).unwrap_or_default()
    }

    /// Forgets the names that nothing has any more, if they are many. Every [`Name`] is another afterwards.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.names);
        let mut moved: BTreeMap<Name, Name> = BTreeMap::new();
        for region in self.by_start.values_mut() {
            region.name = *moved.entry(region.name).or_insert_with(|| {
                let rest = old.get(region.name.0 as usize..).unwrap_or_default();
                let end = memchr::memchr(0, rest).map_or(rest.len(), |end| end + 1);
                // No longer than the old names, which had their places as such numbers.
                let at = Name(self.names.len() as u32);
                self.names.extend_from_slice(&rest[..end]);
                at
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// How much memory it takes, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.by_start.len() * REGION + self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_of(regions: &Regions, address: u64) -> Option<String> {
        regions.find(address).map(|(_, name)| String::from_utf8_lossy(regions.text(name)).into_owned())
    }

    proptest! {
        /// Against one name for each address.
        #[test]
        fn at_each_address_is_what_was_put_there_last(
            steps in proptest::collection::vec((0u64..200, 0u64..50, 0u8..40, any::<bool>()), 0..80),
            limit in 400usize..4000
        ) {
            let mut regions = Regions::new(limit);
            let mut model = vec![None; 400];
            for (start, size, name, shift) in steps {
                if shift {
                    let Some((first, _)) = regions.find(start) else { continue };
                    let count = (first..).take_while(|at| {
                        regions.find(*at).is_some_and(|(there, _)| there == first)
                    }).count();
                    let to = size * 5;
                    let kept = regions.shift(first, to).is_ok();
                    let (first, to) = (usize::try_from(first).unwrap(), usize::try_from(to).unwrap());
                    let moved: Vec<_> = model[first..first + count].to_vec();
                    model[first..first + count].fill(None);
                    if !kept {
                        prop_assert!(regions.bytes() + 100 > limit);
                        continue;
                    }
                    if model.len() < to + count {
                        model.resize(to + count, None);
                    }
                    model[to..to + count].clone_from_slice(&moved);
                } else {
                    let name = format!("name {name}");
                    match regions.insert(start, size, name.as_bytes()) {
                        Ok(()) => model[start as usize..(start + size) as usize].fill(Some(name)),
                        Err(Full) => prop_assert!(regions.bytes() + 200 > limit),
                    }
                }
                prop_assert!(regions.bytes() <= limit);
                for (address, expected) in model.iter().enumerate() {
                    prop_assert_eq!(&name_of(&regions, address as u64), expected, "{}", address);
                }
            }
        }
    }

    #[test]
    fn names_that_nothing_has_any_more_make_room() {
        let mut regions = Regions::new(1000);
        for round in 0..1000 {
            let name = format!("{round} {}", "x".repeat(300));
            assert_eq!(regions.insert(0x1000, 16, name.as_bytes()), Ok(()));
            assert_eq!(name_of(&regions, 0x1008), Some(name));
        }
        assert_eq!(regions.len(), 1);
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
