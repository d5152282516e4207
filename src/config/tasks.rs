//! Checks of `scheduler` and `syscalls`: targets and the selected system calls.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::decode::At;
use super::file::{self, TaskPer};
use super::patterns::read_each;
use super::per::{TargetKeys, per, reselected};
use super::problem::shown;
use super::report::Report;
use super::selection::Selections;
use super::value::{List, Period};
use super::yaml::NodeId;
use crate::event::nearest;
use crate::syscall::{Abi, Call};
use crate::targets::{Glob, Targets};

/// Scheduler metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduler {
    /// Targets, without duplicates; at least one.
    pub per: Vec<Targets>,
    /// Whether to report which threads preempt others.
    pub preemption: bool,
    /// Thread sampling: one in N threads, N a power of two; 1 = all. Set by the [governor](crate::app), not by the file.
    pub one_of: u32,
}

/// System call metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Syscalls {
    /// Targets, without duplicates; at least one.
    pub per: Vec<Targets>,
    /// Names of included calls; empty = all.
    pub include: Vec<Glob>,
    /// Names of excluded calls; takes precedence over `include`.
    pub exclude: Vec<Glob>,
    /// Duration after which a call is stuck.
    pub stuck: Duration,
    /// Thread sampling as in [`Scheduler`].
    pub one_of: u32,
}

impl Syscalls {
    /// Reports whether the call is selected.
    pub fn matches(&self, name: &str) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches_name(name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Reports whether all calls are selected.
    pub fn takes_all(&self) -> bool {
        self.exclude.is_empty()
            && (self.include.is_empty() || self.include.iter().any(|glob| glob.as_str() == "*"))
    }
}

/// Default and bounds of the duration after which a call is stuck.
const STUCK: Period = Period::seconds(10);
const STUCK_THRESHOLDS: RangeInclusive<Period> = Period::milliseconds(100)..=Period::seconds(24 * 3600);
/// Maximum number of patterns per list; more than there are system calls.
const PATTERNS: usize = 512;

/// Returns the targets of a section, with those of `base` if `per` is omitted; empty for an empty list.
fn task_targets(
    written: &TargetKeys<'_, TaskPer>,
    base: Option<&[Targets]>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Targets> {
    match (written.per, base) {
        (Some(list), _) if list.is_empty() && !report.blames(list.node) => Vec::new(),
        (None, Some(base)) => reselected(base, &Selections::over(written.selections, selections, report)),
        _ => per(written, selections, report),
    }
}

/// Returns the checked section, with the values of `base` for omitted keys.
pub(super) fn scheduler(
    written: &Option<At<file::Scheduler>>,
    base: Option<&Scheduler>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Scheduler> {
    let Some(written) = written else {
        return base.map(|base| Scheduler { per: reselected(&base.per, selections), ..base.clone() });
    };
    let per = task_targets(&written.target_keys(), base.map(|base| &base.per[..]), selections, report);
    let preemption = written.preemption.map_or(base.is_none_or(|base| base.preemption), |at| at.value);
    (!per.is_empty()).then_some(Scheduler { per, preemption, one_of: 1 })
}

/// Returns the checked section, with the values of `base` for omitted keys.
pub(super) fn syscalls(
    written: &Option<At<file::Syscalls>>,
    base: Option<&Syscalls>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Syscalls> {
    let Some(written) = written else {
        return base.map(|base| Syscalls { per: reselected(&base.per, selections), ..base.clone() });
    };
    let per = task_targets(&written.target_keys(), base.map(|base| &base.per[..]), selections, report);
    let file::Syscalls { include, exclude, stuck, .. } = &written.value;
    if let Some(list) = include.as_ref().filter(|list| list.is_empty()) {
        let hint = "omit it for all system calls, or write `per: []` to disable the section";
        report.error(list.node, "an empty list selects no system call", hint);
    }
    let mut patterns = |list: &Option<At<List<String>>>, base: Option<&Vec<Glob>>| match list {
        Some(list) => globs(list, report),
        None => base.cloned().unwrap_or_default(),
    };
    let include = patterns(include, base.map(|base| &base.include));
    let exclude = patterns(exclude, base.map(|base| &base.exclude));
    let usual = base.map_or(STUCK, |base| Period(base.stuck));
    let Period(stuck) = report.setting(stuck, STUCK_THRESHOLDS, usual);
    (!per.is_empty()).then_some(Syscalls { per, include, exclude, stuck, one_of: 1 })
}

/// Returns the name patterns. Each must match a system call of a supported architecture.
fn globs(list: &At<List<String>>, report: &mut Report<'_>) -> Vec<Glob> {
    read_each(list, PATTERNS, "use wider patterns: `epoll_*`", report, |At { node, value }, report| {
        let glob = Glob::new(value).map_err(|error| report.error(*node, error.to_string(), None)).ok()?;
        known_call(*node, value, |name| glob.matches_name(name), report).then_some(glob)
    })
}

/// Reports whether a system call of a supported architecture matches a text, and an error if there is none.
pub(super) fn known_call(
    node: NodeId,
    text: &str,
    matches: impl Fn(&str) -> bool,
    report: &mut Report<'_>,
) -> bool {
    let is_known = ABIS.iter().any(|&abi| !Call::matching(abi, &matches).is_empty());
    if !is_known {
        let hint = near(text).map(|name| format!("did you mean `{name}`?"));
        report.error(node, format!("no system call is named {}", shown(text)), hint);
    }
    is_known
}

const ABIS: [Abi; 4] = [Abi::X86_64, Abi::Aarch64, Abi::I386, Abi::Arm];

/// Returns the system call with the most similar name.
fn near(text: &str) -> Option<String> {
    let names = ABIS.into_iter().flat_map(|abi| Call::matching(abi, |_| true)).filter_map(Call::name);
    nearest(text, names).map(str::to_owned)
}
