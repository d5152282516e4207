//! The layout of `perf annotate --stdio`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::jumps::Arrows;
use super::{Annotated, Row};
use crate::clean::{NAME, clean};

/// Width of a tab in addition to its character, as perf counts it.
const TAB: usize = 5;

/// Smallest share of a line in the summary, in percent.
const SUMMARY: f64 = 0.5;

/// What the text contains in addition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// A summary by source line before the instructions, and the line after each hot instruction.
    pub lines: bool,
    /// Numbers of samples instead of percentages.
    pub counts: bool,
    /// Arrows for jumps.
    pub jumps: bool,
}

struct Text<'a> {
    annotated: &'a Annotated,
    options: TextOptions,
}

impl Annotated {
    /// Returns the text for a terminal. Its layout is that of `perf annotate --stdio`.
    pub fn text(&self, options: TextOptions) -> impl Display {
        Text { annotated: self, options }
    }

    /// Returns the largest lines with their values: the path of the file, and the line.
    fn summary(&self) -> Vec<((&str, u32), u64)> {
        let lines = self.rows.iter().filter_map(|row| match row {
            Row::Source { file, line, value, .. } => Some(((&**file, *line), *value)),
            Row::Instruction { .. } => None,
        });
        let lines: BTreeMap<(&str, u32), u64> = lines.collect();
        let mut lines: Vec<_> =
            lines.into_iter().filter(|(_, value)| self.percent(*value) >= SUMMARY).collect();
        lines.sort_by_key(|&(line, value)| (Reverse(value), line));
        lines
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { annotated, options } = self;
        if options.lines {
            let head = format!("Sorted summary for file {}", clean(&annotated.module, NAME));
            writeln!(f, "\n{head}\n{}\n", "-".repeat(head.len() + 1))?;
            for ((file, line), value) in annotated.summary() {
                writeln!(f, " {:7.2} {}:{line}", annotated.percent(value), clean(basename(file), NAME))?;
            }
        }
        let head = format!(
            " {:<7} |\tSource code & Disassembly of {} for {} ({} samples, percent: local period)",
            if options.counts { "Samples" } else { "Percent" },
            clean(basename(&annotated.module), NAME),
            clean(&annotated.event, NAME),
            annotated.samples,
        );
        writeln!(f, "{head}\n{}", "-".repeat(head.chars().count() + TAB))?;
        self.rows(f)
    }
}

impl Text<'_> {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { annotated, options } = self;
        let arrows = options.jumps.then(|| Arrows::new(annotated));
        let beside = |row| arrows.as_ref().map(|arrows| arrows.beside(row)).unwrap_or_default();
        let name = clean(&annotated.function, NAME);
        for row in &annotated.rows {
            if let Row::Instruction { address, .. } = row {
                writeln!(f, "         : {address:016x} <{name}>:")?;
                break;
            }
        }
        let mut source = None;
        for (place, row) in annotated.rows.iter().enumerate() {
            match row {
                Row::Source { file, line, text, .. } => {
                    // The text can be from a service, which is not trusted to have cleaned it.
                    let file = clean(basename(file), NAME);
                    let text = clean(text.as_deref().unwrap_or_default(), NAME);
                    let text = format!("         : {}{file}:{line}   {text}", beside(place));
                    source = Some((file, *line));
                    writeln!(f, "{}", text.trim_end())?;
                }
                Row::Instruction { address, text, value, samples, .. } => {
                    match options.counts {
                        true => write!(f, "{samples:8}")?,
                        false => write!(f, "{:8.2}", annotated.percent(*value))?,
                    }
                    write!(f, " : {}  {address:x}:   {}", beside(place), clean(text, NAME))?;
                    if let Some((file, line)) = source.as_ref().filter(|_| options.lines && *value > 0) {
                        write!(f, " // {file}:{line}")?;
                    }
                    writeln!(f)?;
                }
            }
        }
        Ok(())
    }
}

fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
