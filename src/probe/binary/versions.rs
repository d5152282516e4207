//! Versions of exported symbols: `.gnu.version` contains a version number per symbol, `.gnu.version_d` the names of the numbers. Source:
//! the Linux Standard Base, "Symbol Versioning".

use std::collections::BTreeMap;

use object::elf::{VERSYM_HIDDEN, VERSYM_VERSION, Verdaux, Verdef};
use object::{Endianness, pod};

use super::Result;
use super::headers::SymbolTable;
use super::input::Input;
use super::names::Names;

/// Maximum number of versions. The C library has about 40.
const VERSION_LIMIT: usize = 4096;
/// Maximum size of the version definitions, in bytes.
const DEFINITIONS_LIMIT: u64 = 1 << 20;

/// The version of a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// `GLIBC_2.2.5`
    pub(super) name: String,
    /// Whether it is the default version for newly linked programs (`@@`).
    pub(super) default: bool,
}

impl Version {
    /// Parses the version suffix of a symbol in `.symtab`: `@GLIBC_2.2.5`, `@@GLIBC_2.14`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('@')?;
        let default = text.strip_prefix('@');
        Some(Self { name: default.unwrap_or(text).to_owned(), default: default.is_some() })
    }
}

/// Names of the versions that a file defines, by number.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<u16, String>);

impl Versions {
    pub(super) fn read(
        input: &Input<'_>,
        table: &SymbolTable,
        endian: Endianness,
        names: &mut Names<'_>,
    ) -> Result<Self> {
        let Some(part) = table.definitions else { return Ok(Self::default()) };
        let bytes = input.bytes(part, DEFINITIONS_LIMIT, "the version table")?;
        let mut versions = BTreeMap::new();
        let mut at = 0usize;
        for _ in 0..VERSION_LIMIT {
            let Some((definition, _)) = record::<Verdef<Endianness>>(&bytes, at) else { break };
            let first = at.saturating_add(definition.vd_aux.get(endian) as usize);
            // The first name is its own, the others are its parent versions.
            if let Some((own, _)) = record::<Verdaux<Endianness>>(&bytes, first)
                && let Some(name) = names.at(own.vda_name.get(endian))?
            {
                versions.insert(definition.vd_ndx.get(endian).0, name.to_owned());
            }
            match definition.vd_next.get(endian) {
                0 => break,
                next => at = at.saturating_add(next as usize),
            }
        }
        Ok(Self(versions))
    }

    /// Returns the version for an entry of `.gnu.version`. The first two numbers are special: not exported, and exported without a version.
    pub(super) fn of(&self, number: u16) -> Option<Version> {
        let index = number & VERSYM_VERSION;
        let name = self.0.get(&index).filter(|_| index > 1)?;
        Some(Version { name: name.clone(), default: number & VERSYM_HIDDEN.0 == 0 })
    }
}

fn record<T: pod::Pod>(bytes: &[u8], at: usize) -> Option<(&T, &[u8])> {
    pod::from_bytes(bytes.get(at..)?).ok()
}
