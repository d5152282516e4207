//! A simulated machine: it counts, writes records like a kernel, and passes them to the attributor at once.

use std::collections::BTreeMap;

use super::super::{Attributor, Bundle, Measure, Owner, Shares, bundle_fields, clock_fields};
use crate::plan::Granularity;
use crate::ring::Task;
use crate::ring::testing::{self, Switch};
use crate::sys::{Fields, ReadFormat};

/// Nanoseconds in which a counter counts one.
pub(super) const PACE: u64 = 10;

/// The values of the counters of one bundle.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) enabled: u64,
    pub(super) running: u64,
    /// Count of the leader.
    pub(super) switches: u64,
    /// Without the leader and the clock.
    pub(super) counts: Vec<u64>,
}

impl Totals {
    /// Returns the values of all members, including the leader and the clock.
    fn values(&self) -> Vec<u64> {
        [&[self.switches, self.running][..], &self.counts].concat()
    }

    /// Returns the words of a read of the group's leader. Readings of the first bundle contain no times.
    pub(super) fn words(&self, bundle: usize) -> Vec<u64> {
        let values = self.values();
        let times: &[u64] = if bundle == 0 { &[] } else { &[self.enabled, self.running] };
        [&[values.len() as u64][..], times, &values].concat()
    }
}

/// Simulated CPUs that run tasks.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) attributor: Attributor,
    granularity: Granularity,
    fields: Fields,
    totals: BTreeMap<(u32, usize), Totals>,
    /// Count of a counter in a step.
    pub(super) unit: u64,
    /// Time of the last record of a process.
    clock: u64,
}

impl Machine {
    /// Returns a machine with `cpus` CPUs, each with `bundles` of one counter.
    pub(super) fn new(granularity: Granularity, cpus: u32, bundles: usize) -> Self {
        Self::measuring(granularity, cpus, bundles, Measure::Other)
    }

    /// Like [`Machine::new`], with counters of this unit.
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
                switches: 0,
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

    /// Adds to the counts of a bundle, which is on the PMU all the time.
    pub(super) fn counts(&mut self, cpu: u32, bundle: usize, count: u64) {
        let unit = self.unit;
        let totals = self.totals(cpu, bundle);
        totals.enabled += count * PACE;
        totals.running += count * PACE;
        totals.counts[0] += count * unit;
    }

    /// Counts in the first bundle of a CPU, then switches out `who`, a cgroup or a process.
    pub(super) fn runs(&mut self, cpu: u32, who: u32, count: u64) {
        self.counts(cpu, 0, count);
        self.leaves(cpu, 0, who);
    }

    /// Like [`Machine::runs`], for a process in a cgroup.
    pub(super) fn runs_in(&mut self, cpu: u32, (pid, cgroup): (u32, u64), count: u64) {
        self.counts(cpu, 0, count);
        self.write(cpu, 0, &Switch { pid, tid: pid, cgroup, ..Switch::default() });
    }

    /// Writes the record of a bundle when `who` is switched out.
    pub(super) fn leaves(&mut self, cpu: u32, bundle: usize, who: u32) {
        let (pid, cgroup) = self.ids(who);
        self.write(cpu, bundle, &Switch { pid, tid: pid, cgroup, ..Switch::default() });
    }

    /// Returns the pid and the cgroup of `who`, a cgroup or a process.
    fn ids(&self, who: u32) -> (u32, u64) {
        match self.granularity {
            Granularity::Cgroup => (0, who.into()),
            Granularity::Process => (who, 1),
        }
    }

    /// Switches out a task that was reaped before.
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

    /// Settles a CPU after all its records were read.
    pub(super) fn settles(&mut self, cpu: u32) {
        self.attributor.settle(cpu);
    }

    /// Reads a record from the ring of a bundle, as a batch of its own.
    pub(super) fn reads(&mut self, cpu: u32, bundle: usize, record: &[u8]) {
        self.attributor.read(cpu, bundle, |read| read(record));
    }

    /// Changes the name of a process, on a CPU.
    pub(super) fn is_named(&mut self, cpu: u32, pid: u32, name: &str) {
        self.takes_name(cpu, (pid, pid), name.as_bytes());
    }

