//! Which processes are selected, and how they are grouped into series.

use std::fmt;
use std::sync::Arc;

use super::Glob;

/// What a process is known by while it lives: a process id comes back, the pair does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

/// A process as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its identity.
    pub key: ProcessKey,
    /// The command name, at most 15 bytes; bytes that are not UTF-8 are U+FFFD.
    pub comm: Arc<str>,
    /// The path of the executable; `None` for kernel threads, where it may not be read, and where nobody asked.
    pub exe: Option<Arc<str>>,
    /// The path of its cgroup in the hierarchy that perf events see; `None` where nobody asked.
    pub cgroup: Option<Arc<str>>,
    /// Whether it is a thread of the kernel.
    pub kernel_thread: bool,
}

/// Which processes to count, and how to group them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSelection {
    /// Rules to take a process by; one that matches is enough.
    pub include: Vec<ProcessRule>,
    /// Rules to leave one out by, stronger than `include`.
    pub exclude: Vec<ProcessRule>,
    /// What makes a series: processes that agree in all of these are counted together.
    pub by: Vec<GroupBy>,
}

/// One rule; everything that it gives must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessRule {
    /// The command name (`/proc/PID/comm`, at most 15 bytes).
    pub comm: Option<Glob>,
    /// The path of the executable.
    pub exe: Option<Glob>,
    /// The path of the cgroup.
    pub cgroup: Option<Glob>,
    /// The process id.
    pub pid: Option<u32>,
}

/// A property of processes that becomes a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupBy {
    /// `comm`.
    Comm,
    /// `pid`.
    Pid,
    /// `exe`.
    Exe,
    /// `cgroup`.
    Cgroup,
}

impl GroupBy {
    /// The name of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Comm => "comm",
            Self::Pid => "pid",
            Self::Exe => "exe",
            Self::Cgroup => "cgroup",
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What of a process must be read beyond its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Details {
    /// The path of the executable.
    pub exe: bool,
    /// The path of the cgroup.
    pub cgroup: bool,
}

impl ProcessRule {
    fn matches(&self, process: &Process) -> bool {
        let holds = |glob: &Option<Glob>, text: Option<&str>| {
            glob.as_ref().is_none_or(|glob| text.is_some_and(|text| glob.matches(text)))
        };
        holds(&self.comm, Some(&process.comm))
            && holds(&self.exe, process.exe.as_deref())
            && holds(&self.cgroup, process.cgroup.as_deref())
            && self.pid.is_none_or(|pid| pid == process.key.pid)
    }
}

impl ProcessSelection {
    /// Whether the process is one of them.
    pub fn matches(&self, process: &Process) -> bool {
        self.include.iter().any(|rule| rule.matches(process))
            && !self.exclude.iter().any(|rule| rule.matches(process))
    }

    /// The labels of the series that the process counts for, in the order of `by`. What is not known is empty, which
    /// is an absent label.
    pub fn labels(&self, process: &Process) -> Vec<(&'static str, Arc<str>)> {
        let value = |by: GroupBy| match by {
            GroupBy::Comm => Arc::clone(&process.comm),
            GroupBy::Pid => process.key.pid.to_string().into(),
            GroupBy::Exe => process.exe.clone().unwrap_or_else(|| "".into()),
            GroupBy::Cgroup => process.cgroup.clone().unwrap_or_else(|| "".into()),
        };
        self.by.iter().map(|&by| (by.as_str(), value(by))).collect()
    }

    /// What must be known of processes to select and group them.
    pub fn details(&self) -> Details {
        let rules = || self.include.iter().chain(&self.exclude);
        Details {
            exe: self.by.contains(&GroupBy::Exe) || rules().any(|rule| rule.exe.is_some()),
            cgroup: self.by.contains(&GroupBy::Cgroup) || rules().any(|rule| rule.cgroup.is_some()),
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

    fn rule(comm: &str) -> ProcessRule {
        ProcessRule { comm: Some(Glob::for_names(comm).unwrap()), ..ProcessRule::default() }
    }

    #[test]
    fn everything_that_a_rule_gives_must_hold() {
        let both = ProcessRule { exe: Some(Glob::new("/usr/sbin/*").unwrap()), ..rule("nginx*") };
        let selection =
            ProcessSelection { include: vec![both], exclude: vec![rule("nginx-old")], by: vec![] };
        assert!(selection.matches(&process(1, "nginx", Some("/usr/sbin/nginx"), None)));
        assert!(!selection.matches(&process(1, "nginx", Some("/opt/nginx"), None)));
        assert!(!selection.matches(&process(1, "nginx", None, None)));
        assert!(!selection.matches(&process(1, "nginx-old", Some("/usr/sbin/nginx"), None)));
        assert_eq!(selection.details(), Details { exe: true, cgroup: false });
    }

    #[test]
    fn a_star_in_a_command_name_does_not_stop_at_a_slash() {
        let selection = ProcessSelection { include: vec![rule("kworker*")], exclude: vec![], by: vec![] };
        assert!(selection.matches(&process(1, "kworker/0:1H", None, None)));
    }

    #[test]
    fn labels_follow_the_grouping() {
        let by = vec![GroupBy::Cgroup, GroupBy::Comm, GroupBy::Pid];
        let selection = ProcessSelection { include: vec![], exclude: vec![], by };
        let labels = selection.labels(&process(7, "sh", None, Some("/a")));
        assert_eq!(labels, [("cgroup", "/a".into()), ("comm", "sh".into()), ("pid", "7".into())]);
    }
}
