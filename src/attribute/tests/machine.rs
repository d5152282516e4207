//! A machine that tests let run: it counts, writes records as a kernel does, and has them read at once.

use std::collections::BTreeMap;

use super::super::{Attributor, Bundle, Measure, Owner, Shares, bundle_fields, clock_fields};
use crate::plan::Granularity;
use crate::ring::Task;
use crate::ring::testing::{self, Switch};
use crate::sys::{Fields, ReadFormat};

/// Nanoseconds in which a counter counts one.
pub(super) const PACE: u64 = 10;

/// What the counters of one bundle say.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) enabled: u64,
    pub(super) running: u64,
    /// What the leader counted.
    pub(super) switches: u64,
    /// Without the leader and the clock.
    pub(super) counts: Vec<u64>,
}

impl Totals {
    /// Leader and clock are members like others, which nobody asked for.
    fn values(&self) -> Vec<u64> {
        [&[self.switches, self.running][..], &self.counts].concat()
    }

    /// As the group's leader answers when it is read. The first bundle's readings carry no times.
    pub(super) fn words(&self, bundle: usize) -> Vec<u64> {
        let values = self.values();
        let times: &[u64] = if bundle == 0 { &[] } else { &[self.enabled, self.running] };
        [&[values.len() as u64][..], times, &values].concat()
    }
}

/// CPUs that run tasks.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) attributor: Attributor,
    granularity: Granularity,
    fields: Fields,
    totals: BTreeMap<(u32, usize), Totals>,
    /// What a counter counts in a step.
    pub(super) unit: u64,
    /// The time of the last record of what happened to a process.
    clock: u64,
}

impl Machine {
    /// `cpus` CPUs, each with `bundles` of one counter.
    pub(super) fn new(granularity: Granularity, cpus: u32, bundles: usize) -> Self {
        Self::measuring(granularity, cpus, bundles, Measure::Other)
    }

    /// As [`Machine::new`], with counters of this unit.
    pub(super) fn measuring(granularity: Granularity, cpus: u32, bundles: usize, measure: Measure) -> Self {
        let fields = Fields {
            tid: granularity == Granularity::Process,
            time: bundles > 1,
            read: Some(ReadFormat::default()),
            cgroup: true,
            ..Fields::default()
        };
        let leader = match granularity {
            Granularity::Cgroup => Measure::CgroupSwitches,
            Granularity::Process => Measure::Switches,
        };
        let mut attributor = Attributor::new(granularity, fields, bundles, bundles > 1);
        let mut totals = BTreeMap::new();
        for cpu in 0..cpus {
            let bundle = |counter| Bundle {
                counters: vec![vec![], vec![], vec![counter]],
                measures: vec![leader, Measure::Time, measure],
                untimed: counter == 0,
            };
            attributor.add_cpu(cpu, &(0..bundles).map(bundle).collect::<Vec<_>>());
            let fresh = Totals { counts: vec![0], ..Totals::default() };
            totals.extend((0..bundles).map(|bundle| ((cpu, bundle), fresh.clone())));
        }
        let unit = if measure == Measure::Time { PACE } else { 1 };
        Self { attributor, granularity, fields, totals, unit, clock: 0 }
    }

    pub(super) fn totals(&mut self, cpu: u32, bundle: usize) -> &mut Totals {
        self.totals.get_mut(&(cpu, bundle)).unwrap()
    }

    /// A bundle counts, on the PMU all the time.
    pub(super) fn counts(&mut self, cpu: u32, bundle: usize, count: u64) {
        let unit = self.unit;
        let totals = self.totals(cpu, bundle);
        totals.enabled += count * PACE;
        totals.running += count * PACE;
        totals.counts[0] += count * unit;
    }

    /// The first bundle of a CPU counts, then `who` leaves: a cgroup or a process.
    pub(super) fn runs(&mut self, cpu: u32, who: u32, count: u64) {
        self.counts(cpu, 0, count);
        self.leaves(cpu, 0, who);
    }

    /// As [`Machine::runs`], of a process in a cgroup.
    pub(super) fn runs_in(&mut self, cpu: u32, (pid, cgroup): (u32, u64), count: u64) {
        self.counts(cpu, 0, count);
        self.write(cpu, 0, &Switch { pid, tid: pid, cgroup, ..Switch::default() });
    }

    /// The record that a bundle writes when `who` leaves.
    pub(super) fn leaves(&mut self, cpu: u32, bundle: usize, who: u32) {
        let (pid, cgroup) = match self.granularity {
            Granularity::Cgroup => (0, who.into()),
            Granularity::Process => (who, 1),
        };
        self.write(cpu, bundle, &Switch { pid, tid: pid, cgroup, ..Switch::default() });
    }

    /// Whoever is on the CPU leaves it, and was reaped before.
    pub(super) fn leaves_without_an_id(&mut self, cpu: u32, bundle: usize) {
        self.leaves(cpu, bundle, u32::MAX);
    }

    fn write(&mut self, cpu: u32, bundle: usize, who: &Switch) {
        let totals = self.totals(cpu, bundle);
        totals.switches += 1;
        let switch = Switch {
            enabled: totals.enabled,
            running: totals.running,
            values: totals.values(),
            time: totals.enabled,
            ..who.clone()
        };
        let fields = bundle_fields(self.fields, bundle == 0);
        self.reads(cpu, bundle, &switch.record(&fields));
    }

