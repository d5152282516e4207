//! Processes: the running ones ([`Processes`]), the selected ones, and their grouping into series ([`ProcessSelection`]).

mod context;
mod stat;
mod unit;
mod walk;

pub use context::ProcessContext;
pub use unit::unit_of;
pub use walk::Processes;

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::attribution::FEW_TARGETS;
use super::{Attribution, Glob};
use crate::host;
use crate::named_enum::named_enum;

/// Identity of a process since boot: pids are reused, but not within one clock tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// The process ID, which is the thread group ID.
    #[doc(alias = "tgid")]
    pub pid: u32,
    /// Start time, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
}

impl ProcessKey {
    /// Reads the key of the process of a procfs directory (`/proc/812`, `/proc/self`). `None` if it has ended or is not visible.
    pub fn read(dir: &Path) -> Option<Self> {
        let content = host::read(&dir.join("stat")).ok()?;
        stat::Stat::parse(&content).map(|stat| stat.key)
    }
}

/// One process, as of its last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its identity.
    pub key: ProcessKey,
    /// The command name: `task_struct.comm`, at most 15 bytes. Bytes that are not UTF-8 are replaced by U+FFFD. All other characters are
    /// kept, including control characters. A kernel worker is `kworker/0:1`, without its current work, which changes all the time.
    pub comm: Arc<str>,
    /// The path of the executable in the mount namespace of the process, without the kernel's suffix ` (deleted)`. `None` if it was not
    /// requested, if there is none (kernel threads), or if access is denied: it needs `CAP_SYS_PTRACE` for processes of other users.
    pub exe: Option<Arc<str>>,
    /// The cgroup, as a [`Cgroup::path`](super::Cgroup::path). `None` if it was not requested, or is outside of the mount.
    pub cgroup: Option<Arc<str>>,
    /// Whether it is a kernel thread (`PF_KTHREAD`).
    pub kernel_thread: bool,
}

/// IDs of processes that are known to have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Processes that were created, executed another program, changed their name, or moved to another cgroup.
    pub changed: FxHashSet<u32>,
    /// Processes that started to exit.
    pub ending: FxHashSet<u32>,
}

/// Properties of processes to read that are expensive: each costs one to three system calls per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// [`Process::exe`].
    pub exe: bool,
    /// [`Process::cgroup`].
    pub cgroup: bool,
}

impl Need {
    /// Returns the union of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { exe: self.exe || other.exe, cgroup: self.cgroup || other.cgroup }
    }
}

/// Selection of the processes to count, and their grouping into series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessSelection {
    /// Rules to include a process; one matching rule suffices.
    pub include: Vec<ProcessRule>,
    /// Rules to exclude a process; takes precedence over `include`.
    pub exclude: Vec<ProcessRule>,
    /// Grouping: processes with equal values of all of these properties share a series.
    pub by: Vec<GroupBy>,
    /// Method of attributing counts to processes.
    pub attribution: Attribution,
}

impl ProcessSelection {
    /// Reports whether this process is selected. A rule about an unknown property ([`Process::exe`], [`Process::cgroup`]) does not match.
    pub fn matches(&self, process: &Process) -> bool {
        let met = |rule: &ProcessRule| rule.matches(process);
        self.include.iter().any(met) && !self.exclude.iter().any(met)
    }

    /// Returns the properties that [`matches`](Self::matches) and [`labels`](Self::labels) need.
    pub fn need(&self) -> Need {
        let rules = || self.include.iter().chain(&self.exclude);
        Need {
            exe: rules().any(|rule| rule.exe.is_some()) || self.by.contains(&GroupBy::Exe),
            cgroup: rules().any(|rule| rule.cgroup.is_some())
                || self.by.iter().any(|by| matches!(by, GroupBy::Cgroup | GroupBy::Unit)),
        }
    }

    /// Reports whether at most a few processes are selected, each by its pid, so that dedicated descriptors are cheap. Ignores `exclude`,
    /// which can only reduce the number.
    pub fn names_few(&self) -> bool {
        self.include.len() <= FEW_TARGETS && self.include.iter().all(|rule| rule.pid.is_some())
    }

    /// Reports whether a part of the labels is controlled by processes: their names, executables and IDs, of which there can be any number.
    pub fn has_own_names(&self) -> bool {
        self.by.iter().any(|by| by.is_chosen())
    }

    /// Returns the part of the labels that a process controls; `None` if there is none, or for kernel threads.
    pub fn own_name(&self, process: &Process) -> Option<Arc<str>> {
        if process.kernel_thread || !self.has_own_names() {
            return None;
        }
        let chosen = self.by.iter().filter(|by| by.is_chosen()).map(|by| by.value(process));
        Some(chosen.collect::<Vec<_>>().join("\0").into())
    }

