//! Restrictions that a thread imposes on itself, and on the threads and processes that it starts later: on system calls (seccomp) and on
//! files (Landlock). Neither can be lifted again.
//!
//! A system call that is not allowed fails with `ENOSYS`, as on a kernel without it: the C library then uses an older one.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::thread;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Rights to files that restricted threads lose where the kernel knows them: all of this version of Landlock (Linux 6.2).
const VERSION: ABI = ABI::V3;

/// Threads by the system calls that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSet {
    /// All threads of the service. The flag allows mounts.
    Service {
        /// Whether tracefs may have to be mounted.
        mounts: bool,
    },
    /// Threads that exchange data with the network: they can neither open events nor execute programs.
    Network,
    /// The child process that opens files of other processes: no network, no events, no programs.
    Helper,
}

/// Restricts the system calls of this thread to those of `set`.
///
/// # Errors
/// The kernel's error: it has no seccomp filters, or another filter forbids them.
pub fn restrict_calls(set: CallSet) -> io::Result<()> {
    let rules = rules(set).map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter =
        SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Returns the allowed calls. Those with conditions on their arguments are allowed if one of them holds.
fn rules(set: CallSet) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<_>> = numbers(set).map(|number| (number, Vec::new())).collect();
    let first_argument = |operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?])
    };
    if let Some(conditions) = rules.get_mut(&libc::SYS_clone) {
        conditions.push(first_argument(SeccompCmpOp::MaskedEq(NAMESPACES), 0)?);
    }
    if let Some(conditions) = rules.get_mut(&libc::SYS_socket) {
        for family in FAMILIES {
            conditions.push(first_argument(SeccompCmpOp::Eq, family)?);
        }
    }
    Ok(rules)
}

fn numbers(set: CallSet) -> impl Iterator<Item = i64> {
    let more: &[&[(&str, libc::c_long)]] = match set {
        CallSet::Service { mounts: true } => &[NETWORK, SERVICE, SERVICE_OF_ARCHITECTURE, MOUNTS],
        CallSet::Service { mounts: false } => &[NETWORK, SERVICE, SERVICE_OF_ARCHITECTURE],
        CallSet::Network => &[NETWORK],
        CallSet::Helper => &[],
    };
    more.iter().copied().chain([COMMON, COMMON_OF_ARCHITECTURE]).flatten().map(|&(_, number)| number)
}

