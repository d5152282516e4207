//! Lines and inlined functions out of what compilers tell of their code (DWARF 2 to 5).
//!
//! Containers bring their own files, and `addr2line`, which reads this as well, calls itself for every level of what is
//! nested in them: a file of some megabytes would end the exporter. And what it has read it keeps. Here nothing is kept:
//! it is known which addresses are wanted, so units are gone through once, from the front to the back, and what is not
//! about these addresses is passed over. The memory that takes is that of the sections, and a little for each address.
//! How long it takes is bounded by a [`Budget`].
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
type Result<T, E = Trouble> = std::result::Result<T, E>;

/// How much work may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Steps that are left: an attribute of an entry, a byte of a line program, a range, 16 bytes of a text.
    pub(super) steps: u64,
    /// Bytes that are left for what is found.
    pub(super) memory: usize,
}

/// Why something is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It breaks the format, or is of a version that is not known.
    Damaged,
    /// It takes more work, or more memory, than it may.
    Exhausted,
}

impl From<gimli::Error> for Trouble {
    fn from(_: gimli::Error) -> Self {
        Self::Damaged
    }
}

impl Budget {
    fn take(&mut self, steps: u64) -> Result<()> {
        self.steps = self.steps.checked_sub(steps).ok_or(Trouble::Exhausted)?;
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.memory = self.memory.checked_sub(bytes).ok_or(Trouble::Exhausted)?;
        Ok(())
    }

    /// For so many bytes.
    fn take_bytes(&mut self, bytes: usize) -> Result<()> {
        self.take(bytes as u64 / 16 + 1)
    }
}

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    /// The function, as the linker calls it, or as the source does if it says no more; `None` if it is not known.
    pub(super) function: Option<Arc<str>>,
    /// The file; `None` if it is not known.
    pub(super) file: Option<Arc<str>>,
    /// From 1; 0 if it is not known.
    pub(super) line: u32,
}

/// What is at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Innermost first: all but the last were inlined into the next. Empty if nothing is known.
    pub(super) levels: Box<[Level]>,
    /// Whether a part of what is known is in another file: functions of split DWARF (`.dwo`), names of `dwz`.
    pub(super) elsewhere: bool,
}

/// What is at each of these addresses, which are in order and each there once; as far as it came before there was trouble.
pub(super) fn look_up(
    info: &DebugInfo,
    addresses: &[u64],
    budget: &mut Budget,
) -> (Vec<Found>, Option<Trouble>) {
    let endian = if info.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
    let section = |id: SectionId| Ok::<_, Trouble>(EndianSlice::new(info.section(id), endian));
    let mut found = vec![Found::default(); addresses.len()];
    let trouble = match Dwarf::load(section) {
        Ok(dwarf) => look_through(&mut Units::new(&dwarf), addresses, &mut found, budget).err(),
        Err(trouble) => Some(trouble),
    };
    (found, trouble)
}

/// Goes through all units for what is wanted.
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
        // Where one header is damaged, nobody knows where the next one is.
        let Some(header) = headers.next()? else { break };
        budget.take(1)?;
        match look_into(units, header, addresses, found, budget) {
            Ok(more) => missing = missing.saturating_sub(more),
            Err(Trouble::Exhausted) => return Err(Trouble::Exhausted),
            // Another unit may be whole.
            Err(Trouble::Damaged) => trouble = Err(Trouble::Damaged),
        }
    }
    trouble
}

/// The places of the addresses from `from` up to `to` (exclusive). The addresses are in order.
fn between(addresses: &[u64], from: u64, to: u64) -> Range<usize> {
    let first = addresses.partition_point(|&address| address < from);
    let count = addresses[first..].iter().take_while(|&&address| address < to).count();
    first..first + count
}

/// What a unit knows of the addresses of which nothing is known yet; of how many it knew something.
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
