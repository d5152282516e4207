//! Who tells the names of containers, asked once.

use std::io::{self, Write};

use serde::Serialize;

use crate::config::containers::Containers;
use crate::container::{Asked, ask_once};
use crate::error::printable;
use crate::host::{Environment, Roots};

/// Somebody who is asked.
#[derive(Debug, Serialize)]
pub(super) struct ContainerRow {
    source: String,
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    containers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<String>,
}

impl ContainerRow {
    /// All of them, and what cannot be asked. Nobody is asked unless `ask`.
    pub(super) fn all(
        settings: &Containers,
        roots: &Roots,
        environment: &Environment,
        ask: bool,
    ) -> (Vec<Self>, Vec<String>) {
        let (asked, problems) = ask_once(settings, roots, environment, ask);
        let row = |Asked { kind, place, answer }: Asked| {
            let (containers, failing) = match answer {
                Some(Ok(containers)) => (Some(containers), None),
                Some(Err(failure)) => (None, Some(failure.why)),
                None => (None, None),
            };
            Self { source: kind.to_string(), place, containers, failing }
        };
        (asked.into_iter().map(row).collect(), problems)
    }
}

pub(super) fn write(out: &mut impl Write, rows: &[ContainerRow]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nAsked for the names of containers:")?;
    for row in rows {
        write!(out, "  {} at {}", row.source, printable(&row.place))?;
        match (&row.containers, &row.failing) {
            (Some(1), _) => writeln!(out, ": tells of 1 container")?,
            (Some(containers), _) => writeln!(out, ": tells of {containers} containers")?,
            (None, Some(why)) => writeln!(out, ": does not tell: {}", printable(why))?,
            (None, None) => writeln!(out)?,
        }
    }
    Ok(())
}
