//! What the machine is and what it lets this process do.

use std::fmt;
use std::fs;
use std::str::FromStr;

use super::{CpuSet, Nodes, Roots, read_number, read_text};
use crate::error::FileError;

/// A kernel's version, as far as features depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct KernelVersion(pub u32, pub u32);

impl FromStr for KernelVersion {
    type Err = ();

    /// Reads the start of `uname -r`, such as `6.12.9-amd64`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self(major, minor)),
            _ => Err(()),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The effective capabilities of this process (`CapEff` in `/proc/self/status`), as a bit mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// `CAP_DAC_READ_SEARCH`.
    pub const DAC_READ_SEARCH: u32 = 2;
    /// `CAP_IPC_LOCK`.
    pub const IPC_LOCK: u32 = 14;
    /// `CAP_SYS_PTRACE`.
    pub const SYS_PTRACE: u32 = 19;
    /// `CAP_SYS_ADMIN`.
    pub const SYS_ADMIN: u32 = 21;
    /// `CAP_PERFMON`, since Linux 5.8.
    pub const PERFMON: u32 = 38;

    /// Whether the capability with this number is there.
    pub const fn has(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Whether perf events of others may be opened whatever `perf_event_paranoid` says
    /// (`perfmon_capable()` in the kernel: `CAP_PERFMON` or `CAP_SYS_ADMIN`).
    pub const fn perfmon(self) -> bool {
        self.has(Self::PERFMON) || self.has(Self::SYS_ADMIN)
    }
}

/// What is known of the host. Every field that could not be read is `None` or empty: an unreadable fact takes
/// precision from a message and never stops the program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The running kernel.
    pub kernel: KernelVersion,
    /// CPUs that are online.
    pub online: CpuSet,
    /// The NUMA nodes of CPUs.
    pub nodes: Nodes,
    /// `kernel.perf_event_paranoid`; `None` where the kernel has no perf events at all.
    pub paranoid: Option<i32>,
    /// `kernel.nmi_watchdog`: the watchdog holds one hardware counter on every CPU.
    pub nmi_watchdog: bool,
    /// Capabilities of this process.
    pub capabilities: Capabilities,
    /// Whether a hypervisor announces itself (`hypervisor` among the CPU's flags).
    pub virtual_machine: bool,
    /// The active mode of kernel lockdown other than `none`: `integrity` or `confidentiality`.
    pub lockdown: Option<String>,
    /// `kernel.perf_event_mlock_kb`: how much memory for rings an unprivileged user may lock, in KiB for each CPU.
    pub mlock_kb: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`: the most samples a second that an event may ask for. The kernel lowers it by
    /// itself where samples take too long.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_event_max_stack`: the most addresses of a call chain.
    pub max_stack: Option<u64>,
    /// Whether this process lives in a pid namespace of its own: to it, every task outside has the id 0.
    pub own_pid_namespace: bool,
}

/// What `/proc/PID/ns/pid` says of the namespace that the machine booted with (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

impl Facts {
    /// Reads them below `roots`.
    pub fn read(roots: &Roots) -> Self {
        let sysctl = |name: &str| read_text(&roots.proc.join("sys/kernel").join(name)).ok();
        Self {
            kernel: sysctl("osrelease").and_then(|text| text.parse().ok()).unwrap_or_default(),
            online: online_cpus(roots).unwrap_or_default(),
            nodes: Nodes::read(roots),
            paranoid: sysctl("perf_event_paranoid").and_then(|text| text.trim().parse().ok()),
            nmi_watchdog: read_number(&roots.proc.join("sys/kernel/nmi_watchdog")).is_ok_and(|n| n != 0),
            capabilities: capabilities(roots).unwrap_or_default(),
            virtual_machine: read_text(&roots.proc.join("cpuinfo"))
                .is_ok_and(|text| has_hypervisor_flag(&text)),
            lockdown: read_text(&roots.sys.join("kernel/security/lockdown"))
                .ok()
                .and_then(|text| lockdown(&text)),
            mlock_kb: read_number(&roots.proc.join("sys/kernel/perf_event_mlock_kb")).ok(),
            max_sample_rate: read_number(&roots.proc.join("sys/kernel/perf_event_max_sample_rate")).ok(),
            max_stack: read_number(&roots.proc.join("sys/kernel/perf_event_max_stack")).ok(),
            own_pid_namespace: fs::read_link(roots.proc.join("self/ns/pid"))
                .is_ok_and(|namespace| namespace.as_os_str() != INITIAL_PID_NAMESPACE),
        }
    }

    /// Reads them again. CPUs that are offline by now keep their nodes.
    pub fn read_again(&mut self, roots: &Roots) {
        let before = std::mem::replace(self, Self::read(roots));
        self.nodes.keep(before.nodes);
    }
}

/// The CPUs that are online now.
pub(crate) fn online_cpus(roots: &Roots) -> Result<CpuSet, FileError> {
    let path = roots.sys.join("devices/system/cpu/online");
    let text = read_text(&path)?;
    match text.parse::<CpuSet>() {
        Ok(online) if online.is_empty() => Err(FileError::malformed(path, "it names no CPU")),
        Ok(online) => Ok(online),
        Err(error) => Err(FileError::malformed(path, error.to_string())),
    }
}

fn capabilities(roots: &Roots) -> Option<Capabilities> {
    let status = read_text(&roots.proc.join("self/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(Capabilities)
}

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// The mode in brackets of `none [integrity] confidentiality`, unless it is `none`.
fn lockdown(text: &str) -> Option<String> {
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_by_number() {
        let version = |text: &str| text.parse::<KernelVersion>();
        assert_eq!(version("6.12.9-amd64"), Ok(KernelVersion(6, 12)));
        assert_eq!(version("5.4"), Ok(KernelVersion(5, 4)));
        assert!(version("6.1.0") < version("6.12.0"));
        assert!(version("Linux").is_err());
    }

    #[test]
    fn only_an_active_lockdown_counts() {
        assert_eq!(lockdown("[none] integrity confidentiality"), None);
        assert_eq!(lockdown("none [integrity] confidentiality"), Some("integrity".to_owned()));
        assert_eq!(lockdown(""), None);
    }

    #[test]
    fn perfmon_is_enough_and_so_is_sys_admin() {
        assert!(Capabilities(1 << 38).perfmon());
        assert!(Capabilities(1 << 21).perfmon());
        assert!(!Capabilities(1 << 19).perfmon());
    }

    #[test]
    fn a_host_without_any_file_has_no_facts_and_does_not_fail() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(Facts::read(&Roots::under(empty.path())), Facts::default());
    }
}
