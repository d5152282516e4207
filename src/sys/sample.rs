//! Events that write records: the rate, the contents of records, and the ring.

use super::Rate;

/// Maximum number of bytes of records after which the poller of a ring is woken up. A wake-up costs as much as reading some hundred records.
pub const WAKE_UP: usize = 128 << 10;

/// Returns the number of bytes of records after which the poller of a ring of `bytes` is woken up: a quarter of it at most. The rest is for
/// bursts until the reader gets a CPU.
pub fn wake_up(bytes: usize) -> usize {
    (bytes / 4).min(WAKE_UP)
}

/// How an event writes records into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// The sampling rate. Software events with period 1 are never throttled. A frequency above `kernel.perf_event_max_sample_rate` fails
    /// with `EINVAL`.
    pub rate: Rate,
    /// The fields of each record.
    pub fields: Fields,
    /// Other records that are written into the ring.
    pub sideband: Sideband,
    /// Whether times are those of `CLOCK_MONOTONIC`, which is the same on all CPUs.
    pub ordered: bool,
}

/// Fields of a `PERF_RECORD_SAMPLE`. Each field costs time in the kernel, in the code path that is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Fields {
    /// The ID of the event that wrote it (`PERF_SAMPLE_IDENTIFIER`).
    pub identifier: bool,
    /// The address of the instruction (`PERF_SAMPLE_IP`).
    pub ip: bool,
    /// Process and thread (`PERF_SAMPLE_TID`).
    pub tid: bool,
    /// Time in nanoseconds of the kernel's scheduler clock (`PERF_SAMPLE_TIME`). The other records of the event then end with the time as
    /// well (`sample_id_all`).
    pub time: bool,
    /// The address that the instruction accessed (`PERF_SAMPLE_ADDR`), for events that have one, such as page faults.
    pub address: bool,
    /// The CPU (`PERF_SAMPLE_CPU`), which the reader of a ring knows without it. For records that are stored in a file. The other records
    /// of the event then end with the CPU as well (`sample_id_all`).
    pub cpu: bool,
    /// The weight of the hit (`PERF_SAMPLE_PERIOD`). If it may be more than 1, an event of period 1 without this field writes that many
    /// records for one hit.
    pub period: bool,
    /// The counts of the whole group, with the times that it was enabled and running (`PERF_SAMPLE_READ`).
    pub read: Option<ReadFormat>,
    /// The call chain, as far as the kernel can determine it: its own functions, and those of the program by frame pointers
    /// (`PERF_SAMPLE_CALLCHAIN`). At most `kernel.perf_event_max_stack` addresses.
    pub callchain: bool,
    /// Whether call chains omit the functions of the program (`exclude_callchain_user`), because readers of the records unwind its stack.
    pub kernel_only: bool,
    /// The record of the tracepoint or probe (`PERF_SAMPLE_RAW`).
    pub raw: bool,
    /// Number of bytes of the program's stack, together with the registers that unwinding starts from (`PERF_SAMPLE_REGS_USER`,
    /// `PERF_SAMPLE_STACK_USER`). A multiple of 8 below 65528; 0 = neither. The whole record has at most 65535 bytes; the kernel copies
    /// less of the stack if that would be exceeded.
    pub user_stack: u32,
    /// Whether all registers of the program are sampled with `user_stack`. For records that are stored in a file: the unwinders of other
    /// programs need them, and [`Record::parse`](crate::ring::Record::parse) does not support them.
    pub all_registers: bool,
    /// Whether the program has 64 or 32 bits (the first word of `PERF_SAMPLE_REGS_USER`, followed by one register that is not used). Not
    /// together with `user_stack`.
    pub width: bool,
    /// The cgroup of the task (`PERF_SAMPLE_CGROUP`). Linux 5.7, with `CONFIG_CGROUP_PERF`.
    pub cgroup: bool,
    /// The address and the source of the data of a memory access, with its weight (`PERF_SAMPLE_ADDR`, `PERF_SAMPLE_DATA_SRC`,
    /// `PERF_SAMPLE_WEIGHT`). For records that are stored in a file: [`Record::parse`](crate::ring::Record::parse) does not support them.
    pub access: bool,
    /// Whether the weight has several parts (`PERF_SAMPLE_WEIGHT_STRUCT`). Linux 5.12.
    pub split_weight: bool,
    /// The physical address of the data (`PERF_SAMPLE_PHYS_ADDR`). Together with `access`.
    pub physical: bool,
}

