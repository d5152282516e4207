//! ELF headers: loaded segments, and the tables of the file. Sources: `elf(5)` and the System V ABI, chapter 4.

use gimli::SectionId;
use object::elf::{
    EM_AARCH64, EM_X86_64, ET_CORE, ET_DYN, ET_EXEC, ET_REL, FileHeader32, FileHeader64, PF_X, PN_XNUM,
    PT_LOAD, SHF_COMPRESSED, SHF_EXECINSTR, SHN_XINDEX, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERSYM,
    SHT_NOBITS, SHT_RELA, SHT_SYMTAB, SectionType,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, pod};

use super::input::{Input, Part};
use super::{BinaryError, Result};
use crate::probe::argument::Arch;

/// Maximum number of program headers. The kernel rejects programs whose program headers exceed 64 KiB.
const SEGMENT_LIMIT: u16 = 1024;
/// Maximum number of section headers. Programs have about 40. Kernels, and files with one section per function, have more.
const SECTION_LIMIT: u64 = 65_536;
/// Maximum size of the section name table, in bytes.
const SECTION_NAMES_LIMIT: u64 = 4 << 20;
/// Maximum length of a relevant section name, in bytes.
const SECTION_NAME_LIMIT: usize = 64;

/// Relevant contents of the headers.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) machine: Arch,
    pub(super) format: Format,
    pub(super) segments: Vec<Segment>,
    /// Address ranges of the code sections (end exclusive), sorted. Empty if the file has no sections.
    pub(super) code: Vec<(u64, u64)>,
    /// `.symtab`: all symbols. Absent if the file is stripped.
    pub(super) symtab: Option<SymbolTable>,
    /// `.dynsym`: exported and imported symbols.
    pub(super) dynsym: Option<SymbolTable>,
    /// `.note.stapsdt`: the USDT probes.
    pub(super) usdt_probes: Option<Part>,
    /// The address of `.stapsdt.base`.
    pub(super) marker_base: Option<u64>,
    /// `.note.gnu.build-id`
    pub(super) build_id: Option<Part>,
    /// `.gnu_debuglink`
    pub(super) debug_link: Option<Part>,
    /// `.gnu_debugdata`: symbols in an embedded ELF file, compressed with xz.
    pub(super) mini_debug: Option<Part>,
    /// DWARF sections.
    pub(super) debug: Vec<DebugPart>,
    /// `.plt` and similar sections with their addresses: stubs that call functions of other files.
    pub(super) stubs: Vec<(u64, Part)>,
    /// Relocations for the dynamic linker, with symbols from `dynsym`.
    pub(super) relocations: Vec<Part>,
}

/// A section of DWARF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DebugPart {
    pub(super) id: SectionId,
    pub(super) part: Part,
    pub(super) packed: Packed,
}

/// Compression of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    Not,
    /// Compressed with a header (`SHF_COMPRESSED`).
    Header,
    /// Compressed in the older format without a header: its name begins with `.zdebug_`.
    Old,
}

/// DWARF sections for line numbers and inlined functions, and for the locations of variables.
const DEBUG_SECTIONS: [SectionId; 11] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Width of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Elf32,
    Elf64,
}

/// Encoding of numbers in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) class: Class,
    pub(super) endian: Endianness,
}

impl Format {
    /// Decodes the number at an offset. 0 if the bytes end before.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        self.endian.read_u16(chunk(bytes, at))
    }

    /// Decodes a number as [`u16`](Self::u16).
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        self.endian.read_u32(chunk(bytes, at))
    }

    /// Decodes a number of address width as [`u16`](Self::u16).
    pub(super) fn word(self, bytes: &[u8], at: usize) -> u64 {
        match self.class {
            Class::Elf32 => self.u32(bytes, at).into(),
            Class::Elf64 => self.endian.read_u64(chunk(bytes, at)),
        }
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// The part of a loaded segment (`PT_LOAD`) that is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// End address (exclusive).
    pub limit: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Whether it contains code.
    pub executable: bool,
}