    /// Returns the labels of a process whose cgroup has too many names: `other` for each label that a process controls.
    pub fn labels_without_name(&self, process: &Process) -> Vec<(&'static str, Arc<str>)> {
        let value = |by: &GroupBy| if by.is_chosen() { "other".into() } else { by.value(process) };
        self.by.iter().map(|by| (by.as_str(), value(by))).collect()
    }

    /// Returns the labels of this process's series, in the order of `by`. Unknown values are empty, which is the same as no label in
    /// Prometheus.
    pub fn labels(&self, process: &Process) -> Vec<(&'static str, Arc<str>)> {
        self.by.iter().map(|by| (by.as_str(), by.value(process))).collect()
    }
}

/// A rule. All of its given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessRule {
    /// The command name (`/proc/PID/comm`, at most 15 bytes).
    pub comm: Option<Glob>,
    /// The path of the executable.
    pub exe: Option<Glob>,
    /// The path of the cgroup.
    pub cgroup: Option<Glob>,
    /// The process ID.
    pub pid: Option<u32>,
    /// Whether it is a kernel thread.
    pub kernel: Option<bool>,
}

impl ProcessRule {
    fn matches(&self, process: &Process) -> bool {
        let path = |glob: &Option<Glob>, path: &Option<Arc<str>>| match (glob, path) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(glob), Some(path)) => glob.matches(path),
        };
        self.pid.is_none_or(|pid| pid == process.key.pid)
            && self.kernel.is_none_or(|kernel| kernel == process.kernel_thread)
            && self.comm.as_ref().is_none_or(|glob| glob.matches_name(&process.comm))
            && path(&self.exe, &process.exe)
            && path(&self.cgroup, &process.cgroup)
    }
}

named_enum! {
    /// A property of processes that becomes a label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "By")]
    pub enum GroupBy {
        /// The command name.
        Comm = "comm",
        /// The process ID: one series for every process, including ended ones, within `limits.series`.
        Pid = "pid",
        /// The path of the executable.
        Exe = "exe",
        /// The path of the cgroup.
        Cgroup = "cgroup",
        // If `perf_event` is on cgroup v1, the unit is known at most for containers: systemd uses another hierarchy for its services there.
        /// The systemd unit, such as `nginx.service`; for a cgroup in slices only, the innermost slice; empty if there is none.
        Unit = "unit",
        /// `kernel` for kernel threads, `user` for every other process.
        Kind = "kind",
    }
}

impl GroupBy {
    /// Reports whether a process controls the property.
    const fn is_chosen(self) -> bool {
        matches!(self, Self::Comm | Self::Pid | Self::Exe)
    }

