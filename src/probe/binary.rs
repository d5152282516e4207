//! Files that programs execute: where their functions and markers are.
//!
//! What the kernel wants for a probe is an offset in the file; what a file tells are addresses in memory. Between both
//! are the segments that are loaded (`PT_LOAD`).
//!
//! A file may be a browser with all its symbols, or made by an enemy. So it is read in pieces, from the front to the
//! back, and no number in it decides how much memory that takes.

mod addresses;
mod code;
mod debug_info;
mod error;
mod headers;
mod input;
mod mini_debug;
mod names;
mod stubs;
mod symbols;
mod versions;

#[cfg(test)]
mod tests;

pub use addresses::{Addresses, Function, Place, Region, Segment};
pub use debug_info::{DebugInfo, NoDebugInfo};
pub use error::{BinaryError, Stripped};
pub use stubs::Stubs;

use std::path::Path;
use std::sync::Arc;

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;

use self::error::LISTED;
use self::headers::{Class, Headers, SymbolTable};
use self::input::Input;
use self::symbols::{Hit, Kind};
use super::argument::Arch;
use super::usdt::{self, Marker};
use crate::error::FileError;
use crate::files::Opened;
use crate::host::ReadAt;

/// What was read of a file, or why it could not be.
type Result<T, E = BinaryError> = std::result::Result<T, E>;

/// The most functions whose names are looked at for one that was misspelt: to find it must not take long.
const NEAR_LIMIT: usize = 200_000;
/// The longest name that is suggested, in bytes.
const SHOWN_LIMIT: usize = 128;
/// How much memory the names of all functions may take, in bytes.
const LISTING_LIMIT: usize = 128 << 20;
/// The largest `.note.stapsdt`, in bytes. A Java virtual machine has 100 KB.
const MARKERS_LIMIT: u64 = 16 << 20;
/// The largest of the sections that tell which debug file belongs to a file, in bytes.
const DEBUG_LINK_LIMIT: u64 = 4096;

/// A program or shared library whose headers were read. It reads from the file what it is asked for, for as long as the
/// file is lent to it (`'f`), or given.
#[derive(Debug)]
pub struct Binary<'f> {
    input: Input<'f>,
    headers: Headers,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// Its name, as the file has it: C++ and Rust names are mangled. One of several versions is `malloc@GLIBC_2.2.5`;
    /// the one that programs are linked with today has the bare name.
    pub name: Arc<str>,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; 0 if the file does not tell.
    pub size: u64,
}

/// For which processors a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64
    X86_64,
    /// 64-bit Arm
    Aarch64,
    /// Any other, by its number in the header (`e_machine`).
    Other(u16),
}

impl From<Machine> for Arch {
    fn from(machine: Machine) -> Self {
        match machine {
            Machine::X86_64 => Self::X86_64,
            Machine::Aarch64 => Self::Aarch64,
            Machine::Other(_) => Self::Other,
        }
    }
}

