//! `PERF_RECORD_SAMPLE`: its contents depend on how its event was opened.

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use super::{Cursor, Malformed};
use crate::sys::{Fields, ReadFormat, Registers};

/// One sample. Fields that its event was not opened with are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample<'a> {
    /// The event that wrote it.
    pub identifier: u64,
    /// The address of the instruction.
    pub ip: u64,
    /// The process; `u32::MAX` if it has already been reaped, or is in another pid namespace.
    pub pid: u32,
    /// The thread; 0 is the idle task.
    pub tid: u32,
    /// Time in nanoseconds of the event's clock.
    pub time: u64,
    /// The address that the instruction accessed.
    pub address: u64,
    /// The weight of the hit.
    pub period: u64,
    /// The counts of its group.
    pub group: Group<'a>,
    /// The call chain, innermost first: addresses, with `PERF_CONTEXT_*` in front of those of the kernel, the program or a guest.
    pub callchain: &'a [[u8; 8]],
    /// The record of the tracepoint or probe: the bytes that its `format` describes, and up to 7 more.
    pub raw: &'a [u8],
    /// Input for unwinding the program's stack; `None` for kernel threads.
    pub user: Option<UserStack<'a>>,
    /// Whether it is a 32-bit program on a 64-bit machine.
    pub narrow: bool,
    /// The cgroup of the thread: the inode number of its directory.
    pub cgroup: u64,
}

/// A part of the stack of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserStack<'a> {
    /// Its registers when it was interrupted, or entered the kernel.
    pub registers: Registers,
    /// The memory at the stack pointer and above.
    pub bytes: &'a [u8],
    /// Whether the requested size was copied, so that the stack may continue.
    pub full: bool,
}

impl<'a> UserStack<'a> {
    /// Parses `PERF_SAMPLE_REGS_USER` and `PERF_SAMPLE_STACK_USER`.
    fn parse(registers: Option<Registers>, words: &mut Cursor<'a>) -> Result<Option<Self>, Malformed> {
        let size = usize::try_from(words.u64()?).map_err(|_| Malformed)?;
        if size == 0 {
            return Ok(registers.map(|registers| Self { registers, ..Self::default() }));
        }
        let room = words.bytes(size)?;
        let filled = usize::try_from(words.u64()?).map_err(|_| Malformed)?;
        let bytes = room.get(..filled).ok_or(Malformed)?;
        Ok(registers.map(|registers| Self { registers, bytes, full: filled == size }))
    }
}

/// The counts of a group (`PERF_SAMPLE_READ` with `PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Group<'a> {
    /// Nanoseconds since the group was enabled; 0 if times were omitted.
    pub enabled: u64,
    /// The part of `enabled` in which it was on the PMU, in nanoseconds.
    pub running: u64,
    /// The count of each member, the leader first.
    values: &'a [[u8; 8]],
}

impl<'a> Sample<'a> {
    /// Parses one record, including its header; see [`Record::parse`](super::Record::parse).
    ///
    /// # Errors
    /// When the record is not a sample, or is too short or too long for its layout.
    // Always inlined: a caller that uses few of the fields then stores only these.
    #[inline(always)]
    pub fn parse_record(bytes: &'a [u8], fields: &Fields) -> Result<Self, Malformed> {
        let mut words = Cursor(bytes);
        match (words.u32()?, words.u16()?, usize::from(words.u16()?)) {
            (PERF_RECORD_SAMPLE, _, size) if size == bytes.len() => Self::parse(words, fields),
            _ => Err(Malformed),
        }
    }

