//! Records as the kernel writes them into a ring: pure parsers that borrow from their input.
//!
//! Source of the layouts: `perf_event_open(2)`, "MMAP layout", and `enum perf_event_type` in the kernel's
//! `include/uapi/linux/perf_event.h`. Numbers are in the byte order of this machine.

mod sample;

pub use sample::{Group, Sample, UserStack};

use perf_event_open_sys::bindings as abi;

use crate::sys::{Fields, Registers};

/// A parsed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// An event fired.
    Sample(Sample<'a>),
    /// A thread changed its name.
    Comm(Comm<'a>),
    /// A thread was created.
    Fork(Task),
    /// A thread exited.
    Exit(Task),
    /// A cgroup was created. Linux 5.7.
    Cgroup(Cgroup<'a>),
    /// A process mapped an executable file.
    Mmap(Mmap<'a>),
    /// A thread is switched in or out.
    Switch {
        /// Its process; `u32::MAX` if it has already been reaped.
        pid: u32,
        /// Its thread ID; 0 for the idle task, and if the records of the event contain no thread (`sample_id_all` with a thread).
        tid: u32,
        /// Whether it is switched out.
        out: bool,
        /// Process and thread that replace it, or that it replaces; 0 for events of a thread.
        other: (u32, u32),
    },
    /// The kernel registered or unregistered a function.
    Ksymbol(Ksymbol<'a>),
    /// Records were lost because the ring was full.
    Lost {
        /// The event whose record was lost last.
        id: u64,
        /// Number of records of any kind and event that were lost since the last such record.
        count: u64,
    },
    /// Like [`Record::Lost`], for hardware that writes samples itself.
    LostSamples {
        /// Number of lost samples.
        count: u64,
    },
    /// The kernel throttled an event until the next tick, because it fired too often.
    Throttle {
        /// The event.
        id: u64,
    },
    /// The kernel ended the throttling of an event.
    Unthrottle {
        /// The event.
        id: u64,
    },
    /// A kind of record that is not decoded.
    Other {
        /// `PERF_RECORD_*`.
        kind: u32,
    },
}

/// `PERF_RECORD_COMM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its new name, at most 15 bytes: untrusted input.
    pub name: &'a [u8],
    /// Whether it was changed by `execve`.
    pub exec: bool,
}

/// `PERF_RECORD_FORK` and `PERF_RECORD_EXIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The process of the thread.
    pub pid: u32,
    /// The process that created it, or its parent at the exit.
    pub parent_pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread that created it.
    pub parent_tid: u32,
    /// Time in nanoseconds of the event's clock.
    pub time: u64,
}

/// `PERF_RECORD_CGROUP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cgroup<'a> {
    /// The inode number of its directory.
    pub id: u64,
    /// Its path from the root of the hierarchy, independent of our cgroup namespace.
    pub path: &'a [u8],
}

/// `PERF_RECORD_MMAP2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// The process; `u32::MAX`: the kernel.
    pub pid: u32,
    /// The thread that created the mapping.
    pub tid: u32,
    /// The first address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The mapped file.
    pub file: MappedFile,
    /// `PROT_*`.
    pub protection: u32,
    /// Its path in the root of the process: `/usr/lib/libc.so.6`; `[vdso]`, `//anon`, `/memfd:jit (deleted)`.
    pub path: &'a [u8],
}

/// Identity of a mapped file; zeros for memory without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MappedFile {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// `PERF_RECORD_KSYMBOL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// Its first address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Whether it was unregistered instead of registered.
    pub removed: bool,
    /// Its name.
    pub name: &'a [u8],
}

