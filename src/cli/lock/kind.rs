//! Types of kernel locks.

use std::sync::Arc;

use crate::named_enum::named_enum;

/// Flags of `lock:contention_begin`, from the kernel's `include/trace/events/lock.h`.
const SPIN: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const RT: u64 = 1 << 3;
const PERCPU: u64 = 1 << 4;
const MUTEX: u64 = 1 << 5;

/// The types of locks that one word selects.
pub(super) type LockKinds = Arc<[LockKind]>;

named_enum! {
    /// The type of a lock, with the word that perf uses. `:R` is a wait of a reader, `:W` a wait of a writer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(super) enum LockKind {
        /// `struct semaphore`
        Semaphore = "semaphore",
        /// `spinlock_t`
        Spinlock = "spinlock",
        /// `rwlock_t`
        RwlockRead = "rwlock:R",
        /// `rwlock_t`
        RwlockWrite = "rwlock:W",
        /// `struct rw_semaphore`
        RwsemRead = "rwsem:R",
        /// `struct rw_semaphore`
        RwsemWrite = "rwsem:W",
        /// `struct rt_mutex`
        RtMutex = "rtmutex",
        /// `rwlock_t` and `struct rw_semaphore` of a kernel with `PREEMPT_RT`
        RwlockRtRead = "rwlock-rt:R",
        /// `rwlock_t` and `struct rw_semaphore` of a kernel with `PREEMPT_RT`
        RwlockRtWrite = "rwlock-rt:W",
        /// `struct percpu_rw_semaphore`
        PercpuRead = "pcpu-sem:R",
        /// `struct percpu_rw_semaphore`
        PercpuWrite = "pcpu-sem:W",
        /// `struct mutex`, whether the thread spins or sleeps
        Mutex = "mutex",
        /// Flags that a later kernel may add
        Unknown = "unknown",
    }
}

impl LockKind {
    /// Returns the type for the flags of `lock:contention_begin`.
    pub(super) fn of(flags: u64) -> Self {
        const READER: u64 = SPIN | READ;
        const WRITER: u64 = SPIN | WRITE;
        const RT_READER: u64 = RT | READ;
        const RT_WRITER: u64 = RT | WRITE;
        const PERCPU_READER: u64 = PERCPU | READ;
        const PERCPU_WRITER: u64 = PERCPU | WRITE;
        const SPINS_FOR_MUTEX: u64 = MUTEX | SPIN;
        match flags {
            0 => Self::Semaphore,
            SPIN => Self::Spinlock,
            READER => Self::RwlockRead,
            WRITER => Self::RwlockWrite,
            READ => Self::RwsemRead,
            WRITE => Self::RwsemWrite,
            RT => Self::RtMutex,
            RT_READER => Self::RwlockRtRead,
            RT_WRITER => Self::RwlockRtWrite,
            PERCPU_READER => Self::PercpuRead,
            PERCPU_WRITER => Self::PercpuWrite,
            MUTEX | SPINS_FOR_MUTEX => Self::Mutex,
            _ => Self::Unknown,
        }
    }

    /// Parses a type, or the common part of the types of readers and writers: `rwsem`.
    ///
    /// # Errors
    /// If there is no such type.
    pub(super) fn parse(text: &str) -> Result<LockKinds, String> {
        let is_wanted = |kind: &Self| {
            kind.as_str() == text || kind.as_str().split(':').next().is_some_and(|common| common == text)
        };
        let kinds: Arc<[Self]> = Self::ALL.into_iter().filter(is_wanted).collect();
        if kinds.is_empty() {
            return Err(format!("expected types of locks: {}", Self::ALL.map(Self::as_str).join(", ")));
        }
        Ok(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_types_of_perf() {
        for (flags, word) in [
            (0, "semaphore"),
            (0x1, "spinlock"),
            (0x3, "rwlock:R"),
            (0x2, "rwsem:R"),
            (0x4, "rwsem:W"),
            (0xc, "rwlock-rt:W"),
            (0x12, "pcpu-sem:R"),
            (0x20, "mutex"),
            (0x21, "mutex"),
            (0x40, "unknown"),
        ] {
            assert_eq!(LockKind::of(flags).as_str(), word, "{flags:#x}");
        }
    }
}
