//! Resource usage of the stream, estimated without opening any event.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::param::page_size;

use super::StreamState;
use super::open::{Group, member, own};
use super::rate::switch_rate;
use crate::attribute::record_size;
use crate::host::{Facts, Roots};
use crate::plan::Stream;
use crate::ring::{Losses, RingBudget};

/// Returns the resource usage of the stream on this host, if every event opens and the hardware events fit on the PMU together. `memory`:
/// bytes for the rings of all CPUs.
pub fn foreseen(plan: &Stream, facts: &Facts, roots: &Roots, memory: u64) -> StreamState {
    let kinds: &[bool] = if plan.needs_pmu() { &[false, true] } else { &[false] };
    let rings = RingBudget::new(facts, memory, facts.online.len() * kinds.len(), page_size());
    let rate = switch_rate(roots, facts.online.len());
    let mut state = StreamState {
        granularity: plan.granularity,
        cpus: facts.online.len(),
        descriptors: 0,
        descriptors_per_cpu: 0,
        groups: hardware_entries(plan).into_iter().collect(),
        ring_bytes: 0,
        ring_bytes_limit: 0,
        rings,
        record_bytes: 0,
        losses: Losses::default(),
    };
    for cpu in facts.online.iter() {
        let mut descriptors = 0;
        for &hardware in kinds {
            let Some(members) = members(plan, cpu, hardware) else { continue };
            let record = record_size(plan, members - Group::<()>::OWN, !hardware);
            descriptors += members;
            state.record_bytes = state.record_bytes.max(record);
            state.ring_bytes += (rings.pages(rate, record, page_size()) * page_size()) as u64;
            state.ring_bytes_limit += (rings.most * page_size()) as u64;
        }
        state.descriptors += descriptors;
        state.descriptors_per_cpu = state.descriptors_per_cpu.max(descriptors);
    }
    state
}

/// Returns the number of members of the group of software or of hardware events on a CPU; `None` if there is no such group. A group of
/// hardware events is always accompanied by a group of software events.
fn members(plan: &Stream, cpu: u32, hardware: bool) -> Option<usize> {
    let events = || plan.sets.iter().flat_map(|set| &set.events).filter(|event| event.is_on(cpu));
    if !events().any(|event| !hardware || event.kind.needs_pmu()) {
        return None;
    }
    let mut opened = own(plan.granularity).to_vec();
    for what in events().filter(|event| event.kind.needs_pmu() == hardware).map(member) {
        if !opened.contains(&what) {
            opened.push(what);
        }
    }
    Some(opened.len())
}

/// Returns the configuration entries that count hardware events, if there are any.
fn hardware_entries(plan: &Stream) -> Option<Vec<Arc<str>>> {
    let sets = plan.sets.iter().filter(|set| set.events.iter().any(|event| event.kind.needs_pmu()));
    let entries: BTreeSet<Arc<str>> = sets.flat_map(|set| set.entries.iter().cloned()).collect();
    (!entries.is_empty()).then(|| entries.into_iter().collect())
}
