//! Classes of system calls that `-e` accepts instead of names, as in `strace -e`: `file`, `network`, …

/// Returns the patterns of the calls in a class; `None` for another word. The class may begin with `%`.
pub(super) fn class(word: &str) -> Option<&'static [&'static str]> {
    Some(match word.strip_prefix('%').unwrap_or(word) {
        // With the path of a file among their arguments.
        "file" => &[
            "access",
            "acct",
            "chdir",
            "chmod",
            "chown*",
            "chroot",
            "creat",
            "execve*",
            "faccessat*",
            "fchmodat*",
            "fchownat",
            "fspick",
            "fstatat*",
            "futimesat",
            "getcwd",
            "getxattr*",
            "inotify_add_watch",
            "lchown*",
            "lgetxattr",
            "link",
            "linkat",
            "listxattr*",
            "llistxattr",
            "lremovexattr",
            "lsetxattr",
            "lstat*",
            "mkdir*",
            "mknod*",
            "mount",
            "mount_setattr",
            "move_mount",
            "name_to_handle_at",
            "newfstatat",
            "open",
            "openat*",
            "open_tree*",
            "pivot_root",
            "quotactl",
            "readlink*",
            "removexattr*",
            "rename*",
            "rmdir",
            "setxattr*",
            "stat",
            "stat64",
            "statfs*",
            "statx",
            "swapoff",
            "swapon",
            "symlink*",
            "truncate*",
            "umount*",
            "unlink*",
            "uselib",
            "utime*",
        ],
        "network" | "net" => &[
            "accept*",
            "bind",
            "connect",
            "getpeername",
            "getsockname",
            "getsockopt",
            "listen",
            "recv*",
            "send",
            "sendmmsg",
            "sendmsg",
            "sendto",
            "setsockopt",
            "shutdown",
            "socket*",
        ],
        "process" => &[
            "clone*",
            "execve*",
            "exit",
            "exit_group",
            "fork",
            "kill",
            "pidfd_open",
            "pidfd_send_signal",
            "rt_sigqueueinfo",
            "rt_tgsigqueueinfo",
            "tgkill",
            "tkill",
            "vfork",
            "wait*",
        ],
        "memory" => &[
            "brk",
            "get_mempolicy",
            "madvise",
            "mbind",
            "migrate_pages",
            "mincore",
            "mlock*",
            "mmap*",
            "move_pages",
            "mprotect",
            "mremap",
            "mseal",
            "msync",
            "munlock*",
            "munmap",
            "pkey_mprotect",
            "process_madvise",
            "remap_file_pages",
            "set_mempolicy*",
            "shmat",
            "shmdt",
        ],
        "signal" => &[
            "kill",
            "pause",
            "pidfd_send_signal",
            "rt_sig*",
            "rt_tgsigqueueinfo",
            "sigaction",
            "sigaltstack",
            "signal*",
            "sigpending",
            "sigprocmask",
            "sigreturn",
            "sigsuspend",
            "tgkill",
            "tkill",
        ],
        "ipc" => &["ipc", "msg*", "sem*", "shm*"],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::{Abi, Call};
    use crate::targets::Glob;

    #[test]
    fn every_class_has_calls_and_each_pattern_of_it_is_valid() {
        for (word, member) in [
            ("file", "openat"),
            ("%network", "connect"),
            ("process", "execve"),
            ("memory", "mmap"),
            ("signal", "rt_sigaction"),
            ("ipc", "shmget"),
        ] {
            let globs: Vec<Glob> =
                class(word).unwrap().iter().map(|pattern| Glob::new(pattern).unwrap()).collect();
            let calls = Call::matching(Abi::X86_64, |name| globs.iter().any(|glob| glob.matches_name(name)));
            assert!(calls.iter().any(|call| call.name() == Some(member)), "{word}: {calls:?}");
        }
        assert_eq!(class("openat"), None);
    }
}
