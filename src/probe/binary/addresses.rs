//! Functions by address.
//!
//! A browser has a million functions with 100 MB of names, and a profile shows some hundred of them. So nothing is kept of
//! a table of symbols but a sorted list of addresses, each with the symbol's place in the table: 5 bytes for each
//! function. Sizes and names are read from the file when an address is asked for.
//!
//! The address space of a file is divided into regions of about as many functions each, and a list is made of one region
//! at a time, when an address in it is asked for first. That takes one pass over the table of symbols, in pieces of
//! 96 KiB, and memory for one region. So memory follows what profiles show, whatever the size of the file: a file with
//! more functions than fit into memory has all its names, and regions that nobody asks for cost nothing. The alternative,
//! an index of the whole file, either has to fit or gives no names at all; a sort of the whole table outside of memory
//! would need temporary files. The price is a pass for each region that is used (6 MB and some milliseconds for the
//! compiler's 258 000 symbols), which callers bound by [`Addresses::pass`].

use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::code::CodeRanges;
use super::headers::{Format, SymbolTable};
use super::input::{Input, Part};
use super::names::NAME_LIMIT;
use super::symbols::{Entry, Kind};
use super::{Binary, BinaryError, Result};
use crate::error::FileError;
use crate::host::ReadAt;
use crate::probe::packed::{Packed, Packing};

/// The largest table of symbols that is searched by address, in bytes: 11 million symbols. Browsers with all symbols have
/// 2 million.
const TABLE_LIMIT: u64 = 256 << 20;
/// How far back the function is sought that an address is in, where others begin within it.
const NESTED_LIMIT: usize = 16;
/// How many names of one place are looked at for the best.
const ALIAS_LIMIT: usize = 8;
/// How many functions before a region are kept with it, for they may reach into it. Aliases are among them.
const BEFORE_LIMIT: usize = NESTED_LIMIT * 4;
/// How many functions a region may have, as a multiple of what regions are to have: many may be at nearly one address.
const DENSE: usize = 4;
/// The most regions of a file, which bounds the passes over its table.
const REGION_LIMIT: usize = 256;
/// Pieces of code by which functions are counted before regions are chosen.
const PIECES: u64 = 4096;
/// The most different names of local labels that are looked at in one pass.
const LABEL_LIMIT: usize = 16_384;
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

/// How the functions of a file are divided into regions, and where its table of symbols is. It does not hold the file.
#[derive(Debug)]
pub struct Addresses {
    format: Format,
    table: SymbolTable,
    code: CodeRanges,
    /// The first address of each region; the first is 0.
    regions: Box<[u64]>,
    /// The most functions of a region.
    most: usize,
}

/// The functions of a region of a file.
#[derive(Debug)]
pub struct Region {
    /// By address, with their places in the table of symbols; among those of one address the best alone, or several that
    /// are as good.
    list: Packed,
    /// From where to where its answers hold (exclusive).
    start: u64,
    end: u64,
    /// Where the first function behind it begins.
    next: u64,
}

/// What is at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The function; `None` where there is none.
    pub function: Option<Function>,
    /// The addresses around it that have the same answer, from and to (exclusive).
    pub span: (u64, u64),
}

/// A function that an address is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its first address.
    pub start: u64,
    /// Places of its names in the table of symbols.
    names: Vec<u32>,
}

/// A symbol while a list is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    address: u64,
    /// How good a name for its address it is: 0 is best.
    rank: u8,
    /// Its place in the table.
    index: u32,
}

impl Found {
    /// It has no size.
    const GUESSED: u8 = 1;
    const LOCAL: u8 = 2;
    const IFUNC: u8 = 4;
    const LABEL: u8 = 8;

    /// `None` for what is no function.
    fn of(entry: &Entry) -> Option<Self> {
        let kind = match entry.kind {
            Kind::Function => 0,
            // A sample there is in the function that chooses.
            Kind::Ifunc => Self::IFUNC,
            Kind::Label => Self::LABEL,
            Kind::Imported | Kind::Data => return None,
        };
        let local = if entry.local { Self::LOCAL } else { 0 };
        let guessed = if entry.size == 0 { Self::GUESSED } else { 0 };
        let index = u32::try_from(entry.index).ok()?;
        Some(Self { address: entry.address, rank: kind | local | guessed, index })
    }

    fn is_local_label(self) -> bool {
        self.rank & (Self::LABEL | Self::LOCAL) == Self::LABEL | Self::LOCAL
    }
}

