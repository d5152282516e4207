//! Labels of owners, and texts of values.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::owners::{OwnerId, Round};
use super::values::{Fresh, Owned, ValueId};
use crate::event::format::{Field, Show};
use crate::host::{Nodes, Roots};
use crate::plan::{Feed, Trace, ValueLocation};
use crate::probe::kallsyms;
use crate::register::{ROOT, TargetIndex};
use crate::series::OwnName;
use crate::targets::{CgroupId, Targets, parent_of};

/// The labels of an owner.
pub(super) type OwnerLabels = Vec<(&'static str, Arc<str>)>;

/// An owner, as shown in labels.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) labels: OwnerLabels,
    /// The name in the labels that the process chose itself, and the labels to use if its cgroup has too many such names.
    pub(super) own: Option<(OwnName, OwnerLabels)>,
}

impl From<OwnerLabels> for Named {
    fn from(labels: OwnerLabels) -> Self {
        Self { labels, own: None }
    }
}

/// Reasons for hits that are in no series.
mod rest {
    /// The CPU was idle.
    pub(super) const IDLE: &str = "idle";
    /// Neither the owner nor any cgroup above it is selected.
    pub(super) const NOT_SELECTED: &str = "not_selected";
    /// The name of the owner is unknown.
    pub(super) const UNKNOWN: &str = "unknown";
}

/// Sources of names.
pub(super) struct Names<'a> {
    pub(super) roots: &'a Roots,
    pub(super) nodes: &'a Nodes,
    pub(super) index: &'a TargetIndex,
}

impl Names<'_> {
    /// Returns the labels of an owner, several if the hits also count for cgroups above it. Otherwise returns the reason why there are
    /// none.
    pub(super) fn owner(
        &self,
        targets: &Targets,
        owner: OwnerId,
        round: &Round,
    ) -> Result<Vec<Named>, &'static str> {
        match targets {
            Targets::Cpus(cpus) if cpus.label().is_none() => Ok(vec![Vec::new().into()]),
            _ if owner == OwnerId::IDLE => Err(rest::IDLE),
            _ if owner == OwnerId::UNKNOWN => Err(rest::UNKNOWN),
            Targets::Cpus(cpus) => Ok(vec![Vec::from_iter(cpus.label_of(self.nodes.cpu(owner.0))).into()]),
            Targets::Cgroups(selection) => {
                let id = round.cgroups.get(owner.0 as usize).ok_or(rest::UNKNOWN)?;
                let path = self.path(*id).ok_or(rest::UNKNOWN)?;
                let above = std::iter::successors(Some(&*path), |path| parent_of(path));
                let selected = above.filter(|path| self.index.selects(selection, path));
                let most = if selection.descendants { usize::MAX } else { 1 };
                let found: Vec<Named> =
                    selected.take(most).map(|path| vec![("cgroup", Arc::from(path))].into()).collect();
                if found.is_empty() { Err(rest::NOT_SELECTED) } else { Ok(found) }
            }
            Targets::Processes(selection) => {
                let task = round.tasks.get(owner.0 as usize).ok_or(rest::UNKNOWN)?;
                let process = self.index.process(task).ok_or(rest::UNKNOWN)?;
                if !selection.matches(&process) {
                    return Err(rest::NOT_SELECTED);
                }
                let own = selection.own_name(&process).map(|name| {
                    let owner = process.cgroup.clone().unwrap_or_default();
                    (OwnName { owner, name }, selection.labels_without_name(&process))
                });
                Ok(vec![Named { labels: selection.labels(&process), own }])
            }
        }
    }

    /// Returns the labels of every existing owner; `None` if the set of owners is fixed.
    pub(super) fn existing(&self, targets: &Targets) -> Option<FxHashSet<OwnerLabels>> {
        match targets {
            Targets::Cpus(_) => None,
            Targets::Cgroups(_) => {
                Some(self.index.paths().map(|path| vec![("cgroup", Arc::clone(path))]).collect())
            }
            Targets::Processes(selection) => {
                let selected = self.index.processes().filter(|process| selection.matches(process));
                Some(selected.map(|process| selection.labels(process)).collect())
            }
        }
    }

    /// Returns the texts of new values of a label.
    pub(super) fn texts(&self, trace: &Trace, label: usize, fresh: &[Fresh]) -> Vec<(ValueId, Arc<str>)> {
        let field = |fresh: &Fresh| match trace.sources.get(fresh.source)?.labels.get(label)? {
            Some(ValueLocation::Field(field)) => Some(field),
            _ => None,
        };
        let is_function = |field: &Field| field.show == Show::Function;
        let address = |fresh: &Fresh| match (&fresh.value, field(fresh)) {
            (Owned::Unsigned(address), Some(field)) if is_function(field) => Some(*address),
            _ => None,
        };
        let functions = self.functions(fresh.iter().filter_map(address).collect());
        let text = |fresh: &Fresh| -> Arc<str> {
            match (&fresh.value, field(fresh)) {
                (Owned::Unsigned(address), Some(field)) if is_function(field) => {
                    functions.get(address).cloned().unwrap_or_else(|| format!("{address:#x}").into())
                }
                (value, Some(field)) => field.render(&value.borrow()).into(),
                (Owned::Unsigned(id), None) if trace.feed != Feed::Records => {
                    self.path(CgroupId(*id)).unwrap_or_else(|| rest::UNKNOWN.into())
                }
                (Owned::Unsigned(number), None) => number.to_string().into(),
                (Owned::Signed(number), None) => number.to_string().into(),
                (Owned::Bytes(bytes), None) => String::from_utf8_lossy(bytes).into(),
            }
        };
        fresh.iter().map(|fresh| (fresh.id, text(fresh))).collect()
    }

    /// Returns the path of a cgroup.
    fn path(&self, id: CgroupId) -> Option<Arc<str>> {
        if id == ROOT { Some("/".into()) } else { self.index.path_of(id) }
    }

    /// Returns the kernel functions at some addresses.
    fn functions(&self, addresses: Vec<u64>) -> BTreeMap<u64, Arc<str>> {
        if addresses.is_empty() {
            return BTreeMap::new();
        }
        match kallsyms::names(self.roots, &addresses) {
            Ok(names) => {
                let known = addresses.into_iter().zip(names);
                known.filter_map(|(address, name)| Some((address, name?))).collect()
            }
            Err(error) => {
                tracing::warn!("labels contain addresses instead of kernel functions: {error}");
                BTreeMap::new()
            }
        }
    }
}