    /// Parses the fields in the order of the bits of `PERF_SAMPLE_*`, except for the identifier, which comes first.
    #[inline(always)]
    pub(super) fn parse(mut words: Cursor<'a>, fields: &Fields) -> Result<Self, Malformed> {
        let mut sample = Self::default();
        if fields.identifier {
            sample.identifier = words.u64()?;
        }
        if fields.ip {
            sample.ip = words.u64()?;
        }
        if fields.tid {
            (sample.pid, sample.tid) = (words.u32()?, words.u32()?);
        }
        if fields.time {
            sample.time = words.u64()?;
        }
        if fields.address {
            sample.address = words.u64()?;
        }
        if fields.cpu {
            let _cpu = words.u64()?;
        }
        if fields.period {
            sample.period = words.u64()?;
        }
        if let Some(format) = fields.read {
            sample.group = Group::parse(&mut words, format)?;
        }
        if fields.callchain {
            let length = usize::try_from(words.u64()?).map_err(|_| Malformed)?;
            sample.callchain = words.words(length)?;
        }
        if fields.raw {
            sample.raw = words.raw()?;
        }
        if fields.user_stack > 0 {
            if fields.all_registers {
                return Err(Malformed);
            }
            let registers = words.registers()?;
            sample.user = UserStack::parse(registers, &mut words)?;
        }
        if fields.width && fields.user_stack == 0 {
            sample.narrow = words.is_narrow()?;
        }
        if fields.cgroup {
            sample.cgroup = words.u64()?;
        }
        if words.0.is_empty() { Ok(sample) } else { Err(Malformed) }
    }
}

impl<'a> Group<'a> {
    /// Parses the result of a `read` of a group's leader, which has the same layout as in a sample.
    ///
    /// # Errors
    /// When the number of counts is wrong.
    pub fn parse_read(bytes: &'a [u8], format: ReadFormat) -> Result<Self, Malformed> {
        let mut words = Cursor(bytes);
        let group = Self::parse(&mut words, format)?;
        if words.0.is_empty() { Ok(group) } else { Err(Malformed) }
    }

    #[inline]
    fn parse(words: &mut Cursor<'a>, format: ReadFormat) -> Result<Self, Malformed> {
        let members = usize::try_from(words.u64()?).map_err(|_| Malformed)?;
        let (enabled, running) = if format.untimed { (0, 0) } else { (words.u64()?, words.u64()?) };
        Ok(Self { enabled, running, values: words.words(members)? })
    }

    /// Returns the number of members.
    pub fn members(&self) -> usize {
        self.values.len()
    }

    /// Returns the counts, in the order in which the members were opened.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = u64> + 'a {
        self.values.iter().map(|&word| u64::from_ne_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Record;
    use crate::ring::testing::{bytes, record};
    use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
    use proptest::prelude::*;

    fn parse<'a>(bytes: &'a [u8], fields: &Fields) -> Sample<'a> {
        match Record::parse(bytes, fields) {
            Ok(Record::Sample(sample)) => sample,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_was_asked_for_is_there() {
        let fields = Fields { cgroup: true, ..Fields::default() };
        let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(&[42]));
        assert_eq!(parse(&sample, &fields), Sample { cgroup: 42, ..Sample::default() });
        assert_eq!(parse(&sample, &fields).group.members(), 0);
        assert_eq!(Record::parse(&sample, &Fields::default()), Err(Malformed));
    }

