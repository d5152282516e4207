//! Rings of the stream: how large, and why there is none.

use super::open::{Group, no_stream};
use crate::error::Errno;
use crate::health::{Judgement, Refusal};
use crate::host::{Roots, read_text};
use crate::ring::room;
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
    let made = room::make(&group.leader, wanted)?;
    group.clock.write_to(&group.leader)?;
    Ok(made)
}

/// Why there is no ring on a CPU.
pub(super) fn refusal(leader: &str, cpu: u32, errno: Errno) -> Refusal {
    let judgement = room::refused(errno);
    let reason = no_stream(&judgement.reason);
    Judgement { reason, ..judgement }.refusal(&leader.into(), format!("cpu {cpu}"), Some(errno))
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
