//! A measurement with a start and an end, like that of `perf stat`. Its groups are opened for given CPUs, threads, one command or one
//! cgroup. They are started together and read any number of times.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::core_times::{CoreTimes, is_of_one_type};
use super::open::{Bundle, OpenContext, OpenOptions};
use super::reading::WORDS;
use super::scale::{Delta, scale};
use crate::error::Errno;
use crate::health::{Interval, Refusal};
use crate::host::{CpuSet, Facts};
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
    /// Count scaled up for the time that its group was not on the PMU. Time of a thread on another type of core does not count as such.
    pub scaled: u64,
    /// Enabled and running time of the group. The enabled time of a thread includes that on other types of cores.
    pub interval: Interval,
}

/// An open measurement. Dropping it ends it.
#[derive(Debug)]
pub struct Measurement<E> {
    /// (index of the group, CPU or thread, open events).
    open: Vec<(usize, u32, Bundle<E>)>,
    /// The groups, and the online CPUs, if threads are counted on one type of core each.
    of_types: Option<(Vec<Arc<Group>>, CpuSet)>,
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
        let of_threads = matches!(target, OpenTarget::Threads(_) | OpenTarget::Command(_));
        let on_types = of_threads && groups.iter().any(|group| is_of_one_type(group));
        (Self { open, of_types: on_types.then(|| (groups.to_vec(), facts.online.clone())) }, refusals)
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
        let times = self.core_times();
        for (group, place, bundle) in &mut self.open {
            let Ok(words) = bundle.read(&mut words) else { continue };
            let (group, place, counters) = (*group, *place, &bundle.counters);
            let planned = self.of_types.as_ref().and_then(|(groups, _)| groups.get(group));
            bundle.progress.advance(words, |Delta { member, raw, scaled, interval, .. }| {
                let Some(&counter) = counters.get(member) else { return };
                let on_type = planned.map(|planned| times.on_type(planned, place, interval));
                let scaled = on_type.map_or(scaled, |interval| scale(raw, interval));
                counts.push(Count { group, counter, place, raw, scaled, interval });
            });
        }
        counts
    }

    /// Returns the times of the threads on each type of core since the previous read.
    fn core_times(&self) -> CoreTimes {
        let Some((groups, online)) = &self.of_types else { return CoreTimes::default() };
        let mut times = CoreTimes::new(online);
        for (group, tid, bundle) in &self.open {
            if let (Some(group), Some(interval)) = (groups.get(*group), bundle.peek()) {
                times.add(group, *tid, interval);
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::event::Catalog;
    use crate::health::{CpuScope, Scope};
    use crate::host::Roots;
    use crate::sys::fake::{Count as FakeCount, FakeEvent, FakeKernel, FakePlace};
    use crate::targets::Targets;

    /// Plans one group for each name, of page faults and that event.
    fn groups(others: &[&str]) -> Vec<Arc<Group>> {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let resolved =
            |name: &str| catalog.resolve(&crate::config::profiled::one_event(name).unwrap()).unwrap();
        let planned = |other: &&str| {
            let events = [resolved("page-faults"), resolved(other)].concat();
            crate::plan::groups(&"test".into(), &Targets::Cpus(CpuScope::Cpu), events).groups
        };
        others.iter().flat_map(planned).collect()
    }

    fn open(
        kernel: &FakeKernel,
        groups: &[Arc<Group>],
        target: &OpenTarget,
    ) -> (Measurement<FakeEvent>, Vec<Refusal>) {
        Measurement::open(kernel, &Facts::default(), true, &mut Budget::new(1024, 0, None), groups, target)
    }

    #[test]
    fn each_target_is_opened_at_its_places_and_only_a_command_starts_by_itself() {
        let dir = || File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&dir().metadata().unwrap());
        let cpus = || "1,3".parse().unwrap();
        let cgroup = OpenTarget::Cgroup { dir: dir(), path: "/a".into(), cpus: cpus() };
        for (target, expected, names) in [
            (OpenTarget::Cpus(cpus()), [1, 3].map(FakePlace::Cpu).to_vec(), &["cpu 1", "cpu 3"][..]),
            (
                cgroup,
                [1, 3].map(|cpu| FakePlace::Cgroup { inode, cpu }).to_vec(),
                &["cgroup /a on cpu 1", "cgroup /a on cpu 3"],
            ),
            (
                OpenTarget::Threads(vec![7, 8]),
                [7, 8].map(FakePlace::Thread).to_vec(),
                &["thread 7", "thread 8"],
            ),
            (OpenTarget::Command(9), vec![FakePlace::Thread(9)], &["the command"]),
        ] {
            let (inherit, start) = match target.scope() {
                Scope::Process if names.len() == 1 => (Inherit::Children, Start::OnExec),
                Scope::Process => (Inherit::Children, Start::Later),
                _ => (Inherit::Nothing, Start::Later),
            };
            let kernel = FakeKernel::new();
            let (measurement, refusals) = open(&kernel, &groups(&["context-switches"]), &target);
            assert!(refusals.is_empty() && !measurement.is_empty());
            let leaders: Vec<_> = kernel.opened().into_iter().filter(|event| !event.is_member()).collect();
            assert_eq!(leaders.iter().map(|event| event.place).collect::<Vec<_>>(), expected);
            assert!(leaders.iter().all(|event| (event.attr.inherit, event.attr.start) == (inherit, start)));
            kernel.refuse(Errno::EACCES, |_, _, joins| !joins);
            let (measurement, refusals) = open(&kernel, &groups(&["context-switches"]), &target);
            assert!(measurement.is_empty());
            let mut found: Vec<&str> = refusals.iter().map(|refusal| &*refusal.target).collect();
            found.dedup();
            assert_eq!(found, names);
        }
    }

    /// perf scales such counts up, to twice the cycles of the thread on each type.
    #[test]
    fn the_time_of_a_thread_on_another_type_of_core_does_not_scale_its_counts() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hosts/intel-hybrid");
        let roots = Roots::under(std::path::Path::new(root));
        let facts = Facts::read(&roots);
        let cycles = &crate::config::profiled::one_event("cycles").unwrap();
        let events = Catalog::load(&roots, &facts).resolve(cycles).unwrap();
        let groups = crate::plan::groups(&"test".into(), &Targets::CPU, events).groups;
        let kernel = FakeKernel::new();
        let budget = &mut Budget::new(1024, 0, None);
        let target = OpenTarget::Threads(vec![7]);
        let (mut measurement, _) = Measurement::open(&kernel, &facts, true, budget, &groups, &target);
        for (on_core, on_atom) in [(60, 40), (0, 100)] {
            kernel.update(|event| {
                let running = if event.attr.selector.config[0] >> 32 == 4 { on_core } else { on_atom };
                event.count.value += 10 * running;
                event.count.enabled += 100;
                event.count.running += running;
            });
            let scaled: Vec<u64> = measurement.read().iter().map(|count| count.scaled).collect();
            assert_eq!(scaled, [10 * on_atom, 10 * on_core], "cpu_atom is the first group");
        }
    }

    #[test]
    fn a_count_names_its_group_its_counter_and_its_place_and_is_scaled_by_its_own_interval() {
        let kernel = FakeKernel::new();
        // On CPU 1, page faults do not open: the other event leads the group.
        kernel.refuse(Errno::ENOENT, |attr, place, joins| {
            !joins && attr.selector.config[0] == 2 && place == FakePlace::Cpu(1)
        });
        let groups = groups(&["context-switches", "cpu-migrations"]);
        let (mut measurement, _) = open(&kernel, &groups, &OpenTarget::Cpus("0-1".parse().unwrap()));
        let counters: Vec<_> = measurement.counters().collect();
        assert_eq!(counters, [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1)]);
        measurement.start().unwrap();
        assert!(kernel.opened().iter().all(|event| event.enabled));
        for turn in 1..=2 {
            kernel.update(|event| {
                event.count.value += event.attr.selector.config[0] * turn;
                event.count.enabled += 100;
                event.count.running += if event.place == FakePlace::Cpu(0) { 50 } else { 100 };
            });
            let counts = measurement.read();
            let found: Vec<_> =
                counts.iter().map(|count| (count.group, count.counter, count.place)).collect();
            assert_eq!(found, counters);
            for count in &counts {
                let selector = groups[count.group].counters[count.counter].event.selector.config[0];
                let running = if count.place == 0 { 50 } else { 100 };
                assert_eq!((count.raw, count.scaled), (selector * turn, selector * turn * 100 / running));
                assert_eq!(count.interval, Interval { enabled: 100, running });
            }
        }
        measurement.stop().unwrap();
        assert!(kernel.opened().iter().all(|event| !event.enabled));
        kernel.update(|event| event.count = FakeCount::default());
        assert!(measurement.read().iter().all(|count| count.raw == 0), "counts never fall");
    }
}
