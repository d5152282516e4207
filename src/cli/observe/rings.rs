//! Opening of events with rings, for commands that read the records themselves.

use std::collections::BTreeMap;

use super::Host;
use crate::error::Errno;
use crate::health::{Board, Refusal};
use crate::host::CpuSet;
use crate::ring::{Context, Request, RingId, RingSet, RingWriters, Writers};
use crate::sys::{Budget, Event, Kernel, usage};
use crate::targets::OpenTarget;

/// Maximum bytes of all rings together.
const RINGS: usize = 256 << 20;

/// Descriptors reserved for files.
const FILES: usize = 64;

/// Open events with their rings. The events are disabled.
#[derive(Debug)]
pub(in crate::cli) struct OpenRings<E: Event, T> {
    pub(in crate::cli) opened: RingSet<RingWriters<E, T>>,
    /// The memory of the ring of each CPU.
    pub(in crate::cli) rings: BTreeMap<u32, E::Ring>,
    /// Reasons why events could not be opened.
    pub(in crate::cli) refusals: Vec<Refusal>,
}

impl<E: Event, T: Copy> OpenRings<E, T> {
    /// Opens the events that `request` returns for each CPU. `records` is the name of the records, in the plural. Each ring has at most
    /// `most` bytes.
    pub(in crate::cli) fn open<'r, K: Kernel<Event = E>>(
        host: &Host<'_, K>,
        records: &'static str,
        open_targets: &[OpenTarget],
        cpus: &CpuSet,
        most: usize,
        request: impl Fn(u32) -> Request<'r, T>,
    ) -> Self
    where
        T: 'r,
    {
        let mut budget = Budget::new(usage::raise_descriptor_limit(), FILES, None);
        let mut board = Board::default();
        let mut context = Context {
            kernel: host.kernel,
            facts: host.facts(),
            roots: host.roots,
            budget: &mut budget,
            board: &mut board,
        };
        let mut found = Self { opened: RingSet::new(records), rings: BTreeMap::new(), refusals: Vec::new() };
        let pages = pages(most, cpus.len());
        for ring in cpus.iter().map(RingId::of_cpu) {
            let (opened, refused) =
                found.opened.open(ring, open_targets, request(ring.cpu), pages, &mut context);
            found.refusals.extend(refused.into_iter().map(|refused| refused.refusal));
            let Some((writers, made)) = opened else { continue };
            let memory = found.opened.add(ring, writers, made);
            found.rings.insert(ring.cpu, memory);
        }
        found
    }
}

/// Enables the events of all rings.
///
/// # Errors
/// The errno of the first event that cannot be enabled.
pub(in crate::cli) fn start<E: Event, T>(opened: &RingSet<RingWriters<E, T>>) -> Result<(), Errno> {
    opened.writers().try_for_each(|(_, writers)| writers.start())
}

/// Returns the pages of each ring of at most `most` bytes for this number of CPUs: a power of two.
fn pages(most: usize, cpus: usize) -> usize {
    let bytes = most.min(RINGS / cpus.max(1));
    let pages = (bytes / rustix::param::page_size()).max(1);
    1 << pages.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_what_there_is_in_powers_of_two() {
        let page = rustix::param::page_size();
        let most = 4 << 20;
        assert_eq!(pages(most, 2) * page, most);
        assert_eq!(pages(most, 100) * page, 2 << 20);
        assert_eq!(pages(most, 1 << 30), 1);
    }
}
