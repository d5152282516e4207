//! Words for flags and constants in the arguments of system calls, without their prefixes, as in `perf trace`.

use std::fmt::Write as _;

use libc as c;

/// A list of values with their words.
type List = &'static [(u64, &'static str)];

/// How an argument is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The bits of which the value is one of `choices`.
    mask: u64,
    choices: List,
    /// The further bits.
    bits: List,
}

macro_rules! list {
    ($($word:literal $value:expr),* $(,)?) => { &[$(($value as u32 as u64, $word)),*] };
}

const fn bits(bits: List) -> Words {
    Words { mask: 0, choices: &[], bits }
}

const fn choices(choices: List) -> Words {
    Words { mask: u32::MAX as u64, choices, bits: &[] }
}

/// In the order of perf, but values that include others come before them.
static OPEN: Words = Words {
    mask: c::O_ACCMODE as u64,
    choices: list!["RDONLY" c::O_RDONLY, "WRONLY" c::O_WRONLY, "RDWR" c::O_RDWR],
    bits: list!["APPEND" c::O_APPEND, "CLOEXEC" c::O_CLOEXEC, "CREAT" c::O_CREAT, "DIRECT" c::O_DIRECT,
        "TMPFILE" c::O_TMPFILE, "DIRECTORY" c::O_DIRECTORY, "SYNC" c::O_SYNC, "DSYNC" c::O_DSYNC, "EXCL" c::O_EXCL,
        "NOFOLLOW" c::O_NOFOLLOW, "LARGEFILE" 0o100_000, "NOATIME" c::O_NOATIME, "NOCTTY" c::O_NOCTTY,
        "NONBLOCK" c::O_NONBLOCK, "PATH" c::O_PATH, "TRUNC" c::O_TRUNC],
};
static PIPE: Words = bits(list!["CLOEXEC" c::O_CLOEXEC, "NONBLOCK" c::O_NONBLOCK, "DIRECT" c::O_DIRECT]);
static PROTECTION: Words = Words {
    mask: 7,
    choices: list!["NONE" c::PROT_NONE],
    bits: list!["READ" c::PROT_READ, "WRITE" c::PROT_WRITE, "EXEC" c::PROT_EXEC, "GROWSDOWN" c::PROT_GROWSDOWN,
        "GROWSUP" c::PROT_GROWSUP],
};
static MAPPING: Words = Words {
    mask: 0xf,
    choices: list!["SHARED" c::MAP_SHARED, "PRIVATE" c::MAP_PRIVATE, "SHARED_VALIDATE" c::MAP_SHARED_VALIDATE],
    bits: list!["FIXED" c::MAP_FIXED, "ANONYMOUS" c::MAP_ANONYMOUS, "GROWSDOWN" c::MAP_GROWSDOWN,
        "DENYWRITE" c::MAP_DENYWRITE, "EXECUTABLE" c::MAP_EXECUTABLE, "LOCKED" c::MAP_LOCKED,
        "NORESERVE" c::MAP_NORESERVE, "POPULATE" c::MAP_POPULATE, "NONBLOCK" c::MAP_NONBLOCK, "STACK" c::MAP_STACK,
        "HUGETLB" c::MAP_HUGETLB, "SYNC" c::MAP_SYNC, "FIXED_NOREPLACE" c::MAP_FIXED_NOREPLACE],
};
static REMAP: Words =
    bits(list!["MAYMOVE" c::MREMAP_MAYMOVE, "FIXED" c::MREMAP_FIXED, "DONTUNMAP" c::MREMAP_DONTUNMAP]);
static ADVICE: Words = choices(
    list!["NORMAL" c::MADV_NORMAL, "RANDOM" c::MADV_RANDOM, "SEQUENTIAL" c::MADV_SEQUENTIAL,
    "WILLNEED" c::MADV_WILLNEED, "DONTNEED" c::MADV_DONTNEED, "FREE" c::MADV_FREE, "REMOVE" c::MADV_REMOVE,
    "DONTFORK" c::MADV_DONTFORK, "DOFORK" c::MADV_DOFORK, "MERGEABLE" c::MADV_MERGEABLE,
    "UNMERGEABLE" c::MADV_UNMERGEABLE, "HUGEPAGE" c::MADV_HUGEPAGE, "NOHUGEPAGE" c::MADV_NOHUGEPAGE,
    "DONTDUMP" c::MADV_DONTDUMP, "DODUMP" c::MADV_DODUMP, "WIPEONFORK" 18, "KEEPONFORK" 19, "COLD" 20, "PAGEOUT" 21],
);
static WHENCE: Words =
    choices(list!["SET" c::SEEK_SET, "CUR" c::SEEK_CUR, "END" c::SEEK_END, "DATA" c::SEEK_DATA,
    "HOLE" c::SEEK_HOLE]);
