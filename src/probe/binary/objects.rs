//! Lookup of variables by their place in the file.

use super::headers::Segment;
use super::names::Names;
use super::symbols::{Entry, Kind};
use super::{Binary, Result};

/// A variable, or a function that is read as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// The distance of the place from its first byte, in bytes.
    pub offset: u64,
    /// Whether it is a function.
    pub is_function: bool,
}

impl Binary<'_> {
    /// Returns what is at each of these file offsets, in their order. The symbols are those of `named`: this file, or its debug file. An
    /// offset behind the last byte of a segment in the file is in its memory without content (`.bss`).
    ///
    /// If several symbols cover a place, the one that begins last has priority, then a global one. Takes one pass over each symbol table,
    /// and memory for the offsets.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn objects(&self, named: &Self, offsets: &[u64]) -> Result<Vec<Option<Object>>> {
        let mut segments = self.headers.segments.clone();
        segments.sort_by_key(|segment| segment.offset);
        let mut wanted: Vec<(u64, usize)> = offsets
            .iter()
            .enumerate()
            .filter_map(|(place, &offset)| Some((address(&segments, offset)?, place)))
            .collect();
        wanted.sort_unstable();
        let mut found = vec![None; offsets.len()];
        for table in named.tables() {
            let mut best: Vec<Option<Entry>> = vec![None; wanted.len()];
            named.headers.format.walk(&named.input, table, |entry| {
                if matches!(entry.kind, Kind::Variable | Kind::Function) && entry.size > 0 {
                    let first = wanted.partition_point(|&(address, _)| address < entry.address);
                    if let Some(best) = best.get_mut(first) {
                        *best = Some(best.map_or(entry, |known| better(known, entry)));
                    }
                }
                Ok(())
            })?;
            let mut covering: Vec<(Entry, u64, usize)> = Vec::new();
            let mut last: Option<Entry> = None;
            for (&(address, place), entry) in wanted.iter().zip(best) {
                last = entry.or(last);
                let covers = |entry: &Entry| address - entry.address < entry.size;
                covering.extend(last.filter(covers).map(|entry| (entry, address - entry.address, place)));
            }
            // Names are read from the first to the last.
            covering.sort_unstable_by_key(|(entry, ..)| entry.name);
            let mut names = Names::new(&named.input, table.strings, "the symbol names");
            for (entry, offset, place) in covering {
                let (Some(name), Some(found)) = (names.at(entry.name)?, found.get_mut(place)) else {
                    continue;
                };
                *found =
                    Some(Object { name: name.to_owned(), offset, is_function: entry.kind == Kind::Function });
            }
            // The full symbol table contains the exported symbols too.
            if found.iter().any(Option::is_some) {
                break;
            }
        }
        Ok(found)
    }
}

/// Returns the address of a file offset. `segments` are sorted by their offsets.
fn address(segments: &[Segment], offset: u64) -> Option<u64> {
    let within = segments.iter().find_map(|segment| segment.address_of(offset));
    within.or_else(|| {
        let before = segments.iter().rfind(|segment| segment.offset <= offset)?;
        before.start.checked_add(offset - before.offset)
    })
}

/// Returns the symbol that begins last, or the global one.
fn better(known: Entry, entry: Entry) -> Entry {
    let key = |entry: &Entry| (entry.address, !entry.local);
    if key(&entry) > key(&known) { entry } else { known }
}
