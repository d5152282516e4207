//! State of the scheduler, from the records of its tracepoints, and the filter for the selected target.

use rustc_hash::FxHashSet;

use crate::cli::follow::{Heard, Source, field};
use crate::cli::observe::Failure;
use crate::event::format::{Field, Format};
use crate::host::{CpuSet, Roots};
use crate::profile::Cgroups as Below;
use crate::register;
use crate::ring::{Record, Sample};
use crate::sched::{Comm, Event, Layout, Left, Timeline, Told, Who};
use crate::targets::Whom;
use crate::targets::{CgroupMount, Cgroups};

/// Decoder for the records of a source.
#[derive(Debug)]
enum Tap {
    /// Switches and wakeups.
    Timeline(Layout),
    /// Migrations, with the previous and the new CPU.
    Migrates { layout: Layout, from: Box<Field>, to: Box<Field> },
    /// Run time of a thread: `sched:sched_stat_runtime`.
    Runtime { tid: Box<Field>, time: Box<Field> },
}

impl Tap {
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
pub(super) enum Seen<'w> {
    /// A state change that follows from events.
    Told { who: &'w Who, told: Told },
    /// A thread was woken.
    Wakes { at: (u32, u64), by: Who, whom: Who },
    /// A waiting thread was migrated to another CPU.
    Migrates { at: (u32, u64), by: Who, whom: Who, from: u64, to: u64 },
    /// Run time of a thread in nanoseconds, as accounted by the scheduler.
    Ran { who: Who, time: u64 },
}

/// State of all CPUs and threads.
#[derive(Debug)]
pub(super) struct Machine {
    taps: Vec<Tap>,
    timeline: Timeline,
    chosen: Chosen,
}

impl Machine {
    /// Reads all existing threads, and creates the filter for the target.
    ///
    /// # Errors
    /// If a tracepoint of this kernel lacks a field, or if the cgroups cannot be read.
    pub(super) fn new(sources: &[Source], whom: &[Whom], roots: &Roots) -> Result<Self, Failure> {
        let taps = sources.iter().map(|source| Tap::of(&source.format)).collect::<anyhow::Result<_>>()?;
        let mut timeline = Timeline::default();
        for (pid, tid, name) in register::threads(roots) {
            timeline.describe(Who { tid, pid, comm: Comm::new(&name), ..Who::default() });
        }
        Ok(Self { taps, timeline, chosen: Chosen::of(whom, roots)? })
    }

    /// Processes an item, and passes observations about the target to `seen`.
    pub(super) fn hear(&mut self, heard: &Heard<'_>, seen: &mut impl FnMut(Seen<'_>)) {
        match heard {
            Heard::Hit { source, cpu, sample } => {
                // A record that does not match its format is ignored.
                self.hit(*source, *cpu, sample, seen);
            }
            Heard::Besides { cpu, time, record } => self.besides((*cpu, *time), record, seen),
            Heard::Gap => self.timeline.mark_gap(),
        }
    }

