//! Names, compressed in pieces.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Uncompressed size of a piece, in bytes. Larger pieces compress better, but take longer to decompress.
const PIECE: usize = 4096;

/// Compressed names. Each is identified by the position that [`Packing::push`] returned.
#[derive(Debug)]
pub(super) struct Names {
    /// For each piece, the position of its first name and its offset in `bytes`.
    pieces: Box<[(u32, u32)]>,
    bytes: Box<[u8]>,
}

/// Names during compression.
#[derive(Debug, Default)]
pub(super) struct Packing {
    pieces: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    /// The incomplete piece: NUL-terminated names.
    piece: Vec<u8>,
    /// Position of this piece.
    start: u32,
}

impl Packing {
    /// Adds a name and returns its position. `None` if the total exceeds 4 GiB.
    pub(super) fn push(&mut self, name: &[u8]) -> Option<u32> {
        if self.piece.len() >= PIECE {
            self.compress()?;
        }
        let place = self.start.checked_add(u32::try_from(self.piece.len()).ok()?)?;
        self.piece.extend_from_slice(name);
        self.piece.push(0);
        Some(place)
    }

    fn compress(&mut self) -> Option<()> {
        self.pieces.push((self.start, u32::try_from(self.bytes.len()).ok()?));
        let mut encoder = DeflateEncoder::new(&mut self.bytes, Compression::default());
        encoder.write_all(&self.piece).and_then(|()| encoder.finish()).ok()?;
        self.start = self.start.checked_add(u32::try_from(self.piece.len()).ok()?)?;
        self.piece.clear();
        Some(())
    }

    pub(super) fn finish(mut self) -> Option<Names> {
        if !self.piece.is_empty() {
            self.compress()?;
        }
        Some(Names { pieces: self.pieces.into(), bytes: self.bytes.into() })
    }
}

impl Names {
    /// Returns the name at a position. Decompresses one piece: 4 KiB and a name.
    pub(super) fn at(&self, place: u32) -> Option<String> {
        let piece = self.pieces.partition_point(|&(start, _)| start <= place).checked_sub(1)?;
        let &(start, from) = self.pieces.get(piece)?;
        let packed = self.bytes.get(from as usize..)?;
        let mut rest = Vec::new();
        // The bytes of the next piece follow. The decoder ignores them.
        DeflateDecoder::new(packed).read_to_end(&mut rest).ok()?;
        let name = rest.get((place - start) as usize..)?;
        let name = name.get(..memchr::memchr(0, name)?)?;
        String::from_utf8(name.to_vec()).ok()
    }

    /// Returns the memory usage, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_places_and_take_less_than_before() {
        let names: Vec<String> = (0..5000).map(|number| format!("ext4_function_{}", number * 37)).collect();
        let mut packing = Packing::default();
        let places: Vec<u32> = names.iter().map(|name| packing.push(name.as_bytes()).unwrap()).collect();
        let packed = packing.finish().unwrap();
        for (name, place) in names.iter().zip(places) {
            assert_eq!(packed.at(place).as_ref(), Some(name));
        }
        let plain: usize = names.iter().map(|name| name.len() + 1).sum();
        assert!(packed.bytes() * 2 < plain, "{} of {plain}", packed.bytes());
        assert_eq!(packed.at(u32::MAX), None);
    }
}
