//! Capabilities and system calls that the service keeps: the capabilities of the table in docs/privileges.md, and the system calls of
//! [`sandbox`]. It gives up all others at its start, so a defect in the exporter gives an attacker no more than that.

use std::path::PathBuf;

use rustix::process::geteuid;
use rustix::thread::CapabilitySet;

use crate::config::Config;
use crate::config::profiled::{Profiled, Source};
use crate::config::traced::TracedKind;
use crate::files::Files;
use crate::host::{Facts, KernelVersion};
use crate::net::listen::ListenAddress;
use crate::sys::privileges;
use crate::sys::sandbox::{self, CallSet};

/// Capabilities of features that a reload can enable at any time.
const ALWAYS: CapabilitySet = CapabilitySet::PERFMON
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE);

/// First kernel with `CAP_CHECKPOINT_RESTORE`, the youngest of these capabilities. Before, `CAP_SYS_ADMIN` implies them.
const ALL_EXIST: KernelVersion = KernelVersion(5, 9);

/// The privileges of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privileges {
    /// All capabilities that the process was started with (`--no-sandbox`, or the kernel rejected the change).
    All,
    /// Without these capabilities, which the process was started with.
    Without(CapabilitySet),
}

impl Privileges {
    /// Gives up the capabilities that this configuration does not need. Must be called before other threads are started.
    pub(super) fn reduce(config: &Config, facts: &Facts) -> Self {
        let reduced = privileges::held().and_then(|held| {
            let keep = needed(config, facts, geteuid().is_root(), held);
            Ok((held & keep, privileges::give_up_except(keep)?))
        });
        match reduced {
            Ok((kept, dropped)) => {
                let dropped_count = dropped.bits().count_ones();
                tracing::info!(kept = %names(kept), dropped = dropped_count, "gave up capabilities that no feature needs");
                Self::Without(dropped)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot give up capabilities; the exporter keeps all capabilities of its start");
                Self::All
            }
        }
    }

    /// Reports whether a new configuration needs a capability that was given up.
    pub(super) fn lack(self, config: &Config, facts: &Facts) -> bool {
        match self {
            Self::All => false,
            Self::Without(dropped) => {
                dropped.contains(CapabilitySet::SYS_ADMIN) && needs_admin(config, facts)
            }
        }
    }

    /// Returns a note for `/status`, if nothing was given up.
    pub(super) fn note(self) -> Option<String> {
        (self == Self::All).then(|| {
            "the exporter keeps capabilities that no feature needs (--no-sandbox, or see the log)".to_owned()
        })
    }
}

/// Restricts the system calls of this thread, of the threads that it starts later, and of the child that opens files. Must be called before
/// other threads are started. Returns a note for `/status` if the kernel does not enforce it.
pub(super) fn restrict_service(config: &Config, files: &Files) -> Option<String> {
    let restricted = sandbox::restrict_calls(CallSet::Service { mounts: config.mount_tracefs });
    if let Err(error) = files.restrict() {
        tracing::warn!(%error, "cannot start the thread that starts helper processes");
    }
    let error = restricted.err()?;
    tracing::warn!(%error, "cannot restrict system calls (seccomp)");
    Some(format!("the system calls of the exporter are not restricted: {error}"))
}

/// Restricts this thread and the threads that it starts later to what the HTTP server and pushes need: they execute no programs, open no
/// events, change no files, and cannot inspect other processes. `sockets` are the addresses of the server: at the end, it removes the files of
/// its unix sockets.
pub(super) fn restrict_network<'a>(sockets: impl IntoIterator<Item = &'a ListenAddress>) {
    let directory = |address: &ListenAddress| match address {
        ListenAddress::Unix(path) => path.parent().map(PathBuf::from),
        ListenAddress::Tcp(_) => None,
    };
    let removable: Vec<PathBuf> = sockets.into_iter().filter_map(directory).collect();
    match sandbox::restrict_files(&removable) {
        Ok(true) => {}
        Ok(false) => {
            tracing::info!("this kernel cannot restrict the files of threads (Landlock, Linux 5.13)");
        }
        Err(error) => tracing::warn!(%error, "cannot restrict the files of threads (Landlock)"),
    }
    if let Err(error) = sandbox::restrict_calls(CallSet::Network) {
        tracing::debug!(%error, "cannot restrict the system calls of threads of the network");
    }
}

