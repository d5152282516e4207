//! A planned group, whatever its counts come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::attributed::AttributedGroup;
use super::counts::SeriesTable;
use super::group::GroupCounter;
use crate::health::{Scope, Verdict};
use crate::plan::Group;
use crate::sys::Kernel;

/// A planned group that is being counted.
#[derive(Debug)]
pub(super) enum Counting<K: Kernel> {
    /// By descriptors of its own.
    Dedicated(GroupCounter<K>),
    /// By the switch stream.
    Attributed(AttributedGroup),
}

impl<K: Kernel> Counting<K> {
    pub(super) fn plan(&self) -> &Arc<Group> {
        match self {
            Self::Dedicated(counter) => &counter.plan,
            Self::Attributed(group) => &group.plan,
        }
    }

    pub(super) fn series(&self) -> &SeriesTable {
        match self {
            Self::Dedicated(counter) => &counter.series,
            Self::Attributed(group) => &group.series,
        }
    }

    /// Whether its targets are cgroups or processes, which come and go, and not parts of the machine.
    pub(super) fn follows_tasks(&self) -> bool {
        matches!(self.plan().scope(), Scope::Cgroup | Scope::Process)
    }

    pub(super) fn series_mut(&mut self) -> &mut SeriesTable {
        match self {
            Self::Dedicated(counter) => &mut counter.series,
            Self::Attributed(group) => &mut group.series,
        }
    }

    /// How many places of each counter were in each state at the last collection.
    pub(super) fn states(&self) -> &BTreeMap<(usize, Verdict), usize> {
        match self {
            Self::Dedicated(counter) => &counter.states,
            Self::Attributed(group) => &group.states,
        }
    }

    /// How many targets are counted.
    pub(super) fn counted(&self) -> usize {
        match self {
            Self::Dedicated(counter) => counter.counted(),
            Self::Attributed(group) => group.counted(),
        }
    }

    /// How many targets are selected and not counted.
    pub(super) fn left_out(&self) -> usize {
        match self {
            Self::Dedicated(counter) => counter.left_out(),
            Self::Attributed(group) => group.left_out(),
        }
    }

    pub(super) fn attributed_mut(&mut self) -> Option<&mut AttributedGroup> {
        match self {
            Self::Dedicated(_) => None,
            Self::Attributed(group) => Some(group),
        }
    }

    pub(super) fn attributed(&self) -> Option<&AttributedGroup> {
        match self {
            Self::Dedicated(_) => None,
            Self::Attributed(group) => Some(group),
        }
    }
}
