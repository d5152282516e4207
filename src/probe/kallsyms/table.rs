//! In-memory table of all kernel functions by address.
//!
//! The kernel generates `/proc/kallsyms` for each reader, so it cannot be read in part. So the whole list is kept in packed form. Addresses
//! are stored as differences (3 to 4 bytes per function). Names are compressed in pieces of 4 KiB, of which a lookup decompresses one (6
//! bytes per function). The 122 000 functions of a distribution's kernel take 1.1 MB.

mod names;

use std::sync::Arc;

use self::names::Names;
use super::{FUNCTION_LIMIT, KallsymsError, Symbol, symbols, text};
use crate::error::{FileError, FileErrorKind};
use crate::host::Roots;
use crate::probe::packed::{Packed, Packing};

/// Maximum memory during reading and sorting, as a multiple of the table's limit.
const READING: usize = 4;

/// All kernel functions by address.
#[derive(Debug)]
pub struct Table {
    /// Start addresses of functions, without duplicates, and of other symbols that end the previous function. The number is the index of
    /// the name, or [`NONE`].
    list: Packed,
    names: Names,
    /// The kernel itself, followed by its modules.
    ranges: Box<[Range]>,
    /// Start addresses from which entries belong to a range, with the index of the range.
    switches: Box<[(u64, u16)]>,
}

/// The kernel itself, or a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The module name; `None` for the kernel itself.
    pub module: Option<Arc<str>>,
    /// First address of its functions.
    pub start: u64,
    /// Known end of its last function (exclusive).
    pub limit: u64,
}

/// The function that contains an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// First address.
    pub start: u64,
    /// End address (exclusive): the start of the next symbol, or 256 KiB after the start.
    pub end: u64,
    /// The function name.
    pub name: String,
    /// Index in [`Table::ranges`].
    pub range: usize,
}

/// A symbol during reading.
#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    /// Offset of the name. [`NO_NAME`] for a symbol that is not a function and ends the previous one.
    name: u32,
    range: u16,
    is_local: bool,
}

const NO_NAME: u32 = u32::MAX;
/// Number of a symbol that is not a function. Name indices in the list are stored plus one.
const NONE: u32 = 0;

impl Table {
    /// Reads all functions, if the table takes at most `limit` bytes. Temporarily takes up to four times as much.
    ///
    /// # Errors
    /// [`KallsymsError::Hidden`] if this process may not see addresses. [`KallsymsError::Absent`], [`KallsymsError::Forbidden`] and
    /// [`KallsymsError::Unreadable`] for the file itself.
    pub fn read(roots: &Roots, limit: usize) -> Result<Self, KallsymsError> {
        let mut reading = Reading { limit: limit.saturating_mul(READING), ..Reading::default() };
        reading.ranges.push(Range { module: None, start: u64::MAX, limit: 0 });
        symbols(roots, |symbol| reading.take(&symbol))?;
        if !reading.seen {
            return Err(KallsymsError::hidden(roots));
        }
        let table = if reading.full { None } else { reading.packed() };
        table.filter(|table| table.bytes() <= limit).ok_or_else(|| {
            let kind = FileErrorKind::TooLarge { limit: limit as u64 };
            KallsymsError::Unreadable(FileError { path: roots.proc.join("kallsyms"), kind })
        })
    }

    /// Returns the function that contains an address. A module's last function ends with the module, or after 256 KiB. Decompresses 4 KiB.
    pub fn find(&self, address: u64) -> Option<At> {
        let (start, end, place) = self.place(address)?;
        let name = self.names.at(place)?;
        let switch = self.switches.partition_point(|&(from, _)| from <= start).checked_sub(1)?;
        let range = self.switches.get(switch).map(|&(_, range)| range.into())?;
        Some(At { start, end, name, range })
    }

    /// Reports whether an address is in a function.
    pub fn covers(&self, address: u64) -> bool {
        self.place(address).is_some()
    }

    /// Returns the range of the function that contains an address, and the index of its name.
    fn place(&self, address: u64) -> Option<(u64, u64, u32)> {
        let near = self.list.near(address, 1);
        let &(start, number) = near.before.first()?;
        let end = near.next.unwrap_or(u64::MAX).min(start.saturating_add(FUNCTION_LIMIT));
        let place = number.checked_sub(1)?;
        (address < end).then_some((start, end, place))
    }

