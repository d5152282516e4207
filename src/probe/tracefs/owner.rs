//! Owners of probe groups.

use crate::host::{self, Roots};
use crate::named_enum::named_enum;
use crate::targets::ProcessKey;

const PREFIX: &str = "perf_exporter_";

/// The exporter that owns a group of probes. Its group is named `perf_exporter_PID_START`. The PID alone is not unique: it can be reused,
/// and it is 1 in every container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    pid: u32,
    /// Start time in clock ticks since boot, from the 22nd field of `/proc/PID/stat`; `None` if it could not be read.
    started: Option<u64>,
}

named_enum! {
    /// Whether an owner is still running.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Life {
        /// A process has its PID and start time, or cannot be distinguished from it.
        Alive = "alive",
        /// No process of this machine matches.
        Gone = "gone",
        /// Not all processes of this machine are visible.
        Unknown = "unknown",
    }
}

impl Owner {
    /// Returns this process, as identified by procfs, or else by `pid`.
    pub fn own(roots: &Roots, pid: u32) -> Self {
        match ProcessKey::read(&roots.proc.join("self")) {
            Some(key) => Self { pid: key.pid, started: Some(key.start_time) },
            None => Self { pid, started: None },
        }
    }

    /// Returns the group name.
    pub fn group(&self) -> String {
        match self.started {
            Some(started) => format!("{PREFIX}{}_{started}", self.pid),
            None => format!("{PREFIX}{}", self.pid),
        }
    }

    /// Returns the owner of a group. `None` if the group does not belong to an exporter.
    pub fn of_group(group: &str) -> Option<Self> {
        let words = group.strip_prefix(PREFIX)?;
        let (pid, started) = match words.split_once('_') {
            Some((pid, started)) => (pid, Some(started.parse().ok()?)),
            None => (words, None),
        };
        let owner = Self { pid: pid.parse().ok()?, started };
        (owner.group() == group).then_some(owner)
    }

    /// Returns the process ID, as seen by the owner itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Checks whether the owner is still running.
    pub fn life(&self, roots: &Roots) -> Life {
        let Some(started) = self.started else {
            return if roots.proc.join(self.pid.to_string()).exists() { Life::Alive } else { Life::Unknown };
        };
        let own = ProcessKey::read(&roots.proc.join(self.pid.to_string()));
        if own == Some(ProcessKey { pid: self.pid, start_time: started }) {
            return Life::Alive;
        }
        if !sees_all(roots) {
            return Life::Unknown;
        }
        // In a PID namespace, the owner has a different PID for itself, but the same start time.
        let Ok(processes) = host::list(&roots.proc) else { return Life::Unknown };
        let mut numbered = processes.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let is_it = |name: &String| {
            ProcessKey::read(&roots.proc.join(name)).is_some_and(|key| key.start_time == started)
        };
        if numbered.any(is_it) { Life::Alive } else { Life::Gone }
    }
}

/// Reports whether procfs shows every process of the machine. That is the case in the initial PID namespace, where process 2 is kthreadd.
fn sees_all(roots: &Roots) -> bool {
    host::read_text(&roots.proc.join("2/comm")).is_ok_and(|comm| comm == "kthreadd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_tells_its_owner() {
        for group in ["perf_exporter_1", "perf_exporter_812_99", "perf_exporter_4194304_18446744073709551615"]
        {
            assert_eq!(Owner::of_group(group).unwrap().group(), group);
        }
        for group in [
            "perf_exporter",
            "perf_exporter_",
            "perf_exporter_x",
            "perf_exporter_01",
            "perf_exporter_1_",
            "perf_exporter_1_2_3",
            "perf_exporter_+1",
            "perf_exporter_99999999999",
            "probe_libc",
        ] {
            assert_eq!(Owner::of_group(group), None, "{group}");
        }
    }
}
