//! In all cases, every count is attributed once: the sum over all shares equals the last values of the counters.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::Shares;
use super::machine::Machine;
use crate::plan::Granularity;
use crate::ring::testing;
use crate::sys::Fields;

const CPUS: u32 = 3;
const BUNDLES: usize = 2;

/// An event on a CPU, for one of its bundles.
#[derive(Debug, Clone)]
enum Happens {
    Counts(u64),
    Leaves(u32),
    LeavesWithoutAnId,
    LosesRecords,
    /// The record exists, but it is not one of this bundle.
    WritesNonsense(Vec<u8>),
    Forks(u32, u32),
    IsNamed(u32, String),
    Ends(u32),
    IsReplaced,
    Described(u32),
    Rotates(u64),
    Collection,
}

fn happens() -> impl Strategy<Value = Happens> {
    let pid = 0u32..6;
    prop_oneof![
        8 => (0u64..1 << 40).prop_map(Happens::Counts),
        8 => pid.clone().prop_map(Happens::Leaves),
        1 => Just(Happens::LeavesWithoutAnId),
        1 => Just(Happens::LosesRecords),
        1 => vec(any::<u8>(), 0..64).prop_map(Happens::WritesNonsense),
        1 => (pid.clone(), pid.clone()).prop_map(|(parent, child)| Happens::Forks(parent, child)),
        1 => (pid.clone(), "[ab]").prop_map(|(pid, name)| Happens::IsNamed(pid, name)),
        1 => pid.clone().prop_map(Happens::Ends),
        1 => Just(Happens::IsReplaced),
        1 => pid.prop_map(Happens::Described),
        1 => (1u64..1000).prop_map(Happens::Rotates),
        1 => Just(Happens::Collection),
    ]
}

/// The attributed counts of each counter, and the time.
#[derive(Debug, Default, PartialEq)]
struct Charged {
    counts: [u64; BUNDLES],
    nanoseconds: u64,
}

impl Charged {
    fn take(&mut self, shares: &Shares) {
        for (_, share) in shares.iter() {
            self.counts.iter_mut().zip(share.counts).for_each(|(sum, count)| *sum += count);
            self.nanoseconds += u64::try_from(share.time.as_nanos()).unwrap();
        }
    }
}

/// Runs a machine. Returns the attributed counts, and the last values of its counters.
fn run(granularity: Granularity, plan: &[(u32, usize, Happens)], ends: bool) -> (Charged, Charged) {
    let mut machine = Machine::new(granularity, CPUS, BUNDLES);
    let (mut charged, mut told) = (Charged::default(), BTreeMap::new());
    for (cpu, bundle, happens) in plan {
        let (cpu, bundle) = (*cpu, *bundle);
        match happens {
            Happens::Counts(count) => machine.counts(cpu, bundle, *count),
            Happens::Leaves(owner) => machine.leaves(cpu, bundle, *owner),
            Happens::LeavesWithoutAnId => machine.leaves_without_an_id(cpu, bundle),
            Happens::LosesRecords => machine.loses(cpu, bundle),
            Happens::WritesNonsense(bytes) => {
                machine.reads(cpu, bundle, &testing::record(9, 0, &short(bytes)));
            }
            Happens::Forks(parent, child) => machine.forks(cpu, *parent, *child),
            Happens::IsNamed(pid, name) => machine.is_named(cpu, *pid, name),
            Happens::Ends(pid) => machine.ends(cpu, *pid),
            Happens::IsReplaced => machine.attributor.mark_gap(cpu, bundle),
            Happens::Described(pid) => machine.attributor.describe(*pid, &"c".into(), false),
            // Software events are never off the PMU.
            Happens::Rotates(_) if bundle == 0 => {}
            Happens::Rotates(time) => machine.totals(cpu, bundle).enabled += time,
            Happens::Collection => {
                (0..CPUS).for_each(|cpu| machine.settles(cpu));
                charged.take(&machine.attributor.take(|pid| pid < 3));
            }
        }
        if let Happens::Leaves(_) | Happens::LeavesWithoutAnId = happens {
            told.insert((cpu, bundle), machine.totals(cpu, bundle).clone());
        }
    }
    if ends {
        for cpu in 0..CPUS {
            let mut words: Vec<_> =
                (0..BUNDLES).map(|bundle| machine.totals(cpu, bundle).words(bundle)).collect();
            machine.attributor.remove_cpu(cpu, &mut words);
            told.extend((0..BUNDLES).map(|bundle| ((cpu, bundle), machine.totals(cpu, bundle).clone())));
        }
    }
    (0..CPUS).for_each(|cpu| machine.settles(cpu));
    charged.take(&machine.attributor.take(|_| true));
    let mut expected = Charged::default();
    for (&(_, bundle), totals) in &told {
        expected.counts[bundle] += totals.counts[0];
        expected.nanoseconds += if bundle == 0 { totals.enabled } else { 0 };
    }
    (charged, expected)
}

/// Truncates to less than a sample of three members.
fn short(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take(32).collect()
}

fn plan() -> impl Strategy<Value = Vec<(u32, usize, Happens)>> {
    vec((0..CPUS, 0..BUNDLES, happens()), 0..200)
}

proptest! {
    #[test]
    fn the_sum_over_all_shares_is_what_the_counters_said_last(plan in plan(), fine: bool, ends: bool) {
        let granularity = if fine { Granularity::Process } else { Granularity::Cgroup };
        let (charged, expected) = run(granularity, &plan, ends);
        prop_assert_eq!(charged, expected);
    }

    #[test]
    fn no_bytes_are_too_odd(
        records in vec((0..CPUS, 0..BUNDLES, 0u32..24, vec(prop_oneof![0..3u8, Just(0xff)], 0..120), any::<bool>()), 0..60),
        fine: bool,
    ) {
        let granularity = if fine { Granularity::Process } else { Granularity::Cgroup };
        let mut machine = Machine::new(granularity, CPUS, BUNDLES);
        for (cpu, bundle, kind, body, whole) in records {
            let body: Vec<u8> = body.iter().flat_map(|&byte| [byte; 4]).collect();
            let record = testing::record(kind, 0, &body);
            machine.reads(cpu, bundle, if whole { &record } else { &body });
        }
        (0..CPUS).for_each(|cpu| machine.settles(cpu));
        machine.shares();
    }
}

#[test]
fn the_layout_of_these_records_is_that_of_the_stream() {
    // These tests would prove little if the stream used other fields.
    let stream = crate::plan::Stream {
        granularity: Granularity::Process,
        cgroup: true,
        timed: false,
        sets: Vec::new(),
    };
    let expected = Fields { tid: true, read: Some(Default::default()), cgroup: true, ..Fields::default() };
    assert_eq!(super::super::fields(&stream), expected);
}
