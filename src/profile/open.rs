//! Opening the events of one CPU: all of them write into one ring, which an event that never fires holds and which tells
//! besides what processes map, execute and are called.
//!
//! Whoever runs on the CPU is sampled, or what runs in cgroups, or threads with all that they start. The first two need
//! the right to look at CPUs. Threads have events of their own, on every CPU, which the kernel opens for children as
//! well: so exactly they are sampled, however shortly a child lives, and whoever may trace them may do so.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::counter::Whom;
use crate::error::Errno;
use crate::event::{Kind, Modifiers};
use crate::health::{Attempt, Refusal, Scope, classify};
use crate::plan::Sampler;
use crate::ring::room;
use crate::sys::{Attr, Event, Fields, Inherit, Kernel, Place, Rate, Sampling, Sideband, Start};
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
    width: false,
    cgroup: false,
};

/// A ring's events on one CPU.
#[derive(Debug)]
pub(super) struct Opened<E> {
    pub(super) holder: E,
    /// What tells of further threads the same as the holder.
    pub(super) tellers: Vec<E>,
    /// What it takes to let them write.
    start: Start,
    /// What they sample is sampled in children as well, by events that nobody can reach.
    pub(super) inherited: bool,
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
        1 + self.tellers.len() + self.events.len()
    }

    /// Makes a ring of `wanted` pages, or of the most that the kernel gives, and lets all events write into it.
    pub(super) fn make_ring(&mut self, wanted: usize) -> Result<E::Ring, Errno> {
        let (ring, pages) = room::make(&self.holder, wanted)?;
        for event in self.tellers.iter().chain(self.events.iter().map(|open| &open.event)) {
            event.write_to(&self.holder)?;
        }
        (self.pages, self.largest) = (pages, pages < wanted);
        Ok(ring)
    }

    /// Lets all events write, but for those that begin with an `execve`.
    pub(super) fn start(&self) -> Result<(), Errno> {
        if self.start == Start::OnExec {
            return Ok(());
        }
        let tellers = std::iter::once(&self.holder).chain(&self.tellers);
        tellers.chain(self.events.iter().map(|open| &open.event)).try_for_each(Event::enable)
    }
}

/// A refused event.
pub(super) struct Refused {
    /// Its place among the samplers; `None` = all of them.
    pub(super) sampler: Option<usize>,
    pub(super) refusal: Refusal,
}

/// Somebody who is looked at on a CPU.
pub(crate) struct Spot<'w> {
    pub(crate) place: Place<'w>,
    scope: Scope,
    pub(crate) inherit: Inherit,
    pub(crate) start: Start,
    name: String,
}

impl<'w> Spot<'w> {
    /// Whoever runs there.
    fn everybody(cpu: u32) -> Self {
        let (inherit, start) = (Inherit::Nothing, Start::Later);
        Self { place: Place::Cpu(cpu), scope: Scope::Cpu, inherit, start, name: format!("cpu {cpu}") }
    }

    fn thread(tid: u32, cpu: u32, start: Start) -> Self {
        let name = match start {
            Start::OnExec => format!("the command on cpu {cpu}"),
            Start::Later | Start::WithLeader => format!("thread {tid} on cpu {cpu}"),
        };
        let place = Place::ThreadOn { tid, cpu };
        Self { place, scope: Scope::Process, inherit: Inherit::Children, start, name }
    }

    /// Where each of `whom` is found on a CPU.
    pub(crate) fn all(whom: &'w [Whom], cpu: u32) -> Vec<Self> {
        let mut spots = Vec::new();
        for whom in whom {
            match whom {
                Whom::Cpus(cpus) => spots.extend(cpus.contains(cpu).then(|| Self::everybody(cpu))),
                Whom::Cgroup { dir, path, cpus } => {
                    let place = Place::Cgroup { dir: dir.as_fd(), cpu };
                    let name = format!("cgroup {path} on cpu {cpu}");
                    let spot = Self { place, scope: Scope::Cgroup, name, ..Self::everybody(cpu) };
                    spots.extend(cpus.contains(cpu).then_some(spot));
                }
                Whom::Threads(tids) => {
                    spots.extend(tids.iter().map(|&tid| Self::thread(tid, cpu, Start::Later)));
                }
                Whom::Command(pid) => spots.push(Self::thread(*pid, cpu, Start::OnExec)),
            }
        }
        spots
    }

