//! Compressed symbols inside a file (`.gnu_debugdata`, "MiniDebugInfo"): an ELF file in xz format, whose `.symtab` contains the symbols
//! that the file does not export. Fedora and its derivatives have them in every program.
//!
//! Sources: "The .xz File Format", and for LZMA2 the comments of liblzma's decoder.
//!
//! A few hundred bytes can expand to megabytes, and the decoder has no limit. But each LZMA2 chunk starts with its uncompressed size. So
//! these sizes are added up before anything is decompressed. Checksums are not verified: they detect accidental damage, and the result is
//! handled as untrusted input like any other file.

use lzma_rs::decompress::raw::Lzma2Decoder;

use super::{Binary, Result};

/// Magic bytes of an xz file. The checksum type follows.
const MAGIC: &[u8] = b"\xfd7zXZ\0";
/// Size of the xz stream header, in bytes.
const HEADER: usize = 12;
/// The only supported filter of a block.
const LZMA2: u8 = 0x21;
/// Maximum size of the compressed section, in bytes.
const PACKED_LIMIT: u64 = 64 << 20;

/// Location of an xz block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    /// Start and end of its LZMA2 data.
    start: usize,
    end: usize,
    /// Uncompressed size, in bytes.
    size: u64,
}

impl Binary<'_> {
    /// Returns the embedded ELF file with symbols, decompressed. `None` if there is none.
    ///
    /// # Errors
    /// It is larger than `limit` bytes, damaged, or unreadable.
    pub fn mini_debug(&self, limit: u64) -> Result<Option<Vec<u8>>> {
        const WHAT: &str = ".gnu_debugdata";
        let Some(part) = self.headers.mini_debug else { return Ok(None) };
        let packed = self.input.bytes(part, PACKED_LIMIT, WHAT)?;
        let damaged = || self.input.damaged(format!("{WHAT} is not a valid xz file"));
        let blocks = blocks(&packed).ok_or_else(damaged)?;
        let size = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.size));
        if size > limit {
            return Err(self.input.too_many(format!("bytes for {WHAT}"), limit));
        }
        let mut unpacked = Vec::new();
        for block in blocks {
            // In bounds, because `blocks` validated it.
            let mut bytes = &packed[block.start..block.end];
            Lzma2Decoder::new().decompress(&mut bytes, &mut unpacked).map_err(|_| damaged())?;
        }
        Ok(Some(unpacked))
    }
}

/// Returns the blocks of an xz file. `None` if it is not valid.
fn blocks(bytes: &[u8]) -> Option<Vec<Block>> {
    let check = match bytes.strip_prefix(MAGIC)?.get(1)? & 15 {
        0 => 0,
        kind => 4 << ((kind - 1) / 3),
    };
    let mut blocks = Vec::new();
    let mut at = HEADER;
    loop {
        // The header starts with its length in words, minus one. 0 marks the start of the index.
        let length = match bytes.get(at)? {
            0 => return Some(blocks),
            words => (usize::from(*words) + 1) * 4,
        };
        has_lzma2_alone(bytes.get(at..at + length)?)?;
        let start = at + length;
        let (end, size) = pieces(bytes, start)?;
        blocks.push(Block { start, end, size });
        at = start + (end - start).next_multiple_of(4) + check;
    }
}

/// Checks that the header of a block specifies only the supported filter. A second filter could expand the output of the first.
fn has_lzma2_alone(header: &[u8]) -> Option<()> {
    let flags = *header.get(1)?;
    let mut rest = header.get(2..)?;
    // The optional block sizes come first, encoded with 7 bits per byte.
    for flag in [0x40, 0x80] {
        if flags & flag != 0 {
            let length = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
            rest = rest.get(length..)?;
        }
    }
    (flags & 3 == 0 && rest.first() == Some(&LZMA2)).then_some(())
}

/// Scans the LZMA2 chunks from `at`. Returns their end and their total uncompressed size.
fn pieces(bytes: &[u8], mut at: usize) -> Option<(usize, u64)> {
    let mut size = 0u64;
    loop {
        let control = *bytes.get(at)?;
        let word =
            |at: usize| bytes.get(at..)?.first_chunk().map(|&word| usize::from(u16::from_be_bytes(word)));
        let (header, packed, unpacked) = match control {
            0 => return Some((at + 1, size)),
            // An uncompressed chunk.
            1 | 2 => {
                let size = word(at + 1)? + 1;
                (3, size, size)
            }
            3..0x80 => return None,
            _ => {
                let properties = usize::from(control >= 0xc0);
                let unpacked = (usize::from(control & 0x1f) << 16) + word(at + 1)? + 1;
                (5 + properties, word(at + 3)? + 1, unpacked)
            }
        };
        at = at.checked_add(header + packed).filter(|&end| end <= bytes.len())?;
        size += unpacked as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns an xz file with uncompressed chunks.
    fn stored(content: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut &content[..], &mut packed).unwrap();
        packed
    }

    fn unpacked(packed: &[u8], limit: u64) -> Option<Vec<u8>> {
        let blocks = blocks(packed)?;
        assert!(blocks.iter().all(|block| block.end <= packed.len()));
        let size: u64 = blocks.iter().map(|block| block.size).sum();
        let mut unpacked = Vec::new();
        for block in blocks.iter().filter(|_| size <= limit) {
            let mut bytes = &packed[block.start..block.end];
            Lzma2Decoder::new().decompress(&mut bytes, &mut unpacked).ok()?;
        }
        // A match may extend beyond the end of its chunk.
        assert!(unpacked.len() as u64 <= size + 300 * packed.len() as u64);
        Some(unpacked)
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        for length in [0, 1, 1000, 70_000, 200_000] {
            let content: Vec<u8> = (0..length).map(|number: u32| (number * 7 / 3) as u8).collect();
            assert_eq!(unpacked(&stored(&content), 1 << 20), Some(content), "{length}");
        }
    }

    #[test]
    fn how_large_it_becomes_is_known_before() {
        // Chunks of 2 MiB each with a claimed compressed size of 6 bytes.
        let bomb = [&[0xff, 0xff, 0xff, 0, 0, 0x5d, 0][..], &[0x9f, 0xff, 0xff, 0, 0, 0].repeat(1000), &[0]];
        let bomb = bomb.concat();
        assert_eq!(pieces(&bomb, 0), Some((bomb.len(), 1001 << 21)));
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_refused() {
        let packed = stored(b"something");
        for length in 0..packed.len() - 20 {
            assert!(blocks(&packed[..length]).is_none(), "{length}");
        }
        assert!(blocks(b"PK\x03\x04").is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_bytes_panic_and_none_become_more_than_they_say(
            content in proptest::collection::vec(0u8..4, 0..5000),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut packed = stored(&content);
            for (place, byte) in changes {
                let place = place.index(packed.len());
                packed[place] = byte;
            }
            unpacked(&packed, 1 << 20);
        }

        #[test]
        fn compressed_pieces_of_any_bytes_never_panic(bytes: Vec<u8>, size: u16) {
            let length = u16::try_from(bytes.len().max(1) - 1).unwrap().to_be_bytes();
            let mut piece = vec![0xe0];
            piece.extend(size.to_be_bytes());
            piece.extend(length);
            piece.push(0x5d);
            piece.extend(&bytes);
            piece.push(0);
            let mut unpacked = Vec::new();
            drop(Lzma2Decoder::new().decompress(&mut &piece[..], &mut unpacked));
            prop_assert!(unpacked.len() <= usize::from(size) + 300);
        }
    }
}
