//! The function that takes a lock, in a call chain that begins with functions of the lock itself.

use crate::cli::follow::Functions;
use crate::host::Roots;
use crate::probe::kallsyms::{KallsymsError, addresses};

/// First and last marks of the sections that the kernel puts functions of locks and of the scheduler into (`__lockfunc`, `__sched`).
const SECTIONS: [[&str; 2]; 2] =
    [["__sched_text_start", "__sched_text_end"], ["__lock_text_start", "__lock_text_end"]];

/// Functions that write the record.
const TRACING: [&str; 2] = ["__traceiter_contention_begin", "trace_contention_begin"];

/// The functions of locks.
#[derive(Debug, Default)]
pub(super) struct LockFunctions {
    /// Ranges of addresses. Each end is exclusive.
    ranges: Vec<(u64, u64)>,
}

impl LockFunctions {
    /// Finds the functions of this kernel.
    ///
    /// # Errors
    /// If the kernel does not show addresses.
    pub(super) fn read(roots: &Roots, functions: &Functions) -> Result<Self, KallsymsError> {
        let names: Vec<&str> = SECTIONS.iter().flatten().chain(&TRACING).copied().collect();
        let found = addresses(roots, &names)?;
        let (sections, tracing) = found.split_at_checked(2 * SECTIONS.len()).unwrap_or_default();
        let (sections, _) = sections.as_chunks::<2>();
        let sections = sections.iter().filter_map(|[start, end]| Some(((*start)?, (*end)?)));
        let tracing = tracing.iter().filter_map(|&address| functions.range(address?));
        Ok(Self { ranges: sections.chain(tracing).collect() })
    }

    /// Returns the address in a chain from which the lock was taken: the first after `skip` addresses that is not in a function of a lock.
    /// `None` if there is none, because the chain is too short.
    pub(super) fn caller(&self, chain: &[u64], skip: usize) -> Option<u64> {
        let is_caller =
            |address: &&u64| !self.ranges.iter().any(|(start, end)| (start..end).contains(address));
        chain.iter().skip(skip).find(is_caller).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000100 T vm_mmap_pgoff
ffffffff81000200 T do_syscall_64
ffffffff81000300 T __traceiter_contention_begin
ffffffff81000340 T other
ffffffff82000000 T __sched_text_start
ffffffff82000010 t rwsem_down_write_slowpath
ffffffff82000100 T __sched_text_end
ffffffff82000200 T __lock_text_start
ffffffff82000200 T _raw_spin_lock
ffffffff82000300 T __lock_text_end
";

    #[test]
    fn the_caller_is_the_first_function_outside_of_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/kallsyms"), SYMBOLS).unwrap();
        let roots = Roots::under(dir.path());
        let lock = LockFunctions::read(&roots, &Functions::read(&roots)).unwrap();
        let (trace, slow, spin) = (0xffff_ffff_8100_0310, 0xffff_ffff_8200_0050, 0xffff_ffff_8200_0210);
        let (mmap, syscall) = (0xffff_ffff_8100_01e0, 0xffff_ffff_8100_0210);
        assert_eq!(lock.caller(&[trace, slow, mmap, syscall], 0), Some(mmap));
        assert_eq!(lock.caller(&[spin, slow, mmap, syscall], 0), Some(mmap));
        assert_eq!(lock.caller(&[spin, slow, mmap, syscall], 3), Some(syscall));
        assert_eq!(lock.caller(&[mmap, slow], 0), Some(mmap));
        assert_eq!(lock.caller(&[slow], 0), None);
        assert_eq!(lock.caller(&[], 0), None);
        assert_eq!(
            lock.caller(&[0xffff_ffff_8200_0100], 0),
            Some(0xffff_ffff_8200_0100),
            "the end of a section"
        );
    }
}
