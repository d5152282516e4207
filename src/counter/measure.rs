//! A measurement with a start and an end, like that of `perf stat`. Its groups are opened for given CPUs, threads, one command or one
//! cgroup. They are started together and read any number of times.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::open::{Bundle, OpenContext, OpenOptions};
use super::reading::WORDS;
use crate::error::Errno;
use crate::health::{Interval, Refusal};
use crate::host::Facts;
use crate::plan::Group;
use crate::sys::{Budget, Event, Inherit, Kernel, Place, Start};
use crate::targets::OpenTarget;

/// Count of one event in one instance since the previous read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Index of the group, as given to [`Measurement::open`].
    pub group: usize,
    /// Index of the counter in that group.
    pub counter: usize,
    /// The CPU or thread.
    pub place: u32,
    /// Raw count.
    pub raw: u64,
    /// Count scaled up for the time that its group was not on the PMU.
    pub scaled: u64,
    /// Enabled and running time of the group.
    pub interval: Interval,
}

/// An open measurement. Dropping it ends it.
#[derive(Debug)]
pub struct Measurement<E> {
    /// (index of the group, CPU or thread, open events).
    open: Vec<(usize, u32, Bundle<E>)>,
}

impl<E: Event> Measurement<E> {
    /// Opens `groups` for `target`. Returns the refusals of events that could not be opened; the others are counted.
    pub fn open<K: Kernel<Event = E>>(
        kernel: &K,
        facts: &Facts,
        core_pmu_present: bool,
        budget: &mut Budget,
        groups: &[Arc<Group>],
        target: &OpenTarget,
    ) -> (Self, Vec<Refusal>) {
        let mut means = OpenContext { kernel, facts, core_pmu_present, budget };
        let (mut open, mut refusals) = (Vec::new(), Vec::new());
        for (index, group) in groups.iter().enumerate() {
            let mut at = |place: Place<'_>, number: u32, how: OpenOptions, target: &dyn Fn() -> String| {
                let opened = means.open(group, place, how, target);
                open.extend(opened.bundles.into_iter().map(|bundle| (index, number, bundle)));
                refusals.extend(opened.refusals);
            };
            let here = OpenOptions { inherit: Inherit::Nothing, start: Start::Later };
            match target {
                OpenTarget::Cpus(cpus) => {
                    for cpu in group.cpus(cpus).iter() {
                        at(Place::Cpu(cpu), cpu, here, &|| format!("cpu {cpu}"));
                    }
                }
                OpenTarget::Cgroup { dir, path, cpus } => {
                    for cpu in group.cpus(cpus).iter() {
                        let place = Place::Cgroup { dir: dir.as_fd(), cpu };
                        at(place, cpu, here, &|| format!("cgroup {path} on cpu {cpu}"));
                    }
                }
                OpenTarget::Threads(threads) => {
                    let how = OpenOptions { inherit: Inherit::Children, start: Start::Later };
                    for &tid in threads {
                        at(Place::Thread(tid), tid, how, &|| format!("thread {tid}"));
                    }
                }
                OpenTarget::Command(pid) => {
                    let how = OpenOptions { inherit: Inherit::Children, start: Start::OnExec };
                    at(Place::Thread(*pid), *pid, how, &|| "the command".into());
                }
            }
        }
        (Self { open }, refusals)
    }

    /// Reports whether no event could be opened.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the open counters: the group, the counter of that group, and the CPU or thread, as in [`Count`].
    pub fn counters(&self) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
        self.open.iter().flat_map(|(group, place, bundle)| {
            bundle.counters.iter().map(|&counter| (*group, counter, *place))
        })
    }

    /// Starts all groups. Not for a command, which starts them at its `execve`.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn start(&self) -> Result<(), Errno> {
        self.open.iter().try_for_each(|(_, _, bundle)| bundle.start())
    }

    /// Stops all groups, so that all counters are read as of one moment.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn stop(&self) -> Result<(), Errno> {
        self.open.iter().try_for_each(|(_, _, bundle)| bundle.stop())
    }

    /// Returns the counts since the previous read. Omits groups that cannot be read at the moment.
    pub fn read(&mut self) -> Vec<Count> {
        let mut words = [0; WORDS];
        let mut counts = Vec::new();
        for (group, place, bundle) in &mut self.open {
            let Ok(words) = bundle.read(&mut words) else { continue };
            let first = counts.len();
            let counters = &bundle.counters;
            let interval = bundle.progress.advance(words, |delta| {
                let Some(&counter) = counters.get(delta.member) else { return };
                let (raw, scaled) = (delta.raw, delta.scaled);
                counts.push(Count {
                    group: *group,
                    counter,
                    place: *place,
                    raw,
                    scaled,
                    interval: Interval::default(),
                });
            });
            for count in &mut counts[first..] {
                count.interval = interval.unwrap_or_default();
            }
        }
        counts
    }
}
