//! Which waits are included: by the type of the lock, by the lock, and by the functions of the call chain.

use anyhow::Context as _;

use super::args::ContentionArgs;
use super::kind::LockKind;
use crate::cli::follow::Functions;
use crate::cli::observe::Failure;
use crate::host::Roots;
use crate::probe::kallsyms::variable_addresses;

/// Each list is empty if all waits are included.
#[derive(Debug, Default)]
pub(super) struct Filter {
    kinds: Vec<LockKind>,
    /// Addresses of locks.
    locks: Vec<u64>,
    /// Texts in the names of functions.
    functions: Vec<String>,
}

impl Filter {
    /// Finds the locks.
    ///
    /// # Errors
    /// The kernel has no variable with one of the names, or does not show addresses.
    pub(super) fn new(args: &ContentionArgs, roots: &Roots) -> Result<Self, Failure> {
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let (mut locks, mut names) = (Vec::new(), Vec::new());
        for lock in &args.lock_filter {
            match number(lock) {
                Some(address) => locks.push(address),
                None => names.push(lock.as_str()),
            }
        }
        let found =
            if names.is_empty() { Vec::new() } else { variable_addresses(roots, &names).context("-L")? };
        for (name, address) in names.iter().zip(found) {
            let absent = || {
                Failure::Usage(anyhow::anyhow!(
                    "-L {name}: the kernel lists no variable of this name; its lists have variables with CONFIG_KALLSYMS_ALL"
                ))
            };
            locks.push(address.ok_or_else(absent)?);
        }
        let kinds = args.type_filter.iter().flat_map(|kinds| kinds.iter().copied()).collect();
        Ok(Self { kinds, locks, functions: args.callstack_filter.clone() })
    }

    /// Reports whether call chains are needed.
    pub(super) fn by_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Reports whether waits for this lock are included.
    pub(super) fn has_lock(&self, kind: LockKind, lock: u64) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.locks.is_empty() || self.locks.contains(&lock))
    }

    /// Reports whether waits with this call chain are included.
    pub(super) fn has_chain(&self, chain: &[u64], functions: &Functions) -> bool {
        let is_wanted = |&address: &u64| {
            let name = functions.name(address);
            self.functions.iter().any(|text| name.contains(text))
        };
        self.functions.is_empty() || chain.iter().any(is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_filters_must_include_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let symbols = "ffffffff81000100 T vm_mmap_pgoff\nffffffff81000200 T do_syscall_64\n";
        std::fs::write(dir.path().join("proc/kallsyms"), symbols).unwrap();
        let functions = Functions::read(&Roots::under(dir.path()));
        let filter = Filter {
            kinds: vec![LockKind::Mutex],
            locks: vec![7],
            functions: vec!["mmap".into(), "brk".into()],
        };
        assert!(filter.has_lock(LockKind::Mutex, 7));
        assert!(!filter.has_lock(LockKind::Mutex, 8) && !filter.has_lock(LockKind::Spinlock, 7));
        assert!(filter.has_chain(&[0xffff_ffff_8100_0210, 0xffff_ffff_8100_0110], &functions));
        assert!(!filter.has_chain(&[0xffff_ffff_8100_0210], &functions));
        let all = Filter::default();
        assert!(all.has_lock(LockKind::Spinlock, 1) && all.has_chain(&[], &functions));
    }
}
