//! The scrapes of past hours as one text, in which each sample has a timestamp and the label `instance`. Stores import it with full chunks,
//! so that the bytes of a sample are those of a long run.

use std::io::{self, BufWriter, Write};

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::export::negotiate::Format;
use perf_exporter::export::prometheus;

use crate::nodes::Fleet;
use crate::server::encoded;

/// Seconds that the simulation has run for before the first scrape.
const PAST: f64 = 86_400.0;

/// Prints all scrapes of these seconds, which end at the last full two hours, as blocks of Prometheus do.
pub(crate) fn print(fleet: &Fleet, seconds: f64, interval: f64, clock: &Clock) -> io::Result<()> {
    const BLOCK: f64 = 7200.0;
    let end = (clock.now().seconds() / BLOCK).floor() * BLOCK;
    let begin = end - seconds;
    let epoch = Timestamp(((begin - PAST) * 1e3) as u64);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for step in 0..(seconds / interval) as u64 {
        let passed = step as f64 * interval;
        let at = begin + passed;
        for node in 0..fleet.len() {
            let scrape =
                encoded(fleet.snapshot(node, PAST + passed, epoch), Format::Text(prometheus::Format::Text));
            let instance = format!("instance=\"node-{node:05}\",job=\"perf-exporter\"");
            let samples = String::from_utf8_lossy(&scrape);
            for line in samples.lines().filter(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap_or((line, "0"));
                match series.split_once('{') {
                    Some((name, labels)) => writeln!(out, "{name}{{{instance},{labels} {value} {at:.3}")?,
                    None => writeln!(out, "{series}{{{instance}}} {value} {at:.3}")?,
                }
            }
        }
    }
    writeln!(out, "# EOF")?;
    out.flush()
}
