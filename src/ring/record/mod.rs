//! Records as the kernel writes them into a ring: pure parsers that lend from the bytes they are given.
//!
//! Source of the layouts: `perf_event_open(2)`, "MMAP layout", and `enum perf_event_type` in the kernel's
//! `include/uapi/linux/perf_event.h`. Numbers are in the byte order of this machine.

mod sample;

pub use sample::{Group, Sample};

use perf_event_open_sys::bindings as abi;

use crate::sys::Fields;

/// What the bytes of a record are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// An event fired.
    Sample(Sample<'a>),
    /// A thread took a name.
    Comm(Comm<'a>),
    /// A thread was created.
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// A cgroup was created. Linux 5.7.
    Cgroup(Cgroup<'a>),
    /// The ring had no room.
    Lost {
        /// The event that found no room last.
        id: u64,
        /// How many records of any kind and event were not written, since this was last told.
        count: u64,
    },
    /// As [`Record::Lost`], told by hardware that writes samples itself.
    LostSamples {
        /// How many.
        count: u64,
    },
    /// The kernel stopped an event until the next tick, for firing too often.
    Throttle {
        /// Which.
        id: u64,
    },
    /// And let it go on.
    Unthrottle {
        /// Which.
        id: u64,
    },
    /// A kind that is not looked into.
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
    /// Its new name, at most 15 bytes, chosen by whoever runs it.
    pub name: &'a [u8],
    /// Whether it came with `execve`.
    pub exec: bool,
}

/// `PERF_RECORD_FORK` and `PERF_RECORD_EXIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The process that the thread belongs to.
    pub pid: u32,
    /// The process that created it, or its parent at the exit.
    pub parent_pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread that created it.
    pub parent_tid: u32,
    /// When, in nanoseconds of the event's clock.
    pub time: u64,
}

/// `PERF_RECORD_CGROUP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cgroup<'a> {
    /// The inode number of its directory.
    pub id: u64,
    /// Its path from the root of the hierarchy, whatever cgroup namespace we are in.
    pub path: &'a [u8],
}

/// Bytes that are not a record of the kind that they say they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Record<'a> {
    /// Parses one record, header included. `fields` is what its event was opened with, which alone tells the layout
    /// of a sample.
    ///
    /// # Errors
    /// When the bytes end too early or too late for what they should hold.
    #[inline]
    pub fn parse(bytes: &'a [u8], fields: &Fields) -> Result<Self, Malformed> {
        let mut words = Cursor(bytes);
        let (kind, misc, size) = (words.u32()?, words.u16()?, words.u16()?);
        if usize::from(size) != bytes.len() {
            return Err(Malformed);
        }
        match kind {
            abi::PERF_RECORD_SAMPLE => Sample::parse(words, fields).map(Self::Sample),
            kind => Self::parse_other(kind, misc, words),
        }
    }

    /// What is no sample; of those there are few.
    #[cold]
    fn parse_other(kind: u32, misc: u16, mut words: Cursor<'a>) -> Result<Self, Malformed> {
        Ok(match kind {
            abi::PERF_RECORD_LOST => Self::Lost { id: words.u64()?, count: words.u64()? },
            abi::PERF_RECORD_COMM => {
                let exec = u32::from(misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0;
                Self::Comm(Comm { pid: words.u32()?, tid: words.u32()?, name: words.text(), exec })
            }
            abi::PERF_RECORD_FORK => Self::Fork(words.task()?),
            abi::PERF_RECORD_EXIT => Self::Exit(words.task()?),
            abi::PERF_RECORD_CGROUP => Self::Cgroup(Cgroup { id: words.u64()?, path: words.text() }),
            abi::PERF_RECORD_LOST_SAMPLES => Self::LostSamples { count: words.u64()? },
            abi::PERF_RECORD_THROTTLE => Self::Throttle { id: words.throttled()? },
            abi::PERF_RECORD_UNTHROTTLE => Self::Unthrottle { id: words.throttled()? },
            kind => Self::Other { kind },
        })
    }
}

/// The bytes of a record that are not read yet.
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

    /// The next `count` numbers, unread.
    fn words(&mut self, count: usize) -> Result<&'a [[u8; 8]], Malformed> {
        let length = count.checked_mul(size_of::<u64>()).ok_or(Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken.as_chunks().0)
    }

    /// Bytes with their number in front, which together take whole words.
    fn raw(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The text up to the first NUL, or all of it: the kernel fills up with NULs to a multiple of 8.
    fn text(&self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    fn task(&mut self) -> Result<Task, Malformed> {
        let (pid, parent_pid) = (self.u32()?, self.u32()?);
        Ok(Task { pid, parent_pid, tid: self.u32()?, parent_tid: self.u32()?, time: self.u64()? })
    }

    /// The event of a `THROTTLE` or `UNTHROTTLE`, which stands behind the time.
    fn throttled(&mut self) -> Result<u64, Malformed> {
        self.u64()?;
        self.u64()
    }
}

#[cfg(test)]
mod tests {
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
        let bytes = testing::cgroup(77, b"/a/b");
        assert_eq!(parse(&bytes), Ok(Record::Cgroup(Cgroup { id: 77, path: b"/a/b" })));
    }

    #[test]
    fn a_task_is_created_and_ends() {
        let task = Task { pid: 1, parent_pid: 2, tid: 3, parent_tid: 4, time: 5 };
        assert_eq!(parse(&testing::fork(task)), Ok(Record::Fork(task)));
        assert_eq!(parse(&testing::exit(task)), Ok(Record::Exit(task)));
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
