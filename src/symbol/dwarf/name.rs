//! Names of functions, which are often in another entry than the one that describes their code.

use gimli::{AttributeValue, EntriesRaw, UnitOffset};

use super::text::text;
use super::unit::{Opened, Units};
use super::{Budget, Bytes, Result, UnitRef, Value};

/// The most entries to follow to a name: an inlined call, the function that it is a copy of, and its declaration.
const HOPS: usize = 8;

/// The name attributes of an entry.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Named<'d> {
    /// The linkage name.
    linkage: Option<Value<'d>>,
    /// The name in the source.
    plain: Option<Value<'d>>,
    /// A reference to the entry with further attributes.
    origin: Option<Value<'d>>,
}

/// The result of looking for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameSearch<'d> {
    Name(&'d [u8]),
    /// The name is in another file.
    Elsewhere,
    /// There is no name.
    Nowhere,
}

impl<'d> Named<'d> {
    /// Stores an attribute, if it is a name attribute.
    pub(super) fn read(&mut self, name: gimli::DwAt, value: Value<'d>) {
        match name {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => self.linkage = Some(value),
            gimli::DW_AT_name => self.plain = Some(value),
            // An inlined call is a copy of a function, which may have been declared elsewhere.
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => self.origin = Some(value),
            _ => {}
        }
    }

    /// Reads the name attributes of the entry at an offset in a unit.
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

    /// Follows references to the name. A linkage name takes precedence over the name in the source, which has neither its namespace nor its
    /// type.
    pub(super) fn seek(
        mut self,
        units: &mut Units<'d>,
        opened: &Opened<'d>,
        budget: &mut Budget,
    ) -> Result<NameSearch<'d>> {
        let mut elsewhere: Option<Opened<'d>> = None;
        let mut best = None;
        for _ in 0..HOPS {
            let dwarf = units.dwarf;
            let within = elsewhere.as_ref().unwrap_or(opened);
            let unit = UnitRef::new(dwarf, &within.unit);
            if let Some(value) = self.linkage
                && let Some(name) = text(unit, value, budget)?
            {
                return Ok(NameSearch::Name(name));
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
                Some(AttributeValue::DebugInfoRefSup(_)) if best.is_none() => {
                    return Ok(NameSearch::Elsewhere);
                }
                _ => break,
            };
        }
        Ok(best.map_or(NameSearch::Nowhere, NameSearch::Name))
    }
}