impl Segment {
    /// Returns the address of a file offset, if the segment contains it.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let into = offset.checked_sub(self.offset).filter(|&into| into < self.size())?;
        self.start.checked_add(into)
    }

    /// Returns the file offset of an address. `None` if the file contains no bytes for it.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.start).filter(|&into| into < self.size())?;
        self.offset.checked_add(into)
    }

    /// Returns the size in the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.limit - self.start
    }
}

/// Location of a symbol table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolTable {
    pub(super) entries: Part,
    pub(super) strings: Part,
    /// `.gnu.version`: a version number for each entry.
    pub(super) versions: Option<Part>,
    /// `.gnu.version_d`: the definitions of the version numbers, with names in `strings`.
    pub(super) definitions: Option<Part>,
}

/// The relevant fields of a section header.
struct Section {
    name: u32,
    kind: SectionType,
    executable: bool,
    compressed: bool,
    address: u64,
    part: Part,
    link: u32,
    entry_size: u64,
}

impl Headers {
    /// Reads the headers of a file.
    pub(super) fn read(input: &Input) -> Result<Self> {
        let size = input.len.min(size_of::<FileHeader64<Endianness>>() as u64);
        let start = input.bytes(Part { offset: 0, size }, size, "the ELF header")?;
        if !start.starts_with(b"\x7fELF") {
            return Err(BinaryError::NotElf { path: input.path.clone(), found: looks_like(&start) });
        }
        match start.get(4) {
            Some(1) => Self::of::<FileHeader32<Endianness>>(input, &start, Class::Elf32),
            Some(2) => Self::of::<FileHeader64<Endianness>>(input, &start, Class::Elf64),
            _ => Err(input.damaged("the header is neither 32-bit nor 64-bit")),
        }
    }

    fn of<Elf: FileHeader<Endian = Endianness>>(
        input: &Input<'_>,
        start: &[u8],
        class: Class,
    ) -> Result<Self> {
        let broken = |_| input.damaged("the header is truncated or has an unsupported version");
        let header = Elf::parse(start).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        let not = |what| Err(BinaryError::NotProgram { path: input.path.clone(), what });
        match header.e_type(endian) {
            ET_EXEC | ET_DYN => {}
            ET_REL => return not("an object file or kernel module"),
            ET_CORE => return not("a core dump"),
            _ => return not("an ELF file of an unknown type"),
        }
        let sections = sections(input, header, endian)?;
        let names = section_names(input, header, endian, &sections)?;
        let named = |name: &[u8]| {
            let mut here = sections.iter().filter(|section| section.kind != SHT_NOBITS);
            here.find(|section| name_at(&names, section.name) == name)
        };
        Ok(Self {
            machine: match header.e_machine(endian) {
                EM_X86_64 => Arch::X86_64,
                EM_AARCH64 => Arch::Aarch64,
                _ => Arch::Other,
            },
            format: Format { class, endian },
            segments: segments(input, header, endian)?,
            code: code(&sections),
            symtab: symbol_table(input, &sections, SHT_SYMTAB, size_of::<Elf::Sym>())?,
            dynsym: symbol_table(input, &sections, SHT_DYNSYM, size_of::<Elf::Sym>())?,
            usdt_probes: named(b".note.stapsdt").map(|section| section.part),
            marker_base: named(b".stapsdt.base").map(|section| section.address),
            build_id: named(b".note.gnu.build-id").map(|section| section.part),
            debug_link: named(b".gnu_debuglink").map(|section| section.part),
            mini_debug: named(b".gnu_debugdata").map(|section| section.part),
            debug: debug(&sections, &names),
            stubs: stubs(&sections, &names),
            relocations: relocations(&sections),
        })
    }
}

/// Describes the apparent type of a file that is not ELF.
fn looks_like(start: &[u8]) -> &'static str {
    match start {
        [] => "it is empty",
        [b'#', b'!', ..] => "it is a script; use its interpreter",
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "it is an archive of object files",
        [0x1f, 0x8b, ..] | [0xfd, b'7', b'z', ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed",
        [b'/', b'*', ..] => "it is text, perhaps a linker script that names the library",
        _ => "unknown file type",
    }
}