    /// All records of a CPU were read.
    pub(super) fn settles(&mut self, cpu: u32) {
        self.attributor.settle(cpu);
    }

    /// A record is read from the ring of a bundle, as a batch of its own.
    pub(super) fn reads(&mut self, cpu: u32, bundle: usize, record: &[u8]) {
        self.attributor.read(cpu, bundle, |read| read(record));
    }

    /// A process takes a name, on a CPU.
    pub(super) fn is_named(&mut self, cpu: u32, pid: u32, name: &str) {
        self.takes_name(cpu, (pid, pid), name.as_bytes());
    }

    /// A thread takes a name, on a CPU. The record ends with the thread and the time.
    pub(super) fn takes_name(&mut self, cpu: u32, (pid, tid): (u32, u32), name: &[u8]) {
        let end = testing::bytes(&[u64::from(tid) << 32 | u64::from(pid), self.now()]);
        self.reads(cpu, 0, &testing::longer(testing::comm(pid, tid, name, true), &end));
    }

    /// Returns the time of a record of what happens to processes. Each is later than the one before.
    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A process creates another, on a CPU.
    pub(super) fn forks(&mut self, cpu: u32, parent: u32, child: u32) {
        let time = self.now();
        self.reads(cpu, 0, &testing::fork(Task { time, ..task(parent, child) }));
    }

    /// The main thread of a process ends, on a CPU.
    pub(super) fn ends(&mut self, cpu: u32, pid: u32) {
        self.reads(cpu, 0, &testing::exit(task(1, pid)));
    }

    /// The first bundle of a CPU counts, then a thread is switched out without a sample. The leaders of all bundles count the switch.
    pub(super) fn runs_unseen(&mut self, cpu: u32, count: u64) {
        self.counts(cpu, 0, count);
        self.totals.range_mut((cpu, 0)..=(cpu, usize::MAX)).for_each(|(_, totals)| totals.switches += 1);
    }

    /// Writes the `PERF_RECORD_SWITCH` of a thread that is switched out.
    pub(super) fn goes(&mut self, cpu: u32, from: u32, to: u32) {
        self.tells_switch(cpu, from, true, to);
    }

    /// Writes the `PERF_RECORD_SWITCH` of a thread that is switched in.
    pub(super) fn comes(&mut self, cpu: u32, to: u32, from: u32) {
        self.tells_switch(cpu, to, false, from);
    }

    fn tells_switch(&mut self, cpu: u32, who: u32, out: bool, other: u32) {
        let time = self.totals(cpu, 0).enabled;
        self.reads(cpu, 0, &testing::switch((who, who), out, (other, other), time));
    }

    /// The clock of the first bundle ticks while `who` has the CPU.
    pub(super) fn ticks(&mut self, cpu: u32, who: u32) {
        let totals = self.totals(cpu, 0);
        let values = totals.values();
        let (enabled, running) = (totals.enabled, totals.running);
        let tick = Switch {
            pid: who,
            tid: who,
            cgroup: 1,
            enabled,
            running,
            values,
            time: enabled,
            ..Switch::default()
        };
        let fields = clock_fields(bundle_fields(self.fields, true));
        self.reads(cpu, 0, &tick.record(&fields));
    }

    /// A record is lost in the ring of a bundle.
    pub(super) fn loses(&mut self, cpu: u32, bundle: usize) {
        self.reads(cpu, bundle, &testing::lost(1, 1));
    }

    /// Who counted how much since this was asked last, in the order of their names. The processes are all there.
    pub(super) fn shares(&mut self) -> Vec<(String, Vec<u64>)> {
        sums(&self.attributor.take(|_| true))
    }

    /// As [`Machine::shares`], of the first counter.
    pub(super) fn first(&mut self) -> Vec<(String, u64)> {
        self.shares().into_iter().map(|(owner, counts)| (owner, counts[0])).collect()
    }
}

fn task(parent: u32, child: u32) -> Task {
    Task { pid: child, parent_pid: parent, tid: child, parent_tid: parent, time: 0 }
}

/// The counts of each owner that counted anything.
fn sums(shares: &Shares) -> Vec<(String, Vec<u64>)> {
    let mut sums = BTreeMap::<String, Vec<u64>>::new();
    let counted = shares.iter().filter(|(_, share)| share.counts.iter().any(|&count| count > 0));
    for (owner, share) in counted {
        let sum = sums.entry(name(owner)).or_insert_with(|| vec![0; share.counts.len()]);
        sum.iter_mut().zip(share.counts).for_each(|(sum, count)| *sum += count);
    }
    sums.into_iter().collect()
}

/// An owner in a few words.
pub(super) fn name(owner: &Owner) -> String {
    match owner {
        Owner::Idle => "idle".to_owned(),
        Owner::Cgroup(cgroup) => format!("cgroup {}", cgroup.0),
        Owner::Nobody(reason) => reason.as_str().to_owned(),
        Owner::Task(task) => {
            let mut name = format!("{} {}", task.pid, task.comm.as_deref().unwrap_or("?"));
            if !task.current {
                name.push_str(" before");
            }
            if task.kernel == Some(true) {
                name.push_str(" of the kernel");
            }
            if let Some(cgroup) = task.cgroup.filter(|cgroup| cgroup.0 != 1) {
                name.push_str(&format!(" in {}", cgroup.0));
            }
            name
        }
    }
}