static ACCESS: Words =
    Words { mask: 7, choices: list!["F" c::F_OK], bits: list!["R" c::R_OK, "W" c::W_OK, "X" c::X_OK] };
static AT: Words = bits(list!["SYMLINK_NOFOLLOW" c::AT_SYMLINK_NOFOLLOW, "REMOVEDIR" c::AT_REMOVEDIR,
    "SYMLINK_FOLLOW" c::AT_SYMLINK_FOLLOW, "NO_AUTOMOUNT" c::AT_NO_AUTOMOUNT, "EMPTY_PATH" c::AT_EMPTY_PATH,
    "STATX_FORCE_SYNC" 0x2000, "STATX_DONT_SYNC" 0x4000]);
static STATX: Words =
    bits(list!["TYPE" 1, "MODE" 2, "NLINK" 4, "UID" 8, "GID" 0x10, "ATIME" 0x20, "MTIME" 0x40,
    "CTIME" 0x80, "INO" 0x100, "SIZE" 0x200, "BLOCKS" 0x400, "BTIME" 0x800, "MNT_ID" 0x1000]);
static FAMILY: Words = choices(
    list!["UNSPEC" c::AF_UNSPEC, "LOCAL" c::AF_LOCAL, "INET" c::AF_INET, "INET6" c::AF_INET6,
    "NETLINK" c::AF_NETLINK, "PACKET" c::AF_PACKET, "BLUETOOTH" c::AF_BLUETOOTH, "ALG" c::AF_ALG, "VSOCK" c::AF_VSOCK],
);
static SOCKET: Words = Words {
    mask: 0xf,
    choices: list!["STREAM" c::SOCK_STREAM, "DGRAM" c::SOCK_DGRAM, "RAW" c::SOCK_RAW, "RDM" c::SOCK_RDM,
        "SEQPACKET" c::SOCK_SEQPACKET, "DCCP" 6, "PACKET" 10],
    bits: list!["CLOEXEC" c::SOCK_CLOEXEC, "NONBLOCK" c::SOCK_NONBLOCK],
};
static ACCEPT: Words = bits(list!["CLOEXEC" c::SOCK_CLOEXEC, "NONBLOCK" c::SOCK_NONBLOCK]);
static MESSAGE: Words = bits(list!["OOB" c::MSG_OOB, "PEEK" c::MSG_PEEK, "DONTROUTE" c::MSG_DONTROUTE,
    "CTRUNC" c::MSG_CTRUNC, "TRUNC" c::MSG_TRUNC, "DONTWAIT" c::MSG_DONTWAIT, "EOR" c::MSG_EOR,
    "WAITALL" c::MSG_WAITALL, "CONFIRM" c::MSG_CONFIRM, "ERRQUEUE" c::MSG_ERRQUEUE, "NOSIGNAL" c::MSG_NOSIGNAL,
    "MORE" c::MSG_MORE, "WAITFORONE" c::MSG_WAITFORONE, "CMSG_CLOEXEC" c::MSG_CMSG_CLOEXEC]);
static SHUTDOWN: Words = choices(list!["RD" c::SHUT_RD, "WR" c::SHUT_WR, "RDWR" c::SHUT_RDWR]);
static SIGNAL: Words = choices(list!["HUP" c::SIGHUP, "INT" c::SIGINT, "QUIT" c::SIGQUIT, "ILL" c::SIGILL,
    "TRAP" c::SIGTRAP, "ABRT" c::SIGABRT, "BUS" c::SIGBUS, "FPE" c::SIGFPE, "KILL" c::SIGKILL, "USR1" c::SIGUSR1,
    "SEGV" c::SIGSEGV, "USR2" c::SIGUSR2, "PIPE" c::SIGPIPE, "ALRM" c::SIGALRM, "TERM" c::SIGTERM,
    "STKFLT" c::SIGSTKFLT, "CHLD" c::SIGCHLD, "CONT" c::SIGCONT, "STOP" c::SIGSTOP, "TSTP" c::SIGTSTP,
    "TTIN" c::SIGTTIN, "TTOU" c::SIGTTOU, "URG" c::SIGURG, "XCPU" c::SIGXCPU, "XFSZ" c::SIGXFSZ,
    "VTALRM" c::SIGVTALRM, "PROF" c::SIGPROF, "WINCH" c::SIGWINCH, "IO" c::SIGIO, "PWR" c::SIGPWR, "SYS" c::SIGSYS]);
