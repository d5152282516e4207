//! Names of functions, which often stand with another entry than the one that is about their code.

use gimli::{AttributeValue, EntriesRaw, UnitOffset};

use super::text::text;
use super::unit::{Opened, Units};
use super::{Budget, Bytes, Result, UnitRef, Value};

/// Over how many entries a name is followed: an inlined call, what it is a copy of, and where that was declared.
const HOPS: usize = 8;

/// What an entry tells of the name of its function.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Named<'d> {
    /// As the linker calls it.
    linkage: Option<Value<'d>>,
    /// As the source does.
    plain: Option<Value<'d>>,
    /// The entry that tells more.
    origin: Option<Value<'d>>,
}

/// A name that was sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sought<'d> {
    Name(&'d [u8]),
    /// It is in another file.
    Elsewhere,
    /// There is none.
    Nowhere,
}

impl<'d> Named<'d> {
    /// Takes note of an attribute, if it is one of those.
    pub(super) fn read(&mut self, name: gimli::DwAt, value: Value<'d>) {
        match name {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => self.linkage = Some(value),
            gimli::DW_AT_name => self.plain = Some(value),
            // An inlined call is a copy of a function, which may have been declared elsewhere.
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => self.origin = Some(value),
            _ => {}
        }
    }

    /// Of the entry at an offset in a unit.
    fn at(opened: &Opened<'d>, offset: UnitOffset, budget: &mut Budget) -> Result<Self> {
        let mut entries: EntriesRaw<'_, Bytes<'d>> = opened.unit.entries_raw(Some(offset))?;
        let mut named = Self::default();
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(named) };
        budget.take(abbreviation.attributes().len() as u64)?;
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            named.read(attribute.name(), attribute.value());
        }
        budget.take_bytes(entries.next_offset().0.saturating_sub(offset.0))?;
        Ok(named)
    }

    /// Follows it to where the name is. One that the linker uses says more than that of the source, which has neither
    /// the namespace nor the type that it belongs to.
    pub(super) fn seek(
        mut self,
        units: &mut Units<'d>,
        opened: &Opened<'d>,
        budget: &mut Budget,
    ) -> Result<Sought<'d>> {
        let mut elsewhere: Option<Opened<'d>> = None;
        let mut best = None;
        for _ in 0..HOPS {
            let dwarf = units.dwarf;
            let within = elsewhere.as_ref().unwrap_or(opened);
            let unit = UnitRef::new(dwarf, &within.unit);
            if let Some(value) = self.linkage
                && let Some(name) = text(unit, value, budget)?
            {
                return Ok(Sought::Name(name));
            }
            if let (None, Some(value)) = (best, self.plain) {
                best = text(unit, value, budget)?;
            }
            self = match self.origin {
                Some(AttributeValue::UnitRef(offset)) => Self::at(within, offset, budget)?,
                Some(AttributeValue::DebugInfoRef(offset)) => {
                    let (other, offset) = units.at(offset, budget)?;
                    let named = Self::at(&other, offset, budget)?;
                    elsewhere = Some(other);
                    named
                }
                Some(AttributeValue::DebugInfoRefSup(_)) if best.is_none() => return Ok(Sought::Elsewhere),
                _ => break,
            };
        }
        Ok(best.map_or(Sought::Nowhere, Sought::Name))
    }
}
