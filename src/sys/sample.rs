//! Events that write records: how often, with what in them, and the ring they write to.

/// How an event writes records into a ring. Whoever polls it is woken up when half of the ring is unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// How often.
    pub rate: Rate,
    /// What each record carries.
    pub fields: Fields,
    /// What else is written into the ring.
    pub sideband: Sideband,
    /// Whether times are those of `CLOCK_MONOTONIC`, which is the same on all CPUs, and stand at the end of the other
    /// records as well (`sample_id_all`).
    pub ordered: bool,
}

/// How often an event writes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Each time it counted so many. For clocks: nanoseconds. Software events of period 1 are never throttled.
    Period(u64),
    /// About so many times a second and CPU while it counts: the kernel adapts the period. At most
    /// `kernel.perf_event_max_sample_rate`, else `EINVAL`.
    Frequency(u64),
}

/// What a `PERF_RECORD_SAMPLE` carries. Each costs time in the kernel, in the path that the record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Fields {
    /// The id of the event that wrote it (`PERF_SAMPLE_IDENTIFIER`).
    pub identifier: bool,
    /// The address of the instruction (`PERF_SAMPLE_IP`).
    pub ip: bool,
    /// Process and thread (`PERF_SAMPLE_TID`).
    pub tid: bool,
    /// When, in nanoseconds of the kernel's scheduler clock (`PERF_SAMPLE_TIME`).
    pub time: bool,
    /// How much the hit counts for (`PERF_SAMPLE_PERIOD`). Where that may be more than 1, an event of period 1 without
    /// it writes as many records for one hit.
    pub period: bool,
    /// The counts of the whole group, with the times that it was enabled and running (`PERF_SAMPLE_READ`).
    pub read: Option<ReadFormat>,
    /// Who called it, as far as the kernel knows: its own functions, and those of the program by frame pointers
    /// (`PERF_SAMPLE_CALLCHAIN`). At most `kernel.perf_event_max_stack` addresses.
    pub callchain: bool,
    /// What the tracepoint or probe tells (`PERF_SAMPLE_RAW`).
    pub raw: bool,
    /// The registers of the program that unwinding begins with, and so many bytes of its stack
    /// (`PERF_SAMPLE_REGS_USER`, `PERF_SAMPLE_STACK_USER`): a multiple of 8 below 65528; 0 is neither. The whole record
    /// has at most 65535 bytes, and the kernel copies less stack where that would be exceeded.
    pub user_stack: u32,
    /// Whether the program has 64 bits or 32 (the first word of `PERF_SAMPLE_REGS_USER`, with one register behind it that
    /// nobody reads). Not together with `user_stack`.
    pub width: bool,
    /// The cgroup of the task (`PERF_SAMPLE_CGROUP`). Linux 5.7, with `CONFIG_CGROUP_PERF`.
    pub cgroup: bool,
}

/// What stands beside each count of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ReadFormat {
    /// Leave out for how long the group was enabled and running (`PERF_FORMAT_TOTAL_TIME_ENABLED`, `…_RUNNING`), which
    /// cost a look at the clock. They are the same in a group that never has to wait for a PMU.
    pub untimed: bool,
    /// The id of the event (`PERF_FORMAT_ID`).
    pub id: bool,
    /// How many of its records were lost (`PERF_FORMAT_LOST`). Linux 6.0.
    pub lost: bool,
}

/// Records about things that happen besides, written on the CPU where they happen, whether the event is on the PMU or
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Sideband {
    /// A task took another name, by `execve` or by itself (`PERF_RECORD_COMM`).
    pub comm: bool,
    /// A task was created or ended (`PERF_RECORD_FORK`, `PERF_RECORD_EXIT`).
    pub task: bool,
    /// A cgroup was created (`PERF_RECORD_CGROUP`). Written only if `comm` or `task` is asked for as well. Linux 5.7.
    pub cgroup: bool,
    /// A process mapped a file that it can execute (`PERF_RECORD_MMAP2`).
    pub mmap: bool,
    /// A task goes onto the CPU or leaves it (`PERF_RECORD_SWITCH_CPU_WIDE`), told by the scheduler itself: some kernels
    /// pass `sched:sched_switch` over when the CPU was idle. Linux 4.3.
    pub switches: bool,
    /// The kernel has a new function, or one less: BPF programs, trampolines (`PERF_RECORD_KSYMBOL`). Linux 5.0.
    pub ksymbol: bool,
}

