//! Lookup of functions by address.
//!
//! A browser has a million functions with 100 MB of names, and a profile contains some hundred of them. So only a sorted list of addresses
//! is kept, each with its symbol's index: 5 bytes per function. Sizes and names are read from the file on lookup.
//!
//! The address space of a file is divided into regions with about the same number of functions. The list of a region is built on the first
//! lookup in it. That takes one pass over the symbol table, in pieces of 96 KiB, and memory for one region. So the memory usage depends on
//! the profiled code instead of the file size. Even files with more functions than fit into memory are fully symbolized, and unused regions
//! cost nothing. An index of the whole file would need to fit into memory, and an external sort would need temporary files. The cost is one
//! pass per used region (6 MB and some milliseconds for the compiler's 258 000 symbols). Callers limit it by [`Addresses::pass`].

use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::code::CodeRanges;
use super::headers::{Format, Segment, SymbolTable};
use super::input::{Input, Part};
use super::names::NAME_LIMIT;
use super::symbols::{Entry, Kind};
use super::{Binary, BinaryError, Result};
use crate::error::FileError;
use crate::host::ReadAt;
use crate::probe::packed::{Packed, Packing};

/// Maximum size of a symbol table for lookups by address, in bytes: 11 million symbols. Browsers with a full symbol table have 2 million.
const TABLE_LIMIT: u64 = 256 << 20;
/// Maximum number of nested functions that are skipped in the search for the function that contains an address.
const NESTED_LIMIT: usize = 16;
/// Maximum number of names at one address that are considered.
const ALIAS_LIMIT: usize = 8;
/// Maximum number of functions before a region that are kept with it, because they may extend into it. Includes aliases.
const BEFORE_LIMIT: usize = NESTED_LIMIT * 4;
/// Maximum number of functions in a region, as a multiple of the target. Many functions may have nearly the same address.
const DENSE: usize = 4;
/// Maximum number of regions of a file. Limits the passes over its table.
const REGION_LIMIT: usize = 256;
/// Number of code pieces for which functions are counted before the regions are chosen.
const PIECES: u64 = 4096;
/// Maximum number of different local label names that are checked in one pass.
const LABEL_LIMIT: usize = 16_384;
/// Number of bytes of a name that are read first. Most names are shorter.
const NAME_PIECE: usize = 256;

/// Division of a file's functions into regions, and the location of its symbol table. Does not keep the file open.
#[derive(Debug)]
pub struct Addresses {
    format: Format,
    table: SymbolTable,
    code: CodeRanges,
    /// First address of each region; the first is 0.
    regions: Box<[u64]>,
    /// Target for the maximum number of functions per region.
    most: usize,
}

/// The functions of one region of a file.
#[derive(Debug)]
pub struct Region {
    /// Functions by address, with their indices in the symbol table. For each address, only the best symbol, or several equally good ones.
    list: Packed,
    /// Address range of the region (end exclusive).
    start: u64,
    end: u64,
    /// Address of the first function after the region.
    next: u64,
}

/// Result of the lookup of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The function, if there is one.
    pub function: Option<Function>,
    /// Range of addresses around it with the same result (end exclusive).
    pub span: (u64, u64),
}

/// A function that contains an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// End address (exclusive), which is guessed if the symbol has no size.
    pub end: u64,
    /// Indices of its names in the symbol table.
    names: Vec<u32>,
}

/// A symbol during the construction of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    address: u64,
    /// Rank of its name for the address: 0 is best.
    rank: u8,
    /// Index in the table.
    index: u32,
}

impl Found {
    /// The symbol has no size.
    const GUESSED: u8 = 1;
    const LOCAL: u8 = 2;
    const IFUNC: u8 = 4;
    const LABEL: u8 = 8;

