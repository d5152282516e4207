//! Names of variables in files and in the kernel.

use std::collections::BTreeMap;
use std::path::Path;

use super::demangle::demangle;
use crate::files::{Files, Root};
use crate::host;
use crate::probe::binary::Binary;
pub(crate) use crate::probe::binary::Object;
use crate::probe::debug_file::{DebugContents, find_debug_file};
use crate::stack::Module;

/// Maximum size of the kernel's list of symbols, in bytes.
const KALLSYMS: u64 = 256 << 20;
/// Maximum number of variables of the kernel.
const KERNEL_LIMIT: usize = 1 << 20;

/// Returns the variables at offsets in the file of a module, in their order. `None` where no symbol covers an offset, or if the file is
/// not open or cannot be read. Symbols of a stripped file are from its debug file.
pub(crate) fn objects(module: &Module, files: &Files, offsets: &[u64]) -> Vec<Option<Object>> {
    let find = || {
        let opened = module.file.as_ref().ok()?;
        let binary = Binary::read(&**opened, Path::new("")).ok()?;
        let beside = match binary.has_all_names() {
            true => None,
            false => {
                find_debug_file(files, &Root::Host, None, &module.path, &binary, DebugContents::AllNames).ok()
            }
        };
        let debug = beside.as_ref().and_then(|beside| beside.opened.binary().ok());
        let mut objects = binary.objects(debug.as_ref().unwrap_or(&binary), offsets).ok()?;
        for object in objects.iter_mut().flatten() {
            object.name = demangle(&object.name);
        }
        Some(objects)
    };
    find().unwrap_or_else(|| vec![None; offsets.len()])
}

/// Returns the variables of the running kernel at addresses, in their order. A variable extends to the next symbol. `None` if the kernel
/// hides its addresses from this user.
pub(crate) fn kernel_objects(files: &Files, addresses: &[u64]) -> Vec<Option<Object>> {
    // Names of variables, and of the code behind them `None`.
    let mut symbols: BTreeMap<u64, Option<String>> = BTreeMap::new();
    let read = host::lines(&files.roots().proc.join("kallsyms"), KALLSYMS, |line| {
        let mut words = line.split(u8::is_ascii_whitespace);
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (Some(address), Some(kind), Some(name)) = (word(), word(), word()) else { return };
        let Ok(address @ 1..) = u64::from_str_radix(address, 16) else { return };
        let is_data = matches!(kind, "b" | "B" | "d" | "D" | "r" | "R");
        // Symbols of per-CPU variables have the addresses of offsets.
        if symbols.len() < KERNEL_LIMIT && kind != "A" && kind != "a" {
            symbols.entry(address).or_insert_with(|| is_data.then(|| name.to_owned()));
        }
    });
    if read.is_err() {
        return vec![None; addresses.len()];
    }
    let find = |&address: &u64| {
        let (start, name) = symbols.range(..=address).next_back()?;
        // Behind the last symbol is nothing.
        symbols.range(address.checked_add(1)?..).next()?;
        Some(Object { name: name.clone()?, offset: address - start, is_function: false })
    };
    addresses.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Roots;

    #[test]
    fn a_variable_of_the_kernel_extends_to_the_next_symbol() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let list = "ffffffff81000000 T _text\nffffffff82000000 D jiffies\nffffffff82000040 d lock\t[ext4]\n\
                    ffffffff82000080 T after\n";
        std::fs::write(dir.path().join("proc/kallsyms"), list).unwrap();
        let files = Files::here(&Roots::under(dir.path()));
        let addresses =
            [0xffff_ffff_8200_0008, 0xffff_ffff_8200_0040, 0xffff_ffff_8100_0001, 0xffff_ffff_8200_0081, 1];
        let found = kernel_objects(&files, &addresses);
        let named =
            |object: &Option<Object>| object.as_ref().map(|object| (object.name.clone(), object.offset));
        let expected = [Some(("jiffies".to_owned(), 8)), Some(("lock".to_owned(), 0)), None, None, None];
        assert_eq!(found.iter().map(named).collect::<Vec<_>>(), expected);
        let nowhere = Files::here(&Roots::under(Path::new("/nonexistent")));
        assert_eq!(kernel_objects(&nowhere, &addresses), vec![None; 5]);
    }
}
