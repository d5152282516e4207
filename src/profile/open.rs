//! Events that the samplers open on a CPU. All write into one ring; one of them reports the mappings, programs and names of processes.

use std::sync::Arc;

use crate::event::Modifiers;
use crate::plan::Sampler;
use crate::ring::{DUMMY, Request};
use crate::sys::{Attr, Fields, Rate, Sampling, Sideband, Start};

/// The fields at the start of all samples and at the end of all other records.
pub(crate) const SIDE: Fields = Fields { identifier: true, ip: true, tid: true, time: true, ..Fields::NONE };

/// The sampler and record format of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleSource {
    /// The index of its sampler.
    pub(super) sampler: usize,
    /// The fields of its samples.
    pub(super) fields: Fields,
    /// The number of hits that each sample represents, if the sample itself does not contain it.
    pub(super) weight: Option<u64>,
}

/// Returns the events that all samplers open on a CPU.
pub(super) fn request(samplers: &[Arc<Sampler>], cpu: u32) -> Request<'_, SampleSource> {
    let mut events = Vec::new();
    for (place, sampler) in samplers.iter().enumerate() {
        let sampling = Sampling::of(sampler);
        let weight = if sampler.waits.is_some() { Some(1) } else { sampler.period };
        let sample_source = SampleSource { sampler: place, fields: sampling.fields, weight };
        events.extend(
            sampler.events_on(cpu).map(|event| (Attr::sampling(event, sampling), event, sample_source)),
        );
    }
    let exclude_kernel = events.iter().all(|(_, event, _)| event.modifiers.exclude_kernel);
    let switches = samplers.iter().any(|sampler| sampler.waits.is_some());
    let more = Sideband { switches, ..Sideband::default() };
    Request { holders: holders(SIDE, more, exclude_kernel), events }
}

/// Returns the options of the event that owns the ring, in the order of preference: it writes the mappings, names, creations and exits of
/// processes, and `more`, with these fields at the end. `exclude_kernel`: whether all other events exclude the kernel.
pub(crate) fn holders(fields: Fields, more: Sideband, exclude_kernel: bool) -> Vec<Attr> {
    let all = Sideband { comm: true, task: true, cgroup: true, mmap: true, ksymbol: true, ..more };
    // Kernels before 5.7 do not support cgroup records.
    let older = Sideband { cgroup: false, ksymbol: false, ..all };
    let holder = |sideband| {
        // It never wakes the reader: its records are read together with the samples.
        let sampling = Sampling { rate: Rate::Period(1), fields, sideband, ordered: true };
        // An unprivileged user must exclude the kernel even from an event that never fires.
        let modifiers = Modifiers { exclude_kernel, ..Modifiers::default() };
        Attr { modifiers, ..Attr::software(DUMMY, Some(sampling), Start::Later) }
    };
    [all, older].map(holder).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::profiled;
    use crate::event::Catalog;
    use crate::host::{Facts, Roots};
    use crate::profile::sample_profiles;

    #[test]
    fn whoever_may_not_look_into_the_kernel_asks_no_event_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        for (text, exclude_kernel) in [("page-faults", false), ("page-faults:u", true)] {
            let events = catalog.resolve(&profiled::one_event(text).unwrap()).unwrap();
            let sampler =
                Sampler { events, rate: Rate::Period(1), ..(*sample_profiles::sampler("faults")).clone() };
            let samplers = [Arc::new(sampler)];
            let Request { holders, events, .. } = request(&samplers, 3);
            let mut attrs = holders.iter().chain(events.iter().map(|(attr, ..)| attr));
            assert!(attrs.all(|attr| attr.modifiers.exclude_kernel == exclude_kernel), "{text}");
            assert_eq!((holders.len(), events.len()), (2, 1));
        }
    }
}
