//! The header of a perf.data file: its sections, and the attributes of its events.
//!
//! Sources: `tools/perf/Documentation/perf.data-file-format.txt`, `tools/perf/util/header.c`; `struct perf_event_attr` of `perf_event_open(2)`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use perf_event_open_sys::bindings as abi;

use super::cursor::Cursor;
use crate::host::ReadAt;
use crate::perf_data::constants;
use crate::recording::Invalid;

/// Magic number of files in the other byte order.
pub(super) const BIG: &[u8; 8] = b"2ELIFREP";

/// Size of the header of a file, and of that of a pipe.
const HEADER: u64 = constants::HEADER as u64;
const PIPE_HEADER: u64 = 16;
/// Maximum size of the header of one event with its list of ids.
const ATTRIBUTE_LIMIT: u64 = 4096;
/// Maximum number of events, and of ids of all events: one for each CPU or thread.
const EVENT_LIMIT: u64 = 4096;
const ID_LIMIT: u64 = 1 << 20;
/// Maximum size of one feature in bytes.
const FEATURE_LIMIT: u64 = 64 << 20;

/// A range of bytes in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Some(Self { offset: cursor.u64()?, size: cursor.u64()? })
    }

    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// The settings of an event that reading needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribute {
    /// The type: `PERF_TYPE_SOFTWARE`, …
    pub kind: u32,
    /// The event within its type.
    pub config: u64,
    /// The sampling period, or the frequency if `frequency` is set.
    pub period: u64,
    /// Whether the period is adapted to a frequency.
    pub frequency: bool,
    /// The fields of a sample (`PERF_SAMPLE_…`).
    pub sample: u64,
    /// The name in the recording; a name made of type and config if it has none.
    pub name: Arc<str>,
    pub(super) read: u64,
    pub(super) branches: u64,
    pub(super) registers: u64,
    pub(super) interrupt_registers: u64,
    /// The modes that are not counted: user, kernel, hypervisor, idle; host, guest.
    pub excluded: [bool; 6],
    /// Whether all records end with the identity of the sample.
    pub(super) identified: bool,
}

impl Attribute {
    /// Reads a `struct perf_event_attr` of `bytes`.
    pub(super) fn parse(bytes: &[u8], big: bool) -> Option<Self> {
        let word = |at: usize| Cursor::new(bytes.get(at..)?, big).u64();
        let half = |at: usize| Cursor::new(bytes.get(at..)?, big).u32();
        let flags = word(40)?;
        // The first field of the bit field is the highest bit in big-endian order.
        let flag = |bit: u32| flags & (1 << if big { 63 - bit } else { bit }) != 0;
        let (kind, config) = (half(0)?, word(8)?);
        Some(Self {
            kind,
            config,
            period: word(16)?,
            frequency: flag(10),
            sample: word(24)?,
            name: unnamed(kind, config).into(),
            read: word(32)?,
            identified: flag(18),
            excluded: [4, 5, 6, 7, 19, 20].map(flag),
            // Later kernels added these.
            branches: word(72).unwrap_or(0),
            registers: word(80).unwrap_or(0),
            interrupt_registers: word(96).unwrap_or(0),
        })
    }

    /// Creates the description of an event of which only the name is known.
    pub(in crate::recording) fn named(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), ..Self::default() }
    }

    /// Reports whether samples contain the source of data.
    pub(super) fn has_accesses(&self) -> bool {
        self.has(abi::PERF_SAMPLE_DATA_SRC)
    }

    /// Reports whether samples have these fields.
    pub fn has(&self, field: abi::perf_event_sample_format) -> bool {
        self.sample & u64::from(field) != 0
    }
}

/// Returns a name for an event without one, as perf does.
fn unnamed(kind: u32, config: u64) -> String {
    const SOFTWARE: [&str; 12] = [
        "cpu-clock",
        "task-clock",
        "page-faults",
        "context-switches",
        "cpu-migrations",
        "minor-faults",
        "major-faults",
        "alignment-faults",
        "emulation-faults",
        "dummy",
        "bpf-output",
        "cgroup-switches",
    ];
    const HARDWARE: [&str; 10] = [
        "cycles",
        "instructions",
        "cache-references",
        "cache-misses",
        "branches",
        "branch-misses",
        "bus-cycles",
        "stalled-cycles-frontend",
        "stalled-cycles-backend",
        "ref-cycles",
    ];
    let known =
        |names: &[&'static str]| usize::try_from(config).ok().and_then(|config| names.get(config).copied());
    let name = match kind {
        abi::PERF_TYPE_HARDWARE => known(&HARDWARE),
        abi::PERF_TYPE_SOFTWARE => known(&SOFTWARE),
        _ => None,
    };
    name.map_or_else(|| format!("type {kind} config {config:#x}"), str::to_owned)
}

/// The contents of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) big: bool,
    pub(super) attributes: Vec<Attribute>,
    /// The events by the ids in records.
    pub(super) ids: HashMap<u64, usize>,
    pub(super) data: Section,
    /// Whether perf did not write the size of the data, because it was killed.
    pub(super) unfinished: bool,
    pub(super) features: BTreeMap<u32, Section>,
}

/// Returns an error at an offset.
pub(super) fn damaged(what: &'static str, offset: u64) -> Invalid {
    Invalid::Damaged { what, offset }
}