static MASKING: Words =
    choices(list!["BLOCK" c::SIG_BLOCK, "UNBLOCK" c::SIG_UNBLOCK, "SETMASK" c::SIG_SETMASK]);
static FUTEX: Words = Words {
    mask: 0x7f,
    choices: list!["WAIT" 0, "WAKE" 1, "FD" 2, "REQUEUE" 3, "CMP_REQUEUE" 4, "WAKE_OP" 5, "LOCK_PI" 6, "UNLOCK_PI" 7,
        "TRYLOCK_PI" 8, "WAIT_BITSET" 9, "WAKE_BITSET" 10, "WAIT_REQUEUE_PI" 11, "CMP_REQUEUE_PI" 12, "LOCK_PI2" 13],
    bits: list!["PRIVATE_FLAG" 0x80, "CLOCK_REALTIME" 0x100],
};
static CLONE: Words = Words {
    mask: 0xff,
    choices: list!["CHLD" c::SIGCHLD],
    bits: list!["VM" c::CLONE_VM, "FS" c::CLONE_FS, "FILES" c::CLONE_FILES, "SIGHAND" c::CLONE_SIGHAND,
        "PIDFD" c::CLONE_PIDFD, "PTRACE" c::CLONE_PTRACE, "VFORK" c::CLONE_VFORK, "PARENT" c::CLONE_PARENT,
        "THREAD" c::CLONE_THREAD, "NEWNS" c::CLONE_NEWNS, "SYSVSEM" c::CLONE_SYSVSEM, "SETTLS" c::CLONE_SETTLS,
        "PARENT_SETTID" c::CLONE_PARENT_SETTID, "CHILD_CLEARTID" c::CLONE_CHILD_CLEARTID,
        "UNTRACED" c::CLONE_UNTRACED, "CHILD_SETTID" c::CLONE_CHILD_SETTID, "NEWCGROUP" c::CLONE_NEWCGROUP,
        "NEWUTS" c::CLONE_NEWUTS, "NEWIPC" c::CLONE_NEWIPC, "NEWUSER" c::CLONE_NEWUSER, "NEWPID" c::CLONE_NEWPID,
        "NEWNET" c::CLONE_NEWNET, "IO" c::CLONE_IO],
};
static FCNTL: Words = choices(
    list!["DUPFD" c::F_DUPFD, "GETFD" c::F_GETFD, "SETFD" c::F_SETFD, "GETFL" c::F_GETFL,
    "SETFL" c::F_SETFL, "GETLK" c::F_GETLK, "SETLK" c::F_SETLK, "SETLKW" c::F_SETLKW, "SETOWN" c::F_SETOWN,
    "GETOWN" c::F_GETOWN, "OFD_GETLK" c::F_OFD_GETLK, "OFD_SETLK" c::F_OFD_SETLK, "OFD_SETLKW" c::F_OFD_SETLKW,
    "SETLEASE" c::F_SETLEASE, "GETLEASE" c::F_GETLEASE, "NOTIFY" c::F_NOTIFY, "DUPFD_CLOEXEC" c::F_DUPFD_CLOEXEC,
    "SETPIPE_SZ" c::F_SETPIPE_SZ, "GETPIPE_SZ" c::F_GETPIPE_SZ, "ADD_SEALS" c::F_ADD_SEALS,
    "GET_SEALS" c::F_GET_SEALS],
);
static FLOCK: Words = bits(list!["SH" c::LOCK_SH, "EX" c::LOCK_EX, "NB" c::LOCK_NB, "UN" c::LOCK_UN]);
static IOCTL: Words = choices(
    list!["TCGETS" c::TCGETS, "TCSETS" c::TCSETS, "TCSETSW" c::TCSETSW, "TCSETSF" c::TCSETSF,
    "TIOCGWINSZ" c::TIOCGWINSZ, "TIOCSWINSZ" c::TIOCSWINSZ, "TIOCGPGRP" c::TIOCGPGRP, "TIOCSPGRP" c::TIOCSPGRP,
    "TIOCSCTTY" c::TIOCSCTTY, "TIOCNOTTY" c::TIOCNOTTY, "FIONREAD" c::FIONREAD, "FIONBIO" c::FIONBIO,
    "FIOCLEX" c::FIOCLEX, "FIONCLEX" c::FIONCLEX, "FICLONE" 0x4004_9409],
);
static EPOLL: Words = choices(list!["ADD" c::EPOLL_CTL_ADD, "DEL" c::EPOLL_CTL_DEL, "MOD" c::EPOLL_CTL_MOD]);
static CLOCK: Words = choices(list!["REALTIME" c::CLOCK_REALTIME, "MONOTONIC" c::CLOCK_MONOTONIC,
    "PROCESS_CPUTIME_ID" c::CLOCK_PROCESS_CPUTIME_ID, "THREAD_CPUTIME_ID" c::CLOCK_THREAD_CPUTIME_ID,
    "MONOTONIC_RAW" c::CLOCK_MONOTONIC_RAW, "REALTIME_COARSE" c::CLOCK_REALTIME_COARSE,
    "MONOTONIC_COARSE" c::CLOCK_MONOTONIC_COARSE, "BOOTTIME" c::CLOCK_BOOTTIME,
    "REALTIME_ALARM" c::CLOCK_REALTIME_ALARM, "BOOTTIME_ALARM" c::CLOCK_BOOTTIME_ALARM, "TAI" c::CLOCK_TAI]);