    #[test]
    fn a_group_gives_its_counts_with_or_without_times() {
        for (untimed, words, times) in
            [(false, &[2, 100, 90, 10, 20][..], (100, 90)), (true, &[2, 10, 20], (0, 0))]
        {
            let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(words));
            let fields = Fields { read: Some(ReadFormat { untimed }), ..Fields::default() };
            let group = parse(&sample, &fields).group;
            assert_eq!((group.enabled, group.running), times);
            assert_eq!((group.members(), group.values().collect::<Vec<_>>()), (2, vec![10, 20]));
        }
        assert_eq!(Sample::default().group.values().count(), 0, "no counts were requested");
    }

    #[test]
    fn a_group_that_is_read_has_all_words_and_no_more() {
        let words = [2, 100, 90, 10, 20].map(u64::to_ne_bytes).concat();
        let format = ReadFormat::default();
        let group = Group::parse_read(&words, format).unwrap();
        assert_eq!((group.enabled, group.running, group.members()), (100, 90, 2));
        assert_eq!(group.values().collect::<Vec<_>>(), [10, 20]);
        assert_eq!(Group::parse_read(&words[..32], format), Err(Malformed));
        assert_eq!(Group::parse_read(&[&words[..], &[0; 8]].concat(), format), Err(Malformed));
    }

    #[test]
    fn only_a_sample_of_its_own_length_is_parsed_as_one() {
        let fields = Fields { cgroup: true, ..Fields::default() };
        let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(&[42]));
        let expected = Sample { cgroup: 42, ..Sample::default() };
        assert_eq!(Sample::parse_record(&sample, &fields), Ok(expected));
        assert_eq!(Sample::parse_record(&record(3, 0, &bytes(&[42])), &fields), Err(Malformed));
        let longer = record(PERF_RECORD_SAMPLE, 0, &bytes(&[42, 43]));
        assert_eq!(Sample::parse_record(&longer, &fields), Err(Malformed));
        assert_eq!(Sample::parse_record(&longer[..16], &fields), Err(Malformed));
    }

    #[test]
    fn a_stack_has_the_bytes_that_the_kernel_copied_and_is_full_if_these_are_all_that_were_requested() {
        let registers = Registers { ip: 1, sp: 2, fp: 3, lr: 0 };
        let fields = Fields { user_stack: 16, cgroup: true, ..Fields::default() };
        let parsed = |kind: u64, stack: &[u64]| {
            let numbers = if kind == 0 { vec![] } else { registers.numbers().to_vec() };
            let body = bytes(&[&[kind], &numbers[..], stack, &[42]].concat());
            let sample = record(PERF_RECORD_SAMPLE, 0, &body);
            Sample::parse_record(&sample, &fields).map(|sample| {
                assert_eq!((sample.cgroup, sample.narrow), (42, false));
                sample.user.map(|user| (user.registers, user.bytes.to_vec(), user.full))
            })
        };
        let ones = vec![1; 8];
        let one = u64::from_ne_bytes([1; 8]);
        assert_eq!(parsed(2, &[16, one, one, 16]), Ok(Some((registers, ones.repeat(2), true))));
        assert_eq!(parsed(2, &[16, one, 0, 8]), Ok(Some((registers, ones, false))));
        assert_eq!(parsed(2, &[16, one, one, 17]), Err(Malformed), "more than there is room for");
        assert_eq!(
            parsed(2, &[0]),
            Ok(Some((registers, vec![], false))),
            "the record is too long for a stack"
        );
        assert_eq!(parsed(1, &[16, one, one, 16]), Ok(None), "a 32-bit program");
        assert_eq!(parsed(0, &[0]), Ok(None), "a kernel thread");
        assert_eq!(parsed(0, &[16, one, one, 16]), Ok(None));
        assert_eq!(parsed(2, &[u64::MAX, one, one, 16]), Err(Malformed));
    }

    #[test]
    fn a_program_is_narrow_if_its_registers_have_32_bits() {
        let fields = Fields { width: true, cgroup: true, ..Fields::default() };
        for (words, narrow) in [(&[1, 9][..], true), (&[2, 9], false), (&[0], false)] {
            let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(&[words, &[42]].concat()));
            let expected = Sample { narrow, cgroup: 42, ..Sample::default() };
            assert_eq!(parse(&sample, &fields), expected, "{words:?}");
        }
    }

    #[test]
    fn a_call_chain_has_the_number_of_addresses_that_precedes_it() {
        let fields = Fields { ip: true, callchain: true, ..Fields::default() };
        let parsed = |words: &[u64]| {
            let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(words));
            Sample::parse_record(&sample, &fields).map(|sample| (sample.ip, sample.callchain.to_vec()))
        };
        assert_eq!(parsed(&[9, 2, 5, 6]), Ok((9, vec![5u64.to_ne_bytes(), 6u64.to_ne_bytes()])));
        assert_eq!(parsed(&[9, 0]), Ok((9, vec![])));
        for length in [1, 3, u64::MAX, u64::MAX / 8 + 2] {
            assert_eq!(parsed(&[9, length, 5, 6]), Err(Malformed), "{length}");
        }
    }

    #[test]
    fn a_group_of_more_members_than_bytes_is_malformed() {
        for members in [2, u64::MAX, u64::MAX / 8 + 2] {
            let sample = record(PERF_RECORD_SAMPLE, 0, &bytes(&[members, 1, 1, 5]));
            let fields = Fields { read: Some(ReadFormat::default()), ..Fields::default() };
            assert_eq!(Record::parse(&sample, &fields), Err(Malformed), "{members}");
        }
    }

    fn fields() -> impl Strategy<Value = Fields> {
        let read = proptest::option::of(any::<bool>());
        (any::<[bool; 7]>(), read).prop_map(|([identifier, tid, time, cpu, period, raw, cgroup], read)| {
            Fields {
                identifier,
                tid,
                time,
                cpu,
                period,
                raw,
                cgroup,
                read: read.map(|untimed| ReadFormat { untimed }),
                ..Fields::default()
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(fields in fields(), values in proptest::collection::vec(any::<u64>(), 0..9), w: [u64; 6]) {
            let mut words = Vec::new();
            let mut expected = Sample::default();
            let told: Vec<u8> = w[3].to_ne_bytes().into_iter().chain(*b"told").collect();
            if fields.identifier {
                words.push(w[0]);
                expected.identifier = w[0];
            }
            if fields.tid {
                words.push(w[1]);
                let pair = w[1].to_ne_bytes();
                expected.pid = u32::from_ne_bytes(pair[..4].try_into().unwrap());
                expected.tid = u32::from_ne_bytes(pair[4..].try_into().unwrap());
            }
            if fields.time {
                words.push(w[2]);
                expected.time = w[2];
            }
            if fields.cpu {
                words.push(3);
            }
            if fields.period {
                words.push(4711);
                expected.period = 4711;
            }
            if let Some(format) = fields.read {
                words.push(values.len() as u64);
                if !format.untimed {
                    words.extend([w[3], w[4]]);
                }
                words.extend(&values);
            }
            if fields.raw {
                let length = (told.len() as u32).to_ne_bytes();
                let both: Vec<u8> = length.iter().chain(&told).copied().collect();
                words.extend(both.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)));
                expected.raw = &told;
            }
            if fields.cgroup {
                words.push(w[5]);
                expected.cgroup = w[5];
            }
            let bytes = record(PERF_RECORD_SAMPLE, 0, &bytes(&words));
            let found = parse(&bytes, &fields);
            if let Some(format) = fields.read {
                let times = if format.untimed { (0, 0) } else { (w[3], w[4]) };
                prop_assert_eq!((found.group.enabled, found.group.running), times);
                prop_assert_eq!(found.group.values().collect::<Vec<_>>(), values);
            }
            prop_assert_eq!(Sample { group: Group::default(), ..found }, expected);
            // Truncated or extended, it has another layout or is malformed; the parser never reads beyond its end.
            for length in (8..bytes.len()).step_by(8) {
                let mut cut = bytes[..length].to_vec();
                cut[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
                prop_assert!(Record::parse(&cut, &fields).is_err());
            }
        }

        #[test]
        fn random_bytes_never_panic(fields in fields(), kind in 0u32..24, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = record(kind, 0, &body);
            if let Ok(Record::Sample(sample)) = Record::parse(&bytes, &fields) {
                prop_assert!(sample.group.values().count() <= body.len() / 8);
            }
            prop_assert!(!matches!(Record::parse(&body, &fields), Ok(Record::Sample(_))) || body.len() >= 8);
        }
    }
}
