//! The entries of a unit: which function each address is in, and what was inlined there.

use std::collections::BTreeSet;

use gimli::UnitRef;

use super::name::{Named, Sought};
use super::ranges::Ranges;
use super::unit::{Opened, Units};
use super::{Budget, Bytes, Trouble};

/// How many functions may be inlined into each other; what is deeper is left out.
const DEEPEST: usize = 64;

/// A function that an address is in.
#[derive(Debug, Clone, Copy)]
struct Within<'d> {
    named: Named<'d>,
    call: Call,
}

/// From where an inlined function is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// A number in the table of files.
    pub(super) file: Option<u64>,
    /// From 1; 0 if it is not known.
    pub(super) line: u32,
}

/// A function with its name, and from where it is called if it was inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function<'d> {
    pub(super) name: Option<&'d [u8]>,
    pub(super) call: Call,
}

/// The functions that an address is in, outermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Functions<'d> {
    pub(super) levels: Vec<Function<'d>>,
    /// Whether a name is in another file.
    pub(super) elsewhere: bool,
}

/// Goes through the entries of a unit for some addresses.
pub(super) struct Walk<'a, 'd> {
    /// In order.
    addresses: &'a [u64],
    /// For each address, outermost first.
    chains: Vec<Vec<Within<'d>>>,
    /// The functions that the entry that comes next is in, and that have one of the addresses.
    scopes: Vec<Scope>,
}

/// A function, and which of the addresses are in it: none, if there is just none.
struct Scope {
    depth: isize,
    inside: Vec<usize>,
}

impl<'a, 'd> Walk<'a, 'd> {
    pub(super) fn new(addresses: &'a [u64]) -> Self {
        Self { addresses, chains: vec![Vec::new(); addresses.len()], scopes: Vec::new() }
    }

    /// Goes through all entries, without calling itself for what is nested, however deep that is.
    pub(super) fn walk(&mut self, unit: UnitRef<'_, Bytes<'d>>, budget: &mut Budget) -> Result<(), Trouble> {
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

    /// Which addresses are in an entry: of those that its function has, or of those that no function has yet. All places
    /// are in bounds: they come from searches in these lists.
    fn inside(
        &self,
        ranges: Ranges,
        is_function: bool,
        unit: UnitRef<'_, Bytes<'d>>,
        budget: &mut Budget,
    ) -> Result<Vec<usize>, Trouble> {
        let mut inside = BTreeSet::new();
        let around = self.scopes.last().map_or(&[][..], |scope| &scope.inside);
        ranges.each(unit, budget, |from, to| {
            if is_function {
                let first = self.addresses.partition_point(|&address| address < from);
                let count = self.addresses[first..].iter().take_while(|&&address| address < to).count();
                inside.extend((first..first + count).filter(|&place| self.chains[place].is_empty()));
                count
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
        // Within what has none of the addresses nothing else has.
        let is_news = !inside.is_empty() || self.scopes.last().is_some_and(|scope| !scope.inside.is_empty());
        if has_children && is_news {
            self.scopes.push(Scope { depth, inside });
        }
    }

    /// Gives the functions their names.
    pub(super) fn name(
        self,
        units: &mut Units<'d>,
        opened: &Opened<'d>,
        budget: &mut Budget,
    ) -> Result<Vec<Functions<'d>>, Trouble> {
        let mut all = Vec::with_capacity(self.chains.len());
        for chain in self.chains {
            let mut functions = Functions::default();
            for Within { named, call } in chain {
                // What is damaged here spoils one name.
                let sought = match named.seek(units, opened, budget) {
                    Err(Trouble::Exhausted) => return Err(Trouble::Exhausted),
                    Err(Trouble::Damaged) => Sought::Nowhere,
                    Ok(sought) => sought,
                };
                functions.elsewhere |= sought == Sought::Elsewhere;
                let name = if let Sought::Name(name) = sought { Some(name) } else { None };
                functions.levels.push(Function { name, call });
            }
            all.push(functions);
        }
        Ok(all)
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
