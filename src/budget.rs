//! The memory budget: how many bytes each part of the exporter may use ([`Shares`]), and how many it uses ([`MemoryBudget`]).
//!
//! `limits.memory` is one limit for everything that grows. [`Shares::of`] divides it into shares whose sum is exactly the limit. Each part
//! has a [`Share`] and reads its limit before it grows, so that a reload changes limits at run time. Code and constant data of the program
//! are not part of the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::named_enum::named_enum;

/// One mebibyte.
const MIB: u64 = 1 << 20;

named_enum! {
    /// A part of the exporter whose memory grows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Part {
        /// Rings for records of the kernel; locked memory.
        Rings = "rings",
        /// Unwind tables of program files.
        Unwind = "unwind",
        /// Symbol tables and function names.
        Symbols = "symbols",
        /// Stacks, frames, tasks, and the sample logs of profiles.
        Stacks = "stacks",
        /// Records read from rings that wait for older records of other CPUs.
        Waiting = "waiting",
        /// Series with their labels, and snapshots that are being served.
        Series = "series",
        /// Requests queued for push, HTTP responses in flight, and uploaded profiles.
        Queues = "queues",
        /// The past of the machine, of cgroups and of programs.
        History = "history",
        /// Evidence of incidents: the last runs of threads, and the file that is being written.
        Evidence = "evidence",
        /// All other allocated memory: thread stacks, tables of processes and containers, allocator overhead.
        Other = "other",
    }
}

impl Part {
    /// Number of parts.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the content of the part, for documentation.
    pub fn description(self) -> &'static str {
        match self {
            Self::Rings => "rings for records of the kernel (locked memory)",
            Self::Unwind => "unwind tables of program files",
            Self::Symbols => "symbol tables and function names",
            Self::Stacks => "stacks, frames, tasks, and the samples of the last hour",
            Self::Waiting => "records read from rings that wait for older records of other CPUs",
            Self::Series => "series with their labels, and snapshots that are being served",
            Self::Queues => "requests queued for push, HTTP responses in flight, uploaded profiles",
            Self::History => "the past of the machine, of cgroups and of programs",
            Self::Evidence => "the last runs of threads, and the file of an incident that is being written",
            Self::Other => {
                "all other allocated memory: thread stacks, tables of processes and containers, allocator overhead"
            }
        }
    }

    /// Returns the parameters of the share. `None` for an unused part, and for rings, whose share depends on the number of CPUs.
    fn row(self, demand: &Demand) -> Option<Row> {
        let row = |least_kib: u64, weight: u64, most_mib: u64| {
            Some(Row { least: least_kib << 10, weight, most: most_mib.saturating_mul(MIB) })
        };
        match self {
            Self::Rings => None,
            Self::Unwind | Self::Symbols | Self::Stacks if !demand.profiles => None,
            Self::Waiting if demand.rings == 0 => None,
            Self::History if !demand.history => None,
            Self::Evidence if !demand.incidents => None,
            Self::Unwind => row(2048, 9, 256),
            Self::Symbols => row(2048, 11, 256),
            Self::Stacks => row(3072, 11, 512),
            Self::Waiting => row(1024, 5, 128),
            Self::Series => row(2048, 8, u64::MAX),
            Self::Queues if demand.pushes => row(1024, 9, 256),
            Self::Queues => row(512, 2, 256),
            Self::History => row(512, 4, u64::MAX),
            Self::Evidence => row(1024, 8, 256),
            Self::Other => row(1024, 3, 32),
        }
    }
}

/// Bounds in bytes, and the weight, of one share.
#[derive(Debug, Clone, Copy)]
struct Row {
    least: u64,
    weight: u64,
    most: u64,
}

/// The inputs that determine the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Number of online CPUs.
    pub cpus: usize,
    /// Whether profiles are configured.
    pub profiles: bool,
    /// Whether a push is configured.
    pub pushes: bool,
    /// Whether a history is kept.
    pub history: bool,
    /// Whether the evidence of incidents is kept.
    pub incidents: bool,
    /// Number of rings per CPU: of the switch stream, of tracepoints, of profiles.
    pub rings: usize,
    /// Upper bound of the rings' share: `limits.ring_memory`.
    pub ring_memory: Option<u64>,
}

