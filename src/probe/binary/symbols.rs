//! Functions in symbol tables.

use object::Endianness;
use object::elf::{
    STB_LOCAL, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, STT_SECTION, Sym32, Sym64,
};
use object::pod::{self, Pod};
use object::read::elf::Sym;

use super::headers::{Class, Format, SymbolTable};
use super::input::Input;
use super::names::{End, Names, places};
use super::versions::{Version, Versions};
use super::{Binary, Result};
use crate::host::ReadAt;

/// Maximum number of symbols with the same name that are distinguished.
const SAME_NAME_LIMIT: usize = 4096;

/// Size of a 64-bit symbol, in bytes.
const WIDEST: usize = 24;

/// An entry of a symbol table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Index in the table.
    pub(super) index: u64,
    /// Offset of its name in the string table.
    pub(super) name: u32,
    pub(super) kind: Kind,
    /// Whether the symbol is invisible to other files.
    pub(super) local: bool,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// Type of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Ifunc,
    /// A symbol that another file defines.
    Imported,
    /// An untyped symbol, as in assembly code.
    Label,
    /// A variable with an address.
    Variable,
    /// Any other data: a variable of each thread.
    Data,
}

/// A symbol with the requested name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) kind: Kind,
    pub(super) version: Option<Version>,
    /// Offset in the file, if it is in code.
    pub(super) offset: Option<u64>,
    /// Size in bytes.
    pub(super) size: u64,
}

/// A function in a table, before its name is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    name: u32,
    version: u16,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Binary<'_> {
    /// Returns all symbols named `base`, of any version.
    pub(super) fn hits(&self, table: &SymbolTable, base: &str) -> Result<Vec<Hit>> {
        let (input, what) = (&self.input, "the symbol names");
        let places = places(input, table.strings, base, what)?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut named = Vec::new();
        self.headers.format.walk(input, table, |entry| {
            if let Some(&end) = places.get(&entry.name)
                && named.len() < SAME_NAME_LIMIT
            {
                named.push((entry, end));
            }
            Ok(())
        })?;
        let mut names = Names::new(input, table.strings, what);
        let versions = Versions::read(input, table, self.headers.format.endian, &mut names)?;
        let hits = named.into_iter().map(|(entry, end)| {
            let version = match end {
                End::Version => {
                    names.at(entry.name)?.and_then(|name| Version::parse(name.get(base.len()..)?))
                }
                End::Nul => versions.of(self.version_number(table, entry.index)?),
            };
            let Entry { kind, address, size, .. } = entry;
            Ok(Hit { kind, version, offset: self.code_offset(address), size })
        });
        hits.collect()
    }

    /// Returns every function in code, in table order, at most `limit`.
    pub(super) fn listed(&self, table: &SymbolTable, limit: usize) -> Result<Vec<Listed>> {
        let mut functions = Vec::new();
        self.headers.format.walk(&self.input, table, |entry| {
            if entry.kind == Kind::Function
                && let Some(offset) = self.code_offset(entry.address)
            {
                if functions.len() == limit {
                    return Err(self.too_many("functions", limit));
                }
                let Entry { index, name, size, .. } = entry;
                // The version is filled in below, by the index in the table.
                functions.push((index, Listed { name, version: 0, offset, size }));
            }
            Ok(())
        })?;
        self.number(table, &mut functions)?;
        Ok(functions.into_iter().map(|(_, listed)| listed).collect())
    }

    /// Passes the name of each function to `each`, in the order of the string table: `malloc`, or `malloc@GLIBC_2.2.5` for a non-default
    /// version.
    pub(super) fn name_each(
        &self,
        table: &SymbolTable,
        mut functions: Vec<Listed>,
        mut each: impl FnMut(&str, Listed) -> Result<()>,
    ) -> Result<()> {
        let mut names = Names::new(&self.input, table.strings, "the symbol names");
        let versions = Versions::read(&self.input, table, self.headers.format.endian, &mut names)?;
        functions.sort_unstable_by_key(|function| function.name);
        for function in functions {
            let Some(name) = names.at(function.name)? else { continue };
            match (name.split_once("@@"), versions.of(function.version)) {
                (Some((base, _)), _) => each(base, function)?,
                (None, Some(version)) if !version.default => {
                    each(&format!("{name}@{}", version.name), function)?;
                }
                (None, _) => each(name, function)?,
            }
        }
        Ok(())
    }

    /// Returns the entry of `.gnu.version` for a symbol; 0 if there is none.
    fn version_number(&self, table: &SymbolTable, index: u64) -> Result<u16> {
        let part = table.versions.and_then(|versions| versions.within(index.saturating_mul(2), 2));
        let Some(part) = part else { return Ok(0) };
        let bytes = self.input.bytes(part, 2, "the symbol versions")?;
        Ok(self.headers.format.u16(&bytes, 0))
    }

    /// Sets the version numbers from `.gnu.version`. The functions are given with their table indices, sorted by them.
    fn number(&self, table: &SymbolTable, functions: &mut [(u64, Listed)]) -> Result<()> {
        let Some(versions) = table.versions else { return Ok(()) };
        let mut functions = functions.iter_mut().peekable();
        self.input.chunks(versions, "the symbol versions", |at, bytes| {
            for (place, number) in bytes.as_chunks::<2>().0.iter().enumerate() {
                if let Some((_, listed)) = functions.next_if(|(index, _)| *index == at / 2 + place as u64) {
                    listed.version = self.headers.format.u16(number, 0);
                }
            }
            Ok(())
        })
    }
}

