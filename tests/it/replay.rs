//! Replays recorded rings of a running kernel: `tests/data/rings`, which `CAPTURE_RINGS=1 cargo test --test live stream_records` records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;

use perf_exporter::attribute::{Attributor, Owner, Share, Shares};
use perf_exporter::host as files;
use proptest::prelude::*;

use crate::program::repository;
use crate::rings::{Capture, Ring, sums};

const CAPTURES: [&str; 3] = ["cgroup", "process", "overflow"];

fn load(name: &str) -> Capture {
    let file = repository("tests/data/rings").join(name);
    let header = files::read_text(&file.with_extension("json")).unwrap();
    let mut bytes = Vec::new();
    File::open(file.with_extension("bin")).unwrap().read_to_end(&mut bytes).unwrap();
    Capture { bytes, ..serde_json::from_str(&header).unwrap() }
}

fn read(attributor: &mut Attributor, ring: &Ring, records: &[&[u8]]) {
    attributor.read(ring.cpu, ring.bundle, |read| records.iter().for_each(|record| read(record)));
}

/// Replays all batches in the recorded order.
fn replay(capture: &Capture) -> (Attributor, Shares) {
    let mut attributor = capture.attributor();
    for (ring, records) in capture.batches() {
        read(&mut attributor, ring, &records);
    }
    let shares = attributor.take(|_| true);
    (attributor, shares)
}

/// Formats an owner without the parts that depend on the order in which rings are read: names may arrive late.
fn who(owner: &Owner) -> String {
    match owner {
        Owner::Idle => "idle".to_owned(),
        Owner::Cgroup(cgroup) => format!("cgroup {}", cgroup.0),
        Owner::Unattributed(reason) => reason.as_str().to_owned(),
        Owner::Task(task) => format!("process {} in {}", task.pid, task.cgroup.unwrap().0),
    }
}

/// Adds the counts of each owner, followed by its nanoseconds.
fn add_up(shares: &Shares, name: impl Fn(&Owner) -> String, to: &mut BTreeMap<String, Vec<u64>>) {
    for (owner, Share { counts, time, .. }) in shares.iter() {
        let sum = to.entry(name(owner)).or_insert_with(|| vec![0; counts.len() + 1]);
        let time = u64::try_from(time.as_nanos()).unwrap();
        sum.iter_mut().zip(counts.iter().chain([&time])).for_each(|(sum, count)| *sum += count);
    }
}

#[test]
fn every_count_of_a_capture_is_charged() {
    for name in CAPTURES {
        let capture = load(name);
        let (attributor, shares) = replay(&capture);
        let losses = attributor.losses();
        assert_eq!(losses.unreadable, 0, "{name}");
        assert_eq!(losses.ring_full > 0, name == "overflow", "{name}: {losses:?}");
        let mut charged = vec![0; capture.counters.len() + 1];
        sums(&shares, &mut charged);
        sums(&capture.end(attributor), &mut charged);
        assert_eq!(charged, capture.totals(), "{name}: {:?}", capture.counters);
        assert!(charged.iter().all(|&sum| sum > 0), "{name}: a count of 0 tests nothing");
    }
}

/// Writes a table of the counts of each owner for each capture.
#[test]
fn the_shares_of_a_capture_are_these() {
    for name in CAPTURES {
        let capture = load(name);
        let (attributor, shares) = replay(&capture);
        let mut sums = BTreeMap::new();
        let named = |owner: &Owner| match owner {
            Owner::Task(task) => {
                let kernel = if task.kernel == Some(true) { ", of the kernel" } else { "" };
                let before = if task.current { "" } else { ", before" };
                let comm = task.comm.as_deref().unwrap_or("?");
                format!("{}: {comm}{before}{kernel}", who(owner))
            }
            owner => who(owner),
        };
        add_up(&shares, named, &mut sums);
        let losses = attributor.losses();
        add_up(&capture.end(attributor), named, &mut sums);
        sums.retain(|_, counts| counts.iter().any(|&count| count > 0));
        let mut table = format!("{losses:?}\n{}, nanoseconds\n", capture.counters.join(", "));
        for (owner, counts) in &sums {
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            writeln!(table, "{owner}: {}", counts.join(", ")).unwrap();
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(format!("shares-{name}"), table));
    }
}

