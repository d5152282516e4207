//! Units: the result of one compilation each.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugAddrBase, DebugInfoOffset,
    DebugLineOffset, DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase, Dwarf, Reader as _,
    Section as _, Unit, UnitHeader, UnitType,
};
use rustc_hash::FxHashMap;

use super::ranges::Ranges;
use super::text::text;
use super::{Budget, Bytes, LookupError, Result, UnitRef};

/// The largest table of abbreviations, in bytes. The largest ones of compilers have some 10 KB, and in memory a table takes some 20 times
/// as much.
const ABBREVIATIONS_LIMIT: usize = 1 << 20;
/// The most cached tables of abbreviations. Units that were compiled together share one.
const ABBREVIATIONS_KEPT: usize = 64;

/// A unit, and further attributes of its first entry.
pub(super) struct Opened<'d> {
    pub(super) unit: Unit<Bytes<'d>>,
    pub(super) lines: Option<DebugLineOffset>,
    pub(super) ranges: Ranges<'d>,
    /// Whether its functions are in another file.
    pub(super) split: bool,
}

/// The units of a file.
pub(super) struct Units<'d> {
    pub(super) dwarf: &'d Dwarf<Bytes<'d>>,
    abbreviations: FxHashMap<usize, Arc<Abbreviations>>,
    /// The offsets of units, in order, up to the first damaged header. Filled on first use.
    starts: Vec<usize>,
}

impl<'d> Units<'d> {
    pub(super) fn new(dwarf: &'d Dwarf<Bytes<'d>>) -> Self {
        Self { dwarf, abbreviations: FxHashMap::default(), starts: Vec::new() }
    }

    /// Returns the unit that contains an offset, and the offset in it.
    pub(super) fn at(
        &mut self,
        offset: DebugInfoOffset,
        budget: &mut Budget,
    ) -> Result<(Opened<'d>, gimli::UnitOffset)> {
        if self.starts.is_empty() {
            let mut headers = self.dwarf.units();
            while let Some(header) = headers.next()? {
                budget.hold(size_of::<usize>())?;
                self.starts.extend(header.debug_info_offset().map(|offset| offset.0));
            }
        }
        let before = self.starts.partition_point(|&start| start <= offset.0).checked_sub(1);
        let start = before.and_then(|before| self.starts.get(before)).ok_or(LookupError::Damaged)?;
        let header = self.dwarf.debug_info.header_from_offset(DebugInfoOffset(*start))?;
        let inside = offset.to_unit_offset(&header).ok_or(LookupError::Damaged)?;
        Ok((self.open(header, budget)?, inside))
    }

    /// Reads the first entry of a unit. gimli would also read the whole table of its source files.
    pub(super) fn open(&mut self, header: UnitHeader<Bytes<'d>>, budget: &mut Budget) -> Result<Opened<'d>> {
        let abbreviations = self.abbreviations(header.debug_abbrev_offset(), budget)?;
        let (encoding, file) = (header.encoding(), self.dwarf.file_type);
        let mut opened = Opened {
            split: matches!(header.type_(), UnitType::Skeleton(_)),
            unit: Unit {
                header,
                abbreviations: Arc::clone(&abbreviations),
                name: None,
                comp_dir: None,
                low_pc: 0,
                str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file),
                addr_base: DebugAddrBase(0),
                loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, file),
                rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file),
                line_program: None,
                dwo_id: None,
            },
            lines: None,
            ranges: Ranges::default(),
        };
        let mut entries = header.entries_raw(&abbreviations, None)?;
        let abbreviation = entries.read_abbreviation()?.ok_or(LookupError::Damaged)?;
        budget.take(abbreviation.attributes().len() as u64)?;
        let (mut name, mut dir, mut low) = (None, None, None);
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            opened.ranges.read(&attribute);
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_name, value) => name = Some(value),
                (gimli::DW_AT_comp_dir, value) => dir = Some(value),
                (gimli::DW_AT_low_pc, value) => low = Some(value),
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(at)) => opened.lines = Some(at),
                (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                    opened.unit.str_offsets_base = base;
                }
                (
                    gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base,
                    AttributeValue::DebugAddrBase(base),
                ) => opened.unit.addr_base = base,
                (
                    gimli::DW_AT_rnglists_base | gimli::DW_AT_GNU_ranges_base,
                    AttributeValue::DebugRngListsBase(base),
                ) => opened.unit.rnglists_base = base,
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, _) => opened.split = true,
                _ => {}
            }
        }
        // These need the bases, which may follow them.
        let unit = UnitRef::new(self.dwarf, &opened.unit);
        let text_of = |value: Option<_>, budget: &mut Budget| match value {
            Some(value) => text(unit, value, budget),
            None => Ok(None),
        };
        let (name, dir) = (text_of(name, budget)?, text_of(dir, budget)?);
        let low = low.map_or(Ok(None), |low| unit.attr_address(low))?;
        let slice = |text: &'d [u8]| Bytes::new(text, self.dwarf.debug_info.reader().endian());
        opened.unit.name = name.map(slice);
        opened.unit.comp_dir = dir.map(slice);
        opened.unit.low_pc = low.unwrap_or(0);
        Ok(opened)
    }

    /// Returns a table of abbreviations. Units may share one; in damaged files thousands may share a large one.
    fn abbreviations(&mut self, at: DebugAbbrevOffset, budget: &mut Budget) -> Result<Arc<Abbreviations>> {
        if let Some(known) = self.abbreviations.get(&at.0) {
            return Ok(Arc::clone(known));
        }
        let section = self.dwarf.debug_abbrev.reader();
        let rest = section.slice().get(at.0..).ok_or(LookupError::Damaged)?;
        let rest = Bytes::new(rest.get(..ABBREVIATIONS_LIMIT).unwrap_or(rest), section.endian());
        let length = length_of(rest)?;
        budget.take(length as u64)?;
        // In bounds: this length was read.
        let table = DebugAbbrev::from(Bytes::new(&rest.slice()[..length], rest.endian()));
        let table = Arc::new(table.abbreviations(DebugAbbrevOffset(0))?);
        if self.abbreviations.len() >= ABBREVIATIONS_KEPT {
            self.abbreviations.clear();
        }
        self.abbreviations.insert(at.0, Arc::clone(&table));
        Ok(table)
    }
}

/// Returns the length of the table of abbreviations at the start, in bytes.
fn length_of(table: Bytes<'_>) -> Result<usize> {
    let mut rest = table;
    while rest.read_uleb128()? != 0 {
        rest.read_uleb128()?;
        rest.read_u8()?;
        loop {
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(table.len() - rest.len())
}