impl Binary<'_> {
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

    /// Divides the functions of this file into regions of about `each`, by the tables of `named`: itself, or its debug
    /// file, which has no code. The names are in `named`. Takes one pass over a table, and 32 KiB; `None` if no table has
    /// a function.
    ///
    /// What is at one address has the best of its names: a function's before a label's, and a global one's before a
    /// local one's. A label that only marks what follows (`$x` of Arm, `.L1`) is none. A function that has no size
    /// ends where the next begins, or its section.
    ///
    /// # Errors
    /// A table is larger than 256 MiB; or the file cannot be read.
    pub fn addresses(&self, named: &Self, each: usize) -> Result<Option<Addresses>> {
        for table in named.tables() {
            let (format, code) = (named.headers.format, CodeRanges::of(&self.headers));
            let mut addresses = Addresses { format, table: *table, code, regions: [0].into(), most: each };
            if addresses.divide(&named.input, each)? {
                return Ok(Some(addresses));
            }
        }
        Ok(None)
    }
}

impl Addresses {
    /// How many bytes of the file a pass over the table reads: what [`read`](Self::read) costs.
    pub fn pass(&self) -> u64 {
        self.table.entries.size
    }

    /// The region that an address is in.
    pub fn region_of(&self, address: u64) -> usize {
        // The first begins at 0.
        self.regions.partition_point(|&start| start <= address) - 1
    }

    /// The addresses of a region, from and to (exclusive).
    pub fn span_of(&self, region: usize) -> (u64, u64) {
        let start = |region: usize| self.regions.get(region).copied().unwrap_or(u64::MAX);
        (start(region), start(region.saturating_add(1)))
    }

    /// Reads the functions of a region, from the file that [`Binary::addresses`] was given for the names. Takes 16 bytes
    /// for each of them in the meantime.
    ///
    /// # Errors
    /// It has more than four times as many as regions are to have; or the file cannot be read.
    pub fn read(&self, file: &dyn ReadAt, region: usize) -> Result<Region> {
        let (start, end) = self.span_of(region);
        let (mut inside, mut before, mut next) = (Vec::new(), Vec::new(), u64::MAX);
        let input = input(file)?;
        self.walk(&input, |found| {
            if found.address < start {
                before.push(found);
                // Sorted once for each 192 functions, so that each costs the same whatever their order.
                if before.len() >= 4 * BEFORE_LIMIT {
                    shrink(&mut before);
                }
            } else if found.address >= end {
                next = next.min(found.address);
            } else if inside.len() == self.most.saturating_mul(DENSE) {
                return Err(too_many(inside.len()));
            } else {
                inside.push(found);
            }
            Ok(())
        })?;
        shrink(&mut before);
        inside.extend(before);
        let list = packed(inside).ok_or_else(|| too_many(usize::MAX))?;
        Ok(Region { list, start, end, next })
    }

