//! The layout of the file: header, events and records that are not in a ring.
//!
//! Sources: `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/header.h` (`struct perf_file_header`,
//! `struct perf_file_attr`); the kernel's `include/uapi/linux/perf_event.h` for the layout of records. Numbers are in the byte order of this
//! machine, which readers detect by the magic number.

use perf_event_open_sys::bindings as abi;

use super::constants::{EXECUTABLE, HEADER, MAGIC};
use crate::ring::Mmap;

/// Maximum size of a record: its size has 16 bits, and is a multiple of 8.
const RECORD: usize = 65_528;
/// Maximum length of a path in a record, in bytes: the kernel's `PATH_MAX`.
const PATH: usize = 4096;
/// `MAP_PRIVATE`
const PRIVATE: u32 = 2;
/// The process of kernel mappings.
pub(super) const KERNEL: u32 = u32::MAX;

/// `PERF_RECORD_FINISHED_ROUND`: no record after it is older than the records before the previous one. Readers sort the records in between.
pub(crate) const FINISHED_ROUND: &[u8; 8] = &{
    const KIND: [u8; 4] = 68_u32.to_ne_bytes();
    const SIZE: [u8; 2] = 8_u16.to_ne_bytes();
    [KIND[0], KIND[1], KIND[2], KIND[3], 0, 0, SIZE[0], SIZE[1]]
};

/// An event in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventSection {
    /// Name that readers show.
    pub(crate) name: String,
    /// `struct perf_event_attr`, as returned by [`attr_bytes`](crate::sys::live::attr_bytes).
    pub(crate) attr: Vec<u8>,
    /// Identifiers in its records: one for each CPU, or for each thread and CPU.
    pub(crate) ids: Vec<u64>,
}

impl EventSection {
    /// Describes an event of a file with counts, as `perf stat record` does. `attr` is empty for an event that the machine does not have.
    pub(crate) fn counted(name: String, mut attr: Vec<u8>, ids: Vec<u64>) -> Self {
        // Offsets in `struct perf_event_attr`.
        const SIZE: usize = 4;
        const SAMPLE_TYPE: usize = 24;
        const READ_FORMAT: usize = 32;
        let times = abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING;
        attr.resize(attr.len().max(abi::PERF_ATTR_SIZE_VER5 as usize), 0);
        let size = attr.len() as u32;
        attr[SIZE..SIZE + 4].copy_from_slice(&size.to_ne_bytes());
        for (at, word) in [(SAMPLE_TYPE, abi::PERF_SAMPLE_IDENTIFIER), (READ_FORMAT, times)] {
            attr[at..at + 8].copy_from_slice(&u64::from(word).to_ne_bytes());
        }
        Self { name, attr, ids }
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_ne_bytes());
        out.extend(self.size.to_ne_bytes());
    }
}

/// The constant start of a file: the identifiers and attributes of the events. They follow the header.
#[derive(Debug)]
pub(super) struct Start {
    attributes: Section,
    /// Size of an attribute with its section of identifiers, in bytes.
    width: u64,
    /// The bytes between the header and the records.
    pub(super) bytes: Vec<u8>,
}

impl Start {
    /// Lays out the events. Shorter attributes are extended to the size of the longest one.
    pub(super) fn new(events: &[EventSection]) -> Self {
        let longest = events.iter().map(|event| event.attr.len()).max().unwrap_or_default();
        let (mut bytes, mut sections) = (Vec::new(), Vec::new());
        for event in events {
            let offset = (HEADER + bytes.len()) as u64;
            bytes.extend(event.ids.iter().flat_map(|id| id.to_ne_bytes()));
            sections.push(Section { offset, size: (event.ids.len() * size_of::<u64>()) as u64 });
        }
        let offset = (HEADER + bytes.len()) as u64;
        for (event, ids) in events.iter().zip(sections) {
            bytes.extend(padded(&event.attr, longest));
            ids.write(&mut bytes);
        }
        let size = (HEADER + bytes.len()) as u64 - offset;
        Self { attributes: Section { offset, size }, width: longest as u64 + 16, bytes }
    }

    /// Returns the offset of the records.
    pub(super) fn data(&self) -> u64 {
        (HEADER + self.bytes.len()) as u64
    }