impl Opened {
    /// The headers of the file.
    ///
    /// # Errors
    /// As [`Binary::read`].
    pub fn binary(&self) -> Result<Binary<'_>> {
        Binary::read(self, &self.shown)
    }

    /// The headers of the file, which is closed with them.
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
    /// It is not ELF, nothing that is executed, damaged, or cannot be read.
    pub fn read(file: impl ReadAt + 'f, shown: &Path) -> Result<Self> {
        let len = file.length().map_err(|error| FileError::io(shown, &error))?;
        let input = Input { file: Box::new(file), path: shown.to_owned(), len };
        let headers = Headers::read(&input)?;
        Ok(Self { input, headers })
    }

    /// For which processors it is.
    pub fn machine(&self) -> Machine {
        self.headers.machine
    }

    /// The function of this name: in all names if the file has them (`.symtab`), else in what it exports (`.dynsym`). A
    /// version may be given, `memcpy@GLIBC_2.2.5`; without one, the default is meant. Goes through the tables once.
    ///
    /// # Errors
    /// No function has the name, or several at different places have it; it is only called here, chooses its code at
    /// start, or is not a function. Or the file cannot be read.
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

    /// Every function that a probe can be put on, sorted by name; functions of one name are several entries. Takes memory
    /// for all of them.
    ///
    /// # Errors
    /// There are more than `limit`, or their names take more than 128 MiB; or the file cannot be read.
    pub fn functions(&self, limit: usize) -> Result<Vec<Symbol>> {
        let (mut symbols, mut memory) = (Vec::<Symbol>::new(), 0usize);
        for table in self.tables() {
            let listed = self.listed(table, limit.saturating_sub(symbols.len()))?;
            self.name_each(table, listed, |name, function| {
                memory = memory.saturating_add(name.len());
                if memory > LISTING_LIMIT {
                    return Err(self.too_many("bytes in the names of its functions", LISTING_LIMIT));
                }
                symbols.push(Symbol { name: name.into(), offset: function.offset, size: function.size });
                Ok(())
            })?;
            // What is exported stands in the other table too, if there is one.
            if !symbols.is_empty() {
                break;
            }
        }
        symbols.sort_unstable();
        symbols.dedup();
        Ok(symbols)
    }

    /// Whether the byte at an offset in the file is in code.
    ///
    /// # Errors
    /// It is not; the error names the ranges that are.
    pub fn check_offset(&self, offset: u64) -> Result<()> {
        let inside = |&(from, to): &(u64, u64)| (from..to).contains(&offset);
        if self.code().iter().any(inside) {
            Ok(())
        } else {
            Err(self.not_code(format!("offset {offset:#x}")))
        }
    }

    /// The markers that were compiled in (USDT, `.note.stapsdt`), in the order of the file. A marker that the compiler
    /// has put into several places is as many entries. Those whose code the linker threw away are left out.
    ///
    /// # Errors
    /// There are none, or they break their format, or the file cannot be read.
    pub fn usdt(&self) -> Result<Vec<Marker>> {
        let Some(part) = self.headers.markers else {
            return Err(BinaryError::NoMarkers { path: self.input.path.clone() });
        };
        let notes = self.input.bytes(part, MARKERS_LIMIT, ".note.stapsdt")?;
        let parsed = match self.headers.format.class {
            Class::Elf32 => usdt::notes::<FileHeader32<Endianness>>(&notes, self.headers.format.endian),
            Class::Elf64 => usdt::notes::<FileHeader64<Endianness>>(&notes, self.headers.format.endian),
        };
        let notes = parsed.map_err(|error| self.input.damaged(error.to_string()))?;
        let markers = notes.into_iter().filter_map(|note| {
            let moved = self.headers.marker_base.map_or(0, |base| base.wrapping_sub(note.base));
            let semaphore = (note.semaphore != 0).then(|| note.semaphore.wrapping_add(moved));
            Some(Marker {
                offset: self.code_offset(note.address.wrapping_add(moved))?,
                semaphore: match semaphore {
                    // Without its semaphore the marker would never be switched on.
                    Some(address) => Some(self.offset_of(address)?),
                    None => None,
                },
                provider: note.provider,
                name: note.name,
                arguments: note.arguments,
            })
        });
        Ok(markers.collect())
    }

    /// The tables of symbols, the one with all names first.
    fn tables(&self) -> impl Iterator<Item = &SymbolTable> {
        self.headers.symtab.iter().chain(&self.headers.dynsym)
    }

    /// Where in the file the byte at an address is.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.headers.segments.iter().find_map(|segment| segment.offset_of(address))
    }

    /// The same, if it is in code.
    fn code_offset(&self, address: u64) -> Option<u64> {
        let mut code = self.headers.segments.iter().filter(|segment| segment.executable);
        code.find_map(|segment| segment.offset_of(address))
    }

    /// Where code is: offsets in the file, from and to (exclusive).
    fn code(&self) -> Vec<(u64, u64)> {
        let code = self.headers.segments.iter().filter(|segment| segment.executable && segment.file.size > 0);
        code.map(|segment| (segment.file.offset, segment.file.offset.saturating_add(segment.file.size)))
            .collect()
    }

    /// The function that is meant, if `hits` has one.
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

    /// Why there is no function of a name, from what else has it.
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
        if let Some(data) = of(Kind::Data) {
            return not(data, "data");
        }
        if of(Kind::Imported).is_some() {
            return BinaryError::Imported { path, name: owned };
        }
        let near = self.near(|names| similar(base, names));
        BinaryError::NoFunction { path, name: owned, near, stripped: self.stripped() }
    }

    /// Names of functions that somebody picks, if there are not too many to look at.
    fn near(&self, pick: impl Fn(&[Symbol]) -> Vec<String>) -> Vec<String> {
        // Whatever is wrong with the rest of the file, the message is about the name.
        self.functions(NEAR_LIMIT).map(|functions| pick(&functions)).unwrap_or_default()
    }

    fn not_code(&self, what: String) -> BinaryError {
        BinaryError::NotCode { path: self.input.path.clone(), what, code: self.code() }
    }

    fn too_many(&self, what: &str, limit: usize) -> BinaryError {
        self.input.too_many(what, limit as u64)
    }

    /// What the linker called it (`.note.gnu.build-id`), in hexadecimal; `None` if there is none that can be read.
    pub fn build_id(&self) -> Option<String> {
        let notes = self.input.bytes(self.headers.build_id?, DEBUG_LINK_LIMIT, "its build id").ok()?;
        // Notes of both classes are alike.
        let endian = self.headers.format.endian;
        let mut notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 0, &notes).ok()?;
        let note = notes.find_map(|note| note.ok().filter(|note| note.n_type(endian) == NT_GNU_BUILD_ID))?;
        Some(note.desc().iter().take(32).map(|byte| format!("{byte:02x}")).collect())
    }

    /// The name of the file that its symbols were moved to, and the CRC-32 of that file (`.gnu_debuglink`).
    pub fn debug_link(&self) -> Option<(String, u32)> {
        let link = self.input.bytes(self.headers.debug_link?, DEBUG_LINK_LIMIT, "its debug link").ok()?;
        let name = link.split(|&byte| byte == 0).next().filter(|name| !name.is_empty())?;
        // Behind the name and its NUL, at the next multiple of 4.
        let crc = self.headers.format.u32(&link, (name.len() + 1).next_multiple_of(4));
        Some((String::from_utf8_lossy(name).into_owned(), crc))
    }

    /// What tells its debug file, if it is stripped.
    fn stripped(&self) -> Option<Box<Stripped>> {
        if self.headers.symtab.is_some() {
            return None;
        }
        let debug_file = self.debug_link().map(|(name, _)| name);
        Some(Box::new(Stripped { build_id: self.build_id(), debug_file }))
    }
}

/// The variants that compilers make of a function (`name.isra.0`), or else the nearest name.
fn similar(base: &str, functions: &[Symbol]) -> Vec<String> {
    let variant = |name: &str| name.strip_prefix(base).is_some_and(|rest| rest.starts_with('.'));
    let variants: Vec<String> = picked(functions, variant);
    if variants.is_empty() {
        let names = functions.iter().map(|function| &*function.name);
        return crate::event::nearest(base, names).map(str::to_owned).into_iter().collect();
    }
    variants
}

/// Names that have all of another in them, as `__strlen_avx2` has `strlen`.
fn containing(base: &str, functions: &[Symbol]) -> Vec<String> {
    picked(functions, |name| name.contains(base))
}

/// The first names that fit, each once; none that would fill the message alone.
fn picked(functions: &[Symbol], fits: impl Fn(&str) -> bool) -> Vec<String> {
    let names = functions.iter().map(|function| &*function.name);
    let mut names: Vec<&str> = names.filter(|name| name.len() <= SHOWN_LIMIT && fits(name)).collect();
    names.dedup();
    names.into_iter().take(LISTED).map(str::to_owned).collect()
}
