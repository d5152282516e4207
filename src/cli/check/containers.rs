//! Who tells the names of containers, asked once.

use std::io::{self, Write};

use super::words::heading;
use crate::container::SourceState;
use crate::error::printable;

pub(super) fn write(out: &mut impl Write, rows: &[SourceState]) -> io::Result<()> {
    heading(out, rows, "Asked for the names of containers")?;
    for row in rows {
        write!(out, "  {} at {}", row.kind, printable(&row.place))?;
        match (row.answered, &row.failure) {
            (Some(_), _) if row.containers == 1 => writeln!(out, ": tells of 1 container")?,
            (Some(_), _) => writeln!(out, ": tells of {} containers", row.containers)?,
            (None, Some(failure)) => writeln!(out, ": does not tell: {}", printable(&failure.why))?,
            (None, None) => writeln!(out)?,
        }
    }
    Ok(())
}
