//! The presets in the report of a check.

use std::io::{self, Write};

use serde::Serialize;

use super::words::{Together, heading, together};
use crate::config::Traced;

/// A preset and its entries.
#[derive(Debug, Serialize)]
pub(super) struct PresetRow {
    pub(super) preset: &'static str,
    /// Names of the entries, without entries that the file overrides.
    pub(super) entries: Vec<String>,
}

impl PresetRow {
    /// Returns the presets of a configuration.
    pub(super) fn all(traced: &[Traced]) -> Vec<Self> {
        let row = |same: Together<'_, Traced>| {
            let entries = same.all.iter().map(|entry| entry.name.to_string()).collect();
            Some(Self { preset: same.first.kind.preset()?.as_str(), entries })
        };
        together(traced, |entry| entry.kind.preset()).into_iter().filter_map(row).collect()
    }
}

/// Writes the presets as text.
pub(super) fn write(out: &mut impl Write, presets: &[PresetRow]) -> io::Result<()> {
    heading(out, presets, "Presets")?;
    presets.iter().try_for_each(|row| writeln!(out, "  {}: {}", row.preset, row.entries.join(", ")))
}
