//! Texts of attributes, in any section.

use gimli::{AttributeValue, Section as _};

use super::{Budget, LookupError, Result, UnitRef, Value};

/// The longest text that is read, in bytes.
const TEXT_LIMIT: usize = 4096;

/// Returns a text; `None` if it is empty, too long, or in another file. At most the length of the longest text is read.
pub(super) fn text<'d>(
    unit: UnitRef<'_, 'd>,
    value: Value<'d>,
    budget: &mut Budget,
) -> Result<Option<&'d [u8]>> {
    let (section, offset) = match value {
        AttributeValue::String(text) => {
            budget.take_bytes(text.slice().len())?;
            return Ok(Some(text.slice()).filter(|text| (1..=TEXT_LIMIT).contains(&text.len())));
        }
        AttributeValue::DebugStrRef(offset) => (unit.dwarf.debug_str.reader(), offset.0),
        AttributeValue::DebugLineStrRef(offset) => (unit.dwarf.debug_line_str.reader(), offset.0),
        AttributeValue::DebugStrOffsetsIndex(index) => {
            (unit.dwarf.debug_str.reader(), unit.string_offset(index)?.0)
        }
        _ => return Ok(None),
    };
    let rest = section.slice().get(offset..).ok_or(LookupError::Damaged)?;
    let rest = rest.get(..TEXT_LIMIT + 1).unwrap_or(rest);
    let end = memchr::memchr(0, rest);
    budget.take_bytes(end.unwrap_or(rest.len()))?;
    Ok(end.filter(|&end| end > 0).and_then(|end| rest.get(..end)))
}