    /// Changes the name of a thread, on a CPU. The record ends with the thread and the time.
    pub(super) fn takes_name(&mut self, cpu: u32, (pid, tid): (u32, u32), name: &[u8]) {
        let end = testing::bytes(&[u64::from(tid) << 32 | u64::from(pid), self.now()]);
        self.reads(cpu, 0, &testing::longer(testing::comm(pid, tid, name, true), &end));
    }

    /// Returns the time of the next record of a process. Each is later than the previous one.
    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Creates a process, on a CPU.
    pub(super) fn forks(&mut self, cpu: u32, parent: u32, child: u32) {
        let time = self.now();
        self.reads(cpu, 0, &testing::fork(Task { time, ..task(parent, child) }));
    }

    /// Ends the main thread of a process, on a CPU.
    pub(super) fn ends(&mut self, cpu: u32, pid: u32) {
        self.reads(cpu, 0, &testing::exit(task(1, pid)));
    }

    /// Counts in the first bundle of a CPU, then switches out a thread without a sample. The leaders of all bundles count the switch.
    pub(super) fn runs_unseen(&mut self, cpu: u32, count: u64) {
        self.counts(cpu, 0, count);
        self.totals.range_mut((cpu, 0)..=(cpu, usize::MAX)).for_each(|(_, totals)| totals.switches += 1);
    }

    /// Writes the `PERF_RECORD_SWITCH` of a thread that is switched out. `to` comes after it.
    pub(super) fn goes(&mut self, cpu: u32, to: u32) {
        self.writes_switch(cpu, true, to);
    }

    /// Writes the `PERF_RECORD_SWITCH` of a thread that is switched in. `from` was before it.
    pub(super) fn comes(&mut self, cpu: u32, from: u32) {
        self.writes_switch(cpu, false, from);
    }

    fn writes_switch(&mut self, cpu: u32, out: bool, other: u32) {
        let time = self.totals(cpu, 0).enabled;
        self.reads(cpu, 0, &testing::switch(out, (other, other), time));
    }

    /// Writes a record of the clock of a bundle while `who` has the CPU.
    pub(super) fn ticks(&mut self, cpu: u32, bundle: usize, who: u32) {
        let (pid, cgroup) = self.ids(who);
        let totals = self.totals(cpu, bundle);
        let values = totals.values();
        let (enabled, running) = (totals.enabled, totals.running);
        let tick =
            Switch { pid, tid: pid, cgroup, enabled, running, values, time: enabled, ..Switch::default() };
        let fields = clock_fields(bundle_fields(self.fields, bundle == 0));
        self.reads(cpu, bundle, &tick.record(&fields));
    }

    /// Loses a record in the ring of a bundle.
    pub(super) fn loses(&mut self, cpu: u32, bundle: usize) {
        self.reads(cpu, bundle, &testing::lost(1, 1));
    }

    /// Returns the counts of each owner since the last call, sorted by name. All processes exist.
    pub(super) fn shares(&mut self) -> Vec<(String, Vec<u64>)> {
        sums(&self.attributor.take(|_| true))
    }

    /// Like [`Machine::shares`], for the first counter.
    pub(super) fn first(&mut self) -> Vec<(String, u64)> {
        self.shares().into_iter().map(|(owner, counts)| (owner, counts[0])).collect()
    }
}

fn task(parent: u32, child: u32) -> Task {
    Task { pid: child, parent_pid: parent, tid: child, parent_tid: parent, time: 0 }
}

/// Returns the counts of each owner with nonzero counts.
fn sums(shares: &Shares) -> Vec<(String, Vec<u64>)> {
    let mut sums = BTreeMap::<String, Vec<u64>>::new();
    let counted = shares.iter().filter(|(_, share)| share.counts.iter().any(|&count| count > 0));
    for (owner, share) in counted {
        let sum = sums.entry(name(owner)).or_insert_with(|| vec![0; share.counts.len()]);
        sum.iter_mut().zip(share.counts).for_each(|(sum, count)| *sum += count);
    }
    sums.into_iter().collect()
}

/// Returns a short description of an owner.
pub(super) fn name(owner: &Owner) -> String {
    match owner {
        Owner::Idle => "idle".to_owned(),
        Owner::Cgroup(cgroup) => format!("cgroup {}", cgroup.0),
        Owner::Unattributed(reason) => reason.as_str().to_owned(),
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
