//! CPU time of HTTP requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sys::{scheduling, usage};

/// CPU time of all work for HTTP requests. Clones share the counters.
///
/// `limits.cpu` does not include it: clients determine the number of requests, and could otherwise reduce the detail of measurements.
#[derive(Debug, Clone, Default)]
pub struct RequestCpu(Arc<Nanoseconds>);

#[derive(Debug, Default)]
struct Nanoseconds {
    /// CPU time of the server thread up to its last response.
    serving: AtomicU64,
    /// CPU time of other threads.
    blocking: AtomicU64,
}

impl RequestCpu {
    /// Returns the CPU time so far.
    pub fn total(&self) -> Duration {
        let of = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Ordering::Relaxed));
        of(&self.0.serving) + of(&self.0.blocking)
    }

    /// Records the CPU time of the calling thread, which only serves requests.
    pub(super) fn note_serving(&self) {
        self.0.serving.store(nanoseconds(usage::thread_cpu_time()), Ordering::Relaxed);
    }

    /// Runs `work` for a request and adds its CPU time, also if it panics.
    pub fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let _counts = Counts { total: &self.0.blocking, before: usage::thread_cpu_time() };
        work()
    }

    /// Runs `work` for a request as [`count`](Self::count) does, at the priority of ordinary processes. Such requests can take long, and a
    /// client can repeat them without a pause.
    pub(super) fn count_at_normal_priority<T>(&self, work: impl FnOnce() -> T) -> T {
        self.count(|| scheduling::at_normal_priority(work))
    }
}

struct Counts<'a> {
    total: &'a AtomicU64,
    before: Duration,
}

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        let used = usage::thread_cpu_time().saturating_sub(self.before);
        self.total.fetch_add(nanoseconds(used), Ordering::Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(for_at_least: Duration) {
        let before = usage::thread_cpu_time();
        while usage::thread_cpu_time() - before < for_at_least {}
    }

    #[test]
    fn work_is_counted_also_if_it_panics() {
        let cpu = RequestCpu::default();
        assert_eq!(cpu.count(|| 7), 7);
        let before = cpu.total();
        let panics = std::panic::AssertUnwindSafe(|| {
            cpu.count_at_normal_priority(|| {
                spin(Duration::from_millis(5));
                panic!("a test");
            })
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(cpu.total() - before >= Duration::from_millis(5));
    }

    #[test]
    fn the_thread_that_serves_is_counted_once() {
        let cpu = RequestCpu::default();
        spin(Duration::from_millis(2));
        cpu.note_serving();
        cpu.note_serving();
        assert!(cpu.total() <= usage::thread_cpu_time());
        assert!(cpu.total() >= Duration::from_millis(2));
    }
}