/// Memory that the kernel writes records into.
pub trait Ring {
    /// Lends every unread record to `each`, header included, oldest first, then gives the space back to the kernel.
    fn drain(&mut self, each: impl FnMut(&[u8])) -> Drained;

    /// Bytes for records.
    fn size(&self) -> usize;
}

/// What a ring held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Bytes of records, read or not.
    pub bytes: usize,
    /// A header made no sense, and what stood behind it was given up.
    pub torn: bool,
}

/// Splits what stands between two positions of a ring into records.
///
/// `data` is the ring's memory, whose length is a power of two; `head` and `tail` count all bytes ever written and
/// read. A record that goes around the end is put together in `scratch`.
pub(super) fn records(
    data: &[u8],
    tail: u64,
    head: u64,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Drained {
    let mask = data.len() as u64 - 1;
    let unread = head.wrapping_sub(tail);
    let drained = |torn| Drained { bytes: unread as usize, torn };
    if unread > data.len() as u64 {
        return drained(true);
    }
    let mut at = tail;
    while at != head {
        let left = head.wrapping_sub(at) as usize;
        let start = (at & mask) as usize;
        // Records are aligned to 8 bytes, so that a header never goes around the end.
        let Some(&[_, _, _, _, _, _, low, high]) = data[start..].first_chunk::<8>() else {
            return drained(true);
        };
        let size = usize::from(u16::from_ne_bytes([low, high]));
        if size < 8 || size % 8 != 0 || size > left {
            return drained(true);
        }
        match data.get(start..start + size) {
            Some(record) => each(record),
            None => {
                let (end, rest) = (&data[start..], size - (data.len() - start));
                scratch.clear();
                scratch.extend_from_slice(end);
                scratch.extend_from_slice(&data[..rest]);
                each(scratch);
            }
        }
        at = at.wrapping_add(size as u64);
    }
    drained(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(size: u16, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; usize::from(size)];
        bytes[..6].fill(0);
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    /// Puts `bytes` into a ring of 64 bytes from `tail` on.
    fn ring(tail: u64, bytes: &[u8]) -> Vec<u8> {
        let mut data = vec![0xee; 64];
        for (offset, &byte) in bytes.iter().enumerate() {
            data[(tail as usize).wrapping_add(offset) % 64] = byte;
        }
        data
    }

    fn read(tail: u64, bytes: &[u8]) -> (Vec<Vec<u8>>, Drained) {
        let mut found = Vec::new();
        let data = ring(tail, bytes);
        let drained =
            records(&data, tail, tail.wrapping_add(bytes.len() as u64), &mut Vec::new(), |record| {
                found.push(record.to_vec());
            });
        (found, drained)
    }

    #[test]
    fn a_record_around_the_end_is_put_together() {
        let (a, b) = (record(16, 1), record(24, 2));
        let (found, drained) = read(40, &[a.clone(), b.clone()].concat());
        assert_eq!(found, [a, b]);
        assert_eq!(drained, Drained { bytes: 40, torn: false });
    }

    #[test]
    fn positions_may_pass_the_largest_number() {
        let a = record(16, 1);
        let (found, _) = read(u64::MAX - 7, &a);
        assert_eq!(found, [a]);
    }

    #[test]
    fn a_header_without_sense_ends_the_reading_and_is_told() {
        for size in [0u16, 4, 12, 48] {
            let mut torn = record(16, 1);
            torn[6..8].copy_from_slice(&size.to_ne_bytes());
            let (found, drained) = read(8, &[record(8, 0), torn].concat());
            assert_eq!((found.len(), drained), (1, Drained { bytes: 24, torn: true }), "{size}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_without_a_panic(tail: u64, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let tail = tail & !7;
            let data = ring(tail, &bytes[..bytes.len().min(64)]);
            records(&data, tail, tail.wrapping_add(bytes.len() as u64), &mut Vec::new(), |record| {
                assert!(record.len() >= 8);
            });
        }
    }
}