impl Fields {
    /// No fields: [`Default`] for constants.
    pub const NONE: Self = Self {
        identifier: false,
        ip: false,
        tid: false,
        time: false,
        address: false,
        cpu: false,
        period: false,
        read: None,
        callchain: false,
        kernel_only: false,
        raw: false,
        user_stack: 0,
        all_registers: false,
        width: false,
        cgroup: false,
        access: false,
        split_weight: false,
        physical: false,
    };

    /// Returns the number of words after the time at the end of a record other than a sample (`sample_id_all`).
    pub(crate) fn words_after_time(&self) -> usize {
        usize::from(self.cpu) + usize::from(self.identifier)
    }
}

/// Format of the counts of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ReadFormat {
    /// Omits the times that the group was enabled and running (`PERF_FORMAT_TOTAL_TIME_ENABLED`, `…_RUNNING`), which cost a read of the
    /// clock. The two are equal for a group that never waits for a PMU.
    pub untimed: bool,
}

/// Additional kinds of records, written on the CPU where the event occurs, whether or not the perf event is on the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Sideband {
    /// A task changed its name, by `execve` or by itself (`PERF_RECORD_COMM`).
    pub comm: bool,
    /// A task was created or exited (`PERF_RECORD_FORK`, `PERF_RECORD_EXIT`).
    pub task: bool,
    /// A cgroup was created (`PERF_RECORD_CGROUP`). Written only if `comm` or `task` is also requested. Linux 5.7.
    pub cgroup: bool,
    /// A process mapped an executable file (`PERF_RECORD_MMAP2`).
    pub mmap: bool,
    /// With `mmap`, also other mappings than executable ones (`mmap_data`). Unwinders of other programs find the unwind information there.
    pub mmap_data: bool,
    /// A task is switched in or out (`PERF_RECORD_SWITCH_CPU_WIDE`), written by the scheduler itself: some kernels omit
    /// `sched:sched_switch` when the CPU was idle. Linux 4.3.
    pub switches: bool,
    /// The kernel registered or unregistered a function: BPF programs, trampolines (`PERF_RECORD_KSYMBOL`). Linux 5.0.
    pub ksymbol: bool,
}

/// Memory that the kernel writes records into.
pub trait Ring {
    /// Passes every unread record to `each`, including its header, oldest first, then releases the space to the kernel.
    fn drain(&mut self, each: impl FnMut(&[u8])) -> Drained;

    /// Returns the size for records, in bytes.
    fn size(&self) -> usize;
}

/// Result of draining a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Number of bytes of records, read or not.
    pub bytes: usize,
    /// Whether a header was invalid, and the bytes behind it were discarded.
    pub torn: bool,
}

/// Location of the unread bytes of a ring: `start` and `to_end` are the offset and length of the part up to the end of the ring.
/// `from_start` is the length of the part that continues at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unread {
    pub start: usize,
    pub to_end: usize,
    pub from_start: usize,
}

impl Unread {
    /// Locates the bytes between two positions of a ring of `size` bytes, a power of two. `head` and `tail` count all bytes ever written
    /// and read. Returns `None` if there are more than the ring can hold.
    pub(super) fn between(tail: u64, head: u64, size: usize) -> Option<Self> {
        let length = usize::try_from(head.wrapping_sub(tail)).ok().filter(|length| *length <= size)?;
        let start = (tail & (size as u64 - 1)) as usize;
        let to_end = length.min(size - start);
        Some(Self { start, to_end, from_start: length - to_end })
    }
}

/// Reads the records between `tail` and `head` of a ring of `size` bytes in portions of a sixteenth of the ring. `portion` reads records at
/// a location, and returns the number of bytes read, or 0 if there is no valid record. `release` receives the position reached, so that the
/// kernel can write while the rest is read.
pub(super) fn in_portions(
    (mut tail, head): (u64, u64),
    size: usize,
    mut portion: impl FnMut(Unread, usize) -> usize,
    mut release: impl FnMut(u64),
) -> Drained {
    let mut drained = Drained { bytes: head.wrapping_sub(tail) as usize, torn: false };
    while tail != head {
        let read = Unread::between(tail, head, size).map_or(0, |unread| portion(unread, size / 16));
        drained.torn = read == 0;
        tail = if drained.torn { head } else { tail.wrapping_add(read as u64) };
        release(tail);
    }
    drained
}

