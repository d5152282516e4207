//! A recording of the rings of a switch stream on a running kernel, for replay on any machine.
//!
//! It consists of two files: `NAME.json` is a [`Capture`], `NAME.bin` contains the bytes of its batches one after the other.

use perf_exporter::attribute::{Attributor, Bundle, Shares, fields};
use perf_exporter::plan::{Granularity, Stream};
use serde::{Deserialize, Serialize};

/// All recorded batches, and the final readings of the counters.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Capture {
    /// Kernel version.
    pub(crate) kernel: String,
    /// Whether counts are attributed to threads, or to cgroups only.
    pub(crate) by_process: bool,
    /// Names of the counters, by index.
    pub(crate) counters: Vec<String>,
    /// For each bundle of a CPU, the counter index of each member.
    pub(crate) bundles: Vec<Vec<Vec<usize>>>,
    /// All rings.
    pub(crate) rings: Vec<Ring>,
    /// Batches in the order in which they were read: index of the ring, and length in bytes.
    pub(crate) batches: Vec<(usize, usize)>,
    /// Bytes of all batches.
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
}

/// The ring of one bundle on one CPU.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    pub(crate) cpu: u32,
    pub(crate) bundle: usize,
    /// Reading of the group after it was stopped.
    pub(crate) last: Vec<u64>,
}

impl Capture {
    /// Returns a stream with the same record layout as the recorded one.
    pub(crate) fn stream(by_process: bool) -> Stream {
        let granularity = if by_process { Granularity::Process } else { Granularity::Cgroup };
        Stream { granularity, cgroup: true, timed: false, sets: Vec::new() }
    }

    /// Returns an attributor with the CPUs of the recording and no counts.
    pub(crate) fn attributor(&self) -> Attributor {
        let stream = Self::stream(self.by_process);
        let mut attributor =
            Attributor::new(stream.granularity, fields(&stream), self.counters.len(), self.bundles.len() > 1);
        let bundle = |counters: &Vec<Vec<usize>>| Bundle {
            counters: counters.clone(),
            measures: Vec::new(),
            switches: 0,
            untimed: false,
        };
        for cpu in self.cpus() {
            attributor.add_cpu(cpu, &self.bundles.iter().map(bundle).collect::<Vec<_>>());
        }
        attributor
    }

    /// Returns the records of each batch, with the batch's ring.
    pub(crate) fn batches(&self) -> Vec<(&Ring, Vec<&[u8]>)> {
        let mut rest = &*self.bytes;
        let batches = self.batches.iter().map(|&(ring, length)| {
            let (batch, behind) = rest.split_at(length);
            rest = behind;
            (&self.rings[ring], split(batch))
        });
        batches.collect()
    }

    /// Ends all CPUs, and returns the attributed shares.
    pub(crate) fn end(&self, mut attributor: Attributor) -> Shares {
        for cpu in self.cpus() {
            let mut words: Vec<_> =
                self.rings.iter().filter(|ring| ring.cpu == cpu).map(|ring| ring.last.clone()).collect();
            attributor.remove_cpu(cpu, &mut words);
        }
        attributor.take(|_| true)
    }

    /// Returns the final readings of the counters, summed over all CPUs, followed by the time of the CPUs.
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

/// Splits consecutive records.
pub(crate) fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, rest) = bytes.split_at(u16::from_ne_bytes([bytes[6], bytes[7]]).into());
        records.push(record);
        bytes = rest;
    }
    records
}

/// Adds the sums over all owners, followed by the sum of their times.
pub(crate) fn sums(shares: &Shares, sums: &mut [u64]) {
    for (_, share) in shares.iter() {
        let time = u64::try_from(share.time.as_nanos()).unwrap();
        sums.iter_mut().zip(share.counts.iter().chain([&time])).for_each(|(sum, count)| *sum += count);
    }
}
