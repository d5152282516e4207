//! The memory limits of sampling.

use crate::budget::{MemoryBudget, Part, Share};

/// The shares of the memory budget that sampling uses. A reload changes their limits at run time.
#[derive(Debug, Clone)]
pub(crate) struct MemoryShares {
    /// Rings of samples. Their size is limited when they are opened; this share accounts for it.
    pub(crate) rings: Share,
    /// Unwind tables.
    pub(crate) unwind: Share,
    /// Symbol tables and names.
    pub(crate) symbols: Share,
    /// Stacks, tasks and sample logs.
    pub(crate) stacks: Share,
    /// Records that are queued for sorting.
    pub(crate) waiting: Share,
}

impl MemoryShares {
    /// Returns the shares of a budget.
    pub(crate) fn of(budget: &MemoryBudget) -> Self {
        let [rings, unwind, symbols, stacks, waiting] =
            [Part::Rings, Part::Unwind, Part::Symbols, Part::Stacks, Part::Waiting]
                .map(|part| budget.share(part));
        Self { rings, unwind, symbols, stacks, waiting }
    }

    /// Returns the shares for a command with a limited run time: 64 MiB or more each.
    pub(crate) fn for_command() -> Self {
        let share = |part, mebibytes: u64| Share::fixed(part, mebibytes << 20);
        Self {
            rings: share(Part::Rings, 64),
            unwind: share(Part::Unwind, 96),
            symbols: share(Part::Symbols, 64),
            stacks: share(Part::Stacks, 128),
            waiting: share(Part::Waiting, 64),
        }
    }
}
