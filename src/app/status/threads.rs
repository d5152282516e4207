//! What the status tells of threads.

use super::Facets;
use crate::clock::Timestamp;
use crate::export::status::{Delay, Stuck, Threads};
use crate::plan::Feed;
use crate::sched::{Comm, Longest};
use crate::syscall::Begun;

/// `None` where nothing is told of them.
pub(super) fn threads(facets: &Facets<'_>) -> Option<Threads> {
    if !facets.traces.iter().any(|state| state.plan.feed != Feed::Records) {
        return None;
    }
    let delay = |longest: &Longest| Delay {
        comm: text(&longest.who.comm),
        pid: longest.who.pid,
        tid: longest.who.tid,
        seconds: longest.delay as f64 / 1e9,
        at: before(facets.now, facets.kernel_now.saturating_sub(longest.time)),
        cpu: longest.cpu,
    };
    let stuck = |(begun, age): &(Begun, u64)| Stuck {
        comm: text(&begun.who.comm),
        pid: begun.who.pid,
        tid: begun.who.tid,
        syscall: begun.call.to_string(),
        seconds: *age as f64 / 1e9,
    };
    Some(Threads {
        reduced: (facets.detail != Default::default()).then(|| facets.detail.as_str().to_owned()),
        delays: facets.remarkable.delays.iter().map(delay).collect(),
        stuck: facets.remarkable.stuck.iter().map(stuck).collect(),
    })
}

fn text(comm: &Comm) -> String {
    String::from_utf8_lossy(comm.bytes()).into_owned()
}

fn before(now: Timestamp, nanoseconds: u64) -> Timestamp {
    Timestamp(now.0.saturating_sub(nanoseconds / 1_000_000))
}
