//! The running kernel.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;

use perf_event_open_sys::bindings as abi;
use perf_event_open_sys::{ioctls, perf_event_open};

use super::ring::LiveRing;
use super::{Attr, Event, Inherit, Kernel, Place, Rate, Registers, Sampling, Start};
use crate::error::Errno;
use crate::event::Precise;

/// The highest level of `precise_ip`.
const PRECISE: u8 = 3;

/// The running kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live;

/// An event of the running kernel.
#[derive(Debug)]
pub struct LiveEvent(OwnedFd);

impl Kernel for Live {
    type Event = LiveEvent;

    fn open(&self, attr: &Attr, place: Place<'_>, leader: Option<&LiveEvent>) -> Result<LiveEvent, Errno> {
        let mut raw = raw_attr(attr);
        let mut flags = abi::PERF_FLAG_FD_CLOEXEC;
        let (pid, cpu) = match place {
            Place::Cpu(cpu) => (-1, number(cpu)?),
            Place::Cgroup { dir, cpu } => {
                flags |= abi::PERF_FLAG_PID_CGROUP;
                (dir.as_raw_fd(), number(cpu)?)
            }
            Place::Thread(tid) => (number(tid)?, -1),
            Place::ThreadOn { tid, cpu } => (number(tid)?, number(cpu)?),
        };
        let group = leader.map_or(-1, |leader| leader.0.as_raw_fd());
        // SAFETY: `raw` is an initialized attribute structure whose `size` is its own, and outlives the call. The descriptors are open:
        // they are borrowed by this function's arguments.
        let fd = unsafe { perf_event_open(&raw mut raw, pid, cpu, group, flags.into()) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the call has just returned this descriptor, so it is open and has no other owner.
        let event = LiveEvent(unsafe { OwnedFd::from_raw_fd(fd) });
        if let Some(filter) = &attr.filter {
            event.set_filter(filter)?;
        }
        Ok(event)
    }

    fn close(&self, events: Vec<LiveEvent>) {
        // Called at every collection, usually without events.
        if events.is_empty() {
            return;
        }
        // If the thread cannot be started, the closure is dropped, and the caller waits for the events to be closed.
        if let Err(error) = thread::Builder::new().name("closer".into()).spawn(move || drop(events)) {
            tracing::debug!(%error, "cannot start a thread to close events: closed them in the calling thread");
        }
    }
}

impl LiveEvent {
    fn set_filter(&self, filter: &str) -> Result<(), Errno> {
        let filter = CString::new(filter).map_err(|_| Errno::EINVAL)?;
        // SAFETY: SET_FILTER reads a string that ends with NUL, which `filter` is, and which outlives the call; the kernel does not write
        // to it. The descriptor is open.
        check(unsafe { ioctls::SET_FILTER(self.0.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }
}

impl Event for LiveEvent {
    type Ring = LiveRing;

    fn read(&self, words: &mut [u64]) -> Result<usize, Errno> {
        // SAFETY: the pointer and the length in bytes describe exactly the memory of `words`, for which any bytes are valid. The descriptor
        // is open for as long as `self` lives.
        let bytes = unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(words)) };
        match usize::try_from(bytes) {
            Ok(bytes) => Ok(bytes / size_of::<u64>()),
            Err(_) => Err(Errno::last()),
        }
    }

    fn enable(&self) -> Result<(), Errno> {
        // SAFETY: ENABLE takes a number as its argument; the descriptor is open.
        check(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) })
    }

    fn disable(&self) -> Result<(), Errno> {
        // SAFETY: DISABLE takes a number as its argument; the descriptor is open.
        check(unsafe { ioctls::DISABLE(self.0.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) })
    }

