//! The table of lines of a unit, which is a program that writes it.

use std::sync::Arc;

use gimli::{DebugLineOffset, LineProgramHeader, Reader as _, Section as _};
use rustc_hash::FxHashMap;

use super::name::Sought;
use super::text::text;
use super::unit::{Opened, Units};
use super::walk::Within;
use super::{Budget, Bytes, Found, Level, Result, Trouble, UnitRef, between};
use crate::error::printable;

/// The largest header of a program, in bytes: the names of some ten thousand files. In memory it takes some 100 times as
/// much.
const HEADER_LIMIT: u64 = 512 << 10;
/// The longest path, in bytes.
const PATH_LIMIT: usize = 4096;
/// What a text takes beside itself where each is kept once, in bytes, roughly.
const ENTRY: usize = 96;

/// Where an address is in the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Row {
    file: u64,
    line: u32,
}

/// What is at each address, with the lines; `addresses` are in order.
pub(super) fn look_up<'d>(
    units: &mut Units<'d>,
    opened: &Opened<'d>,
    addresses: &[u64],
    chains: Vec<Vec<Within<'d>>>,
    budget: &mut Budget,
) -> Result<Vec<Found>> {
    let unit = UnitRef::new(units.dwarf, &opened.unit);
    let mut table = match opened.lines {
        Some(at) => table(unit, at, addresses, budget)?,
        None => Table { header: None, rows: vec![None; addresses.len()], paths: FxHashMap::default() },
    };
    let (mut all, mut names) = (Vec::with_capacity(chains.len()), Names::default());
    for (place, functions) in chains.into_iter().enumerate() {
        let mut row = table.rows.get(place).copied().flatten();
        if functions.is_empty() && row.is_none() {
            all.push(Found::default());
            continue;
        }
        let (mut levels, mut elsewhere) = (Vec::with_capacity(functions.len().max(1)), false);
        // Innermost first: the line of each is where the one inside of it was called.
        for Within { named, call } in functions.into_iter().rev() {
            budget.hold(size_of::<Level>())?;
            let sought = match named.seek(units, opened, budget) {
                // What is damaged here spoils one name.
                Err(Trouble::Damaged) => Sought::Nowhere,
                sought => sought?,
            };
            elsewhere |= sought == Sought::Elsewhere;
            let name = if let Sought::Name(name) = sought { Some(names.text(name, budget)?) } else { None };
            levels.push(table.level(unit, name, row, budget)?);
            row = call.file.map(|file| Row { file, line: call.line });
        }
        if levels.is_empty() {
            levels.push(table.level(unit, None, row, budget)?);
        }
        all.push(Found { levels: levels.into(), elsewhere });
    }
    Ok(all)
}

/// Names of functions, each once.
#[derive(Default)]
struct Names<'d>(FxHashMap<&'d [u8], Arc<str>>);

impl<'d> Names<'d> {
    fn text(&mut self, name: &'d [u8], budget: &mut Budget) -> Result<Arc<str>> {
        if let Some(known) = self.0.get(name) {
            return Ok(Arc::clone(known));
        }
        budget.hold(name.len() + ENTRY)?;
        let text: Arc<str> = String::from_utf8_lossy(name).into();
        self.0.insert(name, Arc::clone(&text));
        Ok(text)
    }
}

struct Table<'d> {
    header: Option<LineProgramHeader<Bytes<'d>>>,
    /// For each address.
    rows: Vec<Option<Row>>,
    /// Of files that were asked for.
    paths: FxHashMap<u64, Option<Arc<str>>>,
}

fn table<'d>(
    unit: UnitRef<'_, 'd>,
    at: DebugLineOffset,
    addresses: &[u64],
    budget: &mut Budget,
) -> Result<Table<'d>> {
    budget.take(size_of_program(unit, at)?)?;
    let lines = &unit.dwarf.debug_line;
    let program = lines.program(at, unit.header.address_size(), unit.unit.comp_dir, unit.unit.name)?;
    let mut found = vec![None; addresses.len()];
    let mut rows = program.rows();
    let mut before: Option<(u64, Row)> = None;
    while let Some((_, row)) = rows.next_row()? {
        if let Some((start, line)) = before {
            // The first sequence that has an address counts.
            for found in &mut found[between(addresses, start, row.address())] {
                budget.take(1)?;
                found.get_or_insert(line);
            }
        }
        let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
        let current = (row.address(), Row { file: row.file_index(), line });
        before = (!row.end_sequence()).then_some(current);
    }
    Ok(Table { header: Some(rows.header().clone()), rows: found, paths: FxHashMap::default() })
}

/// How long a program is with its header, in bytes.
fn size_of_program(unit: UnitRef<'_, '_>, at: DebugLineOffset) -> Result<u64> {
    let mut rest = *unit.dwarf.debug_line.reader();
    rest.skip(at.0)?;
    let (length, format) = rest.read_initial_length()?;
    if rest.read_u16()? >= 5 {
        // How wide addresses and segments are.
        rest.skip(2)?;
    }
    let header = rest.read_length(format)? as u64;
    if header > HEADER_LIMIT { Err(Trouble::Exhausted) } else { Ok(length as u64) }
}

impl<'d> Table<'d> {
    fn level(
        &mut self,
        unit: UnitRef<'_, 'd>,
        function: Option<Arc<str>>,
        row: Option<Row>,
        budget: &mut Budget,
    ) -> Result<Level> {
        let Some(row) = row else { return Ok(Level { function, file: None, line: 0 }) };
        let file = self.path(unit, row.file, budget)?;
        Ok(Level { function, file, line: row.line })
    }

    /// The path of a file by its number.
    fn path(&mut self, unit: UnitRef<'_, 'd>, number: u64, budget: &mut Budget) -> Result<Option<Arc<str>>> {
        if let Some(known) = self.paths.get(&number) {
            return Ok(known.clone());
        }
        let mut path = unit.unit.comp_dir.map_or_else(Vec::new, |dir| dir.slice().to_vec());
        let header = self.header.as_ref();
        let file = header.and_then(|header| Some((header, header.file(number)?)));
        let mut name = None;
        if let Some((header, file)) = file {
            let dir = if file.directory_index() == 0 { None } else { file.directory(header) };
            if let Some(dir) = dir
                && let Some(dir) = text(unit, dir, budget)?
            {
                push(&mut path, dir);
            }
            name = text(unit, file.path_name(), budget)?;
        }
        let shown = name.map(|name| {
            push(&mut path, name);
            path.truncate(PATH_LIMIT);
            printable(&String::from_utf8_lossy(&path)).into()
        });
        budget.hold(ENTRY + shown.as_ref().map_or(0, |shown: &Arc<str>| shown.len()))?;
        self.paths.insert(number, shown.clone());
        Ok(shown)
    }
}

/// Goes on with a path: what begins at the root replaces what was there.
fn push(path: &mut Vec<u8>, next: &[u8]) {
    if next.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(next);
}
