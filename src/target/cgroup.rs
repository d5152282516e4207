//! Cgroups: which hierarchy `perf_event` is on, what is in it, and what is selected.

use super::Glob;

/// Which cgroups to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupSelection {
    /// Paths to take; one pattern that matches is enough. `/` is the root cgroup, which only its own name selects.
    pub include: Vec<Glob>,
    /// Paths to leave out, stronger than `include`.
    pub exclude: Vec<Glob>,
    /// How deep below the root a cgroup may lie (`/a` is 1); `None` = any depth.
    pub depth: Option<usize>,
    /// Whether a cgroup's counts include those of the cgroups below it. If not, each count has one place, and sums
    /// over cgroups count nothing twice.
    pub descendants: bool,
}
