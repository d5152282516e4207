//! The entries of a unit: the function of each address, and the functions inlined there.

use std::collections::BTreeSet;

use super::name::Named;
use super::ranges::Ranges;
use super::{Budget, Bytes, Result, UnitRef, between};

/// The most levels of inlined functions; deeper ones are omitted.
const DEEPEST: usize = 64;

/// A function that contains an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'d> {
    pub(super) named: Named<'d>,
    pub(super) call: Call,
}

/// The call site of an inlined function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// An index into the table of files.
    pub(super) file: Option<u64>,
    /// From 1; 0 if unknown.
    pub(super) line: u32,
}

/// A pass through the entries of a unit for some addresses.
pub(super) struct Walk<'a, 'd> {
    /// Sorted.
    addresses: &'a [u64],
    /// For each address, outermost first.
    pub(super) chains: Vec<Vec<Within<'d>>>,
    /// The enclosing functions of the next entry that contain one of the addresses.
    scopes: Vec<Scope>,
}

/// A function, and the requested addresses in it, if any.
struct Scope {
    depth: isize,
    inside: Vec<usize>,
}

impl<'a, 'd> Walk<'a, 'd> {
    pub(super) fn new(addresses: &'a [u64]) -> Self {
        Self { addresses, chains: vec![Vec::new(); addresses.len()], scopes: Vec::new() }
    }

    /// Reads all entries without recursion, at any depth of nesting.
    pub(super) fn walk(&mut self, unit: UnitRef<'_, 'd>, budget: &mut Budget) -> Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut missing = self.addresses.len();
        while !entries.is_empty() {
            let (depth, at) = (entries.next_depth(), entries.next_offset().0);
            while self.scopes.pop_if(|scope| scope.depth >= depth).is_some() {}
            if missing == 0 && self.scopes.is_empty() {
                return Ok(());
            }
            let Some(abbreviation) = entries.read_abbreviation()? else {
                budget.take(1)?;
                continue;
            };
            budget.take(1 + abbreviation.attributes().len() as u64)?;
            let around = self.scopes.last().is_some_and(|scope| !scope.inside.is_empty());
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {}
                gimli::DW_TAG_inlined_subroutine if around => {}
                _ => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    budget.take_bytes(entries.next_offset().0 - at)?;
                    continue;
                }
            }
            let (mut ranges, mut within) =
                (Ranges::default(), Within { named: Named::default(), call: Call::default() });
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                ranges.read(&attribute);
                within.named.read(attribute.name(), attribute.value());
                within.call.read(&attribute);
            }
            budget.take_bytes(entries.next_offset().0 - at)?;
            let is_function = abbreviation.tag() == gimli::DW_TAG_subprogram;
            let inside = self.inside(ranges, is_function, unit, budget)?;
            if is_function {
                missing = missing.saturating_sub(inside.len());
            }
            self.enter(depth, inside, within, abbreviation.has_children());
        }
        Ok(())
    }

    /// Returns the addresses in an entry: among those of its function, or among those that are in no function yet. All indexes are in
    /// bounds: they come from searches in these lists.
    fn inside(
        &self,
        ranges: Ranges<'d>,
        is_function: bool,
        unit: UnitRef<'_, 'd>,
        budget: &mut Budget,
    ) -> Result<Vec<usize>> {
        let mut inside = BTreeSet::new();
        let around = self.scopes.last().map_or(&[][..], |scope| &scope.inside);
        ranges.each(unit, budget, |from, to| {
            if is_function {
                let places = between(self.addresses, from, to);
                inside.extend(places.clone().filter(|&place| self.chains[place].is_empty()));
                places.len()
            } else {
                let first = around.partition_point(|&place| self.addresses[place] < from);
                let count = around[first..].iter().take_while(|&&place| self.addresses[place] < to).count();
                let is_room = |place: &usize| self.chains[*place].len() < DEEPEST;
                inside.extend(around[first..first + count].iter().copied().filter(is_room));
                count
            }
        })?;
        budget.hold(inside.len() * size_of::<Within<'_>>())?;
        Ok(inside.into_iter().collect())
    }

    fn enter(&mut self, depth: isize, inside: Vec<usize>, within: Within<'d>, has_children: bool) {
        for &place in &inside {
            self.chains[place].push(within);
        }
        // A nested entry of an entry without requested addresses has none either.
        let is_news = !inside.is_empty() || self.scopes.last().is_some_and(|scope| !scope.inside.is_empty());
        if has_children && is_news {
            self.scopes.push(Scope { depth, inside });
        }
    }
}

impl Call {
    fn read(&mut self, attribute: &gimli::Attribute<Bytes<'_>>) {
        match attribute.name() {
            gimli::DW_AT_call_file => {
                self.file = match attribute.value() {
                    gimli::AttributeValue::FileIndex(file) => Some(file),
                    _ => attribute.udata_value(),
                };
            }
            gimli::DW_AT_call_line => {
                let line = attribute.udata_value().unwrap_or(0);
                self.line = u32::try_from(line).unwrap_or(0);
            }
            _ => {}
        }
    }
}
