//! Checks of the section `presets`: entries that are read from presets.

use std::collections::BTreeSet;

use super::names::Names;
use super::tracepoints::tracepoint;
use super::{Traced, TracedKind};
use crate::config::Preset;
use crate::config::decode::{self, At};
use crate::config::file::File;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::Selections;
use crate::config::yaml::{NodeId, Source};

/// Returns the entries of the presets of a file, or of those of `base` if the file omits the section. An entry of `others` replaces the
/// preset entry with the same name.
pub(super) fn presets(
    file: &File,
    base: &[Traced],
    others: &[Traced],
    selections: &Selections,
    names: &mut Names<'_>,
    report: &mut Report<'_>,
) -> Vec<Traced> {
    let replaced: BTreeSet<&str> = others.iter().map(|entry| &*entry.name).collect();
    let mut all = Vec::new();
    for (preset, place) in wanted(file, base, report) {
        for entry in entries(preset, selections) {
            if replaced.contains(&*entry.name) {
                continue;
            }
            match (names.clash(&entry), place) {
                (None, _) => {
                    names.take(&entry);
                    all.push(entry);
                }
                (Some(clash), Some(place)) => {
                    let message = format!("the entry {} of this preset: {clash}", shown(&entry.name));
                    report.error(place, message, "remove one of them");
                }
                // An entry of a default preset is dropped without a warning.
                (Some(_), None) => {}
            }
        }
    }
    all
}

/// Returns the enabled presets, with their nodes if the file contains them.
fn wanted(file: &File, base: &[Traced], report: &mut Report<'_>) -> Vec<(Preset, Option<NodeId>)> {
    let Some(At { value: list, .. }) = &file.presets else {
        let mut wanted: Vec<_> = base.iter().filter_map(|entry| entry.kind.preset()).collect();
        wanted.dedup();
        return wanted.into_iter().map(|preset| (preset, None)).collect();
    };
    report.once(list).into_iter().map(|At { node, value }| (value, Some(node))).collect()
}

/// Returns the entries of a preset for these cgroups and processes. A test checks that no preset has problems.
fn entries(preset: Preset, selections: &Selections) -> Vec<Traced> {
    let Ok(source) = Source::parse(preset.text().as_bytes(), preset.as_str()) else { return Vec::new() };
    let mut report = Report::new(&source);
    let file: Option<File> = decode::decode(source.root(), &mut report);
    let entries = file.and_then(|file| file.tracepoints).map(|entries| entries.value.0);
    let entries = entries.iter().flatten();
    let entries = entries.filter_map(|(name, entry)| tracepoint(name, entry, selections, &mut report));
    entries.map(|entry| Traced { kind: TracedKind::Preset(preset), ..entry }).collect()
}

#[cfg(test)]
mod tests;