    /// Returns the kernel itself and its modules.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns the memory usage, in bytes.
    pub fn bytes(&self) -> usize {
        self.list.bytes() + self.names.bytes() + size_of_val(&*self.ranges) + size_of_val(&*self.switches)
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    memchr::memchr(0, rest).and_then(|end| rest.get(..end)).unwrap_or_default()
}

#[derive(Default)]
struct Reading {
    /// Memory limit in bytes.
    limit: usize,
    entries: Vec<Entry>,
    names: Vec<u8>,
    ranges: Vec<Range>,
    /// Range of the previous symbol. The symbols of a module are consecutive.
    last: u16,
    /// Whether any address was nonzero.
    seen: bool,
    full: bool,
}

impl Reading {
    fn take(&mut self, symbol: &Symbol<'_>) {
        if symbol.address == 0 {
            return;
        }
        self.seen = true;
        if self.full {
            return;
        }
        let taken = size_of_val(&*self.entries) + self.names.len();
        let needed = taken + size_of::<Entry>() + symbol.name.len() + 1;
        let range = self.range(symbol.module);
        let at = u32::try_from(self.names.len()).ok().filter(|&at| at != NO_NAME && needed <= self.limit);
        let (Some(range), Some(at)) = (range, at) else {
            self.full = true;
            return;
        };
        let name = if symbol.is_text {
            self.names.extend_from_slice(symbol.name);
            self.names.push(0);
            at
        } else {
            NO_NAME
        };
        self.entries.push(Entry { address: symbol.address, name, range, is_local: symbol.is_local });
    }

    fn range(&mut self, module: Option<&[u8]>) -> Option<u16> {
        let is = |range: &Range| range.module.as_deref().map(str::as_bytes) == module;
        if !self.ranges.get(usize::from(self.last)).is_some_and(is) {
            let place = self.ranges.iter().position(is).unwrap_or_else(|| {
                self.ranges.push(Range { module: module.map(text), start: u64::MAX, limit: 0 });
                self.ranges.len() - 1
            });
            self.last = u16::try_from(place).ok()?;
        }
        Some(self.last)
    }

    fn sort(&mut self) {
        let names = &self.names;
        // Order at one address: functions before other symbols, then fewest leading underscores, global before local, then shortest. So
        // __x64_sys_getppid is preferred to __do_sys_getppid.
        let key = |entry: &Entry| {
            let name = if entry.name == NO_NAME { &[][..] } else { name_at(names, entry.name) };
            let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
            (entry.name == NO_NAME, underscores, entry.is_local, name.len(), entry.name)
        };
        self.entries.sort_unstable_by(|one, other| {
            // Few symbols share an address, so few names are compared.
            one.address.cmp(&other.address).then_with(|| key(one).cmp(&key(other)))
        });
        self.entries.dedup_by_key(|entry| entry.address);
        let starts = self.entries.iter().skip(1).map(|entry| entry.address).chain([u64::MAX]);
        for (entry, next) in self.entries.iter().zip(starts) {
            if let Some(range) = self.ranges.get_mut(usize::from(entry.range))
                && entry.name != NO_NAME
            {
                let end = next.min(entry.address.saturating_add(FUNCTION_LIMIT));
                range.start = range.start.min(entry.address);
                range.limit = range.limit.max(end);
            }
        }
        // Of consecutive symbols that are not functions, only the first is needed, to end the previous function.
        self.entries.dedup_by(|next, kept| next.name == NO_NAME && kept.name == NO_NAME);
    }

