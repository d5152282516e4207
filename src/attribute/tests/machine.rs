//! A machine that tests let run: it counts, writes records as a kernel does, and has them read at once.

use std::collections::BTreeMap;

use super::super::{Attributor, Bundle, Owner, Shares};
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
        [&[self.switches, 4712][..], &self.counts].concat()
    }

    /// As the group's leader answers when it is read.
    pub(super) fn words(&self) -> Vec<u64> {
        let values = self.values();
        [&[values.len() as u64, self.enabled, self.running][..], &values].concat()
    }
}

/// CPUs that run tasks.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) attributor: Attributor,
    granularity: Granularity,
    fields: Fields,
    totals: BTreeMap<(u32, usize), Totals>,
}

impl Machine {
    /// `cpus` CPUs, each with `bundles` of one counter.
    pub(super) fn new(granularity: Granularity, cpus: u32, bundles: usize) -> Self {
        let fields = Fields {
            tid: granularity == Granularity::Process,
            read: Some(ReadFormat::default()),
            cgroup: true,
            ..Fields::default()
        };
        let mut attributor = Attributor::new(granularity, fields, bundles);
        let mut totals = BTreeMap::new();
        for cpu in 0..cpus {
            let bundle = |counter| Bundle { counters: vec![vec![], vec![], vec![counter]], untimed: false };
            attributor.add_cpu(cpu, (0..bundles).map(bundle).collect());
            let fresh = Totals { counts: vec![0], ..Totals::default() };
            totals.extend((0..bundles).map(|bundle| ((cpu, bundle), fresh.clone())));
        }
        Self { attributor, granularity, fields, totals }
    }

    pub(super) fn totals(&mut self, cpu: u32, bundle: usize) -> &mut Totals {
        self.totals.get_mut(&(cpu, bundle)).unwrap()
    }

    /// A bundle counts, on the PMU all the time.
    pub(super) fn counts(&mut self, cpu: u32, bundle: usize, count: u64) {
        let totals = self.totals(cpu, bundle);
        totals.enabled += count * PACE;
        totals.running += count * PACE;
        totals.counts[0] += count;
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
            ..who.clone()
        };
        self.reads(cpu, bundle, &switch.record(&self.fields));
    }

    /// A record is read from the ring of a bundle, as a batch of its own.
    pub(super) fn reads(&mut self, cpu: u32, bundle: usize, record: &[u8]) {
        self.attributor.read(cpu, bundle, |read| read(record));
    }

    /// A process takes a name, on a CPU.
    pub(super) fn is_named(&mut self, cpu: u32, pid: u32, name: &str) {
        self.reads(cpu, 0, &testing::comm(pid, pid, name.as_bytes(), true));
    }

    /// A process creates another, on a CPU.
    pub(super) fn forks(&mut self, cpu: u32, parent: u32, child: u32) {
        self.reads(cpu, 0, &testing::fork(task(parent, child)));
    }

    /// The main thread of a process ends, on a CPU.
    pub(super) fn ends(&mut self, cpu: u32, pid: u32) {
        self.reads(cpu, 0, &testing::exit(task(1, pid)));
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
    for (owner, counts, _) in shares.iter().filter(|(_, counts, _)| counts.iter().any(|&count| count > 0)) {
        let sum = sums.entry(name(owner)).or_insert_with(|| vec![0; counts.len()]);
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
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
