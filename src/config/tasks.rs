//! What `scheduler` and `syscalls` come to: for whom it is told what threads do, and which calls.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::decode::At;
use super::file;
use super::per::{TaskPer, Whom, per, reselected};
use super::problem::shown;
use super::report::Report;
use super::selection::{Selections, cgroups as cgroups_of, processes as processes_of};
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
const STUCK: Duration = Duration::from_secs(10);
const STUCKS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// The most patterns of one list: more than there are system calls.
const PATTERNS: usize = 512;

/// For whom a section tells; `None` where it does not say.
fn whom(whom: &Whom<'_, TaskPer>, selections: &Selections, report: &mut Report<'_>) -> Option<Vec<Targets>> {
    match whom.per {
        Some(list) if list.is_empty() && !report.blames(list.node) => Some(Vec::new()),
        Some(_) => Some(per(whom, selections, report)),
        None => None,
    }
}

/// What the section says, over what `base` says.
pub(super) fn scheduler(
    written: Option<&At<file::Scheduler>>,
    base: Option<&Scheduler>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Scheduler> {
    let base = base.map(|base| Scheduler { per: reselected(&base.per, selections), ..base.clone() });
    let Some(At { node, value: file::Scheduler { per, preemption, cgroups, processes } }) = written else {
        return base;
    };
    let words =
        Whom { entry: *node, per: per.as_ref(), cgroups: cgroups.as_ref(), processes: processes.as_ref() };
    let per = match whom(&words, selections, report) {
        Some(per) => per,
        None => {
            let own = Selections {
                cgroups: cgroups_of(words.cgroups, &selections.cgroups, report),
                processes: processes_of(words.processes, &selections.processes, report),
            };
            base.as_ref().map_or_else(|| vec![Targets::HOST], |base| reselected(&base.per, &own))
        }
    };
    let preemption = preemption.map_or(base.is_none_or(|base| base.preemption), |at| at.value);
    (!per.is_empty()).then_some(Scheduler { per, preemption, one_of: 1 })
}

/// What the section says, over what `base` says.
pub(super) fn syscalls(
    written: Option<&At<file::Syscalls>>,
    base: Option<&Syscalls>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Syscalls> {
    let base = base.map(|base| Syscalls { per: reselected(&base.per, selections), ..base.clone() });
    let Some(At { node, value }) = written else { return base };
    let file::Syscalls { per: words, include, exclude, stuck, cgroups, processes } = value;
    let words =
        Whom { entry: *node, per: words.as_ref(), cgroups: cgroups.as_ref(), processes: processes.as_ref() };
    let per = match (whom(&words, selections, report), &base) {
        (Some(per), _) => per,
        (None, Some(base)) => base.per.clone(),
        (None, None) => per(&words, selections, report),
    };
    let patterns =
        |list: Option<&At<List<String>>>, base: Option<Vec<Glob>>, report: &mut Report<'_>| match list {
            Some(list) => globs(list, report),
            None => base.unwrap_or_default(),
        };
    if let Some(list) = include.as_ref().filter(|list| list.is_empty()) {
        let hint = "leave it out for all, or write `per: []` to turn system calls off";
        report.error(list.node, "an empty list selects no system call", Some(hint.into()));
    }
    let syscalls = Syscalls {
        include: patterns(include.as_ref(), base.as_ref().map(|base| base.include.clone()), report),
        exclude: patterns(exclude.as_ref(), base.as_ref().map(|base| base.exclude.clone()), report),
        stuck: stuck_after(stuck.as_ref(), base.map_or(STUCK, |base| base.stuck), report),
        one_of: 1,
        per,
    };
    (!syscalls.per.is_empty()).then_some(syscalls)
}

/// Patterns of names, each of which stands for a call that this machine, or another one, has.
fn globs(list: &At<List<String>>, report: &mut Report<'_>) -> Vec<Glob> {
    if list.len() > PATTERNS {
        let message = format!("{} patterns, and at most {PATTERNS} are taken", list.len());
        report.error(list.node, message, Some("use wider ones: `epoll_*`".into()));
    }
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

fn stuck_after(written: Option<&At<Period>>, base: Duration, report: &mut Report<'_>) -> Duration {
    let Some(At { node, value: Period(stuck) }) = written else { return base };
    if !STUCKS.contains(stuck) {
        let message = format!("{stuck:?} is not between {:?} and {:?}", STUCKS.start(), STUCKS.end());
        report.error(*node, message, Some(format!("{base:?} is the default")));
    }
    *stuck
}
