//! Facts about the machine and the privileges of this process.

use std::fmt;
use std::fs;
use std::str::FromStr;

use super::{CpuSet, Nodes, Roots, read_number, read_text};
use crate::error::FileError;

/// Kernel version, as far as features depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct KernelVersion(pub u32, pub u32);

impl FromStr for KernelVersion {
    type Err = ();

    /// Parses the start of `uname -r`, such as `6.12.9-amd64`.
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

/// Effective capabilities of this process (`CapEff` in `/proc/self/status`), as a bit mask.
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

    /// Reports whether the set contains the capability with this number.
    pub const fn has(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Reports whether perf events of other users may be opened regardless of `perf_event_paranoid` (`perfmon_capable()` in the kernel:
    /// `CAP_PERFMON` or `CAP_SYS_ADMIN`).
    pub const fn perfmon(self) -> bool {
        self.has(Self::PERFMON) || self.has(Self::SYS_ADMIN)
    }
}

/// Facts about the host. Fields that could not be read are `None` or empty. They only affect the precision of messages and never stop the
/// program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Version of the running kernel.
    pub kernel: KernelVersion,
    /// Online CPUs.
    pub online: CpuSet,
    /// NUMA nodes of CPUs.
    pub nodes: Nodes,
    /// `kernel.perf_event_paranoid`; `None` if the kernel has no perf events.
    pub paranoid: Option<i32>,
    /// Whether the NMI watchdog occupies one hardware counter on every CPU: `kernel.nmi_watchdog`. On arm64 it needs pseudo-NMIs
    /// (`arch_perf_nmi_is_available` in `arch/arm64/kernel/watchdog_hld.c`); without them the setting has no effect.
    pub nmi_watchdog: bool,
    /// Capabilities of this process.
    pub capabilities: Capabilities,
    /// Whether a hypervisor is present (`hypervisor` in the CPU flags).
    pub virtual_machine: bool,
    /// Active kernel lockdown mode: `integrity` or `confidentiality`; `None` for mode `none`.
    pub lockdown: Option<String>,
    /// `kernel.perf_event_mlock_kb`: locked ring memory that an unprivileged user is allowed, in KiB per CPU.
    pub mlock_kb: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`: maximum samples per second of an event. The kernel lowers it automatically if samples take too
    /// long.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_event_max_stack`: maximum number of addresses in a call chain.
    pub max_stack: Option<u64>,
    /// Whether this process is in its own PID namespace, in which every outside task has the ID 0.
    pub own_pid_namespace: bool,
}

/// Target of `/proc/PID/ns/pid` for the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

impl Facts {
    /// Reports whether kernels of Debian and Ubuntu require `CAP_SYS_ADMIN` for all events: `perf_event_paranoid` is 3 or 4. Other kernels
    /// have no such levels.
    pub fn requires_admin(&self) -> bool {
        self.paranoid.is_some_and(|level| level >= 3)
    }

    /// Reads the facts below `roots`.
    pub fn read(roots: &Roots) -> Self {
        let sysctl = |name: &str| read_text(&roots.proc.join("sys/kernel").join(name)).ok();
        Self {
            kernel: sysctl("osrelease").and_then(|text| text.parse().ok()).unwrap_or_default(),
            online: online_cpus(roots).unwrap_or_default(),
            nodes: Nodes::read(roots),
            paranoid: sysctl("perf_event_paranoid").and_then(|text| text.trim().parse().ok()),
            nmi_watchdog: read_number(&roots.proc.join("sys/kernel/nmi_watchdog")).is_ok_and(|n| n != 0)
                && has_nmis(roots),
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

    /// Reads the facts again. CPUs that have gone offline keep their nodes.
    pub fn read_again(&mut self, roots: &Roots) {
        let before = std::mem::replace(self, Self::read(roots));
        self.nodes.keep(before.nodes);
    }
}

/// Reports whether the interrupts of the PMU are NMIs, or pseudo-NMIs on arm64.
fn has_nmis(roots: &Roots) -> bool {
    let text = |name: &str| read_text(&roots.proc.join(name)).unwrap_or_default();
    let is_arm = text("cpuinfo").lines().any(|line| line.starts_with("CPU implementer"));
    !is_arm || text("cmdline").split_ascii_whitespace().any(|word| word == "irqchip.gicv3_pseudo_nmi=1")
}

/// Returns the CPUs that are online now.
pub(crate) fn online_cpus(roots: &Roots) -> Result<CpuSet, FileError> {
    let path = roots.sys.join("devices/system/cpu/online");
    let text = read_text(&path)?;
    match text.parse::<CpuSet>() {
        Ok(online) if online.is_empty() => Err(FileError::malformed(path, "it contains no CPUs")),
        Ok(online) => Ok(online),
        Err(error) => Err(FileError::malformed(path, error.to_string())),
    }
}

fn capabilities(roots: &Roots) -> Option<Capabilities> {
    let status = read_text(&roots.proc.join("self/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(Capabilities)
}

/// Returns the model of the first CPU; `None` if the kernel does not report it, as on most arm64 machines.
pub fn cpu_model(roots: &Roots) -> Option<String> {
    model(&read_text(&roots.proc.join("cpuinfo")).ok()?)
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// Returns the mode in brackets of `none [integrity] confidentiality`, unless it is `none`.
fn lockdown(text: &str) -> Option<String> {
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_arm_the_watchdog_uses_a_counter_only_with_pseudo_nmis() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let write = |name: &str, text: &str| {
            let path = roots.proc.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/kernel/nmi_watchdog", "1\n");
        write("cpuinfo", "vendor_id\t: GenuineIntel\n");
        assert!(Facts::read(&roots).nmi_watchdog);
        write("cpuinfo", "CPU implementer\t: 0x41\n");
        write("cmdline", "ro quiet\n");
        assert!(!Facts::read(&roots).nmi_watchdog);
        write("cmdline", "ro irqchip.gicv3_pseudo_nmi=1\n");
        assert!(Facts::read(&roots).nmi_watchdog);
    }

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