    /// Packs the table. `None` if an index does not fit its type.
    fn packed(mut self) -> Option<Table> {
        self.sort();
        let (mut list, mut names, mut switches) = (Packing::default(), names::Packing::default(), Vec::new());
        let mut last = None;
        for entry in &self.entries {
            let number = if entry.name == NO_NAME {
                NONE
            } else {
                names.push(name_at(&self.names, entry.name))?.checked_add(1)?
            };
            if last != Some(entry.range) {
                last = Some(entry.range);
                switches.push((entry.address, entry.range));
            }
            if !list.push(entry.address, number) {
                return None;
            }
        }
        let (list, names, ranges) = (list.finish(), names.finish()?, self.ranges.into());
        Some(Table { list, names, ranges, switches: switches.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000100 T tcp_sendmsg
ffffffff81000190 t helper
ffffffff81000300 D _sdata
ffffffff81000310 D more
ffffffffc0100000 t helper\t[nf_tables]
ffffffffc0000000 t nf_in\t[nf_conntrack]
ffffffffc0000100 d table\t[nf_conntrack]
";

    fn functions(table: &Table) -> usize {
        table.list.iter().filter(|&(_, name)| name != NONE).count()
    }

    fn host(symbols: &str) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/kallsyms"), symbols).unwrap();
        let roots = Roots::under(dir.path());
        (dir, roots)
    }

    #[test]
    fn an_address_is_in_the_function_before_it_until_anything_else_begins() {
        let (_dir, roots) = host(SYMBOLS);
        let table = Table::read(&roots, 1 << 20).unwrap();
        let found = |address| {
            let at = table.find(address)?;
            assert!((at.start..at.end).contains(&address), "{at:?}");
            Some((at.start, at.name, table.ranges()[at.range].module.clone()))
        };
        let cases = [
            (0xffff_ffff_8100_0000, Some((0xffff_ffff_8100_0000, "first", None))),
            (0xffff_ffff_8100_018f, Some((0xffff_ffff_8100_0100, "tcp_sendmsg", None))),
            (0xffff_ffff_8100_02ff, Some((0xffff_ffff_8100_0190, "helper", None))),
            (0xffff_ffff_8100_0311, None),
            (0xffff_ffff_c000_00ff, Some((0xffff_ffff_c000_0000, "nf_in", Some("nf_conntrack")))),
            (0xffff_ffff_c000_0100, None),
            (0xffff_ffff_c010_0001, Some((0xffff_ffff_c010_0000, "helper", Some("nf_tables")))),
            (0xffff_ffff_c014_0000, None),
            (0, None),
            (u64::MAX, None),
        ];
        for (address, expected) in cases {
            let found = found(address);
            let found = found.as_ref().map(|(start, name, module)| (*start, &**name, module.as_deref()));
            assert_eq!(found, expected, "{address:#x}");
        }
        assert_eq!(functions(&table), 5);
        let kernel = Range { module: None, start: 0xffff_ffff_8100_0000, limit: 0xffff_ffff_8100_0300 };
        assert_eq!(table.ranges()[0], kernel);
    }

    #[test]
    fn of_the_names_of_a_system_call_its_own_is_taken() {
        let (_dir, roots) = host(
            "ffffffff81000010 t __do_sys_getppid\n\
             ffffffff81000010 T __ia32_sys_getppid\n\
             ffffffff81000010 T __x64_sys_getppid\n",
        );
        let table = Table::read(&roots, 1 << 20).unwrap();
        assert_eq!(table.find(0xffff_ffff_8100_0010).map(|at| at.name).as_deref(), Some("__x64_sys_getppid"));
    }

    #[test]
    fn zeros_for_addresses_are_a_missing_permission() {
        let (_dir, roots) = host("0000000000000000 T _stext\n0000000000000000 t helper\n");
        assert_eq!(Table::read(&roots, 1 << 20).unwrap_err(), KallsymsError::Hidden { restrict: None });
    }

    #[test]
    fn a_table_that_needs_more_memory_than_it_may_have_is_refused() {
        let (_dir, roots) = host(SYMBOLS);
        assert!(matches!(Table::read(&roots, 64), Err(KallsymsError::Unreadable(_))));
    }

    #[test]
    fn the_running_kernels_table_agrees_with_what_is_read_for_each_question() {
        let roots = Roots::default();
        let table = match Table::read(&roots, 64 << 20) {
            Ok(table) => table,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let functions = functions(&table);
        println!("{functions} functions, {} bytes", table.bytes());
        // The names alone have about 25 bytes each.
        assert!(functions > 10_000 && table.bytes() < 14 * functions);
        let addresses: Vec<u64> = table.list.iter().step_by(997).map(|(start, _)| start + 1).collect();
        let names = super::super::names(&roots, &addresses).unwrap();
        let alike = addresses
            .iter()
            .zip(&names)
            .filter(|(address, name)| table.find(**address).map(|at| at.name).as_deref() == name.as_deref());
        // The choice between several names of one address may differ.
        let alike = alike.count();
        assert!(alike * 10 >= names.len() * 8, "{alike} of {}", names.len());
    }
}