impl Demand {
    /// Returns the default of `limits.memory`: 64 MiB, plus 2 MiB per CPU, minus 48 MiB without profiles.
    pub fn default_limit(&self) -> u64 {
        let base = if self.profiles { 64 } else { 16 };
        (base + 2 * self.cpus as u64) * MIB
    }

    /// Returns the minimum of `limits.memory` for this configuration.
    pub fn least(&self) -> u64 {
        let rows = Part::ALL.into_iter().filter_map(|part| part.row(self));
        self.least_rings() + rows.map(|row| row.least).sum::<u64>()
    }

    /// Returns the minimum share of the rings: 256 KiB per CPU, unless the configuration sets a lower bound.
    fn least_rings(&self) -> u64 {
        if self.rings == 0 {
            return 0;
        }
        (self.cpus as u64 * (MIB / 4)).min(self.ring_memory.unwrap_or(u64::MAX))
    }

    /// Returns the rings' share of `limit`. Rings can use all of it.
    fn rings(&self, limit: u64) -> u64 {
        let (cpus, kinds) = (self.cpus.max(1) as u64, self.rings as u64);
        if kinds == 0 {
            return 0;
        }
        // In units of half a mebibyte: (9 + 2n) of (64 + 2n) MiB with profiles, (5 + 1.5n) of (16 + 2n) MiB without.
        let wanted = if self.profiles { 18 + 4 * cpus } else { 10 + 3 * cpus };
        let part = u128::from(limit) * u128::from(wanted) * u128::from(MIB / 2);
        let part = (part / u128::from(self.default_limit())) as u64;
        let others = self.least() - self.least_rings();
        let most = (16 * MIB * cpus).min(self.ring_memory.unwrap_or(u64::MAX));
        self.usable_rings(part.max(self.least_rings()).min(limit.saturating_sub(others)).min(most))
    }

    /// Returns the part of `share` that rings can use. The size of a ring is a power of two.
    fn usable_rings(&self, share: u64) -> u64 {
        let rings = (self.cpus.max(1) * self.rings) as u64;
        match share.checked_div(rings) {
            None | Some(0) => share,
            Some(each) => (1 << each.ilog2()) * rings,
        }
    }
}

/// Maximum bytes of each part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares([u64; Part::COUNT]);

impl Shares {
    /// Divides `limit` bytes into shares whose sum is `limit`. Configurations with less than [`Demand::least`] are rejected, but more CPUs
    /// may come online later. Then all shares are reduced in proportion.
    pub fn of(limit: u64, demand: &Demand) -> Self {
        let mut shares = Self::default();
        let least = demand.least();
        let rows = || Part::ALL.into_iter().filter_map(|part| Some((part, part.row(demand)?)));
        if limit < least {
            let reduced = |bytes: u64| (u128::from(bytes) * u128::from(limit) / u128::from(least)) as u64;
            shares.0[Part::Rings as usize] = demand.usable_rings(reduced(demand.least_rings()));
            rows().for_each(|(part, row)| shares.0[part as usize] = reduced(row.least));
        } else {
            shares.0[Part::Rings as usize] = demand.rings(limit);
            rows().for_each(|(part, row)| shares.0[part as usize] = row.least);
            // Memory that a part cannot use is distributed to the others, at most once per part.
            for _ in Part::ALL {
                let left = limit - shares.total();
                let open = || rows().filter(|(part, row)| shares.get(*part) < row.most);
                let weights: u64 = open().map(|(_, row)| row.weight).sum();
                let more: Vec<(Part, u64)> = open()
                    .map(|(part, row)| {
                        let more = u128::from(left) * u128::from(row.weight) / u128::from(weights.max(1));
                        (part, (more as u64).min(row.most - shares.get(part)))
                    })
                    .collect();
                more.into_iter().for_each(|(part, more)| shares.0[part as usize] += more);
            }
        }
        // The rounding remainder, less than one byte per part.
        shares.0[Part::Other as usize] += limit - shares.total();
        shares
    }

    /// Returns the share of a part in bytes.
    pub fn get(&self, part: Part) -> u64 {
        self.0[part as usize]
    }

