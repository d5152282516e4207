//! Classification of an errno: its meaning for an event and a target on this host, and the remedy.
//!
//! The meanings follow `perf_event_open(2)` and the kernel's `kernel/events/core.c`.

use std::sync::Arc;

use super::{Cause, Refusal, Scope};
use crate::error::Errno;
use crate::host::{Capabilities, Facts, KernelVersion};

/// An attempt to open an event that the kernel rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Scope of the counts.
    pub scope: Scope,
    /// Whether the event needs a counter of the core PMU.
    pub on_core_pmu: bool,
    /// Whether the host has a core PMU.
    pub core_pmu_present: bool,
    /// Whether the event is a probe that `perf_event_open` itself creates.
    pub probe: bool,
    /// Whether the event is a tracepoint.
    pub tracepoint: bool,
    /// Whether the event has a filter, which is passed to the kernel as text.
    pub filtered: bool,
    /// Whether the event excludes the kernel (`:u`).
    pub user_only: bool,
    /// Whether the event was rejected as a member of a group but opened without the group. This resolves one ambiguity of `EINVAL`.
    pub opens_alone: bool,
}

impl Attempt {
    /// Creates an attempt for an event without a PMU and without a filter.
    pub const fn software(scope: Scope) -> Self {
        Self {
            scope,
            on_core_pmu: false,
            core_pmu_present: true,
            probe: false,
            tracepoint: false,
            filtered: false,
            user_only: false,
            opens_alone: false,
        }
    }

    /// Creates an attempt for an event of the core PMU, on a host that has none.
    pub const fn without_pmu(scope: Scope) -> Self {
        Self { on_core_pmu: true, core_pmu_present: false, ..Self::software(scope) }
    }
}

/// A classification, without the event and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Class of the refusal.
    pub cause: Cause,
    /// The reason.
    pub reason: String,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Judgement {
    /// Creates a classification without a remedy.
    pub(crate) fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self { cause, reason: reason.into(), remedy: None }
    }

    /// Adds a remedy.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Creates the refusal of `event` for `target`.
    pub fn refusal(self, event: &Arc<str>, target: impl Into<String>, errno: Option<Errno>) -> Refusal {
        let Self { cause, reason, remedy } = self;
        Refusal {
            event: Arc::clone(event),
            target: target.into(),
            cause,
            errno,
            reason,
            remedy,
            unknown: false,
        }
    }
}

/// Classifies `errno`.
pub fn classify(errno: Errno, attempt: &Attempt, facts: &Facts) -> Judgement {
    match errno {
        Errno::ENOENT | Errno::EOPNOTSUPP => absent(attempt, facts),
        Errno::ENOSYS => Judgement::new(Cause::Absent, "the kernel does not support perf events")
            .remedy("use a kernel built with CONFIG_PERF_EVENTS"),
        Errno::ENODEV => {
            Judgement::new(Cause::Absent, "the CPU is offline, or the PMU does not count on this CPU")
        }
        Errno::EACCES | Errno::EPERM => forbidden(errno, attempt, facts),
        Errno::EMFILE => {
            Judgement::new(Cause::Exhausted, "the process has reached its limit on file descriptors")
                .remedy("raise LimitNOFILE (systemd) or ulimit -n, or count fewer cgroups or processes")
        }
        Errno::ENFILE => {
            Judgement::new(Cause::Exhausted, "the system has reached its limit on file descriptors")
                .remedy("raise fs.file-max, or count fewer cgroups or processes")
        }
        Errno::ENOMEM => {
            Judgement::new(Cause::Exhausted, "the kernel could not allocate memory for the event")
        }
        Errno::ENOSPC => Judgement::new(Cause::Exhausted, "all hardware slots for this event are in use")
            .remedy("stop other programs that use hardware breakpoints, or configure fewer"),
        Errno::EBUSY => Judgement::new(Cause::Exhausted, "another program has exclusive use of the PMU")
            .remedy("stop other instances of perf and debuggers; perf stat -a shows whether the PMU is free"),
        Errno::ESRCH => Judgement::new(Cause::Gone, "the process ended"),
        Errno::E2BIG => Judgement::new(
            Cause::Absent,
            format!("kernel {} does not support a field of the event, such as config3", facts.kernel),
        ),
        Errno::EINVAL => invalid(attempt, facts),
        other => Judgement::new(Cause::Broken, format!("the kernel returned {other}")),
    }
}

