//! Targets of entries: the keys `per`, `cgroups`, `pods` and `processes`, which have the same meaning in every section.

use super::decode::{At, node_of};
use super::file::{self, Per, TaskPer, TracedPer};
use super::report::Report;
use super::selection::{Selections, WrittenSelections};
use super::value::List;
use super::yaml::NodeId;
use crate::health::Scope;
use crate::targets::Targets;

/// Target keys of an entry.
pub(super) struct TargetKeys<'e, W> {
    /// Node of the entry.
    entry: NodeId,
    pub(super) per: &'e Option<At<List<W>>>,
    pub(super) selections: WrittenSelections<'e>,
}

/// Implements `target_keys` for each kind of entry.
macro_rules! target_keys {
    ($($entry:ident: $word:ident),+) => {$(
        impl At<file::$entry> {
            /// Returns the target keys of the entry.
            pub(super) fn target_keys(&self) -> TargetKeys<'_, $word> {
                let Self { node: entry, value: file::$entry { per, cgroups, pods, processes, .. } } = self;
                TargetKeys { entry: *entry, per, selections: WrittenSelections { cgroups, pods, processes } }
            }
        }
    )+};
}

target_keys!(Counters: Per, Tracepoint: TracedPer, Probe: TracedPer, Scheduler: TaskPer, Syscalls: TaskPer);

/// Returns the targets of an entry.
pub(super) fn per<W: Copy + PartialEq + Default + Into<Scope>>(
    keys: &TargetKeys<'_, W>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Targets> {
    let usual: Scope = W::default().into();
    report.not_empty(keys.per.as_ref(), "selects no targets", &format!("omit `per` for `{usual}`"));
    let scopes: Vec<Scope> = match keys.per {
        Some(per) => report.once(per).into_iter().map(|at| at.value.into()).collect(),
        None if report.gives(keys.entry, "per") => Vec::new(),
        None => vec![usual],
    };
    let WrittenSelections { cgroups, pods, processes } = keys.selections;
    let overrides = [
        (node_of(cgroups), Scope::Cgroup),
        (node_of(pods), Scope::Cgroup),
        (node_of(processes), Scope::Process),
    ];
    for (node, scope) in overrides {
        let unheard =
            !scopes.contains(&scope) && !keys.per.as_ref().is_some_and(|per| report.blames(per.node));
        if let Some(node) = node.filter(|_| unheard && !scopes.is_empty()) {
            let message = format!("this has no effect: the entry does not count per {scope}");
            report.warning(node, message, format!("add `{scope}` to its `per`, or remove this"));
        }
    }
    let selected = Selections::over(keys.selections, selections, report);
    scopes.into_iter().map(|scope| selected.of(scope)).collect()
}

/// Returns the same scopes with other cgroups and processes.
pub(super) fn reselected(per: &[Targets], selections: &Selections) -> Vec<Targets> {
    per.iter().map(|per| selections.of(per.scope())).collect()
}
