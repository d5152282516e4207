//! The evidence of the scheduler: runs and waits of the last seconds, as a trace and as tables.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::clock::Timestamp;
use crate::export::trace_json::TraceJson;
use crate::incident::{Incident, LongWait, RanMeanwhile, Scheduling, Span, StuckCall};
use crate::sched::{Chunk, Examined, Meanwhile, RecentRuns, Wait};
use crate::status::Threads;

use std::sync::Arc;

/// Length of the time in a trace, in nanoseconds.
const TRACE: u64 = 5_000_000_000;

/// Maximum number of runs in a trace. One has about 400 bytes, and a tenth of that in the compressed file.
const RUNS: usize = 40_000;

/// Maximum number of waits in a table.
const WAITS: usize = 16;

/// Minimum share of the waited time in a table.
const SHARE: f64 = 0.01;

/// Returns the evidence and the content of its file. `None` if no runs are recorded.
pub(super) fn scheduling(
    incident: &Incident,
    recent_runs: &RecentRuns,
    threads: Option<&Threads>,
) -> Option<(Scheduling, io::Result<Vec<u8>>)> {
    let chunks = recent_runs.chunks();
    let since = Timestamp(incident.began_ms);
    let examined = Examined { chunks: &chunks, cgroup: incident.cgroup.as_deref(), since };
    let worst = examined.worst(TRACE, RUNS)?;
    let (first, last) = (chunks.first()?, chunks.last()?);
    let span = |(from, to): (u64, u64)| Span { from_ms: last.wall(from).0, to_ms: last.wall(to).0 };
    let covered = (first.span()?.0.max(last.kernel(since)), last.span()?.1);
    let meanwhile = examined.meanwhile();
    let scheduling = Scheduling {
        span: span(covered),
        file: None,
        worst: span(worst),
        waits: meanwhile.waits,
        waited_seconds: seconds(meanwhile.waited),
        meanwhile: shares(meanwhile),
        longest: examined.longest(WAITS).into_iter().map(long_wait).collect(),
        stuck: threads.map(stuck).unwrap_or_default(),
    };
    Some((scheduling, trace(&chunks, worst)))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn shares(meanwhile: Meanwhile) -> Vec<RanMeanwhile> {
    let Meanwhile { waited, own, kernel, idle, others, .. } = meanwhile;
    let fixed = [(RanMeanwhile::OWN, own), (RanMeanwhile::KERNEL, kernel), (RanMeanwhile::IDLE, idle)];
    let others = others.into_iter().map(|(path, time)| (path.to_string(), time));
    let all = others.chain(fixed.map(|(name, time)| (name.to_owned(), time)));
    let share = |time: u64| time as f64 / waited.max(1) as f64;
    let mut shares: Vec<RanMeanwhile> =
        all.map(|(cgroup, time)| RanMeanwhile { cgroup, share: share(time) }).collect();
    shares.retain(|ran| ran.share >= SHARE);
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    shares.truncate(WAITS);
    shares
}

fn long_wait(wait: Wait) -> LongWait {
    let Wait { thread, cpu, at, delay } = wait;
    let comm = String::from_utf8_lossy(thread.comm.bytes()).into_owned();
    LongWait { comm, pid: thread.pid, tid: thread.tid, cpu, at_ms: at.0, seconds: seconds(delay) }
}

fn stuck(threads: &Threads) -> Vec<StuckCall> {
    let call = |stuck: &crate::status::Stuck| StuckCall {
        comm: stuck.comm.clone(),
        pid: stuck.pid,
        tid: stuck.tid,
        call: stuck.syscall.clone(),
        seconds: stuck.seconds,
    };
    threads.stuck.iter().map(call).collect()
}

/// Returns the runs that end in a time, compressed.
fn trace(chunks: &[Arc<Chunk>], (from, to): (u64, u64)) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut json = TraceJson::new(&mut gzip);
    for chunk in chunks {
        for run in chunk.runs().filter(|run| (from..=to).contains(&run.until)) {
            json.add_run(&run);
            json.flush()?;
        }
    }
    json.end(to)?;
    gzip.finish()
}