    fn id(&self) -> Result<u64, Errno> {
        let mut id = 0;
        // SAFETY: ID writes one u64 through its argument, which points to one; the descriptor is open.
        check(unsafe { ioctls::ID(self.0.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    fn map(&self, pages: usize) -> Result<LiveRing, Errno> {
        LiveRing::map(self.0.as_fd(), pages)
    }

    fn write_to(&self, to: &Self) -> Result<(), Errno> {
        // SAFETY: SET_OUTPUT takes a descriptor as its argument; both are open.
        check(unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), to.0.as_raw_fd()) })
    }

    fn set_period(&self, period: u64) -> Result<(), Errno> {
        // SAFETY: PERIOD reads one u64 through its argument. The bindings declare the argument as a number; it is the address of a u64 that
        // outlives the call. The descriptor is open.
        check(unsafe { ioctls::PERIOD(self.0.as_raw_fd(), (&raw const period) as u64) })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns the structure of the ABI. Older kernels accept the newer structure as long as fields unknown to them are zero.
fn raw_attr(attr: &Attr) -> abi::perf_event_attr {
    let mut raw = abi::perf_event_attr::default();
    raw.size = size_of_val(&raw) as u32;
    raw.type_ = attr.selector.kind;
    let [config, config1, config2, config3] = attr.selector.config;
    if attr.selector.kind == abi::PERF_TYPE_BREAKPOINT {
        // A breakpoint has no `config`; the selector keeps its access type there.
        raw.bp_type = config as u32;
    } else {
        raw.config = config;
    }
    raw.config1 = config1;
    raw.config2 = config2;
    if let Some(probe) = &attr.probe {
        // The kernel reads the string while the event is opened; `attr` is borrowed for that long.
        raw.config1 = probe.place.as_ptr() as u64;
        raw.config2 = probe.offset;
    }
    raw.config3 = config3;
    // The kernel reads a group in its leader's format. After the CPU went offline, a member with PERF_FORMAT_GROUP would read the count of
    // its former leader.
    if !attr.reads_alone() {
        raw.read_format = u64::from(
            abi::PERF_FORMAT_GROUP
                | abi::PERF_FORMAT_TOTAL_TIME_ENABLED
                | abi::PERF_FORMAT_TOTAL_TIME_RUNNING,
        );
    }
    let bit = u64::from;
    let modifiers = attr.modifiers;
    raw.set_exclude_user(bit(modifiers.exclude_user));
    raw.set_exclude_kernel(bit(modifiers.exclude_kernel));
    raw.set_exclude_hv(bit(modifiers.exclude_hv));
    raw.set_exclude_idle(bit(modifiers.exclude_idle));
    raw.set_exclude_host(bit(modifiers.exclude_host));
    raw.set_exclude_guest(bit(modifiers.exclude_guest));
    raw.set_pinned(bit(modifiers.pinned));
    raw.set_exclusive(bit(modifiers.exclusive));
    raw.set_inherit(bit(attr.inherit != Inherit::Nothing));
    raw.set_inherit_thread(bit(attr.inherit == Inherit::Threads));
    raw.set_disabled(bit(attr.start != Start::WithLeader));
    raw.set_enable_on_exec(bit(attr.start == Start::OnExec));
    if let Some(sampling) = &attr.sampling {
        set_sampling(&mut raw, sampling);
        raw.set_precise_ip(match modifiers.precise {
            Precise::Any => 0,
            Precise::Level(level) => level.min(PRECISE).into(),
            Precise::Max => PRECISE.into(),
        });
        raw.set_watermark(1);
        raw.__bindgen_anon_2.wakeup_watermark = u32::try_from(attr.wake_up).unwrap_or(u32::MAX);
    }
    if attr.ordered || attr.sampling.is_some_and(|sampling| sampling.ordered) {
        raw.set_use_clockid(1);
        raw.clockid = libc::CLOCK_MONOTONIC;
    }
    raw
}

/// Sets the fields of an event that writes records.
fn set_sampling(raw: &mut abi::perf_event_attr, sampling: &Sampling) {
    let Sampling { rate, fields, sideband, .. } = *sampling;
    match rate {
        Rate::Period(period) => raw.sample_period = period,
        Rate::Frequency(frequency) => {
            raw.sample_freq = frequency;
            raw.set_freq(1);
        }
    }
    let asked = [
        (fields.identifier, abi::PERF_SAMPLE_IDENTIFIER),
        (fields.ip, abi::PERF_SAMPLE_IP),
        (fields.tid, abi::PERF_SAMPLE_TID),
        (fields.time, abi::PERF_SAMPLE_TIME),
        (fields.address, abi::PERF_SAMPLE_ADDR),
        (fields.cpu, abi::PERF_SAMPLE_CPU),
        (fields.period, abi::PERF_SAMPLE_PERIOD),
        (fields.read.is_some(), abi::PERF_SAMPLE_READ),
        (fields.callchain, abi::PERF_SAMPLE_CALLCHAIN),
        (fields.raw, abi::PERF_SAMPLE_RAW),
        (fields.user_stack > 0 || fields.width, abi::PERF_SAMPLE_REGS_USER),
        (fields.user_stack > 0, abi::PERF_SAMPLE_STACK_USER),
        (fields.cgroup, abi::PERF_SAMPLE_CGROUP),
        (fields.access, abi::PERF_SAMPLE_ADDR),
        (fields.access && !fields.split_weight, abi::PERF_SAMPLE_WEIGHT),
        (fields.access && fields.split_weight, abi::PERF_SAMPLE_WEIGHT_STRUCT),
        (fields.access, abi::PERF_SAMPLE_DATA_SRC),
        (fields.physical, abi::PERF_SAMPLE_PHYS_ADDR),
    ];
    raw.sample_type = asked.iter().filter(|(asked, _)| *asked).map(|&(_, bit)| u64::from(bit)).sum();
    if fields.read.is_some_and(|read| read.untimed) {
        raw.read_format = abi::PERF_FORMAT_GROUP.into();
    }
    if fields.user_stack > 0 {
        raw.sample_regs_user = if fields.all_registers { Registers::ALL } else { Registers::MASK };
        raw.sample_stack_user = fields.user_stack;
    }
    if fields.width && fields.user_stack == 0 {
        // Without any register, the kernel also omits the first word.
        raw.sample_regs_user = 1;
    }
    raw.set_mmap(u64::from(sideband.mmap));
    raw.set_mmap2(u64::from(sideband.mmap));
    raw.set_mmap_data(u64::from(sideband.mmap && sideband.mmap_data));
    raw.set_context_switch(u64::from(sideband.switches));
    raw.set_ksymbol(u64::from(sideband.ksymbol));
    raw.set_comm(u64::from(sideband.comm));
    // Changes no record: it announces to readers of a file that records of names report an `execve`.
    raw.set_comm_exec(u64::from(sideband.comm));
    raw.set_exclude_callchain_user(u64::from(fields.kernel_only));
    raw.set_task(u64::from(sideband.task));
    raw.set_cgroup(u64::from(sideband.cgroup));
    // Most of the other records contain no time, and those of switches contain no thread either.
    raw.set_sample_id_all(u64::from(fields.time));
}

/// Returns the attribute structure of the ABI as bytes, for a file that describes the event. It has the shortest of the sizes that contain
/// all fields in use: programs reject a structure that is larger than theirs. The address of the location of a probe is omitted.
pub fn attr_bytes(attr: &Attr) -> Vec<u8> {
    let mut raw = raw_attr(attr);
    if attr.probe.is_some() {
        raw.config1 = 0;
    }
    raw.size = if raw.config3 == 0 { abi::PERF_ATTR_SIZE_VER5 } else { abi::PERF_ATTR_SIZE_VER8 };
    let (start, size) = ((&raw const raw).cast::<u8>(), raw.size as usize);
    debug_assert!(size <= size_of_val(&raw));
    // SAFETY: the structure is longer than `size`, has no padding, and was initialized as a whole. It outlives the slice.
    unsafe { std::slice::from_raw_parts(start, size) }.to_vec()
}

/// Converts a CPU or thread number to the type of the system call.
fn number(number: u32) -> Result<i32, Errno> {
    i32::try_from(number).map_err(|_| Errno::EINVAL)
}

pub(super) fn check(result: i32) -> Result<(), Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Modifiers, Selector};
    use crate::sys::{Fields, Sideband};

    fn attr(kind: u32, config: [u64; 4]) -> Attr {
        Attr {
            selector: Selector { kind, config },
            modifiers: Modifiers::default(),
            inherit: Inherit::Nothing,
            start: Start::Later,
            sampling: None,
            wake_up: 4096,
            probe: None,
            filter: None,
            leader: None,
            ordered: false,
        }
    }

    #[test]
    fn every_field_of_the_selector_reaches_the_structure() {
        let raw = raw_attr(&attr(4, [1, 2, 3, 4]));
        assert_eq!((raw.type_, raw.config, raw.config1, raw.config2, raw.config3), (4, 1, 2, 3, 4));
        assert_eq!(raw.read_format, 0b1011);
        assert_eq!((raw.disabled(), raw.inherit(), raw.exclude_kernel()), (1, 0, 0));
    }

    #[test]
    fn the_poller_of_a_ring_is_woken_up_after_the_bytes_of_its_event() {
        let sampling = Sampling {
            rate: Rate::Period(1),
            fields: Fields::NONE,
            sideband: Sideband::default(),
            ordered: false,
        };
        let raw = raw_attr(&Attr { sampling: Some(sampling), ..attr(1, [3, 0, 0, 0]) });
        // SAFETY: `watermark` is set, so this field of the union was written.
        assert_eq!((raw.watermark(), unsafe { raw.__bindgen_anon_2.wakeup_watermark }), (1, 4096));
    }

    #[test]
    fn the_bytes_of_an_event_have_the_size_that_all_programs_know_unless_a_field_needs_more() {
        for (config3, size) in [(0, 112), (7, 136)] {
            let bytes = attr_bytes(&attr(4, [9, 0, 0, config3]));
            assert_eq!(bytes.len(), size);
            let words: Vec<u32> = bytes[..12]
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
                .collect();
            assert_eq!(words, [4, size as u32, 9]);
        }
    }

    #[test]
    fn a_breakpoint_keeps_its_access_type_out_of_config() {
        let raw = raw_attr(&attr(abi::PERF_TYPE_BREAKPOINT, [3, 0x1000, 8, 0]));
        assert_eq!((raw.bp_type, raw.bp_addr, raw.bp_len, raw.config), (3, 0x1000, 8, 0));
    }

    #[test]
    fn a_member_starts_with_its_leader_and_a_leader_later() {
        let mut attr = attr(1, [0; 4]);
        attr.start = Start::WithLeader;
        assert_eq!(raw_attr(&attr).disabled(), 0);
        assert_eq!(raw_attr(&attr).read_format, 0, "a member reads its own count");
        attr.start = Start::OnExec;
        let raw = raw_attr(&attr);
        assert_eq!((raw.disabled(), raw.enable_on_exec()), (1, 1));
    }

    #[test]
    fn threads_are_inherited_without_processes_only_when_asked() {
        let mut attr = attr(1, [0; 4]);
        attr.inherit = Inherit::Threads;
        let raw = raw_attr(&attr);
        assert_eq!((raw.inherit(), raw.inherit_thread()), (1, 1));
        attr.inherit = Inherit::Children;
        let raw = raw_attr(&attr);
        assert_eq!((raw.inherit(), raw.inherit_thread()), (1, 0));
    }
}