fn segments<Elf: FileHeader<Endian = Endianness>>(
    input: &Input<'_>,
    header: &Elf,
    endian: Endianness,
) -> Result<Vec<Segment>> {
    let (count, width) = (header.e_phnum(endian), size_of::<Elf::ProgramHeader>());
    if count > SEGMENT_LIMIT || count == PN_XNUM {
        return Err(input.too_many("program headers", SEGMENT_LIMIT.into()));
    }
    if count > 0 && usize::from(header.e_phentsize(endian)) != width {
        return Err(input.damaged("the program headers have an invalid size"));
    }
    let part = Part { offset: header.e_phoff(endian).into(), size: u64::from(count) * width as u64 };
    let bytes = input.bytes(part, u64::MAX, "the program header table")?;
    let headers: &[Elf::ProgramHeader] = pod::slice_from_all_bytes(&bytes).unwrap_or_default();
    let loaded = headers.iter().filter(|header| header.p_type(endian) == PT_LOAD);
    let segment = |header: &Elf::ProgramHeader| {
        let start: u64 = header.p_vaddr(endian).into();
        let (offset, executable) = (header.p_offset(endian).into(), header.p_flags(endian).contains(PF_X));
        Some(Segment { start, limit: start.checked_add(header.p_filesz(endian).into())?, offset, executable })
    };
    Ok(loaded.filter_map(segment).collect())
}

fn sections<Elf: FileHeader<Endian = Endianness>>(
    input: &Input<'_>,
    header: &Elf,
    endian: Endianness,
) -> Result<Vec<Section>> {
    let (what, width) = ("the section header table", size_of::<Elf::SectionHeader>() as u64);
    let offset: u64 = header.e_shoff(endian).into();
    if offset == 0 {
        return Ok(Vec::new());
    }
    if u64::from(header.e_shentsize(endian)) != width {
        return Err(input.damaged("the section headers have an invalid size"));
    }
    let read = |count: u64| {
        let size = count.saturating_mul(width);
        let bytes = input.bytes(Part { offset, size }, SECTION_LIMIT * width, what)?;
        let headers: &[Elf::SectionHeader] = pod::slice_from_all_bytes(&bytes).unwrap_or_default();
        Ok::<_, BinaryError>(headers.iter().map(|header| Section::of(header, endian)).collect::<Vec<_>>())
    };
    match header.e_shnum(endian) {
        // The count did not fit. The size field of the first section contains it.
        0 => read(read(1)?.first().map_or(0, |first| first.part.size)),
        count => read(count.into()),
    }
}

fn code(sections: &[Section]) -> Vec<(u64, u64)> {
    let code = sections.iter().filter(|section| section.executable && section.part.size > 0);
    let mut code: Vec<_> =
        code.map(|section| (section.address, section.address.saturating_add(section.part.size))).collect();
    code.sort_unstable();
    code
}

/// Returns the DWARF sections with bytes in the file.
fn debug(sections: &[Section], names: &[u8]) -> Vec<DebugPart> {
    let mut found = Vec::new();
    for section in sections.iter().filter(|section| section.kind != SHT_NOBITS) {
        let name = name_at(names, section.name);
        let old = name.strip_prefix(b".zdebug_");
        let Some(word) = old.or_else(|| name.strip_prefix(b".debug_")) else { continue };
        let known = |id: &SectionId| id.name().strip_prefix(".debug_").map(str::as_bytes) == Some(word);
        let Some(id) = DEBUG_SECTIONS.into_iter().find(known) else { continue };
        let packed = match (old, section.compressed) {
            (Some(_), _) => Packed::Old,
            (None, true) => Packed::Header,
            (None, false) => Packed::Not,
        };
        // Of several sections with one name the first applies, as in debuggers.
        if !found.iter().any(|part: &DebugPart| part.id == id) {
            found.push(DebugPart { id, part: section.part, packed });
        }
    }
    found
}

