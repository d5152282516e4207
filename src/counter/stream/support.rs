//! Test whether this kernel supports the records of the stream, by opening an event instead of comparing versions.

use super::open::switches;
use crate::error::Errno;
use crate::health::{Attempt, Scope, classify};
use crate::host::Facts;
use crate::plan::{Granularity, StreamSupport, Unsupported};
use crate::sys::{Attr, Fields, Kernel, Place, Rate, ReadFormat, Sampling, Sideband, Start};

/// Returns which granularities of the stream this machine supports. Opens an event for a moment, and closes it.
pub fn support<K: Kernel>(kernel: &K, facts: &Facts) -> StreamSupport {
    let foreseen = StreamSupport::foreseen(facts);
    let asked = |granularity| match facts.online.iter().next() {
        Some(cpu) => ask(kernel, facts, granularity, cpu),
        None => Ok(()),
    };
    StreamSupport {
        cgroup: foreseen.cgroup.and_then(|()| asked(Granularity::Cgroup)),
        process: foreseen.process.and_then(|()| asked(Granularity::Process)),
    }
}

fn ask<K: Kernel>(kernel: &K, facts: &Facts, granularity: Granularity, cpu: u32) -> Result<(), Unsupported> {
    let cgroup = granularity == Granularity::Cgroup;
    let fields = Fields { cgroup, tid: !cgroup, read: Some(ReadFormat::default()), ..Fields::default() };
    let sampling = Sampling { rate: Rate::Period(1), fields, sideband: Sideband::default(), ordered: false };
    let attr = Attr::software(switches(granularity), Some(sampling), Start::Later);
    let Err(errno) = kernel.open(&attr, Place::Cpu(cpu), None) else { return Ok(()) };
    let judgement = classify(errno, &Attempt::software(Scope::CPU), facts);
    let reason = match errno {
        Errno::EINVAL => format!(
            "the kernel rejects {} with records ({errno}): it may be built without CONFIG_CGROUP_PERF",
            granularity.leader()
        ),
        _ => judgement.reason,
    };
    Err(Unsupported { cause: judgement.cause, reason, remedy: judgement.remedy })
}
