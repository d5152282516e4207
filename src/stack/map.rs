//! The address space of a process.

use std::collections::BTreeMap;

use super::ModuleId;

/// The content of a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappedContent {
    /// A file, from this offset on.
    File { module: ModuleId, offset: u64 },
    /// Memory without a file.
    Memory,
}

impl MappedContent {
    /// Returns the content from `bytes` further on.
    fn after(self, bytes: u64) -> Self {
        match self {
            Self::File { module, offset } => Self::File { module, offset: offset.wrapping_add(bytes) },
            Self::Memory => Self::Memory,
        }
    }
}

/// Addresses from `start` up to `end` (exclusive), and their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) content: MappedContent,
}

/// The executable mappings of a process, which do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Map(BTreeMap<u64, (u64, MappedContent)>);

impl Map {
    /// Returns the number of mappings.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Mapping> {
        self.0.iter().map(|(&start, &(end, content))| Mapping { start, end, content })
    }

    /// Returns the mapping that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<Mapping> {
        let (&start, &(end, content)) = self.0.range(..=address).next_back()?;
        (address < end).then_some(Mapping { start, end, content })
    }

    /// Adds a mapping, which replaces all others in its range.
    pub(crate) fn insert(&mut self, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        // An earlier mapping is truncated at the start of the new one, and may continue after its end.
        let before = self.0.range(..new.start).next_back().map(|(&start, &entry)| (start, entry));
        if let Some((start, (end, content))) = before.filter(|&(_, (end, _))| end > new.start) {
            self.0.insert(start, (new.start, content));
            self.go_on(start, end, content, new.end);
        }
        while let Some((&start, &(end, content))) = self.0.range(new.start..new.end).next() {
            self.0.remove(&start);
            self.go_on(start, end, content, new.end);
        }
        self.0.insert(new.start, (new.end, new.content));
    }

    /// Keeps the part of a mapping after `from`.
    fn go_on(&mut self, start: u64, end: u64, content: MappedContent, from: u64) {
        if end > from {
            self.0.insert(from, (end, content.after(from - start)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(start: u64, end: u64, module: u32, offset: u64) -> Mapping {
        Mapping { start, end, content: MappedContent::File { module: ModuleId(module), offset } }
    }

    #[test]
    fn a_mapping_splits_the_one_that_it_is_put_into() {
        let mut map = Map::default();
        map.insert(file(100, 200, 1, 1000));
        map.insert(file(120, 150, 2, 0));
        let expected = [file(100, 120, 1, 1000), file(120, 150, 2, 0), file(150, 200, 1, 1050)];
        assert!(map.iter().eq(expected), "{map:?}");
        assert_eq!(map.find(199), Some(expected[2]));
        assert_eq!((map.find(99), map.find(200)), (None, None));
    }

    #[test]
    fn the_last_byte_of_all_addresses_can_be_in_a_mapping() {
        let mut map = Map::default();
        map.insert(file(u64::MAX - 10, u64::MAX, 1, u64::MAX));
        map.insert(file(u64::MAX - 20, u64::MAX - 5, 2, 0));
        assert_eq!(map.find(u64::MAX - 1), Some(file(u64::MAX - 5, u64::MAX, 1, 4)));
    }

    proptest! {
        /// The model has an entry for each address.
        #[test]
        fn any_mappings_agree_with_a_table_of_all_addresses(
            mappings in proptest::collection::vec((0u64..64, 0u64..64, 0u32..4, any::<bool>()), 0..24),
        ) {
            let mut map = Map::default();
            let mut model = vec![None; 64];
            for (start, end, module, is_file) in mappings {
                let content = if is_file { MappedContent::File { module: ModuleId(module), offset: start * 7 } } else { MappedContent::Memory };
                map.insert(Mapping { start, end, content });
                for address in start..end {
                    model[address as usize] = Some(content.after(address - start));
                }
            }
            for address in 0..64 {
                let found = map.find(address).map(|mapping| mapping.content.after(address - mapping.start));
                prop_assert_eq!(found, model[address as usize], "{}", address);
            }
            let all: Vec<_> = map.iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(all.iter().all(|mapping| mapping.start < mapping.end));
            prop_assert_eq!(map.len(), all.len());
        }
    }
}