static RESOURCE: Words = choices(list!["CPU" c::RLIMIT_CPU, "FSIZE" c::RLIMIT_FSIZE, "DATA" c::RLIMIT_DATA,
    "STACK" c::RLIMIT_STACK, "CORE" c::RLIMIT_CORE, "RSS" c::RLIMIT_RSS, "NPROC" c::RLIMIT_NPROC,
    "NOFILE" c::RLIMIT_NOFILE, "MEMLOCK" c::RLIMIT_MEMLOCK, "AS" c::RLIMIT_AS, "LOCKS" c::RLIMIT_LOCKS,
    "SIGPENDING" c::RLIMIT_SIGPENDING, "MSGQUEUE" c::RLIMIT_MSGQUEUE, "NICE" c::RLIMIT_NICE,
    "RTPRIO" c::RLIMIT_RTPRIO, "RTTIME" c::RLIMIT_RTTIME]);
static WAIT: Words = bits(list!["NOHANG" c::WNOHANG, "UNTRACED" c::WUNTRACED, "EXITED" c::WEXITED,
    "CONTINUED" c::WCONTINUED, "NOWAIT" c::WNOWAIT, "NOTHREAD" c::__WNOTHREAD, "ALL" c::__WALL, "CLONE" c::__WCLONE]);
static ARCH: Words = choices(list!["SET_GS" 0x1001, "SET_FS" 0x1002, "GET_FS" 0x1003, "GET_GS" 0x1004,
    "GET_CPUID" 0x1011, "SET_CPUID" 0x1012, "CET_STATUS" 0x3001]);
static RANDOM: Words = bits(list!["NONBLOCK" c::GRND_NONBLOCK, "RANDOM" c::GRND_RANDOM, "INSECURE" 4]);
static MEMFD: Words =
    bits(list!["CLOEXEC" c::MFD_CLOEXEC, "ALLOW_SEALING" c::MFD_ALLOW_SEALING, "HUGETLB" c::MFD_HUGETLB]);