    fn value(self, process: &Process) -> Arc<str> {
        match self {
            Self::Comm => Arc::clone(&process.comm),
            Self::Pid => process.key.pid.to_string().into(),
            Self::Exe => process.exe.clone().unwrap_or_default(),
            Self::Cgroup => process.cgroup.clone().unwrap_or_default(),
            Self::Unit => process.cgroup.as_deref().and_then(unit_of).unwrap_or_default().into(),
            Self::Kind => if process.kernel_thread { "kernel" } else { "user" }.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, comm: &str, exe: Option<&str>, cgroup: Option<&str>) -> Process {
        Process {
            key: ProcessKey { pid, start_time: 1 },
            comm: comm.into(),
            exe: exe.map(Into::into),
            cgroup: cgroup.map(Into::into),
            kernel_thread: false,
        }
    }

    fn glob(pattern: &str) -> Option<Glob> {
        Some(Glob::new(pattern).unwrap())
    }

    fn selection(include: Vec<ProcessRule>, exclude: Vec<ProcessRule>, by: &[GroupBy]) -> ProcessSelection {
        ProcessSelection { include, exclude, by: by.to_vec(), attribution: Attribution::Auto }
    }

    #[test]
    fn everything_that_a_rule_gives_must_hold() {
        let rule = ProcessRule { comm: glob("nginx*"), cgroup: glob("/web/**"), ..ProcessRule::default() };
        let web = selection(vec![rule], vec![], &[]);
        assert!(web.matches(&process(1, "nginx", None, Some("/web/a"))));
        assert!(!web.matches(&process(1, "nginx", None, Some("/batch"))));
        assert!(!web.matches(&process(1, "sh", None, Some("/web/a"))));
    }

    #[test]
    fn one_rule_is_enough_to_take_and_one_to_leave_out() {
        let pid = |pid| ProcessRule { pid: Some(pid), ..ProcessRule::default() };
        let comm = |text| ProcessRule { comm: glob(text), ..ProcessRule::default() };
        let some = selection(vec![pid(7), comm("*")], vec![comm("kworker*"), pid(9)], &[]);
        assert!(some.matches(&process(8, "sh", None, None)));
        assert!(!some.matches(&process(9, "sh", None, None)));
        assert!(!some.matches(&process(7, "kworker/0:1", None, None)));
        assert!(!selection(vec![], vec![], &[]).matches(&process(7, "sh", None, None)));
    }

    #[test]
    fn a_rule_about_what_is_not_known_does_not_match() {
        let rule = ProcessRule { exe: glob("**"), ..ProcessRule::default() };
        assert!(!selection(vec![rule], vec![], &[]).matches(&process(1, "sh", None, None)));
    }

    #[test]
    fn a_rule_can_be_about_threads_of_the_kernel_or_about_all_others() {
        let kernel = |kernel| ProcessRule { kernel: Some(kernel), ..ProcessRule::default() };
        let thread = Process { kernel_thread: true, ..process(2, "kthreadd", None, None) };
        let shell = process(7, "sh", None, None);
        let programs = selection(vec![ProcessRule::default()], vec![kernel(true)], &[]);
        assert!(programs.matches(&shell) && !programs.matches(&thread));
        let threads = selection(vec![kernel(true)], vec![], &[]);
        assert!(threads.matches(&thread) && !threads.matches(&shell));
        assert_eq!(programs.matches(&shell), selection(vec![kernel(false)], vec![], &[]).matches(&shell));
        assert_eq!(programs.need(), Need::default());
    }

    #[test]
    fn few_processes_are_named_where_every_rule_gives_a_pid() {
        let pid = |pid| ProcessRule { pid: Some(pid), ..ProcessRule::default() };
        let comm = ProcessRule { comm: glob("sh"), ..ProcessRule::default() };
        let both = ProcessRule { pid: Some(7), ..comm.clone() };
        assert!(selection((1..=4).map(pid).collect(), vec![comm.clone()], &[]).names_few());
        assert!(selection(vec![both], vec![], &[]).names_few());
        assert!(!selection((1..=5).map(pid).collect(), vec![], &[]).names_few());
        assert!(!selection(vec![pid(7), comm], vec![], &[]).names_few());
    }

    #[test]
    fn labels_stand_in_the_order_of_by() {
        let by = [GroupBy::Pid, GroupBy::Comm, GroupBy::Exe, GroupBy::Cgroup];
        let labels = selection(vec![], vec![], &by).labels(&process(7, "sh", Some("/bin/sh"), None));
        let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(labels, [("pid", "7"), ("comm", "sh"), ("exe", "/bin/sh"), ("cgroup", "")]);
    }

    #[test]
    fn unit_and_kind_are_labels_too_and_the_unit_needs_the_cgroup() {
        let grouped = selection(vec![ProcessRule::default()], vec![], &[GroupBy::Unit, GroupBy::Kind]);
        let labels =
            |process: Process| grouped.labels(&process).into_iter().map(|(_, value)| value.to_string());
        let web = process(7, "nginx", None, Some("/system.slice/nginx.service"));
        assert_eq!(grouped.labels(&web).iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["unit", "kind"]);
        assert!(labels(web).eq(["nginx.service", "user"]));
        assert!(labels(process(7, "sh", None, Some("/docker/0a1b"))).eq(["", "user"]));
        assert!(
            labels(Process { kernel_thread: true, ..process(2, "kthreadd", None, None) }).eq(["", "kernel"])
        );
        assert_eq!(grouped.need(), Need { exe: false, cgroup: true });
        assert_eq!(selection(vec![], vec![], &[GroupBy::Kind]).need(), Need::default());
    }

    #[test]
    fn the_part_of_the_labels_that_a_process_chooses_can_be_left_out() {
        let by = [GroupBy::Comm, GroupBy::Cgroup, GroupBy::Kind];
        let grouped = selection(vec![], vec![], &by);
        let shell = process(7, "sh", None, Some("/pod"));
        assert_eq!(grouped.own_name(&shell).as_deref(), Some("sh"));
        let labels = grouped.labels_without_name(&shell);
        let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(labels, [("comm", "other"), ("cgroup", "/pod"), ("kind", "user")]);
        let thread = Process { kernel_thread: true, ..process(2, "kthreadd", None, None) };
        assert_eq!(grouped.own_name(&thread), None);
        assert_eq!(selection(vec![], vec![], &[GroupBy::Cgroup]).own_name(&shell), None);
        let both = selection(vec![], vec![], &[GroupBy::Comm, GroupBy::Pid]);
        assert_ne!(both.own_name(&shell), both.own_name(&process(8, "sh", None, None)));
    }

    #[test]
    fn only_what_a_rule_or_a_label_uses_is_needed() {
        let exe = ProcessRule { exe: glob("/bin/*"), ..ProcessRule::default() };
        let by_exclusion = selection(vec![ProcessRule::default()], vec![exe], &[GroupBy::Comm]);
        assert_eq!(by_exclusion.need(), Need { exe: true, cgroup: false });
        let by_label = selection(vec![ProcessRule::default()], vec![], &[GroupBy::Cgroup]);
        assert_eq!(by_label.need(), Need { exe: false, cgroup: true });
        assert_eq!(by_exclusion.need().and(by_label.need()), Need { exe: true, cgroup: true });
    }
}
