//! What the stream takes, as far as can be told without opening anything.

use rustix::param::page_size;

use super::StreamState;
use super::open::{Group, leading, needs_pmu};
use super::rate::switch_rate;
use crate::attribute::record_size;
use crate::host::{Facts, Roots};
use crate::plan::Stream;
use crate::ring::{Losses, RingBudget};

/// What the stream takes on this host if every event opens, and all of them fit on the PMU together. `memory` is for
/// the rings of all CPUs.
pub fn foreseen(plan: &Stream, facts: &Facts, roots: &Roots, memory: u64) -> StreamState {
    let (mut descriptors, mut descriptors_per_cpu, mut ring_bytes, mut record_bytes) = (0, 0, 0, 0);
    let rings = RingBudget::new(facts, memory, facts.online.len(), page_size());
    let rate = switch_rate(roots, facts.online.len());
    for cpu in facts.online.iter() {
        let mut opened = leading(plan.granularity).to_vec();
        for event in plan.sets.iter().flat_map(|set| &set.events) {
            let what = super::open::member(event);
            if event.is_on(cpu) && !opened.contains(&what) {
                opened.push(what);
            }
        }
        let record = record_size(plan, opened.len() - Group::<()>::OWN, !needs_pmu(plan, cpu));
        descriptors += opened.len();
        descriptors_per_cpu = descriptors_per_cpu.max(opened.len());
        record_bytes = record_bytes.max(record);
        ring_bytes += (rings.pages(rate, record, page_size()) * page_size()) as u64;
    }
    let mut entries: Vec<_> = plan.sets.iter().flat_map(|set| set.entries.iter().cloned()).collect();
    entries.sort();
    entries.dedup();
    StreamState {
        granularity: plan.granularity,
        cpus: facts.online.len(),
        descriptors,
        descriptors_per_cpu,
        groups: vec![entries],
        ring_bytes,
        ring_bytes_limit: (facts.online.len() * rings.most * page_size()) as u64,
        rings,
        record_bytes,
        losses: Losses::default(),
    }
}
