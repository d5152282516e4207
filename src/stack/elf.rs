//! The parts of an ELF file that stacks need: its build id, its loaded segments, and its unwind information. Source of the format:
//! `elf(5)`, and the Linux Standard Base for `.eh_frame_hdr`.
//!
//! The file is untrusted input: any user who runs programs can create one. Therefore it is read in pieces, and no number in it determines
//! the amount of memory. On an error each function returns nothing.

use std::sync::Arc;

use object::elf::{
    EM_AARCH64, EM_X86_64, FileHeader32, FileHeader64, PF_X, PN_XNUM, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE,
    ProgramType, SHF_COMPRESSED, SHN_XINDEX, SHT_NOBITS,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, pod};

use super::BuildId;
use crate::host::{self, ReadAt, Roots};

/// The most program headers that are read.
const SEGMENT_LIMIT: u64 = 1024;
/// The most loaded segments. Linkers create fewer than ten.
pub(super) const LOADS_LIMIT: usize = 64;
/// The most section headers that are read.
const SECTION_LIMIT: u64 = 65_536;
/// The largest note segment that is read, in bytes.
const NOTES_LIMIT: u64 = 64 << 10;
/// The longest build id, in bytes: the kernel's `BUILD_ID_SIZE_MAX`.
const BUILD_ID_LIMIT: usize = 20;
const NT_GNU_BUILD_ID: u32 = 3;
/// `ELF_NOTE_GOBUILDID_TAG` in Go's linker.
const NT_GO_BUILD_ID: u32 = 4;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
const PCREL_SDATA4: u8 = 0x1b;
/// The longest Go build id, in bytes. Typical ones have 83.
const GO_BUILD_ID_LIMIT: usize = 256;

/// The headers of a file.
pub(super) struct Elf<'f> {
    file: &'f dyn ReadAt,
    len: u64,
    native: bool,
    wide: bool,
    endian: Endianness,
    segments: Vec<Segment>,
    sections: Sections,
}

/// A program header, with addresses as in the headers of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    kind: ProgramType,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) executable: bool,
}

impl Segment {
    /// Returns the distance of an address from the first one, if it is inside.
    pub(super) fn within(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.address).filter(|&into| into < self.size)
    }
}

/// The location of the section headers.
#[derive(Debug, Clone, Copy, Default)]
struct Sections {
    offset: u64,
    count: u64,
    names: u32,
}

/// The table of `.eh_frame_hdr`, in the form that all linkers write (`DW_EH_PE_datarel | sdata4`). It has two `i32` for each function: the
/// distances of its first instruction and of its entry from `address`. It is sorted by the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SearchTable {
    pub(super) address: u64,
    /// The offset of the table in the file.
    pub(super) offset: u64,
    pub(super) count: u32,
}

/// A section with unwind information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameSection {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Whether it is `.debug_frame`, not `.eh_frame`.
    pub(super) debug: bool,
}

impl<'f> Elf<'f> {
    /// Reads the headers.
    pub(super) fn read(file: &'f dyn ReadAt) -> Option<Self> {
        let len = file.length().ok()?;
        let start = bytes(file, len, 0, len.min(size_of::<FileHeader64<Endianness>>() as u64), 64)?;
        match (start.starts_with(b"\x7fELF"), start.get(4)?) {
            (true, 1) => Self::of::<FileHeader32<Endianness>>(file, len, &start),
            (true, 2) => Self::of::<FileHeader64<Endianness>>(file, len, &start),
            _ => None,
        }
    }

