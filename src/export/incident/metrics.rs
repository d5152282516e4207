//! The metrics of an incident as text.

use std::sync::Arc;

use crate::export::prometheus::{Encoder, Format};
use crate::host::is_within;
use crate::incident::Incident;
use crate::metrics::{Point, Snapshot};

/// Labels of series that belong to processes.
const OF_PROCESSES: [&str; 2] = ["comm", "pid"];

/// Returns the series of the cgroup with the cgroups below it, of the suspects, of the machine and of the exporter. Those of processes are left
/// out.
pub(super) fn text(incident: &Incident, snapshot: &Snapshot) -> Vec<u8> {
    let part = snapshot.part(|family| {
        let part = family.part(|point| is_wanted(incident, point).then(|| point.clone()));
        (!part.points().is_empty()).then_some(part)
    });
    let mut encoder = Encoder::new(Arc::new(part), Format::OpenMetrics100);
    let mut text = Vec::new();
    while encoder.next_chunk(&mut text) {}
    text
}

fn is_wanted(incident: &Incident, point: &Point) -> bool {
    match point.labels.get("cgroup") {
        Some(cgroup) => {
            incident.cgroup.as_deref().is_some_and(|outer| is_within(cgroup, outer))
                || incident.suspects.iter().any(|suspect| suspect.cgroup == cgroup)
        }
        None => OF_PROCESSES.iter().all(|label| point.labels.get(label).is_none()),
    }
}
