//! Keys of events in formulas: equal keys are values of the same operand.

use std::sync::Arc;

use super::super::syntax::{Name, Term};
use super::super::{Event, Kind, generic, stem};

/// Returns the key of an event in formulas: the name of `perf list` for a generic event, the term of an event of the cores, the PMU's family and
/// the terms for any other. Events with equal keys are values of the same operand, on different cores.
pub fn event_key(name: &Name) -> Arc<str> {
    match name {
        Name::Symbol(word) => symbol_key(word),
        Name::Pmu { pmu, terms } => match &terms[..] {
            [Term { name, value: None }] if is_core(pmu) => symbol_key(name),
            _ if is_core(pmu) => Name::Pmu { pmu: "cpu".into(), terms: terms.clone() }.to_string().into(),
            _ => {
                let pmu = stem::without_instance(pmu).into();
                Name::Pmu { pmu, terms: terms.clone() }.to_string().to_ascii_lowercase().into()
            }
        },
        other => other.to_string().into(),
    }
}

/// Returns the key of an event, which was requested as `written`: events are recognized by their encoding if they are generic.
pub fn resolved_key(event: &Event, written: &Name) -> Arc<str> {
    // The upper half identifies the core PMU on hybrid machines (`PERF_PMU_TYPE_SHIFT`).
    let config = event.selector.config[0] & u64::from(u32::MAX);
    match event.kind {
        Kind::Software if config <= 1 => CLOCK.into(),
        Kind::Hardware | Kind::Cache | Kind::Software => {
            let same = |(generic, _): &(generic::Generic, _)| {
                generic.kind == event.kind && generic.selector.config[0] == config
            };
            generic::all().find(same).map_or_else(|| event_key(written), |(generic, _)| generic.name)
        }
        Kind::Pmu => match (&event.pmu, written) {
            (Some(pmu), Name::Pmu { terms, .. }) => {
                event_key(&Name::Pmu { pmu: Arc::clone(pmu), terms: terms.clone() })
            }
            (Some(pmu), Name::Symbol(word)) => {
                let term = Term { name: Arc::clone(word), value: None };
                event_key(&Name::Pmu { pmu: Arc::clone(pmu), terms: vec![term] })
            }
            _ => event_key(written),
        },
        _ => event_key(written),
    }
}

/// Key of `task-clock` and `cpu-clock`. Their counts are equal for tasks, and formulas combine both with other counts.
pub const CLOCK: &str = "task-clock";

fn symbol_key(word: &str) -> Arc<str> {
    match generic::find(word) {
        Some(generic::Found::Event(event)) if &*event.name == "cpu-clock" => CLOCK.into(),
        Some(generic::Found::Event(event)) => event.name,
        _ => word.to_ascii_lowercase().into(),
    }
}

/// Reports whether a PMU of this name counts events of cores.
pub(super) fn is_core(pmu: &str) -> bool {
    pmu == "cpu" || ["cpu_", "armv7", "armv8", "armv9", "apple_"].iter().any(|prefix| pmu.starts_with(prefix))
}

/// Reports whether a word is the name of an event of the kernel.
pub(super) fn is_software(word: &str) -> bool {
    matches!(generic::find(word), Some(generic::Found::Event(event)) if event.kind == Kind::Software)
}

/// The event that leads groups of Intel's fixed metrics. The fixed metrics take no counters, so any number of them fits.
pub(super) const SLOTS: &str = "slots";