    /// What is at an address of a region, of which sizes are read from the file. A function that has a size comes before
    /// one that has none, for that may be a label within it.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn find(&self, file: &dyn ReadAt, region: &Region, address: u64) -> std::io::Result<Place> {
        let near = region.list.near(address, NESTED_LIMIT + ALIAS_LIMIT);
        let next = near.next.unwrap_or(region.next);
        let mut span = (region.start, region.end.min(next));
        if let Some(&(nearest, _)) = near.before.first() {
            span.0 = span.0.max(nearest);
        }
        let mut chosen = None;
        let mut end_of_guess = next;
        let mut last: Option<u64> = None;
        for &(start, index) in near.before.iter().take(NESTED_LIMIT) {
            if let Some(last) = last.filter(|&last| last != start) {
                // A function without a size ends where another begins.
                end_of_guess = last;
            }
            last = Some(start);
            let Some(entry) = self.format.read(file, &self.table, index)? else { continue };
            let is_guess = entry.size == 0;
            let end = match is_guess {
                true => self.code.end(start).unwrap_or(start).min(end_of_guess),
                false => start.saturating_add(entry.size),
            };
            if end <= address {
                span.0 = span.0.max(end);
                continue;
            }
            span.1 = span.1.min(end);
            if !is_guess {
                chosen = Some(start);
                break;
            }
            chosen = chosen.or(Some(start));
        }
        let function = chosen.map(|start| {
            let same = near.before.iter().filter(|&&(address, _)| address == start);
            let mut names: Vec<u32> = same.map(|&(_, index)| index).collect();
            names.truncate(ALIAS_LIMIT);
            Function { start, names }
        });
        Ok(Place { function, span })
    }

    /// The name of a function, read from the file. Of several, the one with the fewest underscores in front, then the
    /// shortest. It may be any bytes; `None` if it is empty or too long.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn name(&self, file: &dyn ReadAt, function: &Function) -> std::io::Result<Option<Vec<u8>>> {
        let mut best: Option<Vec<u8>> = None;
        for &index in &function.names {
            let entry = self.format.read(file, &self.table, index)?;
            let Some(entry) = entry.filter(|entry| entry.address == function.start) else { continue };
            let Some(name) = name_at(file, self.table.strings, entry.name)? else { continue };
            if best.as_ref().is_none_or(|best| preference(&name) < preference(best)) {
                best = Some(name);
            }
        }
        Ok(best)
    }

    /// How much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.regions) + self.code.bytes()
    }

    /// Chooses regions of about `each` functions, at most [`REGION_LIMIT`]. Returns whether there is any function.
    fn divide(&mut self, input: &Input<'_>, each: usize) -> Result<bool> {
        if self.table.entries.size > TABLE_LIMIT {
            return Err(too_many(usize::MAX));
        }
        let mut counts = vec![0u32; PIECES as usize];
        let piece = self.code.len() / PIECES + 1;
        let mut total = 0usize;
        self.walk(input, |found| {
            let place = self.code.place(found.address).and_then(|place| usize::try_from(place / piece).ok());
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count = count.saturating_add(1);
                total += 1;
            }
            Ok(())
        })?;
        self.most = each.max(total / REGION_LIMIT).max(1);
        let (mut starts, mut held) = (vec![0], 0);
        for (place, &count) in (0..).zip(&counts) {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if held > 0 && held + count > self.most {
                starts.push(self.code.address(place * piece));
                held = 0;
            }
            held += count;
        }
        // Where sections overlap, addresses are in another order than places.
        starts.sort_unstable();
        starts.dedup();
        self.regions = starts.into();
        Ok(total > 0)
    }

    /// Shows each function in code, and each label that is a name, in the order of the table.
    fn walk(&self, input: &Input<'_>, mut each: impl FnMut(Found) -> Result<()>) -> Result<()> {
        let mut marks = Marks::default();
        self.format.walk(input, &self.table, |entry| {
            let Some(found) = Found::of(&entry) else { return Ok(()) };
            if self.code.end(found.address).is_none()
                || found.is_local_label() && marks.has(&*input.file, self.table.strings, entry.name)
            {
                return Ok(());
            }
            each(found)
        })
    }
}

impl Region {
    /// How many functions it has.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.list.bytes()
    }
}

/// Sorts functions, leaves the best of each address, and packs them.
fn packed(mut functions: Vec<Found>) -> Option<Packed> {
    functions.sort_unstable();
    functions.dedup_by(|next, kept| next.address == kept.address && next.rank > kept.rank);
    let (mut packing, mut last, mut aliases) = (Packing::default(), None, 0);
    for found in functions {
        aliases = if last == Some(found.address) { aliases + 1 } else { 0 };
        last = Some(found.address);
        if aliases < ALIAS_LIMIT && !packing.push(found.address, found.index) {
            return None;
        }
    }
    Some(packing.finish())
}

/// Leaves the last functions before a region.
fn shrink(before: &mut Vec<Found>) {
    before.sort_unstable();
    before.drain(..before.len().saturating_sub(BEFORE_LIMIT));
}

/// Local labels that are no names: there are as many as functions on Arm, and few different ones.
#[derive(Default)]
struct Marks(FxHashMap<u32, bool>);

impl Marks {
    /// Whether the label of this name is one.
    fn has(&mut self, file: &dyn ReadAt, strings: Part, name: u32) -> bool {
        if let Some(&known) = self.0.get(&name) {
            return known;
        }
        if self.0.len() == LABEL_LIMIT {
            return true;
        }
        let mut start = [0; 2];
        let left = strings.size.saturating_sub(name.into());
        let start = &mut start[..usize::try_from(left).unwrap_or(2).min(2)];
        let offset = strings.offset.saturating_add(name.into());
        let is_mark = start.is_empty()
            || file.read_exact_at(start, offset).is_err()
            || start.starts_with(b"$")
            || start.starts_with(b"\0")
            || start == b".L";
        self.0.insert(name, is_mark);
        is_mark
    }
}

/// A file whose headers were read before. Its path is in no message here.
fn input(file: &dyn ReadAt) -> Result<Input<'_>> {
    let path = PathBuf::new();
    let len = file.length().map_err(|error| FileError::io(&path, &error))?;
    Ok(Input { file: Box::new(file), path, len })
}

fn too_many(limit: usize) -> BinaryError {
    BinaryError::TooMany { path: PathBuf::new(), what: "functions".to_owned(), limit: limit as u64 }
}

/// A name of the table `strings` of a file, by where it is in it. `None` if it is empty or too long.
pub(super) fn name_at(file: &dyn ReadAt, strings: Part, at: u32) -> std::io::Result<Option<Vec<u8>>> {
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
