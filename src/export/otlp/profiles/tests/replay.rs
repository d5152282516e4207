//! Tests from the bytes of a ring to requests, with valid and invalid records.

use super::*;
use crate::host::Roots;
use crate::profile::replayed::{EVENT, replayed};
use crate::ring::testing::{bytes, comm, longer, mmap, record};
use crate::ring::{MappedFile, Mmap};
use crate::sys::Fields;

/// Fields of the samples.
const FIELDS: Fields =
    Fields { identifier: true, ip: true, tid: true, time: true, callchain: true, ..Fields::NONE };

/// Values of `PERF_CONTEXT_KERNEL` and `PERF_CONTEXT_USER`.
const IN_KERNEL: u64 = (-128_i64).cast_unsigned();
const IN_USER: u64 = (-512_i64).cast_unsigned();

/// Address at which the program is mapped.
const BASE: u64 = 0x5555_0000_0000;

fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Appends the sample ID to a record that is not a sample: its process, time and event.
fn beside(record: Vec<u8>, pid: u32, time: u64) -> Vec<u8> {
    longer(record, &bytes(&[both(pid, pid), time, 0]))
}

fn sample(pid: u32, tid: u32, time: u64, callchain: &[u64]) -> Vec<u8> {
    let head = [EVENT, callchain.first().copied().unwrap_or(0), both(pid, tid), time, callchain.len() as u64];
    // PERF_RECORD_SAMPLE, in user space.
    record(9, 2, &bytes(&[&head[..], callchain].concat()))
}

fn mapped(pid: u32, path: &[u8], time: u64) -> Vec<u8> {
    let file = MappedFile { major: 8, minor: 1, inode: 99 };
    let start = BASE;
    // PROT_READ | PROT_EXEC
    let record = mmap(&Mmap { pid, tid: pid, start, length: 0x10_000, offset: 0, file, protection: 5, path });
    beside(record, pid, time)
}

#[test]
fn records_of_a_ring_become_a_request_that_keeps_to_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let chain = [IN_KERNEL, 0xffff_ffff_8100_0010, IN_USER, BASE + 0x1234, BASE + 0x2000];
    let records = vec![
        beside(comm(70, 70, b"web\n\x1b[31m", true), 70, 10),
        mapped(70, b"/usr/bin/web", 20),
        sample(70, 71, 30, &chain),
        sample(70, 71, 40, &chain),
        sample(70, 70, 50, &[IN_USER, BASE + 0x1234]),
        sample(70, 70, 2_000_000_000, &[IN_USER, BASE + 0x1234]),
    ];
    let profile = replayed(&Roots::under(dir.path()), FIELDS, records);
    assert_eq!(profile.taken(), 3, "the last one is too late: {profile:?}");
    let request = request(std::slice::from_ref(&profile));
    let dictionary = request.dictionary.as_ref().unwrap();
    let mut told: Vec<(String, i64)> = profiles(&request)
        .flat_map(|(_, profile)| &profile.samples)
        .map(|sample| {
            let of = attributes(dictionary, &sample.attribute_indices);
            (
                format!("{} of {} on {}", of["thread.id"], of["process.pid"], of["cpu.logical_number"]),
                sample.values[0],
            )
        })
        .collect();
    told.sort();
    assert_eq!(told, [("70 of 70 on 1".to_owned(), 1), ("71 of 70 on 1".to_owned(), 2)]);
    assert!(dictionary.string_table.iter().any(|text| text == "/usr/bin/web"), "{dictionary:?}");
}

/// Arbitrary records: some valid for the kernel, some invalid.
fn any_record() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![Just(IN_KERNEL), Just(IN_USER), BASE..BASE + 0x11_000, any::<u64>()];
    let numbers = || 0_u32..4;
    prop_oneof![
        (numbers(), numbers(), 0_u64..100, prop::collection::vec(address, 0..12))
            .prop_map(|(pid, tid, time, chain)| sample(pid, tid, time, &chain)),
        (numbers(), prop::collection::vec(any::<u8>(), 0..20), 0_u64..100).prop_map(|(pid, name, time)| {
            let name: Vec<u8> = name.into_iter().filter(|&byte| byte != 0).collect();
            beside(comm(pid, pid, &name, true), pid, time)
        }),
        (numbers(), prop::collection::vec(1_u8.., 0..40), 0_u64..100)
            .prop_map(|(pid, path, time)| mapped(pid, &path, time)),
        (0_u32..25, prop::collection::vec(any::<u64>(), 0..12)).prop_map(|(kind, words)| record(
            kind,
            0,
            &bytes(&words)
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_ring_holds_becomes_requests_that_keep_to_the_rules(
        records in prop::collection::vec(any_record(), 0..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let profile = replayed(&Roots::under(dir.path()), FIELDS, records);
        let options = Options::default();
        let encoded = encode(std::slice::from_ref(&profile), &host(), &options);
        let samples: i64 = requests(&encoded, &options)
            .iter()
            .flat_map(|request| profiles(request).map(|(_, told)| told.clone()).collect::<Vec<_>>())
            .flat_map(|told| told.samples)
            .map(|sample| sample.values[0])
            .sum();
        prop_assert_eq!(samples.cast_unsigned(), profile.taken());
    }
}
