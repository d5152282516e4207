//! What `scheduler` and `syscalls` come to: for whom it is told what threads do, and which calls.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::decode::At;
use super::file::{self, TaskPer};
use super::per::{Whom, per, reselected};
use super::problem::shown;
use super::report::Report;
use super::selection::Selections;
use super::value::{List, Period};
use crate::event::nearest;
use crate::syscall::{Abi, Call};
use crate::target::{Glob, Targets};

/// What is told of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduler {
    /// For whom; each at most once, and at least one.
    pub per: Vec<Targets>,
    /// Whether it is told by whom threads are preempted.
    pub preemption: bool,
    /// Of one of so many threads, a power of two; 1 = of all. No file says it, but the [governor](crate::app).
    pub one_of: u32,
}

/// What is told of system calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Syscalls {
    /// For whom; each at most once, and at least one.
    pub per: Vec<Targets>,
    /// Of which calls; none = of all.
    pub include: Vec<Glob>,
    /// Of which not; stronger than `include`.
    pub exclude: Vec<Glob>,
    /// When a call is stuck.
    pub stuck: Duration,
    /// As in [`Scheduler`].
    pub one_of: u32,
}

impl Syscalls {
    /// Whether this call is wanted.
    pub fn matches(&self, name: &str) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches_name(name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Whether every call is.
    pub fn takes_all(&self) -> bool {
        self.exclude.is_empty()
            && (self.include.is_empty() || self.include.iter().any(|glob| glob.as_str() == "*"))
    }
}

/// When a call is stuck unless the file says otherwise, and the bounds of that.
const STUCK: Period = Period::seconds(10);
const STUCKS: RangeInclusive<Period> = Period::milliseconds(100)..=Period::seconds(24 * 3600);
/// The most patterns of one list: more than there are system calls.
const PATTERNS: usize = 512;

/// For whom a section tells, over what `base` says; nobody with an empty list.
fn whom(
    written: &Whom<'_, TaskPer>,
    base: Option<&[Targets]>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Targets> {
    match (written.per, base) {
        (Some(list), _) if list.is_empty() && !report.blames(list.node) => Vec::new(),
        (None, Some(base)) => {
            reselected(base, &Selections::over(written.cgroups, written.processes, selections, report))
        }
        _ => per(written, selections, report),
    }
}

/// What the section says, over what `base` says.
pub(super) fn scheduler(
    written: Option<&At<file::Scheduler>>,
    base: Option<&Scheduler>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Scheduler> {
    let Some(written) = written else {
        return base.map(|base| Scheduler { per: reselected(&base.per, selections), ..base.clone() });
    };
    let per = whom(&written.whom(), base.map(|base| &base.per[..]), selections, report);
    let preemption = written.preemption.map_or(base.is_none_or(|base| base.preemption), |at| at.value);
    (!per.is_empty()).then_some(Scheduler { per, preemption, one_of: 1 })
}

/// What the section says, over what `base` says.
pub(super) fn syscalls(
    written: Option<&At<file::Syscalls>>,
    base: Option<&Syscalls>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Syscalls> {
    let Some(written) = written else {
        return base.map(|base| Syscalls { per: reselected(&base.per, selections), ..base.clone() });
    };
    let per = whom(&written.whom(), base.map(|base| &base.per[..]), selections, report);
    let file::Syscalls { include, exclude, stuck, .. } = &written.value;
    if let Some(list) = include.as_ref().filter(|list| list.is_empty()) {
        let hint = "leave it out for all, or write `per: []` to turn system calls off";
        report.error(list.node, "an empty list selects no system call", hint);
    }
    let mut patterns = |list: &Option<At<List<String>>>, base: Option<&Vec<Glob>>| match list {
        Some(list) => globs(list, report),
        None => base.cloned().unwrap_or_default(),
    };
    let include = patterns(include, base.map(|base| &base.include));
    let exclude = patterns(exclude, base.map(|base| &base.exclude));
    let usual = base.map_or(STUCK, |base| Period(base.stuck));
    let Period(stuck) = report.setting(stuck.as_ref(), STUCKS, usual);
    (!per.is_empty()).then_some(Syscalls { per, include, exclude, stuck, one_of: 1 })
}

/// Patterns of names, each of which stands for a call that this machine, or another one, has.
fn globs(list: &At<List<String>>, report: &mut Report<'_>) -> Vec<Glob> {
    report.too_many(list.node, (list.len(), "patterns"), PATTERNS, "use wider ones: `epoll_*`");
    let mut globs = Vec::new();
    for At { node, value } in list.iter().take(PATTERNS) {
        match Glob::new(value) {
            Ok(glob)
                if ABIS
                    .iter()
                    .any(|&abi| !Call::matching(abi, |name| glob.matches_name(name)).is_empty()) =>
            {
                globs.push(glob);
            }
            Ok(_) => {
                let hint = near(value).map(|name| format!("did you mean `{name}`?"));
                report.error(*node, format!("no system call is called {}", shown(value)), hint);
            }
            Err(error) => report.error(*node, error.to_string(), None),
        }
    }
    globs
}

const ABIS: [Abi; 4] = [Abi::X86_64, Abi::Aarch64, Abi::I386, Abi::Arm];

/// The call whose name is most like this.
fn near(text: &str) -> Option<String> {
    let names = ABIS.into_iter().flat_map(|abi| Call::matching(abi, |_| true)).filter_map(Call::name);
    nearest(text, names).map(str::to_owned)
}
