//! Options of perf that select the target.

use std::ffi::OsString;

use clap::Args;

use crate::host::CpuSet;

/// Options that select the target.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct TargetArgs {
    /// Measure the whole machine.
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Measure these processes with all their threads and children, until they end.
    #[arg(short = 'p', long, value_name = "PID,…", value_delimiter = ',', value_parser = id, conflicts_with_all = ["all_cpus", "cpu", "cgroup", "tid"])]
    pid: Vec<u32>,
    /// Measure these threads and their children, until they end.
    #[arg(short = 't', long, value_name = "TID,…", value_delimiter = ',', value_parser = id, conflicts_with_all = ["all_cpus", "cpu", "cgroup"])]
    tid: Vec<u32>,
    /// Measure these cgroups: paths below the root of the cgroup hierarchy, or in the file system.
    #[arg(
        short = 'G',
        long,
        visible_alias = "for-each-cgroup",
        value_name = "CGROUP,…",
        value_delimiter = ','
    )]
    cgroup: Vec<String>,
    /// Measure the processes that this user has at the start, by name or number, and their children, until they end.
    #[arg(short = 'u', long, value_name = "USER", conflicts_with_all = ["all_cpus", "cpu", "cgroup", "tid", "pid"])]
    uid: Option<String>,
    /// Measure only these CPUs: 0-3,8.
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<CpuSet>,
}

/// The selected target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Target {
    /// Everything, on all CPUs or on these.
    Machine(Option<CpuSet>),
    /// Each of these cgroups, on all CPUs or on these.
    Cgroups(Vec<String>, Option<CpuSet>),
    /// These processes.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
    /// The processes of this user.
    User(String),
    /// The command.
    Command,
}

impl TargetArgs {
    /// Returns the target that perf would select. With another target, a command only limits the duration.
    pub(in crate::cli) fn target(&self, command: &[OsString]) -> Target {
        if !self.pid.is_empty() {
            Target::Processes(self.pid.clone())
        } else if !self.tid.is_empty() {
            Target::Threads(self.tid.clone())
        } else if let Some(user) = &self.uid {
            Target::User(user.clone())
        } else if !self.cgroup.is_empty() {
            Target::Cgroups(self.cgroup.clone(), self.cpu.clone())
        } else if self.all_cpus || self.cpu.is_some() || command.is_empty() {
            Target::Machine(self.cpu.clone())
        } else {
            Target::Command
        }
    }
}

fn id(text: &str) -> Result<u32, String> {
    let number = text.trim().parse::<u32>().ok().filter(|&id| id > 0 && i32::try_from(id).is_ok());
    number.ok_or_else(|| "expected comma-separated numbers, such as 812,4711".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        target: TargetArgs,
        #[arg(trailing_var_arg = true)]
        command: Vec<OsString>,
    }

    fn target(line: &str) -> Result<Target, String> {
        let words = std::iter::once("stat").chain(line.split(' ').filter(|word| !word.is_empty()));
        let alone = Alone::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(alone.target.target(&alone.command))
    }

    #[test]
    fn whom_to_look_at_is_whom_perf_would_look_at() {
        let cpus = || Some("0-3".parse().unwrap());
        for (line, expected) in [
            ("", Target::Machine(None)),
            ("-a", Target::Machine(None)),
            ("true", Target::Command),
            ("-a sleep 1", Target::Machine(None)),
            ("-C 0-3 sleep 1", Target::Machine(cpus())),
            ("-p 7,8 sleep 1", Target::Processes(vec![7, 8])),
            ("-p 7 -p 8", Target::Processes(vec![7, 8])),
            ("-t 9", Target::Threads(vec![9])),
            ("-u root sleep 1", Target::User("root".into())),
            ("-a -G a,b", Target::Cgroups(vec!["a".into(), "b".into()], None)),
            ("--for-each-cgroup a -C 0-3", Target::Cgroups(vec!["a".into()], cpus())),
        ] {
            assert_eq!(target(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-p 1,x", "expected comma-separated numbers, such as 812,4711"),
            ("-p 0", "expected comma-separated numbers"),
            ("-p 4294967295", "expected comma-separated numbers"),
            ("-C 3-1", "is not a list of CPUs such as 0-3,8"),
            ("-p 1 -a", "cannot be used with"),
            ("-t 1 -p 1", "cannot be used with"),
            ("-u root -a", "cannot be used with"),
            ("-p 1 -C 0", "cannot be used with"),
        ] {
            let error = target(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
