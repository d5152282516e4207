//! The rate of context switches.

use crate::host::{Roots, read_text};

/// Mean number of context switches per second and CPU since boot, on a host with `cpus` CPUs; 0 if it is unknown.
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
