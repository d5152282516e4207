//! The layout of `perf report --stdio`.

use std::fmt::{self, Display};

use super::chains::Branch;
use super::entries::{Entries, Entry};
use super::layout::{Columns, widest};
use super::{Key, percent};

/// Columns before a call tree.
const MARGIN: &str = "            ";

/// Width of the begin of a call tree.
const LEAD: usize = "---".len();

/// Width of a level of a call tree.
const LEVEL: &str = "          ";

/// A column of figures.
pub(crate) struct Figure<'e> {
    heading: &'static str,
    of: Box<dyn Fn(&Entry) -> String + 'e>,
}

impl Figure<'_> {
    /// Returns the heading.
    pub(crate) fn head(&self) -> String {
        format!("{:>8}", self.heading)
    }

    /// Returns the figure of an entry, as wide as the heading.
    pub(crate) fn cell(&self, entry: &Entry) -> String {
        format!("{:>width$}", (self.of)(entry), width = self.heading.len().max(8))
    }
}

impl Display for Entries<'_> {
    /// Writes the table with the call trees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures();
        let shown = self.columns();
        let columns = Columns::new(shown.iter().map(|&(_, key)| key), |place| {
            widest(self.all.iter().map(|entry| self.text(entry, shown[place].0)))
        });
        columns.head(f, figures.iter().map(Figure::head).collect())?;
        // As in perf, columns are as wide as all entries need, also those below the limit.
        for entry in self.all.iter().filter(|entry| self.is_large(entry)) {
            let texts = shown.iter().map(|&(column, _)| self.text(entry, column));
            columns.line(f, figures.iter().map(|figure| figure.cell(entry)).collect(), texts)?;
            let tree = self.tree(entry);
            if !tree.is_empty() {
                Writer { entries: self, margin: 0, out: f }.tree(&tree, entry)?;
            }
        }
        writeln!(f)
    }
}

impl Entries<'_> {
    /// Returns the columns of figures.
    pub(crate) fn figures(&self) -> Vec<Figure<'_>> {
        let share = |value: u64| format!("{:.2}%", percent(value, self.total));
        let own = |heading| Figure { heading, of: Box::new(move |entry: &Entry| share(entry.own)) };
        let mut figures = match self.options.children {
            true => {
                vec![
                    Figure { heading: "Children", of: Box::new(move |entry: &Entry| share(entry.total)) },
                    own("Self"),
                ]
            }
            false => vec![own("Overhead")],
        };
        if self.options.counts {
            let of = Box::new(|entry: &Entry| entry.samples.to_string());
            figures.push(Figure { heading: "     Samples", of });
        }
        figures
    }
}

/// Writes a call tree.
struct Writer<'w, 'f> {
    entries: &'w Entries<'w>,
    margin: usize,
    out: &'w mut fmt::Formatter<'f>,
}

impl Writer<'_, '_> {
    fn tree(&mut self, branches: &[Branch], entry: &Entry) -> fmt::Result {
        match branches {
            // One branch with everything has no share of its own.
            [only] if only.total == self.entries.value(entry) => {
                let is_symbol = self.entries.options.sort.first() == Some(&Key::Symbol);
                // With the function in the first column, it is not repeated.
                let names = only.names.iter().skip(usize::from(is_symbol));
                for (line, name) in names.enumerate() {
                    if line == 0 {
                        self.indent()?;
                        writeln!(self.out, "|")?;
                    }
                    self.indent()?;
                    let lead = if line == 0 { "---" } else { "   " };
                    writeln!(self.out, "{lead}{}", self.entries.cells.text(*name))?;
                }
                let is_empty = is_symbol && only.names.len() == 1;
                self.margin = if is_empty { 0 } else { LEAD };
                self.branches(&only.branches, &mut vec![true])?;
            }
            branches => self.branches(branches, &mut vec![true])?,
        }
        writeln!(self.out)
    }

    fn indent(&mut self) -> fmt::Result {
        write!(self.out, "{MARGIN}{:1$}", "", self.margin)
    }

    /// Writes branches. `continues` says for each level whether a line leads to further branches.
    fn branches(&mut self, branches: &[Branch], continues: &mut Vec<bool>) -> fmt::Result {
        for (place, branch) in branches.iter().enumerate() {
            self.indent()?;
            for &continues in continues.iter() {
                write!(self.out, "{}{LEVEL}", if continues { '|' } else { ' ' })?;
            }
            writeln!(self.out)?;
            if let (Some(last), true) = (continues.last_mut(), place + 1 == branches.len()) {
                *last = false;
            }
            let depth = continues.len();
            let share = format!("--{:.2}%--", percent(branch.total, self.entries.total));
            for (line, name) in branch.names.iter().enumerate() {
                self.indent()?;
                for (level, &continues) in continues.iter().enumerate() {
                    let is_share = line == 0 && level + 1 == depth;
                    write!(self.out, "{}", if continues { '|' } else { ' ' })?;
                    self.out.write_str(if is_share { &share } else { LEVEL })?;
                }
                writeln!(self.out, "{}", self.entries.cells.text(*name))?;
            }
            continues.push(true);
            self.branches(&branch.branches, continues)?;
            continues.pop();
        }
        Ok(())
    }
}
