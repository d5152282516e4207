//! The switch stream: who counted what, from the records that the kernel writes when it switches.
//!
//! On each CPU one group of counters has a software leader of period 1, so that the kernel writes a record with all
//! counts whenever the CPU goes from one cgroup ([`Granularity::Cgroup`]) or thread ([`Granularity::Process`]) to
//! another. It does so while the outgoing task is still the current one: what was counted since the record before
//! belongs to the task that the record names. A clock in the same group writes such a record ten times a second, so
//! that a task that is never switched out is not far behind.
//!
//! Every count is charged exactly once, to an owner or to a reason why there is none: the sum over [`Shares`] is what
//! the CPUs' own counters counted up to their last records.
//!
//! What the kernel does not tell: a task that is moved to another cgroup while it runs is charged to the new one from
//! the last record on, at most a tenth of a second.

mod cpu;
mod format;
mod intake;
mod shares;

#[cfg(test)]
mod tests;

pub use cpu::Bundle;
pub use format::{bundle_fields, clock_fields, fields, record_size, sideband};
pub use intake::Intake;
pub use shares::{Owner, Reason, Shares};

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::plan::Granularity;
use crate::register::{Order, Processes};
use crate::ring::{Group, Losses, Malformed, Record, Sample, Turn};
use crate::sys::Fields;
use crate::target::{CgroupId, Changed};
use cpu::{Leaving, Running};
use shares::Row;

/// Charges counts to owners. Pure: it is fed with records, and keeps sums.
#[derive(Debug)]
pub struct Attributor {
    /// The bundles of each CPU.
    cpus: BTreeMap<u32, Vec<Running>>,
    ledger: Ledger,
}

/// What all CPUs charge to.
#[derive(Debug)]
struct Ledger {
    granularity: Granularity,
    /// Of a record at a switch.
    fields: Fields,
    width: usize,
    shares: Shares,
    cgroups: FxHashMap<u64, Row>,
    processes: Processes,
    losses: Losses,
    /// Turns that were not passed on yet.
    turns: Vec<Turn>,
    /// Whether turns are collected.
    follows: bool,
}

impl Attributor {
    /// Nothing is charged yet, of `width` counters. `fields` is what records at switches carry;
    /// those of the clock carry [more](clock_fields).
    pub fn new(granularity: Granularity, fields: Fields, width: usize) -> Self {
        let ledger = Ledger {
            granularity,
            fields,
            width,
            shares: Shares::new(width),
            cgroups: FxHashMap::default(),
            processes: Processes::new(Order::Ring),
            losses: Losses::default(),
            turns: Vec::new(),
            follows: false,
        };
        Self { cpus: BTreeMap::new(), ledger }
    }

    /// A CPU whose bundles are about to be enabled for the first time, each with a ring of its own; what is told besides
    /// switches stands in the first one's. Bundles with more members than a group may have are left out.
    pub fn add_cpu(&mut self, cpu: u32, bundles: Vec<Bundle>) {
        let bundles = bundles.into_iter().enumerate();
        let bundles =
            bundles.filter_map(|(place, bundle)| Running::new(cpu, &bundle, self.ledger.fields, place == 0));
        self.cpus.insert(cpu, bundles.collect());
        self.ledger.processes.miss();
    }

    /// Charges what the bundles of a CPU counted since their last records, as read from their groups
    /// ([`Event::read`](crate::sys::Event::read)), to [`Reason::Ended`]; then forgets the CPU. Stop the counters
    /// before they are read.
    pub fn remove_cpu(&mut self, cpu: u32, words: &[Vec<u64>]) {
        for (bundle, words) in self.cpus.remove(&cpu).iter_mut().flatten().zip(words) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if let Ok(group) = Group::parse_read(&bytes, bundle.fields.read.unwrap_or_default()) {
                bundle.conclude(&group, &mut self.ledger.shares);
            }
        }
    }

    /// Reads a batch of records, headers included, of one bundle of a CPU: `batch` is given what to call with each.
    pub fn read(&mut self, cpu: u32, bundle: usize, batch: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let bundles = self.cpus.get_mut(&cpu);
        let Some(bundle) = bundles.and_then(|bundles| bundles.get_mut(bundle)) else { return };
        let ledger = &mut self.ledger;
        batch(&mut |record| ledger.read(bundle, record));
        bundle.turn();
    }

    /// Records of a bundle are missing between those read and those to come.
    pub fn mark_gap(&mut self, cpu: u32, bundle: usize) {
        let bundles = self.cpus.get_mut(&cpu);
        if let Some(bundle) = bundles.and_then(|bundles| bundles.get_mut(bundle)) {
            bundle.mark_gap();
        }
        self.ledger.processes.miss();
    }

    /// The processes that changed since the last call; `None` if that is not known, as records were lost or tell nothing of
    /// processes.
    pub fn take_news(&mut self) -> Option<Changed> {
        let news = self.ledger.processes.take_changed();
        news.filter(|_| self.ledger.granularity == Granularity::Process)
    }

    /// Enters a process as `/proc` describes it.
    pub fn describe(&mut self, pid: u32, comm: &Arc<str>, kernel: bool) {
        self.ledger.processes.describe(pid, comm, kernel);
    }

    /// Gives everything that was charged since the last time. `there` tells whether a process exists; those that do
    /// not, and did not run either, are forgotten.
    pub fn take(&mut self, there: impl Fn(u32) -> bool) -> Shares {
        let ledger = &mut self.ledger;
        let mut shares = std::mem::replace(&mut ledger.shares, Shares::new(ledger.width));
        shares.add_tasks(ledger.processes.end_round(there));
        ledger.cgroups.clear();
        shares
    }

    /// What could not be read.
    pub fn losses(&self) -> Losses {
        self.ledger.losses
    }
}

