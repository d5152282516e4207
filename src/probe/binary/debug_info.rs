//! Debug information (DWARF): its sections, read whole and decompressed.
//!
//! Source for compressed sections: the System V ABI, chapter 4, "Section Compression".

use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::SectionId;
use object::Endianness;

use super::headers::{Class, DebugPart, Packed};
use super::input::Part;
use super::{Binary, BinaryError};

/// `ELFCOMPRESS_ZLIB`
const ZLIB: u32 = 1;

/// Sections with the locations of variables, which only [`Binary::full_debug_info`] reads.
const LOCATIONS: [SectionId; 2] = [SectionId::DebugLoc, SectionId::DebugLocLists];

/// The DWARF sections for line numbers and inlined functions.
pub struct DebugInfo {
    sections: Vec<(SectionId, Vec<u8>)>,
    /// Whether numbers are big-endian.
    pub big_endian: bool,
}

/// The reason why a file has no readable debug information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDebugInfo {
    /// The file was compiled without debug information, or is stripped.
    Absent,
    /// The debug information exceeds the limit.
    TooLarge {
        /// Uncompressed size in bytes.
        size: u64,
    },
    /// It is compressed, but not with zlib.
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
    /// Returns the bytes of a section. Empty if the file has no such section.
    pub fn section(&self, id: SectionId) -> &[u8] {
        self.sections.iter().find(|(found, _)| *found == id).map_or(&[], |(_, bytes)| bytes)
    }

    /// Returns debug information with these sections, for tests.
    #[cfg(test)]
    pub(crate) fn of(sections: Vec<(SectionId, Vec<u8>)>) -> Self {
        Self { sections, big_endian: false }
    }

    /// Returns all sections, for tests.
    #[cfg(test)]
    pub(crate) fn sections(&self) -> &[(SectionId, Vec<u8>)] {
        &self.sections
    }

    /// Returns the total size, in bytes.
    pub fn size(&self) -> u64 {
        self.sections.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// Header of a compressed section.
struct Compression {
    /// Uncompressed size of the section, in bytes.
    size: u64,
    /// Size of this header, in bytes.
    length: u64,
}

impl Binary<'_> {
    /// Reports whether the file itself contains debug information.
    pub fn has_debug_info(&self) -> bool {
        self.headers.debug.iter().any(|found| found.id == SectionId::DebugInfo && found.part.size > 0)
    }

    /// Reads the debug information, at most `limit` bytes uncompressed, which is also its memory usage.
    ///
    /// # Errors
    /// There is no debug information, it is too large, it has an unknown compression, or it cannot be read.
    pub fn debug_info(&self, limit: u64) -> Result<DebugInfo, NoDebugInfo> {
        self.debug_sections(limit, |id| !LOCATIONS.contains(&id))
    }

    /// Reads the debug information with the locations of variables, as [`debug_info`](Self::debug_info).
    ///
    /// # Errors
    /// As `debug_info`.
    pub fn full_debug_info(&self, limit: u64) -> Result<DebugInfo, NoDebugInfo> {
        self.debug_sections(limit, |_| true)
    }

    fn debug_sections(
        &self,
        limit: u64,
        wanted: impl Fn(SectionId) -> bool,
    ) -> Result<DebugInfo, NoDebugInfo> {
        if !self.has_debug_info() {
            return Err(NoDebugInfo::Absent);
        }
        let parts: Vec<&DebugPart> = self.headers.debug.iter().filter(|found| wanted(found.id)).collect();
        let mut sizes = Vec::new();
        for found in &parts {
            sizes.push(self.compression(found)?.map_or(found.part.size, |compression| compression.size));
        }
        let size = sizes.iter().fold(0, |sum: u64, &size| sum.saturating_add(size));
        if size > limit {
            return Err(NoDebugInfo::TooLarge { size });
        }
        let sections = parts.into_iter().zip(sizes);
        let sections = sections.map(|(found, size)| Ok((found.id, self.section(found, size, limit)?)));
        let big_endian = self.headers.format.endian == Endianness::Big;
        Ok(DebugInfo { sections: sections.collect::<Result<_, NoDebugInfo>>()?, big_endian })
    }

    /// Returns the compression header of a section; `None` if it is uncompressed.
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
            NoDebugInfo::Unreadable(self.input.damaged(format!("{name} ends inside its header")))
        })?;
        let header = self.input.bytes(header, length, name).map_err(NoDebugInfo::Unreadable)?;
        if format.u32(&header, 0) != ZLIB {
            return Err(NoDebugInfo::Compressed);
        }
        Ok(Some(Compression { size: format.word(&header, size), length }))
    }

    /// Returns a section of `size` bytes, decompressed.
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
            _ => Err(NoDebugInfo::Unreadable(self.input.damaged(format!("{name} cannot be decompressed")))),
        }
    }
}
