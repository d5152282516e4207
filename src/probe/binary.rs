//! Executable files: locations of their functions and USDT probes.
//!
//! The kernel expects the file offset of a probe, but the file contains memory addresses. The loaded segments (`PT_LOAD`) map addresses to
//! offsets.
//!
//! A file may be a browser with a full symbol table, or untrusted input. So it is read in pieces, from front to back, and no number in the
//! file determines how much memory is allocated.

mod addresses;
mod code;
mod debug_info;
mod error;
mod headers;
mod input;
mod mini_debug;
mod names;
mod objects;
mod stubs;
mod symbols;
mod versions;

#[cfg(test)]
mod tests;

pub use addresses::{Addresses, Function, Place, Region};
pub use debug_info::{DebugInfo, NoDebugInfo};
pub use error::{BinaryError, DebugFile};
pub use headers::Segment;
pub use objects::Object;
pub use stubs::Stubs;

use std::path::Path;
use std::sync::Arc;

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;

use self::error::LISTED;
use self::headers::{Class, Headers, SymbolTable};
use self::input::{Input, Part};
use self::symbols::{Hit, Kind};
use super::argument::Arch;
use super::usdt::{self, UsdtProbe};
use crate::error::FileError;
use crate::files::Opened;
use crate::host::ReadAt;

/// Result of reading a file.
type Result<T, E = BinaryError> = std::result::Result<T, E>;

/// Maximum number of functions that are searched for a similar name, so that a suggestion does not take long.
const NEAR_LIMIT: usize = 200_000;
/// Maximum length of a suggested name, in bytes.
const SHOWN_LIMIT: usize = 128;
/// Maximum memory for the names of all functions, in bytes.
const LISTING_LIMIT: usize = 128 << 20;
/// Maximum size of `.note.stapsdt`, in bytes. A Java virtual machine has 100 KB.
const USDT_NOTES_LIMIT: u64 = 16 << 20;
/// Maximum size of the sections that identify the debug file, in bytes.
const DEBUG_LINK_LIMIT: u64 = 4096;

/// A program or shared library whose headers were read. Further data is read from the file on demand. The file is borrowed (`'f`) or owned.
#[derive(Debug)]
pub struct Binary<'f> {
    input: Input<'f>,
    headers: Headers,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// Name as in the file: C++ and Rust names are mangled. A non-default version has a suffix, `malloc@GLIBC_2.2.5`; the default version
    /// has the plain name.
    pub name: Arc<str>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in bytes; 0 if the file does not contain it.
    pub size: u64,
}

impl Opened {
    /// Reads the headers of the file.
    ///
    /// # Errors
    /// As [`Binary::read`].
    pub fn binary(&self) -> Result<Binary<'_>> {
        Binary::read(self, &self.shown)
    }

    /// Reads the headers of the file. The file is closed with the result.
    ///
    /// # Errors
    /// As [`Binary::read`].
    pub fn into_binary(self) -> Result<Binary<'static>> {
        let shown = self.shown.clone();
        Binary::read(self, &shown)
    }
}

impl<'f> Binary<'f> {
    /// Reads the headers of a file, of either class and byte order. `shown` is its path in messages.
    ///
    /// # Errors
    /// The file is not ELF, not executable, damaged, or unreadable.
    pub fn read(file: impl ReadAt + 'f, shown: &Path) -> Result<Self> {
        let len = file.length().map_err(|error| FileError::io(shown, &error))?;
        let input = Input { file: Box::new(file), path: shown.to_owned(), len };
        let headers = Headers::read(&input)?;
        Ok(Self { input, headers })
    }

    /// Returns the instruction set.
    pub fn machine(&self) -> Arch {
        self.headers.machine
    }

