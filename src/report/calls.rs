//! Lines of a call tree, for a view in which they are expanded and collapsed.

use super::chains::Branch;
use super::entries::{Entries, Entry};
use super::percent;

/// A line of a call tree: a function. Lines below it follow it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Call {
    /// The level, from 0.
    pub(crate) depth: usize,
    /// The function, by its number.
    name: u32,
    /// The share of a branch in percent, at its first function. `None` for a branch with everything.
    pub(crate) share: Option<f64>,
    /// The number of lines below it.
    pub(crate) below: usize,
}

impl Entries<'_> {
    /// Returns the lines of the call tree of an entry.
    pub(crate) fn calls(&self, entry: &Entry) -> Vec<Call> {
        let mut calls = Vec::new();
        self.add_calls(&self.tree(entry), 0, Some(self.value(entry)), &mut calls);
        calls
    }

    /// Returns the name of a function in a call tree.
    pub(crate) fn name(&self, call: &Call) -> &str {
        self.cells.text(call.name)
    }

    /// Adds branches. `whole` is the value of a branch with everything.
    fn add_calls(&self, branches: &[Branch], depth: usize, whole: Option<u64>, calls: &mut Vec<Call>) {
        for branch in branches {
            let first = calls.len();
            let is_whole = branches.len() == 1 && whole == Some(branch.total);
            for (line, &name) in branch.names.iter().enumerate() {
                let share = (line == 0 && !is_whole).then(|| percent(branch.total, self.total));
                calls.push(Call { depth: depth + usize::from(line > 0), name, share, below: 0 });
            }
            self.add_calls(&branch.branches, depth + 1, None, calls);
            let below = (calls.len() - first).saturating_sub(1);
            if let Some(call) = calls.get_mut(first) {
                call.below = below;
            }
        }
    }
}
