//! What the scheduler's tracepoints tell, out of their records.

use crate::event::format::{Field, FieldKind, Format};

/// The states that `sched:sched_switch` tells (`TASK_REPORT`); another bit says that the thread was preempted.
const STATES: u64 = 0xff;
/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u64 = 0x02;
/// `TASK_REPORT_IDLE`: a thread of the kernel that has nothing to do. It sleeps without being woken by signals, but nobody
/// waits for a disk there.
const IDLE: u64 = 0x80;
/// `EXIT_DEAD` and `EXIT_ZOMBIE`: these never run again.
const DEAD: u64 = 0x30;

/// How a thread left the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Left {
    /// It would have gone on, and somebody else was let run, or nobody.
    Preempted,
    /// It waits for something, and signals wake it.
    Sleeping,
    /// It waits for something that must come: a disk, most often, or a lock in the kernel.
    Blocked,
    /// It has ended.
    Dead,
}

impl Left {
    /// By `prev_state` of `sched:sched_switch`.
    pub fn of(state: u64) -> Self {
        match state & STATES {
            0 => Self::Preempted,
            state if state & DEAD != 0 => Self::Dead,
            state if state & UNINTERRUPTIBLE != 0 && state & IDLE == 0 => Self::Blocked,
            _ => Self::Sleeping,
        }
    }

    /// The letter that perf and ps write for it.
    pub fn letter(self) -> char {
        match self {
            Self::Preempted => 'R',
            Self::Sleeping => 'S',
            Self::Blocked => 'D',
            Self::Dead => 'X',
        }
    }
}

/// A thread as a record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Party<'r> {
    /// 0 is the idle task of a CPU.
    pub tid: u32,
    /// Its name: bytes that anybody may choose, up to 15.
    pub comm: &'r [u8],
}

/// A filter of `sched:sched_switch` that leaves out what [`Event::Leaves`] tells as well: threads that sleep
/// (`TASK_INTERRUPTIBLE`, `TASK_REPORT_IDLE`), and the idle task.
pub const NOT_TO_SLEEP: &str = "prev_state != 1 && prev_state != 128 && prev_pid != 0";

/// What the scheduler did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'r> {
    /// `sched:sched_switch`: a CPU goes from one thread to another.
    Switch {
        /// Who leaves.
        from: Party<'r>,
        /// How.
        left: Left,
        /// Who comes.
        to: Party<'r>,
    },
    /// `PERF_RECORD_SWITCH_CPU_WIDE`: a thread goes onto the CPU. Told for each of them, also where the kernel passes
    /// `sched:sched_switch` over, as some do when the CPU was idle. It says nothing of names.
    Comes {
        /// Which.
        tid: u32,
    },
    /// A record of the switch stream: a thread leaves the CPU. It sleeps, unless [`Event::Switch`] told otherwise just before. Who
    /// comes is known when that one leaves, or by [`Event::Runs`].
    Leaves {
        /// Which; `u32::MAX` if it has ended and was reaped.
        tid: u32,
    },
    /// A thread runs: a record of the clock of the switch stream, or one of the CPU that tells who is next
    /// (`PERF_RECORD_SWITCH_CPU_WIDE`).
    Runs {
        /// Which.
        tid: u32,
    },
    /// `sched:sched_waking` and `sched:sched_wakeup_new`: a thread may run from now on.
    Wakes(Party<'r>),
    /// `sched:sched_migrate_task`: a thread that waits is given to another CPU.
    Migrates(Party<'r>),
}

/// Where in the records of a tracepoint things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Of `sched:sched_switch`.
    Switch {
        /// `prev_pid` and `prev_comm`.
        from: Place,
        /// `prev_state`: where, and in how many bytes (4 or 8).
        state: (u16, u16),
        /// `next_pid` and `next_comm`.
        to: Place,
    },
    /// Of `sched:sched_waking`, `sched:sched_wakeup` and `sched:sched_wakeup_new`.
    Wakes(Place),
    /// Of `sched:sched_migrate_task`.
    Migrates(Place),
}

/// Where a thread stands in a record: in bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number, in four bytes.
    tid: u16,
    comm: Name,
}

/// Where the name of a thread stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// In so many bytes, with its NULs.
    Here(u16, u16),
    /// Elsewhere in the record: four bytes here tell where, and how many there are (`__data_loc`). Since Linux 6.18.
    Elsewhere(u16),
}

impl Name {
    #[inline]
    fn read(self, raw: &[u8]) -> Option<&[u8]> {
        let (at, size) = match self {
            Self::Here(at, size) => (usize::from(at), usize::from(size)),
            Self::Elsewhere(at) => {
                let place = u32::from_ne_bytes(*raw.get(usize::from(at)..)?.first_chunk()?);
                ((place & 0xffff) as usize, (place >> 16) as usize)
            }
        };
        let name = raw.get(at..at + size)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(size);
        Some(&name[..end])
    }
}

