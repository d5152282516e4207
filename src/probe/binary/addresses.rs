//! Functions by address, for whoever has places in code and wants names.
//!
//! A browser has a million functions with 100 MB of names, and of those a profile shows some hundred. So only where they
//! are is kept, 16 bytes for each; a name is read from the file when it is asked for.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustc_hash::FxHashSet;

use super::headers::SymbolTable;
use super::input::Part;
use super::names::{NAME_LIMIT, Names};
use super::symbols::{Entry, Kind};
use super::{Binary, BinaryError};

/// How far back the function is sought that an address is in, where others begin within it.
const NESTED_LIMIT: usize = 16;
/// How many names of one place are looked at for the best.
const ALIAS_LIMIT: usize = 8;
/// How much of a name is read at first, in bytes. Most are shorter.
const NAME_PIECE: usize = 256;

/// What is loaded into memory of a file that programs execute, in one piece (`PT_LOAD`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Its first address.
    pub start: u64,
    /// Its end, which is not in it.
    pub limit: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
}

impl Segment {
    /// The address of the byte at an offset in the file, if that is in the segment.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let into = offset.checked_sub(self.offset)?;
        if into < self.limit.saturating_sub(self.start) { self.start.checked_add(into) } else { None }
    }
}

/// Where the functions of a file are.
#[derive(Debug)]
pub struct Addresses {
    /// Sorted by address, the best at one address alone, or several that are as good.
    entries: Box<[At]>,
    strings: Part,
}

/// A function that an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its first address.
    pub start: u64,
    /// How many names it has, and the first of them: places in the table.
    first: usize,
    count: usize,
}

/// Where a function is.
#[derive(Debug, Clone, Copy)]
struct At {
    address: u64,
    /// How long it is in bytes, in the lower 28 bits, and how good a name for its address it is in the upper: 0 is best.
    packed: u32,
    /// Where its name is in the table of names.
    name: u32,
}

impl At {
    const SIZE_BITS: u32 = 28;
    const LONGEST: u32 = (1 << Self::SIZE_BITS) - 1;
    /// It does not tell its size.
    const GUESSED: u32 = 1;
    const LOCAL: u32 = 2;
    const IFUNC: u32 = 4;
    const LABEL: u32 = 8;

    fn new(entry: &Entry) -> Option<Self> {
        let kind = match entry.kind {
            Kind::Function => 0,
            // A sample there is in the function that chooses.
            Kind::Ifunc => Self::IFUNC,
            Kind::Label => Self::LABEL,
            Kind::Imported | Kind::Data => return None,
        };
        let local = if entry.local { Self::LOCAL } else { 0 };
        let guessed = if entry.size == 0 { Self::GUESSED } else { 0 };
        let size = u32::try_from(entry.size).map_or(Self::LONGEST, |size| size.min(Self::LONGEST));
        let packed = (kind | local | guessed) << Self::SIZE_BITS | size;
        Some(Self { address: entry.address, packed, name: entry.name })
    }

    fn rank(self) -> u32 {
        self.packed >> Self::SIZE_BITS
    }

    fn size(self) -> u32 {
        self.packed & Self::LONGEST
    }

    fn is(self, what: u32) -> bool {
        self.rank() & what != 0
    }

    fn covers(self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|into| into < self.size().into())
    }
}

impl Binary {
    /// What is loaded of it, what has code first.
    pub fn segments(&self) -> Vec<Segment> {
        let mut segments = self.headers.segments.clone();
        segments.sort_by_key(|segment| !segment.executable);
        let shown = segments.iter().filter_map(|segment| {
            let limit = segment.address.checked_add(segment.file.size)?;
            Some(Segment { start: segment.address, limit, offset: segment.file.offset })
        });
        shown.collect()
    }

    /// Whether it has the names of all its functions (`.symtab`), not only of those that it exports.
    pub fn has_all_names(&self) -> bool {
        self.headers.symtab.is_some()
    }

    /// Where the functions of this file are by the tables of `named`: itself, or its debug file, which has no code. The
    /// names are in `named`. Takes 16 bytes for each function.
    ///
    /// What is at one address has the best of its names: a function's before a label's, and a global one's before a
    /// local one's. A label that only marks what follows (`$x` of Arm, `.L1`) is none. A function that does not tell its
    /// size ends where the next begins, or its section.
    ///
    /// # Errors
    /// There are more than `limit`; or the file cannot be read.
    pub fn addresses(&self, named: &Self, limit: usize) -> Result<Option<Addresses>, BinaryError> {
        for table in named.tables() {
            let entries = self.places(named, table, limit)?;
            if !entries.is_empty() {
                return Ok(Some(Addresses { entries: entries.into(), strings: table.strings }));
            }
        }
        Ok(None)
    }