    /// Returns the sum of all shares.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// All shares with their usage.
#[derive(Debug, Clone, Default)]
pub struct MemoryBudget(Arc<[Bytes; Part::COUNT]>);

/// Limit and usage of a part in bytes.
#[derive(Debug, Default)]
struct Bytes {
    limit: AtomicU64,
    used: AtomicU64,
}

/// Usage and limit of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartState {
    /// The part.
    pub part: Part,
    /// Bytes in use.
    #[serde(rename = "used_bytes")]
    pub used: u64,
    /// Maximum bytes.
    #[serde(rename = "limit_bytes")]
    pub limit: u64,
}

impl MemoryBudget {
    /// Creates a budget with these shares.
    pub fn new(shares: &Shares) -> Self {
        let budget = Self::default();
        budget.set(shares);
        budget
    }

    /// Changes all limits.
    pub fn set(&self, shares: &Shares) {
        for part in Part::ALL {
            self.0[part as usize].limit.store(shares.get(part), Ordering::Relaxed);
        }
    }

    /// Returns the share of a part.
    pub fn share(&self, part: Part) -> Share {
        Share { budget: self.clone(), part }
    }

    /// Returns the usage and the limit of each part.
    pub fn states(&self) -> [PartState; Part::COUNT] {
        Part::ALL.map(|part| self.share(part).state())
    }
}

/// The share of one part. Clones refer to the same share.
#[derive(Debug, Clone)]
pub struct Share {
    budget: MemoryBudget,
    part: Part,
}

impl Share {
    /// Creates a share of a fixed size outside of any budget, for commands that run for a limited time.
    pub fn fixed(part: Part, limit: u64) -> Self {
        let share = MemoryBudget::default().share(part);
        share.bytes().limit.store(limit, Ordering::Relaxed);
        share
    }

    /// Returns the maximum bytes of the part. A reload may change it.
    pub fn limit(&self) -> u64 {
        self.bytes().limit.load(Ordering::Relaxed)
    }

    /// Returns the bytes used by all accounts of the share together.
    pub fn used(&self) -> u64 {
        self.bytes().used.load(Ordering::Relaxed)
    }

    /// Reports whether the usage has reached the limit.
    pub fn is_full(&self) -> bool {
        self.used() >= self.limit()
    }

    /// Returns the limit, and the usage of all accounts together.
    pub fn state(&self) -> PartState {
        PartState { part: self.part, used: self.used(), limit: self.limit() }
    }

    /// Creates an empty account of the share.
    pub fn account(&self) -> Account {
        Account { share: self.clone(), held: AtomicU64::new(0) }
    }

    fn bytes(&self) -> &Bytes {
        &self.budget.0[self.part as usize]
    }
}

/// Usage of one part of the program within a [`Share`]. Released when dropped.
#[derive(Debug)]
pub struct Account {
    share: Share,
    held: AtomicU64,
}

