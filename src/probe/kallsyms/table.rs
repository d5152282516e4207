//! All functions of the kernel by address, kept.

use std::sync::Arc;

use super::{FUNCTION_LIMIT, KallsymsError, Symbol, symbols, text};
use crate::error::{FileError, FileErrorKind};
use crate::host::{self, Roots};

/// All functions of the kernel by address: 16 bytes for each, and its name. The 122 000 of a distribution's kernel take
/// 5 MB.
#[derive(Debug)]
pub struct Table {
    /// Sorted by address, one at each.
    entries: Box<[Entry]>,
    /// Names, each with a NUL behind it.
    names: Box<[u8]>,
    /// What the entries are in; the first is the kernel itself.
    ranges: Box<[Range]>,
}

/// The kernel itself, or a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The name of the module; `None` for the kernel itself.
    pub module: Option<Arc<str>>,
    /// The first address of its functions.
    pub start: u64,
    /// The end of the last one, as far as it is known. It is not in it.
    pub limit: u64,
}

/// A function that an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'t> {
    /// Its first address.
    pub start: u64,
    /// Its name.
    pub name: &'t str,
    /// What it is in: a place in [`Table::ranges`].
    pub range: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    /// Where the name begins; [`NONE`] for what is no function, and ends the one before.
    name: u32,
    range: u16,
    is_local: bool,
}

const NONE: u32 = u32::MAX;

impl Table {
    /// Reads all functions, if they and their names take no more than `limit` bytes.
    ///
    /// # Errors
    /// [`KallsymsError::Hidden`] if this process may not know where functions are; [`KallsymsError::Absent`],
    /// [`KallsymsError::Forbidden`] and [`KallsymsError::Unreadable`] for the file itself.
    pub fn read(roots: &Roots, limit: usize) -> Result<Self, KallsymsError> {
        let mut reading = Reading { limit, ..Reading::default() };
        reading.ranges.push(Range { module: None, start: u64::MAX, limit: 0 });
        symbols(roots, |symbol| reading.take(&symbol))?;
        if !reading.seen {
            let restrict = host::read_number(&roots.proc.join("sys/kernel/kptr_restrict")).ok();
            return Err(KallsymsError::Hidden { restrict });
        }
        if reading.full {
            let kind = FileErrorKind::TooLarge { limit: limit as u64 };
            return Err(KallsymsError::Unreadable(FileError { path: roots.proc.join("kallsyms"), kind }));
        }
        Ok(reading.sorted())
    }

    /// The function that an address is in. The last one of a module ends with it, or after 256 KiB.
    pub fn find(&self, address: u64) -> Option<At<'_>> {
        let place = self.entries.partition_point(|entry| entry.address <= address).checked_sub(1)?;
        let entry = self.entries.get(place).filter(|entry| entry.name != NONE)?;
        let name = name_at(&self.names, entry.name);
        let near = address - entry.address < FUNCTION_LIMIT;
        let name = std::str::from_utf8(name).ok().filter(|_| near)?;
        Some(At { start: entry.address, name, range: entry.range.into() })
    }

    /// The kernel itself, and its modules.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.name != NONE).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + self.names.len() + size_of_val(&*self.ranges)
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[derive(Default)]
struct Reading {
    limit: usize,
    entries: Vec<Entry>,
    names: Vec<u8>,
    ranges: Vec<Range>,
    /// The range of the symbol before: those of a module are in one piece.
    last: u16,
    /// Whether there was any address.
    seen: bool,
    full: bool,
}

impl Reading {
    fn take(&mut self, symbol: &Symbol<'_>) {
        if symbol.address == 0 {
            return;
        }
        self.seen = true;
        let taken = size_of_val(&*self.entries) + self.names.len();
        let needed = taken + size_of::<Entry>() + symbol.name.len() + 1;
        let range = self.range(symbol.module);
        let at = u32::try_from(self.names.len()).ok().filter(|&at| at != NONE && needed <= self.limit);
        let (Some(range), Some(at)) = (range, at) else {
            self.full = true;
            return;
        };
        let name = if symbol.is_text {
            self.names.extend_from_slice(symbol.name);
            self.names.push(0);
            at
        } else {
            NONE
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

    fn sorted(mut self) -> Table {
        let names = self.names;
        // At one address: functions before all else, and of their names the one with the fewest underscores in front,
        // then one that is known everywhere, then the shortest. So it is __x64_sys_getppid, not __do_sys_getppid.
        self.entries.sort_unstable_by_key(|entry| {
            let name = if entry.name == NONE { &[][..] } else { name_at(&names, entry.name) };
            let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
            (entry.address, entry.name == NONE, underscores, entry.is_local, name.len(), entry.name)
        });
        self.entries.dedup_by_key(|entry| entry.address);
        let starts: Vec<u64> = self.entries.iter().skip(1).map(|entry| entry.address).collect();
        for (place, entry) in self.entries.iter().enumerate() {
            if let Some(range) = self.ranges.get_mut(usize::from(entry.range))
                && entry.name != NONE
            {
                let next = starts.get(place).copied().unwrap_or(u64::MAX);
                let end = next.min(entry.address.saturating_add(FUNCTION_LIMIT));
                range.start = range.start.min(entry.address);
                range.limit = range.limit.max(end);
            }
        }
        // Of what is no function only the beginning counts, for it ends the function before.
        self.entries.dedup_by(|next, kept| next.name == NONE && kept.name == NONE);
        Table { entries: self.entries.into(), names: names.into(), ranges: self.ranges.into() }
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
            let at: At<'_> = table.find(address)?;
            let module = table.ranges()[at.range].module.as_deref();
            Some((at.start, at.name, module))
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
            assert_eq!(found(address), expected, "{address:#x}");
        }
        assert_eq!(table.len(), 5);
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
        assert_eq!(table.find(0xffff_ffff_8100_0010).map(|at| at.name), Some("__x64_sys_getppid"));
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
        println!("{} functions, {} bytes", table.len(), table.bytes());
        assert!(table.len() > 10_000 && table.bytes() < 16 << 20);
        let addresses: Vec<u64> = table.entries.iter().step_by(997).map(|entry| entry.address + 1).collect();
        let names = super::super::names(&roots, &addresses).unwrap();
        let alike = addresses
            .iter()
            .zip(&names)
            .filter(|(address, name)| table.find(**address).map(|at| at.name) == name.as_deref());
        // They may choose differently among the names of one address.
        let alike = alike.count();
        assert!(alike * 10 >= names.len() * 8, "{alike} of {}", names.len());
    }
}
