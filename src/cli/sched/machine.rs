//! State of the scheduler, from the records of its tracepoints, and the filter for the selected target.

use rustc_hash::FxHashSet;

use crate::cli::follow::{Source, StreamItem, field};
use crate::cli::observe::Failure;
use crate::event::format::{Field, Format};
use crate::host::{CpuSet, Roots};
use crate::profile::Cgroups as Below;
use crate::register;
use crate::ring::{Record, Sample};
use crate::sched::{Comm, Event, Layout, PrevState, SchedFact, Thread, Timeline};
use crate::targets::OpenTarget;
use crate::targets::{CgroupMount, Cgroups};

/// Decoder for the records of a source.
#[derive(Debug)]
enum Decoder {
    /// Switches and wakeups.
    Timeline(Layout),
    /// Migrations, with the previous and the new CPU.
    Migrates { layout: Layout, from: Box<Field>, to: Box<Field> },
    /// Run time of a thread: `sched:sched_stat_runtime`.
    Runtime { tid: Box<Field>, time: Box<Field> },
}

impl Decoder {
    fn of(format: &Format) -> anyhow::Result<Self> {
        let field = |name| field(format, name).map(Box::new);
        let layout = || {
            Layout::of(format)
                .map_err(|lacks| anyhow::anyhow!("unexpected tracepoint format of this kernel: {lacks}"))
        };
        Ok(match format.name() {
            "sched_stat_runtime" => Self::Runtime { tid: field("pid")?, time: field("runtime")? },
            "sched_migrate_task" => {
                Self::Migrates { layout: layout()?, from: field("orig_cpu")?, to: field("dest_cpu")? }
            }
            _ => Self::Timeline(layout()?),
        })
    }
}

/// An observation about a thread of the target.
#[derive(Debug)]
pub(super) enum Observation<'w> {
    /// A state change that follows from events.
    Fact { thread: &'w Thread, fact: SchedFact },
    /// A thread was woken.
    Wakes { at: (u32, u64), by: Thread, thread: Thread },
    /// A waiting thread was migrated to another CPU.
    Migrates { at: (u32, u64), by: Thread, thread: Thread, from: u64, to: u64 },
    /// Run time of a thread in nanoseconds, as accounted by the scheduler.
    Ran { thread: Thread, time: u64 },
}

/// State of all CPUs and threads.
#[derive(Debug)]
pub(super) struct Machine {
    decoders: Vec<Decoder>,
    timeline: Timeline,
    chosen: Chosen,
}

impl Machine {
    /// Reads all existing threads, and creates the filter for the target.
    ///
    /// # Errors
    /// If a tracepoint of this kernel lacks a field, or if the cgroups cannot be read.
    pub(super) fn new(
        sources: &[Source],
        open_targets: &[OpenTarget],
        roots: &Roots,
    ) -> Result<Self, Failure> {
        let decoders =
            sources.iter().map(|source| Decoder::of(&source.format)).collect::<anyhow::Result<_>>()?;
        let mut timeline = Timeline::default();
        for (pid, tid, name) in register::threads(roots) {
            timeline.describe(Thread { tid, pid, comm: Comm::new(&name), ..Thread::default() });
        }
        Ok(Self { decoders, timeline, chosen: Chosen::of(open_targets, roots)? })
    }

    /// Processes an item, and passes observations about the target to `report`.
    pub(super) fn handle(&mut self, item: &StreamItem<'_>, report: &mut impl FnMut(Observation<'_>)) {
        match item {
            StreamItem::Hit { source, cpu, sample } => {
                // A record that does not match its format is ignored.
                self.hit(*source, *cpu, sample, report);
            }
            StreamItem::Besides { cpu, time, record } => self.besides((*cpu, *time), record, report),
            StreamItem::Gap => self.timeline.mark_gap(),
        }
    }

    fn hit(
        &mut self,
        source: usize,
        cpu: u32,
        sample: &Sample<'_>,
        report: &mut impl FnMut(Observation<'_>),
    ) -> Option<()> {
        let Self { decoders, timeline, chosen, .. } = self;
        let at = (cpu, sample.time);
        let decoder = decoders.get(source)?;
        let layout = match decoder {
            Decoder::Timeline(layout) | Decoder::Migrates { layout, .. } => layout,
            Decoder::Runtime { tid, time } => {
                let thread = named(timeline, (0, u32::try_from(tid.number(sample.raw)?).ok()?));
                let time = time.number(sample.raw)?;
                if chosen.takes(&thread, cpu) {
                    report(Observation::Ran { thread, time });
                }
                return Some(());
            }
        };
        let event = layout.read(sample.raw)?;
        let passive = match event {
            Event::Wakes(party) | Event::Migrates(party) => {
                Some((named(timeline, (sample.pid, sample.tid)), party.tid))
            }
            _ => None,
        };
        let of = (sample.pid, sample.cgroup);
        timeline.enter(at, of, event, &mut |thread, fact| chosen.show(cpu, thread, fact, report));
        let Some((by, tid)) = passive else { return Some(()) };
        let thread = named(timeline, (0, tid));
        let what = match decoder {
            Decoder::Migrates { from, to, .. } => {
                let (from, to) = (from.number(sample.raw)?, to.number(sample.raw)?);
                Observation::Migrates { at, by, thread, from, to }
            }
            _ => Observation::Wakes { at, by, thread },
        };
        if chosen.takes(&thread, cpu) {
            report(what);
        }
        Some(())
    }

    fn besides(&mut self, at: (u32, u64), record: &Record<'_>, report: &mut impl FnMut(Observation<'_>)) {
        let Self { timeline, chosen, .. } = self;
        match record {
            // A reaped thread has no ID any more, therefore the incoming task is unknown.
            Record::Switch { pid, tid, out: false, .. } if *tid != u32::MAX => {
                timeline.enter(at, (*pid, 0), Event::Incoming { tid: *tid }, &mut |thread, fact| {
                    chosen.show(at.0, thread, fact, report);
                });
            }
            Record::Fork(task) => {
                let comm = timeline.thread(task.parent_tid).map(|parent| parent.comm).unwrap_or_default();
                timeline.created(Thread { tid: task.tid, pid: task.pid, comm, ..Thread::default() });
                chosen.apply_record(record);
            }
            Record::Cgroup(_) => chosen.apply_record(record),
            _ => {}
        }
    }
}

