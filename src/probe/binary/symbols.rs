//! Functions in the tables of symbols.

use object::Endianness;
use object::elf::{STB_LOCAL, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_SECTION, Sym32, Sym64};
use object::pod::{self, Pod};
use object::read::elf::Sym;

use super::headers::{Class, Format, SymbolTable};
use super::input::Input;
use super::names::{End, Names, places};
use super::versions::{Version, Versions};
use super::{Binary, Result};
use crate::host::ReadAt;

/// The most symbols of one name that are told apart.
const SAME_NAME_LIMIT: usize = 4096;

/// The size of a symbol of the wider class, in bytes.
const WIDEST: usize = 24;

/// A symbol as a table has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Its place in the table.
    pub(super) index: u64,
    /// Where its name is in the table of names.
    pub(super) name: u32,
    pub(super) kind: Kind,
    /// Whether other files cannot refer to it.
    pub(super) local: bool,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// What a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Ifunc,
    /// A name that another file defines.
    Imported,
    /// A name without a type, as assembly may have it.
    Label,
    Data,
}

/// A symbol with the name that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) kind: Kind,
    pub(super) version: Option<Version>,
    /// Where it is in the file, if that is in code.
    pub(super) offset: Option<u64>,
    /// In bytes.
    pub(super) size: u64,
}

/// A function in a table, its name not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    name: u32,
    version: u16,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Binary<'_> {
    /// All symbols called `base`, whatever their versions.
    pub(super) fn hits(&self, table: &SymbolTable, base: &str) -> Result<Vec<Hit>> {
        let (input, what) = (&self.input, "the names of symbols");
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

    /// Every function that is in code, in the order of the table; at most `limit`.
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
                // The place in the table, until its number is read below.
                functions.push((index, Listed { name, version: 0, offset, size }));
            }
            Ok(())
        })?;
        self.number(table, &mut functions)?;
        Ok(functions.into_iter().map(|(_, listed)| listed).collect())
    }

    /// Lends the name of each, in the order of names in the table: `malloc`, and `malloc@GLIBC_2.2.5` where that is not
    /// the default.
    pub(super) fn name_each(
        &self,
        table: &SymbolTable,
        mut functions: Vec<Listed>,
        mut each: impl FnMut(&str, Listed) -> Result<()>,
    ) -> Result<()> {
        let mut names = Names::new(&self.input, table.strings, "the names of symbols");
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

    /// The entry of `.gnu.version` for a symbol; 0 where there is none.
    fn version_number(&self, table: &SymbolTable, index: u64) -> Result<u16> {
        let part = table.versions.and_then(|versions| versions.within(index.saturating_mul(2), 2));
        let Some(part) = part else { return Ok(0) };
        let bytes = self.input.bytes(part, 2, "the versions of symbols")?;
        Ok(self.headers.format.u16(&bytes, 0))
    }

    /// Gives functions, each with its place in the table and in that order, their numbers in `.gnu.version`.
    fn number(&self, table: &SymbolTable, functions: &mut [(u64, Listed)]) -> Result<()> {
        let Some(versions) = table.versions else { return Ok(()) };
        let mut functions = functions.iter_mut().peekable();
        self.input.chunks(versions, "the versions of symbols", |at, bytes| {
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
    /// How long a symbol is, in bytes.
    fn width(self) -> usize {
        match self.class {
            Class::Elf32 => size_of::<Sym32<Endianness>>(),
            Class::Elf64 => size_of::<Sym64<Endianness>>(),
        }
    }

    /// A symbol, by its bytes and its place in the table.
    fn entry(self, bytes: &[u8], index: u64) -> Option<Entry> {
        match self.class {
            Class::Elf32 => Entry::of::<Sym32<Endianness>>(bytes, self.endian, index),
            Class::Elf64 => Entry::of::<Sym64<Endianness>>(bytes, self.endian, index),
        }
    }

    /// Shows each symbol but those of sections and source files, in the order of the table. Reads the table once, in
    /// pieces.
    pub(super) fn walk(
        self,
        input: &Input<'_>,
        table: &SymbolTable,
        mut each: impl FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let width = self.width();
        input.chunks(table.entries, "the table of symbols", |at, bytes| {
            let symbols = (at / width as u64..).zip(bytes.chunks_exact(width));
            symbols.filter_map(|(index, symbol)| self.entry(symbol, index)).try_for_each(&mut each)
        })
    }

    /// One symbol, read from the file; `None` where the table has no such symbol.
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
    /// `None` for those of sections and source files.
    fn of<S: Sym<Endian = Endianness> + Pod>(bytes: &[u8], endian: Endianness, index: u64) -> Option<Self> {
        let (symbol, _) = pod::from_bytes::<S>(bytes).ok()?;
        let kind = match symbol.st_type() {
            STT_SECTION | STT_FILE => return None,
            _ if symbol.is_undefined(endian) => Kind::Imported,
            STT_FUNC => Kind::Function,
            STT_GNU_IFUNC => Kind::Ifunc,
            STT_NOTYPE => Kind::Label,
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
