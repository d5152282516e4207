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

/// A column of figures: its heading, and its cell of an entry.
type Column<'e> = (&'static str, Box<dyn Fn(&Entry) -> String + 'e>);

impl Display for Entries<'_> {
    /// Writes the table with the call trees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures();
        let shown = self.shown();
        let cells = |entry: &'_ Entry, column: usize| {
            entry.cells.get(column).map_or("", |cell| self.cells.text(*cell))
        };
        let columns = Columns::new(shown.iter().map(|&(_, key)| key), |place| {
            widest(self.all.iter().map(|entry| cells(entry, shown[place].0)))
        });
        columns.head(f, figures.iter().map(|(heading, _)| format!("{heading:>8}")).collect())?;
        // As in perf, columns are as wide as all entries need, also those below the limit.
        let is_large = |entry: &&Entry| percent(entry.total, self.total) >= self.options.percent_limit;
        for entry in self.all.iter().filter(is_large) {
            let figure = |(heading, of): &Column<'_>| format!("{:>w$}", of(entry), w = heading.len().max(8));
            let texts = shown.iter().map(|&(column, _)| cells(entry, column));
            columns.line(f, figures.iter().map(figure).collect(), texts)?;
            let tree = self.tree(entry);
            if !tree.is_empty() {
                Writer { entries: self, margin: 0, out: f }.tree(&tree, entry)?;
            }
        }
        writeln!(f)
    }
}

impl Entries<'_> {
    fn figures(&self) -> Vec<Column<'_>> {
        let share = |value: u64| format!("{:.2}%", percent(value, self.total));
        let own = Box::new(move |entry: &Entry| share(entry.own));
        let mut figures: Vec<Column<'_>> = match self.options.children {
            true => vec![("Children", Box::new(move |entry| share(entry.total))), ("Self", own)],
            false => vec![("Overhead", own)],
        };
        if self.options.counts {
            figures.push(("     Samples", Box::new(|entry| entry.samples.to_string())));
        }
        figures
    }

    /// Returns the columns of texts with their places. A column that the options limit to one name is left out, as in perf.
    fn shown(&self) -> Vec<(usize, Key)> {
        let only = &self.options.only;
        let is_single = |key: Key| match key {
            Key::Comm => only.comms.len() == 1,
            Key::Dso => only.dsos.len() == 1,
            Key::Symbol => only.symbols.len() == 1,
            _ => false,
        };
        self.options.sort.iter().copied().enumerate().filter(|(_, key)| !is_single(*key)).collect()
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
        let of_entry = if self.entries.options.children { entry.total } else { entry.own };
        match branches {
            // One branch with everything has no share of its own.
            [only] if only.total == of_entry => {
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