    fn of<H: FileHeader<Endian = Endianness>>(file: &'f dyn ReadAt, len: u64, start: &[u8]) -> Option<Self> {
        let header = H::parse(start).ok()?;
        let endian = header.endian().ok()?;
        let count = header.e_phnum(endian);
        let width = size_of::<H::ProgramHeader>() as u64;
        if count == PN_XNUM || (count > 0 && u64::from(header.e_phentsize(endian)) != width) {
            return None;
        }
        let size = u64::from(count) * width;
        let table = bytes(file, len, header.e_phoff(endian).into(), size, SEGMENT_LIMIT * width)?;
        let programs: &[H::ProgramHeader] = pod::slice_from_all_bytes(&table).ok()?;
        let segments = programs.iter().map(|program| Segment {
            kind: program.p_type(endian),
            executable: program.p_flags(endian).contains(PF_X),
            address: program.p_vaddr(endian).into(),
            offset: program.p_offset(endian).into(),
            size: program.p_filesz(endian).into(),
        });
        let (offset, width) = (header.e_shoff(endian).into(), size_of::<H::SectionHeader>());
        // A stripped image may keep the fields of a section table that was removed.
        let sections = if offset == 0 || usize::from(header.e_shentsize(endian)) != width {
            Sections::default()
        } else {
            let (count, names) = (header.e_shnum(endian).into(), header.e_shstrndx(endian).0.into());
            Sections { offset, count, names }
        };
        let wide = width == 64;
        let machine = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
        let native = header.e_machine(endian) == machine && wide && endian == Endianness::Little;
        Some(Self { file, len, native, wide, endian, segments: segments.collect(), sections })
    }

    fn of_kind(&self, kind: ProgramType) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.kind == kind)
    }

    /// Returns the first result of `find` in a note segment.
    fn in_notes<T>(&self, find: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.of_kind(PT_NOTE).find_map(|notes| find(&self.bytes(notes.offset, notes.size, NOTES_LIMIT)?))
    }

    /// Returns its build id (`NT_GNU_BUILD_ID`): the first such note, as in the kernel.
    pub(super) fn build_id(&self) -> Option<BuildId> {
        self.in_notes(|notes| build_id_in(notes, self.endian))
    }

    /// Reports whether the file is for the processor of this program, so that its functions can be unwound.
    pub(super) fn is_native(&self) -> bool {
        self.native
    }

    /// Returns the loaded segments.
    pub(super) fn loads(&self) -> impl Iterator<Item = Segment> {
        self.of_kind(PT_LOAD).copied()
    }

    /// Returns the search table of functions. Returns `None` if there is no such table, or it has another form.
    pub(super) fn search_table(&self) -> Option<SearchTable> {
        const UDATA4: u8 = 0x03;
        const DATAREL_SDATA4: u8 = 0x3b;
        let index = self.of_kind(PT_GNU_EH_FRAME).next()?;
        let head = self.bytes(index.offset, 12, 12)?;
        let &[1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4, _, _, _, _, a, b, c, d] = &head[..] else {
            return None;
        };
        let count = u32::from_le_bytes([a, b, c, d]);
        let fits = index.size.checked_sub(12).is_some_and(|size| u64::from(count) <= size / 8);
        let offset = index.offset.checked_add(12)?;
        (fits && count > 0).then_some(SearchTable { address: index.address, offset, count })
    }

    /// Returns the section with unwind information: `.eh_frame`, otherwise `.debug_frame` if it is not compressed. In a file without
    /// section headers, `.eh_frame` is found through the program headers. Reads all section headers.
    pub(super) fn frames(&self) -> Option<FrameSection> {
        let mut debug = None;
        for (is_debug, section) in self.named_sections().into_iter().flatten() {
            if !is_debug {
                return Some(section);
            }
            debug = debug.or(Some(section));
        }
        self.frames_by_segment().or(debug)
    }

    /// Returns the sections with unwind information that have bytes in the file, and whether each is `.debug_frame`.
    fn named_sections(&self) -> Option<impl Iterator<Item = (bool, FrameSection)>> {
        type Header = object::elf::SectionHeader64<Endianness>;
        const WIDTH: u64 = size_of::<Header>() as u64;
        let header = |number: u64| {
            let offset = self.sections.offset.checked_add(number.checked_mul(WIDTH)?)?;
            let bytes = self.bytes(offset, WIDTH, WIDTH)?;
            pod::slice_from_all_bytes::<Header>(&bytes).ok()?.first().copied()
        };
        if !self.wide || self.sections.offset == 0 {
            return None;
        }
        let (mut count, mut names) = (self.sections.count, self.sections.names);
        if count == 0 || names == u32::from(SHN_XINDEX.0) {
            // Values that do not fit are in the first section header.
            let first = header(0)?;
            count = if count == 0 { first.sh_size(self.endian) } else { count };
            names = if names == u32::from(SHN_XINDEX.0) { first.sh_link(self.endian) } else { names };
        }
        let names = header(names.into())?.sh_offset(self.endian);
        let section = move |section: Header| {
            let flags: u64 = section.sh_flags(self.endian).0;
            if section.sh_type(self.endian) == SHT_NOBITS || flags & SHF_COMPRESSED.0 != 0 {
                return None;
            }
            let name = names.checked_add(section.sh_name(self.endian).into())?;
            let wanted = [(false, &b".eh_frame\0"[..]), (true, b".debug_frame\0")];
            let (debug, _) = wanted
                .into_iter()
                .find(|(_, wanted)| self.bytes(name, wanted.len() as u64, 16).as_deref() == Some(wanted))?;
            let (address, offset) = (section.sh_addr(self.endian), section.sh_offset(self.endian));
            Some((debug, FrameSection { address, offset, size: section.sh_size(self.endian), debug }))
        };
        Some((0..count.min(SECTION_LIMIT)).map_while(header).filter_map(section))
    }

    /// Returns `.eh_frame` as `.eh_frame_hdr` points to it, in the form that all linkers write (`DW_EH_PE_pcrel | sdata4`). It is assumed
    /// to extend to the end of its segment; a terminator ends it before.
    fn frames_by_segment(&self) -> Option<FrameSection> {
        let index = self.of_kind(PT_GNU_EH_FRAME).next()?;
        let head = self.bytes(index.offset, 8, 8)?;
        let &[1, PCREL_SDATA4, _, _, a, b, c, d] = &head[..] else { return None };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let address = index.address.checked_add(4)?.checked_add_signed(distance)?;
        let (segment, into) = self.loads().find_map(|segment| Some((segment, segment.within(address)?)))?;
        let (offset, size) = (segment.offset.checked_add(into)?, segment.size - into);
        Some(FrameSection { address, offset, size, debug: false })
    }

    /// Returns a part of the file, of at most `limit` bytes.
    pub(super) fn bytes(&self, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        bytes(self.file, self.len, offset, size, limit)
    }
}