#[test]
fn a_cgroup_that_was_made_in_a_capture_leaves_its_path() {
    let (_, shares) = replay(&load("cgroup"));
    let paths: Vec<_> = shares
        .iter()
        .filter_map(|(owner, share)| match owner {
            Owner::Cgroup(id) if !share.time.is_zero() => shares.created().get(*id),
            _ => None,
        })
        .collect();
    assert!(paths.iter().any(|path| path.ends_with("/short")), "{paths:?}");
}

/// Replays the same records in other batches and with collections in between. The order within each ring is kept.
fn shuffled(capture: &Capture, choices: &[(usize, usize, bool)]) -> BTreeMap<String, Vec<u64>> {
    let mut waiting: Vec<Vec<&[u8]>> = capture.rings.iter().map(|_| Vec::new()).collect();
    for (ring, records) in capture.batches() {
        let place = capture.rings.iter().position(|other| std::ptr::eq(other, ring)).unwrap();
        waiting[place].extend(records);
    }
    let (mut attributor, mut sums) = (capture.attributor(), BTreeMap::new());
    for &(ring, most, collect) in choices {
        let place = ring % waiting.len();
        let next = most.min(waiting[place].len());
        read(&mut attributor, &capture.rings[place], &waiting[place].drain(..next).collect::<Vec<_>>());
        if collect {
            add_up(&attributor.take(|_| true), who, &mut sums);
        }
    }
    for (ring, records) in capture.rings.iter().zip(waiting) {
        read(&mut attributor, ring, &records);
    }
    add_up(&capture.end(attributor), who, &mut sums);
    sums.retain(|_, counts| counts.iter().any(|&count| count > 0));
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn who_counted_how_much_does_not_depend_on_when_rings_are_read(
        choices in proptest::collection::vec((any::<usize>(), 0usize..200, any::<bool>()), 0..40)
    ) {
        for name in CAPTURES {
            let capture = load(name);
            let mut expected = BTreeMap::new();
            let (attributor, shares) = replay(&capture);
            add_up(&shares, who, &mut expected);
            add_up(&capture.end(attributor), who, &mut expected);
            expected.retain(|_, counts| counts.iter().any(|&count| count > 0));
            prop_assert_eq!(&shuffled(&capture, &choices), &expected, "{}", name);
        }
    }
}

/// Arbitrary bytes. The fuzz targets under `fuzz/` test the same with more time.
mod any_bytes {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::{any_btf, any_record, any_stream};

    proptest! {
        #[test]
        fn are_a_record_or_none(bits: u16, kind in 0u8..24, mut bytes in vec(any::<u8>(), 8..200), good: bool) {
            if good {
                bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
                let size = u16::try_from(bytes.len()).unwrap();
                bytes[6..8].copy_from_slice(&size.to_ne_bytes());
            }
            any_record::holds(&[&bits.to_le_bytes()[..], &bytes].concat());
        }

        #[test]
        fn in_the_rings_of_a_stream_are_charged_once(
            bytes in vec(prop_oneof![any::<u8>(), Just(0), Just(0xff), 2u8..15], 0..2000)
        ) {
            any_stream::holds(&bytes);
        }

        /// A function and its prototype, and type records of all kinds, each with few parts that refer to types and strings by small
        /// numbers.
        #[test]
        fn are_the_types_of_a_kernel_or_none(
            records in vec((1u8..20, 0u8..3, vec(0u32..12, 8)), 0..12), bytes in vec(any::<u8>(), 0..200)
        ) {
            any_btf::holds(&bytes);
            let mut types = Vec::new();
            let function = [(12, 0, vec![1, 2]), (13, 2, vec![0, 3, 1, 3, 3, 4])];
            for (kind, parts, words) in function.into_iter().chain(records) {
                let behind = match kind {
                    1 | 14 | 17 => 1,
                    3 => 3,
                    4 | 5 | 15 | 19 => 3 * usize::from(parts),
                    6 | 13 => 2 * usize::from(parts),
                    _ => 0,
                };
                let info = u32::from(kind) << 24 | u32::from(parts);
                let record = [words[0], info, words[1]].into_iter().chain(words[2..2 + behind].iter().copied());
                types.extend(record.flat_map(u32::to_ne_bytes));
            }
            let words = u16::try_from(types.len() / 4).unwrap().to_le_bytes();
            any_btf::holds(&[&words[..], &types, b"a\0b\0char\0user\0sock\0"].concat());
        }
    }
}
