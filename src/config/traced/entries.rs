//! Checks of the sections `tracepoints`, `probes` and `presets` together.

use super::names::Names;
use super::presets::presets;
use super::probes::probe;
use super::tracepoints::tracepoint;
use super::{Traced, TracedKind};
use crate::config::Counters;
use crate::config::decode::At;
use crate::config::file::File;
use crate::config::metric_word::metric_word;
use crate::config::per::reselected;
use crate::config::report::Report;
use crate::config::selection::Selections;
use crate::config::value::Entries;

/// Returns the checked entries of all three sections, with the entries of `base` for sections that the file omits.
pub(in crate::config) fn traced(
    file: &File,
    base: &[Traced],
    counters: &[Counters],
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Traced> {
    let mut names = Names::new(counters);
    let kept = |kind| {
        base.iter()
            .filter(|entry| entry.kind == kind)
            .map(|entry| Traced { per: reselected(&entry.per, selections), ..entry.clone() })
            .collect()
    };
    let mut all: Vec<Traced> = match &file.tracepoints {
        Some(entries) => section(entries, tracepoint, selections, &mut names, report),
        None => kept(TracedKind::Tracepoint),
    };
    let probes = match &file.probes {
        Some(entries) => section(entries, probe, selections, &mut names, report),
        None => kept(TracedKind::Probe),
    };
    all.extend(probes);
    let of_presets = presets(file, base, &all, selections, &mut names, report);
    all.extend(of_presets);
    all
}

/// Function that checks an entry of a section.
type Read<T> = fn(&At<String>, &At<T>, &Selections, &mut Report<'_>) -> Option<Traced>;

/// Returns the checked entries of one section, in the order of the file.
fn section<T>(
    entries: &At<Entries<T>>,
    read: Read<T>,
    selections: &Selections,
    names: &mut Names<'_>,
    report: &mut Report<'_>,
) -> Vec<Traced> {
    let mut all = Vec::new();
    for (name, entry) in &entries.value.0 {
        metric_word(name.node, name, "entries", report);
        if let Some(traced) = read(name, entry, selections, report) {
            names.look(name.node, &traced, report);
            all.push(traced);
        }
    }
    all
}