/// Error: the bytes are not a valid record of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Record<'a> {
    /// Parses one record, including its header. `fields` are those that its event was opened with; they alone determine the layout of a
    /// sample.
    ///
    /// # Errors
    /// When the bytes are too short or too long for their layout.
    #[inline]
    pub fn parse(bytes: &'a [u8], fields: &Fields) -> Result<Self, Malformed> {
        let mut words = Cursor(bytes);
        let (kind, misc, size) = (words.u32()?, words.u16()?, words.u16()?);
        if usize::from(size) != bytes.len() {
            return Err(Malformed);
        }
        match kind {
            abi::PERF_RECORD_SAMPLE => Sample::parse(words, fields).map(Self::Sample),
            kind => Self::parse_other(kind, misc, words, fields),
        }
    }

    /// Parses a record other than a sample. These are rare.
    #[cold]
    fn parse_other(kind: u32, misc: u16, mut words: Cursor<'a>, fields: &Fields) -> Result<Self, Malformed> {
        Ok(match kind {
            abi::PERF_RECORD_LOST => Self::Lost { id: words.u64()?, count: words.u64()? },
            abi::PERF_RECORD_COMM => {
                let exec = u32::from(misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0;
                Self::Comm(Comm { pid: words.u32()?, tid: words.u32()?, name: words.text(), exec })
            }
            abi::PERF_RECORD_FORK => Self::Fork(words.task()?),
            abi::PERF_RECORD_EXIT => Self::Exit(words.task()?),
            abi::PERF_RECORD_CGROUP => Self::Cgroup(Cgroup { id: words.u64()?, path: words.text() }),
            abi::PERF_RECORD_MMAP2 => Self::Mmap(words.mmap()?),
            abi::PERF_RECORD_SWITCH | abi::PERF_RECORD_SWITCH_CPU_WIDE => {
                let out = u32::from(misc) & abi::PERF_RECORD_MISC_SWITCH_OUT != 0;
                let (pid, tid) = words.trailing_task(fields).unwrap_or_default();
                let other = match kind {
                    abi::PERF_RECORD_SWITCH_CPU_WIDE => (words.u32()?, words.u32()?),
                    _ => (0, 0),
                };
                Self::Switch { pid, tid, out, other }
            }
            abi::PERF_RECORD_KSYMBOL => {
                let (address, length) = (words.u64()?, words.u32()?);
                let (_kind, flags) = (words.u16()?, words.u16()?);
                let removed = u32::from(flags) & abi::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0;
                Self::Ksymbol(Ksymbol { address, length, removed, name: words.text() })
            }
            abi::PERF_RECORD_LOST_SAMPLES => Self::LostSamples { count: words.u64()? },
            abi::PERF_RECORD_THROTTLE => Self::Throttle { id: words.throttled()? },
            abi::PERF_RECORD_UNTHROTTLE => Self::Unthrottle { id: words.throttled()? },
            kind => Self::Other { kind },
        })
    }
}