fn bytes(file: &dyn ReadAt, len: u64, offset: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
    if size > limit || offset.checked_add(size)? > len {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Returns the build id of Go's linker (`go tool buildid`): four hashes separated by slashes. Returns `None` for a file that is not written
/// in Go.
pub(crate) fn go_build_id(file: &dyn ReadAt) -> Option<Arc<str>> {
    let elf = Elf::read(file)?;
    elf.in_notes(|notes| {
        let id = note_in(notes, elf.endian, NT_GO_BUILD_ID, b"Go\0\0", GO_BUILD_ID_LIMIT)?;
        let id = std::str::from_utf8(id).ok()?;
        id.bytes().all(|byte| byte.is_ascii_graphic()).then(|| id.into())
    })
}

/// Returns the build id of the kernel or of one of its modules.
pub(crate) fn kernel_build_id(roots: &Roots, module: Option<&str>) -> Option<BuildId> {
    let path = match module {
        None => roots.sys.join("kernel/notes"),
        Some(name) if name.contains('/') || name.starts_with('.') => return None,
        Some(name) => roots.sys.join("module").join(name).join("notes/.note.gnu.build-id"),
    };
    let notes = host::read_at_most(&path, NOTES_LIMIT).ok()?;
    build_id_in(&notes, if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little })
}

/// Returns the build id in notes.
fn build_id_in(notes: &[u8], endian: Endianness) -> Option<BuildId> {
    note_in(notes, endian, NT_GNU_BUILD_ID, b"GNU\0", BUILD_ID_LIMIT).map(|id| BuildId(id.into()))
}

/// Returns the content of the first note of a kind, if it is not empty and not longer than `limit`.
fn note_in<'n>(
    notes: &'n [u8],
    endian: Endianness,
    wanted: u32,
    owner: &[u8],
    limit: usize,
) -> Option<&'n [u8]> {
    // Notes of both ELF classes have the same format.
    let notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 0, notes).ok()?;
    let mut wanted = notes.map_while(Result::ok).filter(|note| note.n_type(endian).0 == wanted);
    let found = wanted.find(|note| note.name_bytes() == owner && (1..=limit).contains(&note.desc().len()));
    found.map(|note| note.desc())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn own() -> File {
        File::open("/proc/self/exe").unwrap()
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn the_program_of_this_test_can_be_unwound() {
        let file = own();
        let elf = Elf::read(&file).unwrap();
        assert!(elf.is_native());
        let frames = elf.frames().unwrap();
        assert!(!frames.debug && frames.size > 10_000, "{frames:?}");
        // The program headers lead to the same offset.
        let by_segment = elf.frames_by_segment().unwrap();
        assert_eq!((by_segment.address, by_segment.offset), (frames.address, frames.offset));
        assert!(elf.loads().any(|load| load.executable));
        assert!(elf.search_table().unwrap().count > 1000);
    }

    fn note(kind: u32, name: &[u8], text: &[u8]) -> Vec<u8> {
        let padded = |bytes: &[u8]| {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            padded
        };
        let head: Vec<u8> = [name.len() as u32, text.len() as u32, kind]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        [head, padded(name), padded(text)].concat()
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes_and_is_no_longer_than_the_kernels() {
        let notes =
            [note(1, b"GNU\0", b"abi"), note(3, b"Go\0\0", b"no"), note(3, b"GNU\0", b"12345")].concat();
        assert_eq!(build_id_in(&notes, Endianness::Little), Some(BuildId(b"12345"[..].into())));
        assert_eq!(build_id_in(&note(3, b"GNU\0", &[7; 21]), Endianness::Little), None);
        for length in 0..notes.len() {
            let cut = build_id_in(&notes[..length], Endianness::Little);
            assert!(cut.is_none() || length >= notes.len() - 3, "{length}");
        }
    }

    #[test]
    fn what_is_written_in_go_says_so() {
        let notes = [note(3, b"GNU\0", b"12345"), note(4, b"Go\0\0", b"a/b/c/d")].concat();
        let id = note_in(&notes, Endianness::Little, NT_GO_BUILD_ID, b"Go\0\0", GO_BUILD_ID_LIMIT);
        assert_eq!(id, Some(&b"a/b/c/d"[..]));
        assert_eq!(go_build_id(&own()), None);
    }

    #[test]
    fn the_kernel_and_its_modules_have_build_ids_in_files_of_notes() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let module = roots.sys.join("module/veth/notes");
        std::fs::create_dir_all(&module).unwrap();
        std::fs::create_dir_all(roots.sys.join("kernel")).unwrap();
        std::fs::write(roots.sys.join("kernel/notes"), note(3, b"GNU\0", b"kernel")).unwrap();
        std::fs::write(module.join(".note.gnu.build-id"), note(3, b"GNU\0", b"module")).unwrap();
        let id = |module| kernel_build_id(&roots, module);
        assert_eq!(id(None), Some(BuildId(b"kernel"[..].into())));
        assert_eq!(id(Some("veth")), Some(BuildId(b"module"[..].into())));
        assert_eq!((id(Some("bpf")), id(Some("../module/veth"))), (None, None));
    }

    #[test]
    fn a_file_that_is_no_program_has_nothing() {
        assert!(Elf::read(&file(b"#!/bin/sh\n")).is_none());
        assert!(Elf::read(&file(b"")).is_none());
        assert!(Elf::read(&file(b"\x7fELF\x02\x01\x01")).is_none());
    }

    proptest! {
        #[test]
        fn headers_of_any_bytes_never_panic(
            flips in proptest::collection::vec((0usize..0x400, any::<u8>()), 0..12),
            length in 0usize..0x3000,
        ) {
            let mut bytes = vec![0; 0x3000];
            own().read_exact_at(&mut bytes, 0).unwrap();
            flips.iter().for_each(|&(at, byte)| bytes[at] = byte);
            let file = file(&bytes[..length]);
            if let Some(elf) = Elf::read(&file) {
                elf.build_id();
                elf.frames();
                elf.search_table();
                prop_assert!(elf.loads().count() as u64 <= SEGMENT_LIMIT);
            }
        }

        #[test]
        fn notes_of_any_bytes_never_panic(bytes: Vec<u8>) {
            build_id_in(&bytes, Endianness::Big);
        }
    }
}