impl Ledger {
    /// Reads a record of a bundle.
    #[inline]
    fn read(&mut self, bundle: &mut Running, record: &[u8]) {
        match Record::parse(record, &bundle.fields) {
            Ok(Record::Sample(sample)) => self.sample(bundle, &sample, 1),
            Ok(record) => self.sideband(bundle, record),
            Err(Malformed) => match Record::parse(record, &bundle.clock_fields) {
                Ok(Record::Sample(sample)) => self.sample(bundle, &sample, 0),
                _ => self.unreadable(bundle),
            },
        }
    }

    /// Charges what was counted up to a record that tells of so many `switches`.
    #[inline]
    fn sample(&mut self, bundle: &mut Running, sample: &Sample<'_>, switches: u64) {
        self.losses.records += 1;
        let owner = self.owner(&mut bundle.leaving, sample).unwrap_or(Row::of(Reason::Unknown));
        match bundle.advance(&sample.group, owner, switches, &mut self.shares) {
            Ok(unrecorded) => {
                self.losses.unrecorded = self.losses.unrecorded.saturating_add(unrecorded);
                if self.follows {
                    self.turns.extend(bundle.turn_of(sample, switches, unrecorded));
                }
            }
            Err(Malformed) => self.unreadable(bundle),
        }
    }

    /// Whose the counts up to this record are. `None` if it is one owner too many.
    #[inline]
    fn owner(&mut self, leaving: &mut Leaving, sample: &Sample<'_>) -> Option<Row> {
        match self.granularity {
            Granularity::Cgroup => match self.cgroups.get(&sample.cgroup) {
                Some(&row) => Some(row),
                None => {
                    let row = self.shares.add_row(Owner::Cgroup(CgroupId(sample.cgroup)))?;
                    self.cgroups.insert(sample.cgroup, row);
                    Some(row)
                }
            },
            Granularity::Process => {
                let pid = match (sample.pid, sample.tid) {
                    (_, 0) => return Some(Row::IDLE),
                    // It has given back its id, and is about to leave the CPU for good.
                    (u32::MAX, _) => match leaving.pop() {
                        Some(pid) => pid,
                        None => return Some(Row::of(Reason::Unknown)),
                    },
                    (pid, _) => pid,
                };
                let cgroup = self.fields.cgroup.then_some(CgroupId(sample.cgroup));
                match self.processes.task(pid, cgroup) {
                    Some(task) => Some(Row::of_task(task)),
                    None => self.add_task(pid, cgroup),
                }
            }
        }
    }

    #[cold]
    fn add_task(&mut self, pid: u32, cgroup: Option<CgroupId>) -> Option<Row> {
        if !self.shares.has_room() {
            return None;
        }
        self.processes.add_task(pid, cgroup).map(|task| self.shares.add_task_row(task))
    }

    fn sideband(&mut self, bundle: &mut Running, record: Record<'_>) {
        match record {
            Record::Lost { count, .. } | Record::LostSamples { count } => {
                self.losses.ring_full = self.losses.ring_full.saturating_add(count);
                bundle.mark_gap();
                self.processes.miss();
            }
            Record::Cgroup(cgroup) => self.shares.created.hear(&cgroup),
            Record::Throttle { .. } => self.losses.throttled += 1,
            record if self.granularity == Granularity::Process => {
                // Of this bundle alone: the rings of a CPU are read one after the other, so that in another one the
                // end does not stand in front of the record that it explains.
                if let Record::Exit(task) = record
                    && task.pid == task.tid
                {
                    bundle.leaving.push(task.pid);
                }
                self.processes.hear(&record);
            }
            // The others say nothing about owners.
            _ => {}
        }
    }

    /// What the record should have told is missing.
    fn unreadable(&mut self, bundle: &mut Running) {
        self.losses.unreadable += 1;
        bundle.mark_gap();
        self.processes.miss();
    }
}