/// Restricts the files of this thread: it can read what its user may read, but change nothing except to remove files in the directories
/// `removable`. It can also not use what the kernel guards like `ptrace`: memory, executables and root directories of other processes
/// below `/proc`. Returns whether the kernel enforces it (Linux 5.13 with Landlock enabled).
///
/// # Errors
/// The kernel's error.
pub fn restrict_files(removable: &[PathBuf]) -> io::Result<bool> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(VERSION)).and_then(Ruleset::create);
    let root = PathFd::new("/").map_err(io::Error::other)?;
    let mut ruleset = ruleset
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, read)))
        .map_err(io::Error::other)?;
    for directory in removable {
        let directory = PathFd::new(directory).map_err(io::Error::other)?;
        let rule = PathBeneath::new(directory, AccessFs::RemoveFile);
        ruleset = ruleset.add_rule(rule).map_err(io::Error::other)?;
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Applies the restrictions to a thread made for this, which then ends. Returns the result for system calls, and for files whether the kernel
/// enforces it.
///
/// # Errors
/// The errors of [`restrict_calls`] and [`restrict_files`].
pub fn try_out() -> (io::Result<()>, io::Result<bool>) {
    let tried = thread::spawn(|| {
        let files = restrict_files(&[]);
        (restrict_calls(CallSet::Network), files)
    });
    let panicked = || io::Error::other("the thread panicked");
    tried.join().unwrap_or_else(|_| (Err(panicked()), Err(panicked())))
}

/// Defines a list of system calls with their names and numbers.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

/// Flags of `clone` that create namespaces. A process has all capabilities in a user namespace that it created.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Families of sockets: connections, and notifications of the kernel about CPUs.
const FAMILIES: [u64; 4] =
    [libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64, libc::AF_NETLINK as u64];

/// Files, memory, threads, time and pipes. `clone3` is not allowed, because a filter cannot check flags in memory. The C library then calls
/// `clone`.
const COMMON: &[(&str, libc::c_long)] = calls!(
    SYS_brk SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_close SYS_close_range SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_exit SYS_exit_group SYS_faccessat
    SYS_faccessat2 SYS_fadvise64 SYS_fcntl SYS_flock SYS_fstat SYS_fstatfs SYS_futex SYS_getcpu SYS_getcwd SYS_getdents64
    SYS_getegid SYS_geteuid SYS_getgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_getrusage SYS_gettid SYS_gettimeofday SYS_getuid SYS_ioctl SYS_kill SYS_lseek SYS_madvise SYS_membarrier
    SYS_memfd_create SYS_mmap SYS_mprotect SYS_mremap SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_prlimit64 SYS_pselect6
    SYS_pwrite64 SYS_read SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_restart_syscall SYS_rseq
    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler SYS_sched_setattr
    SYS_sched_yield SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setpriority SYS_shutdown
    SYS_sigaltstack SYS_socketpair SYS_statfs SYS_statx SYS_sysinfo SYS_tgkill SYS_timerfd_create SYS_timerfd_settime SYS_uname
    SYS_wait4 SYS_waitid SYS_write SYS_writev SYS_capget SYS_capset SYS_seccomp SYS_landlock_create_ruleset
    SYS_landlock_add_rule SYS_landlock_restrict_self
);

/// Older forms of these calls, which only the first 64-bit architecture of Linux has.
#[cfg(target_arch = "x86_64")]
const COMMON_OF_ARCHITECTURE: &[(&str, libc::c_long)] = calls!(
    SYS_access SYS_arch_prctl SYS_dup2 SYS_epoll_wait SYS_getrlimit SYS_lstat SYS_open SYS_pipe SYS_poll SYS_readlink SYS_stat SYS_time SYS_unlink
);
#[cfg(not(target_arch = "x86_64"))]
const COMMON_OF_ARCHITECTURE: &[(&str, libc::c_long)] = &[];

/// Connections, and the removal of unix sockets.
const NETWORK: &[(&str, libc::c_long)] = calls!(
    SYS_accept4 SYS_bind SYS_connect SYS_getpeername SYS_getsockname SYS_getsockopt SYS_setsockopt SYS_socket SYS_unlinkat
);

/// Events, the start of the helper process, and files that are written: they are created under another name, renamed and removed.
const SERVICE: &[(&str, libc::c_long)] = calls!(
    SYS_chdir SYS_execve SYS_fchdir SYS_fdatasync SYS_fsync SYS_mkdirat SYS_perf_event_open SYS_renameat SYS_renameat2
    SYS_setpgid SYS_umask
);

/// Older forms of these calls.
#[cfg(target_arch = "x86_64")]
const SERVICE_OF_ARCHITECTURE: &[(&str, libc::c_long)] = calls!(SYS_mkdir SYS_rename);
#[cfg(not(target_arch = "x86_64"))]
const SERVICE_OF_ARCHITECTURE: &[(&str, libc::c_long)] = &[];

/// Mounts of tracefs.
const MOUNTS: &[(&str, libc::c_long)] = calls!(SYS_mount);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::thread;

    use super::*;
    use crate::host::{list, read_text};

    /// Runs `work` on a thread, so that its restrictions end with it.
    fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn a_thread_of_the_network_opens_no_events_and_executes_no_programs() {
        let (socket, events, program, file) = apart(|| {
            restrict_calls(CallSet::Network).unwrap();
            let event = perf_event_open_sys::bindings::perf_event_attr::default();
            let mut event = Box::new(event);
            // SAFETY: the structure is valid, and the call does not keep it.
            let events = unsafe { perf_event_open_sys::perf_event_open(&raw mut *event, 0, -1, -1, 0) };
            let errno = io::Error::last_os_error().raw_os_error();
            let program = std::process::Command::new("/bin/true").status();
            let socket = std::net::TcpListener::bind("127.0.0.1:0").map(drop);
            (
                socket.map_err(|error| error.raw_os_error()),
                (events, errno),
                program.is_ok(),
                fs::File::open("/proc/version").is_ok(),
            )
        });
        assert_eq!(events, (-1, Some(libc::ENOSYS)));
        assert!(!program && file, "{program} {file}");
        // `listen` is for the start of the service alone.
        assert_eq!(socket, Err(Some(libc::ENOSYS)));
    }

    #[test]
    fn only_threads_of_the_service_replace_files() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("new"), directory.path().join("file"));
        let replaced = |set| {
            fs::write(&from, "text").unwrap();
            apart(|| {
                restrict_calls(set).unwrap();
                let synced = fs::File::open(&from).and_then(|file| file.sync_all());
                (synced.is_ok(), fs::rename(&from, &to).is_ok())
            })
        };
        assert_eq!(replaced(CallSet::Service { mounts: false }), (true, true));
        assert_eq!(replaced(CallSet::Network), (false, false));
        assert_eq!(replaced(CallSet::Helper), (false, false));
    }

    #[test]
    fn a_thread_starts_threads_and_no_namespaces() {
        let (old, new, started) = apart(|| {
            restrict_calls(CallSet::Service { mounts: false }).unwrap();
            let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
            // SAFETY: without `CLONE_VM`, the child has a memory of its own, like after `fork`.
            let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
            if child == 0 {
                // SAFETY: `_exit` runs nothing of the parent's in the child.
                unsafe { libc::_exit(0) };
            }
            let old = (child, io::Error::last_os_error().raw_os_error());
            // SAFETY: a call without arguments, which the kernel would refuse too, with another error.
            let new = unsafe { libc::syscall(libc::SYS_clone3, 0, 0) };
            let new = (new, io::Error::last_os_error().raw_os_error());
            (old, new, thread::spawn(|| ()).join().is_ok())
        });
        assert_eq!([old, new], [(-1, Some(libc::ENOSYS)); 2]);
        assert!(started, "the C library starts threads without clone3");
    }

    #[test]
    fn sockets_are_those_of_connections_and_of_notifications() {
        use rustix::io::Errno;
        use rustix::net::{AddressFamily, SocketType, socket};
        let opened = apart(|| {
            restrict_calls(CallSet::Network).unwrap();
            let families = [
                AddressFamily::UNIX,
                AddressFamily::INET,
                AddressFamily::INET6,
                AddressFamily::NETLINK,
                AddressFamily::PACKET,
                AddressFamily::from_raw(libc::AF_ALG as u16),
                AddressFamily::VSOCK,
            ];
            families.map(|family| socket(family, SocketType::DGRAM, None).err())
        });
        let (allowed, others) = opened.split_at(4);
        assert!(!allowed.contains(&Some(Errno::NOSYS)), "{opened:?}");
        assert_eq!(others, [Some(Errno::NOSYS); 3]);
    }

    #[test]
    fn the_helper_has_no_network_and_opens_files() {
        let (socket, file) = apart(|| {
            restrict_calls(CallSet::Helper).unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").map(drop);
            (socket.map_err(|error| error.raw_os_error()), fs::File::open("/proc/version").is_ok())
        });
        assert_eq!((socket, file), (Err(Some(libc::ENOSYS)), true));
    }

    #[test]
    fn the_profile_for_containers_allows_what_the_service_allows() {
        let profile = include_str!("../../deploy/kubernetes/components/seccomp/perf-exporter.json");
        let profile: serde_json::Value = serde_json::from_str(profile).unwrap();
        let names = profile["syscalls"][0]["names"].as_array().unwrap();
        let names: BTreeSet<&str> = names.iter().filter_map(|name| name.as_str()).collect();
        let lists = [COMMON, COMMON_OF_ARCHITECTURE, NETWORK, SERVICE, SERVICE_OF_ARCHITECTURE];
        let own = lists.into_iter().flatten().map(|(name, _)| name.trim_start_matches("SYS_"));
        // The mode of a unix socket is set before calls are restricted.
        let missing: Vec<&str> = own.chain(["fchmodat"]).filter(|name| !names.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_thread_with_restricted_files_reads_changes_nothing_and_sees_nothing_of_other_processes() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, other) = (dir.path().join("kept"), dir.path().join("other"));
        let removable = tempfile::tempdir().unwrap();
        let socket = removable.path().join("socket");
        [&kept, &socket].into_iter().for_each(|file| fs::write(file, "text").unwrap());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_child = |file: &str| PathBuf::from(format!("/proc/{}/{file}", child.id()));
        let (root, program, memory) = (of_child("root/"), of_child("exe"), of_child("mem"));
        let readable_before =
            list(&root).is_ok() && fs::read_link(&program).is_ok() && fs::File::open(&memory).is_ok();
        let enforced = apart(|| {
            let enforced = restrict_files(&[removable.path().to_owned()]).unwrap();
            if enforced {
                assert_eq!(read_text(&kept).unwrap(), "text");
                fs::write(&kept, "other").unwrap_err();
                fs::write(&other, "other").unwrap_err();
                fs::remove_file(&kept).unwrap_err();
                fs::remove_file(&socket).unwrap();
                list(&root).unwrap_err();
                fs::read_link(&program).unwrap_err();
                fs::File::open(&program).unwrap_err();
                fs::File::open(&memory).unwrap_err();
                list(Path::new("/proc/self/root/")).unwrap();
            }
            enforced
        });
        child.kill().unwrap();
        child.wait().unwrap();
        if !enforced {
            eprintln!("skipped: this kernel has no Landlock");
        }
        assert!(readable_before, "the restriction is what forbids it");
    }
}
