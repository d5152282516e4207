//! `perf-exporter sched`: combines `perf sched record` with `perf sched latency`, `timehist`, `map` and `replay`, and with `perf timechart`, live.
//!
//! ```text
//! follow::Session ─► Machine: sched::Timeline and target filter ───────┬► latency: a table at the end
//!                                                                      ├► timehist: a line per run, a summary, JSON
//!                                                                      ├► map: a line per change of a CPU
//!                                                                      ├► timechart: a drawing at the end
//!                                                                      └► replay: threads that do the same again
//! ```
//!
//! Events are opened for all threads on all CPUs: any thread can wake a thread of the target, or run before it on its CPU.

mod args;
mod latency;
mod machine;
mod map;
mod replay;
mod summary;
mod timechart;
mod timehist;
mod window;

use std::time::Duration;

use super::follow::{FollowArgs, Listener, Session, SessionResult, Source};
use super::observe::{Ending, Failure, Host, Subject};
use crate::sys::{Fields, Kernel, Sideband};
pub(super) use args::SchedArgs;
use args::View;
use machine::Machine;

/// Traces the scheduler, and ends like the command.
pub(super) fn sched<K: Kernel>(args: &SchedArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    match &args.view {
        View::Latency(args) => latency::run(args, host),
        View::Timehist(args) => timehist::run(args, host),
        View::Map(args) => map::run(args, host),
        View::Timechart(args) => timechart::run(args, host),
        View::Replay(args) => replay::run(args, host),
    }
}

/// Traces `events` of all threads, with call chains in the kernel if `chains` is set. `begin` creates the listener for observations about
/// the target.
fn follow<K: Kernel, L: Listener>(
    args: &FollowArgs,
    (events, chains): (&[&str], bool),
    host: &Host<'_, K>,
    begin: impl FnOnce(Machine) -> L,
) -> Result<SessionResult<L>, Failure> {
    let subject = host.find(&args.target())?;
    let sources = Source::find_all(events, None, &host.catalog)?;
    let period = sources.iter().any(|source| source.event.counts_amounts());
    let cgroup = matches!(subject, Subject::Cgroups { .. });
    let fields = Fields {
        identifier: true,
        tid: true,
        time: true,
        period,
        raw: true,
        cgroup,
        callchain: chains,
        kernel_only: chains,
        ..Fields::default()
    };
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, switches: true, cgroup, ..Sideband::default() },
        subject: &subject,
        everybody: true,
        program: args.program(),
        limit: args.limit,
    };
    session.follow(|open_targets, _| Ok(begin(Machine::new(&sources, open_targets, host.roots)?)))
}

/// Formats a time of the record clock in seconds, like perf.
fn seconds(nanoseconds: u64) -> String {
    // Microseconds are truncated, as in perf.
    let time = Duration::from_nanos(nanoseconds);
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}