impl Words {
    /// Returns the words for an argument of a call; `None` for a plain number. Names are those of the kernel's formats.
    pub(super) fn of(call: &str, argument: &str) -> Option<&'static Self> {
        Some(match (call, argument) {
            ("open" | "openat" | "open_by_handle_at", "flags") => &OPEN,
            (
                "pipe2" | "dup3" | "epoll_create1" | "eventfd2" | "inotify_init1" | "timerfd_create"
                | "signalfd4",
                "flags",
            ) => &PIPE,
            ("mmap" | "mprotect" | "pkey_mprotect" | "shmat", "prot") => &PROTECTION,
            ("mmap", "flags") => &MAPPING,
            ("mremap", "flags") => &REMAP,
            ("madvise", "behavior") => &ADVICE,
            ("lseek", "whence") => &WHENCE,
            ("access" | "faccessat" | "faccessat2", "mode") => &ACCESS,
            ("newfstatat" | "unlinkat" | "fchmodat2", "flag") => &AT,
            ("statx" | "linkat" | "execveat" | "faccessat2" | "utimensat", "flags") => &AT,
            ("statx", "mask") => &STATX,
            ("socket" | "socketpair", "family") => &FAMILY,
            ("socket" | "socketpair", "type") => &SOCKET,
            ("accept4", "flags") => &ACCEPT,
            ("sendto" | "sendmsg" | "sendmmsg" | "recvfrom" | "recvmsg" | "recvmmsg", "flags") => &MESSAGE,
            ("shutdown", "how") => &SHUTDOWN,
            (_, "sig") => &SIGNAL,
            ("rt_sigprocmask" | "sigprocmask", "how") => &MASKING,
            ("futex", "op") => &FUTEX,
            ("clone", "clone_flags") | ("unshare", "unshare_flags") => &CLONE,
            ("fcntl" | "fcntl64", "cmd") => &FCNTL,
            ("flock", "cmd") => &FLOCK,
            ("ioctl", "cmd") => &IOCTL,
            ("epoll_ctl", "op") => &EPOLL,
            (_, "which_clock") | ("timerfd_create", "clockid") => &CLOCK,
            ("getrlimit" | "setrlimit" | "prlimit64", "resource") => &RESOURCE,
            ("wait4" | "waitid", "options") => &WAIT,
            ("arch_prctl", "option") => &ARCH,
            ("getrandom", "flags") => &RANDOM,
            ("memfd_create", "flags") => &MEMFD,
            _ => return None,
        })
    }

    /// Returns the words for the result of a call; `None` for a plain number.
    pub(super) fn of_result(call: &str, registers: &[u64]) -> Option<&'static Self> {
        let is_flags = registers.get(1) == Some(&(c::F_GETFL as u64));
        (matches!(call, "fcntl" | "fcntl64") && is_flags).then_some(&OPEN)
    }

    /// Returns the words of a value, joined by `|`. Bits without a word are hexadecimal, as is a constant without one.
    pub(super) fn written(&self, value: u64) -> String {
        // All of these arguments are 32 bits wide.
        let value = value & u64::from(u32::MAX);
        let choice = self.choices.iter().find(|(of, _)| *of == value & self.mask);
        let mut text = choice.map_or("", |(_, word)| word).to_owned();
        let mut rest = if choice.is_some() { value & !self.mask } else { value };
        for (bit, word) in self.bits.iter().filter(|(bit, _)| *bit != 0) {
            if rest & bit == *bit {
                rest &= !bit;
                text.push_str(if text.is_empty() { "" } else { "|" });
                text.push_str(word);
            }
        }
        if rest != 0 || text.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "|" });
            // Writing to a string does not fail.
            write!(text, "{rest:#x}").unwrap_or_default();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(call: &str, argument: &str, value: i32) -> String {
        Words::of(call, argument).unwrap().written(u64::from(value as u32))
    }

    #[test]
    fn flags_are_written_as_by_perf() {
        for (call, argument, value, text) in [
            ("openat", "flags", c::O_RDONLY | c::O_CLOEXEC, "RDONLY|CLOEXEC"),
            ("openat", "flags", c::O_WRONLY | c::O_CREAT | c::O_TRUNC, "WRONLY|CREAT|TRUNC"),
            ("mmap", "prot", c::PROT_READ | c::PROT_WRITE, "READ|WRITE"),
            ("mmap", "prot", 0, "NONE"),
            ("mmap", "flags", c::MAP_PRIVATE | c::MAP_ANONYMOUS, "PRIVATE|ANONYMOUS"),
            ("access", "mode", 0, "F"),
            ("access", "mode", c::R_OK | c::X_OK, "R|X"),
            ("socket", "type", c::SOCK_STREAM | c::SOCK_CLOEXEC, "STREAM|CLOEXEC"),
            ("futex", "op", 0x80 | 1, "WAKE|PRIVATE_FLAG"),
            ("clone", "clone_flags", c::CLONE_VM | c::CLONE_VFORK | c::SIGCHLD, "CHLD|VM|VFORK"),
            ("kill", "sig", c::SIGTERM, "TERM"),
            ("ioctl", "cmd", 0x5401, "TCGETS"),
        ] {
            assert_eq!(written(call, argument, value), text, "{call} {argument}");
        }
    }

    #[test]
    fn what_has_no_word_is_hexadecimal() {
        assert_eq!(written("kill", "sig", 64), "0x40");
        assert_eq!(written("ioctl", "cmd", 0x1234), "0x1234");
        assert_eq!(written("mmap", "flags", c::MAP_SHARED | 0x4000_0000), "SHARED|0x40000000");
        assert_eq!(written("pipe2", "flags", 0), "0x0");
        assert_eq!(Words::of("read", "count"), None);
        assert_eq!(Words::of_result("fcntl", &[3, 3, 0]).unwrap().written(0o100_001), "WRONLY|LARGEFILE");
        assert_eq!((Words::of_result("fcntl", &[3, 1, 0]), Words::of_result("read", &[3, 3])), (None, None));
    }
}