fn named(timeline: &Timeline, (pid, tid): (u32, u32)) -> Thread {
    timeline.thread(tid).copied().unwrap_or(Thread { tid, pid, ..Thread::default() })
}

/// The filter for the selected target.
#[derive(Debug)]
enum Chosen {
    /// All threads on these CPUs.
    Cpus(CpuSet),
    /// These threads and their children.
    Threads(FxHashSet<u32>),
    /// All threads in these cgroups and their descendants, on these CPUs.
    Cgroups { below: Vec<Below>, known: FxHashSet<u64>, cpus: CpuSet },
}

impl Chosen {
    fn of(open_targets: &[OpenTarget], roots: &Roots) -> Result<Self, Failure> {
        let (mut threads, mut below, mut among) = (FxHashSet::default(), Vec::new(), CpuSet::default());
        for target in open_targets {
            match target {
                OpenTarget::Cpus(cpus) => return Ok(Self::Cpus(cpus.clone())),
                OpenTarget::Threads(tids) => threads.extend(tids),
                OpenTarget::Command(pid) => drop(threads.insert(*pid)),
                OpenTarget::Cgroup { path, cpus, .. } => {
                    below.push(Below::below(path));
                    among = cpus.clone();
                }
            }
        }
        if below.is_empty() {
            return Ok(Self::Threads(threads));
        }
        let mount = CgroupMount::find(roots).map_err(anyhow::Error::from)?;
        let mut all = Cgroups::new(mount.dir());
        all.refresh().map_err(anyhow::Error::from)?;
        let named = all.iter().filter(|cgroup| below.iter().any(|below| below.matches(&cgroup.path)));
        let known = named.map(|cgroup| cgroup.id.0).collect();
        Ok(Self::Cgroups { below, known, cpus: among })
    }

    /// Updates the filter with a record about threads or cgroups.
    fn apply_record(&mut self, record: &Record<'_>) {
        match (self, record) {
            // A thread ID can be reused. The new thread does not belong to the target unless its parent does.
            (Self::Threads(tids), Record::Fork(task)) => match tids.contains(&task.parent_tid) {
                true => drop(tids.insert(task.tid)),
                false => drop(tids.remove(&task.tid)),
            },
            (Self::Cgroups { below, known, .. }, Record::Cgroup(cgroup)) => {
                let path = String::from_utf8_lossy(cgroup.path);
                if below.iter().any(|below| below.matches(&path)) {
                    known.insert(cgroup.id);
                }
            }
            _ => {}
        }
    }

    fn takes(&self, thread: &Thread, cpu: u32) -> bool {
        match self {
            Self::Cpus(cpus) => cpus.contains(cpu),
            Self::Threads(tids) => tids.contains(&thread.tid),
            Self::Cgroups { known, cpus, .. } => known.contains(&thread.cgroup) && cpus.contains(cpu),
        }
    }

    fn show(&mut self, cpu: u32, thread: &Thread, fact: SchedFact, report: &mut impl FnMut(Observation<'_>)) {
        if !self.takes(thread, cpu) {
            return;
        }
        report(Observation::Fact { thread, fact });
        if let (Self::Threads(tids), SchedFact::SwitchOut(switch_out)) = (self, fact)
            && switch_out.prev_state == PrevState::Dead
        {
            tids.remove(&thread.tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Task;

    fn thread(tid: u32) -> Thread {
        Thread { tid, ..Thread::default() }
    }

    #[test]
    fn what_a_thread_starts_is_shown_with_it() {
        let mut chosen = Chosen::of(&[OpenTarget::Threads(vec![7])], &Roots::default()).unwrap();
        let fork = |parent_tid, tid| Record::Fork(Task { pid: tid, parent_pid: 1, tid, parent_tid, time: 0 });
        chosen.apply_record(&fork(7, 8));
        chosen.apply_record(&fork(8, 9));
        chosen.apply_record(&fork(1, 10));
        assert_eq!([7, 8, 9, 10].map(|tid| chosen.takes(&thread(tid), 0)), [true, true, true, false]);
        chosen.apply_record(&fork(1, 8));
        assert!(!chosen.takes(&thread(8), 0), "a new thread with the same ID");
    }

    #[test]
    fn a_cgroup_that_is_made_below_one_that_is_shown_is_shown_too() {
        let (below, cpus) = (vec![Below::below("/a")], "0-1".parse().unwrap());
        let mut chosen = Chosen::Cgroups { below, known: FxHashSet::default(), cpus };
        for (id, path) in [(1, &b"/a/b"[..]), (2, b"/ab")] {
            chosen.apply_record(&Record::Cgroup(crate::ring::Cgroup { id, path }));
        }
        let of = |cgroup| Thread { cgroup, ..thread(5) };
        assert!(chosen.takes(&of(1), 0) && !chosen.takes(&of(2), 0) && !chosen.takes(&of(1), 2));
    }
}