    /// Returns the function of this name: from the full symbol table (`.symtab`) if present, or else from the exported symbols (`.dynsym`).
    /// The name may include a version, `memcpy@GLIBC_2.2.5`; the default version applies otherwise. Reads the tables once.
    ///
    /// # Errors
    /// No function has the name, or several functions at different offsets have it. Or the symbol is only imported, is an ifunc, or is not
    /// a function. Or the file cannot be read.
    pub fn symbol(&self, name: &str) -> Result<Symbol> {
        let (base, version) = match name.split_once('@') {
            Some((base, version)) => (base, Some(version.trim_start_matches('@'))),
            None => (name, None),
        };
        let mut others = Vec::new();
        for table in self.tables() {
            let mut hits = self.hits(table, base)?;
            if let Some(wanted) = version {
                hits.retain(|hit| hit.version.as_ref().is_some_and(|version| version.name == wanted));
            }
            if let Some(symbol) = self.choose(name, base, &hits)? {
                return Ok(symbol);
            }
            others.extend(hits);
        }
        Err(self.no_function(name, base, &others))
    }

    /// Returns every function that can be probed, sorted by name. Functions of one name are separate entries. Needs memory for all of them.
    ///
    /// # Errors
    /// There are more than `limit` functions, their names exceed 128 MiB, or the file cannot be read.
    pub fn functions(&self, limit: usize) -> Result<Vec<Symbol>> {
        let (mut symbols, mut memory) = (Vec::<Symbol>::new(), 0usize);
        for table in self.tables() {
            let listed = self.listed(table, limit.saturating_sub(symbols.len()))?;
            self.name_each(table, listed, |name, function| {
                memory = memory.saturating_add(name.len());
                if memory > LISTING_LIMIT {
                    return Err(self.too_many("bytes of function names", LISTING_LIMIT));
                }
                symbols.push(Symbol { name: name.into(), offset: function.offset, size: function.size });
                Ok(())
            })?;
            // The full symbol table contains the exported symbols too.
            if !symbols.is_empty() {
                break;
            }
        }
        symbols.sort_unstable();
        symbols.dedup();
        Ok(symbols)
    }

