//! Invariants for rings of arbitrary records. Called by a fuzz target and by a test that keeps the target working.

use std::collections::BTreeMap;

use perf_exporter::attribute::{Attributor, Bundle};
use perf_exporter::plan::Granularity;
use perf_exporter::ring::{Group, Record};
use perf_exporter::sys::{Fields, ReadFormat};

const CPUS: u32 = 2;
const BUNDLES: usize = 2;

/// Members of a bundle besides the leader and the clock.
const COUNTERS: usize = 2;

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;

/// Last reading of a bundle, and the sum of all increases between readings.
#[derive(Debug, Default, Clone)]
struct Report {
    values: [u64; COUNTERS],
    sums: [u64; COUNTERS],
    enabled: u64,
    nanoseconds: u64,
}

/// Replays records. The first byte selects how counts are attributed and the fields of samples. Each batch follows as three bytes (ring,
/// length, what happens after the batch), and each record as two bytes (length, kind) and its body.
pub(crate) fn holds(bytes: &[u8]) {
    let Some((&bits, mut rest)) = bytes.split_first() else { return };
    let granularity = if bits & 1 == 1 { Granularity::Process } else { Granularity::Cgroup };
    let bit = |place: u8| bits >> place & 1 == 1;
    let fields = Fields {
        identifier: bit(1),
        tid: bit(2),
        time: bit(3),
        read: Some(ReadFormat::default()),
        cgroup: bit(6),
        ..Fields::default()
    };
    let mut attributor = Attributor::new(granularity, fields, BUNDLES * COUNTERS, BUNDLES > 1);
    for cpu in 0..CPUS {
        attributor.add_cpu(cpu, &(0..BUNDLES).map(bundle).collect::<Vec<_>>());
    }
    let mut reported = BTreeMap::<(u32, usize), Report>::new();
    let (mut charged, mut nanoseconds) = ([0u64; BUNDLES * COUNTERS], 0);
    while let Some((&what, behind)) = rest.split_first() {
        let (cpu, at) = (u32::from(what & 1), usize::from(what >> 1 & 1));
        let mut records = Vec::new();
        rest = behind;
        for _ in 0..1 + (what >> 2 & 7) {
            records.extend(record(&mut rest, &fields));
        }
        for record in &records {
            if let Ok(Record::Sample(sample)) = Record::parse(record, &fields) {
                reported.entry((cpu, at)).or_default().takes(&sample.group);
            }
        }
        attributor.read(cpu, at, |read| records.iter().for_each(|record| read(record)));
        match what >> 5 {
            0 => attributor.mark_gap(cpu, at),
            1 => attributor.describe(u32::from(what), &"name".into(), false),
            4 => attributor.settle(cpu),
            2 | 3 => charge(&mut attributor, &mut charged, &mut nanoseconds),
            _ => {}
        }
    }
    (0..CPUS).for_each(|cpu| attributor.settle(cpu));
    charge(&mut attributor, &mut charged, &mut nanoseconds);
    for (number, &charged) in charged.iter().enumerate() {
        let of_it = reported.iter().filter(|((_, bundle), _)| *bundle == number / COUNTERS);
        let sum = of_it.map(|(_, reported)| reported.sums[number % COUNTERS]).fold(0, u64::saturating_add);
        assert_eq!(charged, sum, "counter {number}: {reported:?}");
    }
    let time =
        reported.iter().filter(|((_, bundle), _)| *bundle == 0).map(|(_, reported)| reported.nanoseconds);
    assert_eq!(nanoseconds, time.fold(0, u64::saturating_add));
}

fn bundle(bundle: usize) -> Bundle {
    let counters = (0..COUNTERS).map(|counter| vec![bundle * COUNTERS + counter]);
    Bundle {
        counters: [vec![], vec![]].into_iter().chain(counters).collect(),
        measures: Vec::new(),
        switches: 0,
        untimed: false,
    }
}

/// Returns a record with a valid header, as the leading bytes select.
fn record(bytes: &mut &[u8], fields: &Fields) -> Option<Vec<u8>> {
    let (&[length, kind], rest) = bytes.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(usize::from(length & 127)).unwrap_or((rest, &[]));
    *bytes = rest;
    let (mut body, mut kind) = (body.to_vec(), u32::from(kind));
    if length > 127 {
        // Its size is right, so only its values are hostile.
        let members = 2 + COUNTERS;
        let before = [fields.identifier, fields.tid, fields.time].map(usize::from).iter().sum::<usize>();
        body.resize(8 * (before + 3 + members + usize::from(fields.cgroup)), 0);
        body[8 * before..8 * before + 8].copy_from_slice(&members.to_ne_bytes());
        kind = SAMPLE;
    }
    let size = u16::try_from(8 + body.len()).ok()?;
    Some([&kind.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes(), &body].concat())
}

impl Report {
    /// Adds a reading, if it belongs to this bundle.
    fn takes(&mut self, group: &Group<'_>) {
        if group.members() != 2 + COUNTERS {
            return;
        }
        for ((last, sum), value) in self.values.iter_mut().zip(&mut self.sums).zip(group.values().skip(2)) {
            *sum = sum.saturating_add(value.saturating_sub(*last));
            *last = value;
        }
        let enabled = group.enabled.saturating_sub(self.enabled);
        self.nanoseconds = self.nanoseconds.saturating_add(enabled);
        self.enabled = group.enabled;
    }
}

fn charge(attributor: &mut Attributor, charged: &mut [u64], nanoseconds: &mut u64) {
    for (_, share) in attributor.take(|pid| pid % 2 == 0).iter() {
        charged.iter_mut().zip(share.counts).for_each(|(sum, &count)| *sum = sum.saturating_add(count));
        *nanoseconds = nanoseconds.saturating_add(u64::try_from(share.time.as_nanos()).unwrap_or(u64::MAX));
    }
}
