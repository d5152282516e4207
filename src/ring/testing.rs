//! Records made by hand, for tests of whatever reads them.

use perf_event_open_sys::bindings as abi;

use super::record::Task;
use crate::sys::Fields;

/// A record of any kind.
pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
}

/// Numbers as bytes.
pub(crate) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A name or path, filled up to a multiple of 8 as the kernel does it.
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

fn task_record(kind: u32, task: Task) -> Vec<u8> {
    let ids = halves(&[task.pid, task.parent_pid, task.tid, task.parent_tid]);
    record(kind, 0, &[ids, bytes(&[task.time])].concat())
}

/// What a sample is to carry.
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
    /// The record, with as much of it as an event of these `fields` writes.
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
        if let Some(format) = fields.read {
            body.extend(bytes(&[self.values.len() as u64, self.enabled, self.running]));
            for &value in &self.values {
                let beside = usize::from(format.id) + usize::from(format.lost);
                body.extend(bytes(&[&[value][..], &[0, 0][..beside]].concat()));
            }
        }
        if fields.cgroup {
            body.extend(bytes(&[self.cgroup]));
        }
        record(abi::PERF_RECORD_SAMPLE, 0, &body)
    }
}
