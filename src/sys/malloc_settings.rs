//! Settings of the C library's allocator: a bounded number of arenas, and return of freed memory to the kernel.
//!
//! glibc creates up to eight arenas for each CPU, one for each thread that finds the others busy, and keeps free memory between
//! allocations. Other C libraries have no such settings.

/// Minimum amount of unused memory for which trimming is worthwhile, in bytes.
const WORTH: u64 = 4 << 20;

/// A call trims at least after this number of calls without a trim. An allocation that pins a page is small, so the excess does not show
/// when it is freed.
const LONGEST_PAUSE: u32 = 5;

/// Limits the number of arenas, and sets the size from which an allocation is a mapping of its own. Call this before threads are started:
/// existing arenas remain.
pub fn configure() {
    libc_allocator::configure();
}

/// Returns freed memory to the kernel if that is worthwhile.
#[derive(Debug, Default)]
pub struct Trimmer {
    /// Excess that remained after the last trim, in bytes.
    left: u64,
    /// Calls since the last trim.
    pause: u32,
}

impl Trimmer {
    /// Returns free memory to the kernel if it is at least 4 MiB, and either at least 4 MiB more than after the last trim, or the sixth
    /// call since then. `anonymous` measures the resident anonymous memory of this process, in bytes. Returns the number of bytes returned. Takes some
    /// milliseconds, in which other threads may wait for the allocator.
    pub fn trim(&mut self, anonymous: impl Fn() -> Option<u64>) -> u64 {
        let excess = |allocated: u64| anonymous().map(|resident| resident.saturating_sub(allocated));
        let Some(before) = libc_allocator::allocated().and_then(excess) else { return 0 };
        if before < WORTH || (before < self.left.saturating_add(WORTH) && self.pause < LONGEST_PAUSE) {
            self.left = self.left.min(before);
            self.pause += 1;
            return 0;
        }
        self.pause = 0;
        libc_allocator::trim();
        self.left = libc_allocator::allocated().and_then(excess).unwrap_or(before);
        before.saturating_sub(self.left)
    }
}

#[cfg(target_env = "gnu")]
mod libc_allocator {
    /// Two arenas: one for the thread that collects, one for the threads that read rings meanwhile.
    const ARENAS: libc::c_int = 2;
    /// Larger allocations are mappings, which are unmapped when they are freed. Smaller ones leave holes, which longer-lived allocations
    /// fragment: with 256 KiB, twelve minutes of overload left 5 MiB more.
    const MAPPING: libc::c_int = 64 << 10;
    /// More free memory than this at the end of the heap is returned at once.
    const TOP: libc::c_int = 1 << 20;

    pub(super) fn configure() {
        for (option, value) in
            [(libc::M_ARENA_MAX, ARENAS), (libc::M_MMAP_THRESHOLD, MAPPING), (libc::M_TRIM_THRESHOLD, TOP)]
        {
            // SAFETY: mallopt takes two numbers, changes the allocator's settings under its own lock, and rejects unknown options.
            unsafe { libc::mallopt(option, value) };
        }
    }

    /// Returns the number of allocated bytes.
    pub(super) fn allocated() -> Option<u64> {
        // SAFETY: mallinfo2 takes nothing and returns numbers by value; it locks each arena while it counts.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }

    pub(super) fn trim() {
        // SAFETY: malloc_trim only releases free pages, under the lock of each arena.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(target_env = "gnu"))]
mod libc_allocator {
    pub(super) fn configure() {}

    /// Returns `None`: unknown, and not needed, because jemalloc returns free pages by itself.
    pub(super) fn allocated() -> Option<u64> {
        None
    }

    pub(super) fn trim() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_back_where_nothing_is_known() {
        assert_eq!(Trimmer::default().trim(|| None), 0);
    }

    /// In a process of its own: other tests allocate memory at the same time.
    #[test]
    fn memory_between_what_is_still_held_goes_back() {
        if cfg!(not(target_env = "gnu")) {
            return;
        }
        let test = "sys::malloc_settings::tests::memory_of_this_process_goes_back";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--ignored", "--exact", test]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "only the other test starts it, in a process of its own"]
    fn memory_of_this_process_goes_back() {
        let resident = || crate::sys::usage::memory().map(|memory| memory.anonymous);
        let mut trimmer = Trimmer::default();
        trimmer.trim(resident);
        // Small blocks, of which every hundredth stays: the heap cannot shrink at its end.
        let blocks: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 1000]).collect();
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(100).collect();
        let returned = trimmer.trim(resident);
        assert!(returned > 10 << 20, "{returned} of 40 MB, {} blocks are kept", kept.len());
        drop(kept);

        // Small blocks that pin their pages, until they are freed as well. The last one stays.
        let blocks: Vec<(Vec<u8>, Box<u64>)> =
            (0..10_000).map(|number| (vec![1; 3000], Box::new(number))).collect();
        let mut pins: Vec<Box<u64>> = blocks.into_iter().map(|(_, pin)| pin).collect();
        trimmer.trim(resident);
        pins.drain(..pins.len() - 1);
        let returned: u64 = (0..6).map(|_| trimmer.trim(resident)).sum();
        assert!(returned > 10 << 20, "{returned} of 30 MB, {} block is kept", pins.len());
    }
}