    /// Returns `None` for symbols that are not functions.
    fn of(entry: &Entry) -> Option<Self> {
        let kind = match entry.kind {
            Kind::Function => 0,
            // A sample at this address is in the resolver function.
            Kind::Ifunc => Self::IFUNC,
            Kind::Label => Self::LABEL,
            Kind::Imported | Kind::Variable | Kind::Data => return None,
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
    /// Returns the loaded segments, executable segments first.
    pub fn segments(&self) -> Vec<Segment> {
        let mut segments = self.headers.segments.clone();
        segments.sort_by_key(|segment| !segment.executable);
        segments
    }

    /// Reports whether the file has a full symbol table (`.symtab`) instead of exported symbols only.
    pub fn has_all_names(&self) -> bool {
        self.headers.symtab.is_some()
    }

    /// Divides the functions of this file into regions of about `each` functions, by the symbol tables of `named`: the file itself, or its
    /// debug file, which contains no code. The names are in `named`. Takes one pass over a table, and 32 KiB. `None` if no table contains a
    /// function.
    ///
    /// If several symbols have the same address, functions are preferred to labels, and global symbols to local ones. Mapping labels (`$x`
    /// of Arm, `.L1`) are ignored. A function without a size extends to the next function or to the end of its section.
    ///
    /// # Errors
    /// A table is larger than 256 MiB, or the file cannot be read.
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
    /// Returns the number of bytes that one pass over the table reads: the cost of [`read`](Self::read).
    pub fn pass(&self) -> u64 {
        self.table.entries.size
    }

    /// Returns the index of the region that contains an address.
    pub fn region_of(&self, address: u64) -> usize {
        // The first region begins at 0.
        self.regions.partition_point(|&start| start <= address) - 1
    }

    /// Returns the address range of a region (end exclusive).
    pub fn span_of(&self, region: usize) -> (u64, u64) {
        let start = |region: usize| self.regions.get(region).copied().unwrap_or(u64::MAX);
        (start(region), start(region.saturating_add(1)))
    }

    /// Reads the functions of a region. `file` is the file that contains the names, see [`Binary::addresses`]. Temporarily takes 16 bytes
    /// per function.
    ///
    /// # Errors
    /// The region has more than four times the target number of functions, or the file cannot be read.
    pub fn read(&self, file: &dyn ReadAt, region: usize) -> Result<Region> {
        let (start, end) = self.span_of(region);
        let (mut inside, mut before, mut next) = (Vec::new(), Vec::new(), u64::MAX);
        let input = input(file)?;
        self.walk(&input, |found| {
            if found.address < start {
                before.push(found);
                // One sort per 192 functions, so that the cost per function does not depend on their order.
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

    /// Looks up an address in a region. Sizes are read from the file. A function with a size is preferred to one without, which may be a
    /// label inside it.
    ///
    /// # Errors
    /// The kernel's error on reading.
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
                // A function without a size extends to the next function.
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
                chosen = Some((start, end));
                break;
            }
            chosen = chosen.or(Some((start, end)));
        }
        let function = chosen.map(|(start, end)| {
            let same = near.before.iter().filter(|&&(address, _)| address == start);
            let mut names: Vec<u32> = same.map(|&(_, index)| index).collect();
            names.truncate(ALIAS_LIMIT);
            Function { start, end, names }
        });
        Ok(Place { function, span })
    }

    /// Returns the name of a function, read from the file. Of several names, the one with the fewest leading underscores, then the
    /// shortest. Names may be any bytes. `None` if the name is empty or too long.
    ///
    /// # Errors
    /// The kernel's error on reading.
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

    /// Returns the memory usage, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.regions) + self.code.bytes()
    }

    /// Chooses regions of about `each` functions, at most [`REGION_LIMIT`]. Reports whether there is any function.
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
        // If sections overlap, the order of addresses differs from the order of code offsets.
        starts.sort_unstable();
        starts.dedup();
        self.regions = starts.into();
        Ok(total > 0)
    }

    /// Passes each function in code, and each label that is a name, to `each`, in table order.
    fn walk(&self, input: &Input<'_>, mut each: impl FnMut(Found) -> Result<()>) -> Result<()> {
        let mut marks = LocalLabels::default();
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
    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Reports whether the region has no functions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory usage, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.list.bytes()
    }
}

/// Sorts functions, keeps the best symbols of each address, and packs them.
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

/// Keeps only the last functions before a region.
fn shrink(before: &mut Vec<Found>) {
    before.sort_unstable();
    before.drain(..before.len().saturating_sub(BEFORE_LIMIT));
}

/// Cache of local labels that are not names. On Arm there are as many of them as functions, but few different names.
#[derive(Default)]
struct LocalLabels(FxHashMap<u32, bool>);

impl LocalLabels {
    /// Reports whether the label with this name is a mapping label.
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

/// Opens a file whose headers were read before. Its path occurs in no message here.
fn input(file: &dyn ReadAt) -> Result<Input<'_>> {
    let path = PathBuf::new();
    let len = file.length().map_err(|error| FileError::io(&path, &error))?;
    Ok(Input { file: Box::new(file), path, len })
}

fn too_many(limit: usize) -> BinaryError {
    BinaryError::TooMany { path: PathBuf::new(), what: "functions".to_owned(), limit: limit as u64 }
}

/// Reads the name at an offset of the string table `strings`. `None` if it is empty or too long.
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

/// Returns a sort key: the lowest is the best of several names of one address.
fn preference(name: &[u8]) -> (usize, usize, &[u8]) {
    (name.iter().take_while(|&&byte| byte == b'_').count(), name.len(), name)
}
