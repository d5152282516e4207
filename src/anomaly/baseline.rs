//! What a detector has learned of a workload.

use super::cpi2::Specification;
use super::given::Given;
use super::hours::Hours;
use super::robust::Bins;
use super::wire::{Reader, Writer};

/// The past of one figure of one workload, for both methods. It belongs to the workload, not to the pod: a pod that restarts continues.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    pub(super) bins: Bins,
    pub(super) specification: Specification,
    /// Values by hour of the day; `None` unless the entry asks for them.
    pub(super) hours: Option<Box<Hours>>,
    /// Time of the last ageing of the bins.
    pub(super) aged: Option<u64>,
    /// What was computed elsewhere. It takes the place of what is learned here, and is not saved.
    pub(super) given: Option<Given>,
}

impl Baseline {
    /// Returns the number of samples, of which old ones count less.
    pub(super) fn weight(&self) -> f64 {
        self.bins.weight() + self.specification.weight()
    }

    /// Returns the memory of the distributions, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bins.bytes() + self.hours.as_ref().map_or(0, |hours| hours.bytes())
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.optional(self.aged);
        self.bins.write(out);
        self.specification.write(out);
        out.length(usize::from(self.hours.is_some()));
        self.hours.iter().for_each(|hours| hours.write(out));
    }

    /// Reads what [`write`](Self::write) has written, or what an earlier version has written, which knew no hours; `None` for other bytes. Times after `now` are `now`: the clock was set back.
    pub(super) fn read(bytes: &mut Reader<'_>, now: u64, has_hours: bool) -> Option<Self> {
        let aged = bytes.optional()?.map(|at| at.min(now));
        let (bins, specification) = (Bins::read(bytes)?, Specification::read(bytes, now)?);
        let hours = match if has_hours { bytes.length()? } else { 0 } {
            0 => None,
            1 => Some(Box::new(Hours::read(bytes)?)),
            _ => return None,
        };
        Some(Self { bins, specification, hours, aged, given: None })
    }
}
