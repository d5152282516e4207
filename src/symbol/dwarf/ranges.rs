//! Which addresses an entry is about.

use gimli::{Attribute, AttributeValue, UnitRef};

use super::{Budget, Bytes, Trouble};

/// What the attributes of an entry tell of its addresses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ranges {
    low: Option<Address>,
    high: Option<High>,
    /// As its attribute has it: an offset, or a number in a list.
    list: Option<List>,
}

#[derive(Debug, Clone, Copy)]
enum Address {
    Is(u64),
    /// A place in `.debug_addr`.
    Listed(gimli::DebugAddrIndex),
}

#[derive(Debug, Clone, Copy)]
enum High {
    Address(Address),
    Size(u64),
}

#[derive(Debug, Clone, Copy)]
enum List {
    At(gimli::RawRangeListsOffset),
    Numbered(gimli::DebugRngListsIndex),
}

impl Ranges {
    /// Takes note of an attribute, if it is one of those.
    pub(super) fn read(&mut self, attribute: &Attribute<Bytes<'_>>) {
        let address = |value: AttributeValue<Bytes<'_>>| match value {
            AttributeValue::Addr(address) => Some(Address::Is(address)),
            AttributeValue::DebugAddrIndex(index) => Some(Address::Listed(index)),
            _ => None,
        };
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = address(attribute.value()),
            gimli::DW_AT_high_pc => {
                let size = attribute.udata_value().map(High::Size);
                self.high = address(attribute.value()).map(High::Address).or(size);
            }
            gimli::DW_AT_ranges => match attribute.value() {
                AttributeValue::RangeListsRef(offset) => self.list = Some(List::At(offset)),
                AttributeValue::DebugRngListsIndex(index) => self.list = Some(List::Numbered(index)),
                _ => {}
            },
            _ => {}
        }
    }

    /// Shows each range: its first address, and its end, which is not in it. The answer is how many steps that took.
    pub(super) fn each(
        &self,
        unit: UnitRef<'_, Bytes<'_>>,
        budget: &mut Budget,
        mut each: impl FnMut(u64, u64) -> usize,
    ) -> Result<(), Trouble> {
        let resolve = |address: Address| match address {
            Address::Is(address) => Ok(address),
            Address::Listed(index) => unit.address(index),
        };
        if let Some(list) = self.list {
            let offset = match list {
                List::At(offset) => unit.ranges_offset_from_raw(offset),
                List::Numbered(index) => unit.ranges_offset(index)?,
            };
            let mut ranges = unit.ranges(offset)?;
            // One by one: what only changes the base of others is work as well.
            while let Some(raw) = ranges.next_raw()? {
                budget.take(1)?;
                if let Some(range) = ranges.convert_raw(raw)? {
                    budget.take(each(range.begin, range.end) as u64)?;
                }
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (self.low, self.high) else { return Ok(()) };
        let low = resolve(low)?;
        let high = match high {
            High::Address(address) => resolve(address)?,
            // What the linker threw away is at the last address.
            High::Size(size) => low.checked_add(size).unwrap_or(low),
        };
        if low < high {
            budget.take(each(low, high) as u64)?;
        }
        Ok(())
    }
}
