//! Sums of the samples of a profile: of functions, of groups of functions, and of groups of tasks.

use std::hash::Hash;

use super::numbered::Numbered;
use crate::profile::{Location, Profile, Task};

/// Sums of a group; ordered by its own sum first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Sum {
    /// Sum of the stacks in which the group is innermost. For tasks the sum of their samples.
    pub(crate) own: u64,
    /// Sum of the stacks that contain the group.
    pub(crate) total: u64,
}

/// Sums of groups. The value of a stack is added to the total of a group at most once.
#[derive(Debug)]
pub(crate) struct StackSums {
    pub(crate) sums: Vec<Sum>,
    /// The stack that was added last, plus one.
    added: Vec<usize>,
}

impl StackSums {
    /// Returns sums of zero for this number of groups.
    pub(crate) fn new(groups: usize) -> Self {
        Self { sums: vec![Sum::default(); groups], added: vec![0; groups] }
    }

    /// Adds the value of a stack to the total of a group, unless it is in it already. The stacks must be added one after another.
    pub(crate) fn add_once(&mut self, group: u32, stack: usize, value: u64) {
        let group = group as usize;
        if let (Some(sum), Some(added)) = (self.sums.get_mut(group), self.added.get_mut(group))
            && *added != stack + 1
        {
            (sum.total, *added) = (sum.total.saturating_add(value), stack + 1);
        }
    }
}

/// Returns the groups of each location, innermost first. `key` returns the group of a function of a location. New groups are added to
/// `keys`.
pub(crate) fn of_locations<'p, K: Clone + Eq + Hash>(
    profile: &'p Profile,
    keys: &mut Numbered<K>,
    key: impl Fn(&'p Location, &'p str) -> K,
) -> Vec<Vec<u32>> {
    let groups = |location: &'p Location| {
        let names = profile.names(location).into_iter();
        names.map(|name| keys.place(key(location, name))).collect()
    };
    profile.locations.iter().map(groups).collect()
}

/// Returns the groups of a stack, innermost first.
pub(crate) fn frames(stack: &[u32], of_locations: &[Vec<u32>]) -> impl Iterator<Item = u32> {
    stack.iter().filter_map(|&place| of_locations.get(place as usize)).flatten().copied()
}

/// Returns the sum of each stack, in the samples of the tasks that `takes` selects.
pub(crate) fn of_stacks(profile: &Profile, takes: impl Fn(&Task) -> bool) -> Vec<u64> {
    let tasks: Vec<bool> = profile.tasks.iter().map(takes).collect();
    let mut values = vec![0_u64; profile.stacks.len()];
    for sample in &profile.samples {
        if tasks.get(sample.task as usize) != Some(&false)
            && let Some(value) = values.get_mut(sample.stack as usize)
        {
            *value = value.saturating_add(sample.value);
        }
    }
    values
}

/// Returns the sums of groups of functions. `values` has the sum of each stack, `of_locations` the groups of each location.
pub(crate) fn by_code(
    profile: &Profile,
    values: &[u64],
    of_locations: &[Vec<u32>],
    groups: usize,
) -> Vec<Sum> {
    let mut all = StackSums::new(groups);
    let stacks = profile.stacks.iter().zip(values).enumerate();
    for (number, (stack, &value)) in stacks.filter(|(_, (_, value))| **value > 0) {
        let mut frames = frames(stack, of_locations).peekable();
        if let Some(sum) = frames.peek().and_then(|&innermost| all.sums.get_mut(innermost as usize)) {
            sum.own = sum.own.saturating_add(value);
        }
        frames.for_each(|group| all.add_once(group, number, value));
    }
    all.sums
}

/// Returns the sums of groups of tasks. `key` returns the group of a task; tasks without a group are left out. New groups are added to
/// `keys`.
pub(crate) fn by_task<'p, K: Clone + Eq + Hash>(
    profile: &'p Profile,
    keys: &mut Numbered<K>,
    key: impl Fn(&'p Task) -> Option<K>,
) -> Vec<Sum> {
    let groups: Vec<Option<u32>> = profile.tasks.iter().map(|task| Some(keys.place(key(task)?))).collect();
    let mut sums = vec![Sum::default(); keys.values.len()];
    for sample in &profile.samples {
        let group = groups.get(sample.task as usize).copied().flatten();
        if let Some(sum) = group.and_then(|group| sums.get_mut(group as usize)) {
            sum.own = sum.own.saturating_add(sample.value);
            sum.total = sum.own;
        }
    }
    sums
}
