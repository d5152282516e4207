//! Address layout of files in a profile of many processes.
//!
//! Addresses of locations are those of the file's own headers, so they are the same in every process. Addresses of different files overlap,
//! but pprof finds instructions by address alone: `-disasm` would attribute the time of one program to another. Each file therefore gets a
//! separate address range, as in a process that maps all of them. Mappings are whole pages, like those of the kernel. Readers convert
//! addresses back with the start and offset of the mapping, as in profiles of real processes.

use std::collections::HashMap;

use crate::profile::Mapping;
use crate::stack::BuildId;

/// Smallest page size of supported processors, in bytes. Larger page sizes are multiples of it.
const PAGE: u64 = 1 << 12;
/// Alignment of files in bytes: the largest page size for which files are linked.
const APART: u64 = 1 << 21;
/// Half of the user address space. Higher addresses belong to the kernel or are synthetic, and are not moved.
const END: u64 = 1 << 46;

/// Returns the identity of a file.
fn file(mapping: &Mapping) -> (&str, Option<&BuildId>) {
    (&mapping.path, mapping.build_id.as_ref())
}

/// Offset of the addresses of each mapping.
#[derive(Debug)]
pub(super) struct Layout(Vec<u64>);

/// A mapping in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) offset: u64,
}

impl Layout {
    /// Computes the layout of all mappings. Mappings of the first file in `order` are not moved.
    pub(super) fn new(mappings: &[Mapping], order: &[usize]) -> Self {
        let mut ends = HashMap::<_, u64>::new();
        for mapping in mappings {
            let end = ends.entry(file(mapping)).or_default();
            *end = mapping.limit.max(*end);
        }
        let (mut moved, mut next) = (HashMap::new(), 0_u64);
        let mut by = vec![0; mappings.len()];
        for &place in order {
            let Some(mapping) = mappings.get(place) else { continue };
            let file = file(mapping);
            let end = ends.get(&file).copied().unwrap_or(mapping.limit);
            let base = *moved.entry(file).or_insert_with(|| {
                let Some(after) = next.checked_add(end).filter(|&after| after <= END) else { return 0 };
                // Below END, so this does not overflow.
                std::mem::replace(&mut next, after.next_multiple_of(APART))
            });
            // In bounds: the list is as long as the mappings.
            by[place] = base;
        }
        Self(by)
    }

    /// Returns the moved address of a location in a mapping.
    pub(super) fn address(&self, mapping: u32, address: u64) -> u64 {
        self.0.get(mapping as usize).map_or(address, |by| address.saturating_add(*by))
    }

    /// Returns the moved pages of a mapping, if it consists of whole pages in the file as well.
    pub(super) fn mapped(&self, place: usize, mapping: &Mapping) -> Mapped {
        let by = self.0.get(place).copied().unwrap_or(0);
        let into = mapping.start % PAGE;
        let into = if mapping.offset % PAGE == into { into } else { 0 };
        let limit = mapping.limit.checked_next_multiple_of(PAGE).unwrap_or(mapping.limit);
        Mapped {
            start: (mapping.start - into).saturating_add(by),
            limit: limit.saturating_add(by),
            offset: mapping.offset - into,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mapping(path: &str, start: u64, limit: u64, offset: u64) -> Mapping {
        Mapping { start, limit, offset, path: path.into(), named: true, ..Mapping::default() }
    }

    fn mapped(mappings: &[Mapping]) -> Vec<(u64, u64, u64)> {
        let order: Vec<usize> = (0..mappings.len()).collect();
        let layout = Layout::new(mappings, &order);
        let mapped = mappings.iter().enumerate().map(|(place, mapping)| layout.mapped(place, mapping));
        mapped.map(|mapped| (mapped.start, mapped.limit, mapped.offset)).collect()
    }

    #[test]
    fn files_stand_behind_each_other_and_the_first_where_it_is() {
        let files = [mapping("/a", 0x1000, 0x2800, 0x1000), mapping("/b", 0x1000, 0x2800, 0x1000)];
        assert_eq!(mapped(&files), [(0x1000, 0x3000, 0x1000), (0x20_1000, 0x20_3000, 0x1000)]);
        let layout = Layout::new(&files, &[1, 0]);
        assert_eq!((layout.address(1, 0x1800), layout.address(0, 0x1800)), (0x1800, 0x20_1800));
    }

    #[test]
    fn the_parts_of_a_file_stay_as_far_from_each_other_as_they_are() {
        let parts = [
            mapping("/a", 0x1000, 0x2000, 0x1000),
            mapping("/b", 0x1000, 0x2000, 0x1000),
            mapping("/b", 0x60_0000, 0x70_0000, 0x2000),
            mapping("/c", 0x1000, 0x2000, 0x1000),
        ];
        let starts: Vec<u64> = mapped(&parts).iter().map(|mapped| mapped.0).collect();
        assert_eq!(starts, [0x1000, 0x20_1000, 0x80_0000, 0xa0_1000]);
    }

    #[test]
    fn a_part_that_begins_within_a_page_is_mapped_from_its_beginning() {
        assert_eq!(mapped(&[mapping("/a", 0x1_2bc0, 0x8_9df0, 0x1_1bc0)]), [(0x1_2000, 0x8_a000, 0x1_1000)]);
        // No kernel creates such a mapping.
        assert_eq!(mapped(&[mapping("/a", 0x1_2bc0, 0x8_9df0, 0x1_1000)]), [(0x1_2bc0, 0x8_a000, 0x1_1000)]);
    }

    #[test]
    fn the_kernel_is_where_it_is() {
        let kernel = mapping("[kernel.kallsyms]", 0xffff_ffff_8100_0000, 0xffff_ffff_8383_8000, 0);
        let files = [mapping("/a", 0x1000, 0x2000, 0x1000), kernel, mapping("/b", 0x1000, 0x2000, 0x1000)];
        let starts: Vec<u64> = mapped(&files).iter().map(|mapped| mapped.0).collect();
        assert_eq!(starts, [0x1000, 0xffff_ffff_8100_0000, 0x20_1000]);
    }

    proptest! {
        #[test]
        fn files_do_not_overlap_unless_they_are_too_large(
            sizes in proptest::collection::vec((prop_oneof![0..END / 32, END + 1..], any::<u64>()), 0..20)
        ) {
            let files: Vec<Mapping> = (sizes.iter().enumerate())
                .map(|(number, &(size, offset))| mapping(&number.to_string(), 0, size, offset))
                .collect();
            let order: Vec<usize> = (0..files.len()).collect();
            let layout = Layout::new(&files, &order);
            let mut end = 0;
            for (place, file) in files.iter().enumerate() {
                let mapped = layout.mapped(place, file);
                if file.limit > END {
                    prop_assert_eq!(mapped.start, 0);
                } else {
                    prop_assert!(end <= mapped.start && mapped.start <= mapped.limit);
                    prop_assert_eq!(layout.address(place as u32, file.limit / 2), mapped.start + file.limit / 2);
                    end = mapped.limit;
                }
            }
        }
    }
}
