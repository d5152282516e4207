//! Replacement of an open stream by one with other events.

use super::{OpenContext, Reading, Refused, Stream};
use crate::host::CpuSet;
use crate::sys::Kernel;

impl<K: Kernel> Stream<K> {
    /// Opens the stream on each CPU, and closes `old` there. Both are open for a moment, but never count at the same time: `old` is stopped
    /// right before this stream starts, and what happens in between these two calls is not counted. Returns the refusals, and the counts of
    /// `old` since its previous read.
    pub(in crate::counter) fn take_over(
        &mut self,
        old: &mut Self,
        online: &CpuSet,
        means: &mut OpenContext<'_, K>,
    ) -> (Vec<Refused>, Vec<Reading>) {
        let (mut refused, mut readings) = (Vec::new(), Vec::new());
        // Each set has at most one group of its own, and software events have one more.
        let needed = self.plan.width() + 2 * (self.plan.sets.len() + 1);
        for ring in self.rings.missing(online, 1) {
            let cpu = ring.cpu;
            if !means.budget.has_room_for(needed) {
                old.close_cpu(cpu, means.budget, |reading| readings.push(reading));
            }
            refused.extend(self.open_cpu(cpu, online.len(), Some(old), means));
            old.close_cpu(cpu, means.budget, |reading| readings.push(reading));
        }
        (self.note_absent(refused), readings)
    }
}