    /// Those that tell what happens besides: of threads each by itself, else the CPU as a whole.
    pub(crate) fn tellers(spots: &[Self], cpu: u32) -> Vec<Spot<'_>> {
        let threads = spots.iter().filter(|spot| spot.scope == Scope::Process);
        let threads: Vec<Spot<'_>> = threads.map(|spot| Spot { name: spot.name.clone(), ..*spot }).collect();
        if threads.is_empty() && !spots.is_empty() { vec![Spot::everybody(cpu)] } else { threads }
    }

    /// What the kernel's refusal of an event means.
    pub(crate) fn refusal<K>(
        &self,
        (name, kind, user_only): (&str, Kind, bool),
        errno: Errno,
        context: &Context<'_, K>,
    ) -> Refusal {
        let attempt = Attempt {
            scope: self.scope,
            on_core_pmu: kind.on_core_pmu(),
            core_pmu_present: true,
            probe: kind == Kind::Probe,
            tracepoint: matches!(kind, Kind::Tracepoint | Kind::Probe),
            filtered: false,
            user_only,
            opens_alone: false,
        };
        classify(errno, &attempt, context.facts).refusal(&name.into(), self.name.as_str(), Some(errno))
    }
}

/// Opens the samplers on a CPU; nothing writes yet. `None` if none of them is for it, or could be opened. Threads that
/// have ended meanwhile are left out without a word.
pub(super) fn open<K: Kernel>(
    cpu: u32,
    samplers: &[Arc<Sampler>],
    whom: &[Whom],
    context: &mut Context<'_, K>,
) -> (Option<Opened<K::Event>>, Vec<Refused>) {
    let mut refused = Vec::new();
    let mut wanted = Vec::new();
    for (place, sampler) in samplers.iter().enumerate() {
        let here = sampler.events_on(cpu).map(|event| (event, place, Sampling::of(sampler)));
        wanted.extend(here);
    }
    let spots = Spot::all(whom, cpu);
    if wanted.is_empty() || spots.is_empty() {
        return (None, refused);
    }
    let tellers = Spot::tellers(&spots, cpu);
    if !context.budget.has_room_for(tellers.len() + spots.len() * wanted.len()) {
        refused.push(Refused { sampler: None, refusal: context.no_room("samples", cpu) });
        return (None, refused);
    }
    // Whoever may not look into the kernel may not ask an event for it, even if it never fires.
    let modifiers = Modifiers {
        exclude_kernel: wanted.iter().all(|(event, ..)| event.modifiers.exclude_kernel),
        ..Modifiers::default()
    };
    let switches = samplers.iter().any(|sampler| sampler.waits.is_some());
    let mut told = Vec::new();
    for spot in &tellers {
        match open_teller(context.kernel, spot, switches, modifiers) {
            Ok(event) => told.push(event),
            Err(Errno::ESRCH) => {}
            Err(errno) => {
                let what = ("dummy", Kind::Software, modifiers.exclude_kernel);
                refused.push(Refused { sampler: None, refusal: spot.refusal(what, errno, context) });
            }
        }
    }
    let mut told = told.into_iter();
    let Some(holder) = told.next() else { return (None, refused) };
    let mut events = Vec::new();
    for (event, sampler, sampling) in wanted {
        let weight = samplers.get(sampler).and_then(|sampler| match sampler.waits {
            Some(_) => Some(1),
            None => sampler.period,
        });
        let tap = Tap { sampler, fields: sampling.fields, weight };
        for spot in &spots {
            let (inherit, start) = (spot.inherit, spot.start);
            let attr = Attr { inherit, start, ..Attr::sampling(event, sampling) };
            let opened = context.kernel.open(&attr, spot.place, None);
            match opened.and_then(|event| Ok((event.id()?, event))) {
                Ok((id, event)) => events.push(OpenEvent { event, id, tap }),
                Err(Errno::ESRCH) => {}
                Err(errno) => {
                    let what = (&*event.name, event.kind, event.modifiers.exclude_kernel);
                    let refusal = spot.refusal(what, errno, context);
                    refused.push(Refused { sampler: Some(sampler), refusal });
                }
            }
        }
    }
    if events.is_empty() {
        return (None, refused);
    }
    let start = spots.first().map_or(Start::Later, |spot| spot.start);
    let inherited = spots.iter().any(|spot| spot.inherit != Inherit::Nothing);
    let tellers = told.collect();
    let opened = Opened { holder, tellers, start, inherited, events, pages: 0, largest: false, lost: 0 };
    context.budget.take(opened.descriptors());
    (Some(opened), refused)
}

