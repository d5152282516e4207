//! Ready-made entries of `tracepoints`, by the names that `presets` takes. Each set is a file that is read like one of a
//! user's, so that it can be copied into one.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;

use super::decode::{self, At};
use super::file::File;
use super::problem::shown;
use super::report::Report;
use super::selection::Selections;
use super::traced::{Names, Traced, TracedKind, tracepoints};
use super::yaml::{NodeId, Source};

/// A set of ready-made entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ReadyMade")]
pub enum Preset {
    /// Requests to block devices: how long they take, how large they are, and which fail.
    BlockIo,
    /// Interrupts of devices: how many, and how long their handlers run.
    Irq,
    /// Softirqs: how long they wait, and how long they run.
    Softirq,
    /// Page faults, of programs and of the kernel, for each cgroup.
    PageFaults,
    /// Forks, executions and exits, for each cgroup.
    Forks,
    /// Work on the kernel's workers: how long it waits, and how long it runs, by function.
    Kworkers,
}

impl Preset {
    /// All of them, in the order of the manual.
    pub const ALL: [Self; 6] =
        [Self::BlockIo, Self::Irq, Self::Softirq, Self::PageFaults, Self::Forks, Self::Kworkers];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BlockIo => "block-io",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::PageFaults => "page-faults",
            Self::Forks => "forks",
            Self::Kworkers => "kworkers",
        }
    }

    /// The set as a configuration file, with comments.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BlockIo => include_str!("../../config/presets/block-io.yaml"),
            Self::Irq => include_str!("../../config/presets/irq.yaml"),
            Self::Softirq => include_str!("../../config/presets/softirq.yaml"),
            Self::PageFaults => include_str!("../../config/presets/page-faults.yaml"),
            Self::Forks => include_str!("../../config/presets/forks.yaml"),
            Self::Kworkers => include_str!("../../config/presets/kworkers.yaml"),
        }
    }

    /// The question that it answers: the first sentence of its text.
    pub fn question(self) -> &'static str {
        let mut comments = self.text().lines().filter_map(|line| line.strip_prefix("# "));
        comments.find(|line| line.ends_with('?')).unwrap_or_default()
    }

    /// Its entries for these cgroups and processes. A test holds that no text has a problem.
    fn entries(self, selections: &Selections) -> Vec<Traced> {
        let Ok(source) = Source::parse(self.text().as_bytes(), self.name()) else { return Vec::new() };
        let mut report = Report::new(&source);
        let file: Option<File> = decode::decode(source.root(), &mut report);
        let entries = file.and_then(|file| file.tracepoints);
        let entries = entries.map(|entries| tracepoints(&entries, selections, &mut report));
        let kind = TracedKind::Preset(self);
        entries.into_iter().flatten().map(|entry| Traced { kind, ..entry }).collect()
    }
}

/// The entries of the presets of a file, or of those of `base` if it does not mention any. An entry of `others` with the
/// same name takes the place of a ready-made one.
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
        for entry in preset.entries(selections) {
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
                    report.error(place, message, Some("leave out one of them".into()));
                }
                // What nobody asked for gives way without a word.
                (Some(_), None) => {}
            }
        }
    }
    all
}

/// Which presets there are, and where the file says so.
fn wanted(file: &File, base: &[Traced], report: &mut Report<'_>) -> Vec<(Preset, Option<NodeId>)> {
    let Some(At { value: list, .. }) = &file.presets else {
        let mut wanted: Vec<_> = base.iter().filter_map(|entry| entry.kind.preset()).collect();
        wanted.dedup();
        return wanted.into_iter().map(|preset| (preset, None)).collect();
    };
    let mut wanted: Vec<(Preset, Option<NodeId>)> = Vec::new();
    for &At { node, value } in list.iter() {
        if wanted.iter().any(|&(preset, _)| preset == value) {
            report.warning(node, "this stands in the list twice", Some("leave one out".into()));
        } else {
            wanted.push((value, Some(node)));
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