/// Reports whether a feature needs `CAP_SYS_ADMIN`. Since Linux 6.16 the kernel requires it for uprobes that `perf_event_open` creates.
fn needs_admin(config: &Config, facts: &Facts) -> bool {
    let profiles_probe = |entry: &Profiled| matches!(entry.source, Source::Probe { .. });
    let probes = config.traced.iter().any(|entry| entry.kind == TracedKind::Probe)
        || config.profiles.iter().any(profiles_probe);
    probes || config.mount_tracefs || facts.requires_admin() || facts.kernel < ALL_EXIST
}

/// Returns the capabilities to keep of those `held`, of which some imply others.
fn needed(config: &Config, facts: &Facts, is_root: bool, held: CapabilitySet) -> CapabilitySet {
    let mut needed = ALWAYS;
    if needs_admin(config, facts)
        || !held.contains(CapabilitySet::PERFMON | CapabilitySet::CHECKPOINT_RESTORE)
    {
        needed |= CapabilitySet::SYS_ADMIN;
    }
    // The files of tracefs and the sockets of container runtimes belong to root.
    if !is_root || !held.contains(CapabilitySet::DAC_READ_SEARCH) {
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    needed
}

/// Returns the names, such as `CAP_PERFMON CAP_SYSLOG`; of unknown capabilities the number of all.
fn names(set: CapabilitySet) -> String {
    let names: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    let unknown = set.bits().count_ones() as usize - names.len();
    match (names.is_empty(), unknown) {
        (true, 0) => "none".to_owned(),
        (_, 0) => names.join(" "),
        (_, unknown) => format!("{} and {unknown} more", names.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CapabilitySet = CapabilitySet::all();

    fn facts(kernel: KernelVersion, paranoid: i32) -> Facts {
        Facts { kernel, paranoid: Some(paranoid), ..Facts::default() }
    }

    fn modern() -> Facts {
        facts(KernelVersion(6, 1), 2)
    }

    fn config(text: &str) -> Config {
        crate::config::load(text.as_bytes(), "test").unwrap().0
    }

    #[test]
    fn the_built_in_configuration_of_root_keeps_neither_all_powers_nor_all_files() {
        let kept = needed(&Config::default(), &modern(), true, ALL);
        assert_eq!(kept, ALWAYS);
        assert!(
            !kept.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::SETPCAP)
        );
    }

    #[test]
    fn probes_mounts_old_and_restricted_kernels_and_other_users_need_one_more() {
        for text in [
            "probes: {a: {kprobe: do_exit}}",
            "profiles: {a: {uprobe: '/lib/libc.so.6:malloc', period: 1000}}",
            "tracefs: {mount: true}",
        ] {
            assert_eq!(
                needed(&config(text), &modern(), true, ALL) - ALWAYS,
                CapabilitySet::SYS_ADMIN,
                "{text}"
            );
        }
        let built_in =
            |facts: Facts, is_root, held| needed(&Config::default(), &facts, is_root, held) - ALWAYS;
        assert_eq!(built_in(facts(KernelVersion(5, 8), 2), true, ALL), CapabilitySet::SYS_ADMIN);
        assert_eq!(built_in(facts(KernelVersion(6, 12), 3), true, ALL), CapabilitySet::SYS_ADMIN, "Debian");
        assert_eq!(built_in(modern(), false, ALL), CapabilitySet::DAC_OVERRIDE);
        assert_eq!(built_in(modern(), true, ALL - CapabilitySet::PERFMON), CapabilitySet::SYS_ADMIN);
        assert_eq!(
            built_in(modern(), true, ALL - CapabilitySet::DAC_READ_SEARCH),
            CapabilitySet::DAC_OVERRIDE
        );
    }

    #[test]
    fn a_reload_that_needs_more_is_told_so() {
        let (reduced, probes) =
            (Privileges::Without(CapabilitySet::SYS_ADMIN), config("probes: {a: {kprobe: do_exit}}"));
        assert!(reduced.lack(&probes, &modern()) && !reduced.lack(&Config::default(), &modern()));
        let others = [Privileges::All, Privileges::Without(CapabilitySet::CHOWN)];
        assert!(others.iter().all(|other| !other.lack(&probes, &modern())));
        assert_eq!((reduced.note(), Privileges::All.note().is_some()), (None, true));
    }

    #[test]
    fn capabilities_have_the_names_of_the_kernel() {
        assert_eq!(names(CapabilitySet::SYSLOG | CapabilitySet::PERFMON), "CAP_SYSLOG CAP_PERFMON");
        assert_eq!(names(CapabilitySet::empty()), "none");
        assert_eq!(
            names(CapabilitySet::CHOWN | CapabilitySet::from_bits_retain(1 << 60)),
            "CAP_CHOWN and 1 more"
        );
    }
}
