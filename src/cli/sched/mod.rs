//! `perf-exporter sched`: what `perf sched record` does together with `perf sched latency` and `perf sched timehist`, live.
//!
//! ```text
//! follow::Session ─► Machine: sched::Timeline, and who is to be shown ─┬► latency: a table at the end
//!                                                                      └► timehist: a line for each run, a summary, JSON
//! ```
//!
//! Events are opened for all that runs, whoever is shown: who wakes a thread, and who had its CPU, may be anybody.

mod args;
mod latency;
mod machine;
mod summary;
mod timehist;
mod trace_json;

use std::time::Duration;

use super::follow::{Followed, Listener, Session, Source};
use super::observe::{Ending, Failure, Host, Program, Subject};
use crate::sys::{Fields, Kernel, Sideband};
pub(super) use args::SchedArgs;
use args::{Follow, View};
use machine::Machine;

/// Shows what the scheduler does, and ends as the command ended.
pub(super) fn sched<K: Kernel>(args: &SchedArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    match &args.view {
        View::Latency(args) => latency::run(args, host),
        View::Timehist(args) => timehist::run(args, host),
    }
}

/// Follows `events` of all that runs. `begin` makes a listener of what tells of those who are to be shown.
fn follow<K: Kernel, L: Listener>(
    Follow { whom, command, limit }: &Follow,
    events: &[&str],
    host: &Host<'_, K>,
    begin: impl FnOnce(Machine) -> L,
) -> Result<Followed<L>, Failure> {
    let subject = host.find(&whom.target(command))?;
    let sources = Source::find_all(events, None, &host.catalog)?;
    let period = sources.iter().any(|source| source.event.counts_amounts());
    let cgroup = matches!(subject, Subject::Cgroups { .. });
    let fields =
        Fields { identifier: true, tid: true, time: true, period, raw: true, cgroup, ..Fields::default() };
    let session = Session {
        host,
        sources: &sources,
        fields,
        sideband: Sideband { task: true, switches: true, cgroup, ..Sideband::default() },
        subject: &subject,
        everybody: true,
        program: Program::new(command),
        limit: *limit,
    };
    session.follow(|whom, _| Ok(begin(Machine::new(&sources, whom, host.roots)?)))
}

/// A time of the records' clock as perf writes it, in seconds.
fn seconds(nanoseconds: u64) -> String {
    // Microseconds, as perf has them: cut, not rounded.
    let time = Duration::from_nanos(nanoseconds);
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}
