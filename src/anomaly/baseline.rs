//! What a detector has learned of a workload.

use super::cpi2::Specification;
use super::robust::Bins;

/// The past of one figure of one workload, for both methods. It belongs to the workload, not to the pod: a pod that restarts continues.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    pub(super) bins: Bins,
    pub(super) specification: Specification,
    /// Time of the last ageing of the bins.
    pub(super) aged: Option<u64>,
}
