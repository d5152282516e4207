//! Names of kernel functions for the addresses in records.

use crate::error::printable;
use crate::host::Roots;
use crate::probe::kallsyms::{KallsymsError, Table};

/// Maximum memory of the names, in bytes. Those of a distribution's kernel take 1.1 MB.
const LIMIT: usize = 16 << 20;

/// The functions of the kernel, as of the start of the measurement.
#[derive(Debug)]
pub(in crate::cli) struct Functions {
    table: Result<Table, KallsymsError>,
}

impl Functions {
    /// Reads the names of all functions.
    pub(in crate::cli) fn read(roots: &Roots) -> Self {
        Self { table: Table::read(roots, LIMIT) }
    }

    /// Returns why there are no names; `None` if there are.
    pub(in crate::cli) fn problem(&self) -> Option<&KallsymsError> {
        self.table.as_ref().err()
    }

    /// Returns the addresses of the function that starts at or contains an address: the first, and the one after the last.
    pub(in crate::cli) fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.table.as_ref().ok()?.find(address).map(|at| (at.start, at.end))
    }

    /// Returns the name of the function; the address without a name.
    pub(in crate::cli) fn name(&self, address: u64) -> String {
        self.named(address).map_or_else(|| format!("{address:#x}"), |(name, _)| name)
    }

    /// Returns the function and the distance from its start, as perf shows them: `vm_mmap_pgoff+0xe0`. Without a name, the address.
    pub(in crate::cli) fn shown(&self, address: u64) -> String {
        let named = self.named(address).map(|(name, distance)| format!("{name}+{distance:#x}"));
        named.unwrap_or_else(|| format!("{address:#x}"))
    }

    /// Returns the name of the function, and the distance of the address from its start.
    fn named(&self, address: u64) -> Option<(String, u64)> {
        let at = self.table.as_ref().ok()?.find(address)?;
        Some((printable(&at.name), address - at.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_name_is_shown_as_a_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let symbols =
            "ffffffff81000000 T _stext\nffffffff81000100 T vm_mmap_pgoff\nffffffff81000200 D data\n";
        std::fs::write(dir.path().join("proc/kallsyms"), symbols).unwrap();
        let functions = Functions::read(&Roots::under(dir.path()));
        assert!(functions.problem().is_none());
        assert_eq!(functions.shown(0xffff_ffff_8100_01e0), "vm_mmap_pgoff+0xe0");
        assert_eq!(functions.shown(0xffff_ffff_9000_0000), "0xffffffff90000000");
        let none = Functions::read(&Roots::under(&dir.path().join("absent")));
        assert!(none.problem().is_some());
        assert_eq!(none.shown(0x10), "0x10");
        assert_eq!(
            (functions.name(0xffff_ffff_8100_01e0), none.name(0x10)),
            ("vm_mmap_pgoff".into(), "0x10".into())
        );
    }
}
