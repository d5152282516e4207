//! Source lines and inlined functions from debug information (DWARF 2 to 5).
//!
//! Containers bring their own files, which are untrusted input. The crate `addr2line` also reads this format, but recurses for every level
//! of nesting. A file of some megabytes could overflow the stack and end the exporter. `addr2line` also keeps everything that it has read.
//!
//! This module keeps nothing. The requested addresses are known, so units are read once, from start to end, and everything about other
//! addresses is skipped. The memory is that of the sections, and a little for each address. The time is limited by a [`Budget`].
//!
//! Source of the format: the DWARF Debugging Information Format, versions 2 to 5.

mod name;
mod ranges;
mod rows;
mod text;
mod unit;
mod walk;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId, UnitHeader, UnitType};

use self::unit::Units;
use self::walk::Walk;
use crate::probe::binary::DebugInfo;

/// The bytes of a section.
type Bytes<'d> = EndianSlice<'d, RunTimeEndian>;
/// A unit, with the sections that it refers to.
type UnitRef<'u, 'd> = gimli::UnitRef<'u, Bytes<'d>>;
/// The value of an attribute.
type Value<'d> = gimli::AttributeValue<Bytes<'d>>;
type Result<T, E = LookupError> = std::result::Result<T, E>;

/// The limits of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Steps left: an attribute of an entry, a byte of a line program, a range, 16 bytes of a text.
    pub(super) steps: u64,
    /// Bytes left for results.
    pub(super) memory: usize,
}

/// The reason for a missing result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupError {
    /// The information is malformed, or has an unknown version.
    Damaged,
    /// It exceeds the budget.
    Exhausted,
}

impl From<gimli::Error> for LookupError {
    fn from(_: gimli::Error) -> Self {
        Self::Damaged
    }
}

impl Budget {
    fn take(&mut self, steps: u64) -> Result<()> {
        self.steps = self.steps.checked_sub(steps).ok_or(LookupError::Exhausted)?;
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.memory = self.memory.checked_sub(bytes).ok_or(LookupError::Exhausted)?;
        Ok(())
    }

    /// Spends the steps for these bytes.
    fn take_bytes(&mut self, bytes: usize) -> Result<()> {
        self.take(bytes as u64 / 16 + 1)
    }
}

/// A location in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    /// The function, by its linkage name, or else by its name in the source; `None` if unknown.
    pub(super) function: Option<Arc<str>>,
    /// The file; `None` if unknown.
    pub(super) file: Option<Arc<str>>,
    /// From 1; 0 if unknown.
    pub(super) line: u32,
}

/// The result for an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Innermost first: all but the last were inlined into the next. Empty if there is no information.
    pub(super) levels: Box<[Level]>,
    /// Whether a part of the information is in another file: functions of split DWARF (`.dwo`), names of `dwz`.
    pub(super) elsewhere: bool,
}

/// Returns the result for each of these addresses, which must be sorted and unique. If an error occurs, earlier results are returned
/// together with it.
pub(super) fn look_up(
    info: &DebugInfo,
    addresses: &[u64],
    budget: &mut Budget,
) -> (Vec<Found>, Option<LookupError>) {
    let endian = if info.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
    let section = |id: SectionId| Ok::<_, LookupError>(EndianSlice::new(info.section(id), endian));
    let mut found = vec![Found::default(); addresses.len()];
    let trouble = match Dwarf::load(section) {
        Ok(dwarf) => look_through(&mut Units::new(&dwarf), addresses, &mut found, budget).err(),
        Err(trouble) => Some(trouble),
    };
    (found, trouble)
}

/// Reads all units until every address has a result.
fn look_through(
    units: &mut Units<'_>,
    addresses: &[u64],
    found: &mut [Found],
    budget: &mut Budget,
) -> Result<()> {
    let mut missing = addresses.len();
    let mut headers = units.dwarf.units();
    let mut trouble = Ok(());
    while missing > 0 {
        // After a damaged header, the start of the next one is unknown.
        let Some(header) = headers.next()? else { break };
        budget.take(1)?;
        match look_into(units, header, addresses, found, budget) {
            Ok(more) => missing = missing.saturating_sub(more),
            Err(LookupError::Exhausted) => return Err(LookupError::Exhausted),
            // Another unit may be valid.
            Err(LookupError::Damaged) => trouble = Err(LookupError::Damaged),
        }
    }
    trouble
}

/// Returns the indexes of the addresses from `from` up to `to` (exclusive). The addresses are sorted.
fn between(addresses: &[u64], from: u64, to: u64) -> Range<usize> {
    let first = addresses.partition_point(|&address| address < from);
    let count = addresses[first..].iter().take_while(|&&address| address < to).count();
    first..first + count
}

/// Looks up the addresses without a result in a unit. Returns the number of new results.
fn look_into<'d>(
    units: &mut Units<'d>,
    header: UnitHeader<Bytes<'d>>,
    addresses: &[u64],
    found: &mut [Found],
    budget: &mut Budget,
) -> Result<usize> {
    match header.type_() {
        UnitType::Compilation | UnitType::Skeleton(_) => {}
        _ => return Ok(0),
    }
    let opened = units.open(header, budget)?;
    let mut wanted = BTreeSet::new();
    let unit = UnitRef::new(units.dwarf, &opened.unit);
    opened.ranges.each(unit, budget, |from, to| {
        let inside = between(addresses, from, to);
        wanted.extend(inside.clone().filter(|&place| found[place].levels.is_empty()));
        inside.len()
    })?;
    if wanted.is_empty() {
        return Ok(0);
    }
    let places: Vec<u64> = wanted.iter().map(|&place| addresses[place]).collect();
    let mut walk = Walk::new(&places);
    if !opened.split {
        walk.walk(unit, budget)?;
    }
    let lines = rows::look_up(units, &opened, &places, walk.chains, budget)?;
    let mut known = 0;
    for (&place, levels) in wanted.iter().zip(lines) {
        known += usize::from(!levels.levels.is_empty());
        found[place] = Found { elsewhere: levels.elsewhere || opened.split, ..levels };
    }
    Ok(known)
}

#[cfg(test)]
mod tests;
