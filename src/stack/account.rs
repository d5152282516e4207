//! Counters of missing data, by reason.

use super::Truncation;
use crate::named_enum::named_enum;

named_enum! {
    /// The reason why something is missing from stacks. Each is counted once where it happens: for a file when it is first mapped, for a
    /// sample when it is analyzed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Loss {
        /// A sample had neither a call chain nor an address.
        NoStack = "no_stack",
        /// A process has more mappings, or a longer list of them, than the limit; the remaining mappings are unknown.
        MapsCut = "maps_cut",
        /// The exporter has no permission to read the mappings of a process.
        MapsForbidden = "maps_forbidden",
        /// The process had exited before its mappings were read.
        MapsGone = "maps_gone",
        /// The mappings could not be read for another reason.
        MapsBroken = "maps_broken",
        /// Processes were dropped because their table was full. Their mappings are read again when needed.
        ProcessesFull = "processes_full",
        /// The table of files is full.
        ModulesFull = "modules_full",
        /// A file, or the process that mapped it, was gone before the file could be opened.
        FileGone = "file_gone",
        /// The exporter has no permission to open a file.
        FileForbidden = "file_forbidden",
        /// The path of a mapped file now leads to another file.
        FileReplaced = "file_replaced",
        /// A file could not be opened for another reason.
        FileBroken = "file_broken",
        /// Access to a file, or to a list of mappings, timed out. The file is opened when its file system responds again.
        FileStuck = "file_stuck",
        /// A file has no unwind information.
        UnwindAbsent = "unwind_absent",
        /// Call frame information of a file is damaged, or could take unbounded time to evaluate.
        UnwindBroken = "unwind_broken",
        /// A sample was unwound by frame pointers in part, because the index of a file exceeds the memory limit.
        UnwindLarge = "unwind_large",
        /// A sample was unwound by frame pointers in part, because call frame information has not been read yet.
        UnwindLater = "unwind_later",
    }
}

/// Totals since the start, which only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    cuts: [u64; Truncation::ALL.len()],
    losses: [u64; Loss::ALL.len()],
}

impl Accounts {
    /// Returns the number of samples whose stack was truncated for this reason.
    pub fn cut(&self, cut: Truncation) -> u64 {
        self.cuts[cut as usize]
    }

    /// Returns how often something was missing for this reason.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses[loss as usize]
    }

    pub(super) fn take(&mut self, cut: Option<Truncation>) {
        if let Some(cut) = cut {
            // Each reason has an element, in the order of declaration.
            self.cuts[cut as usize] += 1;
        }
    }

    pub(super) fn lose(&mut self, loss: Loss) {
        // As above.
        self.losses[loss as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_place_and_a_word_of_its_own() {
        let mut accounts = Accounts::default();
        for (place, &loss) in Loss::ALL.iter().enumerate() {
            assert_eq!(loss as usize, place);
            accounts.lose(loss);
        }
        for (place, &cut) in Truncation::ALL.iter().enumerate() {
            assert_eq!(cut as usize, place);
            accounts.take(Some(cut));
        }
        assert!(Loss::ALL.iter().all(|&loss| accounts.lost(loss) == 1));
        assert!(Truncation::ALL.iter().all(|&cut| accounts.cut(cut) == 1));
        let words: BTreeSet<_> = Loss::ALL.iter().map(|loss| loss.as_str()).collect();
        assert_eq!(words.len(), Loss::ALL.len());
    }
}