/// Kernels before 5.7 know no records of cgroups.
fn open_teller<K: Kernel>(
    kernel: &K,
    spot: &Spot<'_>,
    switches: bool,
    modifiers: Modifiers,
) -> Result<K::Event, Errno> {
    let all = Sideband { comm: true, task: true, cgroup: true, mmap: true, switches, ksymbol: true };
    let older = Sideband { cgroup: false, ksymbol: false, ..all };
    let mut answer = Err(Errno::EINVAL);
    for sideband in [all, older] {
        // Wakes nobody: what it tells is read together with the samples.
        let sampling = Sampling { rate: Rate::Period(1), fields: SIDE, sideband, ordered: true };
        let inherit = spot.inherit;
        let attr = Attr { inherit, modifiers, ..Attr::software(DUMMY, Some(sampling), spot.start) };
        answer = kernel.open(&attr, spot.place, None);
        if !matches!(answer, Err(Errno::EINVAL | Errno::E2BIG)) {
            break;
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::config::profiled;
    use crate::health::Board;
    use crate::host::{CpuSet, Facts, Roots};
    use crate::plan::Value;
    use crate::profile::specimen;
    use crate::sys::Budget;
    use crate::sys::fake::{FakeEvent, FakeKernel, FakePlace};

    fn sampler(exclude_kernel: bool) -> Arc<Sampler> {
        let text = if exclude_kernel { "page-faults:u" } else { "page-faults" };
        let dir = tempfile::tempdir().unwrap();
        let catalog = crate::event::Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let event = profiled::one_event(text).unwrap();
        Arc::new(Sampler {
            events: catalog.resolve(&event).unwrap(),
            rate: profiled::Rate::Period(1),
            value: Value { name: "faults".into(), nanoseconds: false },
            tells_cgroup: true,
            ..(*specimen::sampler("faults")).clone()
        })
    }

    /// Opens on CPU 3; gives what came of it, and what was refused.
    fn opened(
        kernel: &FakeKernel,
        exclude_kernel: bool,
        whom: &[Whom],
    ) -> (Option<Opened<FakeEvent>>, Vec<Refused>) {
        let mut context = Context {
            kernel,
            facts: &Facts::default(),
            roots: &Roots::default(),
            budget: &mut Budget::new(1024, 0, None),
            board: &mut Board::default(),
        };
        open(3, &[sampler(exclude_kernel)], whom, &mut context)
    }

    /// For each event whether it is one that tells, where it is, who is inherited, and when it starts.
    fn found(kernel: &FakeKernel) -> Vec<(bool, FakePlace, Inherit, Start)> {
        let tells = |attr: &Attr| attr.selector.config[0] == DUMMY;
        kernel
            .opened()
            .iter()
            .map(|open| (tells(&open.attr), open.place, open.attr.inherit, open.attr.start))
            .collect()
    }

    #[test]
    fn threads_have_events_of_their_own_that_children_inherit() {
        let kernel = FakeKernel::new();
        let (opened, _) = opened(&kernel, false, &[Whom::Threads(vec![7, 8])]);
        let on = |tid| FakePlace::ThreadOn { tid, cpu: 3 };
        let expected = [(true, 7), (true, 8), (false, 7), (false, 8)];
        let expected = expected.map(|(tells, tid)| (tells, on(tid), Inherit::Children, Start::Later));
        assert_eq!(found(&kernel), expected);
        assert_eq!(opened.unwrap().descriptors(), 4);
    }

    #[test]
    fn a_command_is_sampled_from_its_execve_on() {
        let kernel = FakeKernel::new();
        let (_opened, _) = opened(&kernel, false, &[Whom::Command(9)]);
        let place = FakePlace::ThreadOn { tid: 9, cpu: 3 };
        let expected = [true, false].map(|tells| (tells, place, Inherit::Children, Start::OnExec));
        assert_eq!(found(&kernel), expected);
    }

    #[test]
    fn cgroups_share_what_the_cpu_tells() {
        let kernel = FakeKernel::new();
        let here: CpuSet = "0-3".parse().unwrap();
        let elsewhere: CpuSet = "0".parse().unwrap();
        let cgroup = |cpus: &CpuSet| {
            let dir = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
            Whom::Cgroup { dir, path: "/a".into(), cpus: cpus.clone() }
        };
        let (_opened, _) = opened(&kernel, false, &[cgroup(&here), cgroup(&elsewhere), cgroup(&here)]);
        let [(true, FakePlace::Cpu(3), ..), (false, FakePlace::Cgroup { cpu: 3, .. }, ..), (false, ..)] =
            found(&kernel)[..]
        else {
            panic!("{:?}", found(&kernel))
        };
    }

    #[test]
    fn whoever_may_not_look_into_the_kernel_asks_no_event_for_it() {
        for exclude_kernel in [false, true] {
            let kernel = FakeKernel::new();
            let (_opened, _) = opened(&kernel, exclude_kernel, &[Whom::Command(9)]);
            let all = kernel.opened();
            assert!(all.iter().all(|open| open.attr.modifiers.exclude_kernel == exclude_kernel), "{all:?}");
        }
    }

    #[test]
    fn threads_that_have_ended_are_left_out_and_those_of_others_are_refused() {
        let kernel = FakeKernel::new();
        let of =
            |tid| move |_: &Attr, place, _| matches!(place, FakePlace::ThreadOn { tid: at, .. } if at == tid);
        kernel.refuse(Errno::ESRCH, of(7));
        let whom = [Whom::Threads(vec![7, 8])];
        let (some, refused) = opened(&kernel, false, &whom);
        assert_eq!((some.map(|open| open.descriptors()), refused.len()), (Some(2), 0));
        kernel.refuse(Errno::EACCES, of(8));
        let (none, refused) = opened(&kernel, false, &whom);
        assert!(none.is_none());
        assert!(refused[0].refusal.target.starts_with("thread 8 "), "{}", refused[0].refusal.target);
    }
}
