//! Scheduling of threads that other threads depend on.

use std::fmt;
use std::mem::size_of;

use rustix::process::{getpriority_process, setpriority_process};

use crate::error::Errno;

/// Nice value of threads that other threads depend on. Among twenty busy threads on two CPUs, such a thread gets three quarters of a CPU.
const NICE: i32 = -15;

/// CPU time of a thread that reads rings, available before any real-time thread runs: 2 ms in each 10 ms. Reading a million records takes
/// about 100 ms.
const BUDGET: libc::sched_attr = libc::sched_attr {
    size: size_of::<libc::sched_attr>() as u32,
    sched_policy: SCHED_DEADLINE,
    // Threads that it starts get an ordinary policy. Unreserved CPU time may be used in addition.
    sched_flags: (libc::SCHED_FLAG_RESET_ON_FORK | libc::SCHED_FLAG_RECLAIM) as u64,
    sched_nice: 0,
    sched_priority: 0,
    sched_runtime: 2_000_000,
    sched_deadline: 10_000_000,
    sched_period: 10_000_000,
};

/// `SCHED_DEADLINE` of `include/uapi/linux/sched.h`. Linux 3.14.
const SCHED_DEADLINE: u32 = 6;

/// Urgency of the work of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// It only empties rings: records that it reads too late are lost.
    Rings,
    /// Other threads wait for it.
    Raised,
}

/// How a thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// Before real-time threads, within a budget (`SCHED_DEADLINE`).
    Deadline,
    /// Before ordinary threads, by its nice value; with the reason why a requested budget was not granted.
    Nice(Option<Errno>),
    /// Like any other thread, because the kernel rejects a lower nice value.
    Ordinary(Errno),
}

impl Scheduling {
    /// Returns the remedy; `None` if nothing is missing.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Deadline | Self::Nice(None) => None,
            Self::Nice(Some(Errno::EBUSY)) => {
                Some("other threads have reserved the CPUs with SCHED_DEADLINE")
            }
            Self::Nice(Some(_)) | Self::Ordinary(_) => Some(
                "grant CAP_SYS_NICE, allow all CPUs of the machine, and allow sched_setattr (seccomp profile, \
                 RestrictRealtime=no of systemd)",
            ),
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("deadline"),
            Self::Nice(_) => write!(f, "nice {NICE}"),
            Self::Ordinary(_) => f.write_str("ordinary"),
        }
    }
}

/// Gives the calling thread, and threads that it starts later, priority over those of most processes.
///
/// # Errors
/// `EPERM` or `EACCES` without `CAP_SYS_NICE`. The thread then waits for a CPU like any other.
#[doc(alias = "setpriority")]
pub fn raise_priority() -> Result<(), Errno> {
    Ok(setpriority_process(None, NICE)?)
}

/// Gives the calling thread priority. A thread that reads rings runs before real-time threads, within a budget, if the kernel allows that.
/// Otherwise, and for any other urgency, it runs before ordinary threads. SCHED_FIFO is not used: without a limit it can occupy a CPU
/// forever, and with a limit (`RLIMIT_RTTIME`) the kernel kills the process.
#[doc(alias = "sched_setattr")]
pub fn prefer(urgency: Urgency) -> Scheduling {
    let refused = match urgency {
        Urgency::Raised => None,
        Urgency::Rings => match reserve() {
            Ok(()) => return Scheduling::Deadline,
            Err(errno) => Some(errno),
        },
    };
    match raise_priority() {
        Ok(()) => Scheduling::Nice(refused),
        Err(errno) => Scheduling::Ordinary(errno),
    }
}

fn reserve() -> Result<(), Errno> {
    // SAFETY: the pointer argument points to a `sched_attr` that outlives the call and begins with its own size. The call writes at most
    // that size back. 0 is the calling thread; no flags are defined.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&BUDGET), 0) };
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Runs `work` on the calling thread at the nice value 0, and then restores the previous priority. Without `CAP_SYS_NICE` the thread keeps
/// the nice value 0.
#[doc(alias = "setpriority")]
pub fn at_normal_priority<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(i32);
    impl Drop for Restored {
        fn drop(&mut self) {
            // This is the previous priority of the thread. If it cannot be restored, the thread only waits longer for a CPU.
            setpriority_process(None, self.0).ok();
        }
    }
    let _restored = match getpriority_process(None) {
        Ok(nice) if nice < 0 && setpriority_process(None, 0).is_ok() => Some(Restored(nice)),
        _ => None,
    };
    work()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_has_the_best_that_the_kernel_gives_and_says_what_is_missing() {
        let given = thread::spawn(|| prefer(Urgency::Rings)).join().unwrap();
        assert_eq!(given.remedy().is_none(), given == Scheduling::Deadline, "{given}");
    }

    #[test]
    fn a_thread_with_a_budget_can_start_others_which_have_none() {
        let child = thread::spawn(|| {
            let given = prefer(Urgency::Rings);
            let policy = thread::spawn(|| {
                // SAFETY: the call takes a number and no memory.
                unsafe { libc::sched_getscheduler(0) }
            });
            (given, policy.join().unwrap())
        });
        let (given, policy) = child.join().unwrap();
        assert_eq!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER, "its parent is {given}");
    }
}