/// Returns the judgement that events exceed the descriptor budget of `limit`.
pub fn no_descriptors(limit: usize) -> Judgement {
    Judgement::new(Cause::Exhausted, format!("the budget of {limit} descriptors is used up"))
        .remedy("raise LimitNOFILE (systemd) or ulimit -n, or limits.descriptors")
}

fn absent(attempt: &Attempt, facts: &Facts) -> Judgement {
    let judgement = |reason: &str| Judgement::new(Cause::Absent, reason);
    match (attempt.on_core_pmu, attempt.core_pmu_present) {
        (true, false) if facts.virtual_machine => judgement("this virtual machine has no hardware counters")
            .remedy(
                "enable the virtual PMU in the hypervisor (libvirt: <pmu state='on'/>), or use a host or instance \
                 type with PMU passthrough",
            ),
        (true, false) => judgement("the kernel found no core PMU on this machine"),
        (true, true) => judgement("the PMU of this machine does not support this event")
            .remedy("run perf-exporter list to list the events of this machine"),
        (false, _) if attempt.tracepoint => judgement("the tracepoint no longer exists")
            .remedy("its module may have been unloaded"),
        (false, _) if attempt.scope == Scope::Cgroup => {
            judgement("perf events cannot use this cgroup hierarchy").remedy(
                "a cgroup v1 hierarchy with the perf_event controller disables it in cgroup v2: check perf_event in /proc/cgroups",
            )
        }
        (false, _) => judgement("the kernel does not support this event"),
    }
}

/// Classifies `EACCES` and `EPERM`. `perf_event_paranoid` restricts raw tracepoints at level 0, events of whole CPUs at 1, kernel code of a
/// user's own processes at 2, and everything at 3 (Debian, Ubuntu, Android).
fn forbidden(errno: Errno, attempt: &Attempt, facts: &Facts) -> Judgement {
    let judgement = |reason: String| Judgement::new(Cause::Forbidden, reason);
    let level = facts.paranoid.unwrap_or(2);
    if facts.capabilities.perfmon() {
        if facts.lockdown.as_deref() == Some("confidentiality") {
            return judgement("kernel lockdown is in confidentiality mode".into())
                .remedy("boot without lockdown=confidentiality");
        }
        if attempt.probe && errno == Errno::EACCES && !facts.capabilities.has(Capabilities::SYS_ADMIN) {
            // Linux ba677dbe77af, in 6.16 and in stable releases of that time: a uprobe could split an instruction.
            return judgement("this kernel requires CAP_SYS_ADMIN for uprobes created with perf_event_open".into()).remedy(
                "give the probe an argument (arguments: [\"first=$arg1\"]), so that it is created in tracefs, which needs \
                 no CAP_SYS_ADMIN",
            );
        }
        if facts.requires_admin() && !facts.capabilities.has(Capabilities::SYS_ADMIN) {
            return judgement(format!("perf_event_paranoid is {level}, at which kernels of Debian and Ubuntu require CAP_SYS_ADMIN")).remedy(
                "set sysctl kernel.perf_event_paranoid=2, at which CAP_PERFMON is sufficient, or grant perf-exporter CAP_SYS_ADMIN",
            );
        }
        return judgement(format!("the kernel returned {errno} despite CAP_PERFMON")).remedy(
            "allow perf_event_open in the seccomp profile of the container and in LSM policies (Docker: \
             --security-opt seccomp=…, Kubernetes: seccompProfile)",
        );
    }
    let needed = match attempt.scope {
        Scope::Cpus(_) | Scope::Cgroup if attempt.tracepoint => -1,
        Scope::Cpus(_) | Scope::Cgroup => 0,
        Scope::Process => 1,
    };
    let allowed = level <= needed || attempt.user_only && level <= 2;
    if attempt.scope == Scope::Process && allowed {
        return judgement("the process belongs to another user".into())
            .remedy("grant perf-exporter CAP_PERFMON, or run it as that user");
    }
    let has_perfmon = facts.kernel >= KernelVersion(5, 8);
    let who = if has_perfmon { "CAP_PERFMON" } else { "CAP_SYS_ADMIN" };
    let remedy = if has_perfmon && facts.requires_admin() {
        format!(
            "grant perf-exporter CAP_PERFMON and set sysctl kernel.perf_event_paranoid=2 (at {level}, kernels of Debian and Ubuntu \
             require CAP_SYS_ADMIN), or set it to {needed}"
        )
    } else {
        format!("grant perf-exporter {who}, or set sysctl kernel.perf_event_paranoid={needed}")
    };
    let user_side = attempt.scope == Scope::Process && level == 2 && !attempt.tracepoint;
    let remedy = if user_side { format!("{remedy}, or count user space only (:u)") } else { remedy };
    judgement(format!("perf_event_paranoid is {level} and {who} is missing")).remedy(remedy)
}

