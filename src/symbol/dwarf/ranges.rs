//! The addresses of an entry.

use gimli::Attribute;

use super::{Budget, Bytes, Result, UnitRef, Value};

/// The address attributes of an entry.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ranges<'d> {
    low: Option<Value<'d>>,
    /// An address, or the distance from `low`.
    high: Option<Attribute<Bytes<'d>>>,
    list: Option<Value<'d>>,
}

impl<'d> Ranges<'d> {
    /// Stores an attribute, if it is an address attribute.
    pub(super) fn read(&mut self, attribute: &Attribute<Bytes<'d>>) {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = Some(attribute.value()),
            gimli::DW_AT_high_pc => self.high = Some(*attribute),
            gimli::DW_AT_ranges => self.list = Some(attribute.value()),
            _ => {}
        }
    }

    /// Calls `each` for each range, with its first address and its end (exclusive). `each` returns the number of steps that it took.
    pub(super) fn each(
        &self,
        unit: UnitRef<'_, 'd>,
        budget: &mut Budget,
        mut each: impl FnMut(u64, u64) -> usize,
    ) -> Result<()> {
        let list = self.list.map_or(Ok(None), |list| unit.attr_ranges_offset(list))?;
        if let Some(offset) = list {
            let mut ranges = unit.ranges(offset)?;
            // One by one: entries that only change the base address are work, too.
            while let Some(raw) = ranges.next_raw()? {
                budget.take(1)?;
                if let Some(range) = ranges.convert_raw(raw)? {
                    budget.take(each(range.begin, range.end) as u64)?;
                }
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (self.low, self.high) else { return Ok(()) };
        let Some(low) = unit.attr_address(low)? else { return Ok(()) };
        let high = match (unit.attr_address(high.value())?, high.udata_value()) {
            (Some(address), _) => address,
            // Code that the linker discarded is at the last address.
            (None, Some(size)) => low.checked_add(size).unwrap_or(low),
            (None, None) => return Ok(()),
        };
        if low < high {
            budget.take(each(low, high) as u64)?;
        }
        Ok(())
    }
}
