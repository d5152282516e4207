//! Rings of the stream: how large, and why there is none.

use super::open::{Group, no_stream};
use crate::error::Errno;
use crate::health::{Cause, Judgement, Refusal};
use crate::host::{Roots, read_text};
use crate::ring::RingBudget;
use crate::sys::Event;

/// The ring of the `group`th group of a CPU, as the reader knows it.
pub(super) fn token(cpu: u32, group: usize) -> u64 {
    u64::from(cpu) | (group as u64) << 32
}

/// The CPU and the group of a ring.
pub(super) fn of_token(token: u64) -> (u32, usize) {
    (token as u32, (token >> 32) as usize)
}

/// Makes the ring of a group, of `wanted` pages or of the most that the kernel gives. Gives its pages too.
pub(super) fn make<E: Event>(group: &Group<E>, wanted: usize) -> Result<(E::Ring, usize), Errno> {
    let mut pages = wanted;
    loop {
        match group.leader.map(pages) {
            Ok(ring) => {
                group.clock.write_to(&group.leader)?;
                return Ok((ring, pages));
            }
            // Others of the same user may have locked memory, so the limit is not ours alone.
            Err(Errno::EPERM | Errno::ENOMEM) if pages > 1 => pages /= 2,
            Err(errno) => return Err(errno),
        }
    }
}

/// Tells that a ring which ran over is as large as may be.
pub(super) fn warn_of_the_largest(cpu: u32, pages: usize, budget: RingBudget) {
    let remedy = match budget {
        budget if budget.bound_by_kernel => "give CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb",
        budget if budget.is_ample() => {
            "memory would not help: let the program have more CPU time, or count few by attribution: dedicated"
        }
        _ => "raise limits.ring_memory",
    };
    tracing::warn!(
        cpu,
        kilobytes = kilobytes(pages),
        "records of switches are lost for want of room in their ring, so that some counts have no owner; {remedy}"
    );
}

pub(super) fn kilobytes(pages: usize) -> usize {
    pages * rustix::param::page_size() / 1024
}

/// Why there is no ring on a CPU.
pub(super) fn refusal(leader: &str, cpu: u32, errno: Errno) -> Refusal {
    let (cause, reason, remedy) = match errno {
        Errno::EPERM => (
            Cause::Exhausted,
            "no more memory may be locked for its ring: kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK are used up"
                .to_owned(),
            Some("give it CAP_IPC_LOCK, or raise kernel.perf_event_mlock_kb".to_owned()),
        ),
        Errno::ENOMEM => (
            Cause::Exhausted,
            "there is no memory for its ring".to_owned(),
            Some("free some, or lower limits.ring_memory".to_owned()),
        ),
        errno => (Cause::Broken, format!("the kernel makes no ring for it: {errno}"), None),
    };
    let reason = no_stream(&reason);
    Judgement { cause, reason, remedy }.refusal(&leader.into(), format!("cpu {cpu}"), Some(errno))
}

/// How often each of `cpus` CPUs switched in a second, on the average since boot; 0 where that cannot be told.
pub(in crate::counter) fn switch_rate(roots: &Roots, cpus: usize) -> f64 {
    let rate = || {
        let stat = read_text(&roots.proc.join("stat")).ok()?;
        let switches: f64 = stat.lines().find_map(|line| line.strip_prefix("ctxt "))?.trim().parse().ok()?;
        let uptime = read_text(&roots.proc.join("uptime")).ok()?;
        let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
        Some(switches / uptime.max(1.0) / cpus.max(1) as f64)
    };
    rate().unwrap_or(0.0)
}
