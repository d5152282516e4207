//! The presets in the report of a check.

use std::io::{self, Write};

use serde::Serialize;

use super::words::heading;
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
        let mut rows: Vec<Self> = Vec::new();
        for entry in traced {
            let Some(preset) = entry.kind.preset() else { continue };
            let name = entry.name.to_string();
            match rows.last_mut() {
                Some(row) if row.preset == preset.as_str() => row.entries.push(name),
                _ => rows.push(Self { preset: preset.as_str(), entries: vec![name] }),
            }
        }
        rows
    }
}

/// Writes the presets as text.
pub(super) fn write(out: &mut impl Write, presets: &[PresetRow]) -> io::Result<()> {
    heading(out, presets, "Presets")?;
    presets.iter().try_for_each(|row| writeln!(out, "  {}: {}", row.preset, row.entries.join(", ")))
}
