//! What this process costs, and the limits it runs under.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// CPU time used by this process so far, user and system together, to the microsecond.
pub fn cpu_time() -> Duration {
    let (user, system) = usage(libc::RUSAGE_SELF);
    user + system
}

/// User and system time of all children that have ended and been waited for.
pub fn children_time() -> (Duration, Duration) {
    usage(libc::RUSAGE_CHILDREN)
}

fn usage(of_whom: libc::c_int) -> (Duration, Duration) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the size of a `rusage`, which the call fills.
    let result = unsafe { libc::getrusage(of_whom, usage.as_mut_ptr()) };
    if result != 0 {
        return (Duration::ZERO, Duration::ZERO);
    }
    // SAFETY: zeroed above, and a `rusage` of zeros is a valid one even if the call had filled nothing.
    let usage = unsafe { usage.assume_init() };
    (of(usage.ru_utime), of(usage.ru_stime))
}

fn of(time: libc::timeval) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_usec * 1000).unwrap_or(0))
}

/// Raises the soft limit on open descriptors to the hard one and returns what is then allowed.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let in_force = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    in_force.unwrap_or(u64::MAX)
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
}