    fn hit(
        &mut self,
        source: usize,
        cpu: u32,
        sample: &Sample<'_>,
        seen: &mut impl FnMut(Seen<'_>),
    ) -> Option<()> {
        let Self { taps, timeline, chosen, .. } = self;
        let at = (cpu, sample.time);
        let tap = taps.get(source)?;
        let layout = match tap {
            Tap::Timeline(layout) | Tap::Migrates { layout, .. } => layout,
            Tap::Runtime { tid, time } => {
                let who = named(timeline, (0, u32::try_from(tid.number(sample.raw)?).ok()?));
                let time = time.number(sample.raw)?;
                if chosen.takes(&who, cpu) {
                    seen(Seen::Ran { who, time });
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
        timeline.enter(at, of, event, &mut |who, told| chosen.show(cpu, who, told, seen));
        let Some((by, tid)) = passive else { return Some(()) };
        let whom = named(timeline, (0, tid));
        let what = match tap {
            Tap::Migrates { from, to, .. } => {
                let (from, to) = (from.number(sample.raw)?, to.number(sample.raw)?);
                Seen::Migrates { at, by, whom, from, to }
            }
            _ => Seen::Wakes { at, by, whom },
        };
        if chosen.takes(&whom, cpu) {
            seen(what);
        }
        Some(())
    }

    fn besides(&mut self, at: (u32, u64), record: &Record<'_>, seen: &mut impl FnMut(Seen<'_>)) {
        let Self { timeline, chosen, .. } = self;
        match record {
            // A reaped thread has no ID any more, therefore the incoming task is unknown.
            Record::Switch { pid, tid, out: false, .. } if *tid != u32::MAX => {
                timeline.enter(at, (*pid, 0), Event::Comes { tid: *tid }, &mut |who, told| {
                    chosen.show(at.0, who, told, seen);
                });
            }
            Record::Fork(task) => {
                let comm = timeline.who(task.parent_tid).map(|parent| parent.comm).unwrap_or_default();
                timeline.born(Who { tid: task.tid, pid: task.pid, comm, ..Who::default() });
                chosen.hear(record);
            }
            Record::Cgroup(_) => chosen.hear(record),
            _ => {}
        }
    }
}

fn named(timeline: &Timeline, (pid, tid): (u32, u32)) -> Who {
    timeline.who(tid).copied().unwrap_or(Who { tid, pid, ..Who::default() })
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
    fn of(whom: &[Whom], roots: &Roots) -> Result<Self, Failure> {
        let (mut threads, mut below, mut among) = (FxHashSet::default(), Vec::new(), CpuSet::default());
        for whom in whom {
            match whom {
                Whom::Cpus(cpus) => return Ok(Self::Cpus(cpus.clone())),
                Whom::Threads(tids) => threads.extend(tids),
                Whom::Command(pid) => drop(threads.insert(*pid)),
                Whom::Cgroup { path, cpus, .. } => {
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
    fn hear(&mut self, record: &Record<'_>) {
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

    fn takes(&self, who: &Who, cpu: u32) -> bool {
        match self {
            Self::Cpus(cpus) => cpus.contains(cpu),
            Self::Threads(tids) => tids.contains(&who.tid),
            Self::Cgroups { known, cpus, .. } => known.contains(&who.cgroup) && cpus.contains(cpu),
        }
    }

    fn show(&mut self, cpu: u32, who: &Who, told: Told, seen: &mut impl FnMut(Seen<'_>)) {
        if !self.takes(who, cpu) {
            return;
        }
        seen(Seen::Told { who, told });
        if let (Self::Threads(tids), Told::Went(went)) = (self, told)
            && went.left == Left::Dead
        {
            tids.remove(&who.tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Task;

    fn who(tid: u32) -> Who {
        Who { tid, ..Who::default() }
    }

    #[test]
    fn what_a_thread_starts_is_shown_with_it() {
        let mut chosen = Chosen::of(&[Whom::Threads(vec![7])], &Roots::default()).unwrap();
        let fork = |parent_tid, tid| Record::Fork(Task { pid: tid, parent_pid: 1, tid, parent_tid, time: 0 });
        chosen.hear(&fork(7, 8));
        chosen.hear(&fork(8, 9));
        chosen.hear(&fork(1, 10));
        assert_eq!([7, 8, 9, 10].map(|tid| chosen.takes(&who(tid), 0)), [true, true, true, false]);
        chosen.hear(&fork(1, 8));
        assert!(!chosen.takes(&who(8), 0), "a new thread with the same ID");
    }

    #[test]
    fn a_cgroup_that_is_made_below_one_that_is_shown_is_shown_too() {
        let (below, cpus) = (vec![Below::below("/a")], "0-1".parse().unwrap());
        let mut chosen = Chosen::Cgroups { below, known: FxHashSet::default(), cpus };
        for (id, path) in [(1, &b"/a/b"[..]), (2, b"/ab")] {
            chosen.hear(&Record::Cgroup(crate::ring::Cgroup { id, path }));
        }
        let of = |cgroup| Who { cgroup, ..who(5) };
        assert!(chosen.takes(&of(1), 0) && !chosen.takes(&of(2), 0) && !chosen.takes(&of(1), 2));
    }
}
