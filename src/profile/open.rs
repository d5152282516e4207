//! Opening the events of one CPU: all of them write into one ring, which an event that never fires holds and which tells
//! besides what processes map, execute and are called.

use std::sync::Arc;

use crate::error::Errno;
use crate::event::Kind;
use crate::health::Refusal;
use crate::plan::Sampler;
use crate::ring::room;
use crate::sys::{Attr, Event, Fields, Kernel, MmapFormat, Place, Rate, Sampling, Sideband, Start};
use crate::tracepoint::Context;

/// `PERF_COUNT_SW_DUMMY`: counts nothing, and tells of what its sideband asks for.
const DUMMY: u64 = 9;

/// What all samples begin with, and what stands at the end of all other records.
pub(super) const SIDE: Fields = Fields {
    identifier: true,
    ip: true,
    tid: true,
    time: true,
    period: false,
    read: None,
    callchain: false,
    raw: false,
    user_stack: 0,
    cgroup: false,
};

/// A ring's events on one CPU.
#[derive(Debug)]
pub(super) struct Opened<E> {
    pub(super) holder: E,
    pub(super) events: Vec<OpenEvent<E>>,
    pub(super) pages: usize,
    pub(super) largest: bool,
    /// Records that its ring had lost when it was looked at last.
    pub(super) lost: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct OpenEvent<E> {
    pub(super) event: E,
    /// The number that its records bear.
    pub(super) id: u64,
    pub(super) tap: Tap,
}

/// What the records of an event are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tap {
    /// The place of its sampler.
    pub(super) sampler: usize,
    /// What they carry.
    pub(super) fields: Fields,
    /// For how many hits each stands, if it does not say so itself.
    pub(super) weight: Option<u64>,
}

impl<E: Event> Opened<E> {
    pub(super) fn descriptors(&self) -> usize {
        1 + self.events.len()
    }

    /// Makes a ring of `wanted` pages, or of the most that the kernel gives, and lets all events write into it.
    pub(super) fn make_ring(&mut self, wanted: usize) -> Result<E::Ring, Errno> {
        let (ring, pages) = room::make(&self.holder, wanted)?;
        for open in &self.events {
            open.event.write_to(&self.holder)?;
        }
        (self.pages, self.largest) = (pages, pages < wanted);
        Ok(ring)
    }
}

/// A refused event.
pub(super) struct Refused {
    /// Its place among the samplers; `None` = all of them.
    pub(super) sampler: Option<usize>,
    pub(super) refusal: Refusal,
}

/// Opens the samplers on a CPU; nothing writes yet. `None` if none of them is for it, or could be opened.
pub(super) fn open<K: Kernel>(
    cpu: u32,
    samplers: &[Arc<Sampler>],
    context: &mut Context<'_, K>,
) -> (Option<Opened<K::Event>>, Vec<Refused>) {
    let mut refused = Vec::new();
    let mut wanted = Vec::new();
    for (place, sampler) in samplers.iter().enumerate() {
        if let Some(event) = sampler.event_on(cpu) {
            wanted.push((event, place, Sampling::of(sampler)));
        }
    }
    if wanted.is_empty() {
        return (None, refused);
    }
    if !context.budget.has_room_for(1 + wanted.len()) {
        refused.push(Refused { sampler: None, refusal: context.no_room("samples", cpu) });
        return (None, refused);
    }
    let switches = samplers.iter().any(|sampler| sampler.waits.is_some());
    let holder = match open_holder(context.kernel, cpu, switches) {
        Ok(holder) => holder,
        Err(errno) => {
            let refusal = context.refusal("dummy", Kind::Software, errno, cpu);
            refused.push(Refused { sampler: None, refusal });
            return (None, refused);
        }
    };
    let mut events = Vec::new();
    for (event, sampler, sampling) in wanted {
        let weight = samplers.get(sampler).and_then(|sampler| match sampler.waits {
            Some(_) => Some(1),
            None => sampler.period,
        });
        let opened = context.kernel.open(&Attr::sampling(event, sampling), Place::Cpu(cpu), None);
        match opened.and_then(|event| Ok((event.id()?, event))) {
            Ok((id, event)) => {
                events.push(OpenEvent { event, id, tap: Tap { sampler, fields: sampling.fields, weight } });
            }
            Err(errno) => {
                let refusal = context.refusal(&event.name, event.kind, errno, cpu);
                refused.push(Refused { sampler: Some(sampler), refusal });
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    context.budget.take(1 + events.len());
    (Some(Opened { holder, events, pages: 0, largest: false, lost: 0 }), refused)
}

/// Kernels before 5.12 do not give build ids, and those before 5.7 know no records of cgroups.
fn open_holder<K: Kernel>(kernel: &K, cpu: u32, switches: bool) -> Result<K::Event, Errno> {
    let all = Sideband {
        comm: true,
        task: true,
        cgroup: true,
        mmap: Some(MmapFormat::BuildId),
        switches,
        ksymbol: true,
    };
    let older = Sideband { mmap: Some(MmapFormat::Inode), ..all };
    let oldest = Sideband { cgroup: false, ksymbol: false, ..older };
    let mut answer = Err(Errno::EINVAL);
    for sideband in [all, older, oldest] {
        // Wakes nobody: what it tells is read together with the samples.
        let sampling = Sampling { rate: Rate::Period(1), fields: SIDE, sideband, ordered: true };
        let attr = Attr::software(DUMMY, Some(sampling), Start::Later);
        answer = kernel.open(&attr, Place::Cpu(cpu), None);
        if !matches!(answer, Err(Errno::EINVAL | Errno::E2BIG)) {
            break;
        }
    }
    answer
}