impl Place {
    fn of(format: &Format, prefix: &str) -> Result<Self, String> {
        let number =
            |name| span(format, &format!("{prefix}{name}"), |field| field.is_number() && field.span().1 == 4);
        let elsewhere = FieldKind::DynamicText { relative: false };
        let is_text = |field: &Field| field.kind == FieldKind::Text || field.kind == elsewhere;
        let name = format!("{prefix}comm");
        let (at, size) = span(format, &name, is_text)?;
        let comm = match format.field(&name) {
            Some(field) if field.kind == elsewhere => Name::Elsewhere(at),
            _ => Name::Here(at, size),
        };
        Ok(Self { tid: number("pid")?.0, comm })
    }

    #[inline]
    fn read<'r>(&self, raw: &'r [u8]) -> Option<Party<'r>> {
        let tid = raw.get(usize::from(self.tid)..)?.first_chunk().map(|&tid| u32::from_ne_bytes(tid))?;
        Some(Party { tid, comm: self.comm.read(raw)? })
    }
}

/// Where a field stands, and how long it is.
fn span(format: &Format, name: &str, fits: impl Fn(&Field) -> bool) -> Result<(u16, u16), String> {
    let field = format.field(name).ok_or_else(|| format!("{} has no field {name}", format.name()))?;
    let (at, size) = field.span();
    let place = u16::try_from(at).ok().zip(u16::try_from(size).ok());
    place.filter(|_| fits(field)).ok_or_else(|| {
        format!("the field {name} of {} is something else here: {}", format.name(), field.declaration)
    })
}

impl Layout {
    /// By the format of the tracepoint.
    ///
    /// # Errors
    /// What this kernel's format lacks.
    pub fn of(format: &Format) -> Result<Self, String> {
        let is_state = |field: &Field| field.is_number() && matches!(field.span().1, 4 | 8);
        match format.name() {
            "sched_switch" => Ok(Self::Switch {
                from: Place::of(format, "prev_")?,
                state: span(format, "prev_state", is_state)?,
                to: Place::of(format, "next_")?,
            }),
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => Place::of(format, "").map(Self::Wakes),
            "sched_migrate_task" => Place::of(format, "").map(Self::Migrates),
            other => Err(format!("{other} tells nothing of when threads run")),
        }
    }

    /// What a record says; `None` where it is too short for that.
    #[inline]
    pub fn read<'r>(&self, raw: &'r [u8]) -> Option<Event<'r>> {
        match self {
            Self::Switch { from, state: (at, size), to } => {
                let state = raw.get(usize::from(*at)..)?;
                let state = match size {
                    8 => u64::from_ne_bytes(*state.first_chunk()?),
                    _ => u32::from_ne_bytes(*state.first_chunk()?).into(),
                };
                Some(Event::Switch { from: from.read(raw)?, left: Left::of(state), to: to.read(raw)? })
            }
            Self::Wakes(place) => place.read(raw).map(Event::Wakes),
            Self::Migrates(place) => place.read(raw).map(Event::Migrates),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn format(name: &str) -> Format {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats").join(name);
        Format::parse(&crate::host::read_text(&path).unwrap()).unwrap()
    }

    #[test]
    fn how_a_thread_left_is_told_by_its_state_as_perf_reads_it() {
        let cases = [
            (0, 'R'),
            (0x100, 'R'),
            (1, 'S'),
            (2, 'D'),
            (4, 'S'),
            (0x10, 'X'),
            (0x20, 'X'),
            (0x40, 'S'),
            (0x82, 'S'),
            (0x80, 'S'),
        ];
        for (state, letter) in cases {
            assert_eq!(Left::of(state).letter(), letter, "{state:#x}");
        }
    }

    #[test]
    fn a_name_is_read_where_the_format_says_that_it_stands() {
        let format = Format::parse(
            "name: sched_migrate_task\nID: 1\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
             \tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n\
             \tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n\n\
             print fmt: \"comm=%s\", __get_str(comm)\n",
        );
        let layout = Layout::of(&format.unwrap()).unwrap();
        let record =
            |place: u32| [&[0; 8][..], &place.to_ne_bytes(), &7u32.to_ne_bytes(), b"web\0\0\0\0\0"].concat();
        let read = record(8 << 16 | 16);
        assert_eq!(layout.read(&read), Some(Event::Migrates(Party { tid: 7, comm: b"web" })));
        for place in [9 << 16 | 16, 8 << 16 | 17, u32::MAX] {
            assert_eq!(layout.read(&record(place)), None, "{place:#x} is outside");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let layout = Layout::of(&format("sched:sched_switch")).unwrap();
            if let Some(Event::Switch { from, to, .. }) = layout.read(&bytes) {
                prop_assert!(from.comm.len() <= 16 && to.comm.len() <= 16);
                prop_assert!(!from.comm.contains(&0));
            }
        }
    }

    #[test]
    fn other_tracepoints_are_refused_by_name() {
        assert!(Layout::of(&format("sched:sched_process_exec")).unwrap_err().contains("sched_process_exec"));
    }
}
