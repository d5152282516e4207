//! What compilers tell of their code (DWARF): the sections of it, read whole and inflated.
//!
//! Source of the format of compressed sections: the System V ABI, chapter 4, "Section Compression".

use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::SectionId;
use object::Endianness;

use super::headers::{Class, DebugPart, Packed};
use super::input::Part;
use super::{Binary, BinaryError};

/// `ELFCOMPRESS_ZLIB`
const ZLIB: u32 = 1;

/// The sections of DWARF that lines and inlined functions are read out of.
pub struct DebugInfo {
    sections: Vec<(SectionId, Vec<u8>)>,
    /// Whether its numbers begin with their high bytes.
    pub big_endian: bool,
}

/// Why a file has no debug information that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDebugInfo {
    /// It was compiled without, or it was taken out.
    Absent,
    /// It is larger than it may be.
    TooLarge {
        /// How large it is, in bytes, uncompressed.
        size: u64,
    },
    /// It is compressed in another way than by zlib.
    Compressed,
    /// The file is damaged, or cannot be read.
    Unreadable(BinaryError),
}

impl std::fmt::Debug for DebugInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes = self.sections.iter().map(|(id, bytes)| (id.name(), bytes.len()));
        f.debug_map().entries(sizes).finish()
    }
}

impl DebugInfo {
    /// The bytes of a section; none if the file has no such section.
    pub fn section(&self, id: SectionId) -> &[u8] {
        self.sections.iter().find(|(found, _)| *found == id).map_or(&[], |(_, bytes)| bytes)
    }

    /// Those of a test.
    #[cfg(test)]
    pub(crate) fn of(sections: Vec<(SectionId, Vec<u8>)>) -> Self {
        Self { sections, big_endian: false }
    }

    /// Its sections.
    #[cfg(test)]
    pub(crate) fn sections(&self) -> &[(SectionId, Vec<u8>)] {
        &self.sections
    }

    /// How large it is, in bytes.
    pub fn size(&self) -> u64 {
        self.sections.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// What there is before a section that is compressed.
struct Compression {
    /// How large the section is, in bytes, uncompressed.
    size: u64,
    /// How long this is, in bytes.
    length: u64,
}

impl Binary<'_> {
    /// Whether it has debug information of its own.
    pub fn has_debug_info(&self) -> bool {
        self.headers.debug.iter().any(|found| found.id == SectionId::DebugInfo && found.part.size > 0)
    }

    /// Reads its debug information, of at most `limit` bytes uncompressed; that is what it takes in memory.
    ///
    /// # Errors
    /// There is none, it is too large, compressed in an unknown way, or cannot be read.
    pub fn debug_info(&self, limit: u64) -> Result<DebugInfo, NoDebugInfo> {
        if !self.has_debug_info() {
            return Err(NoDebugInfo::Absent);
        }
        let mut sizes = Vec::new();
        for found in &self.headers.debug {
            sizes.push(self.compression(found)?.map_or(found.part.size, |compression| compression.size));
        }
        let size = sizes.iter().fold(0, |sum: u64, &size| sum.saturating_add(size));
        if size > limit {
            return Err(NoDebugInfo::TooLarge { size });
        }
        let sections = self.headers.debug.iter().zip(sizes);
        let sections = sections.map(|(found, size)| Ok((found.id, self.section(found, size, limit)?)));
        let big_endian = self.headers.format.endian == Endianness::Big;
        Ok(DebugInfo { sections: sections.collect::<Result<_, NoDebugInfo>>()?, big_endian })
    }

    /// How a section is compressed; `None` if it is not.
    fn compression(&self, found: &DebugPart) -> Result<Option<Compression>, NoDebugInfo> {
        match found.packed {
            Packed::Not => return Ok(None),
            Packed::Old => return Err(NoDebugInfo::Compressed),
            Packed::Header => {}
        }
        let format = self.headers.format;
        let (length, size) = match format.class {
            Class::Elf32 => (12, 4),
            Class::Elf64 => (24, 8),
        };
        let name = found.id.name();
        let header = found.part.within(0, length).ok_or_else(|| {
            NoDebugInfo::Unreadable(self.input.damaged(format!("{name} ends within its header")))
        })?;
        let header = self.input.bytes(header, length, name).map_err(NoDebugInfo::Unreadable)?;
        if format.u32(&header, 0) != ZLIB {
            return Err(NoDebugInfo::Compressed);
        }
        Ok(Some(Compression { size: format.word(&header, size), length }))
    }

    /// A section of `size` bytes uncompressed.
    fn section(&self, found: &DebugPart, size: u64, limit: u64) -> Result<Vec<u8>, NoDebugInfo> {
        let name = found.id.name();
        let bytes = |part: Part| self.input.bytes(part, limit, name).map_err(NoDebugInfo::Unreadable);
        let Some(compression) = self.compression(found)? else { return bytes(found.part) };
        let rest = found.part.within(compression.length, found.part.size - compression.length);
        let packed = bytes(rest.unwrap_or(Part { size: 0, ..found.part }))?;
        let mut unpacked = Vec::new();
        let read = ZlibDecoder::new(&packed[..]).take(size).read_to_end(&mut unpacked);
        match read {
            Ok(read) if read as u64 == size => Ok(unpacked),
            _ => Err(NoDebugInfo::Unreadable(self.input.damaged(format!("{name} cannot be inflated")))),
        }
    }
}