impl Account {
    /// Sets the number of bytes in use.
    pub fn set(&self, bytes: u64) {
        let before = self.held.swap(bytes, Ordering::Relaxed);
        let used = &self.share.bytes().used;
        if bytes >= before {
            used.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            used.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// Returns the maximum bytes of the share.
    pub fn limit(&self) -> u64 {
        self.share.limit()
    }

    /// Returns the bytes that this account may use in total, given the usage of the other accounts.
    pub fn room(&self) -> u64 {
        let others = self.share.used().saturating_sub(self.held.load(Ordering::Relaxed));
        self.limit().saturating_sub(others)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand(cpus: usize, profiles: bool) -> Demand {
        let rings = 2 + usize::from(profiles);
        let (pushes, incidents) = (false, false);
        Demand { cpus, profiles, pushes, history: true, incidents, rings, ring_memory: None }
    }

    #[test]
    fn the_default_is_64_mebibytes_and_2_for_each_cpu_and_48_less_without_profiles() {
        assert_eq!(demand(2, true).default_limit(), 68 * MIB);
        assert_eq!(demand(2, false).default_limit(), 20 * MIB);
        assert_eq!(demand(256, true).default_limit(), 576 * MIB);
    }

    #[test]
    fn what_is_not_used_goes_to_the_others() {
        let with = Shares::of(68 * MIB, &demand(2, true));
        let without = Shares::of(68 * MIB, &demand(2, false));
        assert_eq!(without.get(Part::Stacks), 0);
        let forgetful = Shares::of(68 * MIB, &Demand { history: false, ..demand(2, true) });
        assert_eq!(forgetful.get(Part::History), 0);
        assert!(forgetful.get(Part::Stacks) > with.get(Part::Stacks));
        assert!(without.get(Part::Series) > with.get(Part::Series));
        let ringless = Demand { rings: 0, ..demand(2, true) };
        let ringless = Shares::of(68 * MIB, &ringless);
        assert_eq!((ringless.get(Part::Rings), ringless.get(Part::Waiting)), (0, 0));
        assert!(ringless.get(Part::Stacks) > with.get(Part::Stacks));
        let pushing = Shares::of(68 * MIB, &Demand { pushes: true, ..demand(2, true) });
        assert!(pushing.get(Part::Queues) > 2 * with.get(Part::Queues));
        let recording = Shares::of(68 * MIB, &Demand { incidents: true, ..demand(2, true) });
        assert_eq!(with.get(Part::Evidence), 0);
        assert!(recording.get(Part::Evidence) > 4 * MIB);
    }

    #[test]
    fn rings_do_not_become_smaller_where_the_limit_begins_to_suffice() {
        let demand = demand(460, true);
        let rings = |limit| Shares::of(limit, &demand).get(Part::Rings);
        assert!(rings(demand.least() - 1) <= rings(demand.least()));
        assert!(rings(100_073_474) <= rings(150_110_211));
    }

    #[test]
    fn ring_memory_is_an_upper_bound_for_the_rings() {
        let bounded = Demand { ring_memory: Some(256 << 10), ..demand(2, true) };
        assert!(Shares::of(68 * MIB, &bounded).get(Part::Rings) <= 256 << 10);
        let ample = Demand { ring_memory: Some(1 << 40), ..demand(2, true) };
        assert_eq!(Shares::of(68 * MIB, &ample), Shares::of(68 * MIB, &demand(2, true)));
    }

    #[test]
    fn rings_fill_their_share_on_machines_of_usual_sizes() {
        for (cpus, profiles, mebibytes) in
            [(2, true, 12), (8, true, 24), (64, true, 96), (256, true, 384), (2, false, 8), (8, false, 16)]
        {
            let demand = demand(cpus, profiles);
            let shares = Shares::of(demand.default_limit(), &demand);
            assert_eq!(shares.get(Part::Rings), mebibytes * MIB, "{cpus} CPUs");
        }
    }

    #[test]
    fn holders_of_a_share_add_up_and_give_back_what_they_held() {
        let budget = MemoryBudget::new(&Shares::of(68 * MIB, &demand(2, true)));
        let share = budget.share(Part::Series);
        let (one, other) = (share.account(), share.account());
        one.set(700);
        other.set(50);
        one.set(100);
        assert_eq!(share.used(), 150);
        drop(one);
        assert_eq!(budget.share(Part::Series).used(), 50);
        budget.set(&Shares::of(100 * MIB, &demand(2, true)));
        assert!(share.limit() > 8 * MIB && share.limit() == other.limit());
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_limit(
            cpus in 1usize..=1024,
            profiles: bool,
            pushes: bool,
            history: bool,
            incidents: bool,
            rings in 0usize..=3,
            bound in proptest::option::of(1u64..1 << 34),
            explicit in proptest::option::of(0u64..1 << 41),
        ) {
            let demand = Demand { cpus, profiles, pushes, history, incidents, rings, ring_memory: bound };
            let limit = explicit.unwrap_or_else(|| demand.default_limit());
            let shares = Shares::of(limit, &demand);
            prop_assert_eq!(shares.total(), limit);
            prop_assert!(demand.least() <= demand.default_limit());
            for part in Part::ALL {
                let share = shares.get(part);
                if let Some(row) = part.row(&demand).filter(|_| limit >= demand.least()) {
                    prop_assert!(share >= row.least && (share <= row.most || part == Part::Other));
                }
                if part.row(&demand).is_none() && (part != Part::Rings || demand.rings == 0) {
                    prop_assert_eq!(share, 0);
                }
            }
            prop_assert!(shares.get(Part::Rings) <= bound.unwrap_or(u64::MAX));
        }

        #[test]
        fn a_larger_limit_never_makes_rings_smaller(
            cpus in 1usize..=1024, profiles: bool, limit in 1u64 << 24..1 << 36,
        ) {
            let demand = demand(cpus, profiles);
            let (less, more) = (Shares::of(limit, &demand), Shares::of(limit + limit / 2, &demand));
            prop_assert!(less.get(Part::Rings) <= more.get(Part::Rings));
        }
    }
}