/// Reads bytes at an offset. `what` describes them in an error.
pub(super) fn bytes_at(
    file: &dyn ReadAt,
    section: Section,
    limit: u64,
    what: &'static str,
) -> Result<Vec<u8>, Invalid> {
    let length = file.length().map_err(Invalid::Unreadable)?;
    if section.size > limit || section.end() > length {
        return Err(damaged(what, section.offset.min(length)));
    }
    let mut bytes = vec![0; usize::try_from(section.size).map_err(|_| damaged(what, section.offset))?];
    file.read_exact_at(&mut bytes, section.offset).map_err(Invalid::Unreadable)?;
    Ok(bytes)
}

impl Header {
    pub(super) fn read(file: &dyn ReadAt) -> Result<Self, Invalid> {
        let length = file.length().map_err(Invalid::Unreadable)?;
        let first =
            bytes_at(file, Section { offset: 0, size: PIPE_HEADER.min(length) }, PIPE_HEADER, "the header")?;
        let big = first.starts_with(BIG);
        if Cursor::new(first.get(8..).unwrap_or_default(), big).u64() == Some(PIPE_HEADER) {
            return Err(Invalid::Piped);
        }
        let header = bytes_at(file, Section { offset: 0, size: HEADER }, HEADER, "the header is incomplete")?;
        let mut cursor = Cursor::new(&header[8..], big);
        let read = |cursor: &mut Cursor<'_>| {
            let (_, size) = (cursor.u64()?, cursor.u64()?);
            let (attributes, data) = (Section::read(cursor)?, Section::read(cursor)?);
            Section::read(cursor)?;
            Some((size, attributes, data))
        };
        let (size, attributes, mut data) =
            read(&mut cursor).ok_or_else(|| damaged("the header is incomplete", 0))?;
        let bits = [cursor.u64(), cursor.u64(), cursor.u64(), cursor.u64()];
        let unfinished = data.size == 0;
        if data.offset > length {
            return Err(damaged("the data begin beyond the end of the file", 40));
        }
        if unfinished {
            data.size = length - data.offset;
        } else if data.end() > length {
            return Err(damaged("the file ends within its data", length));
        }
        let mut header = Self {
            big,
            attributes: Vec::new(),
            ids: HashMap::new(),
            data,
            unfinished,
            features: BTreeMap::new(),
        };
        header.read_attributes(file, attributes, size)?;
        if !unfinished {
            header.read_features(file, &bits)?;
        }
        Ok(header)
    }

    fn read_attributes(&mut self, file: &dyn ReadAt, section: Section, size: u64) -> Result<(), Invalid> {
        let wrong = |what| damaged(what, section.offset);
        if !(80..=ATTRIBUTE_LIMIT).contains(&size) || section.size / size > EVENT_LIMIT {
            return Err(damaged("the sizes of the events are invalid", 16));
        }
        let what = "the events are incomplete";
        let bytes = bytes_at(file, section, EVENT_LIMIT * ATTRIBUTE_LIMIT, what)?;
        let mut left = ID_LIMIT;
        for bytes in bytes.chunks_exact(usize::try_from(size).map_err(|_| wrong(what))?) {
            let (attribute, ids) = bytes.split_at(bytes.len() - 16);
            let place = self.attributes.len();
            self.attributes.push(Attribute::parse(attribute, self.big).ok_or_else(|| wrong(what))?);
            let ids = Section::read(&mut Cursor::new(ids, self.big)).ok_or_else(|| wrong(what))?;
            let ids = bytes_at(file, ids, left * 8, "the ids of an event are incomplete")?;
            left -= ids.len() as u64 / 8;
            let mut cursor = Cursor::new(&ids, self.big);
            while let Some(id) = cursor.u64() {
                self.ids.insert(id, place);
            }
        }
        if self.attributes.is_empty() { Err(wrong("the file has no events")) } else { Ok(()) }
    }

    /// Reads the list of features, which follows the data.
    fn read_features(&mut self, file: &dyn ReadAt, bits: &[Option<u64>; 4]) -> Result<(), Invalid> {
        let is_set = |feature: &u32| {
            let word = bits.get(*feature as usize / 64).copied().flatten();
            word.is_some_and(|word| word & (1 << (feature % 64)) != 0)
        };
        let features: Vec<u32> = (0..256).filter(is_set).collect();
        let table = Section { offset: self.data.end(), size: 16 * features.len() as u64 };
        let table = bytes_at(file, table, 16 * 256, "the list of features is incomplete")?;
        let mut cursor = Cursor::new(&table, self.big);
        let length = file.length().map_err(Invalid::Unreadable)?;
        for (feature, section) in features.into_iter().zip(std::iter::from_fn(|| Section::read(&mut cursor)))
        {
            if section.size > 0 && section.end() > length {
                return Err(damaged("the file ends within a feature", length));
            }
            self.features.insert(feature, section);
        }
        Ok(())
    }

    /// Returns the contents of a feature, if the file has it.
    pub(super) fn feature(&self, file: &dyn ReadAt, feature: u32) -> Result<Option<Vec<u8>>, Invalid> {
        let Some(&section) = self.features.get(&feature) else { return Ok(None) };
        bytes_at(file, section, FEATURE_LIMIT, "a feature is incomplete").map(Some)
    }
}