fn stubs(sections: &[Section], names: &[u8]) -> Vec<(u64, Part)> {
    let code = sections.iter().filter(|section| section.executable && section.kind != SHT_NOBITS);
    let is_stub = |section: &&Section| {
        let wanted: [&[u8]; 3] = [b".plt", b".plt.sec", b".plt.got"];
        wanted.contains(&name_at(names, section.name))
    };
    code.filter(is_stub).map(|section| (section.address, section.part)).collect()
}

fn relocations(sections: &[Section]) -> Vec<Part> {
    let of_dynsym = |section: &&Section| {
        let table = usize::try_from(section.link).ok().and_then(|link| sections.get(link));
        section.kind == SHT_RELA && table.is_some_and(|table| table.kind == SHT_DYNSYM)
    };
    sections.iter().filter(of_dynsym).map(|section| section.part).collect()
}

impl Section {
    fn of<Header: SectionHeader<Endian = Endianness>>(header: &Header, endian: Endianness) -> Self {
        Self {
            name: header.sh_name(endian),
            kind: header.sh_type(endian),
            executable: header.sh_flags(endian).contains(SHF_EXECINSTR),
            compressed: header.sh_flags(endian).contains(SHF_COMPRESSED),
            address: header.sh_addr(endian).into(),
            part: Part { offset: header.sh_offset(endian).into(), size: header.sh_size(endian).into() },
            link: header.sh_link(endian),
            entry_size: header.sh_entsize(endian).into(),
        }
    }
}

fn section_names<Elf: FileHeader<Endian = Endianness>>(
    input: &Input<'_>,
    header: &Elf,
    endian: Endianness,
    sections: &[Section],
) -> Result<Vec<u8>> {
    let index = match header.e_shstrndx(endian) {
        // The index did not fit. The link field of the first section contains it.
        SHN_XINDEX => sections.first().map_or(0, |first| first.link),
        index => index.0.into(),
    };
    match section_at(sections, index) {
        Some(section) => input.bytes(section.part, SECTION_NAMES_LIMIT, "the section names"),
        None => Ok(Vec::new()),
    }
}

/// Returns a section by its index, if it has bytes in the file.
fn section_at(sections: &[Section], index: u32) -> Option<&Section> {
    let section = sections.get(usize::try_from(index).ok()?)?;
    (index != 0 && section.kind != SHT_NOBITS).then_some(section)
}

/// Returns the name at an offset, without the terminating NUL.
fn name_at(strings: &[u8], offset: u32) -> &[u8] {
    let rest = usize::try_from(offset).ok().and_then(|offset| strings.get(offset..)).unwrap_or_default();
    // Relevant section names are short. The limit bounds the work for a file with many long names.
    let rest = rest.get(..SECTION_NAME_LIMIT).unwrap_or(rest);
    memchr::memchr(0, rest).and_then(|end| rest.get(..end)).unwrap_or_default()
}

fn symbol_table(
    input: &Input<'_>,
    sections: &[Section],
    kind: SectionType,
    width: usize,
) -> Result<Option<SymbolTable>> {
    let Some(index) = sections.iter().position(|section| section.kind == kind) else { return Ok(None) };
    let table = &sections[index];
    if table.entry_size != width as u64 {
        return Err(input.damaged("the symbols have an invalid size"));
    }
    let Some(strings) = section_at(sections, table.link) else {
        return Err(input.damaged("the symbol table has no string table"));
    };
    let of_table = |kind, link: usize| {
        let mut found = sections.iter().filter(|section| section.kind == kind);
        found.find(|section| usize::try_from(section.link) == Ok(link)).map(|section| section.part)
    };
    Ok(Some(SymbolTable {
        // Trailing bytes are not a symbol.
        entries: Part { size: table.part.size - table.part.size % width as u64, ..table.part },
        strings: strings.part,
        versions: of_table(SHT_GNU_VERSYM, index),
        definitions: usize::try_from(table.link).ok().and_then(|link| of_table(SHT_GNU_VERDEF, link)),
    }))
}