/// The bytes of a record that are not parsed yet.
#[derive(Debug, Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Takes the next `count` numbers, without conversion.
    fn words(&mut self, count: usize) -> Result<&'a [[u8; 8]], Malformed> {
        let length = count.checked_mul(size_of::<u64>()).ok_or(Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken.as_chunks().0)
    }

    /// Takes bytes that follow their length. Together they fill whole words.
    fn raw(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    /// Returns the text up to the first NUL, or all of it: the kernel pads with NULs to a multiple of 8.
    fn text(&self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the thread at the end of a record other than a sample (`sample_id_all`): pid and tid, followed by the other fields.
    fn trailing_task(&self, fields: &Fields) -> Option<(u32, u32)> {
        let behind = size_of::<u64>() * (usize::from(fields.time) + fields.words_after_time());
        let ids = self.0.len().checked_sub(behind + size_of::<u64>()).filter(|_| fields.tid)?;
        let mut ids = Cursor(self.0.get(ids..)?);
        Some((ids.u32().ok()?, ids.u32().ok()?))
    }

    /// Takes the next `length` bytes.
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes the registers of a program, which follow the word with their ABI (`PERF_SAMPLE_REGS_ABI_*`). Returns none for a 32-bit
    /// program, because its stack has words of another size.
    fn registers(&mut self) -> Result<Option<Registers>, Malformed> {
        let kind = self.u64()?;
        if kind == 0 {
            return Ok(None);
        }
        let mut numbers = [0; Registers::COUNT];
        for number in &mut numbers {
            *number = self.u64()?;
        }
        Ok((kind == u64::from(abi::PERF_SAMPLE_REGS_ABI_64)).then_some(Registers::of(numbers)))
    }

    /// Takes one register like [`Self::registers`], and reports whether the program has 32 bits.
    fn is_narrow(&mut self) -> Result<bool, Malformed> {
        let kind = self.u64()?;
        if kind != 0 {
            let _register = self.u64()?;
        }
        Ok(kind == u64::from(abi::PERF_SAMPLE_REGS_ABI_32))
    }

    /// Ignores `PERF_RECORD_MISC_MMAP_BUILD_ID`, which indicates a build ID in place of the file. No event of the exporter requests one. If
    /// an event of another program does, the kernel also sets the bit in records of other events, without writing a build ID there.
    fn mmap(&mut self) -> Result<Mmap<'a>, Malformed> {
        let (pid, tid) = (self.u32()?, self.u32()?);
        let (start, length, offset) = (self.u64()?, self.u64()?, self.u64()?);
        let file = MappedFile { major: self.u32()?, minor: self.u32()?, inode: self.u64()? };
        let _generation = self.u64()?;
        let (protection, _flags) = (self.u32()?, self.u32()?);
        Ok(Mmap { pid, tid, start, length, offset, file, protection, path: self.text() })
    }

    fn task(&mut self) -> Result<Task, Malformed> {
        let (pid, parent_pid) = (self.u32()?, self.u32()?);
        Ok(Task { pid, parent_pid, tid: self.u32()?, parent_tid: self.u32()?, time: self.u64()? })
    }

    /// Takes the event of a `THROTTLE` or `UNTHROTTLE`, which follows the time.
    fn throttled(&mut self) -> Result<u64, Malformed> {
        self.u64()?;
        self.u64()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_switch_says_who_by_what_stands_at_its_end() {
        let fields = Fields { identifier: true, tid: true, time: true, ..Fields::default() };
        // The previous task, then pid and tid, time and identifier.
        let body = testing::bytes(&[4 << 32 | 3, 7 << 32 | 5, 1234, 99]);
        let out = abi::PERF_RECORD_MISC_SWITCH_OUT as u16;
        for (misc, out) in [(0, false), (out, true)] {
            let record = testing::record(abi::PERF_RECORD_SWITCH_CPU_WIDE, misc, &body);
            let other = (3, 4);
            assert_eq!(Record::parse(&record, &fields), Ok(Record::Switch { pid: 5, tid: 7, out, other }));
        }
        let record = testing::record(abi::PERF_RECORD_SWITCH, 0, &[]);
        let switch = Record::Switch { pid: 0, tid: 0, out: false, other: (0, 0) };
        assert_eq!(Record::parse(&record, &fields), Ok(switch));
        let record = testing::record(abi::PERF_RECORD_SWITCH_CPU_WIDE, 0, &[]);
        assert_eq!(Record::parse(&record, &fields), Err(Malformed));
    }

    #[test]
    fn the_thread_of_a_switch_is_in_front_of_the_time_and_the_identifier() {
        for (time, identifier, behind) in
            [(false, false, &[][..]), (true, false, &[9]), (false, true, &[9]), (true, true, &[9, 9])]
        {
            let fields = Fields { identifier, tid: true, time, ..Fields::default() };
            let body = testing::bytes(&[&[7 << 32 | 5], behind].concat());
            let record = testing::record(abi::PERF_RECORD_SWITCH, 0, &body);
            let switch = Record::Switch { pid: 5, tid: 7, out: false, other: (0, 0) };
            assert_eq!(Record::parse(&record, &fields), Ok(switch), "{fields:?}");
            let fields = Fields { tid: false, ..fields };
            let switch = Record::Switch { pid: 0, tid: 0, out: false, other: (0, 0) };
            assert_eq!(Record::parse(&record, &fields), Ok(switch), "no thread was requested");
        }
    }

    use super::*;
    use crate::ring::testing;

    fn parse(bytes: &[u8]) -> Result<Record<'_>, Malformed> {
        Record::parse(bytes, &Fields::default())
    }

    #[test]
    fn a_name_ends_at_its_first_nul_and_may_hold_anything_else() {
        let bytes = testing::comm(7, 8, b"a\nb\xff", true);
        let Ok(Record::Comm(comm)) = parse(&bytes) else { panic!("{:?}", parse(&bytes)) };
        assert_eq!(comm, Comm { pid: 7, tid: 8, name: b"a\nb\xff", exec: true });
        let renamed = Comm { pid: 7, tid: 8, name: b"sh", exec: false };
        assert_eq!(parse(&testing::comm(7, 8, b"sh", false)), Ok(Record::Comm(renamed)));
        let bytes = testing::cgroup(77, b"/a/b");
        assert_eq!(parse(&bytes), Ok(Record::Cgroup(Cgroup { id: 77, path: b"/a/b" })));
    }

    #[test]
    fn a_record_of_another_length_than_its_header_has_is_malformed() {
        let task = testing::fork(Task { pid: 1, parent_pid: 2, tid: 3, parent_tid: 4, time: 5 });
        assert_eq!(parse(&[&task[..], &[0; 8]].concat()), Err(Malformed), "8 bytes too many");
        let with_end = testing::longer(task, &[0; 8]);
        assert!(parse(&with_end).is_ok());
        assert_eq!(parse(&with_end[..with_end.len() - 8]), Err(Malformed), "8 bytes are missing");
    }

    #[test]
    fn a_task_is_created_and_ends() {
        let task = Task { pid: 1, parent_pid: 2, tid: 3, parent_tid: 4, time: 5 };
        assert_eq!(parse(&testing::fork(task)), Ok(Record::Fork(task)));
        assert_eq!(parse(&testing::exit(task)), Ok(Record::Exit(task)));
    }

    #[test]
    fn a_mapped_file_is_known_by_its_inode_whatever_others_have_asked_the_kernel_for() {
        let mmap = Mmap {
            pid: 1,
            tid: 2,
            start: 0x1000,
            length: 0x2000,
            offset: 0x3000,
            file: MappedFile { major: 8, minor: 1, inode: 77 },
            protection: 5,
            path: b"/usr/lib/x y.so",
        };
        let mut record = testing::mmap(&mmap);
        assert_eq!(parse(&record), Ok(Record::Mmap(mmap)));
        // The bit is set because of build IDs that another program requests: seen on Linux 6.18.
        record[4..6].copy_from_slice(&(abi::PERF_RECORD_MISC_MMAP_BUILD_ID as u16).to_ne_bytes());
        assert_eq!(parse(&record), Ok(Record::Mmap(mmap)));
    }

    #[test]
    fn the_kernel_gets_functions_and_loses_them() {
        for removed in [false, true] {
            let symbol = Ksymbol {
                address: 0xffff_ffff_c000_0000,
                length: 64,
                removed,
                name: b"bpf_prog_6deef7357e7b4530",
            };
            assert_eq!(parse(&testing::ksymbol(&symbol)), Ok(Record::Ksymbol(symbol)));
        }
    }

    #[test]
    fn a_stack_comes_with_its_registers_unless_they_are_those_of_a_32_bit_program() {
        let registers = Registers { ip: 0x1234, sp: 0x7000, fp: 0x7010, lr: 0 };
        let user = Some((registers, vec![1; 16], false));
        let stack = testing::Stack { ip: 9, pid: 1, tid: 2, callchain: vec![5, 6], user };
        let mut bytes = stack.record();
        let Ok(Record::Sample(sample)) = Record::parse(&bytes, &testing::Stack::FIELDS) else { panic!() };
        assert_eq!((sample.ip, sample.pid, sample.tid, sample.callchain.len()), (9, 1, 2, 2));
        assert_eq!(sample.user, Some(UserStack { registers, bytes: &[1; 16], full: false }));
        let kind = 8 + 8 + 8 + 8 + 2 * 8;
        bytes[kind] = 1;
        let Ok(Record::Sample(sample)) = Record::parse(&bytes, &testing::Stack::FIELDS) else { panic!() };
        assert_eq!(sample.user, None);
    }

    #[test]
    fn losses_and_throttling_name_their_event() {
        let words = |kind, words: &[u64]| testing::record(kind, 0, &testing::bytes(words));
        assert_eq!(parse(&testing::lost(4, 9)), Ok(Record::Lost { id: 4, count: 9 }));
        assert_eq!(parse(&words(13, &[9])), Ok(Record::LostSamples { count: 9 }));
        assert_eq!(parse(&words(5, &[1, 4, 4])), Ok(Record::Throttle { id: 4 }));
        assert_eq!(parse(&words(6, &[1, 4, 4])), Ok(Record::Unthrottle { id: 4 }));
    }

    #[test]
    fn a_kind_of_the_future_is_passed_over() {
        assert_eq!(parse(&testing::record(4711, 0, &[0; 8])), Ok(Record::Other { kind: 4711 }));
    }

    #[test]
    fn a_record_that_ends_early_is_malformed() {
        for bytes in [testing::comm(1, 1, b"sh", false), testing::lost(1, 2), testing::cgroup(1, b"/")] {
            for length in 0..16.min(bytes.len()) {
                assert_eq!(parse(&bytes[..length]), Err(Malformed), "{length}");
            }
            let mut short = bytes[..12].to_vec();
            short[6..8].copy_from_slice(&12u16.to_ne_bytes());
            assert_eq!(parse(&short), Err(Malformed));
        }
    }
}
