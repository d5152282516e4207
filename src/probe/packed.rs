//! Compact sorted list of addresses, each with a number.
//!
//! Entries are stored in blocks. A block has a full first address. Each entry contains the differences of its address and its number to the
//! previous entry, encoded with 7 bits per byte. Functions take 4 to 6 bytes each. A lookup is a binary search among the blocks, and
//! decodes two or three of them.

use prost::encoding::{decode_varint, encode_varint};

/// Number of entries per block.
const BLOCK: usize = 32;

/// The packed list.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// First address of each block.
    starts: Box<[u64]>,
    /// Offset of each block's entries.
    places: Box<[u32]>,
    bytes: Box<[u8]>,
    len: usize,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Near {
    /// Entries at or before the address, the closest first.
    pub(crate) before: Vec<(u64, u32)>,
    /// The first address of the list after it.
    pub(crate) next: Option<u64>,
}

/// A list during construction.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    starts: Vec<u64>,
    places: Vec<u32>,
    bytes: Vec<u8>,
    len: usize,
    last: (u64, u32),
}

impl Packing {
    /// Adds an entry, whose address must not be before the last one. Reports whether it fits: a list has at most 4 GiB.
    pub(crate) fn push(&mut self, address: u64, number: u32) -> bool {
        if self.len.is_multiple_of(BLOCK) {
            let Ok(place) = u32::try_from(self.bytes.len()) else { return false };
            self.starts.push(address);
            self.places.push(place);
            self.last = (address, 0);
        }
        let (before, last) = self.last;
        let difference = i64::from(number) - i64::from(last);
        encode_varint(address.saturating_sub(before), &mut self.bytes);
        encode_varint((difference << 1 ^ difference >> 63).cast_unsigned(), &mut self.bytes);
        self.last = (address, number);
        self.len += 1;
        true
    }

    pub(crate) fn finish(self) -> Packed {
        let Self { starts, places, bytes, len, .. } = self;
        Packed { starts: starts.into(), places: places.into(), bytes: bytes.into(), len }
    }
}

impl Packed {
    /// Returns at most `most` entries at or before an address, and the address of the next entry.
    pub(crate) fn near(&self, address: u64, most: usize) -> Near {
        let behind = self.starts.partition_point(|&start| start <= address);
        let mut near = Near { before: Vec::new(), next: self.starts.get(behind).copied() };
        for block in (0..behind).rev() {
            let entries: Vec<(u64, u32)> = self.block(block).collect();
            let end = entries.partition_point(|&(start, _)| start <= address);
            if let Some(&(next, _)) = entries.get(end) {
                near.next = Some(next);
            }
            let room = most - near.before.len();
            near.before.extend(entries.into_iter().take(end).rev().take(room));
            if near.before.len() == most {
                break;
            }
        }
        near
    }

    /// Returns all entries, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        (0..self.starts.len()).flat_map(|block| self.block(block))
    }

    fn block(&self, block: usize) -> impl Iterator<Item = (u64, u32)> + '_ {
        let start = self.starts.get(block).copied().unwrap_or_default();
        let place = self.places.get(block).map_or(0, |&place| place as usize);
        let mut rest = self.bytes.get(place..).unwrap_or_default();
        let mut last = (start, 0u32);
        (0..BLOCK.min(self.len - block * BLOCK)).map_while(move |_| {
            let distance = decode_varint(&mut rest).ok()?;
            let difference = decode_varint(&mut rest).ok()?;
            let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
            let number = u32::try_from(i64::from(last.1).checked_add(difference)?).ok()?;
            last = (last.0.checked_add(distance)?, number);
            Some(last)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory usage, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.starts) + size_of_val(&*self.places)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packed_list_answers_as_a_plain_one(
            distances in proptest::collection::vec((prop_oneof![0u64..3, 0u64..5000, any::<u64>()], any::<u32>()), 0..200),
            asked in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
            far: u64,
            most in 1usize..70,
        ) {
            let mut address = 0u64;
            let mut plain: Vec<(u64, u32)> = Vec::new();
            let mut packing = Packing::default();
            for (distance, number) in distances {
                address = address.saturating_add(distance);
                plain.push((address, number));
                prop_assert!(packing.push(address, number));
            }
            let packed = packing.finish();
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), plain.clone());
            prop_assert_eq!(packed.len(), plain.len());
            let places = asked.iter().filter(|_| !plain.is_empty()).map(|index| plain[index.index(plain.len())].0);
            for address in places.flat_map(|at| [at, at.saturating_sub(1), at.saturating_add(1)]).chain([far]) {
                let end = plain.partition_point(|&(start, _)| start <= address);
                let before = plain[..end].iter().rev().take(most).copied().collect();
                let next = plain.get(end).map(|&(next, _)| next);
                prop_assert_eq!(packed.near(address, most), Near { before, next });
            }
        }
    }

    #[test]
    fn functions_take_a_few_bytes_each() {
        let mut packing = Packing::default();
        for number in 0..100_000u32 {
            // Symbol indices are not sorted by address.
            packing.push(0x40_0000 + u64::from(number) * 208, number.wrapping_mul(2_654_435_761) % 200_000);
        }
        let packed = packing.finish();
        assert!(packed.bytes() < 6 * packed.len(), "{} bytes", packed.bytes());
    }
}
