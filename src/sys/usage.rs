//! Resource usage of this process, and its resource limits.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::host::read_text;

/// CPU time, in microsecond resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// In user space.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Returns the CPU time since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Returns the CPU time of this process so far, user and system together, in microsecond resolution.
pub fn cpu_time() -> Duration {
    let used = used_by(libc::RUSAGE_SELF);
    used.user + used.system
}

/// Returns the CPU time of the calling thread so far, user and system together.
#[doc(alias = "CLOCK_THREAD_CPUTIME_ID")]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the CPU time so far of children that have exited and were reaped, and of their children.
#[doc(alias = "RUSAGE_CHILDREN")]
pub fn children_cpu_time() -> CpuTime {
    used_by(libc::RUSAGE_CHILDREN)
}

fn used_by(who: i32) -> CpuTime {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the size of a `rusage`, which the call fills.
    let result = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    if result != 0 {
        return CpuTime::default();
    }
    // SAFETY: zeroed above, and a `rusage` of zeros is valid even if the call had filled nothing.
    let usage = unsafe { usage.assume_init() };
    CpuTime { user: of(usage.ru_utime), system: of(usage.ru_stime) }
}

fn of(time: libc::timeval) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_usec * 1000).unwrap_or(0))
}

/// Resident memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// All resident memory, in bytes.
    pub resident: u64,
    /// Memory that is not backed by files: heaps and stacks, in bytes.
    pub anonymous: u64,
}

/// Returns the resident memory of this process, from `/proc/self/statm`; `None` if that cannot be read. Not below a configured root: that
/// is the host's `/proc`, in which `self` may be another process.
pub fn memory() -> Option<Memory> {
    statm(Path::new("/proc/self/statm"))
}

/// Returns the resident memory of a child of this process.
pub fn memory_of(child: u32) -> Option<Memory> {
    statm(Path::new(&format!("/proc/{child}/statm")))
}

/// Returns the CPU time of a running child, user and system together, in clock ticks of the kernel.
pub fn cpu_time_of(child: u32) -> Option<Duration> {
    let stat = read_text(Path::new(&format!("/proc/{child}/stat"))).ok()?;
    // The name may contain anything; behind it `utime` and `stime` are the 12th and 13th field.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64))
}

fn statm(path: &Path) -> Option<Memory> {
    let text = read_text(path).ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    let page = rustix::param::page_size() as u64;
    Some(Memory { resident: resident * page, anonymous: resident.saturating_sub(shared) * page })
}

/// Raises the soft limit on open descriptors to the hard limit, and returns the resulting limit.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let in_force = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    in_force.unwrap_or(u64::MAX)
}

/// Ends the process by a signal's default action, so that a parent sees the same exit status as that of the child. Writes no core dump:
/// that of the child is the relevant one.
///
/// # Errors
/// When the signal cannot be sent. Returns only then, or when the signal is blocked or ignored.
pub fn die_by_signal(signal: i32) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum })?;
    // SAFETY: setting the default action installs no handler, and the number is checked by the call.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: raise takes a number and no memory.
    let result = unsafe { libc::raise(signal) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends the process at once with all of its threads. Runs no destructor and no `atexit` handler, and flushes nothing: for a process whose
/// orderly shutdown is stuck.
#[doc(alias = "_exit")]
pub fn end_now(code: i32) -> ! {
    // SAFETY: the call takes a number and no memory, and does not return, so no incomplete state is observable.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time();
        let mut sum = 0u64;
        while cpu_time() == before {
            sum = (0..100_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(cpu_time() > before, "{sum}");
    }

    #[test]
    fn the_time_of_a_child_is_known_once_it_was_waited_for() {
        let before = children_cpu_time();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let used = children_cpu_time().since(before);
        assert!(used.user + used.system > Duration::ZERO, "{used:?}");
    }
}