    /// Returns the debug file of this file with the layout of this one, so that the offsets of its symbols are those in this file.
    pub fn with_names_of<'d>(&self, debug: Binary<'d>) -> Binary<'d> {
        let Headers { segments, code, .. } = &self.headers;
        let headers = Headers { segments: segments.clone(), code: code.clone(), ..debug.headers };
        Binary { input: debug.input, headers }
    }

    /// Checks that the byte at a file offset is in code.
    ///
    /// # Errors
    /// The offset is not in code. The error lists the code ranges.
    pub fn check_offset(&self, offset: u64) -> Result<()> {
        let inside = |&(from, to): &(u64, u64)| (from..to).contains(&offset);
        if self.code().iter().any(inside) {
            Ok(())
        } else {
            Err(self.not_code(format!("offset {offset:#x}")))
        }
    }

    /// Returns the USDT probes (`.note.stapsdt`), in file order. A probe that the compiler duplicated has one entry per instance. Probes
    /// whose code the linker removed are skipped.
    ///
    /// # Errors
    /// There are no USDT probes, they are malformed, or the file cannot be read.
    pub fn usdt(&self) -> Result<Vec<UsdtProbe>> {
        let Some(part) = self.headers.usdt_probes else {
            return Err(BinaryError::NoUsdtProbes { path: self.input.path.clone() });
        };
        let notes = self.input.bytes(part, USDT_NOTES_LIMIT, ".note.stapsdt")?;
        let parsed = match self.headers.format.class {
            Class::Elf32 => usdt::notes::<FileHeader32<Endianness>>(&notes, self.headers.format.endian),
            Class::Elf64 => usdt::notes::<FileHeader64<Endianness>>(&notes, self.headers.format.endian),
        };
        let notes = parsed.map_err(|error| self.input.damaged(error.to_string()))?;
        let usdt_probes = notes.into_iter().filter_map(|note| {
            let moved = self.headers.marker_base.map_or(0, |base| base.wrapping_sub(note.base));
            let semaphore = (note.semaphore != 0).then(|| note.semaphore.wrapping_add(moved));
            Some(UsdtProbe {
                offset: self.code_offset(note.address.wrapping_add(moved))?,
                semaphore: match semaphore {
                    // Without its semaphore the USDT probe would never be enabled.
                    Some(address) => Some(self.offset_of(address)?),
                    None => None,
                },
                provider: note.provider,
                name: note.name,
                arguments: note.arguments,
            })
        });
        Ok(usdt_probes.collect())
    }

    /// Returns the symbol tables, the full one first.
    fn tables(&self) -> impl Iterator<Item = &SymbolTable> {
        self.headers.symtab.iter().chain(&self.headers.dynsym)
    }

    /// Returns the file offset of an address.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.headers.segments.iter().find_map(|segment| segment.offset_of(address))
    }

    /// Reads the code at an address, up to `end` (exclusive) or the end of its segment in the file, at most `limit` bytes.
    ///
    /// # Errors
    /// The address is not in code, or the file cannot be read.
    pub fn code_at(&self, start: u64, end: u64, limit: u64) -> Result<Vec<u8>> {
        let mut code = self.headers.segments.iter().filter(|segment| segment.executable);
        let found = code.find_map(|segment| Some((segment.offset_of(start)?, segment.limit)));
        let (offset, behind) = found.ok_or_else(|| self.not_code(format!("address {start:#x}")))?;
        let size = end.min(behind).saturating_sub(start).min(limit);
        self.input.bytes(Part { offset, size }, limit, "the code")
    }

    /// Returns the file offset of an address in code.
    pub fn code_offset(&self, address: u64) -> Option<u64> {
        let mut code = self.headers.segments.iter().filter(|segment| segment.executable);
        code.find_map(|segment| segment.offset_of(address))
    }

    /// Returns the code ranges as file offsets, from and to (exclusive).
    fn code(&self) -> Vec<(u64, u64)> {
        let code = self.headers.segments.iter().filter(|segment| segment.executable && segment.size() > 0);
        code.map(|segment| (segment.offset, segment.offset.saturating_add(segment.size()))).collect()
    }

    /// Returns the selected function, if `hits` contains one.
    fn choose(&self, name: &str, base: &str, hits: &[Hit]) -> Result<Option<Symbol>> {
        let placed = |hit: &&Hit| hit.kind == Kind::Function && hit.offset.is_some();
        let old = |hit: &Hit| hit.version.as_ref().is_some_and(|version| !version.default);
        let mut meant: Vec<&Hit> = hits.iter().filter(placed).collect();
        if meant.iter().any(|hit| !old(hit)) {
            meant.retain(|hit| !old(hit));
        }
        let mut offsets: Vec<u64> = meant.iter().filter_map(|hit| hit.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        match offsets[..] {
            [] => Ok(None),
            [offset] => {
                let version = meant.iter().find_map(|hit| hit.version.as_ref().filter(|_| old(hit)));
                let name = version.map_or(base.to_owned(), |version| format!("{base}@{}", version.name));
                let size = meant.iter().map(|hit| hit.size).max().unwrap_or(0);
                Ok(Some(Symbol { name: name.into(), offset, size }))
            }
            _ => {
                let (path, name, count) = (self.input.path.clone(), name.to_owned(), offsets.len());
                offsets.truncate(LISTED);
                Err(BinaryError::Ambiguous { path, name, count, offsets })
            }
        }
    }

    /// Explains why no function has a name, based on other symbols with this name.
    fn no_function(&self, name: &str, base: &str, others: &[Hit]) -> BinaryError {
        let (path, owned) = (self.input.path.clone(), name.to_owned());
        let of = |kind| others.iter().find(|hit| hit.kind == kind);
        let not = |hit: &Hit, what| BinaryError::NotFunction {
            path: self.input.path.clone(),
            name: name.to_owned(),
            what,
            offset: hit.offset,
        };
        if of(Kind::Ifunc).is_some() {
            let near = self.near(|names| containing(base, names));
            return BinaryError::Ifunc { path, name: owned, near, stripped: self.stripped() };
        }
        if of(Kind::Function).is_some() {
            return self.not_code(name.to_owned());
        }
        if let Some(label) = of(Kind::Label) {
            return not(label, "a label without a type");
        }
        if let Some(data) = of(Kind::Variable).or_else(|| of(Kind::Data)) {
            return not(data, "data");
        }
        if of(Kind::Imported).is_some() {
            return BinaryError::Imported { path, name: owned };
        }
        let near = self.near(|names| similar(base, names));
        BinaryError::NoFunction { path, name: owned, near, stripped: self.stripped() }
    }

    /// Returns the function names that `pick` selects, if the file does not have too many functions.
    fn near(&self, pick: impl Fn(&[Symbol]) -> Vec<String>) -> Vec<String> {
        // Other errors in the file are ignored here, because the message is about the name.
        self.functions(NEAR_LIMIT).map(|functions| pick(&functions)).unwrap_or_default()
    }

    fn not_code(&self, what: String) -> BinaryError {
        BinaryError::NotCode { path: self.input.path.clone(), what, code: self.code() }
    }

    fn too_many(&self, what: &str, limit: usize) -> BinaryError {
        self.input.too_many(what, limit as u64)
    }

    /// Returns the build id (`.note.gnu.build-id`) in hexadecimal. `None` if there is no readable one.
    pub fn build_id(&self) -> Option<String> {
        let notes = self.input.bytes(self.headers.build_id?, DEBUG_LINK_LIMIT, "the build id").ok()?;
        // The note format is the same in both classes.
        let endian = self.headers.format.endian;
        let mut notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 0, &notes).ok()?;
        let note = notes.find_map(|note| note.ok().filter(|note| note.n_type(endian) == NT_GNU_BUILD_ID))?;
        Some(note.desc().iter().take(32).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the name of the separate debug file, and the CRC-32 of that file (`.gnu_debuglink`).
    pub fn debug_link(&self) -> Option<(String, u32)> {
        let link = self.input.bytes(self.headers.debug_link?, DEBUG_LINK_LIMIT, "the debug link").ok()?;
        let name = link.split(|&byte| byte == 0).next().filter(|name| !name.is_empty())?;
        // The CRC follows the name and its NUL, at the next multiple of 4.
        let crc = self.headers.format.u32(&link, (name.len() + 1).next_multiple_of(4));
        Some((String::from_utf8_lossy(name).into_owned(), crc))
    }

    /// Returns what identifies the debug file.
    pub fn debug_file(&self) -> DebugFile {
        DebugFile { build_id: self.build_id(), name: self.debug_link().map(|(name, _)| name) }
    }

    /// Returns what identifies the debug file, if the file is stripped.
    fn stripped(&self) -> Option<Box<DebugFile>> {
        self.headers.symtab.is_none().then(|| Box::new(self.debug_file()))
    }
}

/// Returns the compiler-generated variants of a function (`name.isra.0`), or else the closest name.
fn similar(base: &str, functions: &[Symbol]) -> Vec<String> {
    let variant = |name: &str| name.strip_prefix(base).is_some_and(|rest| rest.starts_with('.'));
    let variants: Vec<String> = picked(functions, variant);
    if variants.is_empty() {
        let names = functions.iter().map(|function| &*function.name);
        return crate::event::nearest(base, names).map(str::to_owned).into_iter().collect();
    }
    variants
}

/// Returns the names that contain another name, as `__strlen_avx2` contains `strlen`.
fn containing(base: &str, functions: &[Symbol]) -> Vec<String> {
    picked(functions, |name| name.contains(base))
}

/// Returns the first matching names without duplicates. Very long names are skipped.
fn picked(functions: &[Symbol], fits: impl Fn(&str) -> bool) -> Vec<String> {
    let names = functions.iter().map(|function| &*function.name);
    let mut names: Vec<&str> = names.filter(|name| name.len() <= SHOWN_LIMIT && fits(name)).collect();
    names.dedup();
    names.into_iter().take(LISTED).map(str::to_owned).collect()
}
