//! A planned group with any source of counts.

use super::Context;
use super::attributed::AttributedGroup;
use super::counts::Base;
use super::group::GroupCounter;
use crate::health::Scope;
use crate::sys::Kernel;

/// A planned group that is being counted.
#[derive(Debug)]
pub(super) enum Counting<K: Kernel> {
    /// Counted by descriptors of its own.
    Dedicated(GroupCounter<K>),
    /// Counted by the switch stream.
    Attributed(AttributedGroup),
}

impl<K: Kernel> Counting<K> {
    pub(super) fn base(&self) -> &Base {
        match self {
            Self::Dedicated(counter) => &counter.base,
            Self::Attributed(group) => &group.base,
        }
    }

    pub(super) fn base_mut(&mut self) -> &mut Base {
        match self {
            Self::Dedicated(counter) => &mut counter.base,
            Self::Attributed(group) => &mut group.base,
        }
    }

    /// Reports whether its targets are cgroups or processes, which are created and removed, not parts of the machine.
    pub(super) fn follows_tasks(&self) -> bool {
        matches!(self.base().plan.scope(), Scope::Cgroup | Scope::Process)
    }

    /// Returns the number of targets that are counted.
    pub(super) fn counted(&self) -> usize {
        match self {
            Self::Dedicated(counter) => counter.counted(),
            Self::Attributed(group) => group.counted(),
        }
    }

    /// Returns the number of targets that are selected but not counted.
    pub(super) fn left_out(&self) -> usize {
        match self {
            Self::Dedicated(counter) => counter.left_out(),
            Self::Attributed(group) => group.left_out(),
        }
    }

    /// Closes the events of its own.
    pub(super) fn close(self, context: &mut Context<'_, K>) {
        match self {
            Self::Dedicated(mut counter) => counter.close_targets(context),
            Self::Attributed(_) => {}
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
