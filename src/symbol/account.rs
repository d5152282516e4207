//! Why code has no name, and how often.

use crate::words::words;

words! {
    /// Why a frame has no name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Reason {
        /// The file could not be opened when it was mapped.
        NoFile = "no_file",
        /// The file could not be read.
        Unreadable = "unreadable",
        /// It is no ELF file.
        NotElf = "not_elf",
        /// It is ELF, and breaks the format.
        Damaged = "damaged",
        /// Somebody has written into it since it was read.
        Changed = "changed",
        /// It has more functions at nearly one address than there is memory for, or a table of symbols of more than 256 MiB.
        TooLarge = "too_large",
        /// It has no functions with names at all, and no debug file was found.
        NoSymbols = "no_symbols",
        /// It has only the names that it exports, no debug file was found, and none of them is there.
        Stripped = "stripped",
        /// It has all its names, and none is there: code that a linker or an assembler made.
        Between = "between",
        /// Nothing was mapped there that we know of.
        Unmapped = "unmapped",
        /// Code that was made at run time, by a process that tells nobody what it made (`/tmp/perf-PID.map`), or that ended
        /// before it was asked.
        MapMissing = "map_missing",
        /// It tells, and this process may not read it; or somebody else than the process's user wrote it.
        MapForbidden = "map_forbidden",
        /// It tells, and what it tells could not be read.
        MapUnreadable = "map_unreadable",
        /// It tells, and does not tell of this address.
        NotInMap = "not_in_map",
        /// The files that tell were not read to their end: they grow, or are rewritten, faster than they are read.
        MapBehind = "map_behind",
        /// The files tell of more functions than there is memory for, and this one may be one that was dropped.
        MapFull = "map_full",
        /// The kernel hides where its functions are from this process.
        KernelForbidden = "kernel_forbidden",
        /// The kernel's list of functions could not be read.
        KernelUnreadable = "kernel_unreadable",
        /// The kernel does not list a function there.
        KernelUnknown = "kernel_unknown",
        /// Tables of symbols were read as fast as they may be. It gets its name when it is asked for again.
        Postponed = "postponed",
    }
}

/// How many frames were asked for, and what became of them. Everything only grows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    /// Frames with a name.
    pub named: u64,
    /// Ends of stacks that were cut off, which have none.
    pub cut: u64,
    /// Lines of perf maps and records of jitdump files that could not be understood.
    pub malformed: u64,
    /// Functions made at run time, by programs or by the kernel, that were dropped because the memory was used up.
    pub dropped: u64,
    /// Frames without a name, by reason, in the order of [`Reason::ALL`].
    unnamed: [u64; Reason::ALL.len()],
}

impl Accounts {
    /// Frames without a name, and why.
    pub fn unnamed(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().zip(self.unnamed)
    }

    /// Frames without a name for one reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.unnamed.get(reason as usize).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, reason: Option<Reason>) {
        match reason.and_then(|reason| self.unnamed.get_mut(reason as usize)) {
            Some(count) => *count += 1,
            None => self.named += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_an_account_and_a_word_of_its_own() {
        let mut accounts = Accounts::default();
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            accounts.count(Some(reason));
            assert_eq!(accounts.of(reason), 1);
        }
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(accounts.unnamed().all(|(_, count)| count == 1));
    }
}
