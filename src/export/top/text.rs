//! A table as text.

use std::fmt;

use super::{Grouping, Row, Top, basename, value};
use crate::export::diff::Points;
use crate::export::flamegraph::{lost, title};
use crate::export::page::figures::{count, duration, plain};
use crate::profile::Profile;

/// A table as text.
pub(super) struct Text<'t> {
    pub(super) top: &'t Top,
    pub(super) profile: &'t Profile,
    pub(super) nothing: &'t str,
    pub(super) more: &'t str,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { top, profile, nothing, more: hint } = self;
        let unit = profile.kind.value.unit;
        let span = plain(&duration(profile.duration));
        writeln!(f, "# {}, {span} from {:#}", title(profile), profile.start)?;
        let (samples, total) = (plain(&count(top.samples)), plain(&value(top.total, unit)));
        writeln!(f, "# Samples: {samples}, in total {total}")?;
        if let Some(base) = top.base {
            let (samples, total) = (plain(&count(base.samples)), plain(&value(base.total, unit)));
            writeln!(f, "# Base: {samples} samples, in total {total}; changes in percentage points")?;
        }
        if let Some(lost) = lost(profile) {
            writeln!(f, "# Lost: {}", plain(&lost))?;
        }
        if top.rows.is_empty() {
            return writeln!(f, "#\n# {}", plain(nothing));
        }
        let modules = top.rows.iter().map(|row| basename(&row.module).chars().count());
        let width = modules.max().unwrap_or(0).clamp(6, 40);
        self.head(f, width)?;
        top.rows.iter().try_for_each(|row| self.row(f, row, width))?;
        match top.distinct.checked_sub(top.rows.len()) {
            Some(0) | None => Ok(()),
            Some(more) => writeln!(f, "# {more} more {} omitted; raise {hint}", self.words()),
        }
    }
}

impl Text<'_> {
    fn words(&self) -> &'static str {
        match self.top.by {
            Grouping::Function => "functions",
            Grouping::Module => "modules",
            Grouping::Cgroup => "cgroups",
            Grouping::Comm => "thread names",
        }
    }

    /// Writes the headings. `width` is that of the modules.
    fn head(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let (top, dots) = (self.top, ".".repeat(40));
        let (mut heads, mut lines) = ("  Self    Total".to_owned(), "......  .......".to_owned());
        if top.base.is_some() {
            heads.push_str("  Self +/-  Total +/-");
            lines.push_str("  ........  .........");
        }
        heads.push_str("          Self");
        lines.push_str("  ............");
        if top.by == Grouping::Function {
            heads.push_str(&format!("  {:width$}", "Module"));
            lines.push_str(&format!("  {}", ".".repeat(width)));
        }
        writeln!(f, "#\n# {heads}  {}\n# {lines}  {dots}", top.by.heading())
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, row: &Row, width: usize) -> fmt::Result {
        let Row { name, module, origin, own, self_percent, total_percent, change, .. } = row;
        write!(f, " {self_percent:6.2}% {total_percent:7.2}%")?;
        if let Some(change) = change {
            write!(f, "  {:>8}  {:>9}", Points(change.self_points), Points(change.total_points))?;
        }
        write!(f, "  {:>12}", plain(&value(*own, self.profile.kind.value.unit)))?;
        if self.top.by != Grouping::Function {
            return writeln!(f, "  {name}");
        }
        let mark = match *origin {
            "kernel" => "[k]",
            "jit" => "[j]",
            _ => "[.]",
        };
        writeln!(f, "  {:width$}  {mark} {name}", basename(module))
    }
}
