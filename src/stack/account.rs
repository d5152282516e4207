//! What could not be had, and why.

use super::Cut;
use crate::words::words;

words! {
    /// Why something is missing from stacks. Each is counted once where it happens: a file when it is seen first, a sample
    /// when it is taken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Loss {
        /// A sample had neither a call chain nor an address.
        NoStack = "no_stack",
        /// A process has more mappings, or a longer list of them, than are read; the rest of it is not known.
        MapsCut = "maps_cut",
        /// This process may not read what another one has mapped.
        MapsForbidden = "maps_forbidden",
        /// The process had ended before anybody looked.
        MapsGone = "maps_gone",
        /// The list of mappings could not be read for another reason.
        MapsBroken = "maps_broken",
        /// Processes were forgotten because there were too many. What they have mapped is read again when it is needed.
        ProcessesFull = "processes_full",
        /// There is no room for another file.
        ModulesFull = "modules_full",
        /// A file, or the process that mapped it, was gone before it could be opened.
        FileGone = "file_gone",
        /// This process may not open a file.
        FileForbidden = "file_forbidden",
        /// Another file is at the path of the one that was mapped.
        FileReplaced = "file_replaced",
        /// A file could not be opened for another reason.
        FileBroken = "file_broken",
        /// The file system of a file, or of a list of mappings, did not answer in time. The file is opened when it does.
        FileStuck = "file_stuck",
        /// A file has nothing that says how to unwind its functions.
        UnwindAbsent = "unwind_absent",
        /// Call frame information of a file is damaged, or of a kind that could take any time.
        UnwindBroken = "unwind_broken",
        /// A sample was unwound by frame pointers in part, because the byte limit has no room for the index of a file.
        UnwindLarge = "unwind_large",
        /// A sample was unwound by frame pointers in part, because call frame information has not been read yet.
        UnwindLater = "unwind_later",
    }
}

/// Totals since the beginning, which only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    samples: u64,
    cuts: [u64; Cut::ALL.len()],
    losses: [u64; Loss::ALL.len()],
}

impl Accounts {
    /// How many samples were taken.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How many of them have a stack that was cut for this reason.
    pub fn cut(&self, cut: Cut) -> u64 {
        self.cuts[cut as usize]
    }

    /// How often something was lost for this reason.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses[loss as usize]
    }

    pub(super) fn take(&mut self, cut: Option<Cut>) {
        self.samples += 1;
        if let Some(cut) = cut {
            // There is a place for each, in the order in which they are declared.
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
        for (place, &cut) in Cut::ALL.iter().enumerate() {
            assert_eq!(cut as usize, place);
            accounts.take(Some(cut));
        }
        assert!(Loss::ALL.iter().all(|&loss| accounts.lost(loss) == 1));
        assert!(Cut::ALL.iter().all(|&cut| accounts.cut(cut) == 1));
        assert_eq!(accounts.samples(), 4);
        let words: BTreeSet<_> = Loss::ALL.iter().map(|loss| loss.as_str()).collect();
        assert_eq!(words.len(), Loss::ALL.len());
    }
}