/// Reads records from the unread bytes of a ring: the part up to the ring's end, then the wrapped part from its start. Stops after `enough`
/// bytes, or at the end of the ring. Returns the number of bytes read; 0 means that there is no valid record.
///
/// A record that wraps around the end is assembled in `scratch`.
pub(super) fn records(
    to_end: &[u8],
    from_start: &[u8],
    enough: usize,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> usize {
    let read = to_end.len() - split(to_end, enough, &mut each).len();
    if read > 0 {
        return read;
    }
    // Records are aligned to 8 bytes, so a header never wraps around the end.
    let [_, _, _, _, _, _, low, high, ..] = to_end else { return 0 };
    let size = usize::from(u16::from_ne_bytes([*low, *high]));
    let around = size.checked_sub(to_end.len()).filter(|_| size.is_multiple_of(8));
    let Some(end) = around.and_then(|around| from_start.get(..around)) else { return 0 };
    scratch.clear();
    scratch.extend_from_slice(to_end);
    scratch.extend_from_slice(end);
    each(scratch);
    size
}

/// Passes whole records from the start of `all` to `each` until `enough` bytes were passed, and returns the remaining bytes.
fn split(all: &[u8], enough: usize, mut each: impl FnMut(&[u8])) -> &[u8] {
    let mut bytes = all;
    while let [_, _, _, _, _, _, low, high, ..] = bytes {
        let size = usize::from(u16::from_ne_bytes([*low, *high]));
        if size < 8 || size % 8 != 0 || all.len() - bytes.len() >= enough.max(1) {
            break;
        }
        let Some((record, rest)) = bytes.split_at_checked(size) else { break };
        each(record);
        bytes = rest;
    }
    bytes
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

    /// Puts `bytes` into a ring of 64 bytes, starting at `tail`.
    fn ring(tail: u64, bytes: &[u8]) -> Vec<u8> {
        let mut data = vec![0xee; 64];
        for (offset, &byte) in bytes.iter().enumerate() {
            data[(tail as usize).wrapping_add(offset) % 64] = byte;
        }
        data
    }

    /// Reads the bytes like a ring of the kernel.
    fn read(tail: u64, bytes: &[u8]) -> (Vec<Vec<u8>>, Drained) {
        let mut found = Vec::new();
        let data = ring(tail, bytes);
        let (head, mut released) = (tail.wrapping_add(bytes.len() as u64), tail);
        let portion = |unread: Unread, enough| {
            let to_end = &data[unread.start..unread.start + unread.to_end];
            records(to_end, &data[..unread.from_start], enough, &mut Vec::new(), |record| {
                found.push(record.to_vec());
            })
        };
        let drained = in_portions((tail, head), data.len(), portion, |to| {
            assert!(to.wrapping_sub(released) > 0, "each portion has records");
            released = to;
        });
        assert_eq!(released, head);
        (found, drained)
    }

    #[test]
    fn unread_bytes_are_exactly_those_between_the_positions() {
        let at = |start, to_end, from_start| Some(Unread { start, to_end, from_start });
        assert_eq!(Unread::between(72, 72, 64), at(8, 0, 0));
        assert_eq!(Unread::between(72, 128, 64), at(8, 56, 0));
        assert_eq!(Unread::between(72, 136, 64), at(8, 56, 8), "a full ring");
        assert_eq!(Unread::between(u64::MAX - 15, 8, 64), at(48, 16, 8));
        assert_eq!(Unread::between(72, 137, 64), None);
        assert_eq!(Unread::between(72, 64, 64), None, "the tail is past the head");
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
            // In one part, in two parts, and as the first record of the second part.
            for tail in [8, 48, 56, 40] {
                let (found, drained) = read(tail, &[record(8, 0), torn.clone()].concat());
                let expected = (1, Drained { bytes: 24, torn: true });
                assert_eq!((found.len(), drained), expected, "{size} from {tail} on");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_without_a_panic(tail: u64, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let (found, drained) = read(tail & !7, &bytes[..bytes.len().min(64)]);
            let whole: usize = found.iter().map(Vec::len).sum();
            prop_assert!(found.iter().all(|record| record.len() >= 8 && record.len() % 8 == 0));
            prop_assert_eq!(drained.torn, whole != drained.bytes);
        }

        /// For any position of the end of the ring.
        #[test]
        fn records_come_out_as_they_went_in(tail: u64, sizes in proptest::collection::vec(1u16..4, 0..8)) {
            let mut written: Vec<_> = sizes.iter().zip(1..).map(|(size, fill)| record(8 * size, fill)).collect();
            while written.iter().map(Vec::len).sum::<usize>() > 64 {
                written.pop();
            }
            let (found, drained) = read(tail & !7, &written.concat());
            prop_assert!(!drained.torn);
            prop_assert_eq!(found, written);
        }
    }

    #[test]
    fn a_poller_is_woken_up_when_a_quarter_of_a_ring_is_full_or_earlier() {
        let sizes = [0, 4096, 256 << 10, 512 << 10, 4 << 20];
        assert_eq!(sizes.map(wake_up), [0, 1024, 64 << 10, 128 << 10, 128 << 10]);
    }
}
