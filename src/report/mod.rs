//! The tables and call trees of `perf report`, made of a [`Profile`], and those of `perf mem` and `perf c2c`.
//!
//! ```text
//! Profile ─► cells (what the columns show) ─► entries (sums of equal cells, with their call chains) ─┬► text: table and call trees
//!                                                                                                    ├► calls: lines of a call tree
//!                                                                                                    └► differences: two tables
//! ```
//!
//! Memory accesses of a recording have further columns (`memory`), and tables by cache line, as `perf c2c report` shows them
//! (`cache_lines`).
//!
//! The meaning of the columns, the order of the entries and the layout are those of perf 6.1, because scripts read them.

mod cache_lines;
mod calls;
mod cells;
mod chains;
mod differences;
mod entries;
mod header;
mod key;
mod layout;
mod memory;
#[cfg(test)]
mod tests;
mod text;

use crate::profile::Profile;

pub use cache_lines::{CacheLines, Coalesce, LineOptions, Ranking};
pub(crate) use calls::Call;
pub use differences::Differences;
pub(crate) use entries::bare;
pub use entries::{Entries, Entry};
pub use header::Header;
pub use key::Key;
pub(crate) use text::Figure;

/// What a table shows.
#[derive(Debug, Clone)]
pub struct Options {
    /// The columns that distinguish entries.
    pub sort: Vec<Key>,
    /// Whether functions have entries for what their callees did.
    pub children: bool,
    /// How call trees are shown.
    pub chains: Chains,
    /// Whether a column shows the number of samples.
    pub counts: bool,
    /// The smallest share of an entry in percent.
    pub percent_limit: f64,
    /// Names of threads, modules and functions; entries with others are left out. Empty: all.
    pub only: Only,
    /// The functions that the column `parent` shows, where they are callers.
    pub parent: Option<regex::Regex>,
}

/// Names to which a table is limited, for the columns in this order: threads, modules, functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Only {
    /// Names of threads.
    pub comms: Vec<String>,
    /// Names of modules: the last part of the path, or the path.
    pub dsos: Vec<String>,
    /// Names of functions.
    pub symbols: Vec<String>,
}

/// The order of functions in call trees, and their smallest share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chains {
    /// No call trees.
    None,
    /// From the outermost function to the innermost one. Branches below this share, in percent, are left out.
    Caller(f64),
    /// From the innermost function to the outermost one.
    Callee(f64),
}

impl Default for Options {
    /// The defaults of perf for recordings with call chains.
    fn default() -> Self {
        Self {
            sort: vec![Key::Comm, Key::Dso, Key::Symbol],
            children: true,
            chains: Chains::Caller(0.5),
            counts: false,
            percent_limit: 0.0,
            only: Only::default(),
            parent: None,
        }
    }
}

impl Options {
    /// Reports whether call chains begin with the outermost function, as in perf also where none are shown.
    fn is_outermost_first(&self) -> bool {
        match self.chains {
            Chains::Caller(_) => true,
            Chains::Callee(_) => false,
            Chains::None => self.children,
        }
    }
}

/// Returns the share of a value in percent; 0 of nothing.
fn percent(value: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { value as f64 * 100.0 / total as f64 }
}

/// Returns a number as perf prints it: in thousands or millions, rounded down.
pub(crate) fn rounded(number: u64) -> String {
    match number {
        0..=999 => format!("{number} "),
        1000..=999_999 => format!("{}K", number / 1000),
        1_000_000..=999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

/// Reports whether a profile has call chains.
pub fn has_chains(profile: &Profile) -> bool {
    profile.stacks.iter().any(|stack| stack.len() > 1)
}
