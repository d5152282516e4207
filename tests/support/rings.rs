//! What the rings of a switch stream held on a running kernel, kept so that it can be read again anywhere.
//!
//! Two files: `NAME.json` is a [`Capture`], `NAME.bin` holds the bytes of its batches one after the other.

use perf_exporter::attribute::{Attributor, Bundle, Shares, fields};
use perf_exporter::plan::{Granularity, Stream};
use serde::{Deserialize, Serialize};

/// Everything that was read, and what the counters said in the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Capture {
    /// Version of the kernel.
    pub(crate) kernel: String,
    /// Whether threads were told apart, or cgroups only.
    pub(crate) by_process: bool,
    /// The counters by their numbers.
    pub(crate) counters: Vec<String>,
    /// For each bundle of a CPU and each of its members, the counters that it is.
    pub(crate) bundles: Vec<Vec<Vec<usize>>>,
    /// Every ring.
    pub(crate) rings: Vec<Ring>,
    /// What was read at once, in the order in which it was: the place of the ring among the rings, and the bytes.
    pub(crate) batches: Vec<(usize, usize)>,
    /// Their bytes.
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
}

/// The ring of one bundle of one CPU.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    pub(crate) cpu: u32,
    pub(crate) bundle: usize,
    /// What its group said when it was stopped.
    pub(crate) last: Vec<u64>,
}

impl Capture {
    /// The stream that wrote it, as far as it decides on the layout of records.
    pub(crate) fn stream(by_process: bool) -> Stream {
        let granularity = if by_process { Granularity::Process } else { Granularity::Cgroup };
        Stream { granularity, cgroup: true, timed: false, sets: Vec::new() }
    }

    /// An attributor that knows the CPUs, and has read nothing.
    pub(crate) fn attributor(&self) -> Attributor {
        let stream = Self::stream(self.by_process);
        let mut attributor =
            Attributor::new(stream.granularity, fields(&stream), self.counters.len(), self.bundles.len() > 1);
        let bundle = |counters: &Vec<Vec<usize>>| Bundle {
            counters: counters.clone(),
            measures: Vec::new(),
            untimed: false,
        };
        for cpu in self.cpus() {
            attributor.add_cpu(cpu, &self.bundles.iter().map(bundle).collect::<Vec<_>>());
        }
        attributor
    }

    /// The records of each batch, with their ring.
    pub(crate) fn batches(&self) -> Vec<(&Ring, Vec<&[u8]>)> {
        let mut rest = &*self.bytes;
        let batches = self.batches.iter().map(|&(ring, length)| {
            let (batch, behind) = rest.split_at(length);
            rest = behind;
            (&self.rings[ring], split(batch))
        });
        batches.collect()
    }

    /// Ends all CPUs, and takes what is charged.
    pub(crate) fn end(&self, mut attributor: Attributor) -> Shares {
        for cpu in self.cpus() {
            let mut words: Vec<_> =
                self.rings.iter().filter(|ring| ring.cpu == cpu).map(|ring| ring.last.clone()).collect();
            attributor.remove_cpu(cpu, &mut words);
        }
        attributor.take(|_| true)
    }

    /// What the counters said in the end, over all CPUs, and behind them the time of the CPUs.
    pub(crate) fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.counters.len() + 1];
        for ring in &self.rings {
            let [_, enabled, _, values @ ..] = &*ring.last else { panic!("{ring:?}") };
            for (value, counters) in values.iter().zip(&self.bundles[ring.bundle]) {
                counters.iter().for_each(|&counter| totals[counter] += value);
            }
            *totals.last_mut().unwrap() += if ring.bundle == 0 { enabled } else { &0 };
        }
        totals
    }

    fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().filter(|ring| ring.bundle == 0).map(|ring| ring.cpu)
    }
}

/// The records that stand one after the other.
pub(crate) fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, rest) = bytes.split_at(u16::from_ne_bytes([bytes[6], bytes[7]]).into());
        records.push(record);
        bytes = rest;
    }
    records
}

/// The sums over all owners, and behind them that of their times.
pub(crate) fn sums(shares: &Shares, sums: &mut [u64]) {
    for (_, share) in shares.iter() {
        let time = u64::try_from(share.time.as_nanos()).unwrap();
        sums.iter_mut().zip(share.counts.iter().chain([&time])).for_each(|(sum, count)| *sum += count);
    }
}
