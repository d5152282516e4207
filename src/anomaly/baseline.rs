//! What a detector has learned of a workload.

use super::cpi2::Specification;
use super::robust::Bins;
use super::wire::{Reader, Writer};

/// The past of one figure of one workload, for both methods. It belongs to the workload, not to the pod: a pod that restarts continues.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    pub(super) bins: Bins,
    pub(super) specification: Specification,
    /// Time of the last ageing of the bins.
    pub(super) aged: Option<u64>,
}

impl Baseline {
    /// Returns the number of samples, of which old ones count less.
    pub(super) fn weight(&self) -> f64 {
        self.bins.weight() + self.specification.weight()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.optional(self.aged);
        self.bins.write(out);
        self.specification.write(out);
    }

    /// Reads what [`write`](Self::write) has written; `None` for other bytes. Times after `now` are `now`: the clock was set back.
    pub(super) fn read(bytes: &mut Reader<'_>, now: u64) -> Option<Self> {
        let aged = bytes.optional()?.map(|at| at.min(now));
        Some(Self { aged, bins: Bins::read(bytes)?, specification: Specification::read(bytes, now)? })
    }
}
