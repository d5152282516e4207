//! Perf's options for whom to look at.

use std::ffi::OsString;

use clap::Args;

use crate::host::CpuSet;

/// Whom to look at.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct TargetArgs {
    /// The whole machine.
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// These processes, with all their threads and what they start, until they end.
    #[arg(short = 'p', long, value_name = "PID,…", value_delimiter = ',', value_parser = id, conflicts_with_all = ["all_cpus", "cpu", "cgroup", "tid"])]
    pid: Vec<u32>,
    /// These threads and what they start, until they end.
    #[arg(short = 't', long, value_name = "TID,…", value_delimiter = ',', value_parser = id, conflicts_with_all = ["all_cpus", "cpu", "cgroup"])]
    tid: Vec<u32>,
    /// These cgroups: paths below the hierarchy's root, or in the file system.
    #[arg(
        short = 'G',
        long,
        visible_alias = "for-each-cgroup",
        value_name = "CGROUP,…",
        value_delimiter = ','
    )]
    cgroup: Vec<String>,
    /// These CPUs only: 0-3,8.
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<CpuSet>,
}

/// Whom to look at.
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
    /// The command.
    Command,
}

impl TargetArgs {
    /// Whom perf would look at. A command beside somebody else only says for how long.
    pub(in crate::cli) fn target(&self, command: &[OsString]) -> Target {
        if !self.pid.is_empty() {
            Target::Processes(self.pid.clone())
        } else if !self.tid.is_empty() {
            Target::Threads(self.tid.clone())
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
    number.ok_or_else(|| "expected numbers with commas between, such as 812,4711".into())
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
            ("-a -G a,b", Target::Cgroups(vec!["a".into(), "b".into()], None)),
            ("--for-each-cgroup a -C 0-3", Target::Cgroups(vec!["a".into()], cpus())),
        ] {
            assert_eq!(target(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-p 1,x", "expected numbers with commas between, such as 812,4711"),
            ("-p 0", "expected numbers"),
            ("-p 4294967295", "expected numbers"),
            ("-C 3-1", "is not a list of CPUs such as 0-3,8"),
            ("-p 1 -a", "cannot be used with"),
            ("-t 1 -p 1", "cannot be used with"),
            ("-p 1 -C 0", "cannot be used with"),
        ] {
            let error = target(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