    /// Returns the header of a file with `size` bytes of records, and with features of these numbers.
    pub(super) fn header(&self, size: u64, features: impl Iterator<Item = u32>) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER);
        header.extend(MAGIC);
        header.extend((HEADER as u64).to_ne_bytes());
        header.extend(self.width.to_ne_bytes());
        self.attributes.write(&mut header);
        Section { offset: self.data(), size }.write(&mut header);
        // Names of event types, which are no longer used.
        Section::default().write(&mut header);
        let mut bits = [0_u64; 4];
        for feature in features {
            if let Some(word) = bits.get_mut((feature / u64::BITS) as usize) {
                *word |= 1 << (feature % u64::BITS);
            }
        }
        header.extend(bits.iter().flat_map(|word| word.to_ne_bytes()));
        header
    }
}

/// Returns the bytes with zeros up to `length`.
pub(super) fn padded(bytes: &[u8], length: usize) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().copied().chain(std::iter::repeat_n(0, length.saturating_sub(bytes.len())))
}

/// A record under construction.
#[derive(Debug)]
pub(super) struct RecordBytes(Vec<u8>);

impl RecordBytes {
    /// Begins a record of a kind (`PERF_RECORD_*`).
    pub(super) fn new(kind: u32, misc: u32) -> Self {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((misc as u16).to_ne_bytes());
        // The size is known at the end.
        bytes.extend([0; 2]);
        Self(bytes)
    }

    pub(super) fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    /// Adds bytes as they are.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Adds bytes, with zeros up to `size`.
    pub(super) fn field(mut self, bytes: &[u8], size: usize) -> Self {
        self.0.extend(padded(bytes, size));
        self
    }

    /// Adds a text of at most [`PATH`] bytes with a NUL, up to a multiple of `align` bytes.
    pub(super) fn text(mut self, text: &[u8], align: usize) -> Self {
        let text = &text[..text.len().min(PATH - 1)];
        self.0.extend(padded(text, (text.len() + 1).next_multiple_of(align)));
        self
    }

    /// Ends the record with `trailer` zeros in place of the fields of `sample_id_all`. Readers assign a record with the identifier 0 to the
    /// first event.
    pub(super) fn end(mut self, trailer: usize) -> Vec<u8> {
        self.0.extend(std::iter::repeat_n(0, trailer));
        debug_assert!(self.0.len() <= RECORD && self.0.len().is_multiple_of(4));
        let size = u16::try_from(self.0.len()).unwrap_or(u16::MAX).to_ne_bytes();
        self.0[6..8].copy_from_slice(&size);
        self.0
    }
}

/// Returns a record of the name of a thread.
pub(super) fn comm(pid: u32, tid: u32, name: &[u8], trailer: usize) -> Vec<u8> {
    RecordBytes::new(abi::PERF_RECORD_COMM, 0).u32(pid).u32(tid).text(name, 8).end(trailer)
}

/// Returns a record of a mapping of a process.
pub(super) fn mmap2(mmap: &Mmap<'_>, trailer: usize) -> Vec<u8> {
    // perf's name for memory without a file.
    let path = if mmap.path.is_empty() { b"//anon" } else { mmap.path };
    let data = if mmap.protection & EXECUTABLE == 0 { abi::PERF_RECORD_MISC_MMAP_DATA } else { 0 };
    RecordBytes::new(abi::PERF_RECORD_MMAP2, abi::PERF_RECORD_MISC_USER | data)
        .u32(mmap.pid)
        .u32(mmap.tid)
        .u64(mmap.start)
        .u64(mmap.length)
        .u64(mmap.offset)
        .u32(mmap.file.major)
        .u32(mmap.file.minor)
        .u64(mmap.file.inode)
        // The generation of the inode.
        .u64(0)
        .u32(mmap.protection)
        .u32(PRIVATE)
        .text(path, 8)
        .end(trailer)
}

/// Returns a record of a mapping of the kernel.
pub(super) fn kernel_mmap((start, end): (u64, u64), offset: u64, name: &str, trailer: usize) -> Vec<u8> {
    RecordBytes::new(abi::PERF_RECORD_MMAP, abi::PERF_RECORD_MISC_KERNEL)
        .u32(KERNEL)
        .u32(0)
        .u64(start)
        .u64(end.saturating_sub(start))
        .u64(offset)
        .text(name.as_bytes(), 8)
        .end(trailer)
}

/// Returns a record of a cgroup.
pub(super) fn cgroup(id: u64, path: &str, trailer: usize) -> Vec<u8> {
    RecordBytes::new(abi::PERF_RECORD_CGROUP, 0).u64(id).text(path.as_bytes(), 8).end(trailer)
}
