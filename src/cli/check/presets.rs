//! What a check reports of presets.

use std::io::{self, Write};

use serde::Serialize;

use super::words::heading;
use crate::config::Traced;

/// A preset, and the entries that it comes to.
#[derive(Debug, Serialize)]
pub(super) struct PresetRow {
    pub(super) preset: &'static str,
    /// Without those that the file has entries of its own for.
    pub(super) entries: Vec<String>,
}

impl PresetRow {
    /// Those of a configuration.
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

/// Writes them for people.
pub(super) fn write(out: &mut impl Write, presets: &[PresetRow]) -> io::Result<()> {
    heading(out, presets, "Presets")?;
    presets.iter().try_for_each(|row| writeln!(out, "  {}: {}", row.preset, row.entries.join(", ")))
}
