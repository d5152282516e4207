//! Metadata sources for container names, each queried once.

use std::io::{self, Write};

use super::words::heading;
use crate::container::SourceState;
use crate::error::printable;

pub(super) fn write(out: &mut impl Write, rows: &[SourceState]) -> io::Result<()> {
    heading(out, rows, "Metadata sources for container names")?;
    for row in rows {
        write!(out, "  {} at {}", row.kind, printable(&row.place))?;
        match (row.answered, &row.failure) {
            (Some(_), _) if row.containers == 1 => writeln!(out, ": returned 1 container")?,
            (Some(_), _) => writeln!(out, ": returned {} containers", row.containers)?,
            (None, Some(failure)) => writeln!(out, ": failed: {}", printable(&failure.why))?,
            (None, None) => writeln!(out)?,
        }
    }
    Ok(())
}