fn invalid(attempt: &Attempt, facts: &Facts) -> Judgement {
    if attempt.opens_alone {
        let judgement = Judgement::new(
            Cause::Exhausted,
            "the event does not fit on the PMU together with the rest of its group",
        );
        return if facts.nmi_watchdog && attempt.on_core_pmu {
            judgement.remedy("set sysctl kernel.nmi_watchdog=0 to free the counter of the NMI watchdog, or move the event to its own entry")
        } else {
            judgement.remedy("move the event to its own entry")
        };
    }
    if attempt.filtered {
        return Judgement::new(Cause::Broken, "the kernel rejected the filter of the event")
            .remedy("try the event without a filter; with ftrace:function, a function must be in available_filter_functions of tracefs");
    }
    Judgement::new(Cause::Broken, "the kernel rejected this combination of event, modifiers and target")
        .remedy("try the event without modifiers; compare with the attribute that perf stat -vv -e shows")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARDWARE: Attempt = Attempt { on_core_pmu: true, ..Attempt::software(Scope::CPU) };

    fn unprivileged(paranoid: i32) -> Facts {
        Facts { kernel: KernelVersion(6, 12), paranoid: Some(paranoid), ..Facts::default() }
    }

    fn root() -> Facts {
        Facts { capabilities: Capabilities(u64::MAX), ..unprivileged(2) }
    }

    #[test]
    fn a_virtual_machine_without_a_pmu_is_told_from_a_pmu_without_the_event() {
        let vm = Facts { virtual_machine: true, ..root() };
        let none = classify(Errno::ENOENT, &Attempt { core_pmu_present: false, ..HARDWARE }, &vm);
        assert_eq!(none.cause, Cause::Absent);
        assert!(none.reason.contains("virtual machine"), "{none:?}");
        let one = classify(Errno::ENOENT, &HARDWARE, &vm);
        assert_eq!(
            (one.cause, &*one.reason),
            (Cause::Absent, "the PMU of this machine does not support this event")
        );
    }

    #[test]
    fn the_remedy_for_a_forbidden_event_names_the_capability_and_the_level_that_is_enough() {
        let judgement = classify(Errno::EACCES, &HARDWARE, &unprivileged(3));
        assert_eq!(judgement.cause, Cause::Forbidden);
        assert_eq!(judgement.reason, "perf_event_paranoid is 3 and CAP_PERFMON is missing");
        assert_eq!(
            judgement.remedy.unwrap(),
            "grant perf-exporter CAP_PERFMON and set sysctl kernel.perf_event_paranoid=2 (at 3, kernels of Debian and Ubuntu \
             require CAP_SYS_ADMIN), or set it to 0"
        );
        assert_eq!(
            classify(Errno::EACCES, &HARDWARE, &unprivileged(2)).remedy.unwrap(),
            "grant perf-exporter CAP_PERFMON, or set sysctl kernel.perf_event_paranoid=0"
        );
        let old = Facts { kernel: KernelVersion(5, 4), ..unprivileged(3) };
        assert!(classify(Errno::EACCES, &HARDWARE, &old).reason.contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn an_own_process_can_be_counted_in_user_space_at_level_two() {
        let process = Attempt { scope: Scope::Process, ..HARDWARE };
        let remedy = classify(Errno::EACCES, &process, &unprivileged(2)).remedy.unwrap();
        assert!(remedy.ends_with("or count user space only (:u)"), "{remedy}");
        let other = classify(Errno::EACCES, &Attempt { user_only: true, ..process }, &unprivileged(2));
        assert_eq!(other.reason, "the process belongs to another user");
    }

    #[test]
    fn a_uprobe_that_perfmon_may_not_make_goes_through_tracefs_with_an_argument() {
        let perfmon = Facts { capabilities: Capabilities(1 << Capabilities::PERFMON), ..root() };
        let uprobe = Attempt { probe: true, on_core_pmu: false, ..HARDWARE };
        let judgement = classify(Errno::EACCES, &uprobe, &perfmon);
        assert_eq!(judgement.cause, Cause::Forbidden);
        assert!(judgement.remedy.unwrap().contains("first=$arg1"));
        assert!(classify(Errno::EACCES, &uprobe, &root()).remedy.unwrap().contains("seccomp"));
    }

    #[test]
    fn at_the_level_of_debian_and_ubuntu_perfmon_is_not_sufficient() {
        let perfmon = Facts { capabilities: Capabilities(1 << Capabilities::PERFMON), ..unprivileged(3) };
        let judgement = classify(Errno::EACCES, &HARDWARE, &perfmon);
        assert_eq!(
            judgement.reason,
            "perf_event_paranoid is 3, at which kernels of Debian and Ubuntu require CAP_SYS_ADMIN"
        );
        assert!(judgement.remedy.unwrap().starts_with("set sysctl kernel.perf_event_paranoid=2"));
        let admin = Facts { capabilities: Capabilities(u64::MAX), ..unprivileged(3) };
        assert!(classify(Errno::EACCES, &HARDWARE, &admin).remedy.unwrap().contains("seccomp"));
    }

    #[test]
    fn with_the_capability_a_refusal_points_to_seccomp() {
        let judgement = classify(Errno::EPERM, &HARDWARE, &root());
        assert_eq!(judgement.cause, Cause::Forbidden);
        assert!(judgement.remedy.unwrap().contains("seccomp"));
    }

    #[test]
    fn einval_in_a_group_is_a_lack_of_room_only_if_the_event_opens_alone() {
        let grouped = classify(Errno::EINVAL, &Attempt { opens_alone: true, ..HARDWARE }, &root());
        assert_eq!(grouped.cause, Cause::Exhausted);
        let watched = Facts { nmi_watchdog: true, ..root() };
        let hint =
            classify(Errno::EINVAL, &Attempt { opens_alone: true, ..HARDWARE }, &watched).remedy.unwrap();
        assert!(hint.contains("nmi_watchdog=0"), "{hint}");
        assert_eq!(classify(Errno::EINVAL, &HARDWARE, &root()).cause, Cause::Broken);
    }

    #[test]
    fn every_errno_of_the_call_has_a_class() {
        for (errno, cause) in [
            (Errno::ENOENT, Cause::Absent),
            (Errno::EOPNOTSUPP, Cause::Absent),
            (Errno::ENODEV, Cause::Absent),
            (Errno::ENOSYS, Cause::Absent),
            (Errno::E2BIG, Cause::Absent),
            (Errno::EACCES, Cause::Forbidden),
            (Errno::EMFILE, Cause::Exhausted),
            (Errno::ENFILE, Cause::Exhausted),
            (Errno::ENOMEM, Cause::Exhausted),
            (Errno::ENOSPC, Cause::Exhausted),
            (Errno::EBUSY, Cause::Exhausted),
            (Errno::ESRCH, Cause::Gone),
            (Errno::EFAULT, Cause::Broken),
        ] {
            assert_eq!(classify(errno, &HARDWARE, &unprivileged(2)).cause, cause, "{errno:?}");
        }
    }
}
