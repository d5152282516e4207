//! Events decoded from the records of scheduler tracepoints.

use crate::event::format::{Field, FieldKind, Format};

/// States reported by `sched:sched_switch` (`TASK_REPORT`); a further bit indicates preemption.
const STATES: u64 = 0xff;
/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u64 = 0x02;
/// `TASK_REPORT_IDLE`: an idle kernel thread. It ignores signals while it sleeps, but does not wait for I/O.
const IDLE: u64 = 0x80;
/// `EXIT_DEAD` and `EXIT_ZOMBIE`: threads that never run again.
const DEAD: u64 = 0x30;

/// State in which a thread left the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PrevState {
    /// Still runnable: another thread or the idle task runs instead.
    Preempted,
    /// Interruptible sleep.
    Sleeping,
    /// Uninterruptible sleep: usually disk I/O or a lock in the kernel.
    Blocked,
    /// Exited.
    Dead,
}

impl PrevState {
    /// Converts `prev_state` of `sched:sched_switch`.
    pub fn of(state: u64) -> Self {
        match state & STATES {
            0 => Self::Preempted,
            state if state & DEAD != 0 => Self::Dead,
            state if state & UNINTERRUPTIBLE != 0 && state & IDLE == 0 => Self::Blocked,
            _ => Self::Sleeping,
        }
    }

    /// Returns the letter that perf and ps use.
    pub fn letter(self) -> char {
        match self {
            Self::Preempted => 'R',
            Self::Sleeping => 'S',
            Self::Blocked => 'D',
            Self::Dead => 'X',
        }
    }
}

/// Thread in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordThread<'r> {
    /// Thread ID; 0 is the idle task of a CPU.
    pub tid: u32,
    /// Name: arbitrary bytes, at most 15.
    pub comm: &'r [u8],
}

/// Filter of `sched:sched_switch` that drops the switches which [`Event::Outgoing`] also reports: threads that sleep (`TASK_INTERRUPTIBLE`,
/// `TASK_REPORT_IDLE`), and the idle task.
pub const WITHOUT_SLEEPS: &str = "prev_state != 1 && prev_state != 128 && prev_pid != 0";

/// Scheduler event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'r> {
    /// `sched:sched_switch`: a CPU switches from one thread to another.
    Switch {
        /// Outgoing task.
        from: RecordThread<'r>,
        /// State of the outgoing task.
        prev_state: PrevState,
        /// Incoming task.
        to: RecordThread<'r>,
    },
    /// `PERF_RECORD_SWITCH_CPU_WIDE`: incoming task of a CPU. Written for every switch, including those that some kernels omit from
    /// `sched:sched_switch` when the CPU was idle. Contains no names.
    Incoming {
        /// Incoming task.
        tid: u32,
    },
    /// Record of the switch stream: outgoing task. The task sleeps, unless an immediately preceding [`Event::Switch`] reports another
    /// state. The incoming task is determined by its own `Outgoing` record or by [`Event::Runs`].
    Outgoing {
        /// Outgoing task; `u32::MAX` if it has exited and was reaped.
        tid: u32,
    },
    /// Running thread: a clock record of the switch stream, or the incoming task of a CPU (`PERF_RECORD_SWITCH_CPU_WIDE`).
    Runs {
        /// Running thread.
        tid: u32,
    },
    /// `sched:sched_waking` and `sched:sched_wakeup_new`: a thread becomes runnable.
    Wakes(RecordThread<'r>),
    /// `sched:sched_migrate_task`: a queued thread is migrated to another CPU.
    Migrates(RecordThread<'r>),
}

/// Location of fields in the records of a tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `sched:sched_switch`.
    Switch {
        /// `prev_pid` and `prev_comm`.
        from: Place,
        /// `prev_state`: offset and size in bytes (4 or 8).
        state: (u16, u16),
        /// `next_pid` and `next_comm`.
        to: Place,
    },
    /// `sched:sched_waking`, `sched:sched_wakeup` and `sched:sched_wakeup_new`.
    Wakes(Place),
    /// `sched:sched_migrate_task`.
    Migrates(Place),
}

/// Location of a thread in a record, as byte offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Offset of the thread ID, which has four bytes.
    tid: u16,
    comm: Name,
}

/// Location of a thread name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// Offset and size of a fixed array, including NULs.
    Here(u16, u16),
    /// Offset of four bytes with the offset and size of the name (`__data_loc`). Since Linux 6.18.
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
        Some(&name[..length(name)])
    }
}

/// Returns the length of a text up to the first NUL.
#[inline]
fn length(text: &[u8]) -> usize {
    let Ok(&bytes) = <&[u8; 16]>::try_from(text) else {
        return text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    };
    // All bytes at once: every record has one or two names, and a search for their end would be mispredicted.
    const LOW: u128 = u128::from_ne_bytes([0x01; 16]);
    const HIGH: u128 = u128::from_ne_bytes([0x80; 16]);
    let word = u128::from_le_bytes(bytes);
    // The lowest bit is that of the first NUL. There are no wrong bits below it.
    let zeros = word.wrapping_sub(LOW) & !word & HIGH;
    zeros.trailing_zeros() as usize / 8
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
    fn read<'r>(&self, raw: &'r [u8]) -> Option<RecordThread<'r>> {
        let tid = raw.get(usize::from(self.tid)..)?.first_chunk().map(|&tid| u32::from_ne_bytes(tid))?;
        Some(RecordThread { tid, comm: self.comm.read(raw)? })
    }
}

/// Returns the offset and size of a field.
fn span(format: &Format, name: &str, fits: impl Fn(&Field) -> bool) -> Result<(u16, u16), String> {
    let field = format.field(name).ok_or_else(|| format!("{} has no field {name}", format.name()))?;
    let (at, size) = field.span();
    let place = u16::try_from(at).ok().zip(u16::try_from(size).ok());
    place.filter(|_| fits(field)).ok_or_else(|| {
        format!("the field {name} of {} has an unsupported declaration: {}", format.name(), field.declaration)
    })
}

impl Layout {
    /// Determines the layout from the format of the tracepoint.
    ///
    /// # Errors
    /// The field that is missing or unsupported in this kernel's format.
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
            other => Err(format!("{other} is not one of the supported scheduler tracepoints")),
        }
    }

    /// Decodes a record; `None` if it is too short.
    #[inline]
    pub fn read<'r>(&self, raw: &'r [u8]) -> Option<Event<'r>> {
        match self {
            Self::Switch { from, state: (at, size), to } => {
                let state = raw.get(usize::from(*at)..)?;
                let state = match size {
                    8 => u64::from_ne_bytes(*state.first_chunk()?),
                    _ => u32::from_ne_bytes(*state.first_chunk()?).into(),
                };
                Some(Event::Switch {
                    from: from.read(raw)?,
                    prev_state: PrevState::of(state),
                    to: to.read(raw)?,
                })
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
            assert_eq!(PrevState::of(state).letter(), letter, "{state:#x}");
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
        assert_eq!(layout.read(&read), Some(Event::Migrates(RecordThread { tid: 7, comm: b"web" })));
        for place in [9 << 16 | 16, 8 << 16 | 17, u32::MAX] {
            assert_eq!(layout.read(&record(place)), None, "{place:#x} is outside");
        }
    }

    proptest! {
        #[test]
        fn a_text_ends_at_its_first_nul(text in proptest::collection::vec(0u8..3, 0..20)) {
            prop_assert_eq!(length(&text), text.split(|&byte| byte == 0).next().map_or(0, <[u8]>::len));
        }

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
