//! Cost of a switch stream record in user space, from the bytes of a ring to the attributed share, for switches between cgroups and between
//! threads.
//!
//! `cargo bench --bench attribute` prints the nanoseconds per record, and the ratio to copying the same bytes.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use perf_exporter::attribute::{Attributor, Bundle};
use perf_exporter::plan::Granularity;
use perf_exporter::sys::{Fields, ReadFormat};

/// Number of records in half of the smallest ring.
const RECORDS: usize = 1500;
const COUNTERS: usize = 4;
/// Number of cgroups, and of processes, that alternate on the CPU.
const OWNERS: u64 = 50;

fn fields(granularity: Granularity) -> Fields {
    Fields {
        tid: granularity == Granularity::Process,
        read: Some(ReadFormat::default()),
        cgroup: true,
        ..Fields::default()
    }
}

/// Returns the records that the kernel writes while `OWNERS` owners alternate.
fn records(granularity: Granularity) -> Vec<Vec<u8>> {
    let record = |n: u64| {
        let owner = n % OWNERS;
        let mut words = Vec::new();
        if granularity == Granularity::Process {
            words.push((1000 + owner) << 32 | (1000 + owner));
        }
        let time = n * 3_000;
        words.extend([2 + COUNTERS as u64, time, time]);
        words.extend((0..2 + COUNTERS as u64).map(|member| n * (member + 1)));
        words.push(5000 + owner);
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let size = u16::try_from(8 + body.len()).unwrap();
        [&9u32.to_ne_bytes()[..], &0u16.to_ne_bytes(), &size.to_ne_bytes(), &body].concat()
    };
    (0..RECORDS as u64).map(record).collect()
}

fn attributor(granularity: Granularity) -> Attributor {
    let mut attributor = Attributor::new(granularity, fields(granularity), COUNTERS, false);
    let counters = [vec![], vec![]].into_iter().chain((0..COUNTERS).map(|counter| vec![counter])).collect();
    attributor.add_cpu(0, &[Bundle { counters, measures: Vec::new(), switches: 0, untimed: false }]);
    attributor
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Elements(RECORDS as u64));
    for granularity in [Granularity::Cgroup, Granularity::Process] {
        let records = records(granularity);
        // A wakeup of the reader. Its shares belong to the running collection, so their rows already exist.
        group.bench_function(format!("{granularity}"), |bencher| {
            let mut attributor = attributor(granularity);
            bencher.iter(|| {
                attributor.read(0, 0, |read| records.iter().for_each(|record| read(record)));
            });
            black_box(attributor.take(|_| true));
        });
        group.bench_function(format!("{granularity}, copied"), |bencher| {
            bencher.iter_batched(
                Vec::new,
                |mut copy| {
                    records.iter().for_each(|record| copy.extend_from_slice(record));
                    copy
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    criterion.final_summary();
}
