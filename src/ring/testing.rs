//! Synthetic records, for tests of their consumers.

use perf_event_open_sys::bindings as abi;

use super::record::{Ksymbol, MappedFile, Mmap, Task};
use crate::sys::{Fields, Registers};

/// Returns a record of any kind.
pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
}

/// Returns numbers as bytes.
pub(crate) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a name or path, padded to a multiple of 8 like in the kernel.
fn text(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.resize((text.len() + 1).next_multiple_of(8), 0);
    bytes
}

fn halves(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

pub(crate) fn comm(pid: u32, tid: u32, name: &[u8], exec: bool) -> Vec<u8> {
    let misc = if exec { abi::PERF_RECORD_MISC_COMM_EXEC as u16 } else { 0 };
    record(abi::PERF_RECORD_COMM, misc, &[halves(&[pid, tid]), text(name)].concat())
}

/// Appends `end` to a record (`sample_id_all`).
pub(crate) fn longer(mut record: Vec<u8>, end: &[u8]) -> Vec<u8> {
    record.extend(end);
    let size = u16::try_from(record.len()).unwrap();
    record[6..8].copy_from_slice(&size.to_ne_bytes());
    record
}

pub(crate) fn cgroup(id: u64, path: &[u8]) -> Vec<u8> {
    record(abi::PERF_RECORD_CGROUP, 0, &[bytes(&[id]), text(path)].concat())
}

pub(crate) fn lost(id: u64, count: u64) -> Vec<u8> {
    record(abi::PERF_RECORD_LOST, 0, &bytes(&[id, count]))
}

pub(crate) fn fork(task: Task) -> Vec<u8> {
    task_record(abi::PERF_RECORD_FORK, task)
}

pub(crate) fn exit(task: Task) -> Vec<u8> {
    task_record(abi::PERF_RECORD_EXIT, task)
}

/// Returns the `PERF_RECORD_SWITCH_CPU_WIDE` of a thread that is switched out, or in. `other` is the task that replaces it, or that it
/// replaces.
pub(crate) fn switch(out: bool, other: (u32, u32), time: u64) -> Vec<u8> {
    let misc = if out { abi::PERF_RECORD_MISC_SWITCH_OUT as u16 } else { 0 };
    let body = [halves(&[other.0, other.1]), bytes(&[time])].concat();
    record(abi::PERF_RECORD_SWITCH_CPU_WIDE, misc, &body)
}

fn task_record(kind: u32, task: Task) -> Vec<u8> {
    let ids = halves(&[task.pid, task.parent_pid, task.tid, task.parent_tid]);
    record(kind, 0, &[ids, bytes(&[task.time])].concat())
}

pub(crate) fn mmap(mmap: &Mmap<'_>) -> Vec<u8> {
    let MappedFile { major, minor, inode } = mmap.file;
    let body = [
        halves(&[mmap.pid, mmap.tid]),
        bytes(&[mmap.start, mmap.length, mmap.offset]),
        halves(&[major, minor]),
        bytes(&[inode, 0]),
        halves(&[mmap.protection, 0]),
        text(mmap.path),
    ];
    record(abi::PERF_RECORD_MMAP2, 0, &body.concat())
}

pub(crate) fn ksymbol(symbol: &Ksymbol<'_>) -> Vec<u8> {
    let flags = if symbol.removed { abi::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER } else { 0 };
    let body = [bytes(&[symbol.address]), halves(&[symbol.length, flags << 16]), text(symbol.name)];
    record(abi::PERF_RECORD_KSYMBOL, 0, &body.concat())
}

/// Contents of a sample with a stack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stack {
    pub(crate) ip: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Addresses and `PERF_CONTEXT_*`.
    pub(crate) callchain: Vec<u64>,
    /// Registers, the copied part of the stack, and whether the stack may continue.
    pub(crate) user: Option<(Registers, Vec<u8>, bool)>,
}

impl Stack {
    /// The fields of its event.
    pub(crate) const FIELDS: Fields =
        Fields { ip: true, tid: true, callchain: true, user_stack: 8, ..Fields::NONE };

    /// Returns the record, as an event of [`Self::FIELDS`] writes it, with a stack of any size.
    pub(crate) fn record(&self) -> Vec<u8> {
        let mut body = bytes(&[self.ip]);
        body.extend(halves(&[self.pid, self.tid]));
        body.extend(bytes(&[self.callchain.len() as u64]));
        body.extend(bytes(&self.callchain));
        match &self.user {
            None => body.extend(bytes(&[0, 0])),
            Some((registers, stack, full)) => {
                // PERF_SAMPLE_REGS_ABI_64
                body.extend(bytes(&[2]));
                body.extend(bytes(&registers.numbers()));
                let room = stack.len().next_multiple_of(8) + if *full { 0 } else { 8 };
                body.extend(bytes(&[room as u64]));
                body.extend(stack);
                body.resize(body.len() + room - stack.len(), 0);
                if room > 0 {
                    body.extend(bytes(&[stack.len() as u64]));
                }
            }
        }
        record(abi::PERF_RECORD_SAMPLE, 0, &body)
    }
}

/// Contents of a sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switch {
    pub(crate) identifier: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: u64,
    pub(crate) enabled: u64,
    pub(crate) running: u64,
    /// The count of each member.
    pub(crate) values: Vec<u64>,
    pub(crate) cgroup: u64,
}

impl Switch {
    /// Returns the record, with the contents that an event of these `fields` writes.
    pub(crate) fn record(&self, fields: &Fields) -> Vec<u8> {
        let mut body = Vec::new();
        if fields.identifier {
            body.extend(bytes(&[self.identifier]));
        }
        if fields.tid {
            body.extend(halves(&[self.pid, self.tid]));
        }
        if fields.time {
            body.extend(bytes(&[self.time]));
        }
        if fields.period {
            body.extend(bytes(&[1]));
        }
        if let Some(format) = fields.read {
            body.extend(bytes(&[self.values.len() as u64]));
            if !format.untimed {
                body.extend(bytes(&[self.enabled, self.running]));
            }
            body.extend(bytes(&self.values));
        }
        if fields.cgroup {
            body.extend(bytes(&[self.cgroup]));
        }
        record(abi::PERF_RECORD_SAMPLE, 0, &body)
    }
}