    fn places(&self, named: &Self, table: &SymbolTable, limit: usize) -> Result<Vec<At>, BinaryError> {
        let mut entries = Vec::new();
        named.entries(table, |entry| {
            if self.end_of_code(entry.address).is_none() {
                return Ok(());
            }
            if let Some(at) = At::new(&entry) {
                if entries.len() == limit {
                    return Err(named.too_many("functions", limit));
                }
                entries.push(at);
            }
            Ok(())
        })?;
        named.drop_marks(table, &mut entries)?;
        entries.sort_unstable_by_key(|at| (at.address, at.rank(), at.name));
        entries.dedup_by(|next, kept| {
            next.address == kept.address && (next.rank() > kept.rank() || next.name == kept.name)
        });
        let mut next = u64::MAX;
        for place in (0..entries.len()).rev() {
            let after = entries.get(place + 1).map_or(u64::MAX, |at| at.address);
            let at = &mut entries[place];
            if after != at.address {
                next = after;
            }
            if at.is(At::GUESSED) {
                let end = self.end_of_code(at.address).unwrap_or(at.address).min(next);
                let size = u32::try_from(end - at.address).map_or(At::LONGEST, |size| size.min(At::LONGEST));
                at.packed = at.packed & !At::LONGEST | size;
            }
        }
        entries.shrink_to_fit();
        Ok(entries)
    }

    /// The end of the section with code, or of the segment if there are no sections, that an address is in.
    fn end_of_code(&self, address: u64) -> Option<u64> {
        let sections = &self.headers.code;
        if sections.is_empty() {
            let mut code = self.headers.segments.iter().filter(|segment| segment.executable);
            return code.find_map(|segment| {
                segment.offset_of(address)?;
                segment.address.checked_add(segment.file.size)
            });
        }
        let before = sections.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
        sections.get(before).map(|&(_, end)| end).filter(|&end| address < end)
    }

    /// Takes out local labels that are no names: there are as many as functions on Arm, and few different ones.
    fn drop_marks(&self, table: &SymbolTable, entries: &mut Vec<At>) -> Result<(), BinaryError> {
        let is_local_label = |at: &At| at.is(At::LABEL) && at.is(At::LOCAL);
        let mut labels: Vec<u32> = entries.iter().filter(|at| is_local_label(at)).map(|at| at.name).collect();
        labels.sort_unstable();
        labels.dedup();
        let mut names = Names::new(&self.input, table.strings, "the names of symbols");
        let mut marks = FxHashSet::default();
        for name in labels {
            let is_name =
                names.at(name)?.is_some_and(|name| !name.starts_with('$') && !name.starts_with(".L"));
            if !is_name {
                marks.insert(name);
            }
        }
        entries.retain(|at| !(is_local_label(at) && marks.contains(&at.name)));
        Ok(())
    }
}

impl Addresses {
    /// What each function takes, in bytes.
    pub const EACH: usize = size_of::<At>();

    /// The function that an address is in. One that tells its size comes before one that does not, for that may be a
    /// label within it.
    pub fn find(&self, address: u64) -> Option<Place> {
        // No place that a search gives is behind the end.
        let end = self.entries.partition_point(|at| at.address <= address);
        let near = self.entries[..end].iter().rev().take(NESTED_LIMIT);
        let mut covering = near.filter(|at| at.covers(address));
        let nearest = covering.clone().next()?;
        let found = covering.find(|at| !at.is(At::GUESSED)).unwrap_or(nearest);
        let first = self.entries.partition_point(|at| at.address < found.address);
        let names = self.entries[first..end].iter().take(ALIAS_LIMIT);
        let count = names.take_while(|at| at.address == found.address).count();
        Some(Place { start: found.address, first, count })
    }

    /// The name of a function, read from the file that [`Binary::addresses`] was told has the names. Of several, the one
    /// with the fewest underscores in front, then the shortest. It may be any bytes; `None` if it is empty or too long.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn name(&self, file: &File, place: Place) -> std::io::Result<Option<Vec<u8>>> {
        let mut best: Option<Vec<u8>> = None;
        let aliases = self.entries.iter().skip(place.first).take(place.count);
        for at in aliases {
            let Some(name) = name_at(file, self.strings, at.name)? else { continue };
            if best.as_ref().is_none_or(|best| preference(&name) < preference(best)) {
                best = Some(name);
            }
        }
        Ok(best)
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.entries)
    }
}

/// A name of the table `strings` of a file, by where it is in it. `None` if it is empty or too long.
pub(super) fn name_at(file: &File, strings: Part, at: u32) -> std::io::Result<Option<Vec<u8>>> {
    let Some(left) = strings.size.checked_sub(at.into()) else { return Ok(None) };
    let Some(offset) = strings.offset.checked_add(at.into()) else { return Ok(None) };
    for size in [NAME_PIECE, NAME_LIMIT + 1] {
        let mut name = vec![0; usize::try_from(left).unwrap_or(size).min(size)];
        file.read_exact_at(&mut name, offset)?;
        if let Some(end) = memchr::memchr(0, &name) {
            name.truncate(end);
            return Ok((end > 0).then_some(name));
        }
    }
    Ok(None)
}

/// The lowest is the best of several names of one place.
fn preference(name: &[u8]) -> (usize, usize, &[u8]) {
    (name.iter().take_while(|&&byte| byte == b'_').count(), name.len(), name)
}
