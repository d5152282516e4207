//! Profiles from recorded ring contents, without a kernel.

use std::sync::Arc;
use std::time::Duration;

use super::open::SampleSource;
use super::requests::Shared;
use super::sample_profiles::sampler;
use super::{Profile, ProfileRecorder, Selection};
use crate::clock::{Clock, Timestamp};
use crate::host::Roots;
use crate::plan::Sampler;
use crate::ring::testing::{bytes, record};
use crate::sys::{Drained, Fields, Ring};

/// The event that writes samples, by the identifier in its records.
pub(crate) const EVENT: u64 = 7;

/// A ring with fixed records.
#[derive(Debug, Default)]
pub(crate) struct FixedRing(pub(crate) Vec<Vec<u8>>);

impl Ring for FixedRing {
    fn drain(&mut self, mut each: impl FnMut(&[u8])) -> Drained {
        self.0.drain(..).for_each(|record| each(&record));
        Drained::default()
    }

    fn size(&self) -> usize {
        0
    }
}

/// Returns a profiler that samples nothing, for requests.
pub(crate) fn idle(roots: &Roots) -> Arc<dyn ProfileRecorder> {
    let shared = Shared::<FixedRing>::new(Clock::manual(Timestamp(0)), roots, empty_directory());
    shared.set_samplers(&[sampler("cpu"), sampler("off_cpu")]);
    Arc::new(shared)
}

/// Returns the profile of all records of a CPU within the first second, symbolized with the files below `roots`. Samples are written by
/// [`EVENT`] and have these `fields`; each represents a millisecond.
pub(crate) fn replayed(roots: &Roots, fields: Fields, records: Vec<Vec<u8>>) -> Profile {
    let clock = Clock::manual(Timestamp(0));
    let shared = Shared::new(clock.clone(), roots, empty_directory());
    shared.set_samplers(&[Arc::new(Sampler { cpus: true, ..(*sampler("cpu")).clone() })]);
    let sample_source = SampleSource { sampler: 0, fields, weight: Some(1_000_000) };
    shared.add(1, [(EVENT, sample_source)], FixedRing(records));
    let asked = shared.begin("cpu", false).unwrap();
    clock.advance(Duration::from_secs(1));
    shared.end(asked, &Selection::default()).unwrap()
}

/// The fields of [`sample`].
pub(super) const SAMPLE_FIELDS: Fields =
    Fields { identifier: true, ip: true, tid: true, time: true, callchain: true, ..Fields::NONE };

/// Returns a sample of [`EVENT`] at a time in nanoseconds, with a stack in the kernel, innermost first.
pub(super) fn sample(pid: u32, tid: u32, time: u64, stack: &[u64]) -> Vec<u8> {
    /// `PERF_CONTEXT_KERNEL`
    const IN_KERNEL: u64 = -128i64 as u64;
    let thread = u64::from(tid) << 32 | u64::from(pid);
    let length = 1 + stack.len() as u64;
    let head = [EVENT, stack.first().copied().unwrap_or_default(), thread, time, length, IN_KERNEL];
    // PERF_RECORD_SAMPLE in the kernel.
    record(9, 1, &bytes(&[&head[..], stack].concat()))
}

/// Returns an empty directory of containers.
pub(super) fn empty_directory() -> Arc<crate::container::Directory> {
    Arc::new(crate::container::Directory::new(Clock::manual(Timestamp(0))))
}