impl Format {
    /// Returns the size of a symbol, in bytes.
    fn width(self) -> usize {
        match self.class {
            Class::Elf32 => size_of::<Sym32<Endianness>>(),
            Class::Elf64 => size_of::<Sym64<Endianness>>(),
        }
    }

    /// Decodes a symbol from its bytes. `index` is its index in the table.
    fn entry(self, bytes: &[u8], index: u64) -> Option<Entry> {
        match self.class {
            Class::Elf32 => Entry::of::<Sym32<Endianness>>(bytes, self.endian, index),
            Class::Elf64 => Entry::of::<Sym64<Endianness>>(bytes, self.endian, index),
        }
    }

    /// Passes each symbol to `each`, except section and file symbols, in table order. Reads the table once, in pieces.
    pub(super) fn walk(
        self,
        input: &Input<'_>,
        table: &SymbolTable,
        mut each: impl FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let width = self.width();
        input.chunks(table.entries, "the symbol table", |at, bytes| {
            let symbols = (at / width as u64..).zip(bytes.chunks_exact(width));
            symbols.filter_map(|(index, symbol)| self.entry(symbol, index)).try_for_each(&mut each)
        })
    }

    /// Reads one symbol from the file. `None` if the table has no such symbol.
    pub(super) fn read(
        self,
        file: &dyn ReadAt,
        table: &SymbolTable,
        index: u32,
    ) -> std::io::Result<Option<Entry>> {
        let width = self.width();
        let mut bytes = [0; WIDEST];
        let place = table.entries.within(u64::from(index) * width as u64, width as u64);
        let (Some(place), Some(bytes)) = (place, bytes.get_mut(..width)) else { return Ok(None) };
        file.read_exact_at(bytes, place.offset)?;
        Ok(self.entry(bytes, index.into()))
    }
}

impl Entry {
    /// Decodes a symbol. `None` for section and file symbols.
    fn of<S: Sym<Endian = Endianness> + Pod>(bytes: &[u8], endian: Endianness, index: u64) -> Option<Self> {
        let (symbol, _) = pod::from_bytes::<S>(bytes).ok()?;
        let kind = match symbol.st_type() {
            STT_SECTION | STT_FILE => return None,
            _ if symbol.is_undefined(endian) => Kind::Imported,
            STT_FUNC => Kind::Function,
            STT_GNU_IFUNC => Kind::Ifunc,
            STT_NOTYPE => Kind::Label,
            STT_OBJECT => Kind::Variable,
            _ => Kind::Data,
        };
        Some(Self {
            index,
            name: symbol.st_name(endian),
            kind,
            local: symbol.st_bind() == STB_LOCAL,
            address: symbol.st_value(endian).into(),
            size: symbol.st_size(endian).into(),
        })
    }
}
